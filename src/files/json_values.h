// Values of JSON that others wrote: a missing value or one of another type is damage, reported with its
// place.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {

// The library's reason without its "[json.exception...]" head, shortened, and UTF-8 whatever the text was.
std::string reason_of(const nlohmann::json::exception& error);

// Returns read(), whose at() and get() find values missing or of another type in what others wrote: then a
// DamagedError that starts with `where`.
template <class Read>
auto read_values(const std::string& where, Read&& read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& error) {
    throw DamagedError(formatted("{}: {}", where, reason_of(error)));
  }
}

}  // namespace plimsoll
