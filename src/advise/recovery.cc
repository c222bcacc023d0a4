#include "advise/recovery.h"

#include <algorithm>

#include "base/format.h"
#include "base/shell_word.h"
#include "base/strings.h"
#include "base/units.h"
#include "models/model.h"
#include "models/spec.h"
#include "plan/search/fitting_plans.h"
#include "plan/search/refusal.h"
#include "prepare/allowed.h"

namespace plimsoll {
namespace {

using doctor::Step;

constexpr double kWorthTelling = 0.01;  // of what the run takes as it stands

// Nothing limits the plans: they show how many bytes each variant takes.
PlanRequest unlimited(const Recipe& recipe, const std::shared_ptr<ModelFiles>& models,
                      const PlannedMachine& machine) {
  PlanRequest request = plan_request(resolve(recipe, models), machine, nullptr);
  request.target.budget = {};
  return request;
}

class RecoveryPlanner {
 public:
  RecoveryPlanner(const Recipe& recipe, const std::shared_ptr<ModelFiles>& models,
                  const PlannedMachine& machine)
      : recipe_(recipe),
        models_(models),
        machine_(machine),
        request_(unlimited(recipe, models, machine)),
        base_(as_it_stands()) {
    base_bytes_ = device_bytes_at_least(request_, base_);
  }

  [[nodiscard]] const PlanRequest& request() const { return request_; }
  [[nodiscard]] int64_t base_bytes() const { return base_bytes_; }
  // Tensors that a step of this recipe may ask for in one piece.
  [[nodiscard]] std::vector<doctor::TensorShape> shapes() const {
    const Experiment& experiment = request_.workload.experiment;
    const ModelSpec& model = experiment.model;
    const bool trains_all = !experiment.lora && experiment.frozen.empty();
    return doctor::step_tensors({.rows = base_.micro_batch,
                                 .length = experiment.max_length,
                                 .vocabulary = model.vocab,
                                 .hidden = model.hidden,
                                 .mlp_width = model.mlp_width,
                                 .layers = model.layers,
                                 .heads = model.heads,
                                 .kv_heads = model.kv_heads,
                                 .head_dim = model.head_dim,
                                 .trained = trains_all ? count_parameters(model) : 0});
  }
  [[nodiscard]] std::string base_words() const { return variant_words(request_.workload.experiment, base_); }

  // `of_states`: memory ran out where the optimizer's states are made, which no smaller batch helps.
  std::vector<Step> steps(bool of_states) {
    if (of_states) {
      add_offload();
      add_other_states();
      add_adapters();
      if (!steps_.empty()) return std::move(steps_);
    }
    const int64_t effective = request_.workload.experiment.effective_batch;
    add_loss_chunk();
    if (base_.micro_batch > 2) add_micro(ceil_div(base_.micro_batch, 2));
    if (base_.micro_batch > 1) add_micro(1);
    add_recompute();
    if (base_.micro_batch > 1) {
      Variant least = recomputed(base_);
      least.micro_batch = 1;
      least.accumulation = accumulation_for(effective, 1);
      add(formatted("micro-batch 1 x {} and every layer recomputed", least.accumulation), least,
          "--set batch.micro=1 --set memory.recompute=block");
    }
    add_offload();
    add_other_states();
    add_adapters();
    add_other("a base in 4 bits (QLoRA)", with_means(recipe_, "nf4"), "--set method.type=qlora");
    add_shorter();
    return std::move(steps_);
  }

 private:
  // As a tool runs the file that has no chunks of the loss, and no planner.
  Variant as_it_stands() {
    const Experiment& experiment = request_.workload.experiment;
    const Choices& choices = request_.choices;
    Variant variant;
    variant.micro_batch =
        std::min(choices.micro_batch.value_or(experiment.effective_batch), experiment.effective_batch);
    variant.accumulation = accumulation_for(experiment.effective_batch, variant.micro_batch);
    variant.eval_micro_batch = choices.eval_micro_batch.value_or(variant.micro_batch);
    variant.loss_chunk = choices.loss_chunk.value_or(experiment.logit_rows({variant.micro_batch}));
    if (choices.recompute) variant.recompute = choices.recompute->in_layers(experiment.model.layers);
    return variant;
  }

