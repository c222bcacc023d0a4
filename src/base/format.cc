// Puts texts together by libfmt. What is called of it is compiled here: Debian has no static library, and the
// program loads no libfmt.so.
#include "base/format.h"

#include <fmt/args.h>
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template void buffer<char>::append(const char*, const char*);
template void vformat_to(buffer<char>&, string_view, basic_format_args<FMT_BUFFER_CONTEXT(char)>, locale_ref);
template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;

}  // namespace detail
FMT_END_NAMESPACE

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
