#include "prepare/resume.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/shell_word.h"
#include "base/units.h"
#include "prepare/schedule.h"
#include "prepare/setup.h"
#include "prepare/shared_prefixes.h"
#include "recipe/effective.h"
#include "recipe/load/load.h"
#include "recipe/option.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

std::string batch_words(const TrainerState& state) {
  const std::string tokens =
      state.micro_tokens > 0 ? formatted(" in {} tokens", format_count(state.micro_tokens)) : "";
  return formatted(
      "micro-batch {}{}{}{}, loss chunk {}", format_count(state.micro_batch), tokens,
      state.shares_prefixes ? ", shared prefixes" : "",
      state.common_begin > 0 ? formatted(" of {} tokens for sure", format_count(state.common_begin)) : "",
      format_count(state.loss_chunk));
}

// The value of a key in the experiment, or in the recipe, where it means nothing to the experiment.
std::string value_words(const std::string& key, const std::string& value, const Recipe* recipe) {
  if (!value.empty()) return value;
  const Option* option = find_option(key);
  const bool known = option != nullptr && recipe != nullptr && applies(*option, *recipe);
  return known ? to_yaml(option->get(*recipe)) : "something else";
}

}  // namespace

std::optional<Recipe> saved_recipe(const fs::path& checkpoint) {
  try {
    return load_recipe((checkpoint / "recipe.yaml").string(), {.sets = {}, .environment = {}, .of_run = true})
        .recipe;
  } catch (const Error&) {
    return std::nullopt;
  }
}

Recipe as_begun(const Resolved& resolved, bool resumes) {
  Recipe recipe = resolved.recipe;
  const auto checkpoint = resumes ? latest_checkpoint(*recipe.output) : std::nullopt;
  const std::string begun = checkpoint ? read_trainer_state(*checkpoint).fingerprint : "";
  if (checkpoint && recipe.data.reading == kReading) recipe.data.reading = reading_of(begun);
  if (checkpoint && recipe.data.shuffle == Shuffle::full && began_before_full_shuffle(begun))
    recipe.data.shuffle = Shuffle::window;
  // LoRA may become QLoRA where memory.allow names it.
  if (recipe.method.type == MethodType::full || recipe.method.unquantised) return recipe;
  if (!checkpoint) {
    recipe.method.unquantised = quantisation_of(resolve_as(resolved, recipe)).kept;
    return recipe;
  }
  const std::optional<Recipe> before = saved_recipe(*checkpoint);
  recipe.method.unquantised.emplace();
  if (before && before->method.unquantised) recipe.method.unquantised = before->method.unquantised;
  return recipe;
}

void require_same_experiment(const fs::path& checkpoint, const TrainerState& saved, const TrainerState& run,
                             const Recipe& recipe) {
  std::vector<ExperimentDifference> differences;
  try {
    differences = experiment_differences(saved.fingerprint, run.fingerprint);
  } catch (const DamagedError& error) {
    throw DamagedError(formatted("{}: {}", checkpoint.string(), error.what()));
  }
  if (run.total_steps > saved.total_steps)
    std::erase_if(differences, [](const ExperimentDifference& difference) {
      return difference.key == "schedule.epochs" || difference.key == "schedule.max_steps";
    });
  if (differences.empty()) return;
  std::string text = checkpoint.string() + ": belongs to another experiment:";
  const std::optional<Recipe> before = saved_recipe(checkpoint);
  for (const auto& [key, was, now] : differences)
    text += formatted("\n  {} was {}, the recipe says {}", key,
                      value_words(key, was, before ? &*before : nullptr), value_words(key, now, &recipe));
  text += "\n  start anew with --overwrite, or set these keys back";
  const bool other_model = std::any_of(differences.begin(), differences.end(), [](const auto& one) {
    return one.key.starts_with("model") || one.key.starts_with("method.") || one.key.starts_with("task");
  });
  if (!other_model && recipe.output)
    text += formatted(
        "\n  or start a new run from its weights, with a new schedule and optimizer state: --set "
        "{} --output {}",
        quoted((recipe.method.type == MethodType::full ? "model=" : "adapter=") +
               fs::absolute(checkpoint).lexically_normal().string()),
        quoted(*recipe.output + "-2"));
  throw UsageError(text);
}

