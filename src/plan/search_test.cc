// The search against the real thing: estimates are lower bounds of real programs, and more memory is never
// slower.
#include "plan/search.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "layout/program_layout.h"
#include "plan/time_model.h"

namespace plimsoll {
namespace {

ModelSpec model(int64_t layers, bool tied) {
  return parse_model_spec({{"model_type", "qwen2"},
                           {"hidden_size", 896},
                           {"intermediate_size", 4864},
                           {"num_hidden_layers", layers},
                           {"num_attention_heads", 14},
                           {"num_key_value_heads", 2},
                           {"vocab_size", 20000},
                           {"tie_word_embeddings", tied}},
                          "c");
}

PlanRequest request_for(int64_t layers, bool lora) {
  PlanRequest request;
  request.experiment.model = model(layers, true);
  request.experiment.lora = lora;
  request.experiment.precision = {DType::bf16, DType::f32, DType::f32, false, true};
  request.experiment.max_length = 512;
  request.experiment.effective_batch = 4;
  request.experiment.evaluates = true;
  request.device = reference_description();
  request.own_memory = true;
  return request;
}

RecomputeChoice choice_of(int64_t layers, int64_t first_layers, RecomputePoint first, RecomputePoint rest) {
  RecomputeChoice choice{std::vector<RecomputePoint>(static_cast<size_t>(layers), rest), 1};
  std::fill_n(choice.layers.begin(), first_layers, first);
  return choice;
}

// What is known of programs apart is true of them together.
void expect_measured(const Usage& usage, const PlanRequest& request, const Variant& variant) {
  const auto programs = build_programs(request.experiment, variant, request.device);
  for (const Space space : {Space::device, Space::host, Space::disk})
    ASSERT_EQ(usage.of(space), arena_lower_bound(programs, space)) << to_string(space);
  ASSERT_DOUBLE_EQ(usage.seconds, predict_step_seconds(programs, variant, request.device.rates));
}

TEST(DepthModel, is_the_bound_and_the_time_of_the_program_at_full_depth) {
  constexpr int64_t kLayers = 17;
  for (const bool lora : {false, true}) {
    const PlanRequest request = request_for(kLayers, lora);
    for (int i = 1; i < kNumRecomputePoints; ++i) {
      const auto first = static_cast<RecomputePoint>(i);
      const auto rest = static_cast<RecomputePoint>(i - 1);
      Variant variant;
      variant.micro_batch = 2;
      variant.accumulation = 2;
      variant.eval_micro_batch = 1;
      KnownPrograms known(request.experiment, request.device);
      const DepthModel mixed(known, variant, first, rest);
      const DepthModel pure(known, variant, first, first);
      for (const int64_t k : {3, 8, 14, 17}) {
        variant.recompute = choice_of(kLayers, k, first, rest);
        const Usage real = measure(known, variant);
        expect_measured(real, request, variant);
        const Usage estimate = k == kLayers ? pure.at(k, 0) : mixed.at(k, kLayers - k);
        EXPECT_EQ(estimate.of(Space::device), real.of(Space::device))
            << (lora ? "lora " : "full ") << to_string(first) << " in " << k;
        // grad_norm reads one number more for each further weight.
        EXPECT_NEAR(estimate.seconds, real.seconds, 1e-7 * real.seconds);
        EXPECT_EQ(estimate.program_bytes, real.program_bytes);
      }
    }
  }
}

TEST(DepthModel, is_the_bound_of_programs_with_offload_too) {
  constexpr int64_t kLayers = 13;
  const auto disk = Space::disk;
  const auto device = Space::device;
  const std::vector<OffloadChoice> choices = {
      {.states = disk},        {.gradients = disk},          {.weights = disk},
      {.activations = disk},   {.activations = Space::host}, {disk, disk, device, device},
      {disk, disk, disk, disk}};
  for (const bool lora : {false, true}) {
    const PlanRequest request = request_for(kLayers, lora);
    for (const OffloadChoice& choice : choices) {
      for (const bool in_backward : {false, true}) {
        if (in_backward && (lora || choice.gradients != device)) continue;
        PlanRequest unclipped = request;
        unclipped.experiment.optimizer.max_grad_norm = in_backward ? 0.0 : 1.0;
        Variant variant;
        variant.micro_batch = in_backward ? 4 : 2;
        variant.accumulation = in_backward ? 1 : 2;
        variant.offload = choice;
        variant.update_in_backward = in_backward;
        for (const auto& [first, rest] : {std::pair{RecomputePoint::none, RecomputePoint::none},
                                          {RecomputePoint::block, RecomputePoint::cheap}}) {
          const int64_t k = first == rest ? kLayers : 5;
          KnownPrograms known(unclipped.experiment, unclipped.device);
          const DepthModel model(known, variant, first, rest);
          variant.recompute = choice_of(kLayers, k, first, rest);
          const Usage real = measure(known, variant);
          expect_measured(real, unclipped, variant);
          const Usage estimate = model.at(k, kLayers - k);
          const std::string what = std::string(lora ? "lora " : "full ") + std::string(to_string(first)) +
                                   (in_backward ? " in backward" : "") + " states " +
                                   std::string(to_string(choice.states)) + " gradients " +
                                   std::string(to_string(choice.gradients)) + " weights " +
                                   std::string(to_string(choice.weights)) + " activations " +
                                   std::string(to_string(choice.activations));
          // Squares of gradients that wait for the norm inside of the backward pass are not counted by layer.
          for (const Space space : {device, Space::host, disk}) {
            EXPECT_NEAR(static_cast<double>(estimate.of(space)), static_cast<double>(real.of(space)),
                        2e-5 * static_cast<double>(real.of(space)))
                << what << " in " << to_string(space);
          }
          // Waiting for transfers is not counted.
          EXPECT_LE(estimate.seconds, real.seconds * (1 + 1e-6)) << what;
          EXPECT_EQ(estimate.program_bytes, real.program_bytes) << what;
        }
      }
    }
  }
}

TEST(DepthModel, segments_never_take_less_than_their_bound) {
  constexpr int64_t kLayers = 14;
  const auto disk = Space::disk;
  const auto host = Space::host;
  const auto device = Space::device;
  const std::vector<OffloadChoice> choices = {{},
                                              {.weights = disk},
                                              {.activations = disk},
                                              {device, device, host, host},
                                              {device, device, disk, disk},
                                              {disk, disk, disk, disk}};
  for (const bool lora : {false, true}) {
    PlanRequest request = request_for(kLayers, lora);
    request.experiment.evaluates = false;
    KnownPrograms known(request.experiment, request.device);
    const int64_t micro = lora ? 4 : 1;
    Variant variant;
    variant.micro_batch = micro;
    variant.loss_chunk = 128;
    const int64_t input = micro * request.experiment.max_length * request.experiment.model.hidden * 2;
    for (const OffloadChoice& choice : choices) {
      variant.offload = choice;
      const DepthModel model(known, variant, RecomputePoint::block, RecomputePoint::block);
      for (const int64_t segment : {2, 4}) {
        const Usage bound = model.below_segments(kLayers, segment, input);
        variant.recompute = {std::vector<RecomputePoint>(kLayers, RecomputePoint::block), segment};
        const Usage real = measure(known, variant);
        for (const Space space : {device, host, disk}) {
          EXPECT_LE(bound.of(space), real.of(space))
              << (lora ? "lora" : "full") << ", micro-batch " << micro << ", segments of " << segment
              << ", weights on " << to_string(choice.weights) << ", activations on "
              << to_string(choice.activations) << ": " << to_string(space);
        }
        // It says something: more than that all inputs are gone.
        if (choice.activations == device) {
          EXPECT_GT(bound.of(device), model.at(kLayers, 0).of(device) - (kLayers - 1) * input);
        }
        EXPECT_LE(bound.program_bytes, real.program_bytes);
      }
    }
  }
}

TEST(Search, a_larger_budget_is_never_slower_and_every_choice_fits) {
  for (const int64_t layers : {3, 12}) {
    for (const bool lora : {false, true}) {
      PlanRequest request = request_for(layers, lora);
      Search search(request);
      const int64_t least = search.smallest({}).arena_bytes;
      double slower = 1e300;
      for (int64_t budget = least; budget < 3 * least; budget += least / 5) {
        request.budget.device_bytes = budget;
        const Plan plan = make_plan(request);
        ASSERT_TRUE(plan.fits()) << format_bytes(budget);
        EXPECT_LE(plan.seconds_per_step, slower) << format_bytes(budget);
        slower = plan.seconds_per_step;
      }
      request.budget.device_bytes = least - 512;
      EXPECT_FALSE(make_plan(request).fits());
    }
  }
}

TEST(Search, keys_of_the_recipe_hold) {
  PlanRequest request = request_for(8, true);
  request.recompute = RecomputePoint::mlp;
  request.micro_batch = 2;
  request.loss_chunk = 64;
  const Plan plan = make_plan(request);
  EXPECT_EQ(plan.variant.micro_batch, 2);
  EXPECT_EQ(plan.variant.loss_chunk, 64);
  EXPECT_EQ(plan.variant.recompute, choice_of(8, 8, RecomputePoint::mlp, RecomputePoint::mlp));
}

TEST(Search, presets_take_less_and_less_memory) {
  PlanRequest request = request_for(12, false);
  const Plan free = make_plan(request);
  request.preset = Preset::a;
  const Plan a = make_plan(request);
  request.preset = Preset::b;
  const Plan b = make_plan(request);
  request.preset = Preset::c;
  const Plan c = make_plan(request);
  EXPECT_LE(a.seconds_per_step, 1.05 * free.seconds_per_step);
  EXPECT_LE(a.arena_bytes(), free.arena_bytes());
  EXPECT_LE(b.variant.micro_batch, (a.variant.micro_batch + 1) / 2);
  EXPECT_LE(c.arena_bytes(), b.arena_bytes());
  EXPECT_EQ(c.arena_bytes(), c.smallest.arena_bytes);
}

}  // namespace
}  // namespace plimsoll
