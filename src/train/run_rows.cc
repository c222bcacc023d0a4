#include "train/run_rows.h"

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
  const std::string more = batch.damaged_rows() > 1
                               ? " (and " + format_count(batch.damaged_rows() - 1) + " more in this step)"
                               : "";
  return "skip    " + batch.first_damage() + more +
         (++told_ == kTold ? " Further ones are counted without a word." : "");
}

std::vector<std::string> row_lines(const Plan& plan, const std::optional<Template>& rendering) {
  std::vector<std::string> lines;
  if (plan.request.data) lines.push_back("data    " + data_words(*plan.request.data));
  if (rendering) lines.push_back("rows    rendered by " + rendering->name());
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
