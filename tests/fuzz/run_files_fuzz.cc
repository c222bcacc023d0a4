// Files of a run's folder, by the first byte: its logs (l) metrics.jsonl, eval.jsonl, events.jsonl and
// run.json, parted by a byte 0; the list of what it wrote (m); and the measured rates of a machine (r).
#include <nlohmann/json.hpp>

#include "calibrate/rates_json.h"
#include "files/json.h"
#include "files/manifest.h"
#include "fuzz/target.h"
#include "report/history.h"

using namespace plimsoll;

namespace {

const FuzzFolder& folder() {
  static const FuzzFolder kFolder;
  return kFolder;
}

void read_logs(std::string_view text) {
  for (const char* name : {"metrics.jsonl", "eval.jsonl", "events.jsonl", "run.json"}) {
    const auto [content, rest] = parted(text, '\0');
    folder().write(name, content);
    text = rest;
  }
  const RunHistory run = read_history(folder().path());
  int64_t before = 0;
  for (const StepPoint& step : run.steps) {
    check_internal(step.step >= before, "steps do not ascend");
    before = step.step;
  }
  (void)median_rate(run);
  (void)median_seconds(run);
  (void)largest_rss(run);
  (void)best_evaluation(run, run.goal);
  for (const RunEvent& event : run.events) (void)(clock_words(event.time) + event_words(event));
}

void read_manifest(std::string_view text) {
  const Manifest manifest(folder().path(), folder().write("manifest", text));
  for (const std::string& name : manifest.present()) accepted([&] { (void)manifest.foreign(name); });
}

void read_rates(std::string_view text) {
  const DeviceRates rates = rates_from_json(parse_json(text, "rates.json"), "rates.json");
  const std::string once = rates_to_json(rates).dump();
  check_internal(rates_to_json(rates_from_json(parse_json(once, "again"), "again")).dump() == once,
                 "rates read back as others");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = text_of(data, size);
  if (text.empty()) return 0;
  accepted([&] {
    if (text.front() == 'l') read_logs(text.substr(1));
    if (text.front() == 'm') read_manifest(text.substr(1));
    if (text.front() == 'r') read_rates(text.substr(1));
  });
  return 0;
}
