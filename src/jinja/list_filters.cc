// Filters over lists and dicts.
#include <algorithm>

#include "base/strings.h"
#include "jinja/library.h"
#include "jinja/names.h"
#include "jinja/python_text.h"

namespace plimsoll::jinja {
namespace {

using Values = std::vector<Value>;

// item.a.0.b for the attribute "a.0.b".
Value path_of(Runtime& runtime, Value item, const Value& path, const Value* otherwise = nullptr) {
  if (!path.is(Type::string)) return subscript(runtime, item, path);
  for (const std::string& part : split(path.text(), '.')) {
    const bool number =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    item = subscript(runtime, item, number ? Value::integer(std::stoll(part)) : Value::string(part));
    if (otherwise != nullptr && item.is(Type::undefined)) item = *otherwise;
  }
  return item;
}

Value folded(Runtime& runtime, const Value& value) {
  return value.is(Type::string) ? runtime.make_text(to_lower(value.text())) : value;
}

bool given(const Value* value) { return value != nullptr && !value->is(Type::none); }

// The value that sort, unique, min and max compare.
Value key_of(Runtime& runtime, const Value& item, const Value* attribute, bool case_sensitive) {
  runtime.charge(item.weight() / 8);
  const Value key = given(attribute) ? path_of(runtime, item, *attribute) : item;
  return case_sensitive ? key : folded(runtime, key);
}

Values sorted(Runtime& runtime, const Values& items, const Values& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    runtime.charge(1);
    runtime.charge_comparison(keys[a], keys[b]);
    return reverse ? compare(keys[b], keys[a]) < 0 : compare(keys[a], keys[b]) < 0;
  });
  Values out;
  for (const size_t index : order) out.push_back(items[index]);
  return out;
}

Value sort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = arguments.bind({"reverse", "case_sensitive", "attribute"});
  const Values items = iterate(runtime, value);
  Values keys;
  for (const Value& item : items) {
    if (!given(bound[2]) || !bound[2]->is(Type::string)) {
      keys.push_back(key_of(runtime, item, bound[2], flag_of(bound[1])));
      continue;
    }
    Values parts;
    for (const std::string& part : split(bound[2]->text(), ',')) {
      const Value attribute = Value::string(part);
      parts.push_back(key_of(runtime, item, &attribute, flag_of(bound[1])));
    }
    keys.push_back(Value::list(std::move(parts)));
  }
  return Value::list(sorted(runtime, items, keys, flag_of(bound[0])));
}

Value dictsort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = arguments.bind({"case_sensitive", "by", "reverse"});
  const std::string by = bound[1] != nullptr ? text_of(*bound[1], "dictsort: by") : "key";
  if (by != "key" && by != "value") fail("dictsort: by must be key or value");
  if (!value.is(Type::dict)) fail("dictsort: a dict is expected, not " + type_name(value));
  Values items;
  Values keys;
  for (const auto& [key, item] : value.dict().items) {
    runtime.append(items, Value::sequence(Type::tuple, {key, item}));
    keys.push_back(key_of(runtime, by == "key" ? key : item, nullptr, flag_of(bound[0])));
  }
  return Value::list(sorted(runtime, items, keys, flag_of(bound[2])));
}

Value unique(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = arguments.bind({"case_sensitive", "attribute"});
  Values items;
  Values seen;
  for (const Value& item : iterate(runtime, value)) {
    const Value key = key_of(runtime, item, bound[1], flag_of(bound[0]));
    runtime.charge(static_cast<int64_t>(seen.size() / 8));
    const auto same = [&](const Value& other) {
      if (key.weight() > 1) runtime.charge_comparison(key, other);
      return equal(key, other);
    };
    if (std::any_of(seen.begin(), seen.end(), same)) continue;
    seen.push_back(key);
    runtime.append(items, item);
  }
  return Value::sequence(Type::generator, std::move(items));
}

Value extreme(Runtime& runtime, const Value& value, const Arguments& arguments, bool largest) {
  const auto bound = arguments.bind({"case_sensitive", "attribute"});
  Value best = Value::undefined("No aggregated item, sequence was empty.");
  Value best_key;
  bool any = false;
  for (const Value& item : iterate(runtime, value)) {
    const Value key = key_of(runtime, item, bound[1], flag_of(bound[0]));
    if (any) runtime.charge_comparison(key, best_key);
    const bool better = any && (largest ? compare(key, best_key) > 0 : compare(key, best_key) < 0);
    if (any && !better) continue;
    best = item;
    best_key = key;
    any = true;
  }
  return best;
}

Value sum(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = arguments.bind({"attribute", "start"});
  Value total = bound[1] != nullptr ? *bound[1] : Value::integer(0);
  for (const Value& item : iterate(runtime, value))
    total = operate(runtime, "+", total, given(bound[0]) ? path_of(runtime, item, *bound[0]) : item);
  return total;
}

