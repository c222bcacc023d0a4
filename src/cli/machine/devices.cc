// plimsoll devices: what this machine has to compute on, and what of it is free.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/format.h"
#include "base/print.h"
#include "base/proc_file.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/system_memory.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cpu/isa.h"
#include "fleet/devices/nvml.h"
#include "fleet/devices/watch.h"
#include "fleet/queue/processes/process_tree.h"
#include "gpu/cuda_card.h"
#include "gpu/nccl.h"
#include "prepare/own_cards.h"
#include "ranks/launch.h"

namespace plimsoll {
namespace {

using nlohmann::ordered_json;

struct CpuFacts {
  std::string model;  // empty: the kernel does not report it
  std::string isa;    // empty: Plimsoll does not run on it, as `problem` says
  std::string problem;
  int threads = 0;
  int64_t memory = 0;
  FreeMemory free;
};

CpuFacts cpu_facts() {
  CpuFacts facts;
  for (const std::string& line : split(read_proc("/proc/cpuinfo"), '\n'))
    if (line.starts_with("model name") && line.find(':') != std::string::npos) {
      facts.model = trim(std::string_view(line).substr(line.find(':') + 1));
      break;
    }
  try {
    facts.isa = to_string(detect_isa());
  } catch (const UsageError& error) {
    facts.problem = error.what();
  }
  facts.threads = static_cast<int>(std::thread::hardware_concurrency());
  facts.memory = total_memory();
  facts.free = free_memory();
  return facts;
}

std::string cpu_text(const CpuFacts& cpu) {
  std::string text = formatted(
      "cpu:0{}\n  {}{}{}; memory {}, free {}", cpu.model.empty() ? "" : "  " + printable(cpu.model),
      cpu.threads, cpu.threads == 1 ? " thread, " : " threads, ", cpu.isa.empty() ? cpu.problem : cpu.isa,
      format_bytes(cpu.memory), format_bytes(cpu.free.bytes));
  return formatted("{} ({})\n", text, printable(cpu.free.source));
}

std::string mpi_text(const MpiHere& mpi) {
  if (!mpi.problem.empty()) return formatted("no MPI: {}\n", printable(mpi.problem));
  return formatted("{} for several processes (--devices), started by {}\n", printable(mpi.library),
                   printable(mpi.launcher));
}

// By which several GPUs can exchange; not looked for where there are no two.
struct NcclHere {
  std::string library, file;
  std::string problem;  // empty: it was found
};

std::optional<NcclHere> nccl_here(const devices::GpuReport& report) {
  if (report.gpus.size() < 2) return std::nullopt;
  const gpu::OpenedNccl opened = gpu::open_nccl(std::getenv);
  if (opened.library == nullptr) return NcclHere{"", "", opened.reason};
  return NcclHere{opened.library->name(), opened.library->file.string(), ""};
}

std::string nccl_text(const NcclHere& nccl) {
  if (nccl.problem.empty())
    return formatted("{} for several GPUs (memory.exchange: nccl): {}\n", nccl.library, printable(nccl.file));
  return formatted(
      "no NCCL ({}): several GPUs exchange through memory of the host. For memory.exchange: nccl {}\n",
      printable(nccl.problem), gpu::kInstallNccl);
}

std::string bytes_or_unknown(const std::optional<int64_t>& bytes) {
  return bytes ? format_bytes(*bytes) : "unknown";
}

std::vector<std::string> gpu_cells(const devices::Gpu& gpu) {
  const bool answers = gpu.problem.empty();
  const auto if_it_answers = [&](const std::string& text) { return answers ? text : std::string("-"); };
  return {
      std::to_string(gpu.index),
      gpu.uuid.empty() ? "-" : printable(devices::short_name(gpu.uuid)),
      gpu.name.empty() ? "-" : printable(gpu.name),
      gpu.compute.empty() ? "-" : gpu.compute,
      gpu.total > 0 ? format_bytes(gpu.total) : "-",
      if_it_answers(format_bytes(gpu.used)),
      if_it_answers(format_bytes(std::max<int64_t>(0, gpu.total - gpu.used))),
      gpu.busy_percent ? std::to_string(*gpu.busy_percent) + " %" : "-",
      gpu.processes_known ? std::to_string(gpu.processes.size()) : "-",
      answers ? gpu.mig ? "cut into MIG instances: the queue does not use it" : "" : printable(gpu.problem)};
}

// The processes that compute on cards, by card.
std::string processes_text(const devices::GpuReport& report) {
  const std::map<pid_t, queue::Process> here = queue::all_processes();
  TextTable table({true, true, true, false});
  table.add_row({"gpu", "pid", "used", "process"});
  bool any = false;
  for (const devices::Gpu& gpu : report.gpus)
    for (const devices::GpuProcess& one : gpu.processes) {
      const auto known = here.find(static_cast<pid_t>(one.pid));
      table.add_row({std::to_string(gpu.index), std::to_string(one.pid), bytes_or_unknown(one.bytes),
                     known == here.end() ? "(not visible)" : printable(known->second.name)});
      any = true;
    }
  return any ? "\n" + table.render("  ") : "";
}

// Cards that this program can plan for, and not train on.
bool lacks_cuda(const devices::GpuReport& report) {
  return !report.gpus.empty() && !gpu::built_with_cuda() && !emulates_cards();
}

constexpr const char* kLacksCuda =
    "this program was built without CUDA: it trains on the CPU, plans for these GPUs, and queues commands on "
    "them. To train on a GPU, build it with nvcc 12.8 or later\n";

std::string gpus_text(const devices::GpuReport& report) {
  if (!report.problem.empty())
    return fitted(formatted("no GPU: {}. The CPU is what there is.\n", printable(report.problem)),
                  output_columns());
  const std::string driver = "NVIDIA driver " + printable(report.driver);
  if (report.gpus.empty()) return formatted("no GPU: {} has none. The CPU is what there is.\n", driver);
  TextTable table({true, false, false, true, true, true, true, true, true, false});
  table.add_row({"gpu", "uuid", "name", "compute", "memory", "used", "free", "busy", "processes", ""});
  for (const devices::Gpu& gpu : report.gpus) table.add_row(gpu_cells(gpu));
  table.may_go({1, 8, 3, 7});
  return formatted("{}\n{}{}", driver, table.render("  ", output_columns()), processes_text(report));
}

ExitCode run_devices(bool json) {
  const CpuFacts cpu = cpu_facts();
  const MpiHere mpi = mpi_here();
  devices::GpuWatch watch(devices::nvml_library(), devices::watch_times());
  const devices::GpuReport report = watch.first();
  const std::optional<NcclHere> nccl = nccl_here(report);
  if (!json) {
    print(fitted(cpu_text(cpu) + mpi_text(mpi), output_columns()) + gpus_text(report) +
          (lacks_cuda(report) ? fitted(kLacksCuda, output_columns()) : "") +
          (nccl ? fitted(nccl_text(*nccl), output_columns()) : ""));
    return ExitCode::ok;
  }
  ordered_json root;
  root["cpu"] = {{"model", cpu.model},
                 {"threads", cpu.threads},
                 {"isa", cpu.isa.empty() ? ordered_json(nullptr) : ordered_json(cpu.isa)},
                 {"problem", cpu.problem},
                 {"memory_bytes", cpu.memory},
                 {"free_bytes", cpu.free.bytes}};
  root["mpi"] = {{"library", mpi.library}, {"launcher", mpi.launcher}, {"problem", mpi.problem}};
  root["built_with_cuda"] = gpu::built_with_cuda();
  if (nccl) root["nccl"] = {{"library", nccl->library}, {"file", nccl->file}, {"problem", nccl->problem}};
  root.update(devices::report_json(report));
  print(json_text(root));
  return ExitCode::ok;
}

}  // namespace

void add_devices(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("devices", "CPU and GPUs of this machine, and their free memory");
  command->add_flag("--json", *json, "JSON output (docs/reference/json.md)");
  command->callback([json, &action] { action = [json] { return run_devices(*json); }; });
}

}  // namespace plimsoll
