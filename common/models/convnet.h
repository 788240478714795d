#pragma once

#include <cstdint>
#include <vector>

#include "common/models/config.h"
#include "common/models/convnet_stages.h"
#include "common/modules/layers/batch_norm.h"
#include "common/modules/layers/linear.h"
#include "common/modules/module.h"

namespace shardbench::models {

/// One stage: conv (Conv1d, Conv2d or Conv3d: kernel 3, padding 1, no bias, as the norm would take
/// it out again), norm (BatchNorm), ReLU, and max pooling where the stage has a window.
class ConvBlock : public Module {
 public:
  explicit ConvBlock(const ConvnetStage& stage);
  std::string_view class_name() const override { return "ConvBlock"; }

 protected:
  /// (x [N, in, spatial...]) -> [N, out, spatial'...].
  at::Tensor forward(const Tensors& inputs) override;

 private:
  std::vector<std::int64_t> pool_;
  Module* conv_;
  BatchNorm* norm_;
};

/// A small image classifier that reads the same tokens as the language models: a window of tokens
/// is laid out as an image, channel by channel and row by row, its values scaled to [-1, 1], and
/// the class is the token that follows the window. Stages with doubling channels, the mean over all
/// positions, and a Linear head. It has batch statistics (see BatchNorm), and rows that do not
/// divide among ranks.
class ConvNet : public Module {
 public:
  explicit ConvNet(const ModelConfig& config);
  std::string_view class_name() const override { return "ConvNet"; }

 protected:
  /// (tokens int64 [B, T], targets int64 [B, T]) -> the mean loss over windows, of which only the
  /// last target counts; (tokens) -> logits [B, vocab]. Throws UserError unless T is the number of
  /// elements of an image.
  at::Tensor forward(const Tensors& inputs) override;

 private:
  at::Tensor images(const at::Tensor& tokens) const;

  std::vector<std::int64_t> image_;
  std::string image_text_;
  std::int64_t elements_;
  double scale_;
  std::vector<ConvBlock*> stages_;
  Linear* head_;
};

}  // namespace shardbench::models
