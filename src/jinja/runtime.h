// The parts that all of the interpreter shares: the account of work, and operations on values.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/limits.h"
#include "jinja/value.h"

namespace plimsoll::jinja {

class Runtime {
 public:
  Runtime(const TemplateLimits& limits, const std::optional<std::tm>& now) : limits_(limits), now_(now) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  [[nodiscard]] const TemplateLimits& limits() const { return limits_; }
  [[nodiscard]] const std::optional<std::tm>& now() const { return now_; }
  // Throws Failure once too much was done.
  void charge(int64_t steps);
  // Charges a walk through a text; nothing for other values, whose elements are charged one by one.
  void charge_reading(const Value& value);
  // Charges the most that comparing two values costs.
  void charge_comparison(const Value& a, const Value& b);
  // Throws Failure for a text of so many bytes, before it is made.
  void check_text(size_t bytes) const;
  Value make_text(std::string text, bool safe = false);
  // Appends, within the limit of a value.
  void append(std::string& text, std::string_view more) const;
  void append(std::vector<Value>& list, Value item);
  // Namespaces may hold each other: they are emptied at the end.
  Value make_namespace(Dict attributes);

 private:
  const TemplateLimits& limits_;
  const std::optional<std::tm>& now_;
  int64_t steps_ = 0;
  std::vector<std::shared_ptr<Dict>> namespaces_;
};

// The elements of what can be iterated: of a dict its keys, of a text its characters. Reads a generator to
// its end.
std::vector<Value> iterate(Runtime& runtime, const Value& value);
// str(): how a value prints.
std::string to_text(Runtime& runtime, const Value& value);
std::string to_json(Runtime& runtime, const Value& value, const Value& indent, bool ascii, bool sorted,
                    const std::optional<std::pair<std::string, std::string>>& separators);

// A binary operator: + - * / // % **.
Value operate(Runtime& runtime, std::string_view op, const Value& a, const Value& b);
Value negated(const Value& value);
bool contains(Runtime& runtime, const Value& container, const Value& item);
int64_t length(const Value& value);

// x.name and x[key]: undefined where there is no such thing; Failure for an undefined x.
Value attribute(Runtime& runtime, const Value& object, const std::string& name);
Value subscript(Runtime& runtime, const Value& object, const Value& key);
// Bounds that are absent are null.
Value slice(Runtime& runtime, const Value& object, const Value* start, const Value* stop, const Value* step);

std::string escape_html(Runtime& runtime, std::string_view text);

// The integer of an argument: an integer or a boolean.
int64_t to_integer(const Value& value, const char* what);

}  // namespace plimsoll::jinja
