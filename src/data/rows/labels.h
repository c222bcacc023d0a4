// Reads the label of a classifier's row as the numbers that the loss reads.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/files/data_file.h"
#include "tasks/rows.h"
#include "tasks/task.h"

namespace plimsoll {

// The meaning of lists of whole numbers, where one list alone does not decide it: classes, or a 0 or 1 for
// each class.
enum class LabelLists : uint8_t { unknown, classes, multi_hot };

struct Labels {
  const TaskSpec& task;
  const std::vector<std::string>& names;  // of the classes; empty: they are numbers from 0
  LabelLists lists = LabelLists::unknown;
  int64_t reading = kReading;
};

// One class's number; 0 or 1 for each class, of a list of classes or a multi-hot one; or numbers. Classes may
// be given by name or number, as text too, but by name alone where all names are whole numbers. Throws
// DamagedError that starts with where() for a class that does not exist, and UsageError for a label that may
// mean two things.
std::vector<float> label_values(const nlohmann::ordered_json& label, const Labels& labels,
                                const Where& where);

// Decides what the lists of a file mean, by its first rows: it is fed with their labels one after the other.
class LabelListEvidence {
 public:
  explicit LabelListEvidence(int64_t classes) : classes_(classes) {}
  void add(const nlohmann::ordered_json& label);
  [[nodiscard]] LabelLists found() const;

 private:
  int64_t classes_;
  bool other_length_ = false, no_classes_ = false;
};

}  // namespace plimsoll
