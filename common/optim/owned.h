#pragma once

#include <cstdint>
#include <vector>

namespace shardbench {

class Parameter;

/// Part of a parameter that this rank owns: elements [begin, begin + count) of it, in fp32 memory
/// on the parameter's device that belongs to the strategy. Optimizers step these and nothing else,
/// without communication.
struct OwnedPiece {
  Parameter* parameter = nullptr;
  std::int64_t begin = 0;
  std::int64_t count = 0;
  float* value = nullptr;
  float* gradient = nullptr;      ///< averaged over ranks once reductions are finished
  std::int64_t state_offset = 0;  ///< of its moments in the optimizer's flat memory, elements
};

struct Owned {
  /// Trainable parameters only, whole rows of dimension 0, one piece of a parameter at most.
  std::vector<OwnedPiece> pieces;
  std::int64_t state_extent = 0;  ///< elements of each moment's flat memory, padding included
};

}  // namespace shardbench
