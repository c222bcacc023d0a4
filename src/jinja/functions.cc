// Arguments, global functions, tests, and methods of lists and dicts.
#include <algorithm>
#include <array>

#include "base/format.h"
#include "jinja/library.h"
#include "jinja/python_text.h"

namespace plimsoll::jinja {
namespace {

Value make_range(Runtime& runtime, const Arguments& arguments) {
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty()) fail("range takes one to three numbers");
  const int64_t start = given.size() > 1 ? to_integer(given[0], "range") : 0;
  const int64_t stop = to_integer(given[given.size() > 1 ? 1 : 0], "range");
  const int64_t step = given.size() > 2 ? to_integer(given[2], "range") : 1;
  if (step == 0) fail("range: the step is zero");
  std::vector<Value> items;
  for (int64_t i = start; step < 0 ? i > stop : i < stop;) {
    if (static_cast<int64_t>(items.size()) >= runtime.limits().range)
      fail(formatted("range: more than {} numbers", runtime.limits().range));
    runtime.append(items, Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::sequence(Type::range, std::move(items));
}

// dict(other, key=value): `other` a dict or pairs.
Dict make_dict(Runtime& runtime, const Arguments& arguments, const char* what) {
  if (arguments.positional.size() > 1) fail(std::string(what) + " takes at most one value without a name");
  Dict dict;
  if (!arguments.positional.empty()) {
    const Value& other = arguments.positional.front();
    if (other.is(Type::dict)) {
      dict = other.dict();
    } else {
      for (const Value& pair : iterate(runtime, other)) {
        const std::vector<Value> parts = iterate(runtime, pair);
        if (parts.size() != 2) fail(std::string(what) + ": pairs of key and value are expected");
        runtime.charge(static_cast<int64_t>(dict.items.size()));
        dict.set(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(Value::string(name), value);
  return dict;
}

Value make_namespace(Runtime& runtime, const Arguments& arguments) {
  Dict attributes = make_dict(runtime, arguments, "namespace");
  for (const auto& [name, value] : attributes.items)
    if (name.is(Type::string) && name.text().starts_with('_'))
      fail("a namespace's attribute cannot start with '_': " + name.text());
  return runtime.make_namespace(std::move(attributes));
}

Value formatted_time(Runtime& runtime, const Arguments& arguments) {
  const std::string& format = text_of(*arguments.bind({"format"}, 1)[0], "strftime_now");
  if (!runtime.now())
    fail(
        "strftime_now: the template prints the date, which would make two runs differ: state one as "
        "data.date, such as 2025-01-31");
  static constexpr std::string_view kDirectives = "aAbBdeHIjmMpSyYFTDUuwWGVhnt%";
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') continue;
    if (i + 1 < format.size() && format[i + 1] == '-') ++i;
    if (++i >= format.size() || kDirectives.find(format[i]) == std::string_view::npos)
      fail(formatted("strftime_now: the format '{}' is not supported", format.substr(0, 40)));
  }
  if (format.size() > 200) fail("strftime_now: the format is too long");
  std::array<char, 4096> buffer{};
  const size_t bytes = std::strftime(buffer.data(), buffer.size(), format.c_str(), &*runtime.now());
  return runtime.make_text(std::string(buffer.data(), bytes));
}

bool is_parity(Runtime& runtime, const Value& value, int64_t rest, int64_t divisor) {
  return equal(operate(runtime, "%", value, Value::integer(divisor)), Value::integer(rest));
}

std::optional<bool> type_test(const std::string& name, const Value& value) {
  if (name == "defined") return !value.is(Type::undefined);
  if (name == "undefined") return value.is(Type::undefined);
  if (name == "none") return value.is(Type::none);
  if (name == "string") return value.is(Type::string);
  if (name == "number") return value.is_number();
  if (name == "integer") return value.is(Type::integer);
  if (name == "float") return value.is(Type::real);
  if (name == "boolean") return value.is(Type::boolean);
  if (name == "true") return value.is(Type::boolean) && value.as_boolean();
  if (name == "false") return value.is(Type::boolean) && !value.as_boolean();
  if (name == "mapping") return value.is(Type::dict);
  if (name == "callable") return value.is(Type::macro) || value.is(Type::method) || value.is(Type::function);
  const bool indexed = value.is(Type::undefined) || value.is(Type::string) || value.is(Type::list) ||
                       value.is(Type::tuple) || value.is(Type::range) || value.is(Type::dict);
  if (name == "sequence") return indexed;
  if (name == "iterable")
    return indexed || value.is(Type::generator) || value.is(Type::view) || value.is(Type::loop);
  return std::nullopt;
}

std::optional<bool> comparing_test(const std::string& name, const Value& a, const Value& b) {
  if (name == "eq" || name == "equalto" || name == "==") return equal(a, b);
  if (name == "ne" || name == "!=") return !equal(a, b);
  if (name == "lt" || name == "lessthan" || name == "<") return compare(a, b) < 0;
  if (name == "le" || name == "<=") return compare(a, b) <= 0;
  if (name == "gt" || name == "greaterthan" || name == ">") return compare(a, b) > 0;
  if (name == "ge" || name == ">=") return compare(a, b) >= 0;
  if (name == "sameas") return a.same_object(b);
  return std::nullopt;
}

std::optional<Value> call_dict_method(Runtime& runtime, const Dict& dict, const std::string& name,
                                      const Arguments& arguments) {
  if (name == "get") {
    const auto given = arguments.bind({"key", "default"}, 1);
    runtime.charge(static_cast<int64_t>(dict.items.size() / 8));
    runtime.charge_reading(*given[0]);
    const Value* found = dict.find(*given[0]);
    if (found != nullptr) return *found;
    return given[1] != nullptr ? *given[1] : Value::none();
  }
  if (name != "items" && name != "keys" && name != "values") return std::nullopt;
  (void)arguments.bind({});
  std::vector<Value> items;
  for (const auto& [key, value] : dict.items)
    runtime.append(items, name == "keys"
                              ? key
                              : (name == "values" ? value : Value::sequence(Type::tuple, {key, value})));
  return Value::view(name == "keys" ? "dict_keys" : (name == "values" ? "dict_values" : "dict_items"),
                     std::move(items));
}

std::optional<Value> call_list_method(Runtime& runtime, const std::vector<Value>& items,
                                      const std::string& name, const Arguments& arguments) {
  if (name != "count" && name != "index") return std::nullopt;
  const Value& wanted = *arguments.bind({"value"}, 1)[0];
  int64_t count = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    runtime.charge(1);
    runtime.charge_comparison(items[i], wanted);
    if (!equal(items[i], wanted)) continue;
    if (name == "index") return Value::integer(static_cast<int64_t>(i));
    ++count;
  }
  if (name == "index") fail("index: the list has no such element");
  return Value::integer(count);
}

}  // namespace

std::vector<const Value*> Arguments::bind(const std::vector<std::string_view>& parameters,
                                          size_t required) const {
  std::vector<const Value*> bound(parameters.size(), nullptr);
  if (positional.size() > parameters.size())
    fail(formatted("it takes at most {} arguments, {} are given", parameters.size(), positional.size()));
  for (size_t i = 0; i < positional.size(); ++i) bound[i] = &positional[i];
  for (const auto& [name, value] : named) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) fail(formatted("it has no argument '{}'", name));
    const Value*& slot = bound[static_cast<size_t>(found - parameters.begin())];
    if (slot != nullptr) fail(formatted("the argument '{}' is given twice", name));
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i)
    if (bound[i] == nullptr) fail(formatted("the argument '{}' is missing", parameters[i]));
  return bound;
}

bool flag_of(const Value* value, bool otherwise) { return value == nullptr ? otherwise : truthy(*value); }

int64_t integer_of(const Value* value, int64_t otherwise, const char* what) {
  return value == nullptr || value->is(Type::none) ? otherwise : to_integer(*value, what);
}

const std::string& text_of(const Value& value, const char* what) {
  if (!value.is(Type::string)) fail(formatted("{}: a text is expected, not {}", what, type_name(value)));
  return value.text();
}

Value call_function(Runtime& runtime, const std::string& name, const Arguments& arguments) {
  if (name == "range") return make_range(runtime, arguments);
  if (name == "dict") return Value::dict(make_dict(runtime, arguments, "dict"));
  if (name == "namespace") return make_namespace(runtime, arguments);
  if (name == "strftime_now") return formatted_time(runtime, arguments);
  if (name == "raise_exception")
    fail("the template refuses this: " + to_text(runtime, *arguments.bind({"message"}, 1)[0]));
  fail(formatted("the function '{}' is not supported", name));
}

Value call_method(Runtime& runtime, const Method& method, const Arguments& arguments) {
  const Value& receiver = method.receiver;
  std::optional<Value> result;
  if (receiver.is(Type::string)) {
    result = call_text_method(runtime, receiver.text(), method.name, arguments);
  } else if (receiver.is(Type::dict)) {
    result = call_dict_method(runtime, receiver.dict(), method.name, arguments);
  } else if (receiver.is(Type::loop)) {
    if (arguments.positional.empty()) fail("loop.cycle takes at least one value");
    result = arguments.positional[receiver.loop().index % arguments.positional.size()];
  } else {
    result = call_list_method(runtime, receiver.items(), method.name, arguments);
  }
  if (!result) fail(formatted("the method '{}' of {} is not supported", method.name, type_name(receiver)));
  return *std::move(result);
}

bool call_test(Runtime& runtime, const std::string& name, const Value& subject, const Arguments& arguments) {
  if (const auto result = type_test(name, subject)) {
    (void)arguments.bind({});
    return *result;
  }
  if (name == "odd" || name == "even") {
    (void)arguments.bind({});
    return is_parity(runtime, subject, name == "odd" ? 1 : 0, 2);
  }
  if (name == "lower" || name == "upper") {
    runtime.charge_reading(subject);
    const std::string text = to_text(runtime, subject);
    return name == "lower" ? is_all_lower(text) : is_all_upper(text);
  }
  const Value& other = *arguments.bind({"other"}, 1)[0];
  if (name == "in") return contains(runtime, other, subject);
  if (name == "divisibleby") return is_parity(runtime, subject, 0, to_integer(other, "divisibleby"));
  runtime.charge_comparison(subject, other);
  if (const auto result = comparing_test(name, subject, other)) return *result;
  fail(formatted("the test '{}' is not supported", name));
}

}  // namespace plimsoll::jinja
