#include "cli/advise/doctor_plan.h"

#include <algorithm>
#include <filesystem>

#include "base/print.h"
#include "base/shell_word.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/advise/what_if.h"
#include "device/catalogue.h"
#include "fleet/doctor/tensors.h"
#include "models/spec.h"
#include "plan/search/fitting_plans.h"
#include "prepare/allowed.h"

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

// Nothing limits the plans: they show how many bytes each variant takes.
PlanRequest unlimited(const Recipe& recipe, const std::shared_ptr<ModelFiles>& models,
                      const PlannedMachine& machine) {
  PlanRequest request = plan_request(resolve(recipe, models), machine, nullptr);
  request.target.budget = {};
  return request;
}

// Bytes of a step do not depend on rows: a data set that is absent on this machine is left out, of the
// commands as well.
LoadedRecipe read_without_rows(RecipeArguments& arguments) {
  try {
    return arguments.read();
  } catch (const UsageError&) {
    for (const char* key : {"dataset", "datasets", "dataset_name"}) {
      RecipeArguments without = arguments;
      without.sets.push_back(std::string(key) + "=null");
      try {
        LoadedRecipe loaded = without.read();
        arguments = without;
        return loaded;
      } catch (const UsageError&) {  // the first error speaks
      }
    }
    throw;
  }
}

class Planner {
 public:
  Planner(const Recipe& recipe, const std::shared_ptr<ModelFiles>& models, const PlannedMachine& machine)
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
    const int64_t rows = base_.micro_batch, length = experiment.max_length;
    std::vector<doctor::TensorShape> shapes = doctor::logit_shapes(rows, length, experiment.model.vocab);
    const std::string words = format_count(rows) + (rows == 1 ? " row x " : " rows x ");
    for (const int64_t bytes : {4, 2}) {
      const std::string each = " x " + std::to_string(bytes) + " bytes: ";
      shapes.push_back({words + format_count(experiment.model.heads) + " heads x " + format_count(length) +
                            " x " + format_count(length) + each + "attention scores that are stored whole",
                        rows * experiment.model.heads * length * length * bytes});
    }
    return shapes;
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
      add("micro-batch 1 x " + std::to_string(least.accumulation) + " and every layer recomputed", least,
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
    PlanRequest request = request_;
    if (!request.choices.recompute) request.choices.recompute = RecomputePoint::none;
    if (!request.choices.offload) request.choices.offload = OffloadParts{};
    Variant variant;
    variant.micro_batch =
        std::min(request.choices.micro_batch.value_or(request.workload.experiment.effective_batch),
                 request.workload.experiment.effective_batch);
    variant.accumulation = accumulation_for(request.workload.experiment.effective_batch, variant.micro_batch);
    variant.eval_micro_batch = request.choices.eval_micro_batch.value_or(variant.micro_batch);
    variant.loss_chunk =
        request.choices.loss_chunk.value_or(request.workload.experiment.logit_rows({variant.micro_batch}));
    if (*request.choices.recompute != RecomputePoint::none)
      variant.recompute.layers.assign(static_cast<size_t>(request.workload.experiment.model.layers),
                                      *request.choices.recompute);
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
    steps_.push_back({what + " (" + format_bytes(bytes) + " planned)", saves, lossless, sets});
  }
  void add(const std::string& what, const Variant& variant, const std::string& sets) {
    add_bytes(what, device_bytes_at_least(request_, variant), true, sets);
  }

