// The answer to the program's name alone, on a terminal: this machine, models and runs, first commands.
#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/format.h"
#include "base/print.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/system_memory.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cpu/isa.h"
#include "files/run_folder.h"
#include "prepare/own_cards.h"
#include "recipe/hub.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNamed = 3;  // models and runs by name, and how many more there are

std::string machine_words() {
  const unsigned threads = std::thread::hardware_concurrency();
  std::string isa;
  try {
    isa = to_string(detect_isa());
  } catch (const UsageError&) {
    isa = "no AVX2, which Plimsoll needs";
  }
  std::string text = formatted("{} {}, {}; {} of {} free", threads, threads == 1 ? "thread" : "threads", isa,
                               format_bytes(free_memory().bytes), format_bytes(total_memory()));
  const OwnCards& cards = own_cards();
  if (!cards.problem.empty()) return formatted("{}; no GPU: {}", text, printable(cards.problem));
  if (cards.gpus.empty()) text += "; no NVIDIA GPU";
  for (const devices::Gpu& gpu : cards.gpus)
    text += gpu.problem.empty()
                ? formatted("; {}, {} free", printable(gpu.name), format_bytes(free_bytes(gpu)))
                : formatted("; {}: {}", printable(gpu.name), printable(gpu.problem));
  return text;
}

// The models of the Hugging Face cache by name.
std::vector<std::string> cached_models() {
  constexpr std::string_view kPrefix = "models--";
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator at(hub_cache(), failed), end; !failed && at != end; at.increment(failed)) {
    std::string name = at->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    name.erase(0, kPrefix.size());
    if (const size_t owner = name.find("--"); owner != std::string::npos) name.replace(owner, 2, "/");
    if (find_in_hub_cache(HubKind::model, name)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Folders of runs in the working folder and in runs/.
std::vector<std::string> runs_here() {
  std::vector<std::string> names;
  for (const char* const place : {".", "runs"}) {
    std::error_code failed;
    for (fs::directory_iterator at(place, failed), end; !failed && at != end; at.increment(failed)) {
      std::error_code unknown;
      if (fs::is_regular_file(at->path() / "metrics.jsonl", unknown))
        names.push_back(at->path().lexically_normal().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string named(std::vector<std::string> names, const std::string& none) {
  if (names.empty()) return none;
  const size_t more = names.size() - std::min(names.size(), kNamed);
  names.resize(names.size() - more);
  const std::string text = printable(join(names, ", "));
  return more > 0 ? formatted("{} and {} more", text, more) : text;
}

}  // namespace

ExitCode show_first_screen() {
  const std::vector<std::string> models = cached_models();
  const std::string model = models.empty() ? "MODEL" : printable(models.front());
  const std::string first = formatted(
      "Plimsoll {} fine-tunes language models inside a memory budget, and never runs out of it.\n"
      "  this machine   {}\n  models here    {}\n  runs here      {}\n\n",
      PLIMSOLL_VERSION, machine_words(), named(models, "none (plimsoll fetch NAME downloads one)"),
      named(runs_here(), "none"));
  print(fitted(first, output_columns()));
  TextTable table({false, false});
  table.add_row({"plimsoll fit qwen2.5-1.5b", "what fits here; nothing is downloaded"});
  table.add_row({"plimsoll demo", "trains a small model in half a minute and asks it"});
  table.add_row({formatted("plimsoll init {} rows.jsonl", model), "a recipe for your rows"});
  table.add_row({"plimsoll doctor train.log", "why any trainer ran out of memory"});
  table.add_row({"plimsoll --help", "all commands"});
  print(table.render("  ", output_columns()));
  print(fitted("\nNothing is sent anywhere: plimsoll fetch alone opens a connection.\n", output_columns()));
  finish_output();
  return ExitCode::ok;
}

}  // namespace plimsoll
