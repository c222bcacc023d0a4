#include "runs/run_rows.h"

#include <algorithm>
#include <span>

#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"

namespace plimsoll {
namespace {

constexpr int kTold = 5;

}  // namespace

std::string SkippedRows::add(const EffectiveBatch& batch) {
  counts_.truncated += batch.truncated_rows();
  counts_.without_targets += batch.skipped_rows();
  counts_.damaged += batch.damaged_rows();
  if (batch.damaged_rows() == 0 || told_ == kTold) return "";
  const std::string more = batch.damaged_rows() > 1 ? formatted(" (and {} more in this step)",
                                                                format_count(batch.damaged_rows() - 1))
                                                    : "";
  return formatted("skip    {}{}{}", batch.first_damage(), more,
                   ++told_ == kTold ? " Further ones are counted without a word." : "");
}

SeenClasses::SeenClasses(const TaskSpec& task, std::vector<std::string> names)
    : problem_(task.problem), names_(std::move(names)) {
  seen_.resize(static_cast<size_t>(classes_of(task)));
}

void SeenClasses::add(const EffectiveBatch& batch) {
  if (seen_.empty()) return;
  for (int64_t row = 0; row < batch.sequences(); ++row) {
    const std::span<const float> targets = batch.targets(row);
    if (problem_ == ClassProblem::one_of)
      seen_.at(static_cast<size_t>(targets[0])) = 1;
    else
      for (size_t i = 0; i < seen_.size(); ++i)
        if (targets[i] > 0.0F) seen_[i] = 1;
  }
}

std::string SeenClasses::missing() const {
  constexpr size_t kNamed = 5;
  std::vector<std::string> missing;
  for (size_t i = 0; i < seen_.size(); ++i)
    if (seen_[i] == 0)
      missing.push_back(i < names_.size() ? formatted("'{}'", names_[i]) : std::to_string(i));
  if (missing.empty()) return "";
  const size_t more = missing.size() - std::min(missing.size(), kNamed);
  missing.resize(missing.size() - more);
  return formatted("note    no row that was trained on has the class {}{}: it was not trained",
                   join(missing, ", "), more > 0 ? formatted(" and {} more", more) : "");
}

std::vector<std::string> row_lines(const Plan& plan) {
  std::vector<std::string> lines;
  if (!plan.request.workload.data) return lines;
  lines.push_back("data    " + data_words(*plan.request.workload.data));
  for (const std::string& text : plan.request.workload.data->rendering) lines.push_back("rows    " + text);
  return lines;
}

std::string words(const RowCounts& counts) {
  std::string text;
  for (const auto& [count, what] :
       {std::pair{counts.truncated, " truncated"}, std::pair{counts.without_targets, " without a target"},
        std::pair{counts.damaged, " damaged and skipped"}})
    if (count > 0) text += (text.empty() ? "" : ", ") + format_count(count) + what;
  return text;
}

}  // namespace plimsoll
