#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardbench {

/// Element types that move between ranks. Torch-free; converted at the edge of the torch rooms.
enum class DType : std::uint8_t { kFloat64, kFloat32, kBFloat16, kFloat16, kInt64, kUInt8 };

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kUInt8:
      return 1;
  }
  return 0;
}

/// The name used on the command line and in result files: fp64 fp32 bf16 fp16 int64 uint8.
constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return "fp64";
    case DType::kFloat32:
      return "fp32";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat16:
      return "fp16";
    case DType::kInt64:
      return "int64";
    case DType::kUInt8:
      return "uint8";
  }
  return "?";
}

/// Whether elements are floats of two bytes.
constexpr bool is_half_width(DType dtype) {
  return dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

}  // namespace shardbench
