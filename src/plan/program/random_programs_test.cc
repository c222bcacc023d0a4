// Random experiments and variants, whatever the planner could ask for: their arenas are within 1 % of the
// bound.
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <random>

#include "layout/program_layout.h"
#include "plan/program/experiment.h"

namespace plimsoll {
namespace {

class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}
  int64_t number(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }
  template <class T, size_t N>
  T pick(const std::array<T, N>& of) {
    return of[static_cast<size_t>(number(0, N - 1))];
  }

 private:
  std::mt19937 random_;
};

ModelSpec random_model(Dice& dice) {
  const int64_t kv_heads = dice.number(1, 8);
  const int64_t heads = kv_heads * dice.number(1, 7);
  const auto head_dim = dice.pick<int64_t, 2>({64, 128});
  const nlohmann::json config = {
      {"model_type", dice.pick<const char*, 4>({"llama", "mistral", "qwen2", "qwen3"})},
      {"hidden_size", heads * head_dim},
      {"intermediate_size", dice.number(2, 60) * 256},
      {"num_hidden_layers", dice.number(1, 24)},
      {"num_attention_heads", heads},
      {"num_key_value_heads", kv_heads},
      {"head_dim", head_dim},
      {"vocab_size", dice.number(1000, 160000)},
      {"tie_word_embeddings", dice.chance(0.5)}};
  return parse_model_spec(config, "random");
}

Experiment random_experiment(Dice& dice) {
  Experiment experiment;
  experiment.model = random_model(dice);
  experiment.lora = dice.chance(0.5);
  experiment.lora_options.r = dice.number(1, 64);
  experiment.lora_options.dropout = dice.chance(0.3) ? 0.1 : 0.0;
  if (dice.chance(0.3)) experiment.lora_options.targets = {"q_proj", "v_proj"};
  experiment.precision =
      dice.pick<TrainPrecision, 3>({{{DType::f32, DType::f32, DType::f32, false, false},
                                     {DType::bf16, DType::f32, DType::f32, false, true},
                                     {DType::bf16, DType::bf16, DType::bf16, false, true}}});
  experiment.max_length = dice.number(8, 4096);
  experiment.effective_batch = dice.number(1, 8);
  experiment.evaluates = dice.chance(0.5);
  return experiment;
}

Variant random_variant(Dice& dice, const Experiment& experiment) {
  Variant variant;
  variant.micro_batch = dice.number(1, experiment.effective_batch);
  variant.accumulation = accumulation_for(experiment.effective_batch, variant.micro_batch);
  variant.eval_micro_batch = dice.number(1, 4);
  variant.loss_chunk = dice.pick<int64_t, 4>({64, 256, 512, 2048});
  variant.loss_chunk = std::min(variant.loss_chunk, variant.micro_batch * experiment.max_length);
  for (int64_t i = 0; i < experiment.model.layers; ++i)
    variant.recompute.layers.push_back(static_cast<RecomputePoint>(dice.number(0, kNumRecomputePoints - 1)));
  const auto space = [&] { return dice.chance(0.3) ? Space::disk : Space::device; };
  variant.offload = {space(), space(), space(), space(), dice.number(0, 1)};
  return variant;
}

TEST(RandomPrograms, arenas_are_within_one_percent_of_the_lower_bound) {
  constexpr uint32_t kPrograms = 200;
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    Dice dice(seed);
    const Experiment experiment = random_experiment(dice);
    const Variant variant = random_variant(dice, experiment);
    const auto programs = build_programs(experiment, variant, reference_description());
    const ArenaLayout layout = lay_out(programs);
    validate(programs, layout);
    EXPECT_LE(static_cast<double>(layout.arena_bytes()),
              1.01 * static_cast<double>(layout.lower_bound_bytes()))
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace plimsoll
