// Reads JSON that other programs wrote, without an exception.
#pragma once

#include <cmath>
#include <ios>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace plimsoll {

// The value that `source` (text or a stream) holds; discarded, so neither object nor array, where it is no
// JSON. The library's own way without exceptions throws all the same at a number that no double holds, such
// as 1e999, and at a stream that cannot be read, such as a folder.
template <class Json = nlohmann::json, class Source>
Json read_json_text(Source&& source) {
  try {
    return Json::parse(source, nullptr, false);
  } catch (const nlohmann::json::out_of_range&) {
  } catch (const std::ios_base::failure&) {
  }
  return Json(Json::value_t::discarded);
}

// The whole number that a value is. Nothing for other types, fractions, and what `Whole` does not hold: get()
// takes all of them for some number.
template <class Whole, class Json>
std::optional<Whole> whole_number(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned()) {
    const auto number = value.template get<uint64_t>();
    return std::in_range<Whole>(number) ? std::optional(static_cast<Whole>(number)) : std::nullopt;
  }
  const auto number = value.template get<int64_t>();
  return std::in_range<Whole>(number) ? std::optional(static_cast<Whole>(number)) : std::nullopt;
}

// As get(), for a value that must be a whole number which `Whole` holds: get() cuts others. They throw as a
// value of another type does.
template <class Whole, class Json>
Whole get_whole(const Json& value) {
  if (const auto number = whole_number<Whole>(value)) return *number;
  // Lists and objects are not written out: dump() recurses, and other users' files may be deep.
  const std::string text = value.is_number() || value.is_boolean() ? value.dump() : value.type_name();
  throw nlohmann::json::type_error::create(302, "must be a whole number, but is " + text, &value);
}
template <class Whole, class Json>
Whole get_whole(const Json& object, const char* key) {
  return get_whole<Whole>(object.at(key));
}
template <class Whole, class Json>
std::vector<Whole> get_wholes(const Json& list) {
  std::vector<Whole> numbers;
  for (const Json& value : list.template get_ref<const typename Json::array_t&>())
    numbers.push_back(get_whole<Whole>(value));
  return numbers;
}

// The number that a value is, where it is not beyond +-`most`: such as a time that may be cast to seconds.
template <class Json>
std::optional<double> bounded_number(const Json& value, double most) {
  if (!value.is_number()) return std::nullopt;
  const auto number = value.template get<double>();
  return std::abs(number) <= most ? std::optional(number) : std::nullopt;
}

}  // namespace plimsoll
