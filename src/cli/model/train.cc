#include "train/run.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/format.h"
#include "base/print.h"
#include "base/shell_word.h"
#include "base/system_memory.h"
#include "cli/caller_arguments.h"
#include "cli/commands.h"
#include "cli/machine_rates.h"
#include "cli/plan/plan_command.h"
#include "files/work_folder.h"
#include "prepare/allowed.h"
#include "prepare/devices/device_choice.h"
#include "prepare/devices/rank_cards.h"
#include "prepare/planned_card.h"
#include "prepare/refused_plan.h"
#include "prepare/resume.h"
#include "ranks/launch.h"
#include "ranks/mpi_group.h"
#include "report/event_stream.h"
#include "report/progress.h"
#include "train/run_signals.h"

namespace plimsoll {
namespace {

// Ranks other than the first print into a log of the run's folder, once there is one, until one fails by itself.
class Silence {
 public:
  explicit Silence(Watch& watch) : output_(dup(STDOUT_FILENO)), errors_(dup(STDERR_FILENO)) {
    watch.speak_to(errors_);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    close(nowhere);
  }
  // Each step's line, with what the rank waited for, and notes. There is no log where it cannot be opened.
  void log_to(const std::filesystem::path& file, bool continues) const {
    const int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | (continues ? O_APPEND : O_TRUNC);
    const int log = open(file.c_str(), flags, 0644);
    if (log < 0) return;
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    close(log);
  }
  void end() const {
    flush_output();
    dup2(output_, STDOUT_FILENO);
    dup2(errors_, STDERR_FILENO);
  }

 private:
  int output_, errors_;
};

struct TrainArguments {
  RecipeArguments recipe;
  RunOptions options;
  CallerArguments caller;
  bool poison = false;
  std::string log_level = "info";
  bool quiet = false;
  const Silence* silence = nullptr;  // of a rank that does not lead
  int64_t free_bytes = 0;            // of several nodes: of the one that has least
  int64_t card_free_bytes = 0;       // of several cards, likewise
};

// Suggestions that fit instead of a recipe that does not. A run that continues is planned with the sums that
// it began with, which a new command is not: its refusal is that of `plan`.
std::vector<Way> ways_of(const TrainArguments& arguments, const Recipe& recipe, const RefusedPlan& refused) {
  PlanArguments requested;
  requested.recipe = arguments.recipe;
  requested.rows->take(refused.data);
  if (recipe.device == DeviceChoice::cuda)
    requested.recipe =
        requested.recipe.on_device(recipe.cuda_card.empty() ? "cuda" : "cuda:" + recipe.cuda_card);
  const std::string flags = arguments.options.resume      ? " --resume"
                            : arguments.options.overwrite ? " --overwrite"
                                                          : "";
  const Variants variants = variants_of("train" + flags, requested);
  const PlanInput input = plan_input(requested, {});
  if (!arguments.options.resume)
    return ways_out(variants, input.resolved.recipe, input.request, refused.refusal);
  const Plan plan = plan_allowed(input.resolved, input.machine, input.data.get()).plan;
  if (plan.fits()) return {};
  return ways_out(variants, input.resolved.recipe, plan.request, refusal_of(plan));
}

// The chosen card, or the refusal of one that this machine lacks, with what may be written instead.
ChosenDevice choose(const TrainArguments& arguments, const LoadedRecipe& loaded) {
  const auto command = [&](const char* device) {
    return loaded.recipe.is_of_card() ? "plimsoll train " + arguments.recipe.on_device(device).words() : "";
  };
  return choose_device(loaded, {.trains = true,
                                .resumes = arguments.options.resume,
                                .on_card = command("cuda"),
                                .on_cpu = command("cpu")});
}

std::filesystem::path log_of(const RunInput& input, int rank) {
  return WorkFolder::inside(input.folder.path()) / formatted("rank-{}.log", rank);
}

// `again`: on the CPU, after a card; the report of the recipe's keys was printed before.
ExitCode run(TrainArguments& arguments, LogLevel level, bool again = false) {
  const bool quiet = level < LogLevel::info;
  LoadedRecipe loaded = arguments.recipe.load(quiet || again);
  std::vector<std::string> lines;
  if (arguments.options.resume) loaded.recipe = as_read_before(loaded, lines);
  if (again) lines.clear();
  const ChosenDevice chosen = choose(arguments, loaded);
  const Recipe& recipe = chosen.recipe;
  lines.insert(lines.end(), chosen.lines.begin(), chosen.lines.end());
  if (!quiet)
    for (const std::string& line : lines) say(line);
  arguments.options.machine = arguments.recipe.machine(recipe);
  arguments.options.machine.free_bytes = arguments.free_bytes;
  arguments.options.machine.card_free_bytes = arguments.card_free_bytes;
  RunRanks& ranks = *arguments.options.ranks;
  if (!arguments.recipe.no_probe && !recipe.is_of_card() && ranks.leads())
    probe_where_unknown(cpu_settings(arguments.options.machine), recipe.memory.device, quiet);
  if (arguments.recipe.path != kStandardInput) arguments.options.recipe_file = arguments.recipe.path;
  Progress progress(level, recipe.log.every);
  const CallerArguments::Observer observer(progress);
  arguments.options.observer = observer.get();
  arguments.options.version = PLIMSOLL_VERSION;
  arguments.options.models = arguments.recipe.sources->models;
  listen_to_save_requests();
  try {
    RunInput input = prepare_run(recipe, arguments.options);
    if (arguments.silence != nullptr)
      arguments.options.begun = [&arguments, log = log_of(input, ranks.group().rank())] {
        arguments.silence->log_to(log, arguments.options.resume);
      };
    return train(std::move(input), arguments.options, arguments.poison);
  } catch (const RefusedPlan& refused) {
    if (!chosen.by_itself)
      throw DoesNotFitError(refused.what() + told_ways(ways_of(arguments, recipe, refused)));
    if (!quiet) say(too_small_line(refused.what()));
  } catch (const DoesNotFitError& error) {
    if (!chosen.by_itself) throw;
    if (!quiet) say(too_small_line(error.what()));
  }
  arguments.recipe.change("device", "cpu");
  return run(arguments, level, true);
}

// The recipe's number is that of the processes, where it states one.
void take_devices(TrainArguments& arguments, int64_t ranks) {
  const int64_t stated = arguments.recipe.read().recipe.devices;
  if (stated > 1 && stated != ranks)
    throw UsageError(formatted("devices: {}, but {} processes were started; leave it out, or start as many",
                               stated, ranks));
  arguments.recipe.change("devices", std::to_string(ranks));
}

int64_t least_of(Group& group, int64_t mine) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const std::string& each : gather_texts(group, std::to_string(mine)))
    least = std::min<int64_t>(least, std::stoll(each));
  return least;
}

