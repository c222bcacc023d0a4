#include <malloc.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>

#include "advise/faster.h"
#include "advise/savings.h"
#include "base/format.h"
#include "base/print.h"
#include "base/screen.h"
#include "base/shell_word.h"
#include "base/units.h"
#include "cli/caller_arguments.h"
#include "cli/machine_rates.h"
#include "cli/plan/plan_command.h"
#include "files/atomic.h"
#include "plan/report/timeline.h"
#include "plan/search/refusal.h"
#include "plan/search/run_time.h"
#include "prepare/allowed.h"
#include "prepare/devices/device_choice.h"
#include "prepare/dump_rows.h"
#include "recipe/hub.h"
#include "report/event_stream.h"
#include "report/history.h"
#include "report/progress.h"

namespace plimsoll {
namespace {

// On a terminal: rows that were read.
std::function<void(int64_t, int64_t)> counting_progress() {
  return [progress = std::make_shared<Progress>(LogLevel::info, 1)](int64_t done, int64_t rows) {
    CallerArguments::Observer(*progress).get()->counting(done, rows);
  };
}

ChosenDevice chosen_device(const PlanArguments& arguments, const LoadedRecipe& loaded) {
  return choose_device(loaded, {.elsewhere = !arguments.machine.empty(), .nodes = arguments.recipe.nodes});
}

std::optional<StatedRows> stated_rows(const PlanArguments& arguments) {
  if (arguments.stated_rows == 0) return std::nullopt;
  return StatedRows{arguments.stated_rows, arguments.stated_tokens};
}

PlanInput input_of(const PlanArguments& arguments, const ChosenDevice& chosen, const MachineOptions& machine,
                   bool full_rows = false) {
  return plan_input(chosen.recipe, machine,
                    {arguments.recipe.sources->models, arguments.rows, arguments.machine, arguments.count,
                     counting_progress(), stated_rows(arguments)},
                    full_rows);
}

// Asked of a command line that is like these arguments but for what is changed.
PlanArguments with_changes(const PlanArguments& arguments, const Changes& changes) {
  PlanArguments changed;
  changed.recipe = arguments.recipe;
  for (const auto& [key, value] : changes) changed.recipe.change(key, value);
  changed.machine = arguments.machine;
  changed.rows = arguments.rows;
  changed.stated_rows = arguments.stated_rows;
  changed.stated_tokens = arguments.stated_tokens;
  return changed;
}

// Options of plan that say nothing of the recipe.
std::string own_words(const PlanArguments& arguments) {
  std::string words = arguments.machine.empty() ? "" : " --machine " + quoted(arguments.machine);
  if (arguments.stated_rows > 0)
    words += formatted(" --rows {} --tokens {}", arguments.stated_rows, arguments.stated_tokens);
  return words;
}

constexpr int64_t kDumpedRows = 100;
constexpr int64_t kMostStatedRows = 10'000'000'000, kMostStatedTokens = 100'000'000;

// On a terminal, where a search takes longer than a breath: how much of it is done.
std::function<void(size_t, size_t)> search_progress() {
  using Clock = std::chrono::steady_clock;
  static constexpr auto kQuiet = std::chrono::seconds(2);
  if (isatty(STDERR_FILENO) == 0) return {};
  return [begin = Clock::now(), shown = false](size_t done, size_t all) mutable {
    if (Clock::now() - begin < kQuiet && !shown) return;
    shown = done < all;
    std::fputs(shown ? formatted("\rplanning: {} of {} ways to cut it", done, all).c_str() : "\r\033[K",
               stderr);
  };
}

ExitCode run_report(const PlanArguments& arguments);

PageOrigin page_origin(const PlanArguments& arguments, const Recipe& recipe) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return {model_name(recipe.model),
          formatted("plimsoll plan {}{} --html {}", arguments.recipe.words(), own_words(arguments),
                    quoted(arguments.html)),
          clock_words(now) + ", plimsoll " PLIMSOLL_VERSION};
}

// Plans on the CPU, to which device: auto falls back when the card is too small.
ExitCode run_on_cpu(const PlanArguments& arguments, const Plan& refused) {
  say(too_small_line(refusal_text(refused)));
  PlanArguments on_cpu = arguments;
  on_cpu.recipe.change("device", "cpu");
  return run_report(on_cpu);
}

std::vector<Way> ways_of(const PlanArguments& arguments, const Recipe& recipe, const Plan& refused) {
  return ways_out(variants_of("plan", arguments), recipe, refused.request, refusal_of(refused));
}

// To the program that started this one.
void tell_plan(const Plan& plan) {
  EventStream* const events = EventStream::of_process();
  if (events == nullptr) return;
  const nlohmann::ordered_json told = {{"feasible", plan.fits()},
                                       {"planned_process_bytes", plan.process_peak_bytes()},
                                       {"planned_device_bytes", plan.arena_bytes()},
                                       {"planned_seconds_per_step", plan.seconds_per_step}};
  events->send("plan", told.dump());
}

// The same on one device, of unlike ones the largest, where several are planned; none where it does not fit there or
// cannot be planned.
std::optional<Plan> on_one_device(const PlanArguments& arguments, const Recipe& recipe) {
  if (recipe.devices == 1) return std::nullopt;
  Changes one = {{"devices", "1"}};
  int64_t largest = 0;
  for (const auto& [rank, bytes] : recipe.memory.device.each) largest = std::max(largest, bytes);
  if (largest > 0) one.push_back({"memory.device", formatted("{}MiB", largest / kMiB)});
  try {
    const PlanInput input = plan_input(arguments, one);
    Plan one = plan_allowed(input.resolved, input.machine, input.data.get()).plan;
    return one.fits() ? std::optional(std::move(one)) : std::nullopt;
  } catch (const UsageError&) {  // a key that needs several devices
    return std::nullopt;
  }
}

// "" where several devices are as fast.
std::string one_is_faster(const Plan& one, const Plan& several) {
  if (one.seconds_per_step >= several.seconds_per_step) return "";
  return formatted("one device is faster: {} a step, {} devices take {}\n\n",
                   duration_words(one.seconds_per_step), several.request.workload.experiment.ranks,
                   duration_words(several.seconds_per_step));
}

ExitCode run_report(const PlanArguments& arguments) {
  const RequestedPlan requested = plan_of(arguments);
  const PlanInput& input = requested.input;
  if (arguments.dump == "rows") {
    if (!input.data) throw UsageError("--dump rows: the recipe names no rows (data.train)");
    DataSetup data = open_data(input.resolved, {}, false, input.data.get());
    print(dump_rows(*data.train, kDumpedRows));
    return ExitCode::ok;
  }
  AllowedPlan allowed =
      plan_allowed(input.resolved, input.machine, input.data.get(), {}, true, search_progress());
  Plan& plan = allowed.plan;
  if (!plan.fits() && requested.card_by_itself) return run_on_cpu(arguments, plan);
  tell_plan(plan);
  if (!arguments.dump.empty()) {
    print(dump(plan, arguments.dump));
    return ExitCode::ok;
  }
  plan.savings = not_allowed_savings(input, allowed.recipe, plan);
  plan.faster = faster_runs([&](const Changes& assumed) { return plan_input(arguments, assumed); },
                            allowed.recipe, plan);
  const std::optional<Plan> one = on_one_device(arguments, input.resolved.recipe);
  if (!arguments.html.empty())
    write_file_atomically(arguments.html, timeline_page(plan, page_origin(arguments, input.resolved.recipe)));
  if (arguments.json) {
    nlohmann::ordered_json report = nlohmann::ordered_json::parse(report_json(plan));
    if (!requested.other_tools.empty()) report["other_tools"] = key_report_json(requested.other_tools);
    if (one) report["devices"]["seconds_per_step_of_one"] = one->seconds_per_step;
    if (!plan.fits()) report["ways"] = ways_json(ways_of(arguments, input.resolved.recipe, plan));
    print(json_text(report));
    return plan.fits() ? ExitCode::ok : ExitCode::does_not_fit;
  }
  if (arguments.timeline) print(timeline_text(plan, output_columns()));
  if (!plan.fits())
    throw DoesNotFitError(refusal_text(plan) + told_ways(ways_of(arguments, input.resolved.recipe, plan)));
  if (!arguments.timeline) {
    if (one) print(one_is_faster(*one, plan));
    const ScreenSize screen = screen_of(STDOUT_FILENO);
    const bool whole = arguments.full || !screen.is_terminal;
    print(whole ? report_text(plan, screen.columns) : brief_report_text(plan, screen.columns, screen.rows));
  }
  if (!arguments.html.empty()) print(formatted("\n  page       {}\n", arguments.html));
  return ExitCode::ok;
}

ExitCode run(const PlanArguments& arguments) {
  keep_freed_memory();
  const int requested = (arguments.compare.empty() ? 0 : 1) + (arguments.sweep.empty() ? 0 : 1) +
                        (arguments.max.empty() ? 0 : 1) + (arguments.timeline ? 1 : 0) +
                        (arguments.explain ? 1 : 0) + (arguments.dump.empty() ? 0 : 1);
  if (arguments.stated_rows > 0 && !arguments.recipe.read().recipe.data.train.empty())
    throw UsageError("--rows, --tokens: the recipe names rows (data.train), which are read");
  if (requested > 1)
    throw UsageError(
        "--compare, --sweep, --max, --timeline, --explain and --dump are different answers: ask for one");
  if (!arguments.compare.empty()) return run_compare(arguments);
  if (!arguments.sweep.empty()) return run_sweep(arguments);
  if (!arguments.max.empty()) return run_max(arguments);
  if (arguments.explain) return run_explain(arguments);
  return run_report(arguments);
}

}  // namespace

