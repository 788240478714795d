#include "common/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "common/core/error.h"

namespace shardbench::data {
namespace {

[[noreturn]] void throw_unreadable(const std::string& path, int error) {
  throw UserError::format("--data: cannot read '{}': {}", path,
                          std::generic_category().message(error));
}

/// Closes a descriptor when the scope ends.
struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }
};

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw_unreadable(path, errno);
  const Descriptor descriptor{fd};
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw_unreadable(path, errno);
  if (!S_ISREG(status.st_mode)) {
    throw UserError::format(
        "--data: '{}' is not a regular file; give a text file, a folder with "
        "*.txt files, or synthetic",
        path);
  }
  if (status.st_size == 0) return;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) throw_unreadable(path, errno);
  data_ = static_cast<const std::uint8_t*>(data);
  size_ = size;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::uint8_t*>(data_), size_);
}

}  // namespace shardbench::data
