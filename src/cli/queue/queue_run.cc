// plimsoll queue run: the worker.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "base/format.h"
#include "base/print.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/system_memory.h"
#include "base/units.h"
#include "cli/queue/queue_commands.h"
#include "cli/usage_text.h"
#include "fleet/devices/nvml.h"
#include "fleet/queue/local_launcher.h"
#include "fleet/slurm/slurm_launcher.h"
#include "train/run_signals.h"

namespace plimsoll {
namespace {

constexpr double kHeadroom = 0.1;  // of the machine's memory, where no size is stated

struct RunArguments {
  std::string backend = "local", partition, time_limit;
  std::vector<std::string> sbatch;
  double poll = 0;  // 0: not stated
  size_t jobs = 0;
  std::string memory, gpu_plan, headroom;
  std::vector<std::string> devices;
  int threads = 0;
  double grace = 30;
  bool until_done = false;
  std::string patience;
};

// The most runs on each of `cards`, by --gpu-plan.
void cap_cards(const RunArguments& arguments, std::vector<queue::MachineCard>& cards) {
  if (arguments.gpu_plan.empty()) return;
  const std::vector<std::string> caps = split(arguments.gpu_plan, ',');
  if (caps.size() != cards.size())
    throw UsageError(formatted("--gpu-plan: expected one number for each device, {} in all", cards.size()));
  for (size_t i = 0; i < cards.size(); ++i) {
    cards[i].max_runs = std::atoi(caps[i].c_str());
    if (cards[i].max_runs < 1)
      throw UsageError(formatted("--gpu-plan: expected numbers from 1 on, found '{}'", caps[i]));
  }
}

// Reads --device NAME=BYTES.
std::vector<queue::MachineCard> read_cards(const RunArguments& arguments) {
  std::vector<queue::MachineCard> cards;
  for (const std::string& one : arguments.devices) {
    const size_t equals = one.rfind('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError(formatted("--device: expected NAME=SIZE, found '{}'", one));
    queue::MachineCard card{one.substr(0, equals), parse_bytes(one.substr(equals + 1), "--device"), 0};
    for (const queue::MachineCard& other : cards)
      if (other.name == card.name) throw UsageError(formatted("--device: '{}' is named twice", card.name));
    cards.push_back(std::move(card));
  }
  return cards;
}

void report_line(const std::string& line) {
  print(fitted_to_terminal(printable(line), STDOUT_FILENO) + "\n");
  flush_output();
}

void refuse_slurm_options(const RunArguments& arguments) {
  if (!arguments.partition.empty() || !arguments.time_limit.empty() || !arguments.sbatch.empty() ||
      arguments.poll > 0 || arguments.jobs > 0)
    throw UsageError("--partition, --time-limit, --sbatch, --poll and --jobs go with --backend slurm");
}

// "2h", "90min", "3600": seconds.
double read_duration(const std::string& text, const char* option) {
  size_t used = 0;
  double number = 0;
  try {
    number = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string unit = text.substr(used);
  const double factor = unit == "h"                   ? 3600
                        : unit == "min"               ? 60
                        : unit == "d"                 ? 86400
                        : unit.empty() || unit == "s" ? 1
                                                      : 0;
  if (used == 0 || !std::isfinite(number) || number <= 0 || factor == 0)
    throw UsageError(formatted("{}: expected a duration such as 90min or 24h, found '{}'", option, text));
  return number * factor;
}

queue::WorkerOptions read_worker_options(const RunArguments& arguments) {
  queue::WorkerOptions options;
  options.program = own_program();
  options.until_done = arguments.until_done;
  options.grace_seconds = arguments.grace;
  options.report = report_line;
  if (!arguments.patience.empty()) {
    if (!arguments.until_done)
      throw UsageError("--patience goes with --until-done: a worker that stays waits as long as it takes");
    options.patience_seconds = read_duration(arguments.patience, "--patience");
  }
  return options;
}

queue::LocalOptions read_local_options(const RunArguments& arguments) {
  queue::LocalOptions options;
  options.machine.cards = read_cards(arguments);
  options.machine.threads =
      arguments.threads > 0 ? arguments.threads : static_cast<int>(std::thread::hardware_concurrency());
  options.machine.host_bytes =
      arguments.memory.empty() ? static_cast<int64_t>(static_cast<double>(total_memory()) * (1 - kHeadroom))
                               : parse_bytes(arguments.memory, "--memory");
  options.machine_folder = queue::machine_folder();
  options.free_host_bytes = [] { return free_memory().bytes; };
  return options;
}

slurm::SlurmOptions read_slurm_options(const RunArguments& arguments) {
  if (!arguments.patience.empty())
    throw UsageError("--patience is for the local worker: Slurm decides how long jobs wait");
  for (const auto& [given, option] :
       {std::pair(!arguments.memory.empty(), "--memory"), std::pair(arguments.threads > 0, "--threads"),
        std::pair(!arguments.gpu_plan.empty(), "--gpu-plan"),
        std::pair(!arguments.headroom.empty(), "--headroom")})
    if (given)
      throw UsageError(std::string(option) + " is for the local worker: Slurm gives out what its nodes have");
  slurm::SlurmOptions options;
  options.partition = arguments.partition;
  options.options = arguments.sbatch;
  for (const queue::MachineCard& card : read_cards(arguments))
    options.gpus.push_back(slurm::read_type(card.name, card.bytes));
  std::sort(options.gpus.begin(), options.gpus.end(),
            [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  if (!arguments.time_limit.empty()) options.time_limit = read_duration(arguments.time_limit, "--time-limit");
  if (arguments.poll > 0) options.poll_seconds = arguments.poll;
  if (arguments.jobs > 0) options.most_jobs = arguments.jobs;
  return options;
}

ExitCode run_slurm_worker(const RunArguments& arguments) {
  queue::Store store(queue::queue_folder());
  const queue::WorkerOptions options = read_worker_options(arguments);
  slurm::SlurmLauncher launcher(store, options, read_slurm_options(arguments));
  queue::Worker worker(store, launcher, options);
  listen_to_stop_requests();
  const queue::Machine& node = launcher.largest_node();
  report_line(formatted("Slurm: {} and {} threads on the largest node{}", format_bytes(node.host_bytes),
                        node.threads, node.cards.empty() ? "" : formatted(", {} GPUs", node.cards.size())));
  worker.run([] { return stop_request() != nullptr; });
  if (launcher.running() > 0)
    report_line(
        std::to_string(launcher.running()) +
        " jobs continue without the worker; the next plimsoll queue run --backend slurm follows them");
  return ExitCode::ok;
}

// "10%", or "10%,0.2" of each card.
std::vector<double> read_headroom(const std::string& text) {
  std::vector<double> shares;
  for (const std::string& one : split(text, ',')) {
    size_t used = 0;
    double share = -1;
    try {
      share = std::stod(one, &used);
    } catch (const std::exception&) {
      used = 0;
    }
    if (used > 0 && one.substr(used) == "%")
      share /= 100;
    else if (used != one.size())
      share = -1;
    if (!(share >= 0 && share < 1))
      throw UsageError(
          formatted("--headroom: expected a share below 1 such as 10% or 0.1, or one for each card, found "
                    "'{}'",
                    one));
    shares.push_back(share);
  }
  return shares;
}

// Cards that are stated, or else those that the driver reports; returns notes about them.
std::vector<std::string> find_cards(const RunArguments& arguments, devices::GpuWatch& watch,
                                    queue::LocalOptions& options) {
  queue::CardOptions cards = queue::card_options();
  cards.find = arguments.devices.empty();
  if (!arguments.headroom.empty()) {
    if (!cards.find) throw UsageError("--headroom is for detected cards; --device states what runs may take");
    cards.headroom = read_headroom(arguments.headroom);
  }
  options.cards = std::make_shared<queue::WatchedCards>(watch, cards, options.machine);
  std::vector<std::string> lines = *options.cards->take(options.machine);
  if (const devices::GpuReport& report = watch.look(); report.installed && !report.problem.empty())
    lines.push_back("no GPU: " + printable(report.problem));
  cap_cards(arguments, options.machine.cards);
  if (cards.headroom.size() > 1 && cards.headroom.size() != options.machine.cards.size())
    throw UsageError(
        formatted("--headroom: {} shares, and the machine has {} cards; give one for all, or one for each",
                  cards.headroom.size(), options.machine.cards.size()));
  return lines;
}

ExitCode run_worker(const RunArguments& arguments) {
  if (arguments.backend == "slurm") return run_slurm_worker(arguments);
  refuse_slurm_options(arguments);
  queue::Store store(queue::queue_folder());
  const queue::WorkerOptions options = read_worker_options(arguments);
  queue::LocalOptions local = read_local_options(arguments);
  devices::GpuWatch watch(devices::nvml_library(), devices::watch_times());
  const std::vector<std::string> lines = find_cards(arguments, watch, local);
  queue::LocalLauncher launcher(store, options, local);
  queue::Worker worker(store, launcher, options);
  listen_to_stop_requests();
  options.report(formatted("cpu:0 {}, {}{}", format_bytes(local.machine.host_bytes), local.machine.threads,
                           local.machine.threads == 1 ? " thread" : " threads"));
  for (const queue::MachineCard& card : local.machine.cards)
    if (!arguments.devices.empty() || card.max_runs > 0)
      options.report(formatted("{} {}{}", card.name, format_bytes(card.bytes),
                               card.max_runs > 0 ? formatted(", {} runs at most", card.max_runs) : ""));
  for (const std::string& line : lines) options.report(line);
  worker.run([] { return stop_request() != nullptr; });
  if (launcher.running() > 0)
    options.report(std::to_string(launcher.running()) +
                   " jobs continue without the worker; the next plimsoll queue run takes them over");
  return ExitCode::ok;
}

// Options for what a worker may give out.
void add_machine_options(CLI::App* command, const std::shared_ptr<RunArguments>& arguments) {
  command
      ->add_option("--memory", arguments->memory, "host memory of all jobs together; by default 90 % of it")
      ->type_name("SIZE");
  command->add_option("--threads", arguments->threads, "CPU threads of all jobs together; by default all")
      ->check(at_least(1));
  command
      ->add_option(
          "--device", arguments->devices,
          "a GPU, as in CUDA_VISIBLE_DEVICES, and the memory that jobs may take of it (may be repeated); by "
          "default all GPUs of the driver")
      ->type_name("NAME=SIZE")
      ->allow_extra_args(false);
  command
      ->add_option("--gpu-plan", arguments->gpu_plan, "maximum number of jobs at once on each device: 2,2,1")
      ->type_name("COUNTS");
  command
      ->add_option(
          "--headroom", arguments->headroom,
          "share of each GPU's memory that is not given out; 10%,5% for the first and second GPU; by "
          "default 5%")
      ->type_name("SHARES");
  command->add_option("--backend", arguments->backend, "local: this machine; slurm: a cluster's scheduler")
      ->check(CLI::IsMember({"local", "slurm"}));
  command->add_option("--partition", arguments->partition, "Slurm: partition")->type_name("NAME");
  command
      ->add_option("--time-limit", arguments->time_limit,
                   "Slurm: longest time limit of a job, and the limit where no time is predicted (24h)")
      ->type_name("TIME");
  command
      ->add_option("--sbatch", arguments->sbatch,
                   "Slurm: an option of sbatch for every job: --sbatch=--account=lab (may be repeated)")
      ->type_name("OPTION")
      ->allow_extra_args(false);
  command->add_option("--poll", arguments->poll, "Slurm: seconds between queries; by default 10")
      ->check(above_zero());
  command->add_option("--jobs", arguments->jobs, "Slurm: maximum number of submitted jobs; by default 1000")
      ->check(at_least(1));
  command->add_option("--grace", arguments->grace, "seconds from SIGTERM to SIGKILL when a job is stopped")
      ->check(at_least(0));
}

// A word as systemd reads it: quoted, and without meaning of '%', nor of what else is `doubled`.
std::string unit_word(const std::string& word, char doubled = '%') {
  std::string text = "\"";
  for (const char c : word) {
    if (c == '\n' || c == '\r') throw UsageError("a unit holds no names with line ends: " + printable(word));
    if (c == '"' || c == '\\') text += '\\';
    if (c == '%' || c == doubled) text += c;
    text += c;
  }
  return text + "\"";
}

ExitCode print_unit(const RunArguments& arguments) {
  // Refuses what the worker would.
  const bool slurm = arguments.backend == "slurm";
  queue::LocalOptions options;
  options.machine.cards = read_cards(arguments);
  if (slurm) {
    (void)read_slurm_options(arguments);
  } else {
    refuse_slurm_options(arguments);
    devices::GpuWatch watch(devices::nvml_library(), devices::watch_times());
    if (!arguments.gpu_plan.empty() || !arguments.headroom.empty())
      (void)find_cards(arguments, watch, options);
  }
  std::vector<std::string> words = {own_program(), "queue", "run"};
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {option, value});
  };
  if (!arguments.memory.empty()) (void)parse_bytes(arguments.memory, "--memory");
  if (slurm) {
    add("--backend", "slurm");
    add("--partition", arguments.partition);
    add("--time-limit", arguments.time_limit);
    for (const std::string& option : arguments.sbatch) words.push_back("--sbatch=" + option);
    if (arguments.poll > 0) add("--poll", std::to_string(std::lround(std::max(1.0, arguments.poll))));
    if (arguments.jobs > 0) add("--jobs", std::to_string(arguments.jobs));
  }
  add("--memory", arguments.memory);
  if (arguments.threads > 0) add("--threads", std::to_string(arguments.threads));
  for (const std::string& device : arguments.devices) add("--device", device);
  add("--gpu-plan", arguments.gpu_plan);
  add("--headroom", arguments.headroom);
  add("--grace", std::to_string(std::lround(arguments.grace)));
  std::string command;
  for (const std::string& word : words) command += (command.empty() ? "" : " ") + unit_word(word, '$');
  std::string unit = formatted(
      "[Unit]\nDescription=Plimsoll: the worker of the queue\n\n[Service]\nExecStart={}\n", command);
  for (const char* name : {"PLIMSOLL_QUEUE_DIR", "PLIMSOLL_MACHINE_DIR", "SLURM_CONF", "PLIMSOLL_NVML",
                           "PLIMSOLL_NVML_SECONDS", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"})
    if (const char* value = std::getenv(name); value != nullptr)
      unit += formatted("Environment={}\n", unit_word(formatted("{}={}", name, value)));
  // Runs have supervisors of their own, which outlive the worker: ending it, and a run that the kernel ends,
  // are no reason to end them.
  unit +=
      "KillMode=process\nOOMPolicy=continue\nRestart=on-failure\nRestartSec=5\n\n"
      "[Install]\nWantedBy=default.target\n";
  print(unit);
  return ExitCode::ok;
}

}  // namespace

void add_queue_run(CLI::App& group, Action& action) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* command = group.add_subcommand("run", "the worker: starts jobs that fit until it is stopped");
  add_machine_options(command, arguments);
  command->add_flag("--until-done", arguments->until_done, "end when no job waits or runs");
  command
      ->add_option(
          "--patience", arguments->patience,
          "with --until-done: how long a job waits for memory that others use before it is held, and "
          "the worker, if nothing runs, for a full disk before it ends; by default 24h")
      ->type_name("TIME");
  command->callback([arguments, &action] { action = [arguments] { return run_worker(*arguments); }; });
}

void add_queue_unit(CLI::App& group, Action& action) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* command = group.add_subcommand("unit", "print a systemd user unit that keeps a worker running");
  add_machine_options(command, arguments);
  command->callback([arguments, &action] { action = [arguments] { return print_unit(*arguments); }; });
}

// The command that a job of another scheduler runs: an attempt that is written in its folder.
void add_queue_supervise(CLI::App& group, Action& action) {
  auto folder = std::make_shared<std::string>();
  CLI::App* command = group.add_subcommand("supervise", "of a job: runs an attempt of an entry");
  command->group("");  // not for people
  command->add_option("folder", *folder, "the attempt's")->required();
  command->callback([folder, &action] {
    action = [folder] {
      const std::optional<queue::Exit> exit = queue::supervise(queue::read_launch(*folder));
      if (!exit) throw UsageError(*folder + ": has its supervisor already");
      if (!exit->problem.empty()) throw StoppedError(exit->problem);
      return static_cast<ExitCode>(exit->signal > 0 ? 128 + exit->signal : exit->code);
    };
  });
}

}  // namespace plimsoll