Recipe as_read_before(const LoadedRecipe& loaded, std::vector<std::string>& notes) {
  Recipe recipe = loaded.recipe;
  if (loaded.other_tools.once.empty() || !recipe.output) return recipe;
  const auto checkpoint = latest_checkpoint(*recipe.output);
  const std::optional<Recipe> begun = checkpoint ? saved_recipe(*checkpoint) : std::nullopt;
  if (!begun) return recipe;
  for (const auto& [key, value] : loaded.other_tools.once) {
    const Option& option = *find_option(key);
    Recipe once = recipe;
    const bool is_read = option.set(once, read_yaml(value), fs::current_path());
    if (!is_read || option.get(once) == option.get(recipe) || option.get(once) != option.get(*begun))
      continue;
    notes.push_back(
        formatted("note    {} was begun with {}: {}, as earlier versions read this file, and continues so; "
                  "a new run has {}",
                  checkpoint->string(), key, to_yaml(option.get(once)), to_yaml(option.get(recipe))));
    recipe = once;
  }
  return recipe;
}

std::string extension_note(const Recipe& recipe, const TrainerState& saved, const TrainerState& run) {
  if (run.total_steps == saved.total_steps) return "";
  const auto rate = [&](int64_t total) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.3g", LearningRate(recipe).at(saved.step, total));
    return std::string(text.data());
  };
  std::string note = formatted("note    extended from {} to {} steps: ", format_count(saved.total_steps),
                               format_count(run.total_steps));
  if (recipe.schedule.name == ScheduleName::constant)
    return formatted("{}the schedule is constant, the learning rate stays {}", note, rate(run.total_steps));
  return formatted(
      "{}the schedule's end moves with them, so that the learning rate goes from {} to {} "
      "here, other than in a run of so many steps from the start",
      note, rate(saved.total_steps), rate(run.total_steps));
}

namespace {

std::string devices_words(int64_t ranks) {
  return format_count(ranks) + (ranks == 1 ? " device" : " devices");
}

std::string reduced_words(const TrainerState& state) {
  return state.reduces_each ? "gradients added up over devices in every micro-step"
                            : "gradients added up once a step";
}

}  // namespace

std::string changed_bits_note(const TrainerState& saved, const TrainerState& run) {
  std::string was, now;
  if (saved.kernels != run.kernels) {
    was = saved.kernels;
    now = run.kernels;
  }
  if (saved.micro_batch != run.micro_batch || saved.micro_tokens != run.micro_tokens ||
      saved.shares_prefixes != run.shares_prefixes || saved.common_begin != run.common_begin ||
      saved.loss_chunk != run.loss_chunk) {
    was += (was.empty() ? "" : ", ") + batch_words(saved);
    now += (now.empty() ? "" : ", ") + batch_words(run);
  }
  if (saved.ranks != run.ranks) {
    was += (was.empty() ? "" : ", ") + devices_words(saved.ranks);
    now += (now.empty() ? "" : ", ") + devices_words(run.ranks);
  }
  if (saved.reduces_each != run.reduces_each) {
    was += (was.empty() ? "" : ", ") + reduced_words(saved);
    now += (now.empty() ? "" : ", ") + reduced_words(run);
  }
  if (was.empty()) return "";
  return formatted(
      "note    saved with {}; continues with {}: the same experiment, but sums are formed in "
      "another order, so the last bits differ",
      was, now);
}

std::string skipped_steps_note(const fs::path& checkpoint, const TrainerState& saved, const Plan& plan) {
  if (!saved.loss_scale || saved.loss_scale->skips_keep_weights) return "";
  const auto is_master = [](const TableRow& row) { return row.role == Role::master; };
  const PlanRequest& request = plan.request;
  const bool may_move =
      request.choices.offload ? request.choices.offload->weights : !request.target.targets.empty();
  if (!may_move || std::ranges::none_of(plan.layout.persistent, is_master)) return "";
  return formatted(
      "note    {}: an earlier version skipped {} steps of this run, whose gradients overflowed "
      "fp16. If its weights were offloaded (memory.offload), each of them wrote over weights, "
      "and the next step learned from those: for the result that the recipe states start anew "
      "with --overwrite",
      checkpoint.string(), format_count(saved.loss_scale->skipped_steps));
}

void take_over(const TrainerState& saved, TrainerState& run) {
  run.step = saved.step;
  run.position = saved.position;
  run.last_loss = saved.last_loss;
  if (run.loss_scale && saved.loss_scale) run.loss_scale = saved.loss_scale;
  run.eval_loss = saved.eval_loss;
  run.eval_metrics = saved.eval_metrics;
}

