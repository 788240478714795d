#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/core/simd.h"

namespace shardbench::cli {

/// Values of flags. `flag` is the name that messages start with. All throw UserError in one line
/// that says what is wrong and what would be right.

/// A whole number in [min, max].
std::int64_t parse_count(const std::string& flag, const std::string& text, std::int64_t min,
                         std::int64_t max);
/// Any unsigned 64-bit number.
std::uint64_t parse_seed(const std::string& flag, const std::string& text);
/// A finite decimal number in [min, max]; `above` leaves min itself out.
double parse_real(const std::string& flag, const std::string& text, double min, double max,
                  bool above = false);
/// One of `choices`.
std::string parse_choice(const std::string& flag, const std::string& text,
                         const std::vector<std::string>& choices);
/// Comma-separated items, at least one, none empty, none twice.
std::vector<std::string> parse_list(const std::string& flag, const std::string& text);
/// Refuses a list in which two items mean the same ("1,01"): `meanings` are theirs, as texts.
void require_distinct(const std::string& flag, const std::string& text,
                      const std::vector<std::string>& meanings);
/// "key=value" with a non-empty key.
std::pair<std::string, std::string> parse_pair(const std::string& flag, const std::string& text);

/// `--context K=V`: adds the note. Throws UserError for a key that is there, or that the program
/// writes itself (`own_keys`).
void add_note(std::map<std::string, std::string>& notes, const std::vector<std::string>& own_keys,
              const std::string& text);

/// `--backend`, the same in every command.
std::string parse_backend(const std::string& text);
/// `--simd`, the same in every command: one of the widths that this CPU has, "auto" the widest.
SimdWidth parse_simd(const std::string& text, const std::vector<SimdWidth>& widths = simd_widths());
inline constexpr const char* kSimdHelp =
    "vector instructions of reductions, copies and optimizers: auto (the widest that this CPU has) "
    "or one width, to compare; the bits do not depend on it";
inline constexpr const char* kBackendHelp =
    "what moves bytes: auto, shm (shared memory), mpi or nccl (started by mpirun or torchrun)";

}  // namespace shardbench::cli
