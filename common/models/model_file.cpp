#include "common/models/model_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "common/core/error.h"
#include "common/core/format.h"
#include "common/models/convnet_stages.h"
#include "common/models/fields.h"

namespace shardbench::models {

namespace {

using nlohmann::json;

constexpr std::uintmax_t kMostBytes = 1 << 20;
constexpr std::size_t kMostShown = 60;  ///< characters of a value or message that errors repeat

std::string shortened(std::string text) {
  if (text.size() > kMostShown) text = text.substr(0, kMostShown - 3) + "...";
  return text;
}

std::string shown(const json& value) {
  return shortened(value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace));
}

std::string text_of_file(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    throw UserError("there is no such file; give a preset's name or a JSON file that exists");
  }
  if (!std::filesystem::is_regular_file(status)) throw UserError("not a file but a folder or such");
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (!error && bytes > kMostBytes) {
    throw UserError::format("{} bytes are too many for a model file; the most is {}", bytes,
                            kMostBytes);
  }
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) throw UserError("cannot be read; check its permissions");
  return text;
}

/// The file's object; keys that stand twice are refused, as one of the two would be lost, and so is
/// nesting that could overflow the stack of whoever walks it.
json parse_object(const std::string& text) {
  constexpr int kMostDepth = 16;
  std::set<std::string> keys;
  const auto once = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMostDepth) throw UserError("nested too deeply for a model file");
    if (event == json::parse_event_t::key && depth == 1 &&
        !keys.insert(parsed.get<std::string>()).second) {
      throw UserError::format("key {} stands there twice; leave one", shown(parsed));
    }
    return true;
  };
  json object;
  try {
    object = json::parse(text, once);
  } catch (const json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 3, column 1: ...": the middle part.
    std::string what = error.what();
    what = what.substr(std::min(what.find("] ") + 2, what.size()));
    throw UserError::format("not JSON, or cut short: {}", what.substr(0, what.find(": ")));
  }
  if (!object.is_object()) {
    throw UserError::format("holds {}; a model file is one object, such as {{\"base\": \"gpt2\"}}",
                            shown(object));
  }
  return object;
}

[[noreturn]] void wrong_type(const std::string& key, const json& value,
                             const std::string& expected) {
  throw UserError::format("key {} is {}; give {}", key, shown(value), expected);
}

std::string text_at(const json& object, const char* key, const std::string& expected) {
  const json& value = object.at(key);
  if (!value.is_string()) wrong_type(key, value, expected);
  return value.get<std::string>();
}

Family family_at(const json& object) {
  const std::string choices = "one of " + join(family_names());
  const std::string name = text_at(object, "family", choices);
  const auto found = std::find(family_names().begin(), family_names().end(), name);
  if (found == family_names().end()) {
    throw UserError::format("key family is {}; give {}{}", shown(object["family"]), choices,
                            did_you_mean(name, family_names()));
  }
  return static_cast<Family>(found - family_names().begin());
}

/// Where sizes start that the file leaves out.
ModelConfig base_of(const json& object) {
  if (object.contains("base")) {
    try {
      const ModelConfig base = preset(text_at(object, "base", "the name of a preset"));
      if (object.contains("family") && family_at(object) != base.family) {
        throw UserError::format("{} is of family {}, but key family is {}; leave one out",
                                base.name, name_of(base.family), shown(object["family"]));
      }
      return base;
    } catch (const UserError& error) {
      throw UserError::format("key base: {}", error.what());
    }
  }
  if (!object.contains("family")) {
    throw UserError::format("key family is missing; give one of {}, or base with a preset's name",
                            join(family_names()));
  }
  const Family family = family_at(object);
  for (const std::string& name : preset_names()) {
    const ModelConfig candidate = preset(name);
    if (candidate.family == family) return candidate;  // the smallest comes first
  }
  ModelConfig config;
  config.family = family;
  return config;
}

