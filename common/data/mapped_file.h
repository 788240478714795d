#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace shardbench::data {

/// A regular file, mapped read-only: pages come in when they are read and ranks of one machine
/// share them. Owning, movable. An empty file maps to an empty span.
class MappedFile {
 public:
  /// Throws UserError naming the path when it cannot be opened or is not a regular file.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  std::span<const std::uint8_t> bytes() const { return {data_, size_}; }

 private:
  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace shardbench::data
