// plimsoll queue add: a recipe, planned, or a command with its stated needs.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/format.h"
#include "base/print.h"
#include "base/screen.h"
#include "base/shell_word.h"
#include "base/units.h"
#include "cli/queue/queue_commands.h"
#include "cli/queue/queue_configs.h"
#include "cli/queue/queue_recipe.h"
#include "cli/usage_text.h"
#include "fleet/devices/gpu.h"
#include "fleet/queue/packing/planned.h"
#include "fleet/queue/store/sweep.h"
#include "prepare/own_cards.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

using Copies = std::vector<std::unique_ptr<ConfigCopies>>;

struct AddArguments {
  std::vector<std::string> words, sets, environment, sweeps, zips, yaml_sets, on_oom;
  std::vector<int64_t> after;
  std::string memory, host_memory, gpu, devices, name, group, plan;
  int threads = 0, priority = 0, retries = 2;
  double seconds = 0;
  bool json = false;
};

bool is_recipe(const std::vector<std::string>& words) {
  const std::string end = fs::path(words.front()).extension().string();
  return words.size() == 1 && (end == ".yaml" || end == ".yml" || end == ".json");
}

void fill_command(const AddArguments& arguments, queue::Entry& entry) {
  if (!arguments.gpu.empty())
    throw UsageError("--gpu is for recipes, which are planned for the card; commands take --devices");
  if (!arguments.plan.empty())
    throw UsageError(
        "--plan is for recipes: a command has no plans to choose from; --on-oom names smaller ones");
  if (!arguments.sets.empty())
    throw UsageError("--set is for recipes; commands take --env, --yaml-set, --sweep and their own options");
  const DeviceCounts devices = read_device_counts(arguments.devices);
  if (devices.is_open())
    throw UsageError(formatted(
        "--devices {}: a command takes as many devices as it was written for; a recipe takes what there is",
        arguments.devices));
  if (devices.most == 0 && !arguments.host_memory.empty())
    throw UsageError("--host-memory is for commands with --devices; --memory is all that this one takes");
  const bool on_devices = devices.most > 0;
  const std::string& host = on_devices ? arguments.host_memory : arguments.memory;
  entry.words = arguments.words;
  entry.need.devices = devices.most;
  if (on_devices && !arguments.memory.empty())
    entry.need.device_bytes = parse_bytes(arguments.memory, "--memory");
  if (!host.empty()) entry.need.host_bytes = parse_bytes(host, on_devices ? "--host-memory" : "--memory");
  entry.need.threads = std::max(1, arguments.threads);
}

// The peak of earlier runs of the command, and a tenth more: peaks are looked at four times a second.
int64_t with_margin(int64_t peak) { return peak + std::max(peak / 10, 16 * kMiB); }

// One resource of a command: the stated amount, and what runs of it took before.
struct LearnedPart {
  const char* option;
  std::string where;    // "of the host"
  std::string what;     // behind "is missing: what the command takes"
  int64_t peak, least;  // of runs that were done, and of any attempt
  std::string unknown;  // why nothing is known of it
};

// Takes what earlier runs took where no amount is stated; and more than is stated where that has been too
// little before.
void use_part(const LearnedPart& part, int runs, int64_t& bytes) {
  if (bytes == 0) {
    if (part.peak == 0)
      throw UsageError(
          formatted("{} is missing: what the command takes{}; {}", part.option, part.what, part.unknown));
    bytes = with_margin(part.peak);
    say(formatted("note    it took up to {}{} in {}{} before: reserves {}", format_bytes(part.peak),
                  part.where, runs, runs == 1 ? " run" : " runs", format_bytes(bytes)));
  } else if (part.least > bytes) {
    say(formatted("note    it took {}{} before, more than {}: reserves {}", format_bytes(part.least),
                  part.where, format_bytes(bytes), format_bytes(with_margin(part.least))));
    bytes = with_margin(part.least);
  }
}

