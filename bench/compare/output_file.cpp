#include "bench/compare/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "common/core/error.h"

namespace shardbench::bench {
namespace {

UserError cannot_write(const std::string& path, int error) {
  return UserError::format(
      "--out {}: cannot be written ({}); name a file in a folder you may "
      "write to",
      path, std::strerror(error));
}

/// A new empty file in the folder of `path`; returns its descriptor, puts its name into `name`.
int make_temporary(const std::string& path, std::string& name) {
  name = path + ".XXXXXX";
  const int descriptor = ::mkstemp(name.data());
  if (descriptor < 0) throw cannot_write(path, errno);
  return descriptor;
}

/// Removes the file unless it was renamed away.
struct Temporary {
  std::string name;
  int descriptor = -1;
  ~Temporary() {
    if (descriptor >= 0) ::close(descriptor);
    if (!name.empty()) ::unlink(name.c_str());
  }
};

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  struct stat status {};
  if (path_.empty()) throw UserError("--out needs the name of a file");
  if (::stat(path_.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) throw cannot_write(path_, EISDIR);
    // /dev/stdout, /dev/null and pipes are written in place.
    if (!S_ISREG(status.st_mode)) {
      if (::access(path_.c_str(), W_OK) != 0) throw cannot_write(path_, errno);
      return;
    }
  }
  Temporary probe;
  probe.descriptor = make_temporary(path_, probe.name);
}

void OutputFile::write(const std::string& text) const {
  struct stat status {};
  const bool in_place = ::stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
  Temporary file;
  if (in_place) {
    file.descriptor = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (file.descriptor < 0) throw cannot_write(path_, errno);
  } else {
    file.descriptor = make_temporary(path_, file.name);
  }
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(file.descriptor, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw cannot_write(path_, errno);
    done += static_cast<std::size_t>(n);
  }
  if (in_place) return;
  // mkstemp makes files that only the owner reads; results are ordinary files.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(file.descriptor, 0666 & ~mask) != 0 || ::fsync(file.descriptor) != 0 ||
      ::rename(file.name.c_str(), path_.c_str()) != 0) {
    throw cannot_write(path_, errno);
  }
  file.name.clear();
}

std::string default_output_path() {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path base;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    base = cache;
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    base = fs::path(home) / ".cache";
  } else {
    base = fs::temp_directory_path(error);
    if (error) return {};
  }
  fs::create_directories(base / "shardbench", error);
  return error ? std::string() : (base / "shardbench" / "last.json").string();
}

}  // namespace shardbench::bench
