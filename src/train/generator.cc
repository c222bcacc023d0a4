#include "train/generator.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/system_memory.h"
#include "base/units.h"
#include "cpu/describe.h"
#include "io/convert.h"
#include "io/load.h"
#include "ops/step_values.h"
#include "plan/experiment.h"

namespace plimsoll {

GenerationPlan plan_generation(GenerationRequest request, const CpuSettings& cpu) {
  request.prefill = std::min(request.prefill, request.context);
  GenerationPlan plan;
  plan.programs = build_generation_programs(
      request.model, request.lora ? &*request.lora : nullptr, request.nf4 ? &*request.nf4 : nullptr,
      request.compute, request.prefill, request.context, describe_cpu(cpu.isa, cpu.threads));
  plan.layout = lay_out(plan.programs);
  validate(plan.programs, plan.layout);
  plan.request = std::move(request);
  return plan;
}

void require_fit(const GenerationPlan& plan, const CpuSettings& cpu) {
  // Thread stacks and libraries as measured for training (setup.cc), the staging of loading, bound programs.
  const int64_t host = 4 * kMiB + cpu.threads * kMiB / 2 + kLoadStagingBytes + 3 * kMiB +
                       plan.request.model.layers * 300 * kKiB;
  const int64_t need = plan.arena_bytes() + host;
  const auto refuse = [&](int64_t limit, const std::string& source) {
    throw DoesNotFitError("does not fit   generation needs " + format_bytes(need) + " (device " +
                          format_bytes(plan.arena_bytes()) + "), " + format_bytes(limit) + " may be used (" +
                          source + ")\n  short by " + format_bytes(need - limit) + " with a context of " +
                          format_count(plan.request.context) +
                          " tokens; --context and --precision bf16 make it smaller");
  };
  const FreeMemory free = free_memory();
  if (need > free.bytes) refuse(free.bytes, "free by " + free.source);
  if (const auto limit = data_limit()) {
    const int64_t left = std::max<int64_t>(0, *limit - process_memory().data);
    if (need > left) refuse(left, "left of RLIMIT_DATA, ulimit -d");
  }
}

Generator::Generator(GenerationPlan plan, const CpuSettings& cpu)
    : plan_(std::move(plan)),
      device_(cpu),
      memory_(device_.map(plan_.arena_bytes())),
      prefill_(plan_.programs[0], plan_.layout.programs[0], device_, *memory_),
      decode_(plan_.programs[1], plan_.layout.programs[1], device_, *memory_),
      logits_(static_cast<size_t>(plan_.request.model.vocab)) {
  cached_.reserve(static_cast<size_t>(plan_.request.context));
}

void Generator::generate(std::span<const int32_t> prompt, int64_t max_new, const ChooseToken& choose,
                         const OnToken& on_token, bool go_on) {
  check_prompt(prompt);
  // Frequencies that depend on the length make another cache for another length.
  if (!go_on || plan_.request.model.rope.type == RopeType::dynamic) cached_.clear();
  auto known = std::mismatch(cached_.begin(), cached_.end(), prompt.begin(), prompt.end() - 1).first;
  // A state has taken in all of its text: no part of it can be left out again.
  if (plan_.request.model.linear_attention && known != cached_.end()) known = cached_.begin();
  cached_.erase(known, cached_.end());
  length_ = static_cast<int64_t>(cached_.size());
  const auto chunk = static_cast<size_t>(plan_.request.prefill);
  for (size_t at = cached_.size(); at < prompt.size(); at += chunk)
    feed(prefill_, prompt.subspan(at, std::min(chunk, prompt.size() - at)),
         static_cast<int64_t>(prompt.size()));
  for (int64_t number = 0; number < max_new; ++number) {
    const int32_t token = choose(logits_, number);
    if (!on_token(token) || number + 1 == max_new || length_ == plan_.request.context) return;
    feed(decode_, {&token, 1}, length_ + 1);
  }
}

void Generator::check_prompt(std::span<const int32_t> prompt) const {
  if (prompt.empty()) throw UsageError("the prompt is empty: generation starts from at least one token");
  if (static_cast<int64_t>(prompt.size()) > plan_.request.context) {
    throw UsageError("the prompt has " + format_count(static_cast<int64_t>(prompt.size())) +
                     " tokens, the context only " + format_count(plan_.request.context));
  }
  for (const int32_t id : prompt) {
    if (id < 0 || id >= plan_.request.model.vocab) {
      throw UsageError("token id " + std::to_string(id) + " is not in the model's vocabulary of " +
                       format_count(plan_.request.model.vocab));
    }
  }
}

void Generator::feed(const Executor& program, std::span<const int32_t> ids, int64_t sequence) {
  const auto live = static_cast<int64_t>(ids.size());
  // Inputs share the transient arena with everything else: all of them are written before each run.
  const auto input_ids = program.tensor<int32_t>("input_ids");
  const auto positions = program.tensor<int32_t>("positions");
  std::fill(input_ids.begin(), input_ids.end(), 0);
  std::fill(positions.begin(), positions.end(), 0);
  std::copy(ids.begin(), ids.end(), input_ids.begin());
  for (size_t i = 0; i < ids.size(); ++i)
    positions[i] = static_cast<int32_t>(length_) + static_cast<int32_t>(i);
  const auto starts = program.tensor<int32_t>("seq_starts");
  starts[0] = 0;
  starts[1] = static_cast<int32_t>(live);
  if (program.has("inv_freq"))
    rope_frequencies(plan_.request.model, sequence, program.tensor<float>("inv_freq"));
  program.tensor<int32_t>("last_row")[0] = static_cast<int32_t>(live - 1);
  const auto step = program.tensor<double>(kStepTensor);
  std::fill(step.begin(), step.end(), 0.0);
  const auto set = [&](StepValue which, double value) { step[static_cast<size_t>(which)] = value; };
  set(StepValue::first_micro_step, 1.0);
  set(StepValue::live_tokens, static_cast<double>(live));
  set(StepValue::live_sequences, 1.0);
  set(StepValue::kv_length, static_cast<double>(length_));
  program.run();
  length_ += live;
  cached_.insert(cached_.end(), ids.begin(), ids.end());
  const TableRow& row = *plan_.layout.find_persistent("logits");
  convert(state().bytes(row), row.dtype, std::as_writable_bytes(std::span(logits_)), DType::f32);
  if (!std::all_of(logits_.begin(), logits_.end(), [](float x) { return std::isfinite(x); }))
    throw StoppedError("the model's logits are not finite after token " + format_count(length_) +
                       ": its weights are damaged, or --precision fp32 is needed");
}

}  // namespace plimsoll
