#include "common/core/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "common/core/error.h"

namespace shardbench {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::size_t kAlignment = 8;  // of the data's begin, padded with spaces

std::size_t size_of(const std::string& dtype) {
  if (dtype == "F32" || dtype == "I32") return 4;
  SHARDBENCH_CHECK(false, "no tensors of type {}", dtype);
  return 0;
}

bool is_plain(const std::string& name) {
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::string path, const std::vector<TensorEntry>& entries)
    : path_(std::move(path)) {
  std::string header = "{";
  for (const TensorEntry& entry : entries) {
    SHARDBENCH_CHECK(is_plain(entry.name), "a tensor called {}", entry.name);
    std::size_t bytes = size_of(entry.dtype);
    for (const std::int64_t dim : entry.dims) bytes *= static_cast<std::size_t>(dim);
    header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          header.size() > 1 ? "," : "", entry.name, entry.dtype,
                          fmt::join(entry.dims, ","), missing_, missing_ + bytes);
    missing_ += bytes;
  }
  header += "}";
  header.resize((header.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  file_.reset(std::fopen(path_.c_str(), "wb"));
  if (file_ == nullptr) fail(errno);
  const std::uint64_t length = header.size();
  put(&length, sizeof(length));
  put(header.data(), header.size());
}

void SafetensorsWriter::write(const void* data, std::size_t bytes) {
  SHARDBENCH_CHECK_LE(bytes, missing_);
  put(data, bytes);
  missing_ -= bytes;
}

void SafetensorsWriter::finish() {
  SHARDBENCH_CHECK_EQ(missing_, 0u);
  if (std::fflush(file_.get()) != 0) fail(errno);
}

void SafetensorsWriter::put(const void* data, std::size_t bytes) {
  if (bytes > 0 && std::fwrite(data, 1, bytes, file_.get()) != bytes) fail(errno);
}

void SafetensorsWriter::fail(int error) const {
  throw UserError::format("{}: cannot be written ({})", path_, std::strerror(error));
}

}  // namespace shardbench
