// A value of a JSON file together with its place, so that every error names the file and the key.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {

class JsonPart {
 public:
  // `json` must outlive the part.
  JsonPart(const nlohmann::json& json, std::string file) : json_(&json), file_(std::move(file)) {}

  // "file: key.key[2]", or "file" for the whole.
  [[nodiscard]] std::string place() const {
    return path_.empty() ? file_ : formatted("{}: {}", file_, path_);
  }
  [[nodiscard]] const std::string& file() const { return file_; }

  [[nodiscard]] bool is_null() const { return json_->is_null(); }
  [[nodiscard]] bool is_text() const { return json_->is_string(); }
  [[nodiscard]] bool has(const char* key) const;

  // Members of an object. `at` throws for a missing one; `find` is empty where it is missing or null.
  [[nodiscard]] JsonPart at(const char* key) const;
  [[nodiscard]] std::optional<JsonPart> find(const char* key) const;
  // Items of an array.
  [[nodiscard]] std::vector<JsonPart> items() const;

  // Values; the wrong type is a DamagedError.
  [[nodiscard]] const std::string& text() const;
  [[nodiscard]] const std::string& character() const;  // exactly one
  [[nodiscard]] bool flag() const;
  [[nodiscard]] double number() const;
  [[nodiscard]] int32_t id() const;    // 0 to 2^31 - 1
  [[nodiscard]] size_t count() const;  // 0 to 2^31 - 1

  // Members with the value they have where they are missing or null.
  [[nodiscard]] std::string text_or(const char* key, std::string_view fallback) const;
  [[nodiscard]] bool flag_or(const char* key, bool fallback) const;
  [[nodiscard]] double number_or(const char* key, double fallback) const;

  // "file: key: what".
  [[noreturn]] void damaged(std::string_view what) const;
  // For what a tokenizer.json may hold and Plimsoll does not run.
  [[noreturn]] void refuse(std::string_view kind, std::string_view name, std::string_view supported) const;

 private:
  JsonPart(const nlohmann::json& json, std::string file, std::string path)
      : json_(&json), file_(std::move(file)), path_(std::move(path)) {}
  [[nodiscard]] JsonPart child(const char* key, const nlohmann::json& json) const;

  const nlohmann::json* json_;
  std::string file_;
  std::string path_;
};

}  // namespace plimsoll
