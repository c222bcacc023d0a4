// Reads single values from a node, and prints them. Readers return nothing when the node holds something
// else; printed values read back to the same value.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "recipe/document/document.h"
#include "recipe/option.h"
#include "recipe/recipe.h"

namespace plimsoll {

struct IntegerRange {
  int64_t lowest;
  int64_t highest;
};
// `highest` itself is excluded when `below` is set.
struct NumberRange {
  double lowest;
  double highest;
  bool below = false;
};

std::optional<int64_t> read_integer(const Node& node, IntegerRange range);
std::optional<double> read_number(const Node& node, NumberRange range);
std::optional<bool> read_boolean(const Node& node);
std::optional<std::string> read_text(const Node& node);
// "80%" -> 80; from 0 to 100.
std::optional<double> read_percent(const Node& node);
std::optional<int64_t> read_bytes(const Node& node);
std::optional<MemoryLimit> read_memory_limit(const Node& node);
// The same, or {0: 24GiB, 1: 12GiB}: the sizes of devices that are unlike, by their ranks.
std::optional<MemoryLimit> read_device_limit(const Node& node);
std::optional<EvalSource> read_eval_source(const Node& node, const std::filesystem::path& folder);
std::optional<Warmup> read_warmup(const Node& node);
std::optional<Every> read_every(const Node& node);
std::optional<std::string> read_path(const Node& node, const std::filesystem::path& folder);
// A path or {path, weight, rows}, a list of them, or null for none.
std::optional<std::vector<TrainSource>> read_sources(const Node& node, const std::filesystem::path& folder);
// Names of letters, digits, '_', '.' and '-': one or a list.
std::optional<std::vector<std::string>> read_names(const Node& node);

Json print_auto(int64_t value);  // "auto" for kAuto
Json print_count(double count);  // 3, and 0.5
Json print_percent(double percent);
Json print_bytes(int64_t bytes);  // "8GiB" where that is exact
Json print(const MemoryLimit& limit);
Json print(const std::vector<TrainSource>& sources);  // plain paths where the weight is 1
Json print(const EvalSource& source);
Json print(const Warmup& warmup);
Json print(const Every& every);
template <class Value>
Json print(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string describe(IntegerRange range);  // "a whole number from 1 to 8192"
std::string describe(NumberRange range);   // "a number from 0 to below 1"

}  // namespace plimsoll
