#include "plan/search/plan.h"

#include <gtest/gtest.h>

#include <chrono>
#include <concepts>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "base/units.h"
#include "models/test_specs.h"
#include "plan/program/variant_fields.h"
#include "plan/search/depth_model.h"
#include "plan/search/fitting_plans.h"
#include "plan/search/refusal.h"

namespace plimsoll {
namespace {

ModelSpec tiny() { return test_spec({}); }

PlanRequest request_for(const ModelSpec& model, bool lora) {
  PlanRequest request;
  request.workload.experiment.model = model;
  request.workload.experiment.lora = lora;
  request.workload.experiment.precision = {DType::bf16, DType::f32, DType::f32, false, true};
  request.workload.experiment.max_length = 64;
  request.workload.experiment.effective_batch = 8;
  request.target.device = reference_description();
  request.target.own_memory = true;
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
  request.choices.recompute = RecomputePoint::none;
  request.choices.loss_chunk = 64;
  request.choices.tie = 0;
  const Plan open = make_plan(request);
  EXPECT_EQ(open.variant.micro_batch, 8);
  request.target.budget.device_bytes = open.arena_bytes() - 1;
  const Plan tight = make_plan(request);
  EXPECT_TRUE(tight.fits());
  EXPECT_LT(tight.variant.micro_batch, 8);
  EXPECT_GE(tight.variant.micro_batch * tight.variant.accumulation, 8);
  EXPECT_GE(tight.seconds_per_step, open.seconds_per_step);
}

// A slow link, so that sending is almost all of a step.
TEST(Plan, what_devices_send_is_in_the_seconds_of_the_smallest_plan_too) {
  PlanRequest request = request_for(tiny(), false);
  request.workload.experiment.ranks = 2;
  request.workload.experiment.optimizer.shard = ShardStage::states;
  request.target.link.bytes_per_second = 1e3;
  const Plan plan = make_plan(request);
  ASSERT_GT(plan.sending_seconds, 0.99 * plan.seconds_per_step);
  EXPECT_GT(plan.smallest.seconds_per_step, plan.sending_seconds);
}

TEST(Plan, what_cannot_fit_is_refused_with_the_least_that_would) {
  PlanRequest request = request_for(tiny(), true);
  request.target.budget.device_bytes = 1000;
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
  request.target.own_memory = false;
  request.target.host.components = {{"program", 50 * kMiB}};
  return request;
}

TEST(Plan, one_memory_has_one_budget_for_the_process) {
  PlanRequest request = one_memory();
  const Plan open = make_plan(request);
  EXPECT_EQ(open.memory_bytes(), open.process_peak_bytes());
  request.target.budget.process_bytes = open.process_peak_bytes() - 1;
  const Plan tight = make_plan(request);
  EXPECT_TRUE(tight.fits());
  EXPECT_LT(tight.process_peak_bytes(), open.process_peak_bytes());
  EXPECT_TRUE(report_text(tight).starts_with("fits   " + format_bytes(tight.process_peak_bytes()) + " of " +
                                             format_bytes(*request.target.budget.process_bytes) +
                                             " (the whole process)"))
      << report_text(tight);
  request.target.budget.process_bytes = 50 * kMiB;
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
  request.target.own_memory = true;
  request.target.budget.process_bytes.reset();
  request.target.budget.device_bytes = 50 * kMiB;
  EXPECT_TRUE(make_plan(request).fits());
}

TEST(Plan, an_evaluation_has_the_most_rows_at_a_time_that_fit) {
  PlanRequest request = one_memory();
  request.workload.use = Use::evaluate;
  request.workload.dataset_rows = 40;
  request.target.host_of = [](const Plan& plan) {
    return std::vector<Component>{{"batches", plan.variant.micro_batch * kMiB}};
  };
  const Plan open = make_plan(request);
  EXPECT_EQ(open.variant.micro_batch, 16);
  EXPECT_EQ(open.host_bytes(), (50 + 16) * kMiB);
  ASSERT_EQ(open.programs.size(), 1u);
  EXPECT_EQ(open.programs[0].name(), kEvalProgram);
  request.target.budget.process_bytes = open.process_peak_bytes() - 1;
  const Plan tight = make_plan(request);
  EXPECT_TRUE(tight.fits());
  EXPECT_EQ(tight.variant.micro_batch, 8);
  request.target.budget.process_bytes = 50 * kMiB;
  const Plan refused = make_plan(request);
  EXPECT_FALSE(refused.fits());
  EXPECT_EQ(refused.variant.micro_batch, 1);
  request.choices.micro_batch = 5;  // stated: no fewer are tried
  EXPECT_EQ(make_plan(request).variant.micro_batch, 5);
  request.workload.dataset_rows = 3;
  request.choices.micro_batch.reset();
  request.target.budget.process_bytes.reset();
  EXPECT_EQ(make_plan(request).variant.micro_batch, 3);
}

TEST(Plan, generation_counts_what_beams_change_places_by) {
  PlanRequest request = one_memory();
  request.workload.use = Use::generate;
  request.workload.generation = {.capacity = 32, .chunk = 8};
  const Plan one = make_plan(request);
  request.workload.generation.sequences = 3;
  const Plan beams = make_plan(request);
  ASSERT_EQ(beams.programs.size(), 2u);
  EXPECT_EQ(one.spare_bytes, 0);
  EXPECT_GT(beams.spare_bytes, 0);
  EXPECT_EQ(beams.process_peak_bytes(), beams.arena_bytes() + beams.spare_bytes + beams.host_bytes());
  request.target.budget.process_bytes = beams.process_peak_bytes() - 1;
  EXPECT_FALSE(make_plan(request).fits());
}

TEST(Plan, an_inspection_keeps_logits_beside_the_programs_of_training) {
  PlanRequest request = one_memory();
  request.choices.micro_batch = 2;
  const Plan training = make_plan(request);
  request.workload.use = Use::inspect;
  const Plan inspection = make_plan(request);
  ASSERT_EQ(inspection.programs.size(), training.programs.size() + 1);
  EXPECT_EQ(inspection.programs[0].name(), kTrainProgram);
  EXPECT_NE(inspection.layout.find_persistent(kLogitsTensor), nullptr);
  EXPECT_EQ(inspection.variant.accumulation, 4);
}

TEST(Plan, what_may_stop_sharing_prefixes_does_so_only_where_nothing_else_fits) {
  PlanRequest request = request_for(tiny(), true);
  request.workload.experiment.shares_prefixes = true;
  const int64_t shared = make_plan(request).smallest.arena_bytes;
  request.choices.may_stop_sharing = true;
  EXPECT_TRUE(make_plan(request).request.workload.experiment.shares_prefixes);
  PlanRequest apart = request;
  apart.workload.experiment.shares_prefixes = apart.choices.may_stop_sharing = false;
  const int64_t least = make_plan(apart).smallest.arena_bytes;
  ASSERT_LT(least, shared);
  request.target.budget.device_bytes = least;
  const Plan plan = make_plan(request);
  EXPECT_TRUE(plan.fits());
  EXPECT_FALSE(plan.request.workload.experiment.shares_prefixes);
}

TEST(Variant, has_a_name_for_each_field_to_write_and_read_it_by) {
  Variant variant;
  int64_t number = 1000;
  for_each_field(variant, [&](const char*, auto& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::same_as<Value, bool>)
      value = !value;
    else if constexpr (std::same_as<Value, PartTarget>)
      value = {number, number + 1}, number += 2;
    else if constexpr (std::same_as<Value, int64_t>)
      value = number++;
    else
      value = {RecomputePoint::block, RecomputePoint::none};
  });
  nlohmann::json json;
  for_each_field(std::as_const(variant), [&](const char* name, const auto& value) { json[name] = value; });
  EXPECT_EQ(json.size(), 17u);
  EXPECT_EQ(json.at("offload.slice_elements"), variant.offload.slice_elements);
  Variant read;
  for_each_field(read, [&](const char* name, auto& value) { json.at(name).get_to(value); });
  EXPECT_EQ(read, variant);
}

TEST(Plan, an_offload_folder_in_memory_counts_to_the_process) {
  PlanRequest request = one_memory();
  request.workload.experiment.lora = false;
  request.workload.experiment.model.vocab = 8192;  // tensors large enough to move
  request.target.targets = {Space::disk};
  request.choices.offload = OffloadParts{.states = true};
  const Plan disk = make_plan(request);
  ASSERT_GT(disk.disk_bytes(), 0);
  request.target.budget.disk_in_memory = true;
  const Plan memory = make_plan(request);
  EXPECT_EQ(memory.process_peak_bytes(), disk.process_peak_bytes() + disk.disk_bytes());
  EXPECT_EQ(memory.data_bytes(), disk.data_bytes());
  request.target.budget.process_bytes = disk.process_peak_bytes();
  const Plan other = make_plan(request);  // not that variant, whose states are memory now
  EXPECT_TRUE(!other.fits() || other.process_peak_bytes() <= disk.process_peak_bytes());
  EXPECT_NE(other.variant, disk.variant);
}

TEST(Plan, seven_billion_parameters_are_planned_at_once_and_laid_out_at_the_bound) {
  PlanRequest request = request_for(mistral_7b(), true);
  request.workload.experiment.max_length = 512;
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
  request.workload.experiment.max_length = 2048;
  request.workload.experiment.effective_batch = 16;
  request.target.targets = {Space::host, Space::disk};
  request.target.own_memory = true;
  request.target.device.reaches_host = false;
  request.target.budget.device_bytes = kGiB / 2;
  const int64_t before = planning_work();
  EXPECT_FALSE(FittingPlans(request).within(request.target.budget));
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
  request.workload.experiment.max_length = 512;
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
