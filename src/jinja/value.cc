#include "jinja/value.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/format.h"

namespace plimsoll::jinja {
namespace {

struct Sequence {
  std::vector<Value> items;
  size_t position = 0;
  const char* name = "";
};

constexpr int16_t kDeepest = 200;
constexpr int32_t kHeaviest = 1 << 20;
constexpr size_t kPartBytes = 1024;

template <class T>
int sign_of(const T& a, const T& b) {
  return a < b ? -1 : (b < a ? 1 : 0);
}

// The items of a dict whose keys are all texts, by key; nothing for others.
std::vector<const std::pair<Value, Value>*> by_key(const Dict& dict) {
  std::vector<const std::pair<Value, Value>*> items;
  for (const auto& item : dict.items) {
    if (!item.first.is(Type::string)) return {};
    items.push_back(&item);
  }
  std::sort(items.begin(), items.end(),
            [](const auto* a, const auto* b) { return a->first.text() < b->first.text(); });
  return items;
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.items.size() != b.items.size()) return false;
  if (a.items.size() > 16) {
    const auto first = by_key(a);
    const auto second = by_key(b);
    if (first.empty() != second.empty()) return false;
    if (!first.empty())
      return std::equal(first.begin(), first.end(), second.begin(), [](const auto* x, const auto* y) {
        return equal(x->first, y->first) && equal(x->second, y->second);
      });
  }
  return std::all_of(a.items.begin(), a.items.end(), [&b](const auto& item) {
    const Value* match = b.find(item.first);
    return match != nullptr && equal(item.second, *match);
  });
}

}  // namespace

void Value::add_sizes(const Value& item) {
  nesting_ = std::max<int16_t>(nesting_, static_cast<int16_t>(item.nesting_ + 1));
  if (nesting_ > kDeepest) fail(formatted("values are nested deeper than {} levels", kDeepest));
  weight_ += item.weight_;  // both are at most kHeaviest
  if (weight_ > kHeaviest) fail(formatted("a value has more than {} parts", kHeaviest));
}

Value Value::undefined(std::string reason) {
  Value value;
  value.heap_ = std::make_shared<std::string>(std::move(reason));
  return value;
}

Value Value::boolean(bool boolean) {
  Value value(Type::boolean);
  value.number_ = boolean ? 1 : 0;
  return value;
}

Value Value::integer(int64_t number) {
  Value value(Type::integer);
  value.number_ = number;
  return value;
}

Value Value::real(double number) {
  Value value(Type::real);
  value.real_ = number;
  return value;
}

Value Value::string(std::string text, bool safe) {
  Value value(Type::string);
  value.number_ = safe ? 1 : 0;
  value.weight_ = static_cast<int32_t>(std::min<size_t>(1 + text.size() / kPartBytes, kHeaviest));
  value.heap_ = std::make_shared<std::string>(std::move(text));
  return value;
}

Value Value::sequence(Type type, std::vector<Value> items) {
  Value value(type);
  for (const Value& item : items) value.add_sizes(item);
  value.heap_ = std::make_shared<Sequence>(Sequence{std::move(items), 0, ""});
  return value;
}

Value Value::view(const char* name, std::vector<Value> items) {
  Value value = sequence(Type::view, std::move(items));
  static_cast<Sequence*>(value.heap_.get())->name = name;
  return value;
}

Value Value::dict(Dict dict) {
  Value value(Type::dict);
  for (const auto& [key, item] : dict.items) {
    value.add_sizes(key);
    value.add_sizes(item);
  }
  value.heap_ = std::make_shared<Dict>(std::move(dict));
  return value;
}

Value Value::name_space(std::shared_ptr<Dict> attributes) {
  Value value(Type::name_space);
  value.heap_ = std::move(attributes);
  return value;
}

Value Value::loop(std::shared_ptr<Loop> loop) {
  Value value(Type::loop);
  for (const Value& item : loop->items) value.add_sizes(item);
  value.heap_ = std::move(loop);
  return value;
}

Value Value::macro(const MacroStatement& macro) {
  Value value(Type::macro);
  // The syntax tree outlives every value; its owner is not this pointer.
  value.heap_ = std::shared_ptr<void>(const_cast<MacroStatement*>(&macro), [](void*) {});
  return value;
}

Value Value::method(Value receiver, std::string name) {
  Value value(Type::method);
  value.add_sizes(receiver);
  value.heap_ = std::make_shared<Method>(Method{std::move(receiver), std::move(name)});
  return value;
}

Value Value::function(std::string name) {
  Value value(Type::function);
  value.heap_ = std::make_shared<std::string>(std::move(name));
  return value;
}