void keep_freed_memory() { mallopt(M_TRIM_THRESHOLD, 256 << 20); }

RequestedPlan plan_of(const PlanArguments& arguments) {
  LoadedRecipe loaded = arguments.recipe.load();
  const ChosenDevice chosen = chosen_device(arguments, loaded);
  for (const std::string& line : chosen.lines) say(line);
  const bool of_this_machine = arguments.machine.empty() && !chosen.recipe.is_of_card();
  if (!arguments.recipe.no_probe && of_this_machine)
    probe_where_unknown(planned_machine(arguments.recipe.machine(loaded.recipe), "").cpu,
                        loaded.recipe.memory.device, arguments.json);
  return {input_of(arguments, chosen, arguments.recipe.machine(chosen.recipe)), std::move(loaded.other_tools),
          chosen.by_itself};
}

PlanInput plan_input(const PlanArguments& arguments, const Changes& assumed, bool full_rows) {
  std::vector<std::string> what_if;
  for (const KeyChange& change : assumed) what_if.push_back(change.assignment());
  const ChosenDevice chosen = chosen_device(arguments, arguments.recipe.load_what_if(what_if));
  RecipeArguments recipe = arguments.recipe;
  if (std::ranges::any_of(assumed, [](const KeyChange& change) { return change.key == "devices"; }))
    recipe.leave_out_idle_nodes(chosen.recipe.devices);
  return input_of(arguments, chosen, recipe.machine(chosen.recipe), full_rows);
}

