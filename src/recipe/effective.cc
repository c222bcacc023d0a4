#include "recipe/effective.h"

#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "recipe/option.h"

namespace plimsoll {
namespace {

Json read_fingerprint(std::string_view text) {
  Json fingerprint = read_json_text<Json>(text);
  if (!fingerprint.is_object())
    throw DamagedError("the fingerprint of the recipe is not a JSON object; the checkpoint is damaged");
  return fingerprint;
}

constexpr const char* kReadingKey = "data.reading";
constexpr const char* kShuffleKey = "data.shuffle";

std::string value_of(const Json& fingerprint, const std::string& key) {
  const auto at = fingerprint.find(key);
  if (at == fingerprint.end() && key == kReadingKey) return std::to_string(kFirstReading);
  // Runs that knew no other shuffle wrote true for the order in windows.
  if (at != fingerprint.end() && key == kShuffleKey && *at == Json(true)) return "window";
  return at == fingerprint.end() ? "" : to_yaml(*at);
}

// A key that an earlier version did not have, or that means nothing to the other one, at its default.
bool is_default(const std::string& key, const std::string& value) {
  const Option* option = find_option(key);
  return option != nullptr && value == to_yaml(option->get(Recipe{}));
}

}  // namespace

std::string effective_yaml(const Recipe& recipe) {
  std::string text;
  std::string open_group;
  for (const Option& option : options()) {
    if (option.is_part || !applies(option, recipe)) continue;
    const size_t dot = option.key.find('.');
    const std::string group = dot == std::string::npos ? "" : option.key.substr(0, dot);
    if (!group.empty() && group != open_group) text += group + ":\n";
    open_group = group;
    const std::string name = group.empty() ? option.key : "  " + option.key.substr(dot + 1);
    text += formatted("{}: {}\n", name, to_yaml(option.get(recipe)));
  }
  return text;
}

nlohmann::ordered_json effective_json(const Recipe& recipe) {
  Json all = Json::object();
  for (const Option& option : options()) {
    if (option.is_part || !applies(option, recipe)) continue;
    const size_t dot = option.key.find('.');
    if (dot == std::string::npos)
      all[option.key] = option.get(recipe);
    else
      all[option.key.substr(0, dot)][option.key.substr(dot + 1)] = option.get(recipe);
  }
  return all;
}

std::string experiment_fingerprint(const Recipe& recipe) {
  nlohmann::json fingerprint = nlohmann::json::object();  // keeps its keys sorted
  for (const Option& option : options())
    if (option.experiment && applies(option, recipe)) fingerprint[option.key] = option.get(recipe);
  if (!recipe.data.eval.is_held_out()) fingerprint.erase("data.eval");
  if (recipe.data.reading == kFirstReading) fingerprint.erase(kReadingKey);
  // Runs of before this key quantised every module.
  if (recipe.method.unquantised && recipe.method.unquantised->empty())
    fingerprint.erase("method.unquantised");
  if (recipe.draws_by_rows() && recipe.data.share_prefixes == SharePrefixes::on)
    fingerprint["data.share_prefixes"] = "on";
  return fingerprint.dump();
}

int64_t reading_of(std::string_view fingerprint) {
  const Json read = read_json_text<Json>(fingerprint);
  if (!read.is_object() || !read.contains(kReadingKey)) return kFirstReading;
  return whole_number<int64_t>(read[kReadingKey]).value_or(kReading);
}

bool began_before_full_shuffle(std::string_view fingerprint) {
  const Json read = read_json_text<Json>(fingerprint);
  const auto at = read.is_object() ? read.find(kShuffleKey) : read.end();
  return at != read.end() && *at == Json(true);
}

std::vector<ExperimentDifference> experiment_differences(std::string_view a, std::string_view b) {
  const Json fingerprint_a = read_fingerprint(a);
  const Json fingerprint_b = read_fingerprint(b);
  std::set<std::string> keys;
  for (const Json* fingerprint : {&fingerprint_a, &fingerprint_b})
    for (const auto& [key, value] : fingerprint->items()) keys.insert(key);
  std::vector<ExperimentDifference> differences;
  keys.erase("data.on_error");  // a part of it in earlier versions: rows that are fine do not depend on it
  for (const std::string& key : keys) {
    ExperimentDifference difference = {key, value_of(fingerprint_a, key), value_of(fingerprint_b, key)};
    if (difference.a.empty() && is_default(key, difference.b)) continue;
    if (difference.b.empty() && is_default(key, difference.a)) continue;
    if (difference.a != difference.b) differences.push_back(std::move(difference));
  }
  return differences;
}

}  // namespace plimsoll
