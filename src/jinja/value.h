// A value as templates see it: Python's, as far as JSON and the language of the templates make them.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plimsoll::jinja {

// An error of the template or of what it was given, without its place: the interpreter adds it.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
[[noreturn]] inline void fail(const std::string& message) { throw Failure(message); }

enum class Type : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  list,
  tuple,
  generator,  // of map, select and the like: read once, always true, without a length
  view,       // of dict.items() and the like: a length, no index
  range,
  dict,
  name_space,
  loop,
  macro,
  method,   // x.strip before it is called
  function  // range, namespace, ...
};

struct Dict;
struct Loop;
struct Method;
struct MacroStatement;

// Contents are shared and never change, but for those of a namespace, the index of a loop and the position of
// a generator. Nesting and weight are bounded, so that a walk through any value is.
class Value {
 public:
  Value() = default;  // undefined
  static Value undefined(std::string reason);
  static Value none() { return Value(Type::none); }
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value real(double value);
  // `safe` is what |safe and |escape mark: + escapes the text next to it.
  static Value string(std::string text, bool safe = false);
  // list, tuple, generator or range.
  static Value sequence(Type type, std::vector<Value> items);
  static Value list(std::vector<Value> items) { return sequence(Type::list, std::move(items)); }
  static Value view(const char* name, std::vector<Value> items);
  static Value dict(Dict dict);
  static Value name_space(std::shared_ptr<Dict> attributes);
  static Value loop(std::shared_ptr<Loop> loop);
  static Value macro(const MacroStatement& macro);
  static Value method(Value receiver, std::string name);
  static Value function(std::string name);
  // Throws Failure for a number beyond 64 bits.
  static Value from_json(const nlohmann::ordered_json& json);

  [[nodiscard]] Type type() const { return type_; }
  [[nodiscard]] bool is(Type type) const { return type_ == type; }
  [[nodiscard]] bool is_number() const { return is(Type::boolean) || is(Type::integer) || is(Type::real); }
  [[nodiscard]] bool is_sequence() const { return type_ >= Type::list && type_ <= Type::range; }
  [[nodiscard]] bool as_boolean() const { return number_ != 0; }
  [[nodiscard]] int64_t as_integer() const { return number_; }  // boolean or integer
  [[nodiscard]] double as_real() const { return is(Type::real) ? real_ : static_cast<double>(number_); }
  [[nodiscard]] bool is_safe() const { return is(Type::string) && number_ != 0; }
  // A string's text; an undefined value's reason; the name of a view or function.
  [[nodiscard]] const std::string& text() const;
  [[nodiscard]] const std::vector<Value>& items() const;
  // A generator's position in its items.
  [[nodiscard]] size_t& position() const;
  [[nodiscard]] const Dict& dict() const;
  [[nodiscard]] Dict& attributes() const;  // of a namespace
  [[nodiscard]] Loop& loop() const;
  [[nodiscard]] const Method& method() const;
  [[nodiscard]] const MacroStatement& macro() const {
    return *static_cast<const MacroStatement*>(heap_.get());
  }
  // Returns true if both are one object.
  [[nodiscard]] bool same_object(const Value& other) const;
  // Levels of values within this one: 0 for what holds no other value.
  [[nodiscard]] int nesting() const { return nesting_; }
  // Values that a walk through this one meets, shared ones as often as they are met.
  [[nodiscard]] int64_t weight() const { return weight_; }

 private:
  explicit Value(Type type) : type_(type) {}
  // Takes what holds `items` into account. Throws Failure for too deep or too large a value.
  void add_sizes(const Value& item);

  Type type_ = Type::undefined;
  int16_t nesting_ = 0;
  int32_t weight_ = 1;
  union {
    int64_t number_ = 0;
    double real_;
  };
  std::shared_ptr<void> heap_;
};

// Keys in the order of insertion.
struct Dict {
  std::vector<std::pair<Value, Value>> items;

  [[nodiscard]] const Value* find(const Value& key) const;
  [[nodiscard]] const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);
};

struct Loop {
  std::vector<Value> items;
  size_t index = 0;
};

struct Method {
  Value receiver;
  std::string name;
};

// "str", "dict": Python's name of the type, for messages.
std::string type_name(const Value& value);

bool truthy(const Value& value);
bool equal(const Value& a, const Value& b);
// Negative, zero or positive; throws Failure for what has no order.
int compare(const Value& a, const Value& b);

}  // namespace plimsoll::jinja