void use_what_was_learned(queue::Store& store, queue::Entry& entry) {
  const queue::Learned learned = store.learned(entry.fingerprint);
  const bool on_devices = entry.need.devices > 0;
  const std::string none = "no earlier run of it on this machine has a known peak";
  if (on_devices)
    use_part({"--memory", " on a device", " on each device", learned.card_peak_bytes,
              learned.least_card_bytes, none},
             learned.runs, entry.need.device_bytes);
  use_part({on_devices ? "--host-memory" : "--memory", on_devices ? " of the host" : "",
            on_devices ? " of the host in addition to its devices" : ", all its processes together",
            learned.peak_bytes, learned.least_bytes, none},
           learned.runs, entry.need.host_bytes);
  if (entry.seconds <= 0) entry.seconds = learned.seconds;
}

void add_config_copies(const AddArguments& arguments, ConfigCopies& copies, queue::Entry& entry) {
  queue::Command command{entry.words, entry.environment};
  copies.change(arguments.yaml_sets, "--yaml-set", command);
  entry.words = command.words;
  entry.environment = command.environment;
}

// Adds the variants for when memory runs out: each step continues from the one before.
void add_variants(const std::vector<std::string>& texts, ConfigCopies& copies, queue::Entry& entry) {
  queue::Command command{entry.words, entry.environment};
  entry.fingerprint = queue::fingerprint(command, entry.folder, entry.need.devices);
  for (const std::string& text : texts) {
    std::string rest;
    const std::vector<std::string> changes = config_changes_of(text, rest);
    if (!changes.empty()) copies.change(changes, "--on-oom", command);
    if (changes.empty() || !rest.empty()) command = queue::changed_command(std::move(command), rest);
    entry.variants.push_back({text, command, queue::fingerprint(command, entry.folder, entry.need.devices)});
  }
}

void check_environment(const std::vector<std::string>& environment) {
  for (const std::string& one : environment)
    if (one.find('=') == std::string::npos || one.front() == '=')
      throw UsageError(formatted("--env: expected NAME=VALUE, found '{}'", one));
}

queue::Entry read_entry(const AddArguments& arguments) {
  queue::Entry entry;
  entry.name = !arguments.name.empty() ? arguments.name : queue::display_name(arguments.words);
  entry.group = arguments.group;
  entry.environment = arguments.environment;
  entry.folder = fs::current_path().string();
  entry.priority = arguments.priority;
  entry.retries = arguments.retries;
  entry.after = arguments.after;
  entry.seconds = arguments.seconds;
  entry.submitted =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return entry;
}

std::vector<RecipeEntry> read_recipes(const AddArguments& arguments) {
  if (!arguments.on_oom.empty())
    throw UsageError("--on-oom is for commands: a recipe is planned, and resumes with the same batch");
  if (!arguments.yaml_sets.empty())
    throw UsageError("--yaml-set is for the files of commands; recipes take --set");
  const RecipeToAdd recipe{.file = arguments.words.front(),
                           .sets = arguments.sets,
                           .sweeps = arguments.sweeps,
                           .zips = arguments.zips,
                           .memory = arguments.memory,
                           .host_memory = arguments.host_memory,
                           .gpu = arguments.gpu,
                           .devices = read_device_counts(arguments.devices),
                           .plan = arguments.plan,
                           .threads = arguments.threads};
  return read_recipes(recipe, read_entry(arguments));
}

// The command has "{lr}" for a set "lr=1e-4".
bool names_in_braces(const queue::Command& command, const std::string& set) {
  const std::string mark = formatted("{{{}}}", set.substr(0, set.find('=')));
  const auto has_mark = [&](const std::string& word) { return word.find(mark) != std::string::npos; };
  return std::ranges::any_of(command.words, has_mark) || std::ranges::any_of(command.environment, has_mark);
}

// A point of a sweep in a command's own words: "lr=1e-4", or "train.yaml:lr=1e-4". A value that stands in
// braces alone needs no option of that name.
void apply_point(const queue::SweepPoint& point, ConfigCopies& copies, queue::Command& command) {
  for (const std::string& set : point.sets) {
    std::string rest;
    if (const std::vector<std::string> changes = config_changes_of(set, rest); !changes.empty())
      copies.change(changes, "--sweep", command);
    else if (!names_in_braces(command, set) || queue::has_name(command, set))
      command = queue::changed_command(std::move(command), set, "--sweep");
  }
  for (std::string& word : command.words) word = with_values(word, point);
  for (std::string& one : command.environment) one = with_values(one, point);
}

