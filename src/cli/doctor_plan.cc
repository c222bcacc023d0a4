#include "cli/doctor_plan.h"

#include <algorithm>
#include <filesystem>

#include "base/print.h"
#include "base/shell_word.h"
#include "base/units.h"
#include "cli/what_if.h"
#include "models/spec.h"
#include "train/allowed.h"

namespace plimsoll {
namespace {

using doctor::Cause;
using doctor::Diagnosis;
using doctor::Step;

constexpr int64_t kUnknownCard = 80 * kGiB;  // any would do: budgets bound nothing here
constexpr double kWorthTelling = 0.01;       // of what the run takes as it stands

bool is_on_device(Cause cause) {
  return cause == Cause::capacity || cause == Cause::larger_than_device || cause == Cause::other_processes ||
         cause == Cause::fragmentation || cause == Cause::software_cap || cause == Cause::host_fallback ||
         cause == Cause::anomaly || cause == Cause::device_unspecified || cause == Cause::library_unclear;
}

bool is_on_host(Cause cause) {
  return cause == Cause::host_machine || cause == Cause::host_cgroup || cause == Cause::host_scheduler ||
         cause == Cause::host_daemon || cause == Cause::host_refused || cause == Cause::killed;
}

// Nothing limits it: what is asked is how many bytes each variant takes.
PlanRequest unlimited(const Recipe& recipe, const PlannedMachine& machine) {
  PlanRequest request = plan_request(recipe, machine, nullptr);
  request.budget = {};
  return request;
}

// Bytes of a step do not depend on rows: a data set that is not here is left out.
LoadedRecipe read_without_rows(const RecipeArguments& arguments) {
  try {
    return arguments.read();
  } catch (const UsageError&) {
    for (const char* key : {"dataset", "datasets", "dataset_name"}) {
      RecipeArguments without = arguments;
      without.sets.push_back(std::string(key) + "=null");
      try {
        return without.read();
      } catch (const UsageError&) {  // the first error speaks
      }
    }
    throw;
  }
}

class Planner {
 public:
  Planner(const Recipe& recipe, const PlannedMachine& machine)
      : recipe_(recipe), machine_(machine), request_(unlimited(recipe, machine)), base_(as_it_stands()) {
    base_bytes_ = device_bytes_at_least(request_, base_);
  }

  [[nodiscard]] int64_t base_bytes() const { return base_bytes_; }
  [[nodiscard]] std::string base_words() const { return variant_words(request_.experiment, base_); }

  std::vector<Step> steps() {
    const int64_t effective = request_.experiment.effective_batch;
    add_loss_chunk();
    if (base_.micro_batch > 2) add_micro(ceil_div(base_.micro_batch, 2));
    if (base_.micro_batch > 1) add_micro(1);
    add_recompute();
    if (base_.micro_batch > 1) {
      Variant least = recomputed(base_);
      least.micro_batch = 1;
      least.accumulation = accumulation_for(effective, 1);
      add("micro-batch 1 x " + std::to_string(least.accumulation) + " and every layer recomputed", least,
          "--set batch.micro=1 --set memory.recompute=block");
    }
    add_offload();
    add_other("8-bit AdamW", with_means(recipe_, "adamw8bit"), "--set optimizer.name=adamw8bit");
    add_adapters();
    add_other("a base in 4 bits (QLoRA)", with_means(recipe_, "nf4"), "--set method.type=qlora");
    add_shorter();
    return std::move(steps_);
  }

