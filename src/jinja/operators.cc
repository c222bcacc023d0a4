// Operators, attributes, subscripts and slices.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/format.h"
#include "jinja/names.h"
#include "jinja/python_text.h"
#include "jinja/runtime.h"

namespace plimsoll::jinja {
namespace {

[[noreturn]] void refuse_operands(std::string_view op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b})
    if (value->is(Type::undefined) && !value->text().empty()) fail(value->text());
  fail(formatted("'{}' between {} and {}", op, type_name(a), type_name(b)));
}

[[noreturn]] void refuse_overflow(std::string_view op) {
  fail(formatted("'{}' gives a number beyond 64 bits", op));
}

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  int64_t result = 1;
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  for (int64_t i = 0; i < exponent; ++i)
    if (__builtin_mul_overflow(result, base, &result)) refuse_overflow("**");
  return Value::integer(result);
}

Value integers(char op, bool doubled, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case '+':
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case '-':
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case '*':
      if (doubled) return integer_power(a, b);
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    default:
      if (b == 0) fail("a division by zero");
      if (op == '/' && !doubled) return Value::real(static_cast<double>(a) / static_cast<double>(b));
      if (b == -1) {  // the smallest number has no negative
        overflow = op == '/' && __builtin_sub_overflow(int64_t{0}, a, &result);
      } else {
        const int64_t quotient = floor_divide(a, b);
        result = op == '/' ? quotient : a - quotient * b;
      }
  }
  if (overflow) refuse_overflow(std::string_view(&op, 1));
  return Value::integer(result);
}

Value reals(char op, bool doubled, double a, double b) {
  switch (op) {
    case '+':
      return Value::real(a + b);
    case '-':
      return Value::real(a - b);
    case '*':
      return Value::real(doubled ? std::pow(a, b) : a * b);
    default:
      break;
  }
  if (b == 0.0) fail("a division by zero");
  if (op == '/') return Value::real(doubled ? std::floor(a / b) : a / b);
  double rest = std::fmod(a, b);
  if (rest != 0.0 && ((rest < 0.0) != (b < 0.0))) rest += b;
  return Value::real(rest);
}

Value add_texts(Runtime& runtime, const Value& a, const Value& b) {
  const bool safe = a.is_safe() || b.is_safe();
  const auto part = [&](const Value& text) {
    return safe && !text.is_safe() ? escape_html(runtime, text.text()) : text.text();
  };
  runtime.check_text(a.text().size() + b.text().size());
  return runtime.make_text(part(a) + part(b), safe);
}

Value repeat(Runtime& runtime, const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (value.is(Type::string)) {
    const std::string& text = value.text();
    if (!text.empty() && count > runtime.limits().value_bytes / text.size())
      runtime.check_text(runtime.limits().value_bytes + 1);
    std::string out;
    for (size_t i = 0; i < count && !text.empty(); ++i) out += text;
    return runtime.make_text(std::move(out), value.is_safe());
  }
  std::vector<Value> items;
  if (!value.items().empty())
    for (size_t i = 0; i < count; ++i)
      for (const Value& item : value.items()) runtime.append(items, item);
  return Value::sequence(value.type(), std::move(items));
}

bool is_list(const Value& value) { return value.is(Type::list) || value.is(Type::tuple); }
bool repeats(const Value& value) { return value.is(Type::string) || is_list(value); }
bool is_whole(const Value& value) { return value.is(Type::integer) || value.is(Type::boolean); }