// One for each point of a sweep.
std::vector<queue::Entry> read_commands(const AddArguments& arguments, queue::Store& store, Copies& copies) {
  std::vector<queue::Entry> entries;
  for (const queue::SweepPoint& point : queue::read_sweeps(arguments.sweeps, arguments.zips)) {
    queue::Entry& entry = entries.emplace_back(read_entry(arguments));
    fill_command(arguments, entry);
    copies.push_back(std::make_unique<ConfigCopies>(store));  // each run has files of its own
    add_config_copies(arguments, *copies.back(), entry);
    if (!point.suffix.empty()) {
      entry.name += "-" + point.suffix;
      queue::Command command{entry.words, entry.environment};
      apply_point(point, *copies.back(), command);
      entry.words = command.words;
      entry.environment = command.environment;
    }
    add_variants(arguments.on_oom, *copies.back(), entry);
    use_what_was_learned(store, entry);
  }
  return entries;
}

// A sweep is a group, of a name that no entry has yet.
void name_group(const AddArguments& arguments, queue::Store& store, std::vector<queue::Entry>& entries) {
  if (!arguments.group.empty() || (arguments.sweeps.empty() && arguments.zips.empty())) return;
  const std::string name = read_entry(arguments).name;
  std::set<std::string> taken;
  for (const queue::Entry& one : store.entries()) taken.insert(one.group);
  std::string group = name;
  for (int number = 2; taken.contains(group); ++number) group = formatted("{}-{}", name, number);
  for (queue::Entry& one : entries) one.group = group;
}

// "RTX 3060 12GB or 9.10 GiB on RTX 4090 24GB": what is reserved of the first stands before it.
std::string kinds_of_cards(const queue::Entry& entry) {
  const std::string emulated = emulates_cards() ? " (emulated)" : "";
  std::vector<std::string> kinds = {entry.need.card};
  std::string text = printable(devices::short_name(entry.need.card)) + emulated;
  for (const queue::SmallerPlan& plan : entry.smaller) {
    if (std::find(kinds.begin(), kinds.end(), plan.card) != kinds.end()) continue;
    kinds.push_back(plan.card);
    text += formatted(" or {} on {}{}", format_bytes(plan.device_bytes), printable(plan.card), emulated);
  }
  return text;
}

// "; or on 2 or 4 devices": the numbers of devices that the queue may choose instead.
std::string other_counts(const queue::Entry& entry) {
  std::set<int> counts;
  for (const queue::SmallerPlan& plan : entry.smaller)
    if (plan.processes > 0 && plan.processes != entry.need.processes) counts.insert(plan.processes);
  if (counts.empty()) return "";
  std::string text;
  for (const int count : counts) text += (text.empty() ? "; or on " : " or ") + std::to_string(count);
  return text + (counts.size() == 1 && *counts.begin() == 1 ? " device" : " devices");
}

std::string added_text(const queue::Entry& entry) {
  const queue::Need& need = entry.need;
  std::string text = formatted("added {} {}: ", entry.id, printable(entry.name));
  if (!need.card.empty())
    text += formatted("{} on {}{}, ", format_bytes(need.device_bytes),
                      need.devices > 1 ? formatted("each of {} ", need.devices) : "", kinds_of_cards(entry));
  else if (need.devices > 0)
    text += formatted("{} on each of {} devices, ", format_bytes(need.device_bytes), need.devices);
  text += format_bytes(need.host_bytes) + (need.devices > 0 ? " on the host, " : ", ") +
          std::to_string(need.threads) + (need.threads == 1 ? " thread" : " threads");
  if (need.devices == 0 && need.processes > 1)
    text += formatted(" for {} processes together", need.processes);
  if (entry.seconds > 0) text += ", about " + format_seconds(entry.seconds);
  return text + other_counts(entry);
}

