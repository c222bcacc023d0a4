// Filters over single values.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/format.h"
#include "jinja/library.h"
#include "jinja/python_text.h"

namespace plimsoll::jinja {
namespace {

[[noreturn]] void refuse_undefined(const Value& value) {
  fail(value.text().empty() ? "an undefined value is used" : value.text());
}

// A number as int() and float() read it: blanks at the ends, digits with single underscores between them.
std::optional<std::string> plain_number(std::string_view text) {
  constexpr size_t kLongest = 1000;  // with its underscores
  std::string number(strip_left(strip_right(text)));
  if (number.size() > kLongest) return std::nullopt;
  for (size_t i = 0; i < number.size(); ++i) {
    if (number[i] != '_') continue;
    const auto digit = [&](size_t at) {
      return at < number.size() && std::isxdigit(static_cast<unsigned char>(number[at])) != 0;
    };
    if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
    number.erase(i--, 1);
  }
  return number.empty() || number.size() > 400 ? std::nullopt : std::optional(number);
}

std::optional<double> read_real(std::string_view text) {
  const auto number = plain_number(text);
  if (!number) return std::nullopt;
  const std::string lower = to_lower(*number);
  const std::string_view digits = std::string_view(lower).substr(lower[0] == '-' || lower[0] == '+' ? 1 : 0);
  const bool named = digits == "inf" || digits == "infinity" || digits == "nan";
  if (!named && digits.find_first_not_of("0123456789.e+-") != std::string_view::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(lower.c_str(), &end);
  return *end == '\0' && end != lower.c_str() ? std::optional(value) : std::nullopt;
}

std::optional<int64_t> read_integer(std::string_view text, int base) {
  const auto number = plain_number(text);
  if (!number) return std::nullopt;
  const bool negative = (*number)[0] == '-';
  std::string digits = number->substr(negative || (*number)[0] == '+' ? 1 : 0);
  const char* prefix = base == 16 ? "0x" : (base == 8 ? "0o" : (base == 2 ? "0b" : ""));
  if (base != 10 && to_lower(digits).starts_with(prefix)) digits.erase(0, 2);
  if (digits.empty() || std::isalnum(static_cast<unsigned char>(digits[0])) == 0) return std::nullopt;
  if (negative) digits.insert(0, "-");
  errno = 0;
  char* end = nullptr;
  const long long value = std::strtoll(digits.c_str(), &end, base);
  if (*end != '\0') return std::nullopt;
  if (errno == ERANGE) fail(formatted("int: {} needs more than 64 bits", number->substr(0, 40)));
  return value;
}

std::optional<Value> whole_part(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::fabs(value) >= 9.2e18) fail("int: the number needs more than 64 bits");
  return Value::integer(static_cast<int64_t>(value));
}

Value to_int(const Value& value, const Arguments& arguments) {
  const auto given = arguments.bind({"default", "base"});
  const Value otherwise = given[0] != nullptr ? *given[0] : Value::integer(0);
  const int64_t base = integer_of(given[1], 10, "int: base");
  if (base != 2 && base != 8 && base != 10 && base != 16) fail("int: the base must be 2, 8, 10 or 16");
  if (value.is(Type::undefined)) refuse_undefined(value);
  if (value.is(Type::integer) || value.is(Type::boolean)) return Value::integer(value.as_integer());
  if (value.is(Type::real)) return whole_part(value.as_real()).value_or(otherwise);
  if (!value.is(Type::string)) return otherwise;
  if (const auto number = read_integer(value.text(), static_cast<int>(base))) return Value::integer(*number);
  const auto real = read_real(value.text());
  return real ? whole_part(*real).value_or(otherwise) : otherwise;
}

Value to_float(const Value& value, const Arguments& arguments) {
  const auto given = arguments.bind({"default"});
  const Value otherwise = given[0] != nullptr ? *given[0] : Value::real(0.0);
  if (value.is(Type::undefined)) refuse_undefined(value);
  if (value.is_number()) return Value::real(value.as_real());
  if (!value.is(Type::string)) return otherwise;
  const auto real = read_real(value.text());
  return real ? Value::real(*real) : otherwise;
}

Value rounded(const Value& value, const Arguments& arguments) {
  const auto given = arguments.bind({"precision", "method"});
  const int64_t precision = integer_of(given[0], 0, "round: precision");
  const std::string method = given[1] != nullptr ? text_of(*given[1], "round: method") : "common";
  if (!value.is_number()) fail("round: a number is expected, not " + type_name(value));
  if (precision < 0 || precision > 15) fail("round: the precision must be from 0 to 15");
  if (method == "ceil" || method == "floor") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = value.as_real() * scale;
    return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  if (method != "common") fail("round: the method must be common, ceil or floor");
  if (!value.is(Type::real)) return Value::integer(value.as_integer());
  // Printing rounds the exact binary value, ties to even, as Python does.
  char buffer[400];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), value.as_real());
  return Value::real(std::strtod(buffer, nullptr));
}

Value absolute(const Value& value) {
  if (value.is(Type::real)) return Value::real(std::fabs(value.as_real()));
  if (!value.is_number()) fail("abs: a number is expected, not " + type_name(value));
  return value.as_integer() < 0 ? negated(Value::integer(value.as_integer()))
                                : Value::integer(value.as_integer());
}

