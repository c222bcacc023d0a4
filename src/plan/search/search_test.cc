// The search against the real thing: estimates are lower bounds of real programs, and more memory is never
// slower.
#include "plan/search/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/units.h"
#include "device/catalogue.h"
#include "layout/program_layout.h"
#include "layout/test_bounds.h"
#include "models/test_specs.h"
#include "plan/program/time_model.h"
#include "plan/search/fitting_plans.h"
#include "plan/search/micro_capacities.h"
#include "plan/search/refusal.h"

namespace plimsoll {
namespace {

ModelSpec model(int64_t layers, bool tied, const char* family = "qwen2") {
  TestSizes sizes = half_billion();
  sizes.family = family;
  sizes.layers = layers;
  sizes.vocab = 20000;
  sizes.tied = tied;
  return test_spec(sizes);
}

PlanRequest request_for(int64_t layers, bool lora) {
  PlanRequest request;
  request.workload.experiment.model = model(layers, true);
  request.workload.experiment.lora = lora;
  request.workload.experiment.precision = {DType::bf16, DType::f32, DType::f32, false, true};
  request.workload.experiment.max_length = 512;
  request.workload.experiment.effective_batch = 4;
  request.workload.experiment.evaluates = true;
  request.target.device = reference_description();
  request.target.own_memory = true;
  return request;
}

RecomputeChoice choice_of(int64_t layers, int64_t first_layers, RecomputePoint first, RecomputePoint rest) {
  RecomputeChoice choice{std::vector<RecomputePoint>(static_cast<size_t>(layers), rest), 1};
  std::fill_n(choice.layers.begin(), first_layers, first);
  return choice;
}

// Measurements of programs apart are true of them together.
void expect_measured(const Usage& usage, const PlanRequest& request, const Variant& variant) {
  const auto programs = build_programs(request.workload.experiment, variant, request.target.device);
  for (const Space space : {Space::device, Space::host, Space::disk})
    ASSERT_EQ(usage.of(space), arena_lower_bound(programs, space)) << to_string(space);
  ASSERT_DOUBLE_EQ(usage.seconds, predict_step_seconds(programs, variant, request.target.device.rates));
}

TEST(DepthModel, is_the_bound_and_the_time_of_the_program_at_full_depth) {
  constexpr int64_t kLayers = 17;
  // Layers of two kinds: with RoPE and without, and with two ropes.
  for (const auto& [family, lora] :
       {std::pair{"qwen2", false}, {"qwen2", true}, {"smollm3", false}, {"gemma3_text", true}}) {
    PlanRequest request = request_for(kLayers, lora);
    request.workload.experiment.model = model(kLayers, true, family);
    for (int i = 1; i < kNumRecomputePoints; ++i) {
      const auto first = static_cast<RecomputePoint>(i);
      const auto rest = static_cast<RecomputePoint>(i - 1);
      Variant variant;
      variant.micro_batch = 2;
      variant.accumulation = 2;
      variant.eval_micro_batch = 1;
      KnownPrograms known(request.workload.experiment, request.target.device);
      const std::vector<int64_t> chunks = {variant.loss_chunk};
      const auto mixed = DepthModel::mixture(known, variant, chunks, {{first, rest}});
      const auto pure = DepthModel::mixture(known, variant, chunks, {{first, first}});
      for (const int64_t k : {1, 2, 3, 8, 14, 15, 16, 17}) {
        variant.recompute = choice_of(kLayers, k, first, rest);
        const Usage real = measure(known, variant);
        expect_measured(real, request, variant);
        const Usage estimate = (k == kLayers ? pure : mixed).at({{kLayers, k}}, 0);
        // A table of RoPE that the last layers do not read ends earlier than among few layers.
        const ModelSpec& of = request.workload.experiment.model;
        const int64_t table = of.other_ropes.empty() ? 0 : int64_t{2} * 512 * of.head_dim * 4;
        EXPECT_LE(estimate.of(Space::device), real.of(Space::device));
        EXPECT_GE(estimate.of(Space::device), real.of(Space::device) - table)
            << family << (lora ? " lora " : " full ") << to_string(first) << " in " << k;
        // grad_norm reads one number more for each further weight.
        EXPECT_NEAR(estimate.seconds, real.seconds, 1e-7 * real.seconds);
        EXPECT_EQ(estimate.program_bytes, real.program_bytes);
      }
    }
  }
}

TEST(DepthModel, counts_shares_of_what_processes_have_once) {
  constexpr int64_t kLayers = 13;
  for (const Space weights : {Space::device, Space::disk})
    for (const bool lora : {false, true}) {
      PlanRequest request = request_for(kLayers, lora);
      request.workload.experiment.ranks = request.target.layout.node_copy.processes = 3;
      request.target.own_memory = false;
      request.target.budget.sharing = 3;
      Variant variant;
      variant.offload.weights = weights;
      const Plan plan = plan_variant(request, variant);
      const SharedFront& shared = plan.layout.shared;
      EXPECT_EQ(shared.bytes > 0, lora);
      EXPECT_NEAR(static_cast<double>(3 * shared.share), static_cast<double>(shared.bytes), 3 * 4096);
      KnownPrograms known(request.workload.experiment, request.target.device, {}, nullptr, false,
                          request.target.layout.node_copy);
      EXPECT_EQ(estimate(known, variant).of(Space::device),
                plan.layout.lower_bound_bytes() - shared.of_others());
      EXPECT_EQ(candidate_of(plan).arena_bytes, plan.arena_bytes() - shared.of_others());
      EXPECT_EQ(plan.node_bytes(), 3 * plan.process_peak_bytes() - 2 * shared.bytes);
      EXPECT_GE(3 * plan.memory_bytes(), plan.node_bytes());
      EXPECT_LE(3 * plan.memory_bytes(), plan.node_bytes() + 3 * 4096 + 3 * 1000);
      PlanRequest apart = request;
      apart.target.layout = {};
      const Plan own = plan_variant(apart, variant);
      EXPECT_EQ(plan.data_bytes() + shared.bytes - own.data_bytes(), plan.arena_bytes() - own.arena_bytes());
    }
}

// Cards with memory of their own, and emulated ones, whose memory is the host's.
TEST(DepthModel, counts_shares_of_what_processes_of_cards_have_once_on_the_host) {
  constexpr int64_t kLayers = 13;
  for (const bool own_memory : {true, false})
    for (const int64_t moved : {int64_t{0}, int64_t{5}, PartTarget::kEveryBlock}) {
      PlanRequest request = request_for(kLayers, true);
      request.workload.experiment.ranks = 3;
      request.target.device.reaches_host = false;
      request.target.targets = {Space::host};
      request.target.layout.node_copy = {3, Space::host};
      request.target.own_memory = own_memory;
      request.target.budget.sharing = 3;
      Variant variant;
      variant.offload.weights.on_host = moved;
      const Plan plan = plan_variant(request, variant);
      const SharedFront& shared = plan.layout.shared;
      EXPECT_EQ(shared.bytes_in(Space::host) > 0, moved > 0);
      EXPECT_EQ(shared.of_others(Space::device), 0);
      EXPECT_NEAR(static_cast<double>(3 * shared.share), static_cast<double>(shared.bytes), 3 * 4096);
      KnownPrograms known(request.workload.experiment, request.target.device, {}, nullptr, false,
                          request.target.layout.node_copy);
      const Usage usage = moved == 5 ? measure(known, variant) : estimate(known, variant);
      EXPECT_EQ(usage.of(Space::device), plan.layout.lower_bound_bytes());
      EXPECT_EQ(usage.of(Space::host), plan.host_arena_bytes() - shared.of_others());
      EXPECT_EQ(candidate_of(plan).host_bytes, usage.of(Space::host) + usage.program_bytes);
      EXPECT_EQ(candidate_of(plan).arena_bytes, plan.arena_bytes());
      EXPECT_EQ(plan.node_bytes(), 3 * plan.process_peak_bytes() - (moved > 0 ? 2 * shared.bytes : 0));
      EXPECT_EQ(plan.process_peak_bytes() - plan.process_share_bytes(), shared.of_others());
      PlanRequest apart = request;
      apart.target.layout = {};
      const Plan own = plan_variant(apart, variant);
      EXPECT_EQ(plan.data_bytes() + shared.bytes - own.data_bytes(),
                plan.host_arena_bytes() - own.host_arena_bytes());
      EXPECT_GE(plan.host_peak_bytes(), own.host_bytes());
      EXPECT_EQ(plan.host_bytes() < own.host_bytes(), moved > 0);
    }
}

TEST(DepthModel, is_the_bound_of_programs_with_offload_too) {
  constexpr int64_t kLayers = 13;
  const auto disk = Space::disk;
  const auto device = Space::device;
  const std::vector<OffloadChoice> choices = {
      {disk, device, device, device}, {device, disk, device, device},        {device, device, disk, device},
      {device, device, device, disk}, {device, device, device, Space::host}, {disk, disk, device, device},
      {disk, disk, disk, disk},       {Space::host, disk, disk, Space::host}};
  for (const bool lora : {false, true}) {
    const PlanRequest request = request_for(kLayers, lora);
    for (const OffloadChoice& choice : choices) {
      for (const bool in_backward : {false, true}) {
        if (in_backward && (lora || choice.gradients != device)) continue;
        PlanRequest unclipped = request;
        unclipped.workload.experiment.optimizer.max_grad_norm = in_backward ? 0.0 : 1.0;
        Variant variant;
        variant.micro_batch = in_backward ? 4 : 2;
        variant.accumulation = in_backward ? 1 : 2;
        variant.offload = choice;
        variant.update_in_backward = in_backward;
        for (const auto& [first, rest] : {std::pair{RecomputePoint::none, RecomputePoint::none},
                                          {RecomputePoint::block, RecomputePoint::cheap}}) {
          const int64_t k = first == rest ? kLayers : 5;
          KnownPrograms known(unclipped.workload.experiment, unclipped.target.device);
          const auto model = DepthModel::mixture(known, variant, {variant.loss_chunk}, {{first, rest}});
          variant.recompute = choice_of(kLayers, k, first, rest);
          const Usage real = measure(known, variant);
          expect_measured(real, unclipped, variant);
          const Usage estimate = model.at({{kLayers, k}}, 0);
          const std::string what = std::string(lora ? "lora " : "full ") + std::string(to_string(first)) +
                                   (in_backward ? " in backward" : "") + " states " +
                                   std::string(to_string(choice.states.of(0))) + " gradients " +
                                   std::string(to_string(choice.gradients.of(0))) + " weights " +
                                   std::string(to_string(choice.weights.of(0))) + " activations " +
                                   std::string(to_string(choice.activations.of(0)));
          // Squares of gradients that wait for the norm inside of the backward pass are not counted by layer.
          for (const Space space : {device, Space::host, disk}) {
            EXPECT_NEAR(static_cast<double>(estimate.of(space)), static_cast<double>(real.of(space)),
                        2e-5 * static_cast<double>(real.of(space)))
                << what << " in " << to_string(space);
          }
          EXPECT_NEAR(estimate.seconds, real.seconds, 0.003 * real.seconds) << what;
          EXPECT_EQ(estimate.disk_traffic, real.disk_traffic) << what;
          EXPECT_EQ(estimate.program_bytes, real.program_bytes) << what;
        }
      }
    }
  }
}

TEST(DepthModel, mixtures_take_no_less_than_what_both_points_tell_of_them) {
  constexpr int64_t kLayers = 19;
  const auto disk = Space::disk, device = Space::device;
  double closest = 0;
  for (const bool lora : {false, true}) {
    const PlanRequest request = request_for(kLayers, lora);
    KnownPrograms known(request.workload.experiment, request.target.device);
    for (const OffloadChoice& targets : std::vector<OffloadChoice>{
             {}, {device, device, device, disk}, {device, disk, disk, device}, {disk, disk, disk, disk}})
      for (const int64_t prefetch : {0, 1, 2})
        for (int i = 1; i < kNumRecomputePoints; ++i) {
          Variant variant;
          variant.micro_batch = 2;
          variant.accumulation = 2;
          variant.offload = targets;
          variant.offload.prefetch = prefetch;
          const std::vector<int64_t> chunks = {128};
          const auto first = static_cast<RecomputePoint>(i), rest = static_cast<RecomputePoint>(i - 1);
          const auto model = [&](RecomputePoint one, RecomputePoint other) -> const DepthModel& {
            return DepthModel::mixture(known, variant, chunks, {{one, other}});
          };
          const int64_t bound =
              DepthModel::transient_between(model(first, first), model(rest, rest), kLayers, 0);
          for (int64_t place = 1; place < kLayers; ++place) {
            const Usage usage = model(first, rest).at({{kLayers, place}}, 0);
            const int64_t transient = usage.of(device) - usage.persistent[index(device)];
            EXPECT_LE(bound, transient)
                << lora << ' ' << to_string(first) << " in " << place << ", activations on "
                << to_string(targets.activations.of(0)) << ", prefetch " << prefetch;
            closest = std::max(closest, static_cast<double>(bound) / static_cast<double>(transient));
          }
        }
  }
  EXPECT_GT(closest, 0.95);
}

ModelSpec hybrid(int64_t layers, bool tied = true) {
  return parse_model_spec({{"model_type", "qwen3_5_text"},
                           {"hidden_size", 512},
                           {"intermediate_size", 1536},
                           {"num_hidden_layers", layers},
                           {"num_attention_heads", 8},
                           {"num_key_value_heads", 2},
                           {"head_dim", 64},
                           {"linear_num_key_heads", 8},
                           {"linear_num_value_heads", 16},
                           {"linear_key_head_dim", 64},
                           {"linear_value_head_dim", 64},
                           {"linear_conv_kernel_dim", 4},
                           {"full_attention_interval", 4},
                           {"vocab_size", 4000},
                           {"tie_word_embeddings", tied}},
                          "test");
}

// Bounds of choices at two points and of segments, by the blocks of choices at one point.
class OfBlocks {
 public:
  OfBlocks(KnownPrograms& known, const Variant& variant, bool is_still)
      : known_(known), variant_(variant), is_still_(is_still) {}

