// Every variant that the planner can choose for a small model gives the same bits: weights, masters, states
// and the loss after five steps, on the arenas of a real run with dead values poisoned. A landing runs a third of them, of a third of the
// models.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "base/test_slice.h"
#include "plan/search/search.h"
#include "train/test_bench.h"

namespace plimsoll::test {
namespace {

// A step that overflows comes first and in the middle: what is left behind by one step is seen by the next
// two.
constexpr int kManySteps = 5;

struct SearchCase {
  Case model;
  int64_t accumulation;
  bool clips;
  Space target;
  size_t number;         // of this case, for slices
  size_t variants;       // that the search has: a smaller number would make the test hollow
  bool in_part = false;  // parts have several offload targets each too, where nothing is recomputed
};

class EveryVariant : public ::testing::TestWithParam<SearchCase> {};

PlanRequest request_for(const SearchCase& c) {
  PlanRequest request;
  request.workload.experiment = experiment_of(c.model, c.accumulation, c.clips);
  request.choices.micro_batch = 2;
  request.choices.loss_chunk = variant_of(request.workload.experiment).loss_chunk;
  request.target.targets = {c.target};
  request.choices.in_part = c.in_part;
  if (c.in_part) request.choices.recompute = RecomputePoint::none;
  request.target.device = reference_description();
  request.target.own_memory = c.target == Space::host;
  request.target.device.reaches_host = !request.target.own_memory;
  return request;
}

using Pairs = std::set<std::pair<std::string, std::string>>;

// A variant's choices by twos: what is recomputed, and where each part is kept.
void add_pairs(const Experiment& experiment, const Variant& variant, Pairs& pairs) {
  std::vector<std::string> choices;
  const auto add = [&](const Variant& one) {
    choices.push_back(std::to_string(choices.size()) + ": " + variant_words(experiment, one));
  };
  Variant recomputes = variant_of(experiment);
  recomputes.recompute = variant.recompute;
  add(recomputes);
  for (const Part part : kEveryPart) {
    Variant keeps = variant_of(experiment);
    keeps.offload.of(part) = variant.offload.of(part);
    add(keeps);
  }
  for (size_t i = 0; i < choices.size(); ++i)
    for (size_t j = i + 1; j < choices.size(); ++j) pairs.emplace(choices[i], choices[j]);
}

TEST_P(EveryVariant, is_in_a_slice_that_has_every_two_values_together) {
  if (GetParam().in_part)
    GTEST_SKIP() << "few variants with homes of many kinds: every landing runs all of them";
  const PlanRequest request = request_for(GetParam());
  const std::vector<Variant> variants = Search(request).all();
  Pairs all;
  std::array<Pairs, 3> of_slices;
  const char* named = std::getenv("PLIMSOLL_SHARDS");
  const std::string before = named ? named : "";
  for (size_t slice = 0; slice < of_slices.size(); ++slice) {
    setenv("PLIMSOLL_SHARDS", ("every_variant/" + std::to_string(slice)).c_str(), 1);
    for (size_t i = 0; i < variants.size(); ++i) {
      add_pairs(request.workload.experiment, variants[i], all);
      if (in_slice("every_variant", i)) add_pairs(request.workload.experiment, variants[i], of_slices[slice]);
    }
  }
  setenv("PLIMSOLL_SHARDS", before.c_str(), 1);
  EXPECT_GT(all.size(), 10U);
  for (const Pairs& pairs : of_slices)
    for (const auto& pair : all) EXPECT_TRUE(pairs.contains(pair)) << pair.first << " with " << pair.second;
}

TEST_P(EveryVariant, gives_the_bits_of_keeping_everything) {
  const SearchCase& c = GetParam();
  if (!c.in_part && !in_slice("every_variant_models", c.number)) GTEST_SKIP() << "in another landing's slice";
  const PlanRequest request = request_for(c);
  const std::vector<Variant> variants = Search(request).all();
  EXPECT_EQ(variants.size(), c.variants);

  Bench bench(request.workload.experiment, kManySteps, {1, 3});
  const Result expected = bench.run_on_arenas(variant_of(request.workload.experiment));
  for (size_t i = 0; i < variants.size(); ++i) {
    if (!c.in_part && !in_slice("every_variant", i)) continue;
    Variant variant = variants[i];
    variant.offload.smallest_bytes = kSmallest;
    variant.offload.slice_elements = 65536;
    const Result result = bench.run_on_arenas(variant, disk_in_memory());
    ASSERT_EQ(result.size(), expected.size());
    for (const auto& [name, bytes] : result)
      ASSERT_EQ(bytes, expected.at(name))
          << name << ": " << variant_words(request.workload.experiment, variant);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, EveryVariant,
    ::testing::Values(
        SearchCase{{"full_fp32_updated_in_backward", "qwen2", false, kFp32}, 1, false, Space::disk, 0, 828},
        SearchCase{{"full_bf16", "qwen3", false, kBf16}, 2, true, Space::disk, 1, 828},
        SearchCase{{"full_bf16_master_on_host", "llama", false, kBf16Master}, 1, true, Space::host, 2, 828},
        SearchCase{
            {"full_bf16_master_in_part", "llama", false, kBf16Master}, 1, true, Space::host, 3, 158, true},
        SearchCase{{"lora_in_part", "llama", true, kBf16}, 2, true, Space::disk, 4, 158, true},
        SearchCase{{"full_fp16_with_skipped_steps", "llama", false, kFp16}, 1, false, Space::disk, 5, 828},
        SearchCase{{"lora_bf16_with_dropout",
                    "llama",
                    true,
                    kBf16,
                    OptimizerKind::adamw,
                    64,
                    false,
                    false,
                    {"all-linear", "embed_tokens", "lm_head"}},
                   2,
                   true,
                   Space::disk,
                   6,
                   828},
        SearchCase{
            {"qlora", "llama", true, kBf16, OptimizerKind::adamw, 64, true}, 1, true, Space::disk, 7, 828},
        SearchCase{{.name = "qdora_int8",
                    .family = "llama",
                    .lora = true,
                    .precision = kBf16,
                    .whole_way = true,
                    .int8 = true},
                   1,
                   true,
                   Space::disk,
                   10,
                   828},
        SearchCase{{"dora_bf16", "qwen2", true, kBf16, OptimizerKind::adamw, 64, false, true},
                   2,
                   true,
                   Space::disk,
                   8,
                   828},
        SearchCase{{"qdora_of_fused_matrices", "phi3", true, kBf16, OptimizerKind::adamw, 64, true, true},
                   1,
                   false,
                   Space::disk,
                   9,
                   828}),
    [](const auto& info) { return std::string(info.param.model.name); });

}  // namespace
}  // namespace plimsoll::test
