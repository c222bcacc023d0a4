// Functions, methods, filters and tests that templates call.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/runtime.h"

namespace plimsoll::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The arguments of a callee with these parameters, null where none is given. Throws Failure for too many,
  // unknown or repeated ones, and for fewer than `required`.
  [[nodiscard]] std::vector<const Value*> bind(const std::vector<std::string_view>& parameters,
                                               size_t required = 0) const;
};

Value call_function(Runtime& runtime, const std::string& name, const Arguments& arguments);
Value call_method(Runtime& runtime, const Method& method, const Arguments& arguments);
Value call_filter(Runtime& runtime, const std::string& name, const Value& subject,
                  const Arguments& arguments);
bool call_test(Runtime& runtime, const std::string& name, const Value& subject, const Arguments& arguments);

// By type of the receiver; each returns nothing for a name that it does not know.
std::optional<Value> call_text_method(Runtime& runtime, const std::string& text, const std::string& name,
                                      const Arguments& arguments);
// Filters over lists: map, select, sort and the like.
std::optional<Value> call_list_filter(Runtime& runtime, const std::string& name, const Value& subject,
                                      const Arguments& arguments);
// str.replace of Python.
std::string replace_all(const Runtime& runtime, std::string_view text, std::string_view old,
                        std::string_view replacement, int64_t count);

// The defaults of absent arguments.
bool flag_of(const Value* value, bool otherwise = false);
int64_t integer_of(const Value* value, int64_t otherwise, const char* what);
const std::string& text_of(const Value& value, const char* what);

}  // namespace plimsoll::jinja