  void expect_lines(RecomputePoint first, RecomputePoint rest) {
    const BlockShares& one = at(RecomputeLevels(first)).shares();
    const DepthModel& other = at(RecomputeLevels(rest));
    for (int64_t place = 1; place < layers(); ++place)
      for (size_t chunk = 0; chunk < kChunks.size(); ++chunk)
        expect(at(RecomputeLevels(first, place, rest)).at(chunk),
               alive_between(one, other.shares(), place, chunk),
               other.at(chunk).runs[0].seconds + more_between(one.compute, other.shares().compute, place),
               std::string(to_string(first)) + " in " + std::to_string(place));
  }
  // Segments of more layers than transfers go ahead, by a program that moves nothing but weights.
  void expect_segments() {
    const OffloadChoice moved = variant_.offload;
    const int64_t across = across_blocks();
    variant_.offload.states = variant_.offload.gradients = variant_.offload.activations = Space::device;
    const DepthModel& block = at(RecomputeLevels(RecomputePoint::block));
    variant_.offload = moved;
    for (int64_t segment = 2; segment <= layers(); ++segment) {
      const int64_t ahead = variant_.offload.prefetch, last = layers() % segment;
      if (segment <= ahead || (last > 0 && last <= ahead)) continue;
      RecomputeLevels levels(RecomputePoint::block);
      levels.segment = segment;
      expect(at(levels).at(0), across + alive_in_segments(block.shares(), segment, !moved.activations.any()),
             block.at(0).runs[0].seconds + longer_in_segments(block.shares(), segment),
             "segments of " + std::to_string(segment));
    }
  }
  // Copies of gradients that move, of no block.
  int64_t across_blocks() {
    const OffloadChoice moved = variant_.offload;
    variant_.offload = {};
    variant_.offload.gradients = moved.gradients;
    variant_.offload.prefetch = 0;
    const int64_t across = at(RecomputeLevels(RecomputePoint::none)).shares().across;
    variant_.offload = moved;
    return across;
  }
  double closest_bytes = 0, farthest_seconds = 1;

