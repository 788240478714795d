#pragma once

#include <string>

namespace shardbench::bench {

/// A result file that appears whole or not at all: written beside its place and renamed.
class OutputFile {
 public:
  /// Throws UserError when `path` cannot be written: checked now, before anything runs, and
  /// without leaving or changing a file.
  explicit OutputFile(std::string path);

  /// Throws UserError when the disk is full or the folder has gone.
  void write(const std::string& text) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Where results go when no --out is given: shardbench/last.json in XDG_CACHE_HOME, else in
/// ~/.cache, else in the folder for temporary files. Makes the folder; "" when that fails.
std::string default_output_path();

}  // namespace shardbench::bench
