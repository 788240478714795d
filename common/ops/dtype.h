#pragma once

#include <ATen/core/Tensor.h>

#include "common/core/dtype.h"

namespace shardbench::ops {

/// LibTorch's name of an element type.
constexpr at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return at::kDouble;
    case DType::kFloat32:
      return at::kFloat;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kInt64:
      return at::kLong;
    case DType::kUInt8:
      return at::kByte;
  }
  return at::kFloat;
}

/// Our name of a floating-point element type; fp64 for any other one, too.
inline DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DType::kFloat32;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kHalf:
      return DType::kFloat16;
    default:
      return DType::kFloat64;
  }
}

/// bf16 or fp16: operations on them add up in fp32 and round once.
inline bool is_half_width(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}

/// What operations on `tensor` compute in.
inline at::ScalarType compute_type(const at::Tensor& tensor) {
  return is_half_width(tensor) ? at::kFloat : tensor.scalar_type();
}

/// A small tensor of weights or statistics in what operations on `like` compute in.
inline at::Tensor in_compute_type(const at::Tensor& tensor, const at::Tensor& like) {
  return is_half_width(like) && tensor.defined() ? tensor.to(at::kFloat) : tensor;
}

}  // namespace shardbench::ops