 private:
  const std::vector<int64_t> kChunks = {128, 16};

  [[nodiscard]] int64_t layers() const { return known_.experiment().model.layers; }
  const DepthModel& at(const RecomputeLevels& levels) {
    variant_.recompute = levels.in_layers(layers());
    return DepthModel::exact(known_, variant_, kChunks);
  }
  void expect(const Usage& usage, int64_t bytes, double seconds, const std::string& what) {
    const int64_t transient = usage.of(Space::device) - usage.persistent[index(Space::device)];
    EXPECT_LE(bytes, transient) << what;
    closest_bytes = std::max(closest_bytes, static_cast<double>(bytes) / static_cast<double>(transient));
    if (!is_still_) return;  // transfers may wait for less
    EXPECT_LE(seconds, (1 + 1e-9) * usage.runs[0].seconds) << what;
    farthest_seconds = std::min(farthest_seconds, seconds / usage.runs[0].seconds);
  }

  KnownPrograms& known_;
  Variant variant_;
  bool is_still_;
};

TEST(BlockShares, bound_choices_of_layers_that_differ) {
  constexpr int64_t kLayers = 12;
  const auto host = Space::host, device = Space::device;
  for (const bool lora : {false, true}) {
    PlanRequest request = request_for(kLayers, lora);
    request.workload.experiment.model = hybrid(kLayers);
    request.target.device.reaches_host = false;
    ASSERT_FALSE(is_deep(request.workload.experiment));
    KnownPrograms known(request.workload.experiment, request.target.device);
    for (const OffloadChoice& targets : std::vector<OffloadChoice>{
             {}, {device, device, host, device}, {host, host, host, device}, {host, host, host, host}})
      for (const int64_t prefetch : {0, 1, 2}) {
        if (!targets.any() && prefetch > 0) continue;
        SCOPED_TRACE(testing::Message() << "lora " << lora << ", states on "
                                        << to_string(targets.states.of(0)) << ", prefetch " << prefetch);
        Variant variant;
        variant.micro_batch = 2;
        variant.accumulation = 2;
        variant.offload = targets;
        variant.offload.prefetch = prefetch;
        OfBlocks of(known, variant, !targets.any());
        for (int i = 1; i < kNumRecomputePoints; ++i)
          of.expect_lines(static_cast<RecomputePoint>(i), static_cast<RecomputePoint>(i - 1));
        of.expect_segments();
        EXPECT_GT(of.closest_bytes, 0.97);
        EXPECT_GT(of.farthest_seconds, 0.8);
      }
  }
}

// The gradient of embeddings that are tied to the head is there from the one to the other; of others no gradient is.
TEST(BlockShares, gradients_that_move_are_there_beside_all_blocks_where_embeddings_are_tied) {
  constexpr int64_t kLayers = 8;
  for (const bool tied : {false, true})
    for (const int64_t accumulation : {1, 2}) {
      PlanRequest request = request_for(kLayers, false);
      request.workload.experiment.model = hybrid(kLayers, tied);
      request.target.device.reaches_host = false;
      KnownPrograms known(request.workload.experiment, request.target.device);
      Variant variant;
      variant.accumulation = accumulation;
      variant.offload.gradients = Space::host;
      OfBlocks of(known, variant, false);
      EXPECT_EQ(of.across_blocks(), tied ? int64_t{4} * 4000 * 512 : 0) << accumulation;
      of.expect_segments();
    }
}

// Copies are there for longer, and both queues have as much to do: what is known of the one bounds the other.
TEST(DepthModel, two_layers_ahead_take_no_less_than_one) {
  constexpr int64_t kLayers = 8;
  const auto host = Space::host, device = Space::device;
  PlanRequest request = request_for(kLayers, false);
  request.workload.experiment.model = hybrid(kLayers);
  request.workload.experiment.optimizer.max_grad_norm = 0;  // updates in the backward pass
  request.target.device.reaches_host = false;
  KnownPrograms known(request.workload.experiment, request.target.device);
  const std::vector<int64_t> chunks = {128, 16};
  std::vector<RecomputeLevels> choices;
  for (int i = 0; i < kNumRecomputePoints; ++i) {
    const auto point = static_cast<RecomputePoint>(i);
    choices.emplace_back(point);
    if (i > 0) choices.emplace_back(point, 3, static_cast<RecomputePoint>(i - 1));
  }
  for (const int64_t segment : {2, 3, 5}) choices.emplace_back(RecomputePoint::block).segment = segment;
  int faster = 0;
  for (const OffloadChoice& targets : std::vector<OffloadChoice>{{device, device, host, device},
                                                                 {device, device, device, host},
                                                                 {device, host, device, device},
                                                                 {host, host, host, device},
                                                                 {host, host, host, host}})
    for (const bool updates : {false, true})
      for (const RecomputeLevels& levels : choices) {
        Variant variant;
        variant.micro_batch = 2;
        variant.update_in_backward = updates && targets.gradients == Space::device;
        variant.accumulation = variant.update_in_backward ? 1 : 2;
        variant.recompute = levels.in_layers(kLayers);
        variant.offload = targets;
        variant.offload.prefetch = 1;
        const DepthModel& sooner = DepthModel::exact(known, variant, chunks);
        variant.offload.prefetch = 2;
        const DepthModel& later = DepthModel::exact(known, variant, chunks);
        for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
          const Usage one = sooner.at(chunk), two = later.at(chunk);
          const std::string what = variant_words(request.workload.experiment, variant);
          for (const Space space : {Space::device, host, Space::disk})
            EXPECT_LE(one.of(space), two.of(space)) << what << ", " << to_string(space);
          EXPECT_LE(one.program_bytes, two.program_bytes) << what;
          EXPECT_LE(one.busy, (1 + 1e-9) * two.seconds) << what;
          faster += two.seconds < (1 - 1e-6) * one.seconds ? 1 : 0;
        }
      }
  EXPECT_GT(faster, 0);
}

TEST(DepthModel, segments_are_measured_on_more_layers_than_a_small_model_has) {
  PlanRequest request = request_for(7, false);
  request.workload.experiment.model = model(7, true, "smollm3");
  request.target.budget.device_bytes = int64_t{2} << 30;
  EXPECT_GT(make_plan(request).arena_bytes(), 0);
}

TEST(DepthModel, tells_segments_of_any_size) {
  const auto disk = Space::disk;
  const auto host = Space::host;
  const auto device = Space::device;
  const std::vector<OffloadChoice> choices = {{},
                                              {device, device, disk, device},
                                              {device, device, device, disk},
                                              {device, device, host, host},
                                              {disk, disk, disk, disk}};
  for (const bool lora : {false, true}) {
    for (const int64_t layers : {7, 14}) {
      PlanRequest request = request_for(layers, lora);
      request.workload.experiment.evaluates = false;
      KnownPrograms known(request.workload.experiment, request.target.device);
      Variant variant;
      variant.micro_batch = lora ? 4 : 1;
      variant.loss_chunk = 128;
      for (const OffloadChoice& choice : choices) {
        variant.offload = choice;
        const std::vector<int64_t> chunks = {variant.loss_chunk};
        for (const int64_t segment : {2, 3, 4, 6, 7, 14}) {
          if (segment > layers) continue;
          variant.recompute = {
              std::vector<RecomputePoint>(static_cast<size_t>(layers), RecomputePoint::block), segment};
          const Usage real = measure(known, variant);
          const auto model = DepthModel::segments(known, variant, chunks, DepthModel::segments_of(segment));
          const Usage usage = model.in_segments({layers}, segment, 0);
          const std::string what = std::string(lora ? "lora " : "full ") + std::to_string(layers) +
                                   " layers, segments of " + std::to_string(segment) + ", weights on " +
                                   std::string(to_string(choice.weights.of(0))) + ", activations on " +
                                   std::string(to_string(choice.activations.of(0)));
          // The inputs that leave differ at the ends: the last layer's stays.
          const auto inputs = static_cast<double>(3 * variant.micro_batch * 512 * 896 * 2);
          const auto bytes = [](const Usage& u, Space space) { return static_cast<double>(u.of(space)); };
          EXPECT_NEAR(bytes(usage, device), bytes(real, device), 0.02 * bytes(real, device)) << what;
          EXPECT_NEAR(bytes(usage, host), bytes(real, host), inputs) << what;
          EXPECT_NEAR(bytes(usage, disk), bytes(real, disk), inputs) << what;
          EXPECT_NEAR(usage.seconds, real.seconds, 0.01 * real.seconds) << what;
          EXPECT_NEAR(static_cast<double>(usage.disk_traffic), static_cast<double>(real.disk_traffic),
                      4 * inputs + 0.01 * static_cast<double>(real.disk_traffic))
              << what;
        }
      }
    }
  }
}

// A 70B that trains in full with everything on disk: what is fetched ahead weighs more than what is computed.
TEST(DepthModel, tells_segments_of_large_layers_on_disk) {
  PlanRequest request;
  request.workload.experiment.model = test_spec({.hidden = 8192,
                                                 .mlp = 28672,
                                                 .layers = 20,
                                                 .heads = 64,
                                                 .kv_heads = 8,
                                                 .vocab = 128256,
                                                 .tied = false});
  request.workload.experiment.precision = {DType::bf16, DType::f32, DType::f32, false, true};
  request.workload.experiment.max_length = 2048;
  request.workload.experiment.effective_batch = 16;
  request.target.device = reference_description();
  KnownPrograms known(request.workload.experiment, request.target.device);
  for (const int64_t micro : {1, 4, 16}) {
    for (const int64_t segment : {2, 3, 5}) {
      Variant variant;
      variant.micro_batch = micro;
      variant.accumulation = 16 / micro;
      variant.offload = {Space::disk, Space::disk, Space::disk, Space::disk};
      variant.recompute = {std::vector<RecomputePoint>(20, RecomputePoint::block), segment};
      const auto real = static_cast<double>(measure(known, variant).of(Space::device));
      const double within = segment == 2 ? 0.01 : 0.03;  // longer ones: an input more or less
      EXPECT_NEAR(static_cast<double>(estimate(known, variant).of(Space::device)), real, within * real)
          << micro << " at a time, segments of " << segment;
    }
  }
}

PlanRequest request_for_t5(int64_t encoder_layers, int64_t decoder_layers, bool lora) {
  PlanRequest request = request_for(2, lora);
  request.workload.experiment.model = parse_model_spec({{"model_type", "t5"},
                                                        {"vocab_size", 20000},
                                                        {"d_model", 512},
                                                        {"d_ff", 2048},
                                                        {"num_heads", 8},
                                                        {"d_kv", 64},
                                                        {"num_layers", encoder_layers},
                                                        {"num_decoder_layers", decoder_layers},
                                                        {"dropout_rate", 0.1}},
                                                       "test");
  request.workload.experiment.task.task = Task::seq2seq;
  request.workload.experiment.target_length = 384;
  return request;
}

// An encoder and a decoder of other depths, whose layers repeat each in its way.
TEST(DepthModel, tells_an_encoder_and_a_decoder_of_any_depth) {
  constexpr int64_t kEncoder = 9, kDecoder = 12;
  const auto disk = Space::disk, device = Space::device;
  const std::vector<OffloadChoice> choices = {{},
                                              {disk, device, device, device},
                                              {device, device, disk, device},
                                              {device, device, device, Space::host},
                                              {disk, disk, disk, disk}};
  using enum RecomputePoint;
  for (const bool lora : {false, true}) {
    const PlanRequest request = request_for_t5(kEncoder, kDecoder, lora);
    for (const OffloadChoice& choice : choices) {
      KnownPrograms known(request.workload.experiment, request.target.device);
      Variant variant;
      variant.micro_batch = 2;
      variant.accumulation = 2;
      variant.offload = choice;
      const auto check = [&](const char* what, int64_t place, double bytes_within, double seconds_within) {
        const Usage real = measure(known, variant), told = estimate(known, variant);
        const std::string where = std::string(what) + " " + std::to_string(place) + (lora ? " lora" : "") +
                                  ", weights on " + std::string(to_string(choice.weights.of(0))) +
                                  ", activations on " + std::string(to_string(choice.activations.of(0)));
        for (const Space space : kSpaces) {
          const auto bytes = static_cast<double>(real.of(space));
          EXPECT_NEAR(static_cast<double>(told.of(space)), bytes, bytes_within * bytes)
              << where << " in " << to_string(space);
        }
        EXPECT_NEAR(told.seconds, real.seconds, seconds_within * real.seconds) << where;
      };
      for (const int64_t place : {0, 1, 5, 8, 9, 10, 15, 20}) {
        variant.recompute = choice_of(kEncoder + kDecoder, place, block, attention);
        // Transfers of a decoder's only layer of its point are told by layers that have others beside them.
        const bool alone = place == kEncoder + 1 || place == kEncoder + kDecoder - 1;
        check("first layers", place, alone && choice != OffloadChoice{} ? 0.05 : 2e-5, 0.01);
      }
      for (const int64_t segment : {2, 3, 4, 9, 12}) {
        variant.recompute = {std::vector<RecomputePoint>(kEncoder + kDecoder, block), segment};
        check("segments of", segment, 0.02, 0.03);
      }
    }
  }
}

// The loss's rows change its workspace and its seconds and nothing else.
void expect_same(const AffineSeconds& a, const AffineSeconds& b) {
  ASSERT_EQ(a.base, b.base);
  ASSERT_EQ(a.slope, b.slope);
}

void expect_same_needs(const ProgramNeeds& a, const ProgramNeeds& b) {
  ASSERT_EQ(a.persistent.size(), b.persistent.size());
  for (size_t i = 0; i < a.persistent.size(); ++i) {
    ASSERT_EQ(a.persistent[i].name, b.persistent[i].name);
    ASSERT_EQ(a.persistent[i].space, b.persistent[i].space) << a.persistent[i].name;
    ASSERT_EQ(a.persistent[i].bytes.base, b.persistent[i].bytes.base);
  }
  for (size_t space = 0; space < a.transient.size(); ++space) {
    ASSERT_EQ(a.transient[space].size(), b.transient[space].size()) << space;
    for (size_t i = 0; i < a.transient[space].size(); ++i) {
      ASSERT_EQ(a.transient[space][i].base, b.transient[space][i].base);
      ASSERT_EQ(a.transient[space][i].slope, b.transient[space][i].slope);
    }
  }
  ASSERT_EQ(a.floor_bytes, b.floor_bytes);
  ASSERT_EQ(a.ops.base, b.ops.base);
  ASSERT_EQ(a.moves_disk, b.moves_disk);
  ASSERT_EQ(a.use.graphs, b.use.graphs);
  expect_same(a.io, b.io);
  expect_same(a.disk_traffic, b.disk_traffic);
  for (size_t chunk = 0; chunk < a.compute.size(); ++chunk) {
    expect_same(a.compute[chunk], b.compute[chunk]);
    expect_same(a.together[chunk], b.together[chunk]);
  }
  for (size_t block = 0; block < a.moved.size(); ++block) {
    ASSERT_EQ(a.moved[block].io, b.moved[block].io);
    ASSERT_EQ(a.moved[block].disk, b.moved[block].disk);
  }
}

// The first program with these parts off the device is built; the needs of those with other offload targets follow from it.
TEST(DepthModel, one_program_tells_all_homes_of_its_parts) {
  for (const bool updates : {false, true}) {
    PlanRequest request = request_for(17, false);
    request.workload.experiment.optimizer.max_grad_norm = 0;
    request.target.device.reaches_host = false;
    request.target.device.backend = Backend::gpu;
    request.target.device.launch_seconds = 1e-6;
    const auto filling = [](const Variant&) { return Filling(); };
    KnownPrograms told(request.workload.experiment, request.target.device, filling, nullptr, true);
    for (const RecomputePoint point : {RecomputePoint::none, RecomputePoint::mlp})
      for (const int64_t prefetch : {0, 1, 2})
        for (const Space weights : {Space::disk, Space::host, Space::device})
          for (const Space activations : {Space::host, Space::device, Space::disk})
            for (const Space others : {Space::device, Space::host, Space::disk}) {
              Variant variant;
              variant.micro_batch = updates ? 4 : 1;
              variant.accumulation = updates ? 1 : 4;
              variant.update_in_backward = updates;
              variant.recompute.layers.assign(6, point);
              variant.offload.weights = weights;
              variant.offload.activations = activations;
              (updates ? variant.offload.states : variant.offload.gradients) = others;
              variant.offload.prefetch = prefetch;
              KnownPrograms built(request.workload.experiment, request.target.device, filling);
              const std::vector<int64_t> chunks = {512, 64};
              const auto of = [&](KnownPrograms& programs) {
                return programs.of(variant, {6}, Samples::mixture, chunks).front();
              };
              ASSERT_NO_FATAL_FAILURE(expect_same_needs(*of(told), *of(built)))
                  << to_string(weights) << " " << to_string(activations) << " " << to_string(others);
              ASSERT_EQ(told.ops_built() > 0, true);
            }
  }
}

TEST(DepthModel, one_program_tells_all_rows_of_logits) {
  const std::vector<int64_t> chunks = {512, 128, 16};
  for (const bool lora : {false, true}) {
    const PlanRequest request = request_for(3, lora);
    KnownPrograms known(request.workload.experiment, request.target.device);
    Variant variant;
    variant.micro_batch = 2;
    variant.accumulation = 2;
    variant.offload.activations = Space::disk;
    variant.loss_chunk = chunks.front();
    const auto all = DepthModel::exact(known, variant, chunks);
    for (size_t i = 0; i < chunks.size(); ++i) {
      variant.loss_chunk = chunks[i];
      expect_measured(all.at(i), request, variant);
    }
  }
}

TEST(Search, a_larger_budget_is_never_slower_and_every_choice_fits) {
  for (const int64_t layers : {3, 12}) {
    for (const bool lora : {false, true}) {
      PlanRequest request = request_for(layers, lora);
      const int64_t least = make_plan(request).smallest.arena_bytes;
      double slower = 1e300;
      for (int64_t budget = least; budget < 3 * least; budget += least / 5) {
        request.target.budget.device_bytes = budget;
        const Plan plan = make_plan(request);
        ASSERT_TRUE(plan.fits()) << format_bytes(budget);
        EXPECT_LE(plan.seconds_per_step, slower * (1 + request.choices.tie)) << format_bytes(budget);
        slower = plan.seconds_per_step;
      }
      request.target.budget.device_bytes = least - 512;
      EXPECT_FALSE(make_plan(request).fits());
    }
  }
}

TEST(Search, gives_an_encoder_and_a_decoder_more_for_more_memory) {
  for (const int64_t encoder_layers : {3, 8}) {
    PlanRequest request = request_for_t5(encoder_layers, 9, false);
    const int64_t least = make_plan(request).smallest.arena_bytes;
    double slower = 1e300;
    for (int64_t budget = least; budget < 3 * least; budget += least / 3) {
      request.target.budget.device_bytes = budget;
      const Plan plan = make_plan(request);
      ASSERT_TRUE(plan.fits()) << encoder_layers << " + 9 in " << format_bytes(budget);
      EXPECT_LE(plan.seconds_per_step, slower * (1 + request.choices.tie)) << format_bytes(budget);
      slower = plan.seconds_per_step;
    }
    request.target.budget.device_bytes = least - 512;
    EXPECT_FALSE(make_plan(request).fits());
  }
}

TEST(Search, single_parts_leave_the_device_where_nested_sets_do_not_fit) {
  PlanRequest request = request_for(24, false);
  request.workload.experiment.model = test_spec(half_billion());
  request.workload.experiment.evaluates = false;
  request.workload.experiment.max_length = 1024;
  request.workload.experiment.effective_batch = 8;
  request.target.targets = {Space::host};
  request.target.budget.device_bytes = 6656 * kMiB;
  request.target.budget.host_bytes = 3 * kGiB;
  const Plan plan = make_plan(request);
  ASSERT_TRUE(plan.fits()) << refusal_text(plan);
  // Nested sets begin with the states; of what ties, the part with the fewest bytes on the host leaves.
  EXPECT_EQ(plan.variant.offload.states, Space::device);
  EXPECT_TRUE(plan.variant.offload.any());
}

TEST(Search, fewer_rows_of_logits_than_128_are_tried) {
  PlanRequest request = request_for(24, true);
  request.workload.experiment.model = test_spec(half_billion());
  request.workload.experiment.evaluates = false;
  request.choices.micro_batch = 1;
  request.choices.offload = OffloadParts{};
  PlanRequest coarse = request;
  coarse.choices.loss_chunk = 128;
  const Plan plan = make_plan(request);
  EXPECT_LT(plan.smallest.arena_bytes, make_plan(coarse).smallest.arena_bytes);
  request.target.budget.device_bytes = plan.smallest.arena_bytes;
  EXPECT_TRUE(make_plan(request).fits());
}

// Single blocks of short rows are laid out 3 % above their bound here, segments of two at theirs. Where
// gradients wait on disk, one micro-step has none to fetch and add to.
TEST(Search, the_least_of_a_deep_model_is_of_the_kind_whose_layout_is_the_least) {
  PlanRequest request = request_for(14, false);
  request.workload.experiment.evaluates = false;
  request.workload.experiment.effective_batch = 2;
  request.workload.experiment.max_length = 64;
  request.target.targets = {Space::disk};
  request.choices.prefetch = 1;
  const Candidate least = make_plan(request).smallest;
  EXPECT_EQ(least.variant.micro_batch, 2);
  Variant segments = least.variant;
  segments.recompute = {std::vector<RecomputePoint>(14, RecomputePoint::block), 2};
  EXPECT_LE(least.arena_bytes, plan_variant(request, segments).arena_bytes());
}

TEST(Search, the_same_variant_takes_the_same_seconds_however_it_is_asked_for) {
  PlanRequest request = request_for(9, false);
  request.target.targets = {Space::disk};
  request.target.budget.device_bytes = make_plan(request).smallest.arena_bytes * 5 / 4;
  const Plan plan = make_plan(request);
  ASSERT_TRUE(plan.fits());
  EXPECT_EQ(plan.seconds_per_step, plan_variant(request, plan.variant).seconds_per_step);
}

TEST(Search, keys_of_the_recipe_hold) {
  PlanRequest request = request_for(8, true);
  request.choices.recompute = RecomputePoint::mlp;
  request.choices.micro_batch = 2;
  request.choices.loss_chunk = 64;
  const Plan plan = make_plan(request);
  EXPECT_EQ(plan.variant.micro_batch, 2);
  EXPECT_EQ(plan.variant.loss_chunk, 64);
  EXPECT_EQ(plan.variant.recompute, choice_of(8, 8, RecomputePoint::mlp, RecomputePoint::mlp));
}

TEST(Search, presets_take_less_and_less_memory) {
  PlanRequest request = request_for(12, false);
  const Plan free = make_plan(request);
  request.choices.preset = Preset::a;
  const Plan a = make_plan(request);
  request.choices.preset = Preset::b;
  const Plan b = make_plan(request);
  request.choices.preset = Preset::c;
  const Plan c = make_plan(request);
  EXPECT_LE(a.seconds_per_step, 1.05 * free.seconds_per_step);
  EXPECT_LE(a.arena_bytes(), free.arena_bytes());
  EXPECT_LE(b.variant.micro_batch, (a.variant.micro_batch + 1) / 2);
  request.choices.preset = Preset::least;
  const Plan least = make_plan(request);
  EXPECT_LE(c.arena_bytes(), a.arena_bytes());
  EXPECT_LE(c.seconds_per_step, 2 * free.seconds_per_step) << "the least memory at any time is another";
  EXPECT_LE(least.arena_bytes(), c.arena_bytes());
  EXPECT_EQ(least.arena_bytes(), least.smallest.arena_bytes);
}

TEST(Search, plan_c_is_bounded_in_time_where_the_least_memory_is_not) {
  PlanRequest request = request_for(12, false);
  request.target.targets = {Space::disk};
  request.target.budget.disk_bytes = int64_t{1} << 40;
  request.target.device.rates.disk_read /= 100;
  request.target.device.rates.disk_write /= 100;
  const double fastest = make_plan(request).seconds_per_step;
  request.choices.preset = Preset::least;
  const Plan least = make_plan(request);
  ASSERT_GT(least.seconds_per_step, 2 * fastest);
  request.choices.preset = Preset::c;
  const Plan c = make_plan(request);
  EXPECT_LE(c.seconds_per_step, 2 * fastest);
  EXPECT_GT(c.arena_bytes(), least.arena_bytes());
}

TEST(Search, ends_at_its_limit_of_work_with_the_best_so_far_and_says_so) {
  for (const int64_t layers : {3, 12}) {
    PlanRequest request = request_for(layers, false);
    request.target.targets = {Space::host};
    size_t done = 0;
    size_t all = 0;
    request.progress = [&](size_t d, size_t a) { std::tie(done, all) = std::tie(d, a); };
    const Plan whole = make_plan(request);
    ASSERT_FALSE(whole.search_ended);
    EXPECT_EQ(report_text(whole).find("limit of work"), std::string::npos);
    EXPECT_EQ(done, all);
    for (const int64_t most : {1, 3'000, 10'000}) {
      done = 0;
      const Plan plan = make_plan(request, most);
      ASSERT_TRUE(plan.search_ended) << most;
      ASSERT_TRUE(plan.fits());
      EXPECT_EQ(done, all) << "the line on the terminal is taken away";
      EXPECT_NE(report_text(plan).find("ended at its limit of work"), std::string::npos);
      EXPECT_NE(report_json(plan).find("\"search_ended\": true"), std::string::npos);
      EXPECT_GE(plan.smallest.arena_bytes, whole.smallest.arena_bytes);
    }
    request.target.budget.device_bytes = kMiB;
    EXPECT_EQ(refusal_text(make_plan(request)).find("less may be possible"), std::string::npos);
    EXPECT_NE(refusal_text(make_plan(request, 1)).find("less may be possible"), std::string::npos);
  }
}

// Between what one op and all ops find: more work never finds less.
TEST(Search, more_work_finds_no_slower_variant) {
  PlanRequest request = request_for(12, true);
  request.target.targets = {Space::host};
  request.choices.tie = 0;
  request.target.budget.device_bytes = make_plan(request).smallest.arena_bytes * 11 / 10;
  double slower = 1e300;
  for (const int64_t most : {1, 10'000, 40'000, 160'000, 640'000, 60'000'000}) {
    const Plan plan = make_plan(request, most);
    if (!plan.fits()) continue;
    EXPECT_LE(plan.seconds_per_step, slower) << most;
    slower = plan.seconds_per_step;
  }
  EXPECT_LT(slower, 1e300);
}

// Rows much shorter than what is planned for: the variant that they make the fastest is chosen.
TEST(Search, variants_are_weighed_by_the_rows_as_they_are) {
  PlanRequest request = request_for(2, false);
  request.workload.experiment.evaluates = false;
  request.workload.experiment.effective_batch = 2;
  request.target.targets = {Space::disk};
  request.choices.loss_chunk = 64;
  request.choices.tie = 0;
  request.target.budget.device_bytes = make_plan(request).smallest.arena_bytes * 13 / 10;
  const Variant by_full_rows = make_plan(request).variant;
  request.workload.run = RunSteps{.steps = 10, .tokens = 2 * 24, .targets = 2 * 8, .row_length = 24};
  const Plan plan = make_plan(request);
  ASSERT_TRUE(plan.fits());
  EXPECT_LT(plan.seconds_per_step, 0.999 * plan_variant(request, by_full_rows).seconds_per_step);
  KnownPrograms known(request.workload.experiment, request.target.device, [&](const Variant& variant) {
    return filling_of(request.workload.experiment, request.workload.run, variant);
  });
  for (const Variant& variant : Search(request).all()) {
    const Usage usage = measure(known, variant);
    if (usage.of(Space::device) > *request.target.budget.device_bytes) continue;
    EXPECT_TRUE(plan.seconds_per_step <= usage.seconds * (1 + 1e-9) ||
                !plan_variant(request, variant).fits());
  }
}

// Layers that are not all alike, more than are measured one by one: of the layers of a line as few are
// recomputed as fit.
TEST(Search, computes_no_more_layers_again_than_it_must_in_stacks_of_any_depth) {
  PlanRequest request = request_for(12, false);
  request.workload.experiment.model.vocab = 2000;
  request.workload.experiment.frozen = {R"(model\.layers\.[0-2])"};
  request.workload.experiment.evaluates = false;
  request.choices.micro_batch = 4;
  request.choices.loss_chunk = 512;
  request.choices.tie = 0;
  ASSERT_FALSE(is_deep(request.workload.experiment));
  std::vector<Candidate> all;
  for (const Variant& variant : Search(request).all())
    if (variant.recompute.segment == 1) all.push_back(candidate_of(plan_variant(request, variant)));
  ASSERT_GT(all.size(), 60U);
  const auto [least, most] = std::ranges::minmax(all, {}, &Candidate::arena_bytes);
  FittingPlans plans(request);
  constexpr int64_t kBudgets = 16;
  for (int64_t i = 1; i <= kBudgets; ++i) {
    Budget budget;
    budget.device_bytes = least.arena_bytes + (most.arena_bytes - least.arena_bytes) * i / kBudgets;
    double fastest = 1e300;
    for (const Candidate& one : all)
      if (one.arena_bytes <= *budget.device_bytes) fastest = std::min(fastest, one.seconds_per_step);
    const auto plan = plans.within(budget);
    ASSERT_TRUE(plan) << i;
    EXPECT_LE(plan->seconds_per_step, fastest * (1 + 1e-9))
        << i << ": " << variant_words(request.workload.experiment, plan->variant);
  }
}

// The chosen variant takes a little longer than its estimate: a variant at the very end of the tie would be
// laid out to be given up, each time for the work of a whole search.
TEST(Search, lays_a_full_7b_out_once_where_its_estimates_are_short_by_a_hair) {
  PlanRequest request = request_for(32, false);
  request.workload.experiment.model = mistral_7b();
  request.workload.experiment.evaluates = false;
  request.workload.experiment.max_length = 2048;
  request.workload.experiment.effective_batch = 16;
  request.target.device = describe_card(find_card("RTX 3060 12GB", "test"), true);
  request.target.targets = {Space::host};
  request.target.budget.device_bytes = 12 * kGiB - 700 * kMiB;
  Search search(request);
  int layouts = 0;
  const auto found = search.fastest(request.target.budget, [&](const Candidate& candidate) {
    ++layouts;
    return candidate_of(plan_variant(request, candidate.variant));
  });
  ASSERT_TRUE(found);
  EXPECT_EQ(layouts, 1);
}

struct Ladder {
  const char* card;
  ModelSpec model;
  int64_t length, effective;
  int64_t host;  // bytes
};

// A refused plan hands on what its search measured; a search within another budget that takes it comes to the same plan.
// Stretches differ at the loss: a transfer that starts a layer sooner is done by then.
TEST(Search, starts_transfers_two_layers_ahead_where_that_is_faster) {
  PlanRequest request = request_for(7, true);
  request.target.targets = {Space::host};
  request.target.device.reaches_host = false;
  request.choices.offload = OffloadParts{.weights = true};
  request.choices.recompute = RecomputeLevels(RecomputePoint::none, 0, RecomputePoint::none);
  request.choices.micro_batch = 1;
  request.choices.in_part = false;
  request.choices.tie = 0;
  double largest_gain = 0;
  for (double rate = 3e7; rate < 3e9; rate *= 2.2) {
    request.target.device.rates.host_copy = rate;
    const auto seconds = [&](std::optional<int64_t> prefetch) {
      PlanRequest stated = request;
      stated.choices.prefetch = prefetch;
      return make_plan(stated).seconds_per_step;
    };
    const double one = seconds(1), two = seconds(2);
    EXPECT_LE(seconds({}), 1.003 * std::min(one, two)) << rate;
    largest_gain = std::max(largest_gain, one / two - 1);
  }
  EXPECT_GT(largest_gain, 0.01);
}

// If the device has no room for all activations and the copies of two layers, those that are recomputed are weighed
// with transfers that start two layers ahead as well.
TEST(Search, starts_transfers_two_layers_ahead_of_layers_that_are_recomputed) {
  PlanRequest request = request_for(7, true);
  request.target.targets = {Space::host};
  request.target.device.reaches_host = false;
  request.choices.offload = OffloadParts{.weights = true};
  request.choices.micro_batch = 1;
  request.choices.in_part = false;
  request.choices.tie = 0;
  PlanRequest recomputed = request;
  recomputed.choices.recompute = RecomputeLevels(RecomputePoint::cheap, 0, RecomputePoint::cheap);
  recomputed.choices.prefetch = 2;
  request.target.budget.device_bytes = make_plan(recomputed).arena_bytes();
  double largest_gain = 0;
  for (double rate = 1.1e8; rate < 1.9e8; rate *= 1.15) {
    request.target.device.rates.host_copy = rate;
    const auto seconds = [&](std::optional<int64_t> prefetch) {
      PlanRequest stated = request;
      stated.choices.prefetch = prefetch;
      return make_plan(stated).seconds_per_step;
    };
    const double one = seconds(1), two = seconds(2);
    EXPECT_LE(seconds({}), 1.003 * std::min(one, two)) << rate;
    largest_gain = std::max(largest_gain, one / two - 1);
  }
  EXPECT_GT(largest_gain, 0.01);
}

// A part in several offload targets takes the seconds of each one's share of the layers, not those of the slowest.
TEST(Search, seconds_of_a_part_in_several_targets_are_those_of_its_layout) {
  PlanRequest request = request_for(16, true);
  request.target.targets = {Space::host};
  request.target.device.reaches_host = false;
  request.target.device.rates.host_copy = 1e8;
  request.choices.recompute = RecomputeLevels(RecomputePoint::none, 0, RecomputePoint::none);
  request.choices.micro_batch = 1;
  request.choices.prefetch = 1;
  request.choices.in_part = true;
  request.choices.tie = 0;
  const auto variant_with = [&](PartTarget weights) {
    PlanRequest stated = request;
    stated.choices.targets.emplace()[static_cast<size_t>(Part::weights)] = weights;
    return make_plan(stated);
  };
  const Plan all_stay = variant_with(Space::device), all_move = variant_with(Space::host);
  ASSERT_GT(all_move.seconds_per_step, 1.5 * all_stay.seconds_per_step);
  Budget budget;
  budget.device_bytes = (3 * all_stay.arena_bytes() + all_move.arena_bytes()) / 4;
  int in_part = 0;
  Search search(request);
  const auto chosen = search.fastest(budget, [&](const Candidate& estimate) {
    const Candidate laid_out = candidate_of(plan_variant(request, estimate.variant));
    if (!std::ranges::all_of(estimate.variant.offload.targets(), &PartTarget::is_whole)) {
      ++in_part;
      EXPECT_NEAR(estimate.seconds_per_step, laid_out.seconds_per_step, 0.02 * laid_out.seconds_per_step)
          << variant_words(request.workload.experiment, estimate.variant);
    }
    return laid_out;
  });
  ASSERT_TRUE(chosen);
  EXPECT_GT(in_part, 0) << variant_words(request.workload.experiment, chosen->variant);
  EXPECT_LT(chosen->seconds_per_step, 0.8 * all_move.seconds_per_step);
}

// A variant that ties and takes less does so whatever else is in its process.
TEST(Search, ties_are_decided_by_a_variants_own_memory) {
  for (const int64_t layers : {3, 9})
    for (const bool lora : {false, true})
      for (const bool disk : {false, true}) {
        PlanRequest request = request_for(layers, lora);
        request.workload.experiment.evaluates = false;
        request.target.own_memory = false;
        if (disk) request.target.targets = {Space::disk};
        request.choices.tie = 0.05;
        const Plan alone = make_plan(request);
        request.target.host.components = {{"libraries and threads", 520 * kMiB}};
        const Plan beside = make_plan(request);
        EXPECT_EQ(alone.variant, beside.variant)
            << layers << " layers: " << variant_words(request.workload.experiment, alone.variant) << " or "
            << variant_words(request.workload.experiment, beside.variant);
        EXPECT_EQ(beside.process_peak_bytes(), alone.process_peak_bytes() + 520 * kMiB);
      }
}

// Larger micro-steps take no more where an evaluation takes more than they do, and are faster.
TEST(Search, the_least_memory_is_in_larger_micro_steps_where_they_take_no_more) {
  for (const int64_t layers : {3, 12}) {
    PlanRequest request = request_for(layers, false);
    request.choices.eval_micro_batch = 32;
    const Candidate least = make_plan(request).smallest;
    EXPECT_GT(least.variant.micro_batch, 1) << layers << " layers";
    for (const int64_t micro : {1, 2, 4}) {
      request.choices.micro_batch = micro;
      const Candidate other = make_plan(request).smallest;
      EXPECT_EQ(other.arena_bytes, least.arena_bytes) << layers << " layers, micro-batch " << micro;
      EXPECT_GE(other.seconds_per_step, 0.999 * least.seconds_per_step)
          << layers << " layers, micro-batch " << micro;
    }
  }
}

// Layers whose parts move to a disk of that rate, each of them whole.
PlanRequest request_with_disk(int64_t layers, double rate) {
  PlanRequest request = request_for(layers, true);
  request.workload.experiment.evaluates = false;
  request.target.targets = {Space::disk};
  request.target.device.rates.disk_read = request.target.device.rates.disk_write = rate;
  request.choices.micro_batch = 2;
  request.choices.loss_chunk = 128;
  request.choices.in_part = false;
  request.choices.prefetch = 1;
  request.choices.tie = 0;
  return request;
}

// A variant of a search's space by its estimate.
struct Estimated {
  Variant variant;
  int64_t bytes = 0;
  double seconds = 0;
  double moving = 0;  // seconds of transfers by themselves
  [[nodiscard]] bool is_mixture() const {
    const std::vector<RecomputePoint>& layers = variant.recompute.layers;
    return !layers.empty() && layers.front() != layers.back();
  }
  [[nodiscard]] RecomputePoint last_point() const {
    return variant.recompute.layers.empty() ? RecomputePoint::none : variant.recompute.layers.back();
  }
};

std::vector<Estimated> estimates_of(const Search& search, const PlanRequest& request) {
  KnownPrograms known(request.workload.experiment, request.target.device);
  std::vector<Estimated> all;
  for (const Variant& variant : search.all()) {
    const Usage usage = estimate(known, variant);
    double moving = 0;
    for (size_t i = 0; i < usage.runs.size(); ++i) moving += usage.runs[i].runs * usage.io[i];
    all.push_back({variant, usage.of(Space::device), usage.seconds, moving});
  }
  return all;
}

Candidate as_estimated(const Candidate& candidate) { return candidate; }

constexpr std::array kDiskRates = {5e7, 1e8, 2e8, 4e8, 8e8, 1.6e9, 3.2e9};

// Layers at two points of recomputation may be faster than all of them at either, if activations move: those at one wait for
// transfers, and those at the other compute. The estimates of every variant of the space say what is the fastest.
TEST(Search, looks_between_points_that_wait_for_transfers_and_points_that_compute) {
  int between = 0;
  for (const double rate : kDiskRates) {
    const PlanRequest request = request_with_disk(9, rate);
    ASSERT_TRUE(is_deep(request.workload.experiment));
    Search search(request);
    std::vector<Estimated> all = estimates_of(search, request);
    std::ranges::sort(all, {}, &Estimated::bytes);
    for (size_t place = all.size() / 40; place < all.size(); place += all.size() / 40) {
      Budget budget;
      budget.device_bytes = all[place].bytes;
      const Estimated* best = &all.front();
      for (const Estimated& one : all)
        if (one.bytes <= all[place].bytes && one.seconds < best->seconds) best = &one;
      const auto found = search.fastest(budget, as_estimated);
      ASSERT_TRUE(found) << rate << ' ' << place;
      EXPECT_LE(found->seconds_per_step, best->seconds * (1 + 1e-9))
          << rate << ' ' << place << ": " << variant_words(request.workload.experiment, found->variant)
          << " instead of " << variant_words(request.workload.experiment, best->variant);
      between += best->is_mixture() && best->variant.offload.activations.any() ? 1 : 0;
    }
  }
  EXPECT_GT(between, 0);
}

// The seconds of a line are bounded by those of neither end: within as many seconds as a mixture takes, it is looked at though
// its transfers alone take longer at the point that moves more.
TEST(Search, looks_between_points_of_which_one_moves_for_longer_than_their_mixture_takes) {
  int decided = 0;
  for (const double rate : kDiskRates) {
    PlanRequest request = request_with_disk(48, rate);
    request.choices.offload =
        OffloadParts{.states = false, .gradients = false, .weights = false, .activations = true};
    Search search(request);
    const std::vector<Estimated> all = estimates_of(search, request);
    Budget open;
    open.device_bytes = int64_t{1} << 40;
    for (const Estimated& mixture : all) {
      if (!mixture.is_mixture()) continue;
      const double seconds = mixture.seconds * (1 + 1e-9);
      const Estimated* least = &mixture;
      for (const Estimated& one : all) {
        if (one.seconds <= seconds && one.bytes < least->bytes) least = &one;
        const bool is_end = !one.is_mixture() && one.variant.recompute.segment == 1 &&
                            one.last_point() == mixture.last_point();
        decided += is_end && one.moving > seconds ? 1 : 0;
      }
      const auto found = search.least_within(open, seconds, as_estimated);
      ASSERT_TRUE(found) << variant_words(request.workload.experiment, mixture.variant);
      EXPECT_EQ(found->arena_bytes, least->bytes)
          << rate << ": " << variant_words(request.workload.experiment, found->variant) << " instead of "
          << variant_words(request.workload.experiment, least->variant);
    }
  }
  EXPECT_GT(decided, 0);
}

// Activations that move leave the device where others are made again, so that a program that keeps them says nothing.
TEST(Search, leaves_out_no_frame_of_a_deep_model_whose_variants_are_below_its_floor) {
  PlanRequest request = request_for(24, false);
  request.workload.experiment.model = test_spec(half_billion());
  request.workload.experiment.evaluates = false;
  request.target.targets = {Space::disk};
  request.choices.micro_batch = 1;
  request.choices.loss_chunk = 128;
  request.choices.in_part = false;
  request.choices.prefetch = 1;
  ASSERT_TRUE(is_deep(request.workload.experiment));
  Search search(request);
  KnownPrograms known(request.workload.experiment, request.target.device);
  int moved = 0;
  for (const Variant& variant : search.all()) {
    const std::vector<RecomputePoint>& layers = variant.recompute.layers;
    const bool is_whole = layers.empty() || layers.front() == layers.back();
    if (!is_whole || variant.recompute.segment > 1 || !variant.offload.activations.any()) continue;
    const auto floor = search.floor_of(variant);
    ASSERT_TRUE(floor);
    EXPECT_LE(floor->device, estimate(known, variant).of(Space::device))
        << variant_words(request.workload.experiment, variant);
    ++moved;
  }
  EXPECT_GT(moved, 0);
}

TEST(Search, of_another_budget_takes_what_was_measured) {
  PlanRequest request = request_for(9, false);
  request.target.targets = {Space::host, Space::disk};
  request.target.device.reaches_host = false;
  request.target.budget.device_bytes = int64_t{64} << 20;
  request.target.budget.host_bytes = int64_t{1} << 30;
  request.target.budget.disk_bytes = int64_t{1} << 40;
  const Plan refused = make_plan(request);
  ASSERT_FALSE(refused.fits());
  ASSERT_TRUE(refused.request.measured);
  Budget larger = request.target.budget;
  larger.device_bytes = memory_bytes(request, refused.smallest) * 5 / 4;
  PlanRequest known = request;
  known.measured = refused.request.measured;
  EXPECT_EQ(Search(known).measured(), known.measured);
  const auto continued = FittingPlans(known).within(larger);
  const auto anew = FittingPlans(request).within(larger);
  ASSERT_TRUE(continued && anew);
  EXPECT_EQ(continued->variant, anew->variant);
  EXPECT_EQ(continued->seconds_per_step, anew->seconds_per_step);
  // Another experiment does not take it.
  PlanRequest other = known;
  other.workload.experiment.max_length *= 2;
  EXPECT_NE(Search(other).measured(), known.measured);
}

// Launches, graphs and what moves are in the seconds that variants are chosen by.
TEST(Search, more_memory_is_never_slower) {
  const ModelSpec of_14b = test_spec({.family = "qwen2",
                                      .hidden = 5120,
                                      .mlp = 13824,
                                      .layers = 48,
                                      .heads = 40,
                                      .kv_heads = 8,
                                      .vocab = 152064});
  const std::vector<Ladder> ladders = {{"H100", test_spec(half_billion()), 256, 8, 256 * kGiB},
                                       {"H100", of_14b, 2048, 16, 256 * kGiB},
                                       {"RTX 4090", mistral_7b(), 512, 4, 32 * kGiB}};
  for (const Ladder& ladder : ladders) {
    PlanRequest request;
    request.workload.experiment.model = ladder.model;
    request.workload.experiment.lora = true;
    request.workload.experiment.precision = {DType::bf16, DType::f32, DType::f32, false, true};
    request.workload.experiment.max_length = ladder.length;
    request.workload.experiment.effective_batch = ladder.effective;
    request.target.device = describe_card(find_card(ladder.card, "test"), true);
    request.target.own_memory = true;
    request.target.targets = {Space::host};
    request.target.budget.host_bytes = ladder.host;
    FittingPlans plans(request);
    const auto open = plans.within(request.target.budget);
    ASSERT_TRUE(open);
    constexpr int kBudgets = 12;
    double slowest_allowed = 1e300;
    int fitting = 0;
    for (int i = 0; i <= kBudgets; ++i) {
      Budget budget = request.target.budget;
      budget.device_bytes = static_cast<int64_t>(static_cast<double>(open->memory_bytes()) *
                                                 std::pow(0.1, 1 - static_cast<double>(i) / kBudgets));
      const auto plan = plans.within(budget);
      if (!plan) continue;
      ++fitting;
      EXPECT_LE(plan->seconds_per_step, slowest_allowed)
          << ladder.card << ", budget " << i << ": "
          << variant_words(request.workload.experiment, plan->variant);
      slowest_allowed = std::min(slowest_allowed, plan->seconds_per_step * (1 + request.choices.tie));
    }
    EXPECT_GE(fitting, kBudgets / 3);
  }
}

// The answer of estimates leaves nothing out that fits, and leaves out what is far from it.
TEST(FittingPlans, may_fit_wherever_a_plan_is_found) {
  PlanRequest request = request_for(4, false);
  request.target.device = describe_card(find_card("RTX 3060 12GB", "test"), true);
  request.target.own_memory = true;
  request.target.targets = {Space::host};
  request.target.budget.host_bytes = kGiB;
  FittingPlans plans(request);
  const auto largest = plans.within(request.target.budget);
  ASSERT_TRUE(largest);
  int found = 0, left_out = 0;
  constexpr int kBudgets = 12;
  for (const bool of_host : {false, true})
    for (int i = 0; i <= kBudgets; ++i) {
      Budget budget = request.target.budget;
      auto& limit = of_host ? budget.host_bytes : budget.device_bytes;
      const int64_t most = of_host ? largest->host_bytes() : largest->memory_bytes();
      limit = most * i / kBudgets;
      if (of_host) budget.device_bytes = largest->memory_bytes() / 2;
      const bool may = plans.may_fit(budget), fits = plans.within(budget).has_value();
      EXPECT_TRUE(may || !fits) << of_host << ", " << i;
      found += fits ? 1 : 0;
      left_out += may ? 0 : 1;
    }
  EXPECT_GT(found, 3);
  EXPECT_GT(left_out, 3);
}

}  // namespace
}  // namespace plimsoll
