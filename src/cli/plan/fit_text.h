// The screen of `plimsoll fit`: for each device a table of methods by lengths, printed row by row as it is planned.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "advise/fit.h"
#include "models/spec.h"
#include "recipe/known_model.h"

namespace plimsoll {

// The model that is asked about.
struct FitModel {
  std::string name;  // as commands name it
  ModelSpec spec;
  int64_t parameters = 0;
  std::string task;
  std::optional<KnownModel> known;
  bool lacks_labels = false;  // of a task that wants some: two stand for them
};
std::string fit_model_text(const FitModel& model, size_t columns);

// A device with what there is of it.
struct FitDevice {
  std::string words;    // "RTX 3060 12GB", "CPU, 8 threads"
  std::string problem;  // why nothing is planned for it; empty: it is
  bool is_card = false, own_memory = false;
  std::optional<int64_t> memory_bytes, host_bytes;  // budgets; none: not limited, or not stated
  std::string precision;
  std::string speeds;      // where speeds are from
  std::string plan_words;  // arguments of `plimsoll plan` for it
  std::vector<FitCell> cells;

  [[nodiscard]] bool fits() const;
};
std::string fit_device_text(const FitDevice& device, size_t columns);

// The width of cells, and the number of them in a row.
struct FitLayout {
  size_t width = 0, across = 1;
  bool two_lines = false;  // bytes above speeds
};
FitLayout fit_layout(size_t lengths, size_t columns);
std::string fit_head_text(const std::vector<int64_t>& lengths, const FitLayout& layout);
std::string fit_row_text(const std::string& method, const std::vector<FitCell>& cells,
                         const FitLayout& layout);
// Says what cells left out, and what to type next.
std::string fit_foot_text(const FitModel& model, const FitDevice& device, size_t columns);

nlohmann::ordered_json fit_json(const FitModel& model, const std::vector<FitDevice>& devices);

}  // namespace plimsoll