std::string added_json(const AddArguments& arguments, queue::Store& store,
                       const std::vector<queue::Entry>& entries, const std::vector<RecipeEntry>& recipes) {
  nlohmann::ordered_json root = {{"entries", nlohmann::ordered_json::array()}};
  for (size_t i = 0; i < entries.size(); ++i) {
    nlohmann::ordered_json one = entry_json(store, entries[i]);
    if (i < recipes.size() && !recipes[i].presets.empty()) one["presets"] = presets_json(recipes[i]);
    root["entries"].push_back(std::move(one));
  }
  return json_text(arguments.sweeps.empty() && arguments.zips.empty() ? root["entries"].front() : root);
}

std::string added_text(queue::Store& store, const std::vector<queue::Entry>& entries,
                       const std::vector<RecipeEntry>& recipes) {
  std::string text;
  for (const queue::Entry& entry : entries) text += (text.empty() ? "" : "\n") + added_text(entry);
  if (entries.size() > 1)
    text += formatted("\ngroup {}: {} runs; plimsoll report {}--group {}{}", printable(entries.front().group),
                      entries.size(), recipes.empty() ? "--queue " : "", quoted(entries.front().group),
                      recipes.empty() ? " shows them" : " compares them");
  return formatted("{}{}\n{}", text, worker_note(store), presets_text(recipes));
}

// A folder holds one run. Another entry of it, or a run that is there, would end this one when its turn comes.
void require_free_outputs(queue::Store& store, const std::vector<queue::Entry>& entries) {
  for (const queue::Entry& entry : entries) {
    if (entry.output.empty()) continue;
    const std::string name_another =
        formatted("; name another folder: --output {}", quoted(entry.output + "-2"));
    for (const queue::Entry& other : store.open_entries())
      if (other.output == entry.output)
        throw UsageError(formatted("output: {} is the folder of entry {} ({}), which is {}{}", entry.output,
                                   other.id, printable(other.name), name_of(other.state), name_another));
    std::error_code unknown;
    if (fs::exists(fs::path(entry.output) / "metrics.jsonl", unknown))
      throw UsageError(formatted("output: {} holds a run already{}", entry.output, name_another));
  }
}

ExitCode run_add(const AddArguments& arguments) {
  check_environment(arguments.environment);
  std::vector<RecipeEntry> recipes;
  std::vector<queue::Entry> entries;
  const bool recipe = is_recipe(arguments.words);
  const std::string& first = arguments.words.front();
  const bool is_program = !recipe && !fs::is_directory(first) && access(first.c_str(), X_OK) == 0;
  if (arguments.words.size() == 1 && !is_program) {
    refuse_rows_and_weights(first);
    refuse_rows_in_json(first);
  }
  if (recipe) {
    recipes = read_recipes(arguments);
    for (const RecipeEntry& one : recipes) entries.push_back(one.entry);
  }
  queue::Store store(queue::queue_folder());
  Copies copies;
  if (!recipe) entries = read_commands(arguments, store, copies);
  require_free_outputs(store, entries);
  name_group(arguments, store, entries);
  const std::vector<int64_t> ids = store.add(entries);
  for (const auto& one : copies) one->keep();
  for (size_t i = 0; i < entries.size(); ++i) entries[i].id = ids[i];
  const std::string text =
      arguments.json ? added_json(arguments, store, entries, recipes) : added_text(store, entries, recipes);
  print(arguments.json ? text : fitted_to_terminal(text, STDOUT_FILENO));
  try {
    finish_output();
  } catch (const StoppedError& error) {  // adding it again would run it twice
    std::string numbers;
    for (const int64_t id : ids) numbers += (numbers.empty() ? "" : ", ") + std::to_string(id);
    throw StoppedError(
        formatted("{}; added all the same: entry {} (plimsoll queue list)", error.what(), numbers));
  }
  return ExitCode::ok;
}