Value join(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto bound = arguments.bind({"d", "attribute"});
  const std::string separator = bound[0] != nullptr ? to_text(runtime, *bound[0]) : "";
  std::string text;
  bool first = true;
  for (const Value& item : iterate(runtime, value)) {
    if (!first) runtime.append(text, separator);
    first = false;
    runtime.append(text, to_text(runtime, given(bound[1]) ? path_of(runtime, item, *bound[1]) : item));
  }
  return runtime.make_text(std::move(text));
}

// map(attribute="x", default=y) or map("filter", arguments...).
Value map(Runtime& runtime, const Value& value, const Arguments& arguments) {
  Values items;
  if (arguments.positional.empty()) {
    const auto bound = arguments.bind({"attribute", "default"}, 1);
    for (const Value& item : iterate(runtime, value))
      runtime.append(items, path_of(runtime, item, *bound[0], given(bound[1]) ? bound[1] : nullptr));
    return Value::sequence(Type::generator, std::move(items));
  }
  const std::string& filter = text_of(arguments.positional.front(), "map");
  if (!is_filter(filter)) fail(unknown_name("filter", filter, filter_names()));
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : iterate(runtime, value))
    runtime.append(items, call_filter(runtime, filter, item, rest));
  return Value::sequence(Type::generator, std::move(items));
}

// select("test", arguments...), selectattr("attribute", "test", arguments...), and what they leave out.
Value select(Runtime& runtime, const Value& value, const Arguments& arguments, bool by_attribute, bool keep) {
  Arguments rest = arguments;
  const auto take_first = [&rest](const char* what) {
    if (rest.positional.empty()) fail(std::string(what) + " is missing");
    Value first = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return first;
  };
  const Value attribute = by_attribute ? take_first("the attribute's name") : Value();
  std::string test;
  if (!rest.positional.empty()) {
    test = text_of(take_first("the test"), "select");
    if (!is_test(test)) fail(unknown_name("test", test, test_names()));
  }
  Values items;
  for (const Value& item : iterate(runtime, value)) {
    const Value subject = by_attribute ? path_of(runtime, item, attribute) : item;
    const bool passes = test.empty() ? truthy(subject) : call_test(runtime, test, subject, rest);
    if (passes == keep) runtime.append(items, item);
  }
  return Value::sequence(Type::generator, std::move(items));
}

Value first(Runtime& runtime, const Value& value) {
  const Value none = Value::undefined("No first item, sequence was empty.");
  if (value.is(Type::generator)) {
    size_t& at = value.position();
    return at < value.items().size() ? value.items()[at++] : none;
  }
  if (value.is(Type::string)) {
    const Value letter = value.text().empty() ? none : subscript(runtime, value, Value::integer(0));
    return letter;
  }
  const Values items = iterate(runtime, value);
  return items.empty() ? none : items.front();
}

Value last(Runtime& runtime, const Value& value) {
  if (value.is(Type::generator)) fail("a generator has no last item; make a list of it with |list");
  const Values items = iterate(runtime, value);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reversed(Runtime& runtime, const Value& value) {
  if (value.is(Type::string)) {
    const Value backwards = Value::integer(-1);
    return slice(runtime, value, nullptr, nullptr, &backwards);
  }
  Values items = iterate(runtime, value);
  std::reverse(items.begin(), items.end());
  return value.is(Type::generator) ? Value::list(std::move(items))
                                   : Value::sequence(Type::generator, std::move(items));
}

Value items_of(Runtime& runtime, const Value& value) {
  Values items;
  if (!value.is(Type::undefined)) {
    if (!value.is(Type::dict)) fail("items: a dict is expected, not " + type_name(value));
    for (const auto& [key, item] : value.dict().items)
      runtime.append(items, Value::sequence(Type::tuple, {key, item}));
  }
  return Value::sequence(Type::generator, std::move(items));
}

}  // namespace

std::optional<Value> call_list_filter(Runtime& runtime, const std::string& name, const Value& value,
                                      const Arguments& arguments) {
  if (name == "map") return map(runtime, value, arguments);
  if (name == "select" || name == "reject") return select(runtime, value, arguments, false, name == "select");
  if (name == "selectattr" || name == "rejectattr")
    return select(runtime, value, arguments, true, name == "selectattr");
  if (name == "join") return join(runtime, value, arguments);
  if (name == "sort") return sort(runtime, value, arguments);
  if (name == "dictsort") return dictsort(runtime, value, arguments);
  if (name == "unique") return unique(runtime, value, arguments);
  if (name == "min" || name == "max") return extreme(runtime, value, arguments, name == "max");
  if (name == "sum") return sum(runtime, value, arguments);
  if (name != "first" && name != "last" && name != "reverse" && name != "items" && name != "list")
    return std::nullopt;
  (void)arguments.bind({});
  if (name == "first") return first(runtime, value);
  if (name == "last") return last(runtime, value);
  if (name == "reverse") return reversed(runtime, value);
  if (name == "items") return items_of(runtime, value);
  return Value::list(iterate(runtime, value));
}

}  // namespace plimsoll::jinja
