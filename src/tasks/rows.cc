#include "tasks/rows.h"

#include "base/error.h"

namespace plimsoll {

std::string_view to_string(RowFormat format) {
  for (const auto& [value, label] : kRowFormats)
    if (value == format) return label;
  throw InternalError("to_string: no such format");
}

}  // namespace plimsoll
