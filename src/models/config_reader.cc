#include "models/config_reader.h"

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {

void ConfigReader::fail(const std::string& why) const { throw UsageError(formatted("{}: {}", where_, why)); }

int64_t ConfigReader::integer(const char* key, int64_t least, int64_t most) const {
  if (!has(key)) fail(formatted("'{}' is missing", key));
  const Json& value = json_.at(key);
  if (!value.is_number_integer()) fail(formatted("'{}' must be a whole number", key));
  const bool beyond = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(most);
  if (beyond || value.get<int64_t>() < least || value.get<int64_t>() > most) {
    fail(formatted("'{}' is {}, must be {} to {}", key, value.dump(), least, most));
  }
  return value.get<int64_t>();
}

double ConfigReader::number(const char* key, double otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_.at(key).is_number()) fail(formatted("'{}' must be a number", key));
  return json_.at(key).get<double>();
}

double ConfigReader::number(const char* key, double otherwise, double least, double most) const {
  const double value = number(key, otherwise);
  if (value < least || value > most)
    fail(formatted("'{}' is {}, must be {} to {}", key, json_.at(key).dump(), Json(least).dump(),
                   Json(most).dump()));
  return value;
}

bool ConfigReader::flag(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_.at(key).is_boolean()) fail(formatted("'{}' must be true or false", key));
  return json_.at(key).get<bool>();
}

std::string ConfigReader::text(const char* key, const std::string& otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_.at(key).is_string()) fail(formatted("'{}' must be a text", key));
  return json_.at(key).get<std::string>();
}

std::string ConfigReader::architecture() const {
  constexpr const char* kKey = "architectures";
  if (!has(kKey) || !at(kKey).is_array() || at(kKey).empty() || !at(kKey).front().is_string()) return "";
  return at(kKey).front().get<std::string>();
}

}  // namespace plimsoll
