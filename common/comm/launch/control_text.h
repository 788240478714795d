#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/comm/launch/control.h"

namespace shardbench::comm {

/// What travels between processes as the body of a message. Throws InvariantError for a text that
/// none of these functions made.
std::string pack(const std::vector<std::string>& texts);
std::vector<std::string> unpack(std::string_view text);

std::string pack_record(const AbortRecord& record);
AbortRecord unpack_record(std::string_view text);

std::string pack_sign(const Sign& sign);
Sign unpack_sign(std::string_view text);

}  // namespace shardbench::comm