// This process's card becomes the only one that it sees: the recipe is that of all ranks. False: it computes without.
bool take_card(TrainArguments& arguments, RunRanks& ranks, bool speaks) {
  const LoadedRecipe loaded = ranks.together([&] { return arguments.recipe.read(); });
  const TakenCard taken = take_card_of_rank(loaded, ranks, arguments.options.resume);
  if (speaks && !taken.line.empty()) say(taken.line);
  if (!taken.device.empty()) arguments.recipe.change("device", taken.device);
  return taken.is_card;
}

// One process of several. An error that all of them have is the first one's to tell.
ExitCode run_as_rank(TrainArguments& arguments, LogLevel level, const StartedBy& started) {
  MpiGroup group(started);
  RunRanks ranks(group, &group.watch());
  arguments.options.ranks = &ranks;
  if (group.watch().nodes() > 1) arguments.free_bytes = least_of(group, free_memory().bytes);
  std::optional<Silence> silence;
  if (ranks.leads() && !group.watch().hears_nodes() && level >= LogLevel::warn)
    say("note    the machines do not hear each other by UDP over IPv4 (a firewall?): a process that hangs on another one "
        "is not noticed (stop.silence), only one that ends");
  if (!ranks.leads()) arguments.silence = &silence.emplace(group.watch());
  const auto leave_alone = [&](ExitCode code) {
    group.watch().fail(code);
    if (silence) silence->end();
  };
  try {
    const int64_t free_of_card = ranks.together([&] {
      const bool has_card = take_card(arguments, ranks, ranks.leads() && level >= LogLevel::info);
      take_devices(arguments, ranks.size());
      arguments.recipe.nodes = group.watch().nodes();
      arguments.recipe.on_node = group.watch().most_on_a_node();
      if (arguments.options.profile)
        throw UsageError("--profile: is of one device so far; leave it out, or say --devices 1");
      return has_card ? std::max<int64_t>(1, card_here("").free_bytes) : int64_t{0};  // 0: no card
    });
    arguments.card_free_bytes = least_of(group, free_of_card);
    const ExitCode code = ranks.together([&] { return run(arguments, level); });
    group.ends_together();
    return code;
  } catch (const Error& error) {
    if (ranks.failed_together()) {
      group.ends_together();
      if (ranks.leads()) throw;
      return error.code();
    }
    leave_alone(error.code());
    throw Error(error.code(), formatted("rank {}: {}", group.rank(), error.what()));
  } catch (const std::exception& error) {
    leave_alone(ExitCode::stopped);
    throw StoppedError(formatted("rank {}: {}", group.rank(), error.what()));
  }
}

