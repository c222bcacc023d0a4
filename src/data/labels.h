// What a row of a classifier says of its text, as the numbers that the loss reads.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tasks/task.h"

namespace plimsoll {

struct Labels {
  const TaskSpec& task;
  const std::vector<std::string>& names;  // of the classes; empty: they are numbers from 0
};

// One class's number; 0 or 1 for each class, of a list of classes; or numbers. Classes may be said by name or
// number, as text too. Throws DamagedError that starts with where() for a class that there is not.
std::vector<float> label_values(const nlohmann::ordered_json& label, const Labels& labels,
                                const std::function<std::string()>& where);

}  // namespace plimsoll
