#include "cli/run_result.h"

#include "base/error.h"
#include "base/format.h"
#include "base/shell_word.h"
#include "base/units.h"
#include "files/work_folder.h"
#include "report/history.h"
#include "runs/checkpoint.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

bool has_result(const fs::path& folder) {
  for (const char* name : {"config.json", "adapter_config.json"})
    if (fs::exists(folder / name)) return true;
  return false;
}

// "the run is at step 4 of 8", "the run stopped at step 4 of 8 (interrupted, saved)"
std::string place_words(const RunHistory& run) {
  const std::string step =
      format_count(run.last_step()) + (run.total_steps > 0 ? " of " + format_count(run.total_steps) : "");
  if (run.state == RunState::running) return "the run is at step " + step;
  return formatted("the run stopped at step {} ({})", step, state_words(run.state));
}

}  // namespace

void require_result(const fs::path& folder) {
  if (!fs::is_directory(folder) || has_result(folder)) return;
  RunHistory run;
  if (fs::exists(folder / "metrics.jsonl"))
    run = read_history(folder);
  else if (is_locked(folder))
    run.state = RunState::running;  // it plans, or loads its model
  else
    return;
  if (run.state == RunState::finished) return;  // what it had was taken away
  const auto checkpoint = latest_checkpoint(folder);
  std::string text = formatted("{}: has no result yet: {}. ", folder.string(), place_words(run));
  // A run saves the recipe that it is of, before its first step.
  text += run.state == RunState::running
              ? "Wait for its end"
              : formatted("Continue it with `plimsoll train {} --resume`", quoted(folder / "recipe.yaml"));
  throw UsageError(text + (checkpoint ? ", or use its newest checkpoint: " + quoted(checkpoint->string())
                                      : "; it has no checkpoint to use instead"));
}

}  // namespace plimsoll
