// How long placing a program takes, and how close it comes to the lower bound: LoRA micro-steps of ever
// deeper models.
//
//   layers   tensors   lay out ms   validate ms   arena / lower bound
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "layout/program_layout.h"
#include "plan/program/experiment.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

Experiment experiment_of(int64_t layers) {
  Experiment experiment;
  experiment.model = parse_model_spec({{"model_type", "llama"},
                                       {"hidden_size", 8192},
                                       {"intermediate_size", 28672},
                                       {"num_hidden_layers", layers},
                                       {"num_attention_heads", 64},
                                       {"num_key_value_heads", 8},
                                       {"vocab_size", 128256}},
                                      "bench");
  experiment.lora = true;
  experiment.precision = {DType::bf16, DType::f32, DType::f32, false, true};
  experiment.max_length = 2048;
  return experiment;
}

void run(int64_t layers) {
  Variant variant;
  variant.recompute.layers.assign(static_cast<size_t>(layers), RecomputePoint::none);
  for (size_t i = 0; i < variant.recompute.layers.size() / 2; ++i)
    variant.recompute.layers[i] = RecomputePoint::cheap;
  const auto programs = build_programs(experiment_of(layers), variant, reference_description());
  const auto placing = Clock::now();
  const ArenaLayout layout = lay_out(programs);
  const double placed = ms_since(placing);
  const auto validating = Clock::now();
  validate(programs, layout);
  const double validated = ms_since(validating);
  size_t tensors = 0;
  for (const Tensor& tensor : programs.front().tensors()) tensors += is_persistent(tensor.role) ? 0 : 1;
  std::printf("%8lld %9zu %12.1f %13.1f %21.5f\n", static_cast<long long>(layers), tensors, placed, validated,
              static_cast<double>(layout.arena_bytes()) / static_cast<double>(layout.lower_bound_bytes()));
}

}  // namespace
}  // namespace plimsoll

int main() {
  std::printf("%8s %9s %12s %13s %21s\n", "layers", "tensors", "lay out ms", "validate ms",
              "arena / lower bound");
  for (const int64_t layers : {8, 32, 80, 310}) plimsoll::run(layers);
}
