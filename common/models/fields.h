#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/models/config.h"

namespace shardbench::models {

/// One size of ModelConfig as model files, flags and messages know it. Torch-free.
struct Field {
  using Member = std::variant<std::int64_t ModelConfig::*, double ModelConfig::*,
                              bool ModelConfig::*, std::vector<std::int64_t> ModelConfig::*>;
  std::string key;  ///< "kv_heads"; its flag is --kv-heads
  Member member;
  std::vector<Family> families;  ///< that read it; it has no effect on the others
  double min = 0;                ///< of numbers
  double max = 0;
  bool above_min = false;  ///< `min` itself is left out
  bool below_max = false;  ///< `max` itself is left out

  bool read_by(Family family) const;
  /// "a whole number from 1 to 16384", "a number of at least 0 and below 1", "true or false", ...
  std::string expected() const;
};

/// All fields, in the order of ModelConfig. The largest sizes keep the byte count of every model
/// within 63 bits.
const std::vector<Field>& fields();
/// By key, which must exist.
const Field& field(std::string_view key);
/// Keys that a family reads.
std::vector<std::string> keys_of(Family family);

/// "mlp", "convnet", "gpt2", "llama": the order of Family.
const std::vector<std::string>& family_names();
const std::string& name_of(Family family);

/// Heads of keys and values: those given, or as many as heads.
std::int64_t kv_heads_of(const ModelConfig& config);

/// Rows of each part of the output head; they differ by one at most.
std::vector<std::int64_t> head_rows(const ModelConfig& config);

/// One per family: whether its own sizes fit together. Throw UserError naming the key and the
/// nearest valid value.
void validate_gpt2(const ModelConfig& config);
void validate_llama(const ModelConfig& config);
void validate_convnet(const ModelConfig& config);

}  // namespace shardbench::models