// Python's attributes of the types that JSON makes: ".name" finds them before a key of the same name.
bool is_python_attribute(const Value& value, std::string_view name) {
  static constexpr std::array<std::string_view, 11> kDict = {"clear",      "copy",   "fromkeys", "get",
                                                             "items",      "keys",   "pop",      "popitem",
                                                             "setdefault", "update", "values"};
  static constexpr std::array<std::string_view, 11> kList = {
      "append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"};
  static constexpr std::array<std::string_view, 47> kText = {
      "capitalize", "casefold",     "center",       "count",   "encode",     "endswith",    "expandtabs",
      "find",       "format",       "format_map",   "index",   "isalnum",    "isalpha",     "isascii",
      "isdecimal",  "isdigit",      "isidentifier", "islower", "isnumeric",  "isprintable", "isspace",
      "istitle",    "isupper",      "join",         "ljust",   "lower",      "lstrip",      "maketrans",
      "partition",  "removeprefix", "removesuffix", "replace", "rfind",      "rindex",      "rjust",
      "rpartition", "rsplit",       "rstrip",       "split",   "splitlines", "startswith",  "strip",
      "swapcase",   "title",        "translate",    "upper",   "zfill"};
  const auto in = [name](const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (value.is(Type::dict)) return in(kDict);
  if (value.is(Type::list)) return in(kList);
  if (value.is(Type::tuple) || value.is(Type::range)) return name == "count" || name == "index";
  return value.is(Type::string) && in(kText);
}

Value missing(const Value& object, const std::string& name) {
  return Value::undefined(formatted("'{}' has no attribute '{}'", type_name(object), name));
}

Value loop_attribute(const Value& object, const std::string& name) {
  const Loop& loop = object.loop();
  const auto index = static_cast<int64_t>(loop.index);
  const auto count = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(count - index);
  if (name == "revindex0") return Value::integer(count - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == count);
  if (name == "length") return Value::integer(count);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem")
    return index == 0 ? Value::undefined("there is no previous item") : loop.items[loop.index - 1];
  if (name == "nextitem")
    return index + 1 == count ? Value::undefined("there is no next item") : loop.items[loop.index + 1];
  if (name == "cycle") return Value::method(object, name);
  if (name == "changed") fail("loop.changed is not supported");
  return missing(object, name);
}

void check_defined(const Value& object, const std::string& what) {
  if (!object.is(Type::undefined)) return;
  fail(formatted("{}, so it has no {}", object.text().empty() ? "an undefined value" : object.text(), what));
}

Value element(Runtime& runtime, const Value& object, int64_t index) {
  const int64_t count = length(object);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return missing(object, std::to_string(index));
  if (!object.is(Type::string)) return object.items()[static_cast<size_t>(index)];
  const std::string& text = object.text();
  runtime.charge(static_cast<int64_t>(text.size() / 16));
  const size_t start = byte_of_code_point(text, static_cast<size_t>(index));
  size_t end = start;
  next_code_point(text, end);
  return runtime.make_text(text.substr(start, end - start));
}

const Value* find_key(Runtime& runtime, const Dict& dict, const Value& key) {
  if (key.is(Type::list) || key.is(Type::dict)) fail(formatted("a {} is no key of a dict", type_name(key)));
  runtime.charge(static_cast<int64_t>(dict.items.size() / 8));
  runtime.charge_reading(key);
  return dict.find(key);
}

}  // namespace

