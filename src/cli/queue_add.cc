// plimsoll queue add: a recipe, planned, or a command with what it is said to need.
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/print.h"
#include "base/units.h"
#include "cli/queue_commands.h"
#include "cli/usage_text.h"
#include "fleet/queue/planned.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

struct AddArguments {
  std::vector<std::string> words, sets, environment;
  std::vector<int64_t> after;
  std::string memory, host_memory, name;
  int threads = 0, devices = 0, priority = 0, retries = 2;
  double seconds = 0;
  bool json = false;
};

bool is_recipe(const std::vector<std::string>& words) {
  const std::string end = fs::path(words.front()).extension().string();
  return words.size() == 1 && (end == ".yaml" || end == ".yml" || end == ".json");
}

// The plan is fixed as it was made: its peak is the budget of the training.
void fill_recipe(const AddArguments& arguments, queue::Entry& entry) {
  if (arguments.devices > 0 || !arguments.host_memory.empty())
    throw UsageError("--devices and --host-memory are for commands: a recipe trains on the CPU");
  std::vector<std::string> words = arguments.words;
  for (const std::string& set : arguments.sets) words.insert(words.end(), {"--set", set});
  std::vector<std::string> asked = words;
  asked.insert(asked.end(), {"--json"});
  if (!arguments.memory.empty()) asked.insert(asked.end(), {"--memory", arguments.memory});
  if (arguments.threads > 0) asked.insert(asked.end(), {"--threads", std::to_string(arguments.threads)});
  const queue::Planned planned = queue::plan_recipe(own_program(), asked);
  entry.recipe = true;
  entry.need = planned.need;
  if (entry.seconds <= 0) entry.seconds = planned.seconds;
  entry.words = {"train"};
  entry.words.insert(entry.words.end(), words.begin(), words.end());
  entry.words.insert(entry.words.end(), {"--memory", std::to_string(planned.need.host_bytes), "--threads",
                                         std::to_string(planned.need.threads)});
}

void fill_command(const AddArguments& arguments, queue::Entry& entry) {
  if (!arguments.sets.empty())
    throw UsageError("--set is for recipes; commands take --env and their own options");
  if (arguments.memory.empty())
    throw UsageError("--memory is missing: what the command takes" +
                     std::string(arguments.devices > 0 ? " on each device" : ", all its processes together"));
  if (arguments.devices > 0 && arguments.host_memory.empty())
    throw UsageError("--host-memory is missing: what the command takes of the host beside its devices");
  if (arguments.devices == 0 && !arguments.host_memory.empty())
    throw UsageError("--host-memory is for commands with --devices; --memory is all that this one takes");
  const int64_t memory = parse_bytes(arguments.memory, "--memory");
  entry.words = arguments.words;
  entry.need.devices = arguments.devices;
  entry.need.device_bytes = arguments.devices > 0 ? memory : 0;
  entry.need.host_bytes =
      arguments.devices > 0 ? parse_bytes(arguments.host_memory, "--host-memory") : memory;
  entry.need.threads = std::max(1, arguments.threads);
}

void check_environment(const std::vector<std::string>& environment) {
  for (const std::string& one : environment)
    if (one.find('=') == std::string::npos || one.front() == '=')
      throw UsageError("--env: expected NAME=VALUE, found '" + one + "'");
}

queue::Entry read_entry(const AddArguments& arguments) {
  check_environment(arguments.environment);
  queue::Entry entry;
  entry.name = !arguments.name.empty() ? arguments.name : fs::path(arguments.words.front()).stem().string();
  entry.environment = arguments.environment;
  entry.folder = fs::current_path().string();
  entry.priority = arguments.priority;
  entry.retries = arguments.retries;
  entry.after = arguments.after;
  entry.seconds = arguments.seconds;
  entry.submitted =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  if (is_recipe(arguments.words)) {
    fill_recipe(arguments, entry);
  } else {
    fill_command(arguments, entry);
  }
  return entry;
}

ExitCode run_add(const AddArguments& arguments) {
  queue::Entry entry = read_entry(arguments);
  queue::Store store(queue::queue_folder());
  entry.id = store.add(entry);
  if (arguments.json) {
    print(json_text(entry_json(store, entry)));
    return ExitCode::ok;
  }
  const queue::Need& need = entry.need;
  std::string text = "added " + std::to_string(entry.id) + " " + printable(entry.name) + ": ";
  if (need.devices > 0)
    text += format_bytes(need.device_bytes) + " on each of " + std::to_string(need.devices) + " devices, ";
  text += format_bytes(need.host_bytes) + (need.devices > 0 ? " on the host, " : ", ") +
          std::to_string(need.threads) + (need.threads == 1 ? " thread" : " threads");
  if (entry.seconds > 0) text += ", about " + format_seconds(entry.seconds);
  print(text + worker_note(store) + "\n");
  return ExitCode::ok;
}

}  // namespace

void add_queue_add(CLI::App& group, Action& action) {
  auto arguments = std::make_shared<AddArguments>();
  CLI::App* command = group.add_subcommand("add", "puts a recipe or a command into the queue");
  command->add_option("run", arguments->words, "a recipe, or behind -- a command with its arguments")
      ->required();
  command
      ->add_option("--memory", arguments->memory,
                   "of a recipe its budget; of a command what it takes: of each device, or of the host")
      ->type_name("SIZE");
  command
      ->add_option("--host-memory", arguments->host_memory,
                   "of a command with devices: what it takes of the host")
      ->type_name("SIZE");
  command->add_option("--threads", arguments->threads, "that compute; of a command 1 unless given")
      ->check(at_least(1));
  command->add_option("--devices", arguments->devices, "devices that a command takes, each with --memory")
      ->check(at_least(0));
  command->add_option("--seconds", arguments->seconds, "how long it takes, where that is known")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--priority", arguments->priority, "higher goes first");
  command->add_option("--after", arguments->after, "starts when this entry is done (may be repeated)")
      ->type_name("ID");
  command->add_option("--name", arguments->name, "what lists call it");
  command->add_option("--set", arguments->sets, "key=value: changes one key of the recipe (may be repeated)")
      ->type_name("KEY=VALUE");
  command->add_option("--env", arguments->environment, "NAME=VALUE for its environment (may be repeated)")
      ->type_name("NAME=VALUE");
  command
      ->add_option("--retries", arguments->retries,
                   "times that it is tried again where that may help: docs/queue.md")
      ->check(at_least(0));
  command->add_flag("--json", arguments->json, "for machines: docs/json.md");
  for (const char* one : {"--after", "--set", "--env"}) command->get_option(one)->allow_extra_args(false);
  command->callback([arguments, &action] { action = [arguments] { return run_add(*arguments); }; });
}

}  // namespace plimsoll
