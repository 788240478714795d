#include "bench/peers/unnamed_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "common/core/error.h"

namespace shardbench::bench {

UnnamedFile::UnnamedFile() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  std::string name = (folder / "shardbench-peers-XXXXXX").string();
  const int fd = error ? -1 : ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) {
    throw UserError::format("no file can be made in {} ({}): set TMPDIR to a folder with room",
                            folder.string(), std::strerror(errno));
  }
  descriptor_ = Descriptor(fd);
  ::unlink(name.c_str());
  path_ = fmt::format("/proc/{}/fd/{}", ::getpid(), fd);
}

}  // namespace shardbench::bench
