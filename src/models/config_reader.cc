#include "models/config_reader.h"

#include "base/error.h"

namespace plimsoll {

void ConfigReader::fail(const std::string& why) const { throw UsageError(where_ + ": " + why); }

int64_t ConfigReader::integer(const char* key, int64_t least, int64_t most) const {
  if (!has(key)) fail("'" + std::string(key) + "' is missing");
  const Json& value = json_.at(key);
  if (!value.is_number_integer()) fail("'" + std::string(key) + "' must be a whole number");
  const bool beyond = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(most);
  if (beyond || value.get<int64_t>() < least || value.get<int64_t>() > most) {
    fail("'" + std::string(key) + "' is " + value.dump() + ", must be " + std::to_string(least) + " to " +
         std::to_string(most));
  }
  return value.get<int64_t>();
}

double ConfigReader::number(const char* key, double otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_.at(key).is_number()) fail("'" + std::string(key) + "' must be a number");
  return json_.at(key).get<double>();
}

double ConfigReader::number(const char* key, double otherwise, double least, double most) const {
  const double value = number(key, otherwise);
  if (value < least || value > most)
    fail("'" + std::string(key) + "' is " + json_.at(key).dump() + ", must be " + Json(least).dump() +
         " to " + Json(most).dump());
  return value;
}

bool ConfigReader::flag(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_.at(key).is_boolean()) fail("'" + std::string(key) + "' must be true or false");
  return json_.at(key).get<bool>();
}

std::string ConfigReader::text(const char* key, const std::string& otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_.at(key).is_string()) fail("'" + std::string(key) + "' must be a text");
  return json_.at(key).get<std::string>();
}

std::string ConfigReader::architecture() const {
  constexpr const char* kKey = "architectures";
  if (!has(kKey) || !at(kKey).is_array() || at(kKey).empty() || !at(kKey).front().is_string()) return "";
  return at(kKey).front().get<std::string>();
}

}  // namespace plimsoll
