// Lines of the report that other pages show as well.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plan/search/plan.h"

namespace plimsoll {

// Three lines for everybody: whether it fits and what it takes of its budget; the steps and the time of the
// whole run; the time of a step.
std::string verdict_text(const Plan& plan);
// "Qwen2, 24 layers of width 896, 494.0 M parameters"
std::string model_text(const Plan& plan);
// "lora r16, all linear layers · bf16 · length 1,024 · effective batch 16 = 4 micro-batch x 4 accumulation"
std::string experiment_text(const Plan& plan);
// "micro-step 4.96 GiB · update 1.07 GiB"
std::string phases_text(const Plan& plan);
// "budget down to 1.12 GiB (...)"
std::string also_fits_text(const Plan& plan);

// A line of what else is worth knowing: "also fits", "would save".
struct ReportLine {
  std::string name;
  std::string text;
};
std::vector<ReportLine> facts(const Plan& plan);

// docs/reference/json.md; null where no data are named.
nlohmann::ordered_json data_json(const std::optional<DataSummary>& data);

}  // namespace plimsoll
