#include "plan/report/explain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/test_specs.h"

namespace plimsoll {
namespace {

PlanRequest request_for(bool lora) {
  PlanRequest request;
  request.workload.experiment.model = test_spec({.hidden = 64, .mlp = 128, .layers = 4, .vocab = 512});
  request.workload.experiment.lora = lora;
  request.workload.experiment.precision = {DType::bf16, DType::f32, DType::f32, false, true};
  request.workload.experiment.max_length = 64;
  request.workload.experiment.effective_batch = 16;
  request.choices.micro_batch = 4;
  request.choices.recompute = RecomputePoint::none;
  request.choices.loss_chunk = 32;
  request.target.device = reference_description();
  return request;
}

double growth(const Explanation& explanation, const std::string& component, const std::string& what) {
  const auto column = std::find(explanation.doubled.begin(), explanation.doubled.end(), what);
  for (const ExplainedComponent& one : explanation.device)
    if (one.component.name == component)
      return one.growth[static_cast<size_t>(column - explanation.doubled.begin())];
  ADD_FAILURE() << component << " has no growth by " << what;
  return 0;
}

int64_t bytes_of(const Plan& plan, const std::string& name) {
  for (const Component& component : device_components(plan))
    if (component.name == name) return component.bytes;
  return 0;
}

TEST(Explain, growth_with_length_and_micro_batch_is_that_of_the_plan_made_anew) {
  for (const bool lora : {false, true}) {
    const PlanRequest request = request_for(lora);
    PlanRequest longer = request;
    longer.workload.experiment.max_length *= 2;
    PlanRequest wider = request;
    wider.choices.micro_batch = *request.choices.micro_batch * 2;
    const Plan plan = make_plan(request);
    const Explanation explanation = explain(plan, doubled_dimensions(plan));
    for (const auto& [what, other] : {std::pair{"length", longer}, std::pair{"micro-batch", wider}}) {
      const Plan then = make_plan(other);
      for (const Component& component : device_components(plan)) {
        const double expected =
            static_cast<double>(bytes_of(then, component.name)) / static_cast<double>(component.bytes);
        EXPECT_DOUBLE_EQ(growth(explanation, component.name, what), expected) << component.name;
      }
    }
  }
}

TEST(Explain, weights_do_not_grow_with_the_batch_and_activations_do) {
  const Plan plan = make_plan(request_for(true));
  const Explanation explanation = explain(plan, doubled_dimensions(plan));
  EXPECT_DOUBLE_EQ(growth(explanation, "weights (frozen)", "micro-batch"), 1.0);
  EXPECT_NEAR(growth(explanation, "activations kept", "micro-batch"), 2.0, 0.01);
  EXPECT_NEAR(growth(explanation, "activations kept", "layers"), 2.0, 0.1);
  EXPECT_DOUBLE_EQ(growth(explanation, "optimizer states", "rank"), 2.0);
  EXPECT_DOUBLE_EQ(growth(explanation, "weights (frozen)", "rank"), 1.0);
}

TEST(Explain, layers_sum_to_the_arena_less_the_gaps) {
  for (const bool lora : {false, true}) {
    const Plan plan = make_plan(request_for(lora));
    int64_t sum = bytes_of(plan, "gaps of the layout");
    for (const LayerGroup& group : explain(plan, {}).layers) {
      const int64_t layers = group.last < group.first ? 1 : group.last - group.first + 1;
      sum += layers * (group.weights + group.training + group.activations);
    }
    EXPECT_EQ(sum, plan.arena_bytes());
  }
}

TEST(Explain, kinds_sum_to_what_is_alive_at_the_peak) {
  const Plan plan = make_plan(request_for(true));
  int64_t kinds = 0;
  for (const TensorKind& kind : explain(plan, {}).kinds) kinds += kind.bytes;
  int64_t lower_bound = 0;
  for (const ProgramLayout& program : plan.layout.programs)
    lower_bound = std::max(lower_bound, program.lower_bound_bytes);
  EXPECT_EQ(kinds, lower_bound);
}

TEST(Explain, scores_are_those_of_one_layer_at_the_planned_micro_batch) {
  const Plan plan = make_plan(request_for(true));
  EXPECT_EQ(explain(plan, {}).scores_bytes, int64_t{4} * 4 * 64 * 64 * 2);
}

TEST(Explain, json_and_text_name_every_component) {
  const Plan plan = make_plan(request_for(true));
  const Explanation explanation = explain(plan, doubled_dimensions(plan));
  const std::string text = explain_text(plan, explanation);
  const auto json = nlohmann::json::parse(explain_json(plan, explanation));
  for (const Component& component : device_components(plan))
    EXPECT_NE(text.find(component.name), std::string::npos) << component.name;
  for (const auto& component : json["device"])
    EXPECT_FALSE(component["meaning"].get<std::string>().empty()) << component;
  EXPECT_EQ(json["device"].size(), device_components(plan).size());
}

}  // namespace
}  // namespace plimsoll