void add_recipe_options(CLI::App& add, AddArguments& arguments) {
  add.add_option("--set", arguments.sets, "key=value: set a key of the recipe (may be repeated)")
      ->type_name("KEY=VALUE");
  // Shorthands for --set, under the words that people try first.
  for (const auto& [option, key] :
       {std::pair{"--lr", "optimizer.lr"}, std::pair{"--epochs", "schedule.epochs"},
        std::pair{"--output", "output"}}) {
    const auto take = [&arguments, key = std::string(key)](const std::string& value) {
      arguments.sets.insert(arguments.sets.begin(),
                            key == "output" ? assignment(key, value) : formatted("{}={}", key, value));
    };
    add.add_option_function<std::string>(option, take, "recipe: " + std::string(key));
  }
  add.add_option("--sweep", arguments.sweeps,
                 "key=1,2,3: one job per value; if repeated, one per combination. For a command, key is an "
                 "option's name, a variable of --env, FILE:key, or a name in braces, as in out/{lr}")
      ->type_name("KEY=VALUES");
  add.add_option("--zip", arguments.zips,
                 "key=1,2,3: as --sweep, but values of all --zip are paired: first with first, second with "
                 "second")
      ->type_name("KEY=VALUES");
  add.add_option(
         "--plan", arguments.plan,
         "recipe, as memory.plan: a: least memory at 5 % more time; b: the same with half of its "
         "micro-batch; c: least memory at twice the time; or fastest. By default the queue may take a "
         "smaller plan if all jobs then end sooner")
      ->check(CLI::IsMember({"a", "b", "c", "fastest"}))
      ->type_name("a|b|c|fastest");
}

}  // namespace

void add_queue_add(CLI::App& group, Action& action) {
  auto arguments = std::make_shared<AddArguments>();
  CLI::App* command = group.add_subcommand("add", "add a recipe or a command to the queue");
  command->add_option("run", arguments->words, "a recipe, or a command with its arguments after --")
      ->required();
  command
      ->add_option(
          "--memory", arguments->memory,
          "recipe: its memory budget; command: the memory it needs on each device, or on the host; by "
          "default what earlier runs of it took")
      ->type_name("SIZE");
  command
      ->add_option("--host-memory", arguments->host_memory,
                   "host memory of a job on a GPU; for a recipe its budget there")
      ->type_name("SIZE");
  command->add_option("--threads", arguments->threads, "CPU threads; for a command 1 by default")
      ->check(at_least(1));
  command
      ->add_option("--devices", arguments->devices,
                   "number of devices of a command, each with --memory; for a recipe 1: a GPU of this "
                   "machine, 3: devices: 3, 2..4: as many as there is room for")
      ->type_name("NUMBER");
  command
      ->add_option("--gpu", arguments->gpu,
                   "recipe: the GPU that it is planned for and runs on, such as \"RTX 3060 12GB\"")
      ->type_name("NAME");
  command->add_option("--seconds", arguments->seconds, "expected duration, if known")->check(at_least(0));
  command->add_option("--priority", arguments->priority, "higher starts first");
  command->add_option("--after", arguments->after, "start after this job is done (may be repeated)")
      ->type_name("ID");
  command->add_option("--name", arguments->name, "name in lists");
  command
      ->add_option("--group", arguments->group,
                   "a common name for several jobs, to list, steer and report them together; a sweep has "
                   "one by default")
      ->type_name("NAME");
  add_recipe_options(*command, *arguments);
  command
      ->add_option(
          "--yaml-set", arguments->yaml_sets,
          "FILE:key=value: give the command a copy of its YAML or JSON file with this key changed (may be "
          "repeated)")
      ->type_name("FILE:KEY=VALUE");
  command->add_option("--env", arguments->environment, "NAME=VALUE: environment variable (may be repeated)")
      ->type_name("NAME=VALUE");
  command
      ->add_option(
          "--on-oom", arguments->on_oom,
          "\"batch=4 train.yaml:accum=8 --resume\": changes to the command after it ran out of memory with "
          "a whole device, or on its last retry (may be repeated: each adds to the one before)")
      ->type_name("CHANGES");
  command
      ->add_option("--retries", arguments->retries,
                   "number of retries where a retry may help (docs/howto/queue.md)")
      ->check(at_least(0));
  command->add_flag("--json", arguments->json, "JSON output (docs/reference/json.md)");
  for (const char* one : {"--after", "--set", "--env", "--sweep", "--zip", "--yaml-set", "--on-oom"})
    command->get_option(one)->allow_extra_args(false);
  command->callback([arguments, &action] { action = [arguments] { return run_add(*arguments); }; });
}

}  // namespace plimsoll
