// Stores measured rates: one file per machine in the user's cache folder.
#pragma once

#include <filesystem>
#include <string>

#include "device/description.h"
#include "ops/cpu_kernel.h"

namespace plimsoll {

// The key that rates belong to: another machine or other settings have other rates.
struct Machine {
  std::string cpu;  // as /proc/cpuinfo names it
  std::string isa;
  int threads = 1;
  std::string kernels;  // ids of the matmul kernels
  friend bool operator==(const Machine&, const Machine&) = default;
};
Machine this_machine(const CpuSettings& settings);

// PLIMSOLL_CACHE_DIR, else plimsoll/ in XDG_CACHE_HOME or in ~/.cache. Throws UsageError where none is set.
std::filesystem::path cache_folder();
std::filesystem::path rates_file(const std::filesystem::path& folder, const Machine& machine);
// The file with the rates of a probe (calibrate/probe.h), used until the machine is calibrated.
std::filesystem::path probe_file(const std::filesystem::path& folder, const Machine& machine);
// Returns true if the folder holds one of the two.
bool knows_rates(const std::filesystem::path& folder, const Machine& machine);

// To rates_file(), or where they are not `calibrated` to probe_file().
void save_rates(const std::filesystem::path& folder, const Machine& machine, const DeviceRates& rates);

// A file with a machine's description and rates, for planning on another one.
struct MeasuredMachine {
  Machine machine;
  DeviceRates rates;
};
void write_machine(const std::filesystem::path& file, const MeasuredMachine& measured);
// Throws UsageError where there is no such file, DamagedError for what it holds.
MeasuredMachine read_machine(const std::filesystem::path& file);

// The rates measured on this machine, else those of its probe, with a note about it. Where neither exists or
// the file cannot be used, `shipped`, with a note that gives the reason. Never throws for what a file holds.
DeviceRates load_rates(const std::filesystem::path& folder, const Machine& machine,
                       const DeviceRates& shipped);
// The same from cache_folder().
DeviceRates calibrated_or_shipped(const CpuSettings& settings, const DeviceRates& shipped);
// Replaces the disk's rates of `rates`, a GPU's for instance, by those that `plimsoll calibrate` measured on
// this machine; leaves `rates` as they are if it has not.
void take_disk_rates(const CpuSettings& settings, DeviceRates& rates);

}  // namespace plimsoll
