#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/format.h"
#include "base/print.h"
#include "base/units.h"
#include "calibrate/calibrate.h"
#include "calibrate/link.h"
#include "calibrate/probe.h"
#include "calibrate/rates_cache.h"
#include "cli/commands.h"
#include "cli/usage_text.h"
#include "cpu/describe.h"
#include "cpu/threads.h"
#include "ranks/launch.h"
#include "ranks/mpi_group.h"
#include "ranks/run_ranks.h"

namespace plimsoll {
namespace {

struct CalibrateArguments {
  bool quick = false, probe = false, even_if_busy = false;
  int64_t threads = 0, devices = 1;
  std::string max_isa, disk_folder, export_file;
};

constexpr int kBarWidth = 30;
constexpr int64_t kMostDevices = 1024;  // as the recipe has it

// One line that is drawn over on a terminal, nothing elsewhere.
void draw(double share, const std::string& what) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::string bar;
  for (int i = 0; i < kBarWidth; ++i) bar += i < static_cast<int>(share * kBarWidth) ? "█" : "░";
  std::fprintf(stderr, "\rcalibrate  %s %3.0f %%  %-20s", bar.c_str(), share * 100, what.c_str());
}

void print_rates(const DeviceRates& rates, const std::filesystem::path& file) {
  const auto line = [](const char* what, double rate, double unit, const char* name) {
    std::array<char, 96> text{};
    std::snprintf(text.data(), text.size(), "  %-24s %8.1f %s\n", what, rate / unit, name);
    print(text.data());
  };
  line("matmul f32, best", rates.matmul_f32, 1e9, "GFLOP/s");
  line("matmul bf16, best", rates.matmul_bf16, 1e9, "GFLOP/s");
  if (rates.vector_bf16 != rates.matmul_bf16)
    line("bf16 in vectors", rates.vector_bf16, 1e9, "GFLOP/s (attention, thin products)");
  line("memory", rates.bandwidth, 1e9, "GB/s read and written");
  line("copy by one thread", rates.host_copy, 1e9, "GB/s");
  line("fresh pages", rates.page_touch, 1e9, "GB/s");
  line("disk, read", rates.disk_read, 1e9, "GB/s");
  line("disk, write", rates.disk_write, 1e9, "GB/s");
  print(formatted("  {} matmul forms and {} op curves in {}\n", rates.matmuls.size(), rates.ops.size(),
                  printable(file.string())));
}

// Rates measured while other programs run describe the moment, not the machine.
void refuse_if_busy(const TimeLost& lost, bool even_if_busy, const char* outcome = "nothing was stored") {
  if (lost.share() <= kBusy || even_if_busy) return;
  throw StoppedError(
      formatted("calibrate: other programs took {} % of the time of these threads, so the rates are not "
                "this machine's; {}. Measure again when it is idle, or say --even-if-busy",
                std::llround(100 * lost.share()), outcome));
}

ExitCode run_probe(const CpuSettings& cpu, const Machine& machine, const std::filesystem::path& folder) {
  const TimeLost lost;
  const DeviceRates rates = probe(cpu, describe_cpu(cpu.isa, cpu.threads).rates);
  refuse_if_busy(lost, false);
  save_rates(folder, machine, rates);
  return ExitCode::ok;
}

// Measures with the other ranks; the leading one stores the rate and prints it.
void measure_between(RunRanks& ranks, bool even_if_busy) {
  Group& group = ranks.group();
  const TimeLost lost;
  const double rate = ranks.together([&] { return measure_link(group); });
  ranks.by_leader([&] {
    refuse_if_busy(lost, even_if_busy);
    save_link(cache_folder(), group.size(), rate);
    std::array<char, 96> text{};
    std::snprintf(text.data(), text.size(),
                  "  between %d processes      %8.2f GB/s sent by each, sums included\n", group.size(),
                  rate / 1e9);
    print(formatted("{}  in {}\n", text.data(), printable(link_file(cache_folder()).string())));
    return std::string();
  });
}

// One of several processes. An error that all of them have is the first one's to print.
ExitCode run_as_rank(const StartedBy& started, bool even_if_busy) {
  MpiGroup group(started);
  RunRanks ranks(group, &group.watch());
  try {
    measure_between(ranks, even_if_busy);
  } catch (const Error& error) {
    if (ranks.failed_together()) {
      group.ends_together();
      if (ranks.leads()) throw;
      return error.code();
    }
    group.watch().fail(error.code());
    throw;
  } catch (const std::exception& error) {
    group.watch().fail(ExitCode::stopped);
    throw StoppedError(formatted("rank {}: {}", group.rank(), error.what()));
  }
  group.ends_together();
  return ExitCode::ok;
}

// The rate between processes does not depend on these options.
void refuse_with_devices(const CalibrateArguments& arguments) {
  const std::array<std::pair<const char*, bool>, 6> others = {
      {{"--quick", arguments.quick},
       {"--probe", arguments.probe},
       {"--threads", arguments.threads != 0},
       {"--max-isa", !arguments.max_isa.empty()},
       {"--disk-folder", !arguments.disk_folder.empty()},
       {"--export", !arguments.export_file.empty()}}};
  for (const auto& [name, stated] : others)
    if (stated)
      throw UsageError(formatted(
          "--devices {}: measures what processes send each other and nothing else, so that {} has no "
          "effect; leave it out, or run both commands",
          arguments.devices, name));
}

ExitCode run_between(const CalibrateArguments& arguments) {
  refuse_with_devices(arguments);
  const int64_t devices = arguments.devices;
  const StartedBy started = who_started_me();
  if (started.ranks == 1) return launch_ranks(devices, own_arguments());
  if (started.ranks != devices)
    throw UsageError(
        formatted("--devices {}, but {} started {} processes", devices, started.launcher, started.ranks));
  return run_as_rank(started, arguments.even_if_busy);
}

ExitCode run(const CalibrateArguments& arguments) {
  if (arguments.devices > 1) return run_between(arguments);
  const CpuSettings cpu = cpu_settings({read_isa(arguments.max_isa), arguments.threads});
  const Machine machine = this_machine(cpu);
  const std::filesystem::path folder = cache_folder();
  start_threads(cpu.threads);
  if (arguments.probe) return run_probe(cpu, machine, folder);
  if (!arguments.even_if_busy) {  // half a second, before minutes are spent on what is thrown away
    const TimeLost before;
    (void)probe(cpu, describe_cpu(cpu.isa, cpu.threads).rates);
    refuse_if_busy(before, false, "nothing was measured");
  }
  const TimeLost lost;
  const DeviceRates rates = calibrate(
      {.cpu = cpu,
       .quick = arguments.quick,
       .disk_folder = arguments.disk_folder.empty() ? folder : std::filesystem::path(arguments.disk_folder),
       .progress = draw});
  draw(1.0, "done");
  if (isatty(STDERR_FILENO) != 0) std::fputc('\n', stderr);
  refuse_if_busy(lost, arguments.even_if_busy);
  save_rates(folder, machine, rates);
  if (!arguments.export_file.empty()) write_machine(arguments.export_file, {machine, rates});
  print(formatted("{}, {}, {}\n", printable(machine.cpu), machine.isa,
                  cpu.threads == 1 ? "1 thread" : std::to_string(cpu.threads) + " threads"));
  print_rates(rates, rates_file(folder, machine));
  return ExitCode::ok;
}

}  // namespace

void add_calibrate(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<CalibrateArguments>();
  CLI::App* command = app.add_subcommand("calibrate", "measure this machine once, for predicted times");
  command->add_flag("--quick", arguments->quick, "seconds instead of minutes, on a coarser grid");
  command->add_flag("--probe", arguments->probe,
                    "half a second: one product per type and a copy, as `plan` does on an unknown machine");
  command->add_flag("--even-if-busy", arguments->even_if_busy,
                    "save the result although other programs took part of the time");
  command
      ->add_option(
          "--devices", arguments->devices,
          "instead of all else: how fast so many processes send each other gradients and weights (seconds)")
      ->check(CLI::Range(int64_t{1}, kMostDevices));
  command->add_option("--threads", arguments->threads, "CPU threads; 0: one per CPU")->check(at_least(0));
  command->add_option("--max-isa", arguments->max_isa,
                      "highest instruction set to use: avx2, avx512, avx512-bf16 or amx");
  command->add_option("--disk-folder", arguments->disk_folder,
                      "folder to measure the disk in, where offloading will write; by default the cache "
                      "folder");
  command
      ->add_option("--export", arguments->export_file,
                   "also write the result to a file, for plan --machine FILE on another machine")
      ->type_name("FILE");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace plimsoll
