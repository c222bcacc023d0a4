#include "train/profile.h"
#include "graph/op_kind.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cpu/describe.h"
#include "files/test_folder.h"
#include "plan/program/time_model.h"
#include "train/test_bench.h"

namespace plimsoll {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr std::array<size_t, kTracks> kRoom = {8, 64, 64, 64};

std::vector<Graph> programs() {
  return build_programs(test::experiment_of({"tiny", "qwen2", true, test::kBf16}, 1, true), {},
                        describe_cpu(Isa::avx2, 1));
}

int32_t first_of(const Graph& graph, OpKind kind) {
  for (size_t i = 0; i < graph.ops().size(); ++i)
    if (graph.ops()[i].kind == kind) return static_cast<int32_t>(i);
  ADD_FAILURE() << "the program has no " << to_string(kind);
  return 0;
}

// Two steps of 100 ms: 50 in linear layers, 10 in attention, 20 waiting for data, 5 for transfers.
void record_two_steps(const Graph& graph, Recorder& recorder) {
  recorder.record(true);
  for (int64_t step = 0; step < 2; ++step) {
    int64_t at = step * 100 * kMillisecond;
    recorder.add(Track::steps, {at, at + 100 * kMillisecond, -1, -1});
    const auto take = [&](int64_t milliseconds, int32_t program, int32_t op) {
      recorder.add(Track::compute, {at, at + milliseconds * kMillisecond, program, op});
      at += milliseconds * kMillisecond;
    };
    take(20, -1, static_cast<int32_t>(Beside::data));
    take(30, 0, first_of(graph, OpKind::linear));
    take(20, 0, first_of(graph, OpKind::linear));
    take(10, 0, first_of(graph, OpKind::attention));
    take(5, 0, static_cast<int32_t>(Beside::transfers));
  }
  recorder.add(Track::loader, {0, kMillisecond, -1, -1});
}

TEST(Profile, lines_sum_to_the_step_and_the_rest_is_named) {
  const std::vector<Graph> graphs = programs();
  Recorder recorder(kRoom);
  record_two_steps(graphs[0], recorder);
  const std::string text = profile_text(graphs, recorder, DeviceRates{});
  const auto line = [&](const char* name, const char* numbers) {
    EXPECT_THAT(text, testing::ContainsRegex("\n  " + std::string(name) + " +" + numbers));
  };
  line("linear", "2 +50\\.0 +50\\.0 %");
  line("attention", "1 +10\\.0 +10\\.0 %");
  line("waiting for transfers", "5\\.0 +5\\.0 %");
  line("waiting for data", "20\\.0 +20\\.0 %");
  line("between ops", "15\\.0 +15\\.0 %");
  line("step", "100\\.0 +100\\.0 %");
  EXPECT_THAT(text, testing::HasSubstr("linear model.layers.*.self_attn.q_proj.lora_A "));
  EXPECT_THAT(text, testing::HasSubstr("(uncalibrated)"));
}

TEST(Profile, the_bound_is_the_longer_of_arithmetic_and_memory) {
  Graph graph("g");
  const TensorId x = graph.add_tensor({"x", {64, 32}, DType::bf16, Role::input});
  const TensorId w = graph.add_tensor({"w", {16, 32}, DType::bf16, Role::frozen_weight});
  Op op;
  op.kind = OpKind::linear;
  op.inputs = {x, w};
  op.outputs = {kNewTensor};
  op.attrs["scale"] = 1.0;
  emit(graph, op, "y");
  DeviceRates rates;
  rates.matmul_bf16 = 2.0 * 64 * 32 * 16;  // one second
  rates.matmul_f32 = 1;
  rates.bandwidth = 1e12;
  EXPECT_DOUBLE_EQ(bound_of(graph, graph.ops()[0], rates).seconds, 1.0);
  EXPECT_TRUE(bound_of(graph, graph.ops()[0], rates).arithmetic);
  rates.bandwidth = (64 * 32 + 16 * 32 + 64 * 16) * 2 / 3.0;
  EXPECT_DOUBLE_EQ(bound_of(graph, graph.ops()[0], rates).seconds, 3.0);
  EXPECT_FALSE(bound_of(graph, graph.ops()[0], rates).arithmetic);
}

TEST(Profile, a_trace_has_a_track_for_each_thread) {
  const std::vector<Graph> graphs = programs();
  const TestFolder folder;
  Recorder recorder(kRoom);
  record_two_steps(graphs[0], recorder);
  const std::filesystem::path file = folder.path() / "trace.json";
  write_trace(graphs, recorder, DeviceRates{}, file);
  std::ifstream in(file);
  const nlohmann::json trace = nlohmann::json::parse(in);
  std::map<int, std::string> names;
  std::map<std::string, int> events;
  for (const auto& event : trace["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase == "M" && event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
    if (phase == "X") ++events[names.at(event["tid"])];
  }
  EXPECT_EQ(events, (std::map<std::string, int>{{"steps", 2}, {"compute", 10}, {"loader", 1}}));
}

TEST(Recorder, keeps_nothing_beyond_its_room_or_while_it_is_off) {
  Recorder recorder({1, 1, 1, 1});
  recorder.add(Track::compute, {});
  EXPECT_TRUE(recorder.spans(Track::compute).empty());
  recorder.record(true);
  recorder.add(Track::compute, {1, 2, 0, 0});
  recorder.add(Track::compute, {3, 4, 0, 0});
  ASSERT_EQ(recorder.spans(Track::compute).size(), 1U);
  EXPECT_EQ(recorder.spans(Track::compute)[0].begin, 1);
}

}  // namespace
}  // namespace plimsoll