Value operate(Runtime& runtime, std::string_view op, const Value& a, const Value& b) {
  const char sign = op.front();
  const bool doubled = op.size() == 2;
  if (is_whole(a) && is_whole(b)) return integers(sign, doubled, a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return reals(sign, doubled, a.as_real(), b.as_real());
  if (op == "+" && a.is(Type::string) && b.is(Type::string)) return add_texts(runtime, a, b);
  if (op == "+" && is_list(a) && a.type() == b.type()) {
    std::vector<Value> items;
    for (const Value* part : {&a, &b})
      for (const Value& item : part->items()) runtime.append(items, item);
    return Value::sequence(a.type(), std::move(items));
  }
  if (op == "*" && repeats(a) && is_whole(b)) return repeat(runtime, a, b.as_integer());
  if (op == "*" && repeats(b) && is_whole(a)) return repeat(runtime, b, a.as_integer());
  if (op == "%" && a.is(Type::string)) fail("formatting a text with '%' is not supported; use ~");
  refuse_operands(op, a, b);
}

Value negated(const Value& value) {
  if (value.is(Type::real)) return Value::real(-value.as_real());
  if (!is_whole(value)) refuse_operands("-", Value::integer(0), value);
  return integers('-', false, 0, value.as_integer());
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  switch (container.type()) {
    case Type::undefined:
      return false;
    case Type::string:
      if (!item.is(Type::string)) fail("'in' a str wants a str, not " + type_name(item));
      runtime.charge(static_cast<int64_t>(container.text().size() / 16 * (1 + item.text().size() / 64)));
      return container.text().find(item.text()) != std::string::npos;
    case Type::dict:
      return find_key(runtime, container.dict(), item) != nullptr;
    default:
      break;
  }
  for (const Value& element : iterate(runtime, container)) {
    runtime.charge_comparison(element, item);
    if (equal(element, item)) return true;
  }
  return false;
}

Value attribute(Runtime& runtime, const Value& object, const std::string& name) {
  check_defined(object, formatted("'{}'", name));
  if (object.is(Type::name_space)) {
    runtime.charge(static_cast<int64_t>(object.attributes().items.size() / 8));
    const Value* found = object.attributes().find(name);
    return found != nullptr ? *found : missing(object, name);
  }
  if (object.is(Type::loop)) return loop_attribute(object, name);
  if (is_python_attribute(object, name)) return Value::method(object, name);
  if (object.is(Type::dict)) {
    runtime.charge(static_cast<int64_t>(object.dict().items.size() / 8));
    if (const Value* found = object.dict().find(name)) return *found;
  }
  return missing(object, name);
}

Value subscript(Runtime& runtime, const Value& object, const Value& key) {
  check_defined(object, "elements");
  if (object.is(Type::dict)) {
    if (const Value* found = find_key(runtime, object.dict(), key)) return *found;
  } else if (is_whole(key) && (object.is(Type::string) || is_list(object) || object.is(Type::range))) {
    return element(runtime, object, key.as_integer());
  }
  if (key.is(Type::string)) return attribute(runtime, object, key.text());
  return missing(object, to_text(runtime, key));
}

Value slice(Runtime& runtime, const Value& object, const Value* start, const Value* stop, const Value* step) {
  check_defined(object, "slices");
  if (object.is(Type::dict)) fail("a dict has no slices");
  const bool is_text = object.is(Type::string);
  if (!is_text && !is_list(object) && !object.is(Type::range))
    return Value::undefined(formatted("a {} has no slices", type_name(object)));
  const auto given = [](const Value* bound) { return bound != nullptr && !bound->is(Type::none); };
  const int64_t stride = given(step) ? to_integer(*step, "a slice's step") : 1;
  if (stride == 0) fail("a slice's step is zero");
  runtime.charge(is_text ? static_cast<int64_t>(object.text().size() / 16) : 0);
  const int64_t count = length(object);
  const int64_t lowest = stride < 0 ? -1 : 0;
  const int64_t highest = stride < 0 ? count - 1 : count;
  const auto bound = [&](const Value* value, int64_t otherwise) {
    if (!given(value)) return otherwise;
    const int64_t index = to_integer(*value, "a slice's bound");
    return std::clamp(index < 0 ? (index < -count ? lowest : index + count) : index, lowest, highest);
  };
  const int64_t first = bound(start, stride < 0 ? highest : lowest);
  const int64_t last = bound(stop, stride < 0 ? lowest : highest);
  if (is_text && stride == 1) {
    const std::string_view text = object.text();
    const size_t begin = byte_of_code_point(text, static_cast<size_t>(first));
    const auto letters = static_cast<size_t>(std::max<int64_t>(0, last - first));
    const size_t bytes = byte_of_code_point(text.substr(begin), letters);
    return runtime.make_text(std::string(text.substr(begin, bytes)), object.is_safe());
  }
  const std::vector<Value> letters = is_text ? iterate(runtime, object) : std::vector<Value>();
  const std::vector<Value>& from = is_text ? letters : object.items();
  std::vector<Value> items;
  for (int64_t i = first; stride < 0 ? i > last : i < last;) {
    runtime.append(items, from[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, stride, &i)) break;
  }
  if (!is_text) return Value::sequence(object.type(), std::move(items));
  std::string text;
  for (const Value& letter : items) text += letter.text();
  return runtime.make_text(std::move(text), object.is_safe());
}

}  // namespace plimsoll::jinja
