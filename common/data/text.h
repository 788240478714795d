#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/data/mapped_file.h"
#include "common/data/token_source.h"

namespace shardbench::data {

/// Text by bytes: a file, or all *.txt files of a folder (not of folders below it) in the order of
/// their names, joined without anything between. The first 9/10 of the bytes are for training, the
/// rest is held out. Windows of seq + 1 bytes start every `seq` bytes and never cross the cut.
class TextSource final : public TokenSource {
 public:
  /// Throws UserError as open_source does.
  explicit TextSource(const std::string& path);

  std::string describe() const override;
  /// The largest byte that occurs, plus one.
  std::int64_t vocab() const override { return vocab_; }
  std::int64_t windows(Split split, std::int64_t seq) const override;
  void read(Split split, std::int64_t index, std::int64_t seq, std::int64_t* tokens,
            std::int64_t* targets) const override;
  std::optional<double> bigram_baseline() const override;
  void require_windows(std::int64_t seq, bool held_out) const override;

  std::int64_t bytes() const { return bytes_; }
  std::int64_t training_bytes() const { return bytes_ * 9 / 10; }

 private:
  struct Part {
    std::int64_t begin;  ///< place of its first byte in the joined text
    MappedFile file;
  };
  std::int64_t split_begin(Split split) const;
  std::int64_t split_end(Split split) const;
  /// Calls visit(byte) for bytes [begin, end) of the joined text.
  template <typename Visit>
  void for_each_byte(std::int64_t begin, std::int64_t end, Visit visit) const;

  std::string path_;
  std::vector<Part> parts_;
  std::int64_t bytes_ = 0;
  std::int64_t vocab_ = 0;
};

}  // namespace shardbench::data
