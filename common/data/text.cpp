#include "common/data/text.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "common/core/error.h"
#include "common/core/format.h"

namespace shardbench::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kByteValues = 256;

/// The *.txt files directly in `folder`, by name.
std::vector<std::string> text_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->path().extension() == ".txt" && it->is_regular_file(ignored)) {
      files.push_back(it->path().string());
    }
  }
  if (error) {
    throw UserError::format("--data: cannot read folder '{}': {}", folder, error.message());
  }
  if (files.empty()) {
    throw UserError::format(
        "--data: folder '{}' holds no *.txt file; give a text file or a folder that does", folder);
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> files_of(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    throw UserError::format(
        "--data: '{}' does not exist; give a text file, a folder with *.txt files, or synthetic",
        path);
  }
  if (fs::is_directory(status)) return text_files(path);
  return {path};
}

}  // namespace

TextSource::TextSource(const std::string& path) : path_(path) {
  for (const std::string& name : files_of(path)) {
    parts_.push_back({bytes_, MappedFile(name)});
    bytes_ += static_cast<std::int64_t>(parts_.back().file.bytes().size());
  }
  std::uint8_t largest = 0;
  for_each_byte(0, bytes_, [&](std::uint8_t byte) { largest = std::max(largest, byte); });
  vocab_ = bytes_ == 0 ? 0 : largest + 1;
}

std::string TextSource::describe() const {
  return fmt::format("text, {} bytes, {}", format_count(bytes_), path_);
}

std::int64_t TextSource::split_begin(Split split) const {
  return split == Split::kTraining ? 0 : training_bytes();
}

std::int64_t TextSource::split_end(Split split) const {
  return split == Split::kTraining ? training_bytes() : bytes_;
}

std::int64_t TextSource::windows(Split split, std::int64_t seq) const {
  SHARDBENCH_CHECK_GE(seq, 1);
  return std::max<std::int64_t>(0, split_end(split) - split_begin(split) - 1) / seq;
}

void TextSource::read(Split split, std::int64_t index, std::int64_t seq, std::int64_t* tokens,
                      std::int64_t* targets) const {
  SHARDBENCH_CHECK(index >= 0 && index < windows(split, seq), "window {} of {}", index,
                   windows(split, seq));
  const std::int64_t begin = split_begin(split) + index * seq;
  std::int64_t* next = tokens;
  for_each_byte(begin, begin + seq, [&](std::uint8_t byte) { *next++ = byte; });
  std::copy(tokens + 1, tokens + seq, targets);
  for_each_byte(begin + seq, begin + seq + 1, [&](std::uint8_t byte) { targets[seq - 1] = byte; });
}

std::optional<double> TextSource::bigram_baseline() const {
  if (bytes_ - training_bytes() < 2) return std::nullopt;
  std::vector<std::int64_t> pairs(kByteValues * kByteValues, 0);
  std::vector<std::int64_t> firsts(kByteValues, 0);
  std::int64_t previous = -1;
  for_each_byte(0, training_bytes(), [&](std::uint8_t byte) {
    if (previous >= 0) {
      ++pairs[static_cast<std::size_t>(previous * kByteValues + byte)];
      ++firsts[static_cast<std::size_t>(previous)];
    }
    previous = byte;
  });
  // Count held-out pairs first: 65,536 logarithms instead of one per byte.
  std::vector<std::int64_t> scored(kByteValues * kByteValues, 0);
  previous = -1;
  for_each_byte(training_bytes(), bytes_, [&](std::uint8_t byte) {
    if (previous >= 0) ++scored[static_cast<std::size_t>(previous * kByteValues + byte)];
    previous = byte;
  });
  double nats = 0;
  for (std::size_t pair = 0; pair < scored.size(); ++pair) {
    if (scored[pair] == 0) continue;
    const auto seen = static_cast<double>(pairs[pair] + 1);
    const auto all = static_cast<double>(firsts[pair / kByteValues] + kByteValues);
    nats -= static_cast<double>(scored[pair]) * std::log(seen / all);
  }
  return nats / static_cast<double>(bytes_ - training_bytes() - 1);
}

void TextSource::require_windows(std::int64_t seq, bool held_out) const {
  if (seq < 1) throw UserError::format("--seq {} is not valid; give at least 1", seq);
  if (windows(Split::kTraining, seq) >= 1 && (!held_out || windows(Split::kHeldOut, seq) >= 1)) {
    return;
  }
  // Smallest text whose training part (nine tenths, rounded down) or held-out part (the rest)
  // has seq + 1 bytes.
  const std::int64_t needed = held_out ? 10 * seq + 1 : ((seq + 1) * 10 + 8) / 9;
  throw UserError::format(
      "--data: '{}' is too short for --seq {}: {} bytes are needed ({}), {} are there", path_, seq,
      format_count(needed),
      held_out ? "the last tenth is held out and must have seq + 1"
               : "nine tenths are trained on and must have seq + 1",
      format_count(bytes_));
}

template <typename Visit>
void TextSource::for_each_byte(std::int64_t begin, std::int64_t end, Visit visit) const {
  auto part = std::upper_bound(parts_.begin(), parts_.end(), begin,
                               [](std::int64_t at, const Part& p) { return at < p.begin; });
  while (begin < end) {
    const Part& here = *std::prev(part);
    const auto bytes = here.file.bytes();
    const std::int64_t here_end =
        std::min(end, here.begin + static_cast<std::int64_t>(bytes.size()));
    for (; begin < here_end; ++begin) visit(bytes[static_cast<std::size_t>(begin - here.begin)]);
    ++part;
  }
}

}  // namespace shardbench::data
