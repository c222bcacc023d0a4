// JSON of others, read without an exception.
#pragma once

#include <nlohmann/json.hpp>

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

}  // namespace plimsoll
