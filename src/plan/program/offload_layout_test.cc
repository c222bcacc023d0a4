// Layouts of programs that move tensors to and from the disk, of real shapes: no more than one percent above
// the bytes that live together.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/test_slice.h"
#include "base/units.h"
#include "device/catalogue.h"
#include "layout/program_layout.h"
#include "models/test_specs.h"
#include "plan/program/experiment.h"
#include "plan/search/plan.h"

namespace plimsoll {
namespace {

struct ModelShape {
  const char* name;
  int64_t hidden, mlp, layers, heads, kv_heads, vocab;
  bool tied;
};

constexpr ModelShape kSmol135m{"smollm-135m", 576, 1536, 30, 9, 3, 49152, true};
constexpr ModelShape kQwen05b{"qwen2.5-0.5b", 896, 4864, 24, 14, 2, 151936, true};
constexpr ModelShape kQwen15b{"qwen2.5-1.5b", 1536, 8960, 28, 12, 2, 151936, true};
constexpr ModelShape kMistral7b{"mistral-7b", 4096, 14336, 32, 32, 8, 32000, false};
constexpr ModelShape kLlama70b{"llama-70b", 8192, 28672, 80, 64, 8, 128256, false};
constexpr ModelShape kLlama405b{"llama-405b", 16384, 53248, 126, 128, 8, 128256, false};

struct LayoutCase {
  ModelShape shape;
  bool lora;
  OffloadChoice offload;
  int64_t micro;
  RecomputePoint point;
  int64_t length = 2048;
  RecomputePoint first_layer = point;
  int64_t loss_chunk = 512;
  int64_t first_layers = 1;
  bool nf4 = false;
};

constexpr Space kDisk = Space::disk;
constexpr Space kDevice = Space::device;
const OffloadChoice kAll{kDisk, kDisk, kDisk, kDisk};
const OffloadChoice kNoActivations{kDisk, kDisk, kDisk, kDevice};

class OffloadLayout : public ::testing::TestWithParam<LayoutCase> {};

TEST_P(OffloadLayout, is_within_one_percent_of_what_lives_together) {
  const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  if (!test::in_slice("offload_layout", std::stoul(name.substr(name.rfind('_') + 1))))
    GTEST_SKIP() << "in another landing's slice";
  const LayoutCase& c = GetParam();
  Experiment experiment;
  experiment.model = test_spec({.hidden = c.shape.hidden,
                                .mlp = c.shape.mlp,
                                .layers = c.shape.layers,
                                .heads = c.shape.heads,
                                .kv_heads = c.shape.kv_heads,
                                .vocab = c.shape.vocab,
                                .tied = c.shape.tied});
  experiment.lora = c.lora;
  experiment.lora_options.r = 16;
  experiment.quantised = c.nf4;
  experiment.precision = {DType::bf16, DType::f32, DType::f32, false, true};
  experiment.max_length = c.length;
  experiment.effective_batch = 16;
  Variant variant;
  variant.micro_batch = c.micro;
  variant.accumulation = 16 / c.micro;
  variant.recompute.layers.assign(static_cast<size_t>(c.shape.layers), c.point);
  std::fill_n(variant.recompute.layers.begin(), c.first_layers, c.first_layer);
  variant.offload = c.offload;
  variant.loss_chunk = c.loss_chunk;
  DeviceDescription device = reference_description();
  device.matmul_scratch_bytes = [](const MatmulShape&) { return int64_t{7} << 19; };  // about that of AVX2's
  const auto programs = build_programs(experiment, variant, device);
  const ArenaLayout layout = lay_out(programs);
  EXPECT_LE(static_cast<double>(layout.arena_bytes()),
            1.01 * static_cast<double>(layout.lower_bound_bytes()));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, OffloadLayout,
    ::testing::Values(
        LayoutCase{kQwen15b, false, kAll, 1, RecomputePoint::none},
        LayoutCase{kQwen15b, false, kAll, 1, RecomputePoint::cheap},
        LayoutCase{kQwen15b, true, kAll, 4, RecomputePoint::none},
        LayoutCase{kQwen05b, true, {Space::device, Space::device, kDisk, kDisk}, 1, RecomputePoint::cheap},
        LayoutCase{kQwen15b, true, {Space::device, Space::device, kDisk, kDisk}, 1, RecomputePoint::cheap},
        LayoutCase{kMistral7b, false, kAll, 1, RecomputePoint::none},
        LayoutCase{kMistral7b, false, kAll, 4, RecomputePoint::cheap},
        LayoutCase{kMistral7b, false, kNoActivations, 1, RecomputePoint::block},
        LayoutCase{kMistral7b, false, kAll, 1, RecomputePoint::block},
        LayoutCase{kMistral7b, true, kAll, 4, RecomputePoint::none},
        LayoutCase{kMistral7b, true, {Space::device, Space::device, kDisk, kDisk}, 4, RecomputePoint::none},
        LayoutCase{kLlama70b, false, kAll, 1, RecomputePoint::none},
        LayoutCase{kLlama70b, false, kNoActivations, 1, RecomputePoint::block},
        LayoutCase{kLlama70b, true, {Space::device, Space::device, kDisk, kDisk}, 1, RecomputePoint::none},
        LayoutCase{kLlama405b, false, kAll, 1, RecomputePoint::block},
        LayoutCase{kLlama405b, false, kNoActivations, 1, RecomputePoint::block},
        // Layers of these repeat on circles of two cycles (layout/period.h).
        LayoutCase{kQwen05b,
                   true,
                   {Space::device, Space::device, kDisk, kDisk},
                   2,
                   RecomputePoint::cheap,
                   2048,
                   RecomputePoint::mlp},
        LayoutCase{kQwen15b, false, kAll, 16, RecomputePoint::cheap, 512, RecomputePoint::mlp},
        LayoutCase{kMistral7b,
                   false,
                   {kDisk, kDisk, Space::device, kDisk},
                   16,
                   RecomputePoint::cheap,
                   4096,
                   RecomputePoint::mlp,
                   1024},
        LayoutCase{kMistral7b,
                   false,
                   {kDisk, kDisk, Space::device, kDisk},
                   16,
                   RecomputePoint::cheap,
                   2048,
                   RecomputePoint::mlp},
        LayoutCase{kLlama70b, false, kAll, 16, RecomputePoint::cheap, 2048, RecomputePoint::mlp, 512, 5},
        // The head meets the last layers' backward pass where most is alive.
        LayoutCase{kQwen15b,
                   true,
                   {Space::device, Space::device, kDisk, kDisk},
                   1,
                   RecomputePoint::none,
                   4096,
                   RecomputePoint::act,
                   512,
                   6},
        LayoutCase{kSmol135m,
                   true,
                   {Space::device, Space::device, Space::device, kDisk},
                   1,
                   RecomputePoint::cheap,
                   4096,
                   RecomputePoint::mlp,
                   512,
                   1,
                   true},
        // The largest buffers of some classes take turns every two cycles, of others every three.
        LayoutCase{kMistral7b, false, kAll, 16, RecomputePoint::cheap, 512, RecomputePoint::mlp},
        // No circle of two, three or four cycles is near enough for this one.
        LayoutCase{kLlama70b, false, kAll, 16, RecomputePoint::cheap, 512, RecomputePoint::mlp, 512, 7}),
    [](const auto& info) {
      const LayoutCase& c = info.param;
      std::string name = std::string(c.shape.name) + (c.lora ? "_lora_" : "_full_") +
                         std::string(to_string(c.point)) + "_micro_" + std::to_string(c.micro) + "_" +
                         std::to_string(info.index);
      for (char& letter : name)
        if (letter == '.' || letter == '-') letter = '_';
      return name;
    });

// Layers of two stacks are not alike: what the planner chooses for flan-t5-xl is laid out as tightly.
TEST(OffloadedT5, chosen_layouts_are_within_one_percent_of_what_lives_together) {
  PlanRequest request;
  request.workload.experiment.model = parse_model_spec({{"model_type", "t5"},
                                                        {"vocab_size", 32128},
                                                        {"d_model", 2048},
                                                        {"d_ff", 5120},
                                                        {"num_heads", 32},
                                                        {"d_kv", 64},
                                                        {"num_layers", 24},
                                                        {"feed_forward_proj", "gated-gelu"},
                                                        {"tie_word_embeddings", false}},
                                                       "test");
  request.workload.experiment.precision = {DType::bf16, DType::f32, DType::f32, false, true};
  request.workload.experiment.max_length = request.workload.experiment.target_length = 1024;
  request.workload.experiment.effective_batch = 16;
  request.target.device = describe_card(find_card("RTX 4090", "test"), true);
  request.target.own_memory = true;
  request.target.targets = {Space::host, Space::disk};
  request.target.budget.disk_bytes = 200 * kGiB;
  for (const auto& [device, host] : {std::pair{int64_t{5}, int64_t{1}}, {11, 1}, {9, 8}}) {
    request.target.budget.device_bytes = device * kGiB / 2;
    request.target.budget.host_bytes = host * kGiB;
    const Plan plan = make_plan(request);
    EXPECT_TRUE(plan.fits()) << device;
    EXPECT_LE(static_cast<double>(plan.arena_bytes()),
              1.01 * static_cast<double>(plan.layout.lower_bound_bytes()))
        << variant_words(request.workload.experiment, plan.variant);
  }
}

}  // namespace
}  // namespace plimsoll
