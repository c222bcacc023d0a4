#include "files/adopted_run.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"
#include "files/file.h"
#include "files/json.h"
#include "files/run_folder.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Kind = Manifest::Kind;

constexpr int64_t kMostJsonBytes = kMiB;
constexpr int64_t kMostLineBytes = 64 * 1024;

// The files that a run puts into its folder in addition to logs: those of a model or an adapter.
constexpr std::array<std::string_view, 16> kResultFiles = {"config.json",
                                                           "model.safetensors",
                                                           "adapter_config.json",
                                                           "adapter_model.safetensors",
                                                           "value_head.safetensors",
                                                           "tokenizer.json",
                                                           "tokenizer_config.json",
                                                           "special_tokens_map.json",
                                                           "vocab.json",
                                                           "merges.txt",
                                                           "tokenizer.model",
                                                           "spiece.model",
                                                           "sentencepiece.bpe.model",
                                                           "added_tokens.json",
                                                           "chat_template.jinja",
                                                           "generation_config.json"};

bool has_keys(const Json& json, std::initializer_list<const char*> keys) {
  return json.is_object() &&
         std::all_of(keys.begin(), keys.end(), [&](const char* key) { return json.contains(key); });
}

Json parsed(const fs::path& file, int64_t most, bool first_line) {
  if (!fs::is_regular_file(fs::symlink_status(file))) return nullptr;
  try {
    std::string text = read_start(file, most);
    if (first_line) text.resize(std::min(text.find('\n'), text.size()));
    return parse_json(text, file.string(), {.max_depth = 16});  // what a run writes has four levels
  } catch (const Error&) {
    return nullptr;
  }
}

bool is_run_json(const Json& json) { return has_keys(json, {"planned", "measured", "steps", "variant"}); }

bool is_trace(const fs::path& file) {
  return fs::is_regular_file(fs::symlink_status(file)) &&
         read_start(file, 64).starts_with("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
}

bool is_checkpoint(const fs::path& folder) {
  return fs::is_directory(fs::symlink_status(folder)) &&
         has_keys(parsed(folder / "trainer_state.json", kMostJsonBytes, false),
                  {"step", "fingerprint", "kernels", "micro_batch"});
}

class Adoption {
 public:
  Adoption(const fs::path& folder, Manifest& manifest) : folder_(folder), manifest_(manifest) {}

  void run() {
    const Json result = parsed(folder_ / "run.json", kMostJsonBytes, false);
    const bool events = log_has("events.jsonl", {"time", "step", "event"});
    for (const auto& entry : fs::directory_iterator(folder_))
      if (checkpoint_step(entry.path().filename().string()) && is_checkpoint(entry.path()))
        checkpoints_.push_back(entry.path());
    if (!is_run_json(result) && !events && checkpoints_.empty()) return;
    if (is_run_json(result)) manifest_.adopt("run.json", Kind::file);
    if (events) manifest_.adopt("events.jsonl", Kind::log);
    if (log_has("metrics.jsonl", {"step", "loss", "grad_norm", "lr", "tokens", "seconds"}))
      manifest_.adopt("metrics.jsonl", Kind::log);
    if (log_has("eval.jsonl", {"step", "loss", "target_tokens", "seconds"}))
      manifest_.adopt("eval.jsonl", Kind::log);
    if (is_trace(folder_ / "trace.json")) manifest_.adopt("trace.json", Kind::file);
    for (const fs::path& checkpoint : checkpoints_) adopt_checkpoint(checkpoint);
    adopt_others();
    adopt_result(result.is_object() && result.value("finished", Json()) == Json(true));
  }

 private:
  // An empty log is one that was opened and not yet written to.
  [[nodiscard]] bool log_has(const char* name, std::initializer_list<const char*> keys) const {
    const fs::path file = folder_ / name;
    if (!fs::is_regular_file(fs::symlink_status(file))) return false;
    return fs::file_size(file) == 0 ? has_run_beside() : has_keys(parsed(file, kMostLineBytes, true), keys);
  }
  [[nodiscard]] bool has_run_beside() const {
    return !checkpoints_.empty() || manifest_.lists("events.jsonl");
  }

  void adopt_checkpoint(const fs::path& checkpoint) {
    try {
      manifest_.adopt(checkpoint.filename().string(), Kind::folder);
    } catch (const Error&) {  // something in it is no file: it is not a run's, as a whole
    }
  }

  void adopt_others() {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (!fs::is_regular_file(entry.symlink_status())) continue;
      if (is_stopped_batch(name) && log_has(name.c_str(), {"row", "input_ids", "labels"}))
        manifest_.adopt(name, Kind::file);
      if (name.starts_with("events.out.tfevents.") && name.ends_with(".plimsoll"))
        manifest_.adopt(name, Kind::file);
      if (name == ".lock" &&
          read_start(entry.path(), 24).find_first_not_of("0123456789\n") == std::string::npos)
        manifest_.adopt(name, Kind::file);
    }
  }

  void adopt_result(bool finished) {
    for (const std::string_view view : kResultFiles) adopt_result_file(std::string(view), finished);
    adopt_result_file("recipe.yaml", finished);
  }

  void adopt_result_file(const std::string& name, bool finished) {
    const fs::path file = folder_ / name;
    if (!fs::is_regular_file(fs::symlink_status(file))) return;
    const auto same = [&](const fs::path& checkpoint) { return is_same_file(file, checkpoint / name); };
    if (finished || std::any_of(checkpoints_.begin(), checkpoints_.end(), same))
      manifest_.adopt(name, Kind::file);
  }

  static bool is_same_file(const fs::path& a, const fs::path& b) {
    std::error_code absent;
    return fs::is_regular_file(fs::symlink_status(b, absent)) &&
           (fs::equivalent(a, b, absent) || mark_of(a) == mark_of(b));
  }

  const fs::path& folder_;
  Manifest& manifest_;
  std::vector<fs::path> checkpoints_;
};

}  // namespace

bool is_stopped_batch(std::string_view name) {
  constexpr std::string_view kStart = "stopped-at-step-", kEnd = ".jsonl";
  if (!name.starts_with(kStart) || !name.ends_with(kEnd) || name.size() <= kStart.size() + kEnd.size())
    return false;
  name.remove_prefix(kStart.size());
  name.remove_suffix(kEnd.size());
  return name.find_first_not_of("0123456789") == std::string_view::npos;
}

void adopt_run(const fs::path& folder, Manifest& manifest) { Adoption(folder, manifest).run(); }

}  // namespace plimsoll
