#include "train/profile.h"

#include <algorithm>
#include <cstdio>

namespace plimsoll {
namespace {

constexpr int64_t kWarmUp = 2;           // steps in which pages and caches become warm
constexpr int64_t kMostSteps = 5;        // a trace of more shows no more
constexpr int64_t kMostSpans = 200'000;  // 5 MB of them; one step always fits
constexpr size_t kLoaderSpans = 4096;

int64_t spans_of_step(const Plan& plan) {
  int64_t spans = 2;  // of the step itself and its wait for data
  for (const Graph& graph : plan.programs) {
    const auto ops = static_cast<int64_t>(graph.ops().size()) + 1;
    if (graph.name() == kTrainProgram) spans += ops * plan.variant.accumulation;
    if (graph.name() == kUpdateProgram) spans += ops;
  }
  return spans;
}

int64_t recorded_steps(const Plan& plan) {
  return std::clamp<int64_t>(kMostSpans / spans_of_step(plan), 1, kMostSteps);
}

std::array<size_t, kTracks> capacity(const Plan& plan, int64_t steps) {
  const auto spans = static_cast<size_t>(steps * spans_of_step(plan));
  return {static_cast<size_t>(steps), spans, spans, kLoaderSpans};
}

}  // namespace

Profile::Profile(const Plan& plan)
    : plan_(plan), steps_(recorded_steps(plan)), recorder_(capacity(plan, steps_)) {}

LoaderOptions Profile::recorded(LoaderOptions options) {
  options.on_batch = [this](bool begins) {
    const int64_t now = recorder_.now();
    if (begins) {
      batch_begin_ = now;
    } else {
      recorder_.add(Track::loader, {batch_begin_, now, -1, -1});
    }
  };
  return options;
}

void Profile::start(int64_t steps) {
  warm_up_ = std::clamp<int64_t>(steps - 1, 0, kWarmUp);
  recorder_.record(warm_up_ == 0);
}

void Profile::step_done(double seconds, double data_wait) {
  if (recorder_.recording()) {
    const int64_t end = recorder_.now();
    const int64_t begin = end - static_cast<int64_t>(seconds * 1e9);
    recorder_.add(Track::compute, {begin, begin + static_cast<int64_t>(data_wait * 1e9), -1,
                                   static_cast<int32_t>(Beside::data)});
    recorder_.add(Track::steps, {begin, end, -1, -1});
    if (static_cast<int64_t>(recorder_.spans(Track::steps).size()) == steps_) recorder_.record(false);
  } else if (warm_up_ > 0 && --warm_up_ == 0) {
    recorder_.record(true);
  }
}

std::string Profile::write(RunFolder& output) const {
  const DeviceRates& rates = plan_.request.target.device.rates;
  const std::filesystem::path trace = output.temporary("trace.json");
  write_trace(plan_.programs, recorder_, rates, trace);
  output.put(trace, "trace.json");
  return profile_text(plan_.programs, recorder_, rates);
}

}  // namespace plimsoll
