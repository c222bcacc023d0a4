// Puts texts together by libfmt. What is called of it is compiled here: Debian has no static library, and the
// program loads no libfmt.so.
#include "base/format.h"

#define FMT_HEADER_ONLY 1  // NOLINT: whatever is called of it is compiled here
#include <fmt/args.h>
#include <fmt/format.h>

namespace plimsoll {

std::string format_values(std::string_view pattern, std::initializer_list<FormatValue> values) {
  fmt::dynamic_format_arg_store<fmt::format_context> arguments;
  arguments.reserve(values.size(), 0);
  for (const FormatValue& value : values) {
    switch (value.kind()) {
      case FormatValue::Kind::text:
        arguments.push_back(value.text());
        break;
      case FormatValue::Kind::character:
        arguments.push_back(static_cast<char>(value.number()));
        break;
      case FormatValue::Kind::whole:
        arguments.push_back(static_cast<int64_t>(value.number()));
        break;
      case FormatValue::Kind::natural:
        arguments.push_back(value.number());
        break;
    }
  }
  return fmt::vformat(pattern, arguments);
}

}  // namespace plimsoll