 private:
  // As a tool runs the file that has no chunks of the loss, and no planner.
  Variant as_it_stands() {
    PlanRequest request = request_;
    if (!request.recompute) request.recompute = RecomputePoint::none;
    if (!request.offload) request.offload = OffloadParts{};
    Variant variant;
    variant.micro_batch = std::min(request.micro_batch.value_or(request.experiment.effective_batch),
                                   request.experiment.effective_batch);
    variant.accumulation = accumulation_for(request.experiment.effective_batch, variant.micro_batch);
    variant.eval_micro_batch = request.eval_micro_batch.value_or(variant.micro_batch);
    variant.loss_chunk = request.loss_chunk.value_or(request.experiment.logit_rows({variant.micro_batch}));
    if (*request.recompute != RecomputePoint::none)
      variant.recompute.layers.assign(static_cast<size_t>(request.experiment.model.layers),
                                      *request.recompute);
    return variant;
  }

  Variant recomputed(Variant variant) const {
    variant.recompute.layers.assign(static_cast<size_t>(request_.experiment.model.layers),
                                    RecomputePoint::block);
    return variant;
  }

  void add_bytes(const std::string& what, int64_t bytes, bool lossless, const std::string& sets) {
    const int64_t saves = base_bytes_ - bytes;
    if (static_cast<double>(saves) < kWorthTelling * static_cast<double>(base_bytes_)) return;
    steps_.push_back({what + " (" + format_bytes(bytes) + " planned)", saves, lossless, sets});
  }
  void add(const std::string& what, const Variant& variant, const std::string& sets) {
    add_bytes(what, device_bytes_at_least(request_, variant), true, sets);
  }

  void add_loss_chunk() {
    Variant chunked = base_;
    chunked.loss_chunk =
        default_loss_chunk(request_.experiment, request_.experiment.logit_rows({base_.micro_batch}));
    if (chunked.loss_chunk < base_.loss_chunk)
      add("the loss in chunks of " + format_count(chunked.loss_chunk) + " tokens (fused cross-entropy)",
          chunked, "--set memory.loss_chunk=" + std::to_string(chunked.loss_chunk));
  }
  void add_micro(int64_t micro) {
    Variant smaller = base_;
    smaller.micro_batch = micro;
    smaller.eval_micro_batch = std::min(base_.eval_micro_batch, micro);
    smaller.loss_chunk = std::min(base_.loss_chunk, request_.experiment.logit_rows({micro}));
    smaller.accumulation = accumulation_for(request_.experiment.effective_batch, micro);
    add("micro-batch " + std::to_string(micro) + " x " + std::to_string(smaller.accumulation) +
            ": the effective batch stays " + format_count(request_.experiment.effective_batch),
        smaller, "--set batch.micro=" + std::to_string(micro));
  }
  void add_recompute() {
    const auto& layers = base_.recompute.layers;
    if (!layers.empty() && layers.front() == RecomputePoint::block) return;
    add("every layer recomputed (gradient checkpointing)", recomputed(base_), "--set memory.recompute=block");
  }
  void add_offload() {
    Variant moved = base_;
    const Space home = request_.own_memory ? Space::host : Space::disk;
    const std::string where = request_.own_memory ? " on the host" : " on disk";
    moved.offload.states = home;
    add("optimizer states" + where + " (ZeRO offload)", moved, "--set 'memory.offload=[states]'");
    moved.offload.weights = home;
    moved.offload.gradients = home;
    add("states, gradients and layers' weights" + where, moved,
        "--set 'memory.offload=[states, gradients, weights]'");
  }
  // Another experiment, in the same variant.
  void add_other(const std::string& what, const std::optional<Recipe>& changed, const std::string& sets) {
    if (!changed) return;
    const auto bytes =
        if_possible([&] { return device_bytes_at_least(unlimited(*changed, machine_), base_); });
    if (bytes) add_bytes(what, *bytes, false, sets);
  }
  void add_adapters() {
    if (recipe_.method.type != MethodType::full) return;
    Recipe changed = recipe_;
    changed.method.type = MethodType::lora;
    changed.method.freeze.clear();
    add_other(
        "adapters in the place of full fine-tuning (LoRA, rank " + std::to_string(changed.method.r) + ")",
        changed,
        recipe_.method.freeze.empty() ? "--set method.type=lora"
                                      : "--set method.type=lora --set method.freeze=null");
  }
  void add_shorter() {
    Recipe changed = recipe_;
    changed.data.max_length /= 2;
    if (changed.data.max_length < 1) return;
    const std::string length = std::to_string(changed.data.max_length);
    add_other("sequences of " + length + " tokens", changed, "--set data.max_length=" + length);
  }

