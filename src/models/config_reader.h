// Reads keys of a config.json: each with its bounds, each refusal with the file and the key.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace plimsoll {

// Bounds beyond which a value is a mistake rather than a model; they also keep every product below 2^63.
inline constexpr int64_t kMostLayers = 2000;
inline constexpr int64_t kWidest = int64_t{1} << 20;
inline constexpr int64_t kLargestVocab = int64_t{1} << 24;
inline constexpr int64_t kMostPositions = int64_t{1} << 40;

class ConfigReader {
 public:
  using Json = nlohmann::json;
  // `where` opens every message: the file's name.
  ConfigReader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  // Throws UsageError.
  [[noreturn]] void fail(const std::string& why) const;
  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }
  // Also if it is null, which differs from absence: no window, as many heads as there are.
  [[nodiscard]] bool names(const char* key) const { return json_.contains(key); }
  [[nodiscard]] const Json& at(const char* key) const { return json_.at(key); }

  // A value of another type, beyond its bounds, or missing where there is no other, is refused.
  [[nodiscard]] int64_t integer(const char* key, int64_t least, int64_t most) const;
  [[nodiscard]] int64_t integer(const char* key, int64_t least, int64_t most, int64_t otherwise) const {
    return has(key) ? integer(key, least, most) : otherwise;
  }
  [[nodiscard]] double number(const char* key, double otherwise) const;
  [[nodiscard]] double number(const char* key, double otherwise, double least, double most) const;
  [[nodiscard]] bool flag(const char* key, bool otherwise) const;
  [[nodiscard]] std::string text(const char* key, const std::string& otherwise) const;
  // The first of `architectures`; empty where that key is absent.
  [[nodiscard]] std::string architecture() const;

 private:
  const Json& json_;
  std::string where_;
};

}  // namespace plimsoll