namespace {

// The recipe with what the checkpoint has of keys that the recipe leaves open.
Recipe as_saved(const Recipe& recipe, const TrainerState& saved, const Experiment& experiment) {
  Recipe kept = recipe;
  const bool open = recipe.batch.micro == kAuto && recipe.batch.micro_tokens == kAuto;
  // Rows that are longer now, as of another data.eval, do not fit what the checkpoint's micro-steps held.
  const bool holds_rows = saved.micro_tokens == 0 || saved.micro_tokens >= experiment.longest_row().tokens;
  if (open && holds_rows && saved.micro_batch <= recipe.batch.effective) {
    kept.batch.micro = saved.micro_batch;
    kept.batch.micro_tokens = saved.micro_tokens;
  }
  if (recipe.memory.loss_chunk == kAuto) kept.memory.loss_chunk = saved.loss_chunk;
  const bool may_share = why_no_shared_prefixes(recipe, experiment).empty();
  if (recipe.data.share_prefixes == SharePrefixes::automatic && (may_share || !saved.shares_prefixes))
    kept.data.share_prefixes = saved.shares_prefixes ? SharePrefixes::on : SharePrefixes::off;
  if (recipe.memory.shard == ShardStage::automatic && saved.shard && !tier_divides(recipe))
    kept.memory.shard = *saved.shard;
  return kept;
}

// Returns whether the plan of `recipe` has what `kept` states in addition.
bool has_kept(const Plan& plan, const Recipe& recipe, const Recipe& kept) {
  const Experiment& experiment = plan.request.workload.experiment;
  const Variant& chosen = plan.variant;
  const bool shares_alike = kept.data.share_prefixes == SharePrefixes::automatic ||
                            (kept.data.share_prefixes == SharePrefixes::on) == experiment.shares_prefixes;
  const bool as_open =
      recipe.batch.micro != kAuto || recipe.batch.micro_tokens != kAuto || kept.batch.micro == kAuto ||
      (kept.batch.micro == chosen.micro_batch && kept.batch.micro_tokens == chosen.micro_tokens);
  const bool divides_alike =
      kept.memory.shard == recipe.memory.shard || kept.memory.shard == experiment.sharding().stage;
  return shares_alike && as_open && divides_alike &&
         (kept.memory.loss_chunk == kAuto || kept.memory.loss_chunk == chosen.loss_chunk);
}

}  // namespace

void keep_sums_in_order(const Resolved& resolved, const PlannedMachine& machine, const DataSetup& data,
                        const LayoutOptions& layout, AllowedPlan& allowed) {
  const Recipe& recipe = resolved.recipe;
  const auto checkpoint = latest_checkpoint(*recipe.output);
  if (!checkpoint) return;
  const TrainerState saved = read_trainer_state(*checkpoint);
  if (saved.ranks != recipe.devices) return;  // their sums differ in any case
  Recipe kept = as_saved(recipe, saved, allowed.plan.request.workload.experiment);
  for (const ShardStage stage : {kept.memory.shard, recipe.memory.shard}) {
    kept.memory.shard = stage;
    if (has_kept(allowed.plan, recipe, kept)) return;
    AllowedPlan found = plan_allowed(resolve_as(resolved, kept), machine, &data, layout);
    if (!found.plan.fits() && stage != recipe.memory.shard) continue;
    if (!found.plan.fits()) return;
    found.recipe.batch = recipe.batch;
    found.recipe.memory.loss_chunk = recipe.memory.loss_chunk;
    found.recipe.memory.shard = recipe.memory.shard;
    found.recipe.data.share_prefixes = recipe.data.share_prefixes;
    allowed = std::move(found);
    return;
  }
}

nlohmann::ordered_json start_details(const Plan& plan, const TrainerState& run) {
  return {{"total_steps", run.total_steps},
          {"planned_process_bytes", plan.process_peak_bytes()},
          {"ranks", plan.request.workload.experiment.ranks},
          {"planned_device_bytes", plan.arena_bytes()},
          {"planned_seconds_per_step", plan.seconds_per_step},
          {"effective_batch", plan.request.workload.experiment.effective_batch},
          {"micro_batch", plan.variant.micro_batch},
          {"micro_tokens", plan.variant.micro_tokens},
          {"share_prefixes", plan.request.workload.experiment.shares_prefixes},
          {"loss_chunk", plan.variant.loss_chunk},
          {"kernels", run.kernels}};
}

std::string last_checkpoint_words(const fs::path& output) {
  const auto checkpoint = latest_checkpoint(output);
  if (!checkpoint) return "there is no checkpoint; try a lower optimizer.lr, and save.every";
  return formatted(
      "the last checkpoint is intact: {}; for another optimizer.lr, start a new run with it as "
      "model or adapter",
      checkpoint->string());
}

}  // namespace plimsoll
