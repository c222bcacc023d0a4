// Reads JSON that other programs wrote, without an exception.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace plimsoll {

// The value that `source` (text or a stream) holds; discarded, so neither object nor array, where it is no
// JSON. The library's own way without exceptions throws all the same at a number that no double holds, such
// as 1e999.
template <class Json = nlohmann::json, class Source>
Json read_json_text(Source&& source) {
  try {
    return Json::parse(source, nullptr, false);
  } catch (const nlohmann::json::out_of_range&) {
    return Json(Json::value_t::discarded);
  }
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

// The number that a value is, where it is not beyond +-`most`: such as a time that may be cast to seconds.
template <class Json>
std::optional<double> bounded_number(const Json& value, double most) {
  if (!value.is_number()) return std::nullopt;
  const auto number = value.template get<double>();
  return std::abs(number) <= most ? std::optional(number) : std::nullopt;
}

}  // namespace plimsoll
