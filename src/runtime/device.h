// The narrow seam between programs and machines: memory, and ops as calls. A backend implements these two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "graph/graph.h"
#include "ops/cpu_kernel.h"
#include "runtime/disk_arena.h"

namespace plimsoll {

// The one allocation of a run. `bytes` is what was asked of the system.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  [[nodiscard]] virtual std::byte* data() const = 0;
  [[nodiscard]] virtual int64_t bytes() const = 0;
};

// One copy between the device and a home, which is in the host's memory or in the disk's arena.
struct Transfer {
  bool fetches = true;  // home -> copy; otherwise copy -> home
  std::span<std::byte> copy;
  std::byte* host = nullptr;
  DiskArena* disk = nullptr;  // where `host` is nullptr
  int64_t disk_offset = 0;
};

using AddressOf = std::function<std::byte*(TensorId)>;

class Device {
 public:
  virtual ~Device() = default;
  // Throws DoesNotFitError when the device has not that much.
  virtual std::unique_ptr<DeviceMemory> map(int64_t bytes) = 0;
  // Host memory from which the device copies at full speed.
  virtual std::unique_ptr<DeviceMemory> map_host(int64_t bytes) = 0;
  virtual std::unique_ptr<DiskArena> open_disk(const std::filesystem::path& folder, int64_t bytes) = 0;
  // Looks at the op once; the call runs it and allocates nothing.
  virtual BoundCall bind(const Graph& graph, const Op& op, const AddressOf& address) = 0;
  // The call runs on the I/O thread.
  virtual BoundCall bind_transfer(const Transfer& transfer) = 0;
};

// Mapped and touched host memory, kernels of src/ops/*_cpu.cc.
class CpuDevice : public Device {
 public:
  explicit CpuDevice(const CpuSettings& settings) : settings_(settings) {}
  std::unique_ptr<DeviceMemory> map(int64_t bytes) override;
  std::unique_ptr<DeviceMemory> map_host(int64_t bytes) override;
  std::unique_ptr<DiskArena> open_disk(const std::filesystem::path& folder, int64_t bytes) override;
  BoundCall bind(const Graph& graph, const Op& op, const AddressOf& address) override;
  BoundCall bind_transfer(const Transfer& transfer) override;

 private:
  CpuSettings settings_;
};

// No memory, no disk, no kernels: the schedule alone. Counts what it was asked for, so that a plan can be run
// without a machine.
class NullDevice : public Device {
 public:
  std::unique_ptr<DeviceMemory> map(int64_t bytes) override;
  std::unique_ptr<DeviceMemory> map_host(int64_t bytes) override;
  std::unique_ptr<DiskArena> open_disk(const std::filesystem::path& folder, int64_t bytes) override;
  BoundCall bind(const Graph& graph, const Op& op, const AddressOf& address) override;
  BoundCall bind_transfer(const Transfer& transfer) override;

  int64_t mapped_bytes = 0;
  int64_t host_bytes = 0;
  int64_t disk_bytes = 0;
  int64_t bound_ops = 0;
  int64_t calls = 0;
  // By the I/O thread; read them when no program runs.
  int64_t transfers = 0;
  int64_t transferred_bytes = 0;
};

}  // namespace plimsoll