  void add_loss_chunk() {
    Variant chunked = base_;
    chunked.loss_chunk = default_loss_chunk(request_.workload.experiment,
                                            request_.workload.experiment.logit_rows({base_.micro_batch}));
    if (chunked.loss_chunk < base_.loss_chunk)
      add("the loss in chunks of " + format_count(chunked.loss_chunk) + " tokens (fused cross-entropy)",
          chunked, "--set memory.loss_chunk=" + std::to_string(chunked.loss_chunk));
  }
  void add_micro(int64_t micro) {
    Variant smaller = base_;
    smaller.micro_batch = micro;
    smaller.eval_micro_batch = std::min(base_.eval_micro_batch, micro);
    smaller.loss_chunk = std::min(base_.loss_chunk, request_.workload.experiment.logit_rows({micro}));
    smaller.accumulation = accumulation_for(request_.workload.experiment.effective_batch, micro);
    add("micro-batch " + std::to_string(micro) + " x " + std::to_string(smaller.accumulation) +
            ": the effective batch stays " + format_count(request_.workload.experiment.effective_batch),
        smaller, "--set batch.micro=" + std::to_string(micro));
  }
  void add_recompute() {
    const auto& layers = base_.recompute.layers;
    if (!layers.empty() && layers.front() == RecomputePoint::block) return;
    add("every layer recomputed (gradient checkpointing)", recomputed(base_), "--set memory.recompute=block");
  }
  void add_offload() {
    Variant moved = base_;
    const Space home = request_.target.own_memory ? Space::host : Space::disk;
    const std::string where = request_.target.own_memory ? " on the host" : " on disk";
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
    add_other("adapters instead of full fine-tuning (LoRA, rank " + std::to_string(changed.method.r) + ")",
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
  std::shared_ptr<ModelFiles> models_;
  PlannedMachine machine_;
  PlanRequest request_;
  Variant base_;
  int64_t base_bytes_ = 0;
  std::vector<Step> steps_;
};

// Whether the message is about the card that the recipe names: its driver reports a little less than is sold.
bool is_of_named_card(const doctor::Bytes* total, const Recipe& recipe) {
  if (!recipe.memory.gpu || recipe.memory.device.kind != MemoryLimit::Kind::automatic || total == nullptr)
    return false;
  const int64_t card = find_card(*recipe.memory.gpu, "memory.gpu").memory_mib * kMiB;
  return total->least() <= card && total->value >= card / 100 * 95;
}

// A card as large as the message's device, where the message has its size; options of `plan` that mean the
// same.
std::string plan_for_card(const Diagnosis& diagnosis, Recipe& recipe) {
  recipe.device = DeviceChoice::card;
  if (is_of_named_card(diagnosis.message ? diagnosis.message->size("total") : nullptr, recipe)) return "";
  const std::string other_card = recipe.memory.gpu ? " --set memory.gpu=null" : "";
  recipe.memory.gpu.reset();  // the message says what the device has
  const doctor::Bytes* total = diagnosis.message ? diagnosis.message->size("total") : nullptr;
  MemoryLimit& limit = recipe.memory.device;
  const bool stated = limit.kind == MemoryLimit::Kind::bytes;
  if (total == nullptr && stated) return " --device card" + other_card;
  limit = {MemoryLimit::Kind::bytes, 0.0, total != nullptr ? total->value : kUnknownCard};
  return " --device card --memory " + std::to_string(limit.bytes / kMiB) + "MiB" + other_card;
}

// The options by which the recipe was read, but for the device that `plan_for_card` gives.
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

// The recipe as the printed commands read it.
PlanArguments as_commands_read(const RecipeArguments& arguments, const std::string& device,
                               const Recipe& recipe) {
  PlanArguments planned;
  planned.recipe = arguments;
  planned.recipe.no_probe = false;
  if (device.empty()) return planned;
  std::erase_if(planned.recipe.sets, [&](const std::string& set) {
    return set.starts_with("device=") || set.starts_with("memory.gpu=") ||
           (set.starts_with("memory.device=") && device.find(" --memory ") != std::string::npos);
  });
  planned.recipe.change("device", "card");
  if (device.find(" --memory ") != std::string::npos)
    planned.recipe.change("memory.device", std::to_string(recipe.memory.device.bytes / kMiB) + "MiB");
  if (device.find("memory.gpu=null") != std::string::npos)
    planned.recipe.sets.emplace_back("memory.gpu=null");
  return planned;
}

// "--set a=b --set 'c=[d, e]'" as the values of --set.
std::vector<std::string> sets_of(const std::string& words) {
  std::vector<std::string> sets;
  constexpr std::string_view kOption = "--set ";
  for (size_t at = words.find(kOption); at != std::string::npos;) {
    const size_t next = words.find(kOption, at + 1);
    std::string set(trim(std::string_view(words).substr(at + kOption.size(), next - at - kOption.size())));
    if (set.size() >= 2 && set.front() == '\'' && set.back() == '\'') set = set.substr(1, set.size() - 2);
    sets.push_back(std::move(set));
    at = next;
  }
  return sets;
}

// Whether the plan is possible with these changes, and then whether it fits.
struct Trial {
  bool possible = false;
  std::optional<Plan> plan;
};
Trial try_sets(PlanArguments arguments, const std::vector<std::string>& sets) {
  arguments.recipe.sets.insert(arguments.recipe.sets.end(), sets.begin(), sets.end());
  const auto input = if_possible([&] { return plan_input(arguments, {}); });
  if (!input) return {};
  return {true, if_possible([&] {
                  return FittingPlans(input->request).within(input->request.target.budget);
                }).value_or(std::nullopt)};
}

// Keys of the recipe that hold the planner back, let go.
std::vector<std::string> releases(const PlanRequest& request) {
  std::vector<std::string> sets;
  if (request.choices.micro_batch) sets.emplace_back("batch.micro=auto");
  if (request.choices.recompute) sets.emplace_back("memory.recompute=auto");
  if (request.choices.loss_chunk) sets.emplace_back("memory.loss_chunk=auto");
  return sets;
}

std::string set_words(const std::vector<std::string>& sets) {
  std::string words;
  for (const std::string& set : sets) words += (words.empty() ? "--set " : " --set ") + quoted(set);
  return words;
}

// All at once, as the planner chooses: what fits the device, the nearest to the recipe as it stands.
std::optional<Step> combination(const PlanArguments& arguments, const PlanRequest& request,
                                int64_t base_bytes) {
  const auto step = [&](const Plan& plan, const std::string& effect, bool lossless,
                        const std::vector<std::string>& sets) {
    return Step{"this fits: " + effect + variant_words(plan.request.workload.experiment, plan.variant) +
                    " (" + format_bytes(plan.memory_bytes()) + " of " +
                    format_bytes(memory_budget(plan.request).value_or(0)) + " planned)",
                std::max<int64_t>(1, base_bytes - plan.memory_bytes()),
                lossless,
                set_words(sets),
                false,
                plan.seconds_per_step};
  };
  const std::vector<std::string> open = releases(request);
  if (const Trial trial = try_sets(arguments, open); trial.plan) return step(*trial.plan, "", true, open);
  for (const auto& [method, effect] : {std::pair{"method.type=lora", "adapters (LoRA), "},
                                       std::pair{"method.type=qlora", "a base in 4 bits (QLoRA), "}})
    for (int64_t length = request.workload.experiment.max_length; length >= 256; length /= 2) {
      std::vector<std::string> sets = open;
      sets.emplace_back(method);
      const bool shorter = length < request.workload.experiment.max_length;
      if (shorter) sets.push_back("data.max_length=" + std::to_string(length));
      if (const Trial trial = try_sets(arguments, sets); trial.plan)
        return step(*trial.plan, effect + (shorter ? format_count(length) + " tokens, " : ""), false, sets);
      if (effect[0] == 'a') break;  // the other method changes less than shorter rows
    }
  return std::nullopt;
}

// Steps whose command `plan` would refuse are left out; of the others, whether they do by themselves.
// `timed`: the planner knows the device's speed.
void keep_possible(const PlanArguments& arguments, bool timed, std::vector<Step>& steps) {
  std::vector<Step> kept;
  for (Step& step : steps) {
    const Trial trial = try_sets(arguments, sets_of(step.command));
    if (!trial.possible) continue;
    step.what += trial.plan ? "; this alone fits" : "; alone it does not fit";
    if (trial.plan && timed) step.seconds = trial.plan->seconds_per_step;
    kept.push_back(std::move(step));
  }
  steps = std::move(kept);
}

}  // namespace

void plan_steps(const RecipeArguments& given, Diagnosis& diagnosis) {
  RecipeArguments arguments = given;
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
  Planner planner(recipe, arguments.sources->models, planned_machine(arguments.machine(recipe), ""));
  const bool as_it_is = printable(arguments.path) == arguments.path;
  const std::string file = as_it_is ? plimsoll::quoted(arguments.path) : "RECIPE";
  diagnosis.notes.push_back(
      "planned from " + printable(arguments.path) + ": " + format_bytes(planner.base_bytes()) +
      " as it stands (" + planner.base_words() +
      "), as Plimsoll's own program; another tool's takes other bytes, and saves about as many");
  const bool of_states =
      diagnosis.message && diagnosis.message->during.find("optimizer") != std::string_view::npos;
  std::vector<Step> planned = planner.steps(of_states && !on_host);
  const doctor::Bytes* asked = diagnosis.message ? diagnosis.message->size("tried") : nullptr;
  if (asked != nullptr && !diagnosis.tensor && !on_host)
    if (diagnosis.tensor = doctor::shape_of(*asked, planner.shapes()); diagnosis.tensor)
      diagnosis.notes.push_back(doctor::tensor_words(*asked, *diagnosis.tensor));
  const bool timed = !on_host && device.empty();  // on the card that the recipe names
  const bool bounded = timed || (!on_host && recipe.memory.device.kind == MemoryLimit::Kind::bytes &&
                                 recipe.memory.device.bytes < kUnknownCard);
  const PlanArguments as_read = as_commands_read(arguments, device, recipe);
  if (bounded) {
    keep_possible(as_read, timed, planned);
    if (auto fits = combination(as_read, planner.request(), planner.base_bytes())) {
      if (!timed) fits->seconds = 0;
      planned.insert(planned.begin(), *std::move(fits));
    } else {
      diagnosis.notes.push_back(
          "nothing that was planned fits " +
          (timed ? "the " + *recipe.memory.gpu : format_bytes(recipe.memory.device.bytes)) +
          ", not even a base in 4 bits with short rows");
    }
    if (!timed && !recipe.memory.gpu)
      diagnosis.notes.emplace_back(
          "with the card's name each step has its seconds: --set 'memory.gpu=RTX 4090'");
  }
  const std::string words = given_words(arguments, device);
  for (Step& step : planned)
    step.command =
        "plimsoll plan " + file + device + words + (step.command.empty() ? "" : " " + step.command);
  auto& steps = diagnosis.steps;
  steps.erase(std::remove_if(steps.begin(), steps.end(), [](const Step& step) { return step.shrinks; }),
              steps.end());
  steps.insert(steps.end(), planned.begin(), planned.end());
}

}  // namespace plimsoll
