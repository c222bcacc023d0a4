// Reports a run's results for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "report/history.h"

namespace plimsoll {

// In lines of at most `columns`, or 100.
std::string run_text(const RunHistory& run, size_t columns = 100);
// docs/reference/json.md
nlohmann::ordered_json run_json(const RunHistory& run);

// Compares several runs, the best first: by the evaluation that their recipes find the best one by, else by
// the loss of the last step. Below the table the keys of the recipes that differ. `by`: what they are sorted
// by instead, the loss or a metric. Throws UsageError where no run has it.
std::string compare_text(std::vector<RunHistory> runs, size_t columns = 100, const std::string& by = "");
// The same order, with what differs.
nlohmann::ordered_json compare_json(std::vector<RunHistory> runs, const std::string& by = "");
std::string compare_page(std::vector<RunHistory> runs, const std::string& by = "");

// A page that needs nothing but itself: loss, learning rate, speed and memory over the steps, what is known
// of the step that the reader points at, events.
std::string run_page(const RunHistory& run);

}  // namespace plimsoll
