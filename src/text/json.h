// JSON as this folder reads it, and the words of its refusals.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace plimsoll {

using Json = nlohmann::json;

// "file: component "X" is not supported ...": for what a tokenizer.json may hold and Plimsoll cannot run.
[[noreturn]] inline void refuse_component(const std::string& where, std::string_view kind,
                                          std::string_view name, std::string_view supported) {
  throw UsageError(where + ": " + std::string(kind) + " \"" + std::string(name) +
                   "\" is not supported; supported: " + std::string(supported));
}

// The value of `key`, or `fallback` where it is missing or null.
template <typename T>
T value_or(const Json& object, const char* key, T fallback) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? fallback : it->get<T>();
}

}  // namespace plimsoll
