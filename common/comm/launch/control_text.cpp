#include "common/comm/launch/control_text.h"

#include <charconv>
#include <cstdint>

#include "common/core/error.h"

namespace shardbench::comm {
namespace {

template <typename T>
T number(const std::string& text) {
  T value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  SHARDBENCH_CHECK(error == std::errc() && stop == text.data() + text.size(), "'{}'", text);
  return value;
}

}  // namespace

std::string pack(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += fmt::format("{}:{}", text.size(), text);
  return out;
}

std::vector<std::string> unpack(std::string_view text) {
  std::vector<std::string> texts;
  while (!text.empty()) {
    const std::size_t colon = text.find(':');
    SHARDBENCH_CHECK(colon != std::string_view::npos, "no length in a packed text");
    const auto length = number<std::size_t>(std::string(text.substr(0, colon)));
    text.remove_prefix(colon + 1);
    SHARDBENCH_CHECK_LE(length, text.size());
    texts.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return texts;
}

std::string pack_record(const AbortRecord& record) {
  return pack({std::to_string(record.rank), std::to_string(static_cast<int>(record.phase)),
               record.unit, record.collective, std::to_string(record.sequence), record.message,
               std::to_string(static_cast<int>(record.reason))});
}

AbortRecord unpack_record(std::string_view text) {
  const std::vector<std::string> parts = unpack(text);
  SHARDBENCH_CHECK_EQ(parts.size(), std::size_t{7});
  AbortRecord record;
  record.rank = number<int>(parts[0]);
  record.phase = static_cast<Phase>(number<int>(parts[1]));
  record.unit = parts[2];
  record.collective = parts[3];
  record.sequence = number<std::int64_t>(parts[4]);
  record.message = parts[5];
  record.reason = static_cast<AbortRecord::Reason>(number<int>(parts[6]));
  return record;
}

std::string pack_sign(const Sign& sign) {
  return pack({std::to_string(sign.beat), pack_record(sign.position)});
}

Sign unpack_sign(std::string_view text) {
  const std::vector<std::string> parts = unpack(text);
  SHARDBENCH_CHECK_EQ(parts.size(), std::size_t{2});
  return {number<std::uint64_t>(parts[0]), unpack_record(parts[1])};
}

}  // namespace shardbench::comm
