#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace shardbench {

/// One tensor of a safetensors file, by name, type and shape.
struct TensorEntry {
  std::string name;   ///< printable ASCII without quotes and backslashes
  std::string dtype;  ///< as the format spells it: "F32", "I32"
  std::vector<std::int64_t> dims;
};

/// Writes a safetensors file (little-endian length of the header, the header as JSON, then the data
/// of all tensors) front to back, without a whole tensor in memory.
class SafetensorsWriter {
 public:
  /// Writes the header. Throws UserError when `path` cannot be written.
  SafetensorsWriter(std::string path, const std::vector<TensorEntry>& entries);

  /// The next bytes of the data: tensor after tensor in the order of the entries, row-major.
  void write(const void* data, std::size_t bytes);
  /// All of it is there and has left this process. Throws UserError when the disk is full,
  /// InvariantError when data are missing.
  void finish();

 private:
  void put(const void* data, std::size_t bytes);
  [[noreturn]] void fail(int error) const;

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::size_t missing_ = 0;  ///< bytes of data that are still to come
};

}  // namespace shardbench
