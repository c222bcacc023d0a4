// plimsoll fit MODEL: which methods at which lengths fit this machine or a card.
#include "advise/fit.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/format.h"
#include "base/print.h"
#include "base/printable.h"
#include "base/screen.h"
#include "base/shell_word.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/plan/fit_text.h"
#include "cli/plan/plan_command.h"
#include "device/catalogue.h"
#include "fleet/devices/gpu.h"
#include "models/model.h"
#include "models/shapes.h"
#include "prepare/devices/device_choice.h"
#include "prepare/own_cards.h"
#include "recipe/hub.h"

namespace plimsoll {
namespace {

struct FitArguments {
  std::string model, gpu, memory, host_memory, max_isa;
  std::string lengths = "512,2048,8192,32768", methods = "qlora,lora,full";
  bool json = false, list = false;
};

// A device with the command line that plans for it.
struct RequestedDevice {
  FitDevice device;
  PlanArguments plan;
};

std::string task_of(const ModelSpec& spec) {
  if (spec.encoder || spec.scores_sequences) return "classify";
  return spec.encoder_decoder ? "seq2seq" : "sft";
}

FitModel read_model(const RecipeArguments& recipe) {
  const std::filesystem::path path = recipe.path;
  std::error_code unknown;
  const bool is_file = std::filesystem::is_regular_file(path, unknown);
  if (is_file && path.filename() != "config.json") {
    refuse_rows_and_weights(recipe.path);
    refuse_rows_in_json(recipe.path);
    throw UsageError(
        formatted("{}: is a file; fit takes a model's name, its folder or its config.json. For a recipe: "
                  "plimsoll plan {}",
                  recipe.path, quoted(recipe.path)));
  }
  const LoadedRecipe loaded = recipe.read();
  require_present(loaded);
  ModelFiles& files = *recipe.sources->models;
  FitModel model{recipe.path, files.spec(loaded.recipe.model),         0,
                 "",          known_model(loaded.recipe.model, files), false};
  if (is_file) model.name = path.has_parent_path() ? path.parent_path().string() : ".";
  if (model.known && model.known->is_built_in)
    model.name = model.known->named.name;
  else if (const auto hub = hub_model_of(loaded.recipe.model))
    model.name = hub->name;  // as typed it may be in other letters, which not every command takes
  model.task = task_of(model.spec);
  model.lacks_labels = model.task == "classify" && !files.config(loaded.recipe.model).contains("id2label");
  model.parameters =
      count_parameters(model.spec, model.spec.encoder ? std::max<int64_t>(model.spec.labels, 1) : 0);
  return model;
}

PlanArguments plan_arguments(const FitArguments& arguments, const FitModel& model) {
  PlanArguments plan;
  plan.recipe.path = model.name;
  plan.recipe.takes_shapes = true;
  plan.recipe.max_isa = arguments.max_isa;
  if (model.task != "sft") plan.recipe.change("task", model.task);
  if (model.lacks_labels) plan.recipe.change("classify.labels", "[no, yes]");
  if (!arguments.memory.empty()) plan.recipe.change("memory.device", arguments.memory);
  if (!arguments.gpu.empty()) plan.recipe.change("memory.gpu", arguments.gpu);
  return plan;
}

// The card that is named; else one of each model that this machine has, and its CPU.
std::vector<RequestedDevice> devices_of(const FitArguments& arguments, const PlanArguments& plan) {
  std::vector<RequestedDevice> devices;
  const auto add_card = [&](const PlanArguments& of_card, const std::string& words) {
    devices.push_back({{}, of_card});
    devices.back().device.words = words;
    devices.back().device.is_card = true;
    if (!arguments.host_memory.empty())
      devices.back().plan.recipe.change("memory.host", arguments.host_memory);
  };
  if (!arguments.gpu.empty()) {
    add_card(plan, arguments.gpu);
    return devices;
  }
  std::set<std::string> seen;
  for (const devices::Gpu& gpu : own_cards().gpus) {
    if (gpu.problem.empty() && !seen.insert(gpu.name).second) continue;
    PlanArguments of_card = plan;
    of_card.recipe = plan.recipe.on_device("cuda:" + gpu.uuid);
    add_card(of_card, printable(gpu.name.empty() ? gpu.uuid : gpu.name));
    if (!gpu.problem.empty()) devices.back().device.problem = gpu.problem;
  }
  if (devices.empty() && !arguments.host_memory.empty())
    throw UsageError(
        "--host-memory: is for the host of a GPU, and this machine has no usable GPU; name one: "
        "--gpu CARD");
  devices.push_back({{}, plan});
  devices.back().plan.recipe = plan.recipe.on_device("cpu");
  return devices;
}

std::string speed_source(const DeviceDescription& device) {
  if (!device.card_name.empty()) return "speeds: +-30 %, by the data sheet of the " + device.card_name;
  return device.rates.calibrated
             ? "speeds: measured on this machine (plimsoll calibrate)"
             : "speeds: guessed, as this machine is not calibrated (plimsoll calibrate --quick)";
}

// Fills in what is the same for all cells.
void describe(const PlanRequest& request, FitDevice& device) {
  const Target& target = request.target;
  if (!target.device.card_name.empty()) device.words = target.device.card_name;
  if (!device.is_card)
    device.words =
        formatted("CPU, {}{}", target.device.threads, target.device.threads == 1 ? " thread" : " threads");
  device.own_memory = target.own_memory;
  device.memory_bytes = memory_budget(request);
  device.host_bytes = target.budget.host_bytes;
  device.precision = to_string(request.workload.experiment.precision.compute);
  device.speeds = speed_source(target.device);
}

// Plans all cells, chunk by chunk and method by method; `show` prints each row.
using ShowRow = std::function<void(const std::string& text)>;
void plan_cells(const FitArguments& arguments, const FitModel& model, RequestedDevice& requested,
                const FitLayout& layout, const ShowRow& show) {
  const WhatIf what_if = [&](const Changes& changes) { return plan_input(requested.plan, changes); };
  const auto lengths = read_lengths(arguments.lengths, "--lengths");
  const auto methods = read_methods(arguments.methods, "--methods");
  for (size_t first = 0; first < lengths.size(); first += layout.across) {
    const std::vector<int64_t> some(
        lengths.begin() + static_cast<std::ptrdiff_t>(first),
        lengths.begin() + static_cast<std::ptrdiff_t>(std::min(first + layout.across, lengths.size())));
    show(fit_head_text(some, layout));
    for (const std::string& method : methods) {
      std::vector<FitCell> row;
      for (const int64_t length : some)
        row.push_back(fit_cell(what_if, method, length, model.spec.longest_text(),
                               row.empty() ? nullptr : &row.back()));
      show(fit_row_text(method, row, layout));
      requested.device.cells.insert(requested.device.cells.end(), row.begin(), row.end());
    }
  }
}

// The command that plans for a card of this machine that cannot be used, as for one elsewhere; empty where its model is
// not known.
std::string how_to_plan_for(const std::string& card, const RequestedDevice& requested) {
  try {
    find_card(card, "--gpu");
  } catch (const UsageError&) {
    return "";
  }
  return formatted(". What fits such a card elsewhere: plimsoll fit {} --gpu {}",
                   quoted(requested.plan.recipe.path), quoted(card));
}

// Fills in the budget, or why nothing can be planned for it; for the CPU and a card that is named that is an error.
void prepare(const FitArguments& arguments, RequestedDevice& requested) {
  FitDevice& device = requested.device;
  device.plan_words = requested.plan.recipe.words();
  const auto describe_it = [&] {
    describe(plan_input(requested.plan, {{"method.type", "lora"}}).request, device);
  };
  if (!device.is_card || !arguments.gpu.empty()) return describe_it();
  if (!device.problem.empty()) return;
  try {
    describe_it();
  } catch (const UsageError& error) {
    device.problem =
        formatted("cannot be used: {}{}", reason_of(error), how_to_plan_for(device.words, requested));
  }
}

void plan_device(const FitArguments& arguments, const FitModel& model, RequestedDevice& requested,
                 size_t columns, const ShowRow& show) {
  show(fit_device_text(requested.device, columns));
  if (!requested.device.problem.empty()) return;
  const size_t lengths = read_lengths(arguments.lengths, "--lengths").size();
  plan_cells(arguments, model, requested, fit_layout(lengths, columns), show);
  show("\n" + fit_foot_text(model, requested.device, columns));
}

// The catalogue by name, with what this version says of each model.
ExitCode list_models(bool json) {
  nlohmann::ordered_json models = nlohmann::ordered_json::array();
  std::string text;
  for (const ModelShape& shape : model_shapes()) {
    std::vector<std::string> names = shape.same_shape;
    names.insert(names.begin(), shape.name);
    const std::string why_not = why_not_trained(shape);
    for (const std::string& name : names) {
      const bool here = find_in_hub_cache(HubKind::model, name).has_value();
      nlohmann::ordered_json model = {{"name", name}, {"parameters", shape.parameters}};
      model["trained"] = why_not.empty();
      model["why_not"] = nullptr;
      if (!why_not.empty()) model["why_not"] = why_not;
      model["here"] = here;
      models.push_back(std::move(model));
      text +=
          formatted("{}  {}{}{}\n", name, format_number("%.2fB", static_cast<double>(shape.parameters) / 1e9),
                    here ? "  here" : "", why_not.empty() ? "" : "  not trained: fit NAME says why");
    }
  }
  nlohmann::ordered_json answer;
  answer["models"] = std::move(models);
  print(json ? json_text(answer) : text);
  return ExitCode::ok;
}

ExitCode run(const FitArguments& arguments) {
  if (arguments.list) return list_models(arguments.json);
  if (arguments.model.empty())
    throw UsageError("MODEL is missing: name a model, or list those that are known: --list");
  keep_freed_memory();
  (void)read_lengths(arguments.lengths, "--lengths");
  (void)read_methods(arguments.methods, "--methods");
  RecipeArguments named;
  named.path = arguments.model;
  named.takes_shapes = true;
  const FitModel model = read_model(named);
  const size_t columns = std::min<size_t>(output_columns(), 100);
  const ShowRow show = [&](const std::string& text) {
    if (arguments.json) return;
    print(text);
    flush_output();
  };
  std::vector<RequestedDevice> asked_for = devices_of(arguments, plan_arguments(arguments, model));
  for (RequestedDevice& requested : asked_for) prepare(arguments, requested);
  show(fit_model_text(model, columns));
  std::vector<FitDevice> devices;
  bool fits = false;
  for (RequestedDevice& requested : asked_for) {
    plan_device(arguments, model, requested, columns, show);
    fits = fits || requested.device.fits();
    devices.push_back(std::move(requested.device));
  }
  if (arguments.json) print(json_text(fit_json(model, devices)));
  return fits ? ExitCode::ok : ExitCode::does_not_fit;
}

}  // namespace

void add_fit(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<FitArguments>();
  CLI::App* command =
      app.add_subcommand("fit", "which methods at which lengths fit, by a model's name alone");
  command->add_option("model", arguments->model,
                      "a model's name on the Hugging Face hub, a model folder or its config.json");
  command->add_option("--gpu", arguments->gpu,
                      "a GPU by name, such as \"RTX 3060 12GB\", instead of this machine");
  command->add_option("--memory", arguments->memory, "memory budget of the device: a size, a share, or auto");
  command->add_option("--host-memory", arguments->host_memory,
                      "host memory budget next to a GPU: a size, a share, or auto");
  command->add_option("--lengths", arguments->lengths, "lengths of rows in tokens")
      ->type_name("A,B")
      ->capture_default_str();
  command->add_option("--methods", arguments->methods, "methods of fine-tuning: qlora, lora, full")
      ->type_name("A,B")
      ->capture_default_str();
  command->add_flag("--list", arguments->list, "list the models of the built-in catalogue instead");
  command->add_flag("--json", arguments->json, "JSON output (docs/reference/json.md)");
  command->add_option("--max-isa", arguments->max_isa,
                      "highest instruction set to use: avx2, avx512, avx512-bf16 or amx");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace plimsoll
