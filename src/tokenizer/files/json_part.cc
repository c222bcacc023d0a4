#include "tokenizer/files/json_part.h"

#include "base/format.h"
#include "unicode/utf8.h"

namespace plimsoll {

JsonPart JsonPart::child(const char* key, const nlohmann::json& json) const {
  return {json, file_, path_.empty() ? key : formatted("{}.{}", path_, key)};
}

bool JsonPart::has(const char* key) const { return json_->is_object() && json_->contains(key); }

JsonPart JsonPart::at(const char* key) const {
  if (!json_->is_object()) damaged(formatted("expected an object with \"{}\"", key));
  const auto it = json_->find(key);
  if (it == json_->end()) damaged(formatted("has no \"{}\"", key));
  return child(key, *it);
}

std::optional<JsonPart> JsonPart::find(const char* key) const {
  if (!json_->is_object()) damaged("expected an object");
  const auto it = json_->find(key);
  if (it == json_->end() || it->is_null()) return std::nullopt;
  return child(key, *it);
}

std::vector<JsonPart> JsonPart::items() const {
  if (!json_->is_array()) damaged("expected a list");
  std::vector<JsonPart> items;
  items.reserve(json_->size());
  for (const nlohmann::json& item : *json_)
    items.push_back({item, file_, formatted("{}[{}]", path_, items.size())});
  return items;
}

const std::string& JsonPart::text() const {
  if (!json_->is_string()) damaged("expected a string");
  return json_->get_ref<const std::string&>();
}

const std::string& JsonPart::character() const {
  const std::string& one = text();
  if (one.empty() || decode_utf8(one.data()).bytes != one.size()) damaged("expected one character");
  return one;
}

bool JsonPart::flag() const {
  if (!json_->is_boolean()) damaged("expected true or false");
  return json_->get<bool>();
}

double JsonPart::number() const {
  if (!json_->is_number()) damaged("expected a number");
  return json_->get<double>();
}

int32_t JsonPart::id() const {
  if (!json_->is_number_integer() || *json_ < 0 || *json_ > INT32_MAX)
    damaged("expected a number from 0 to 2^31 - 1, not " + json_->dump().substr(0, 40));
  return json_->get<int32_t>();
}

size_t JsonPart::count() const { return static_cast<size_t>(id()); }

std::string JsonPart::text_or(const char* key, std::string_view fallback) const {
  const auto value = find(key);
  return value ? value->text() : std::string(fallback);
}

bool JsonPart::flag_or(const char* key, bool fallback) const {
  const auto value = find(key);
  return value ? value->flag() : fallback;
}

double JsonPart::number_or(const char* key, double fallback) const {
  const auto value = find(key);
  return value ? value->number() : fallback;
}

void JsonPart::damaged(std::string_view what) const {
  throw DamagedError(formatted("{}: {}", place(), what));
}

void JsonPart::refuse(std::string_view kind, std::string_view name, std::string_view supported) const {
  throw UsageError(
      formatted("{}: the {} \"{}\" is not supported; supported: {}", place(), kind, name, supported));
}

}  // namespace plimsoll