// The descriptor and the standard input of this process are not those of the ones that mpirun starts.
void refuse_what_ranks_lack(const TrainArguments& arguments, int64_t devices) {
  if (arguments.caller.events >= 0)
    throw UsageError(formatted("devices: {}: --events is of one device so far", devices));
  if (arguments.recipe.path == kStandardInput)
    throw UsageError(formatted(
        "devices: {}: a recipe on standard input is of one device so far; write it to a file", devices));
}

// The words for the ranks: this process, their launcher, watches its parent for all of them.
std::vector<std::string> words_of_ranks() {
  constexpr std::string_view kParent = "--die-with-parent";
  std::vector<std::string> words;
  bool is_value = false;
  for (const std::string& word : own_arguments()) {
    if (!is_value && !word.starts_with(kParent)) words.push_back(word);
    is_value = word == kParent;
  }
  return words;
}

// `devices` may name one card.
ExitCode run_alone(TrainArguments& arguments, const LoadedRecipe& loaded, LogLevel level) {
  if (!loaded.recipe.cards.empty())
    arguments.recipe.change("device", "cuda:" + cards_of_ranks(loaded, 1).uuids.front());
  if (!loaded.recipe.cards.empty() || loaded.recipe.devices == kAuto) arguments.recipe.change("devices", "1");
  return run(arguments, level);
}

// Refuses the folder of a run, whose recipe lies in it.
void refuse_run_folder(const TrainArguments& arguments, const Recipe& recipe) {
  const std::filesystem::path folder = arguments.recipe.path;
  std::error_code failed;
  if (!recipe.data.train.empty() || !std::filesystem::exists(folder / "metrics.jsonl", failed)) return;
  throw UsageError(
      formatted("{}: is the folder of a run, whose recipe is in it: plimsoll train {} --resume continues it",
                arguments.recipe.path, quoted((folder / "recipe.yaml").string())));
}

// In this process, or in those that it starts.
ExitCode run_on_devices(TrainArguments& arguments, LogLevel level) {
  listen_to_save_requests();
  const StartedBy started = who_started_me();
  if (started.ranks > 1) {
    refuse_what_ranks_lack(arguments, started.ranks);
    return run_as_rank(arguments, level, started);
  }
  const LoadedRecipe loaded = arguments.recipe.read();
  refuse_run_folder(arguments, loaded.recipe);
  const int64_t devices = devices_here(loaded);
  if (devices == 1) return run_alone(arguments, loaded, level);
  if (!started.launcher.empty())
    throw UsageError(formatted("devices: {}, but {} started 1 process; start as many, or leave it out",
                               devices, started.launcher));
  refuse_what_ranks_lack(arguments, devices);
  const std::string line = give_cards_to_ranks(loaded, devices, arguments.options.resume);
  if (!line.empty() && level >= LogLevel::info) say(line);
  return launch_ranks(devices, words_of_ranks());
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "train a recipe as planned");
  arguments->recipe.add_to(*command, false);
  CLI::Option* resume = command->add_flag("--resume", arguments->options.resume,
                                          "continue from the newest checkpoint of the run folder");
  command->add_flag("--overwrite", arguments->options.overwrite, "replace the run in the output folder")
      ->excludes(resume);
  command->add_option("--log-level", arguments->log_level, "error, warn, info or debug")->type_name("LEVEL");
  command->add_flag("--quiet", arguments->quiet, "print errors only: --log-level error");
  arguments->caller.add_to(*command);
  command->add_flag("--profile", arguments->options.profile,
                    "profile a few steps; writes their trace to trace.json in the run folder");
  command->add_flag("--poison", arguments->poison, "for tests: NaN where a tensor's life ends");
  command->add_flag("--no-reuse", arguments->options.no_reuse, "for tests: no two tensors share bytes");
  command->callback([arguments, &action] {
    action = [arguments] {
      arguments->caller.begin("train");
      const LogLevel level = parse_log_level(arguments->quiet ? "error" : arguments->log_level);
      return run_on_devices(*arguments, level);
    };
  });
}

}  // namespace plimsoll