  Variant recomputed(Variant variant) const {
    variant.recompute.layers.assign(static_cast<size_t>(request_.workload.experiment.model.layers),
                                    RecomputePoint::block);
    return variant;
  }

  void add_bytes(const std::string& what, int64_t bytes, bool lossless, const std::string& sets) {
    const int64_t saves = base_bytes_ - bytes;
    if (static_cast<double>(saves) < kWorthTelling * static_cast<double>(base_bytes_)) return;
    steps_.push_back({formatted("{} ({} planned)", what, format_bytes(bytes)), saves, lossless, sets});
  }
  void add(const std::string& what, const Variant& variant, const std::string& sets) {
    add_bytes(what, device_bytes_at_least(request_, variant), true, sets);
  }

  void add_loss_chunk() {
    Variant chunked = base_;
    chunked.loss_chunk = default_loss_chunk(request_.workload.experiment,
                                            request_.workload.experiment.logit_rows({base_.micro_batch}));
    if (chunked.loss_chunk < base_.loss_chunk)
      add(formatted("the loss in chunks of {} tokens (fused cross-entropy)",
                    format_count(chunked.loss_chunk)),
          chunked, "--set memory.loss_chunk=" + std::to_string(chunked.loss_chunk));
  }
  void add_micro(int64_t micro) {
    Variant smaller = base_;
    smaller.micro_batch = micro;
    smaller.eval_micro_batch = std::min(base_.eval_micro_batch, micro);
    smaller.loss_chunk = std::min(base_.loss_chunk, request_.workload.experiment.logit_rows({micro}));
    smaller.accumulation = accumulation_for(request_.workload.experiment.effective_batch, micro);
    add(formatted("micro-batch {} x {}: the effective batch stays {}", micro, smaller.accumulation,
                  format_count(request_.workload.experiment.effective_batch)),
        smaller, "--set batch.micro=" + std::to_string(micro));
  }
  void add_recompute() {
    const auto& layers = base_.recompute.layers;
    if (!layers.empty() && layers.front() == RecomputePoint::block) return;
    add("every layer recomputed (gradient checkpointing)", recomputed(base_), "--set memory.recompute=block");
  }
  void add_offload() {
    Variant moved = base_;
    const Space target = request_.target.own_memory ? Space::host : Space::disk;
    const std::string where = request_.target.own_memory ? " on the host" : " on disk";
    moved.offload.states = target;
    // Targets that the recipe states by layers would contradict it.
    const std::string freed = request_.choices.targets ? "--set memory.offload_to=auto " : "";
    add(formatted("optimizer states{} (ZeRO offload)", where), moved,
        freed + "--set 'memory.offload=[states]'");
    moved.offload.weights = target;
    moved.offload.gradients = target;
    add("states, gradients and layers' weights" + where, moved,
        freed + "--set 'memory.offload=[states, gradients, weights]'");
  }
  // Another experiment, in the same variant.
  void add_other(const std::string& what, const std::optional<Recipe>& changed, const std::string& sets) {
    if (!changed) return;
    const auto bytes =
        if_possible([&] { return device_bytes_at_least(unlimited(*changed, models_, machine_), base_); });
    if (bytes) add_bytes(what, *bytes, false, sets);
  }
  void add_other_states() {
    add_other("8-bit AdamW", with_means(recipe_, "adamw8bit"), "--set optimizer.name=adamw8bit");
  }
  void add_adapters() {
    if (recipe_.method.type != MethodType::full) return;
    Recipe changed = recipe_;
    changed.method.type = MethodType::lora;
    changed.method.freeze.clear();
    add_other(formatted("adapters instead of full fine-tuning (LoRA, rank {})", changed.method.r), changed,
              recipe_.method.freeze.empty() ? "--set method.type=lora"
                                            : "--set method.type=lora --set method.freeze=null");
  }
  void add_shorter() {
    Recipe changed = recipe_;
    changed.data.max_length /= 2;
    if (changed.data.max_length < 1) return;
    const std::string length = std::to_string(changed.data.max_length);
    add_other(formatted("sequences of {} tokens", length), changed, "--set data.max_length=" + length);
  }

