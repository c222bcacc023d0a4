#include "jinja/names.h"

#include <algorithm>
#include <vector>

#include "base/format.h"
#include "base/strings.h"

namespace plimsoll::jinja {
namespace {

using Names = std::vector<std::string>;

const Names kFunctions = {"dict", "namespace", "raise_exception", "range", "strftime_now"};
const Names kMethods = {"capitalize", "count",   "cycle",   "endswith", "find",         "get",
                        "index",      "isdigit", "islower", "isspace",  "isupper",      "items",
                        "join",       "keys",    "lower",   "lstrip",   "removeprefix", "removesuffix",
                        "replace",    "rfind",   "rsplit",  "rstrip",   "split",        "splitlines",
                        "startswith", "strip",   "title",   "upper",    "values"};
const Names kFilters = {"abs",        "capitalize", "count",   "d",       "default", "dictsort", "e",
                        "escape",     "first",      "float",   "indent",  "int",     "items",    "join",
                        "last",       "length",     "list",    "lower",   "map",     "max",      "min",
                        "reject",     "rejectattr", "replace", "reverse", "round",   "safe",     "select",
                        "selectattr", "sort",       "string",  "sum",     "title",   "tojson",   "trim",
                        "unique",     "upper"};
const Names kTests = {
    "!=",          "<",       "<=",       "==",     ">",        ">=",     "boolean", "callable",    "defined",
    "divisibleby", "eq",      "equalto",  "even",   "false",    "float",  "ge",      "greaterthan", "gt",
    "in",          "integer", "iterable", "le",     "lessthan", "lower",  "lt",      "mapping",     "ne",
    "none",        "number",  "odd",      "sameas", "sequence", "string", "true",    "undefined",   "upper"};
constexpr std::string_view kChanging[] = {"append", "extend", "insert",  "remove",     "sort",   "clear",
                                          "pop",    "update", "popitem", "setdefault", "reverse"};

bool has(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::span<const std::string> function_names() { return kFunctions; }
std::span<const std::string> method_names() { return kMethods; }
std::span<const std::string> filter_names() { return kFilters; }
std::span<const std::string> test_names() { return kTests; }

bool is_function(std::string_view name) { return has(kFunctions, name); }
bool is_method(std::string_view name) { return has(kMethods, name); }
bool is_filter(std::string_view name) { return has(kFilters, name); }
bool is_test(std::string_view name) { return has(kTests, name); }

std::string unknown_name(std::string_view what, std::string_view name, std::span<const std::string> known) {
  std::string text = formatted("the {} '{}' is not supported", what, name);
  if (what == "method" && std::find(std::begin(kChanging), std::end(kChanging), name) != std::end(kChanging))
    return text + ": templates may not change values";
  const std::string nearest = nearest_name(name, known);
  return nearest.empty() ? text : formatted("{}; did you mean '{}'?", text, nearest);
}

}  // namespace plimsoll::jinja
