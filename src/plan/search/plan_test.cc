#include "plan/search/plan.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "models/test_specs.h"
#include "plan/search/depth_model.h"
#include "plan/search/fitting_plans.h"

namespace plimsoll {
namespace {

ModelSpec tiny() { return test_spec({}); }

PlanRequest request_for(const ModelSpec& model, bool lora) {
  PlanRequest request;
  request.experiment.model = model;
  request.experiment.lora = lora;
  request.experiment.precision = {DType::bf16, DType::f32, DType::f32, false, true};
  request.experiment.max_length = 64;
  request.experiment.effective_batch = 8;
  request.device = reference_description();
  request.own_memory = true;
  return request;
}

TEST(Plan, persistent_bytes_of_full_fine_tuning_are_fourteen_a_parameter) {
  const Plan plan = make_plan(request_for(tiny(), false));
  int64_t elements = 0;
  int64_t bytes = 0;
  for (const TableRow& row : plan.layout.persistent) {
    if (row.role == Role::metric) continue;
    bytes += row.bytes;
    if (row.role == Role::trainable_weight) elements += row.shape.elements();
  }
  EXPECT_EQ(bytes, 14 * elements);
}

TEST(Plan, components_sum_to_the_arena) {
  for (const bool lora : {false, true}) {
    const Plan plan = make_plan(request_for(tiny(), lora));
    int64_t sum = 0;
    for (const Component& component : device_components(plan)) sum += component.bytes;
    EXPECT_EQ(sum, plan.arena_bytes());
  }
}

TEST(Plan, a_smaller_budget_gives_a_smaller_micro_batch_of_the_same_effective_batch) {
  PlanRequest request = request_for(tiny(), true);
  request.recompute = RecomputePoint::none;
  request.loss_chunk = 64;
  request.tie = 0;
  const Plan open = make_plan(request);
  EXPECT_EQ(open.variant.micro_batch, 8);
  request.budget.device_bytes = open.arena_bytes() - 1;
  const Plan tight = make_plan(request);
  EXPECT_TRUE(tight.fits());
  EXPECT_LT(tight.variant.micro_batch, 8);
  EXPECT_GE(tight.variant.micro_batch * tight.variant.accumulation, 8);
  EXPECT_GE(tight.seconds_per_step, open.seconds_per_step);
}

TEST(Plan, what_cannot_fit_is_refused_with_the_least_that_would) {
  PlanRequest request = request_for(tiny(), true);
  request.budget.device_bytes = 1000;
  const Plan plan = make_plan(request);
  EXPECT_FALSE(plan.fits());
  EXPECT_EQ(plan.variant.micro_batch, 1);
  EXPECT_NE(refusal_text(plan).find("smallest possible: " + format_bytes_up(plan.arena_bytes())),
            std::string::npos)
      << refusal_text(plan);
}

// A device that computes on the host's memory, and what the process takes beside the arena.
PlanRequest one_memory() {
  PlanRequest request = request_for(tiny(), true);
  request.own_memory = false;
  request.host.components = {{"program", 50 * kMiB}};
  return request;
}

TEST(Plan, one_memory_has_one_budget_for_the_process) {
  PlanRequest request = one_memory();
  const Plan open = make_plan(request);
  EXPECT_EQ(open.memory_bytes(), open.process_peak_bytes());
  request.budget.process_bytes = open.process_peak_bytes() - 1;
  const Plan tight = make_plan(request);
  EXPECT_TRUE(tight.fits());
  EXPECT_LT(tight.process_peak_bytes(), open.process_peak_bytes());
  EXPECT_TRUE(report_text(tight).starts_with("fits   " + format_bytes(tight.process_peak_bytes()) + " of " +
                                             format_bytes(*request.budget.process_bytes) +
                                             " (the whole process)"))
      << report_text(tight);
  request.budget.process_bytes = 50 * kMiB;
  const Plan least = make_plan(request);
  EXPECT_FALSE(least.fits());
  const std::string refusal = refusal_text(least);
  EXPECT_NE(refusal.find("the process needs " + format_bytes_up(least.process_peak_bytes())),
            std::string::npos)
      << refusal;
  EXPECT_NE(refusal.find("smallest possible: " + format_bytes_up(least.process_peak_bytes())),
            std::string::npos)
      << refusal;
  EXPECT_NE(refusal.find("program 50.0 MiB"), std::string::npos) << refusal;
  // The same arena fits a device of that size which has memory of its own.
  request.own_memory = true;
  request.budget.process_bytes.reset();
  request.budget.device_bytes = 50 * kMiB;
  EXPECT_TRUE(make_plan(request).fits());
}

TEST(Plan, an_offload_folder_in_memory_counts_to_the_process) {
  PlanRequest request = one_memory();
  request.experiment.lora = false;
  request.experiment.model.vocab = 8192;  // tensors large enough to move
  request.homes = {Space::disk};
  request.offload = OffloadParts{.states = true};
  const Plan disk = make_plan(request);
  ASSERT_GT(disk.disk_bytes(), 0);
  request.budget.disk_in_memory = true;
  const Plan memory = make_plan(request);
  EXPECT_EQ(memory.process_peak_bytes(), disk.process_peak_bytes() + disk.disk_bytes());
  EXPECT_EQ(memory.data_bytes(), disk.data_bytes());
  request.budget.process_bytes = disk.process_peak_bytes();
  const Plan other = make_plan(request);  // not that variant, whose states are memory now
  EXPECT_TRUE(!other.fits() || other.process_peak_bytes() <= disk.process_peak_bytes());
  EXPECT_NE(other.variant, disk.variant);
}

TEST(Plan, seven_billion_parameters_are_planned_at_once_and_laid_out_at_the_bound) {
  PlanRequest request = request_for(mistral_7b(), true);
  request.experiment.max_length = 512;
  const auto start = std::chrono::steady_clock::now();
  const Plan plan = make_plan(request);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LE(static_cast<double>(plan.arena_bytes()),
            1.01 * static_cast<double>(plan.layout.lower_bound_bytes()));
  EXPECT_GT(plan.arena_bytes(), int64_t{2} * 7'241'732'096);
  RecordProperty("seconds", std::to_string(seconds.count()));
}

// The frames that move most say that nothing fits: no other one is measured.
TEST(Plan, a_refusal_measures_few_programs) {
  PlanRequest request = request_for(mistral_7b(), true);
  request.experiment.max_length = 2048;
  request.experiment.effective_batch = 16;
  request.homes = {Space::host, Space::disk};
  request.own_memory = true;
  request.device.reaches_host = false;
  request.budget.device_bytes = kGiB;
  const int64_t before = planning_work();
  EXPECT_FALSE(FittingPlans(request).within(request.budget));
  const int64_t work = planning_work() - before;
  EXPECT_LT(work, 40'000);
  EXPECT_GT(work, 1'000);
}

TEST(Plan, json_carries_the_documented_names) {
  const auto json = nlohmann::json::parse(report_json(make_plan(request_for(tiny(), true))));
  EXPECT_TRUE(json["feasible"].get<bool>());
  for (const char* key : {"kind", "budget_bytes", "arena_bytes", "persistent_bytes", "transient_bytes",
                          "lower_bound_bytes", "components", "phases"})
    EXPECT_TRUE(json["device"].contains(key)) << key;
  EXPECT_TRUE(json["host"].contains("planned_peak_bytes"));
  EXPECT_TRUE(json["process"].contains("planned_data_bytes"));
  EXPECT_TRUE(json["predicted"].contains("seconds_per_step"));
  EXPECT_EQ(json["variant"]["effective_batch"], 8);
}

TEST(Plan, lines_of_the_report_are_at_most_a_hundred_columns) {
  PlanRequest request = request_for(mistral_7b(), true);
  request.experiment.max_length = 512;
  const std::string text = report_text(make_plan(request));
  size_t columns = 0;
  for (const char c : text) {
    columns = c == '\n' ? 0 : columns + ((static_cast<uint8_t>(c) & 0xC0) != 0x80 ? 1 : 0);
    ASSERT_LE(columns, 100U) << text;
  }
}

TEST(Plan, programs_survive_print_and_parse) {
  for (const Graph& graph : make_plan(request_for(tiny(), true)).programs)
    EXPECT_EQ(print_graph(parse_graph(print_graph(graph))), print_graph(graph));
}

}  // namespace
}  // namespace plimsoll
