#include "data/rows/labels.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/strings.h"
#include "files/json.h"

namespace plimsoll {
namespace {

using nlohmann::ordered_json;

// A whole number, also one that a file holds as text (CSV) or with a point.
std::optional<int64_t> whole(const ordered_json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_number_integer()) return whole_number<int64_t>(value);
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

// Names of classes by which 4 may be a class's name or its number.
bool are_numbers(const std::vector<std::string>& names) {
  return !names.empty() &&
         std::ranges::all_of(names, [](const std::string& name) { return whole(name).has_value(); });
}

int64_t class_by_number(int64_t number, const Labels& labels, const Where& where) {
  const auto at = std::ranges::find_if(labels.names, [&](const auto& name) { return whole(name) == number; });
  if (at != labels.names.end()) return at - labels.names.begin();
  const std::string said = formatted("{}: the label is {}, and the classes are called {}", where(), number,
                                     join(labels.names, ", "));
  // No damaged row that could be skipped: the other rows' labels would all mean other classes.
  if (number >= 0 && number < labels.task.outputs)
    throw UsageError(
        formatted("{}: it is the number of a class and the name of none. Name all labels of the rows "
                  "(classify.labels), or call the classes by words where rows have their numbers from 0",
                  said));
  throw DamagedError(said + " (classify.labels).");
}

int64_t class_of(const ordered_json& label, const Labels& labels, const Where& where) {
  if (label.is_string()) {
    const auto at = std::find(labels.names.begin(), labels.names.end(), label.get_ref<const std::string&>());
    if (at != labels.names.end()) return at - labels.names.begin();
  }
  const auto number = whole(label);
  if (number && labels.reading > kFirstReading && are_numbers(labels.names))
    return class_by_number(*number, labels, where);
  if (number && *number >= 0 && *number < labels.task.outputs) return *number;
  const std::string known =
      labels.names.empty() ? "0 to " + std::to_string(labels.task.outputs - 1) : join(labels.names, ", ");
  throw DamagedError(formatted("{}: the label is {}, the classes are {} (classify.labels).", where(),
                               label.dump().substr(0, 60), known));
}

// NaN and infinity, which files have where a value was missing, are no numbers to learn.
float number_of(const ordered_json& label, const Where& where) {
  std::optional<float> number;
  if (label.is_number()) number = label.get<float>();
  if (label.is_string()) {
    const auto& text = label.get_ref<const std::string&>();
    float read = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), read);
    if (error == std::errc() && end == text.data() + text.size()) number = read;
  }
  if (number && std::isfinite(*number)) return *number;
  throw DamagedError(
      formatted("{}: the label is {}, a number is expected.", where(), label.dump().substr(0, 60)));
}

bool is_zero_or_one(const ordered_json& value) {
  if (value.is_boolean()) return true;
  const double number = value.is_number() ? value.get<double>() : -1.0;
  return number == 0.0 || number == 1.0;
}
bool is_one(const ordered_json& value) {
  return value.is_boolean() ? value.get<bool>() : value.get<double>() == 1.0;
}

// A list of zeros and ones alone that cannot be a list of classes: it has one of them twice, or the number of
// a class that does not exist.
bool is_no_list_of_classes(const ordered_json& list, int64_t classes) {
  const auto ones = std::count_if(list.begin(), list.end(), is_one);
  return ones > 1 || std::ssize(list) - ones > 1 || (ones > 0 && classes == 1);
}

// A list with a 0 or 1 for each class, as transformers' rows have it.
bool is_multi_hot(const ordered_json& list, const Labels& labels, const Where& where) {
  if (list.empty() || !std::ranges::all_of(list, is_zero_or_one)) return false;
  const int64_t classes = labels.task.outputs, length = std::ssize(list);
  const bool sure = std::ranges::any_of(
      list, [](const ordered_json& one) { return one.is_number_float() || one.is_boolean(); });
  if (sure && length != classes)
    throw DamagedError(
        formatted("{}: the label is {}, {} of zeros and ones for {} classes (classify.labels).", where(),
                  list.dump().substr(0, 60), length, classes));
  if (sure) return true;
  if (labels.lists == LabelLists::multi_hot && length != classes)
    throw DamagedError(formatted("{}: the label is {}, the rows before have a 0 or 1 for each of {} classes.",
                                 where(), list.dump(), classes));
  if (length != classes || labels.lists == LabelLists::classes) return false;
  if (labels.lists == LabelLists::multi_hot || is_no_list_of_classes(list, classes)) return true;
  throw UsageError(formatted(
      "{}: the label is {}, which may be a list of classes or a 0 or 1 for each class, and the first "
      "rows do not tell. Write classes by their names, or 0.0 and 1.0 for each class",
      where(), list.dump()));
}

std::vector<float> set_of_classes(const ordered_json& list, const Labels& labels, const Where& where) {
  std::vector<float> values(static_cast<size_t>(labels.task.outputs), 0.0F);
  if (labels.reading > kFirstReading && is_multi_hot(list, labels, where)) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = is_one(list[i]) ? 1.0F : 0.0F;
    return values;
  }
  for (const ordered_json& one : list) {
    float& value = values[static_cast<size_t>(class_of(one, labels, where))];
    if (labels.reading > kFirstReading && value == 1.0F)
      throw DamagedError(
          formatted("{}: the label is {}, which names {} twice. A list with a 0 or 1 for each class has {}.",
                    where(), list.dump().substr(0, 60), one.dump(), values.size()));
    value = 1.0F;
  }
  return values;
}

}  // namespace

void LabelListEvidence::add(const ordered_json& label) {
  if (!label.is_array() || !std::ranges::all_of(label, is_zero_or_one)) return;
  const bool whole_numbers =
      std::ranges::all_of(label, [](const auto& one) { return one.is_number_integer(); });
  if (std::ssize(label) != classes_)
    other_length_ = true;
  else if (!whole_numbers || is_no_list_of_classes(label, classes_))
    no_classes_ = true;
}

LabelLists LabelListEvidence::found() const {
  if (other_length_ == no_classes_) return LabelLists::unknown;
  return no_classes_ ? LabelLists::multi_hot : LabelLists::classes;
}

std::vector<float> label_values(const ordered_json& label, const Labels& labels, const Where& where) {
  const TaskSpec& task = labels.task;
  if (task.problem == ClassProblem::one_of) return {static_cast<float>(class_of(label, labels, where))};
  std::vector<float> values(static_cast<size_t>(task.outputs), 0.0F);
  if (task.problem == ClassProblem::any_of) {
    if (!label.is_array())
      throw DamagedError(
          formatted("{}: the label is {}, a list of classes is expected.", where(), describe_kind(label)));
    return set_of_classes(label, labels, where);
  }
  if (!label.is_array() && task.outputs == 1) return {number_of(label, where)};
  if (!label.is_array() || label.size() != values.size())
    throw DamagedError(formatted("{}: the label is {}, {} numbers are expected.", where(),
                                 label.dump().substr(0, 60), values.size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = number_of(label[i], where);
  return values;
}

}  // namespace plimsoll
