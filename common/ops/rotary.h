#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace shardbench::ops {

/// Cosines and sines of rotary position embedding (Su et al. 2021): row t holds cos(t * f_i) for
/// i < size / 2, then sin(t * f_i), with f_i = theta^(-2 i / size). Returns [length, size].
at::Tensor rotary_table(std::int64_t length, std::int64_t size, double theta, at::ScalarType dtype);

/// Turns x [B, T, heads * size] by position, in its own memory (consumed), and returns it: of each
/// head, elements i and i + size / 2 are one pair, (a, b) -> (a cos - b sin, a sin + b cos), as in
/// Hugging Face's Llama. `table` has at least T rows of `size`, in
/// the dtype of x, or in fp32 for bf16 and fp16.
at::Tensor rotary(const at::Tensor& x, const at::Tensor& table);

/// Gradient of x: `grad` turned back by the same angles. New memory.
at::Tensor rotary_backward(const at::Tensor& grad, const at::Tensor& table);

}  // namespace shardbench::ops
