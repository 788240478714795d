#pragma once

#include <cstdint>

namespace shardbench::train {

/// Sum over elements of a mix of (index, bits of value), modulo 2^64: index counts from `begin`, so
/// digests of disjoint parts add up to the digest of the whole, and a swapped, missing or changed
/// element shows.
std::uint64_t digest(const float* values, std::int64_t begin, std::int64_t count);

/// Folds one more number into an ordered hash.
std::uint64_t fold(std::uint64_t hash, std::uint64_t next);

}  // namespace shardbench::train