  Recipe recipe_;
  PlannedMachine machine_;
  PlanRequest request_;
  Variant base_;
  int64_t base_bytes_ = 0;
  std::vector<Step> steps_;
};

// A card as large as the message's device, where it says so; options of `plan` that mean the same.
std::string plan_for_card(const Diagnosis& diagnosis, Recipe& recipe) {
  recipe.device = DeviceChoice::card;
  const std::string other_card = recipe.memory.gpu ? " --set memory.gpu=null" : "";
  recipe.memory.gpu.reset();  // the message says what the device has
  const doctor::Bytes* total = diagnosis.message ? diagnosis.message->size("total") : nullptr;
  MemoryLimit& limit = recipe.memory.device;
  const bool stated = limit.kind == MemoryLimit::Kind::bytes;
  if (total == nullptr && stated) return " --device card" + other_card;
  limit = {MemoryLimit::Kind::bytes, 0.0, total != nullptr ? total->value : kUnknownCard};
  return " --device card --memory " + std::to_string(limit.bytes / kMiB) + "MiB" + other_card;
}

// What the recipe was read with, but for what `plan_for_card` says of the device.
std::string given_words(const RecipeArguments& arguments, const std::string& device) {
  std::string words;
  for (const std::string& set : arguments.sets) {
    const std::string key = set.substr(0, set.find('='));
    const bool of_device = key == "device" || key == "memory.gpu" ||
                           (key == "memory.device" && device.find(" --memory ") != std::string::npos);
    if (device.empty() || !of_device) words += " --set " + printable(quoted(set));
  }
  if (!arguments.as_tool.empty()) words += " --as " + printable(quoted(arguments.as_tool));
  return words;
}

}  // namespace

void plan_steps(const RecipeArguments& arguments, Diagnosis& diagnosis) {
  const bool on_host = is_on_host(diagnosis.cause);
  if (diagnosis.out_of_memory == doctor::Verdict::no || (!on_host && !is_on_device(diagnosis.cause))) return;
  LoadedRecipe loaded = read_without_rows(arguments);
  Recipe& recipe = loaded.recipe;
  if (on_host && !loaded.other_tools.empty()) {
    diagnosis.notes.emplace_back(
        "the recipe is another tool's: how much of the host that takes cannot be planned");
    return;
  }
  if (recipe.data.max_length == kLongestRow)
    throw UsageError(
        printable(arguments.path) +
        ": data.max_length is that of the longest row: say a number, --set data.max_length=2048");
  recipe.data.train.clear();
  const std::string device = on_host ? "" : plan_for_card(diagnosis, recipe);
  Planner planner(recipe, planned_machine(arguments.machine(recipe), ""));
  const bool as_it_is = printable(arguments.path) == arguments.path;
  const std::string file = as_it_is ? quoted(arguments.path) : "RECIPE";
  diagnosis.notes.push_back(
      "planned from " + printable(arguments.path) + ": " + format_bytes(planner.base_bytes()) +
      " as it stands (" + planner.base_words() +
      "), as Plimsoll's own program; another tool's takes other bytes, and saves about as many");
  std::vector<Step> planned = planner.steps();
  const std::string given = given_words(arguments, device);
  for (Step& step : planned) step.command = "plimsoll plan " + file + device + given + " " + step.command;
  auto& steps = diagnosis.steps;
  steps.erase(std::remove_if(steps.begin(), steps.end(), [](const Step& step) { return step.shrinks; }),
              steps.end());
  steps.insert(steps.end(), planned.begin(), planned.end());
}

}  // namespace plimsoll
