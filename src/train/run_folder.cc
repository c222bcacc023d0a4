#include "train/run_folder.h"

#include <vector>

#include "base/error.h"
#include "train/checkpoint.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunFiles[] = {"run.json", "metrics.jsonl", "eval.jsonl", "events.jsonl", "trace.json"};

// Logs that come in numbers: TensorBoard's, and the batches that stopped a run.
bool is_numbered_log(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("events.out.tfevents.") || name.starts_with("stopped-at-step-");
}

}  // namespace

bool holds_run(const fs::path& output) {
  for (const char* name : kRunFiles)
    if (fs::exists(output / name)) return true;
  return latest_checkpoint(output).has_value();
}

void require_no_run(const fs::path& output) {
  if (!holds_run(output)) return;
  throw UsageError("output: " + output.string() +
                   " holds a run already; go on with it by --resume, or replace it by --overwrite");
}

void clear_run(const fs::path& output) {
  for (const char* name : kRunFiles) fs::remove(output / name);
  std::vector<fs::path> logs;
  for (const auto& entry : fs::directory_iterator(output))
    if (is_numbered_log(entry.path())) logs.push_back(entry.path());
  for (const fs::path& log : logs) fs::remove(log);
  while (const auto checkpoint = latest_checkpoint(output)) fs::remove_all(*checkpoint);
}

}  // namespace plimsoll
