#include "data/labels.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/strings.h"
#include "io/json.h"

namespace plimsoll {
namespace {

using nlohmann::ordered_json;
using Where = std::function<std::string()>;

// A whole number, also one that a file holds as text (CSV) or with a point.
std::optional<int64_t> whole(const ordered_json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (number < -1e15 || number > 1e15 || number != static_cast<double>(static_cast<int64_t>(number)))
      return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

int64_t class_of(const ordered_json& label, const Labels& labels, const Where& where) {
  if (label.is_string()) {
    const auto at = std::find(labels.names.begin(), labels.names.end(), label.get_ref<const std::string&>());
    if (at != labels.names.end()) return at - labels.names.begin();
  }
  const auto number = whole(label);
  if (number && *number >= 0 && *number < labels.task.outputs) return *number;
  const std::string known =
      labels.names.empty() ? "0 to " + std::to_string(labels.task.outputs - 1) : join(labels.names, ", ");
  throw DamagedError(where() + ": the label is " + label.dump().substr(0, 60) + ", the classes are " + known +
                     " (classify.labels).");
}

float number_of(const ordered_json& label, const Where& where) {
  if (label.is_number()) return label.get<float>();
  if (label.is_string()) {
    const auto& text = label.get_ref<const std::string&>();
    float number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) return number;
  }
  throw DamagedError(where() + ": the label is " + label.dump().substr(0, 60) + ", a number is expected.");
}

}  // namespace

std::vector<float> label_values(const ordered_json& label, const Labels& labels, const Where& where) {
  const TaskSpec& task = labels.task;
  if (task.problem == ClassProblem::one_of) return {static_cast<float>(class_of(label, labels, where))};
  std::vector<float> values(static_cast<size_t>(task.outputs), 0.0F);
  if (task.problem == ClassProblem::any_of) {
    if (!label.is_array())
      throw DamagedError(where() + ": the label is " + describe_kind(label) +
                         ", a list of classes is expected.");
    for (const ordered_json& one : label) values[static_cast<size_t>(class_of(one, labels, where))] = 1.0F;
    return values;
  }
  if (!label.is_array() && task.outputs == 1) return {number_of(label, where)};
  if (!label.is_array() || label.size() != values.size())
    throw DamagedError(where() + ": the label is " + label.dump().substr(0, 60) + ", " +
                       std::to_string(values.size()) + " numbers are expected.");
  for (size_t i = 0; i < values.size(); ++i) values[i] = number_of(label[i], where);
  return values;
}

}  // namespace plimsoll