Variants variants_of(const std::string& command, const PlanArguments& arguments) {
  return {[&](const Changes& changes) { return plan_input(with_changes(arguments, changes), {}); },
          [&arguments, command](const Changes& changes) {
            return formatted("plimsoll {} {}{}", command, with_changes(arguments, changes).recipe.words(),
                             own_words(arguments));
          }};
}

namespace {

// Options of plans for several devices.
void add_devices_options(CLI::App& command, RecipeArguments& recipe) {
  command
      .add_option(
          "--link", recipe.link,
          "with --devices: bytes per second that a device sends another one while it receives as many, "
          "such as 20GB/s")
      ->type_name("SIZE/s");
  command
      .add_option("--nodes", recipe.nodes,
                  "with --devices: machines like this one that share them; memory, disk and CPUs are of each")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->type_name("COUNT");
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand(
      "plan", "peak memory of a run to the byte, before it starts; exit 3 if it does not fit");
  arguments->recipe.add_to(*command, true);
  arguments->recipe.takes_shapes = true;
  command
      ->add_option("--compare", arguments->compare,
                   "plan all combinations: method=full,lora optimizer=adamw,adamw8bit")
      ->type_name("KEY=A,B");
  command->add_option("--sweep", arguments->sweep, "the fastest plan of each budget: memory=2GiB..24GiB")
      ->type_name("KEY=A..B");
  command->add_option("--max", arguments->max, "the largest value that fits")
      ->type_name("TEXT:{length,micro_batch}");
  command->add_flag("--count", arguments->count,
                    "scan the whole dataset for sequence lengths, as train does, instead of sampling");
  CLI::Option* const rows =
      command->add_option("--rows", arguments->stated_rows, "plan without data: so many rows to train on")
          ->check(CLI::Range(int64_t{1}, kMostStatedRows))
          ->type_name("COUNT");
  CLI::Option* const tokens =
      command->add_option("--tokens", arguments->stated_tokens, "with --rows: tokens of a row on average")
          ->check(CLI::Range(int64_t{1}, kMostStatedTokens))
          ->type_name("COUNT");
  add_devices_options(*command, arguments->recipe);
  rows->needs(tokens);
  tokens->needs(rows);
  command->add_flag("--full", arguments->full,
                    "print the whole report on a terminal, not only the first 24 lines");
  command->add_flag("--explain", arguments->explain,
                    "explain each component and what it grows with, by layer and by kind of tensor");
  command->add_flag("--timeline", arguments->timeline, "draw memory over the ops of a step in the terminal");
  command
      ->add_option("--machine", arguments->machine,
                   "plan for another machine: a file written there by calibrate --export")
      ->type_name("FILE");
  command->add_option("--html", arguments->html, "write the report with its memory timeline as an HTML page")
      ->type_name("FILE");
  command->add_flag("--json", arguments->json, "JSON output (docs/reference/json.md)");
  command->add_option(
      "--dump", arguments->dump,
      "print graph, program, layout or table instead of the report, the programs after a pass "
      "(docs/reference/formats.md), or token ids and labels of rows");
  arguments->caller.add_to(*command);
  command->callback([arguments, &action] {
    action = [arguments] {
      arguments->caller.begin("plan");
      return run(*arguments);
    };
  });
}

}  // namespace plimsoll
