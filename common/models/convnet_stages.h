#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/models/config.h"

namespace shardbench::models {

/// One stage of a convnet, worked out from the sizes. Torch-free.
struct ConvnetStage {
  std::int64_t in = 0;             ///< channels
  std::int64_t out = 0;            ///< channels: those of the stage before, doubled
  std::vector<std::int64_t> size;  ///< spatial, of the input and, as the padding keeps it, the conv
  std::vector<std::int64_t> pool;  ///< window after it; empty: none (the last stage, or size 1)
};

/// A convolution's kernel in every spatial dimension.
inline constexpr std::int64_t kConvnetKernel = 3;

std::vector<ConvnetStage> convnet_stages(const ModelConfig& config);

/// "3x16x16".
std::string image_text(const ModelConfig& config);

/// Elements of one image: the tokens of one window. Very large ones are all the same number.
std::int64_t image_elements(const ModelConfig& config);

/// Training FLOPs of one window. Per multiply-add of a convolution 6, as for matrices, but 4 in the
/// first stage, whose input needs no gradient; the head runs once per window.
double convnet_flops_per_window(const ModelConfig& config);

}  // namespace shardbench::models