/// `value`, or an item of it, as a number that the field takes.
std::int64_t whole_number(const Field& field, const json& number, const json& value) {
  if (!number.is_number_integer()) wrong_type(field.key, value, field.expected());
  const bool huge = number.is_number_unsigned() &&
                    number.get<std::uint64_t>() > static_cast<std::uint64_t>(field.max);
  const bool small = !huge && number.get<std::int64_t>() < static_cast<std::int64_t>(field.min);
  if (huge || small) {
    wrong_type(field.key, value,
               fmt::format("{}; nearest: {:.0f}", field.expected(), huge ? field.max : field.min));
  }
  return number.get<std::int64_t>();
}

void set(ModelConfig& config, const Field& field, const json& value) {
  if (const auto* count = std::get_if<std::int64_t ModelConfig::*>(&field.member)) {
    config.** count = whole_number(field, value, value);
  } else if (const auto* real = std::get_if<double ModelConfig::*>(&field.member)) {
    if (!value.is_number()) wrong_type(field.key, value, field.expected());
    config.** real = value.get<double>();
  } else if (const auto* on = std::get_if<bool ModelConfig::*>(&field.member)) {
    if (!value.is_boolean()) wrong_type(field.key, value, field.expected());
    config.** on = value.get<bool>();
  } else {
    const bool list = value.is_array() && value.size() >= 2 && value.size() <= 4;
    if (!list) wrong_type(field.key, value, field.expected());
    std::vector<std::int64_t> numbers;
    for (const json& item : value) numbers.push_back(whole_number(field, item, value));
    config.*std::get<std::vector<std::int64_t> ModelConfig::*>(field.member) = numbers;
  }
}

void set_all(ModelConfig& config, const json& object) {
  std::vector<std::string> known = {"family", "name", "base"};
  for (const Field& field : fields()) known.push_back(field.key);
  for (const auto& [key, value] : object.items()) {
    const auto found = std::find(known.begin(), known.end(), key);
    if (found == known.end()) {
      throw UserError::format("unknown key {}{}; known: {}", shown(json(key)),
                              did_you_mean(key, known), join(known));
    }
    if (found - known.begin() < 3) continue;
    const Field& size = field(key);
    if (!size.read_by(config.family)) {
      throw UserError::format("key {} has no effect on family {}; leave it out (sizes: {})", key,
                              name_of(config.family), join(keys_of(config.family)));
    }
    set(config, size, value);
  }
}

std::string name_at(const json& object, const std::string& path) {
  if (!object.contains("name")) return std::filesystem::path(path).stem().string();
  const std::string expected = fmt::format("1 to {} printable characters", kMostShown);
  const std::string name = text_at(object, "name", expected);
  const bool printable = std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != 127;
  });
  if (name.empty() || name.size() > kMostShown || !printable) {
    wrong_type("name", object["name"], expected);
  }
  return name;
}

ModelConfig read(const std::string& path) {
  const json object = parse_object(text_of_file(path));
  ModelConfig config = base_of(object);
  config.name = name_at(object, path);
  set_all(config, object);
  if (config.family == Family::kConvnet) config.context = image_elements(config);
  validate(config);
  return config;
}

}  // namespace

ModelConfig model_named(const std::string& name) {
  return name.ends_with(".json") ? read_model_file(name) : preset(name);
}

ModelConfig read_model_file(const std::string& path) {
  try {
    return read(path);
  } catch (const UserError& error) {
    throw UserError::format("{}: {}", path, error.what());
  }
}

nlohmann::ordered_json model_json(const ModelConfig& config) {
  nlohmann::ordered_json out = {{"name", config.name}, {"family", name_of(config.family)}};
  for (const Field& field : fields()) {
    if (!field.read_by(config.family)) continue;
    std::visit([&](auto member) { out[field.key] = config.*member; }, field.member);
  }
  if (out.contains("kv_heads")) out["kv_heads"] = kv_heads_of(config);
  return out;
}

}  // namespace shardbench::models