Value Value::from_json(const nlohmann::ordered_json& json) {
  using Kind = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Kind::null:
      return none();
    case Kind::boolean:
      return boolean(json.get<bool>());
    case Kind::number_integer:
      return integer(json.get<int64_t>());
    case Kind::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        fail(formatted("the number {} needs more than 64 bits", json.dump()));
      return integer(json.get<int64_t>());
    case Kind::number_float:
      return real(json.get<double>());
    case Kind::string:
      return string(json.get_ref<const std::string&>());
    case Kind::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(item));
      return list(std::move(items));
    }
    case Kind::object: {
      Dict made;
      for (const auto& [key, item] : json.items()) made.items.emplace_back(string(key), from_json(item));
      return dict(std::move(made));
    }
    default:
      fail("a value that JSON does not have");
  }
}

const std::string& Value::text() const {
  static const std::string kEmpty;
  if (heap_ == nullptr) return kEmpty;
  if (is(Type::view)) {
    static const std::string kNames[] = {"dict_items", "dict_keys", "dict_values"};
    for (const std::string& name : kNames)
      if (name == static_cast<const Sequence*>(heap_.get())->name) return name;
    return kEmpty;
  }
  return *static_cast<const std::string*>(heap_.get());
}

const std::vector<Value>& Value::items() const { return static_cast<const Sequence*>(heap_.get())->items; }
size_t& Value::position() const { return static_cast<Sequence*>(heap_.get())->position; }
const Dict& Value::dict() const { return *static_cast<const Dict*>(heap_.get()); }
Dict& Value::attributes() const { return *static_cast<Dict*>(heap_.get()); }
Loop& Value::loop() const { return *static_cast<Loop*>(heap_.get()); }
const Method& Value::method() const { return *static_cast<const Method*>(heap_.get()); }

bool Value::same_object(const Value& other) const {
  if (type_ != other.type_) return false;
  if (is(Type::real)) return real_ == other.real_;
  return heap_ == other.heap_ && number_ == other.number_;
}

const Value* Dict::find(const Value& key) const {
  for (const auto& [name, value] : items)
    if (equal(name, key)) return &value;
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : items)
    if (name.is(Type::string) && name.text() == key) return &value;
  return nullptr;
}

void Dict::set(const Value& key, Value value) {
  for (auto& [name, old] : items) {
    if (!equal(name, key)) continue;
    old = std::move(value);
    return;
  }
  items.emplace_back(key, std::move(value));
}

std::string type_name(const Value& value) {
  switch (value.type()) {
    case Type::undefined:
      return "Undefined";
    case Type::none:
      return "NoneType";
    case Type::boolean:
      return "bool";
    case Type::integer:
      return "int";
    case Type::real:
      return "float";
    case Type::string:
      return "str";
    case Type::list:
      return "list";
    case Type::tuple:
      return "tuple";
    case Type::generator:
      return "generator";
    case Type::view:
      return value.text();
    case Type::range:
      return "range";
    case Type::dict:
      return "dict";
    case Type::name_space:
      return "Namespace";
    case Type::loop:
      return "LoopContext";
    case Type::macro:
      return "Macro";
    case Type::method:
      return "method";
    case Type::function:
      return "function";
  }
  return "value";
}

bool truthy(const Value& value) {
  switch (value.type()) {
    case Type::undefined:
    case Type::none:
      return false;
    case Type::boolean:
    case Type::integer:
      return value.as_integer() != 0;
    case Type::real:
      return value.as_real() != 0.0;
    case Type::string:
      return !value.text().empty();
    case Type::list:
    case Type::tuple:
    case Type::view:
    case Type::range:
      return !value.items().empty();
    case Type::dict:
      return !value.dict().items.empty();
    default:
      return true;
  }
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is(Type::real) || b.is(Type::real)) return a.as_real() == b.as_real();
    return a.as_integer() == b.as_integer();
  }
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::undefined:
    case Type::none:
      return true;
    case Type::string:
      return a.text() == b.text();
    case Type::list:
    case Type::tuple:
    case Type::range:
      return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), equal);
    case Type::dict:
      return equal_dicts(a.dict(), b.dict());
    default:
      return a.same_object(b);
  }
}

int compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is(Type::real) || b.is(Type::real)) return sign_of(a.as_real(), b.as_real());
    return sign_of(a.as_integer(), b.as_integer());
  }
  if (a.is(Type::string) && b.is(Type::string)) return sign_of(a.text(), b.text());  // by code points too
  if (a.type() == b.type() && (a.is(Type::list) || a.is(Type::tuple))) {
    const size_t shorter = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < shorter; ++i)
      if (!equal(a.items()[i], b.items()[i])) return compare(a.items()[i], b.items()[i]);
    return sign_of(a.items().size(), b.items().size());
  }
  if (a.is(Type::undefined)) fail(a.text().empty() ? "an undefined value is compared" : a.text());
  if (b.is(Type::undefined)) fail(b.text().empty() ? "an undefined value is compared" : b.text());
  fail(formatted("'{}' and '{}' have no order", type_name(a), type_name(b)));
}

}  // namespace plimsoll::jinja
