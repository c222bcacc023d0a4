#include "plan/program/graphs.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"
#include "device/catalogue.h"
#include "models/test_specs.h"
#include "ops/rule.h"
#include "plan/search/plan.h"
#include "plan/search/refusal.h"

namespace plimsoll {
namespace {

// Four micro-steps of rows that are full.
PlanRequest request_for(const ModelSpec& model, const char* card, bool lora) {
  PlanRequest request;
  request.workload.experiment.model = model;
  request.workload.experiment.lora = lora;
  request.workload.experiment.precision = {DType::bf16, DType::f32, DType::f32, false, true};
  request.workload.experiment.max_length = 512;
  request.workload.experiment.effective_batch = 4;
  request.workload.experiment.evaluates = true;
  request.choices.micro_batch = 1;
  request.target.device = describe_card(find_card(card, "test"), true);
  request.target.own_memory = true;
  return request;
}

const PlannedGraphs& of(const Plan& plan, const char* program) {
  for (const PlannedGraphs& one : plan.graphs)
    if (one.program == program) return one;
  throw InternalError("no such program");
}

TEST(Graphs, a_tiny_model_on_a_big_card_gets_them_and_a_7b_does_not) {
  const Plan tiny = make_plan(request_for(test_spec({}), "H200", false));
  EXPECT_EQ(of(tiny, kTrainProgram).graphs, 2);
  EXPECT_EQ(of(tiny, kUpdateProgram).graphs, 1);
  EXPECT_EQ(of(tiny, kEvalProgram).graphs, 1);
  PlanRequest of_7b = request_for(mistral_7b(), "H200", true);
  of_7b.workload.experiment.max_length = 2048;
  const Plan large = make_plan(of_7b);
  EXPECT_EQ(large.graphs_of(kTrainProgram), 0);
  EXPECT_EQ(of(large, kTrainProgram).why, "the host launches its calls faster than the card computes them");
  EXPECT_EQ(of(large, kUpdateProgram).why, "the host's launches add less than 1 % to a step");
  EXPECT_EQ(large.graph_bytes(), 0);
}

TEST(Graphs, their_bytes_are_outside_the_arena_and_what_they_save_is_predicted) {
  PlanRequest request = request_for(test_spec({}), "H200", false);
  const Plan with = make_plan(request);
  int64_t nodes = 0;
  for (const Graph& program : with.programs)
    nodes += with.graphs_of(program.name()) * gpu_launches(program, true);
  EXPECT_GT(nodes, 100);
  EXPECT_EQ(with.graph_bytes(), nodes * 64 * 1024);
  request.choices.graphs = UseGraphs::off;
  const Plan without = plan_variant(request, with.variant);
  EXPECT_EQ(without.graph_bytes(), 0);
  EXPECT_EQ(with.arena_bytes(), without.arena_bytes());
  EXPECT_EQ(with.memory_bytes() - without.memory_bytes(), with.graph_bytes());
  EXPECT_LT(with.seconds_per_step, without.seconds_per_step);
  EXPECT_GE(without.seconds_per_step,
            4 * 3.5e-6 * static_cast<double>(gpu_launches(without.programs[0], true)));
  const auto json = nlohmann::json::parse(report_json(with));
  EXPECT_EQ(json["device"]["outside"].back()["name"], "graphs of " + format_count(nodes) + " nodes");
  EXPECT_EQ(json["device"]["outside_bytes"], outside_bytes(request.target.device) + with.graph_bytes());
  EXPECT_EQ(json["device"]["graphs"][0]["graphs"], 2);
  EXPECT_NE(report_text(with).find("captured graphs"), std::string::npos);
}

TEST(Graphs, without_room_there_are_none_unless_they_are_asked_for) {
  PlanRequest request = request_for(test_spec({}), "H200", false);
  request.choices.graphs = UseGraphs::off;
  request.target.budget.device_bytes = make_plan(request).arena_bytes();
  request.choices.graphs = UseGraphs::automatic;
  const Plan none = make_plan(request);
  EXPECT_TRUE(none.fits());
  EXPECT_EQ(none.graph_bytes(), 0);
  EXPECT_EQ(of(none, kTrainProgram).why, "there is no memory for them");
  request.choices.graphs = UseGraphs::on;
  const Plan refused = make_plan(request);
  EXPECT_FALSE(refused.fits());
  EXPECT_NE(refusal_text(refused).find("--set memory.graphs=auto"), std::string::npos)
      << refusal_text(refused);
  request.target.budget.device_bytes = refused.arena_bytes() + refused.graph_bytes();
  const Plan fits = make_plan(request);
  EXPECT_TRUE(fits.fits()) << refusal_text(fits);
  EXPECT_EQ(fits.graphs_of(kTrainProgram), 2);
}

// A library gets a product's number of rows from the host; kernels here are not.
TEST(Graphs, rows_that_differ_leave_the_update_alone_where_a_library_computes_products) {
  PlanRequest request = request_for(test_spec({}), "H200", false);
  request.workload.run =
      RunSteps{.steps = 10, .tokens = 4 * 300, .rows = 4, .targets = 4 * 100, .row_length = 300};
  const Plan plan = make_plan(request);
  EXPECT_EQ(plan.graphs_of(kTrainProgram), 0);
  EXPECT_EQ(
      of(plan, kTrainProgram).why,
      "its number of rows changes from run to run, and the host sets the sizes of the library's matrix products");
  EXPECT_EQ(plan.graphs_of(kUpdateProgram), 1);
  request.target.device.library_products = false;
  EXPECT_EQ(make_plan(request).graphs_of(kTrainProgram), 1);
}

TEST(Graphs, a_program_that_moves_bytes_of_a_disk_gets_none_and_the_plan_says_why) {
  PlanRequest request = request_for(test_spec({}), "H200", false);
  request.choices.graphs = UseGraphs::on;
  request.workload.experiment.model.vocab = 8192;  // tensors large enough to move
  request.target.targets = {Space::disk};
  request.choices.offload = OffloadParts{.states = true};
  const Plan plan = make_plan(request);
  EXPECT_EQ(of(plan, kUpdateProgram).why, "transfers from a disk need the host");
  EXPECT_EQ(plan.graphs_of(kUpdateProgram), 0);
  EXPECT_NE(report_text(plan).find("none of update: transfers"), std::string::npos) << report_text(plan);
}

TEST(Graphs, a_cpu_makes_none) {
  PlanRequest request = request_for(test_spec({}), "H200", false);
  request.target.device = reference_description();
  request.choices.graphs = UseGraphs::on;
  EXPECT_TRUE(make_plan(request).graphs.empty());
}

TEST(Graphs, a_host_that_was_measured_to_launch_slower_gains_more) {
  const Plan plan = make_plan(request_for(test_spec({}), "H200", false));
  const Graph& update = plan.programs.back();
  MeasuredCard measured;
  measured.launch_seconds = 7e-6;
  const auto gap = [&](const MeasuredCard* of) {
    return launch_gap(update, describe_card(find_card("H200", "test"), true, of), 0);
  };
  EXPECT_NEAR(gap(&measured), 2 * gap(nullptr), 1e-9);
  measured.launch_seconds = std::nullopt;
  EXPECT_EQ(gap(&measured), gap(nullptr));
}

TEST(Graphs, nodes_that_were_measured_take_the_place_of_the_guess) {
  MeasuredCard measured;
  measured.graph_node_bytes = 8000;
  const DeviceDescription card = describe_card(find_card("H200", "test"), true, &measured);
  const OutsidePart part = graphs_part({{"update", 1, 10, ""}}, card);
  EXPECT_EQ(part.name, "graphs of 10 nodes, measured");
  EXPECT_EQ(part.bytes, 80000);
  EXPECT_EQ(part.uncertain, 10000);
}

}  // namespace
}  // namespace plimsoll
