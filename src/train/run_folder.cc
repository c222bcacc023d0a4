#include "train/run_folder.h"

#include "train/checkpoint.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunFiles[] = {"run.json", "metrics.jsonl", "eval.jsonl", "trace.json"};

}  // namespace

bool holds_run(const fs::path& output) {
  for (const char* name : kRunFiles)
    if (fs::exists(output / name)) return true;
  return latest_checkpoint(output).has_value();
}

void clear_run(const fs::path& output) {
  for (const char* name : kRunFiles) fs::remove(output / name);
  while (const auto checkpoint = latest_checkpoint(output)) fs::remove_all(*checkpoint);
}

}  // namespace plimsoll