Value indented(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto given = arguments.bind({"width", "first", "blank"});
  std::string indent(4, ' ');
  if (given[0] != nullptr && given[0]->is(Type::string)) {
    indent = given[0]->text();
  } else if (given[0] != nullptr) {
    const int64_t width = to_integer(*given[0], "indent: width");
    if (width > 1000) fail(formatted("indent: a width of {} is too wide", width));
    indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool blank = flag_of(given[2]);
  const std::string text = text_of(value, "indent") + "\n";
  std::string out = flag_of(given[1]) ? indent : "";
  bool first = true;
  for (const std::string_view line : split_lines(text)) {
    if (!first) {
      runtime.append(out, "\n");
      if (blank || !line.empty()) runtime.append(out, indent);
    }
    first = false;
    runtime.append(out, line);
  }
  return runtime.make_text(std::move(out));
}

// The filter title: capitals behind blanks, hyphens and brackets, unlike str.title.
Value titled(Runtime& runtime, const std::string& text) {
  runtime.charge(static_cast<int64_t>(text.size()));  // every word is mapped by itself
  std::string out;
  size_t start = 0;
  const auto flush = [&](size_t end) {
    if (end == start) return;
    size_t first = start;
    next_code_point(text, first);
    out += to_upper(std::string_view(text).substr(start, first - start)) +
           to_lower(std::string_view(text).substr(first, end - first));
  };
  bool in_break = false;
  for (size_t at = 0; at < text.size();) {
    const size_t here = at;
    const char32_t code = next_code_point(text, at);
    const bool breaks =
        is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
    if (breaks == in_break) continue;
    flush(here);
    start = here;
    in_break = breaks;
  }
  flush(text.size());
  return runtime.make_text(std::move(out));
}

Value as_json(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto given = arguments.bind({"ensure_ascii", "indent", "separators", "sort_keys"});
  std::optional<std::pair<std::string, std::string>> separators;
  if (given[2] != nullptr && !given[2]->is(Type::none)) {
    const std::vector<Value> parts = iterate(runtime, *given[2]);
    if (parts.size() != 2) fail("tojson: separators are two texts");
    separators.emplace(text_of(parts[0], "tojson: separators"), text_of(parts[1], "tojson: separators"));
  }
  return runtime.make_text(to_json(runtime, value, given[1] != nullptr ? *given[1] : Value::none(),
                                   flag_of(given[0]), flag_of(given[3]), separators));
}

Value trimmed(Runtime& runtime, const std::string& text, const Arguments& arguments) {
  const auto given = arguments.bind({"chars"});
  Arguments strip;
  if (given[0] != nullptr) strip.positional.push_back(*given[0]);
  return *call_text_method(runtime, text, "strip", strip);
}

// Filters of str(value), without arguments.
std::optional<Value> call_text_filter(Runtime& runtime, const std::string& name, const Value& value) {
  if (name != "upper" && name != "lower" && name != "capitalize" && name != "title" && name != "string" &&
      name != "safe" && name != "e" && name != "escape")
    return std::nullopt;
  const std::string text = to_text(runtime, value);
  if (name == "upper") return runtime.make_text(to_upper(text));
  if (name == "lower") return runtime.make_text(to_lower(text));
  if (name == "capitalize") return runtime.make_text(capitalize(text));
  if (name == "title") return titled(runtime, text);
  if (name == "string") return runtime.make_text(text, value.is_safe());
  if (name == "safe" || value.is_safe()) return runtime.make_text(text, true);
  return runtime.make_text(escape_html(runtime, text), true);
}

}  // namespace

Value call_filter(Runtime& runtime, const std::string& name, const Value& value, const Arguments& arguments) {
  runtime.charge_reading(value);
  for (const Value& argument : arguments.positional) runtime.charge_reading(argument);
  if (auto result = call_list_filter(runtime, name, value, arguments)) return *std::move(result);
  if (name == "default" || name == "d") {
    const auto given = arguments.bind({"default_value", "boolean"});
    const bool absent = value.is(Type::undefined) || (flag_of(given[1]) && !truthy(value));
    if (!absent) return value;
    return given[0] != nullptr ? *given[0] : Value::string("");
  }
  if (name == "trim") return trimmed(runtime, to_text(runtime, value), arguments);
  if (name == "tojson") return as_json(runtime, value, arguments);
  if (name == "int") return to_int(value, arguments);
  if (name == "float") return to_float(value, arguments);
  if (name == "round") return rounded(value, arguments);
  if (name == "indent") return indented(runtime, value, arguments);
  if (name == "replace") {
    const auto given = arguments.bind({"old", "new", "count"}, 2);
    Arguments call{{Value::string(to_text(runtime, *given[0])), Value::string(to_text(runtime, *given[1]))},
                   {}};
    if (given[2] != nullptr) call.positional.push_back(*given[2]);
    return *call_text_method(runtime, to_text(runtime, value), "replace", call);
  }
  (void)arguments.bind({});
  if (name == "abs") return absolute(value);
  if (name == "length" || name == "count") return Value::integer(length(value));
  if (auto result = call_text_filter(runtime, name, value)) return *std::move(result);
  fail(formatted("the filter '{}' is not supported", name));
}

}  // namespace plimsoll::jinja