  Recipe recipe_;
  std::shared_ptr<ModelFiles> models_;
  PlannedMachine machine_;
  PlanRequest request_;
  Variant base_;
  int64_t base_bytes_ = 0;
  std::vector<Step> steps_;
};

// "--set a=b --set 'c=[d, e]'" as changes.
Changes changes_of(const std::string& words) {
  Changes changes;
  constexpr std::string_view kOption = "--set ";
  for (size_t at = words.find(kOption); at != std::string::npos;) {
    const size_t next = words.find(kOption, at + 1);
    std::string set(trim(std::string_view(words).substr(at + kOption.size(), next - at - kOption.size())));
    if (set.size() >= 2 && set.front() == '\'' && set.back() == '\'') set = set.substr(1, set.size() - 2);
    const size_t equals = set.find('=');
    changes.push_back({set.substr(0, equals), set.substr(equals + 1)});
    at = next;
  }
  return changes;
}

// Returns whether the plan is possible with these changes, and then whether it fits.
struct Trial {
  bool possible = false;
  std::optional<Plan> plan;
};
Trial try_changes(const WhatIf& what_if, const Changes& changes) {
  const auto input = if_possible([&] { return what_if(changes); });
  if (!input) return {};
  return {true, if_possible([&] {
                  return FittingPlans(input->request).within(input->request.target.budget);
                }).value_or(std::nullopt)};
}

// Keys of the recipe that hold the planner back, let go.
Changes releases(const PlanRequest& request) {
  Changes changes;
  for (const HoldingKey& held : in_order_of(ReleasedBy::doctor, holding_keys(request)))
    changes.push_back({held.key, held.value});
  return changes;
}

std::string set_words(const Changes& changes) {
  std::string words;
  for (const KeyChange& change : changes)
    words += (words.empty() ? "--set " : " --set ") + quoted(change.assignment());
  return words;
}

}  // namespace

RecoveryPlan plan_recovery(const Recipe& recipe, const std::shared_ptr<ModelFiles>& models,
                           const PlannedMachine& machine, bool of_states) {
  RecoveryPlanner planner(recipe, models, machine);
  return {planner.request(), planner.base_bytes(), planner.base_words(), planner.shapes(),
          planner.steps(of_states)};
}

std::optional<Step> fitting_step(const WhatIf& what_if, const RecoveryPlan& recovery) {
  const PlanRequest& request = recovery.request;
  const auto step = [&](const Plan& plan, const std::string& effect, bool lossless, const Changes& changes) {
    return Step{
        formatted("this fits: {}{} ({} of {} planned)", effect,
                  variant_words(plan.request.workload.experiment, plan.variant),
                  format_bytes(plan.memory_bytes()), format_bytes(memory_budget(plan.request).value_or(0))),
        std::max<int64_t>(1, recovery.base_bytes - plan.memory_bytes()),
        lossless,
        set_words(changes),
        false,
        plan.seconds_per_step};
  };
  const Changes open = releases(request);
  if (const Trial trial = try_changes(what_if, open); trial.plan) return step(*trial.plan, "", true, open);
  for (const auto& [method, effect] :
       {std::pair{"lora", "adapters (LoRA), "}, std::pair{"qlora", "a base in 4 bits (QLoRA), "}})
    for (int64_t length = request.workload.experiment.max_length; length >= 256; length /= 2) {
      Changes changes = open;
      changes.push_back({"method.type", method});
      const bool shorter = length < request.workload.experiment.max_length;
      if (shorter) changes.push_back({"data.max_length", std::to_string(length)});
      if (const Trial trial = try_changes(what_if, changes); trial.plan)
        return step(*trial.plan, effect + (shorter ? format_count(length) + " tokens, " : ""), false,
                    changes);
      if (effect[0] == 'a') break;  // the other method changes less than shorter rows
    }
  return std::nullopt;
}

void keep_possible(const WhatIf& what_if, bool timed, std::vector<Step>& steps) {
  std::vector<Step> kept;
  for (Step& step : steps) {
    const Trial trial = try_changes(what_if, changes_of(step.command));
    if (!trial.possible) continue;
    step.what += trial.plan ? "; this alone fits" : "; alone it does not fit";
    if (trial.plan && timed) step.seconds = trial.plan->seconds_per_step;
    kept.push_back(std::move(step));
  }
  steps = std::move(kept);
}

}  // namespace plimsoll
