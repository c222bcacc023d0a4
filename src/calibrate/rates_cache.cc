#include "calibrate/rates_cache.h"

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/environment.h"
#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/units.h"
#include "calibrate/rates_json.h"
#include "cpu/matmul.h"
#include "files/atomic.h"
#include "files/json.h"
#include "files/json_values.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr int kRatesFormat = 1;  // of the file; one of another number is measured anew
constexpr int64_t kMaxRatesBytes = 16 * kMiB;

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const size_t colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "unknown cpu";
}

std::string kernel_of(DType dtype, const CpuSettings& settings) {
  const MatmulShape shape{.m = 64, .n = 64, .k = 64, .a = dtype, .b = dtype, .c = dtype};
  return std::string(Matmul::create(shape, settings.isa, settings.threads)->kernel_id());
}

// Letters and digits in lower case, runs of anything else as one hyphen.
std::string slug(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) {
      out += static_cast<char>(std::tolower(byte));
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  return out;
}

nlohmann::ordered_json machine_json(const Machine& machine) {
  return {
      {"cpu", machine.cpu}, {"isa", machine.isa}, {"threads", machine.threads}, {"kernels", machine.kernels}};
}

nlohmann::json read_rates_file(const fs::path& path) {
  nlohmann::json json = read_json(path, kMaxRatesBytes);
  if (!json.is_object() || !json.contains("format") || json["format"] != kRatesFormat)
    throw DamagedError(formatted("{}: not of format {}", path.string(), kRatesFormat));
  return json;
}

DeviceRates read_file(const fs::path& path, const Machine& machine) {
  const nlohmann::json json = read_rates_file(path);
  if (!json.contains("machine") || json["machine"] != nlohmann::json(machine_json(machine)))
    throw DamagedError(path.string() + ": measured on another machine or with other kernels");
  if (!json.contains("rates")) throw DamagedError(path.string() + ": no rates");
  return rates_from_json(json["rates"], path.string());
}

DeviceRates with_note(DeviceRates rates, const std::string& note) {
  rates.note = note;
  return rates;
}

}  // namespace

Machine this_machine(const CpuSettings& settings) {
  return {cpu_name(), std::string(to_string(settings.isa)), settings.threads,
          formatted("{} {} {}", kernel_of(DType::f32, settings), kernel_of(DType::bf16, settings),
                    kKernelGeneration)};
}

fs::path cache_folder() {
  if (const auto folder = environment("PLIMSOLL_CACHE_DIR"); !folder.empty()) return folder;
  if (const auto folder = environment("XDG_CACHE_HOME"); !folder.empty())
    return fs::path(folder) / "plimsoll";
  if (const auto home = environment("HOME"); !home.empty()) return fs::path(home) / ".cache" / "plimsoll";
  throw UsageError("no cache folder: set PLIMSOLL_CACHE_DIR, XDG_CACHE_HOME or HOME");
}

namespace {

std::string file_stem(const Machine& machine) {
  return formatted("rates-{}-{}-{}-threads", slug(machine.cpu), machine.isa, machine.threads);
}

}  // namespace

fs::path rates_file(const fs::path& folder, const Machine& machine) {
  return folder / (file_stem(machine) + ".json");
}

fs::path probe_file(const fs::path& folder, const Machine& machine) {
  return folder / (file_stem(machine) + "-probe.json");
}

void save_rates(const fs::path& folder, const Machine& machine, const DeviceRates& rates) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw StoppedError(formatted("{}: cannot be made: {}", folder.string(), error.message()));
  write_machine(rates.calibrated ? rates_file(folder, machine) : probe_file(folder, machine),
                {machine, rates});
}

void write_machine(const fs::path& file, const MeasuredMachine& measured) {
  const nlohmann::ordered_json json = {{"format", kRatesFormat},
                                       {"machine", machine_json(measured.machine)},
                                       {"rates", rates_to_json(measured.rates)}};
  write_file_atomically(file, json.dump() + "\n");
}

MeasuredMachine read_machine(const fs::path& file) {
  std::error_code unknown;
  if (!fs::is_regular_file(file, unknown))
    throw UsageError(
        formatted("--machine: {}: is no file; write one on that machine: plimsoll calibrate --export FILE",
                  file.string()));
  const nlohmann::json json = [&] {
    try {
      return read_rates_file(file);
    } catch (const DamagedError& error) {
      throw DamagedError(
          formatted("--machine: {} Expected is what plimsoll calibrate --export FILE writes on that machine.",
                    error.what()));
    }
  }();
  MeasuredMachine measured;
  read_values(file.string(), [&] {
    const nlohmann::json& machine = json.at("machine");
    measured.machine = {machine.at("cpu").get<std::string>(), machine.at("isa").get<std::string>(),
                        get_whole<int>(machine, "threads"), machine.at("kernels").get<std::string>()};
  });
  constexpr int kMostThreads = 4096;  // as the recipe allows
  if (measured.machine.threads < 1 || measured.machine.threads > kMostThreads)
    throw DamagedError(formatted("{}: 'threads' is {}", file.string(), measured.machine.threads));
  if (!json.contains("rates")) throw DamagedError(file.string() + ": no rates");
  measured.rates = rates_from_json(json["rates"], file.string());
  measured.rates.note = formatted("rates of {}, {}, {} threads ({})", measured.machine.cpu,
                                  measured.machine.isa, measured.machine.threads, file.string());
  return measured;
}

namespace {

// The rates of the two files, and what is wrong with a file that is of no use.
struct Known {
  std::optional<DeviceRates> rates;
  std::string fault;
};

Known known_rates(const fs::path& folder, const Machine& machine) {
  Known known;
  for (const bool measured : {true, false}) {
    const fs::path file = measured ? rates_file(folder, machine) : probe_file(folder, machine);
    std::error_code error;
    if (known.rates || !fs::exists(file, error)) continue;
    try {
      known.rates = read_file(file, machine);
      known.rates->calibrated = measured;
      if (!measured) known.rates->disk_measured = false;  // half a second has no time for a disk
    } catch (const Error& fault) {
      known.fault = fault.what();
    }
  }
  return known;
}

}  // namespace

bool knows_rates(const fs::path& folder, const Machine& machine) {
  return known_rates(folder, machine).rates.has_value();
}

DeviceRates load_rates(const fs::path& folder, const Machine& machine, const DeviceRates& shipped) {
  const Known known = known_rates(folder, machine);
  if (known.rates && known.rates->calibrated) return *known.rates;
  const std::string fault = known.fault.empty() ? "" : known.fault + "; ";
  if (known.rates)
    return with_note(*known.rates,
                     fault + "times are from half a second's measurement: `plimsoll calibrate` does better");
  return with_note(shipped, formatted("{}times are guessed: measure {} with `plimsoll calibrate`", fault,
                                      fault.empty() ? "this machine once" : "again"));
}

DeviceRates calibrated_or_shipped(const CpuSettings& settings, const DeviceRates& shipped) {
  fs::path folder;
  try {
    folder = cache_folder();
  } catch (const UsageError& fault) {
    return with_note(shipped, fault.what());
  }
  return load_rates(folder, this_machine(settings), shipped);
}

void take_disk_rates(const CpuSettings& settings, DeviceRates& rates) {
  const DeviceRates here = calibrated_or_shipped(settings, rates);
  if (!here.disk_measured) return;
  rates.disk_read = here.disk_read;
  rates.disk_write = here.disk_write;
  rates.disk_measured = true;
}

}  // namespace plimsoll
