#pragma once

#include <string>

#include "common/core/descriptor.h"

namespace shardbench::bench {

/// A file without a name: whatever ends this process, nothing is left on the disk. This process's
/// children open it by its path while it lives.
class UnnamedFile {
 public:
  /// In the folder for temporary files. Throws UserError when none can be made there.
  UnnamedFile();

  /// "/proc/PID/fd/N".
  const std::string& path() const { return path_; }

 private:
  Descriptor descriptor_;
  std::string path_;
};

}  // namespace shardbench::bench
