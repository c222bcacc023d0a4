#include "jinja/runtime.h"

#include <algorithm>

#include "base/format.h"
#include "base/growth.h"
#include "jinja/python_text.h"

namespace plimsoll::jinja {
namespace {

constexpr size_t kStepBytes = 16;

class Printer {
 public:
  Printer(Runtime& runtime, std::string& out) : runtime_(runtime), out_(out) {}

  void print(const Value& value) {
    runtime_.charge(1);
    switch (value.type()) {
      case Type::undefined:
        return add("Undefined");
      case Type::none:
        return add("None");
      case Type::boolean:
        return add(value.as_boolean() ? "True" : "False");
      case Type::integer:
        return add(std::to_string(value.as_integer()));
      case Type::real:
        return add(repr(value.as_real()));
      case Type::string:
        return add(value.is_safe() ? formatted("Markup({})", repr(value.text())) : repr(value.text()));
      case Type::list:
        return print_items(value.items(), "[", "]");
      case Type::tuple:
        return print_items(value.items(), "(", value.items().size() == 1 ? ",)" : ")");
      case Type::view:
        return print_items(value.items(), value.text() + "([", "])");
      case Type::dict:
        return print_dict(value.dict());
      default:
        fail(formatted("a {} cannot be printed{}", type_name(value),
                       value.is(Type::generator) ? "; make a list of it with |list" : ""));
    }
  }

 private:
  void add(const std::string& text) { runtime_.append(out_, text); }

  void print_items(const std::vector<Value>& items, const std::string& open, const std::string& close) {
    add(open);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) add(", ");
      print(items[i]);
    }
    add(close);
  }

  void print_dict(const Dict& dict) {
    add("{");
    bool first = true;
    for (const auto& [key, value] : dict.items) {
      if (!first) add(", ");
      first = false;
      print(key);
      add(": ");
      print(value);
    }
    add("}");
  }

  Runtime& runtime_;
  std::string& out_;
};

}  // namespace

Runtime::~Runtime() {
  for (const auto& attributes : namespaces_) attributes->items.clear();
}

Value Runtime::make_namespace(Dict attributes) {
  charge(32);
  namespaces_.push_back(std::make_shared<Dict>(std::move(attributes)));
  return Value::name_space(namespaces_.back());
}

void Runtime::charge(int64_t steps) {
  steps_ += steps;
  if (steps_ > limits_.steps)
    fail(formatted("it does more than {} steps: a loop without an end?", limits_.steps));
}

void Runtime::charge_reading(const Value& value) {
  if (value.is(Type::string)) charge(static_cast<int64_t>(value.text().size() / 64));
}

void Runtime::charge_comparison(const Value& a, const Value& b) {
  const int64_t weight = std::min(a.weight(), b.weight());
  if (a.is(Type::string)) return charge(weight);
  // Dicts are compared key by key, each looked for in the other.
  charge(weight < 16 ? 0 : weight * std::min<int64_t>(weight, 64) / 8);
}

void Runtime::check_text(size_t bytes) const {
  if (bytes > limits_.value_bytes)
    fail(formatted("a text of more than {} bytes is made", limits_.value_bytes));
}

Value Runtime::make_text(std::string text, bool safe) {
  check_text(text.size());
  charge(static_cast<int64_t>(text.size() / kStepBytes) + 1);
  return Value::string(std::move(text), safe);
}

void Runtime::append(std::string& text, std::string_view more) const {
  check_text(text.size() + more.size());
  reserve_more(text, more.size());
  text += more;
}

void Runtime::append(std::vector<Value>& list, Value item) {
  charge(2);
  if (list.size() >= limits_.value_bytes / kStepBytes)
    fail(formatted("a list of more than {} elements is made", limits_.value_bytes / kStepBytes));
  list.push_back(std::move(item));
}

std::vector<Value> iterate(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  if (value.is(Type::undefined)) return items;
  if (value.is(Type::generator)) {
    size_t& at = value.position();
    for (; at < value.items().size(); ++at) runtime.append(items, value.items()[at]);
  } else if (value.is_sequence()) {
    runtime.charge(static_cast<int64_t>(value.items().size()));
    items = value.items();
  } else if (value.is(Type::dict)) {
    for (const auto& [key, item] : value.dict().items) runtime.append(items, key);
  } else if (value.is(Type::string)) {
    const std::string_view text = value.text();
    for (size_t at = 0; at < text.size();) {
      const size_t start = at;
      next_code_point(text, at);
      runtime.append(items, Value::string(std::string(text.substr(start, at - start))));
    }
  } else {
    fail(formatted("a {} has no elements", type_name(value)));
  }
  return items;
}

std::string to_text(Runtime& runtime, const Value& value) {
  if (value.is(Type::string)) return value.text();
  if (value.is(Type::undefined)) return {};
  std::string out;
  Printer(runtime, out).print(value);
  return out;
}

int64_t length(const Value& value) {
  switch (value.type()) {
    case Type::undefined:
      return 0;
    case Type::string:
      return static_cast<int64_t>(count_code_points(value.text()));
    case Type::dict:
      return static_cast<int64_t>(value.dict().items.size());
    case Type::list:
    case Type::tuple:
    case Type::view:
    case Type::range:
      return static_cast<int64_t>(value.items().size());
    case Type::loop:
      return static_cast<int64_t>(value.loop().items.size());
    default:
      fail(formatted("a {} has no length{}", type_name(value),
                     value.is(Type::generator) ? "; make a list of it with |list" : ""));
  }
}

std::string escape_html(Runtime& runtime, std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        runtime.append(out, "&amp;");
        break;
      case '<':
        runtime.append(out, "&lt;");
        break;
      case '>':
        runtime.append(out, "&gt;");
        break;
      case '\'':
        runtime.append(out, "&#39;");
        break;
      case '"':
        runtime.append(out, "&#34;");
        break;
      default:
        runtime.append(out, std::string_view(&c, 1));
    }
  }
  return out;
}

int64_t to_integer(const Value& value, const char* what) {
  if (!value.is(Type::integer) && !value.is(Type::boolean))
    fail(formatted("{} must be a whole number, not {}", what, type_name(value)));
  return value.as_integer();
}

}  // namespace plimsoll::jinja
