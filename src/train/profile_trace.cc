// A profile as a trace: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/op_kind.h"
#include "plan/program/time_model.h"
#include "train/profile.h"

namespace plimsoll {
namespace {

constexpr const char* kTrackNames[kTracks] = {"steps", "compute", "I/O", "loader"};

double microseconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-3; }

nlohmann::ordered_json thread_name(size_t track) {
  return {{"name", "thread_name"},
          {"ph", "M"},
          {"pid", 1},
          {"tid", track},
          {"args", {{"name", kTrackNames[track]}}}};
}

class TraceFile {
 public:
  explicit TraceFile(const std::filesystem::path& file) : path_(file), out_(file) {
    out_ << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  }
  void add(const nlohmann::ordered_json& event) {
    if (!first_) out_ << ",\n";
    first_ = false;
    out_ << event.dump();
  }
  void finish() {
    out_ << "\n]}\n";
    out_.close();
    if (!out_) throw StoppedError(path_.string() + ": the trace could not be written; is the disk full?");
  }

 private:
  std::filesystem::path path_;
  std::ofstream out_;
  bool first_ = true;
};

std::string name_without_op(Track track, const TimeSpan& span, size_t index) {
  if (track == Track::steps) return "recorded step " + std::to_string(index + 1);
  if (track == Track::loader) return "batch";
  return span.op == static_cast<int32_t>(Beside::data) ? "wait for data" : "wait for transfers";
}

nlohmann::ordered_json event_of(const std::vector<Graph>& programs, const DeviceRates& rates, Track track,
                                const TimeSpan& span, size_t index) {
  nlohmann::ordered_json event = {{"name", ""},
                                  {"ph", "X"},
                                  {"pid", 1},
                                  {"tid", static_cast<int>(track)},
                                  {"ts", microseconds(span.begin)},
                                  {"dur", microseconds(span.end - span.begin)}};
  if (span.op < 0) {
    event["name"] = name_without_op(track, span, index);
    return event;
  }
  const Graph& graph = programs[static_cast<size_t>(span.program)];
  const Op& op = graph.ops()[static_cast<size_t>(span.op)];
  event["name"] = std::string(to_string(op.kind));
  event["cat"] = graph.name();
  const Bound bound = bound_of(graph, op, rates);
  event["args"] = {{"scope", op.scope},
                   {"stage", std::string(to_string(op.stage))},
                   {"flops", bound.flops},
                   {"bytes", bound.bytes},
                   {"bound_us", bound.seconds * 1e6}};
  return event;
}

}  // namespace

void write_trace(const std::vector<Graph>& programs, const Recorder& recorder, const DeviceRates& rates,
                 const std::filesystem::path& file) {
  TraceFile trace(file);
  trace.add({{"name", "process_name"}, {"ph", "M"}, {"pid", 1}, {"args", {{"name", "plimsoll train"}}}});
  for (size_t t = 0; t < kTracks; ++t) {
    const auto track = static_cast<Track>(t);
    const auto spans = recorder.spans(track);
    if (spans.empty()) continue;
    trace.add(thread_name(t));
    for (size_t i = 0; i < spans.size(); ++i) trace.add(event_of(programs, rates, track, spans[i], i));
  }
  trace.finish();
}

}  // namespace plimsoll
