// The narrow seam between programs and machines: memory, and ops as calls. A backend implements these two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpu/card.h"
#include "graph/graph.h"
#include "ops/cpu_kernel.h"
#include "ops/host_fact.h"
#include "runtime/disk_arena.h"
#include "tensor/tensor.h"

namespace plimsoll {

class NodePages;

// The one allocation of a run. `bytes` is what was requested from the system.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // An address of the device, which the host may use where the device reaches the host.
  [[nodiscard]] virtual std::byte* data() const = 0;
  [[nodiscard]] virtual int64_t bytes() const = 0;
};

// One copy between the device and an offloaded tensor, which is in the host's memory or in the disk's arena.
struct Transfer {
  bool fetches = true;  // offloaded -> copy; otherwise copy -> offloaded
  std::span<std::byte> copy;
  std::byte* host = nullptr;
  DiskArena* disk = nullptr;  // where `host` is nullptr
  int64_t disk_offset = 0;
  // Earlier transfers of the program, by number, that move some of the same bytes of it: they come first.
  std::vector<size_t> after;
};

// A transfer as calls of the thread that walks the program, and what the I/O thread does between them. A
// device has a job for that thread, or queues of its own, to which start and wait give what they need.
struct BoundTransfer {
  BoundCall start = nullptr;
  BoundCall job = nullptr;   // jobs run one by one, in the order of their starts
  BoundCall wait = nullptr;  // when the job is done: what the program does from here on finds the bytes moved
};

using AddressOf = std::function<std::byte*(TensorId)>;
// The inputs of a program as the host sent them, for the calls of its ops.
struct Sent {
  std::function<const std::byte*(TensorId)> of;  // nullptr: the tensor is no input; empty: nothing is known
  std::vector<HostFact>* facts = nullptr;        // gets what the calls decide by
};

// Ops, fills, uploads and downloads take place in the order of their calls. Whether they have taken place
// when a call returns is up to the device: a caller that needs their results downloads them, or calls
// finish() before. One thread calls.
class Device {
 public:
  virtual ~Device() = default;
  // True if the host may use the addresses of the device's memory.
  [[nodiscard]] virtual bool reaches_host() const = 0;
  // Memory of a GPU of its own; nullopt: the device has none.
  [[nodiscard]] virtual std::optional<gpu::MemoryLeft> memory_left() const { return std::nullopt; }
  // Throws DoesNotFitError when the device has not that much.
  virtual std::unique_ptr<DeviceMemory> map(int64_t bytes) = 0;
  // The same with pages at its front that other processes have too. Throws InternalError where the device's memory is
  // not the host's.
  virtual std::unique_ptr<DeviceMemory> map_over(NodePages& front, int64_t bytes);
  // Host memory from which the device copies at full speed.
  virtual std::unique_ptr<DeviceMemory> map_host(int64_t bytes) = 0;
  // The same with pages at its front that other processes have too. Throws InternalError where the device's memory is
  // the host's, and DoesNotFitError where they cannot be locked for its copies.
  virtual std::unique_ptr<DeviceMemory> map_host_over(NodePages& front, int64_t bytes);
  virtual std::unique_ptr<DiskArena> open_disk(const std::filesystem::path& folder, int64_t bytes) = 0;
  // Looks at the op once; the call runs it and allocates nothing.
  virtual BoundCall bind(const Graph& graph, const Op& op, const AddressOf& address) = 0;
  // The same, for a host that leaves what it sent in place until all calls of a program are made.
  virtual BoundCall bind_sent(const Graph& graph, const Op& op, const AddressOf& address, const Sent&) {
    return bind(graph, op, address);
  }
  // The library that computes matrix products, where that is found out when a device is opened; else empty.
  [[nodiscard]] virtual std::string products() const { return ""; }
  // The note before the first op is bound, where its code is not ready; else empty.
  [[nodiscard]] virtual std::string loading_note() const { return ""; }
  // All of a program, in the order in which they start.
  virtual std::vector<BoundTransfer> bind_transfers(std::span<const Transfer> transfers) = 0;

  // `from` may be written to again when the call returns.
  virtual void upload(std::byte* to, std::span<const std::byte> from) = 0;
  // The bytes are there when the call returns.
  virtual void download(std::span<std::byte> to, const std::byte* from) = 0;
  // Within the device's memory, or between it and that of map_host(), which the host leaves alone until
  // finish_copies().
  virtual void copy(std::byte* to, std::span<const std::byte> from) = 0;
  // Returns when all copies have taken place that copy() was called for. Throws what failed.
  virtual void finish_copies() = 0;
  // For cards that exchange by themselves; InternalError for any other device. A library's calls, in the order of
  // ops and copies (gpu::Card::run_library).
  virtual void run_library(const std::function<void(void* stream)>& calls);
  // Values of `dtype` in equal pieces of so many ranks become their sums, in the order of ranks, rounded once.
  virtual void add_up_ranks(std::span<const std::byte> pieces, int64_t ranks, DType dtype, std::byte* sums);
  // Returns when these and all copies have taken place, and calls `looks` while it waits.
  virtual void finish_exchange(const std::function<void()>& looks);
  // Memory of the device or of map_host().
  virtual void fill(std::span<std::byte> bytes, int value) = 0;
  // The number and nodes of the graphs that the device made, and the card's memory that they took.
  struct GraphUse {
    int64_t graphs = 0, nodes = 0, bytes = 0;
  };
  [[nodiscard]] virtual GraphUse graph_use() const { return {}; }
  // True if it makes graphs of calls: if it makes none, the next three are not called. Between the first two
  // of them ops, fills and transfers are captured instead of taking place, and there are no other calls; a
  // launch takes place as they would.
  [[nodiscard]] virtual bool makes_graphs() const { return false; }
  virtual void begin_capture();
  virtual std::unique_ptr<gpu::CardGraph> end_capture();
  virtual void launch(const gpu::CardGraph& graph);

  // Returns when all calls have taken place. Throws what failed, once.
  virtual void finish() = 0;
  // Leaves out what has not begun, returns when nothing runs, and forgets what failed.
  virtual void abandon() noexcept = 0;
};

// A device that computes in the host's own memory: a call has taken place when it returns.
class HostDevice : public Device {
 public:
  [[nodiscard]] bool reaches_host() const override { return true; }
  void upload(std::byte* to, std::span<const std::byte> from) override;
  void download(std::span<std::byte> to, const std::byte* from) override;
  void copy(std::byte* to, std::span<const std::byte> from) override;
  void fill(std::span<std::byte> bytes, int value) override;
  void finish_copies() override {}
  void finish() override {}
  void abandon() noexcept override {}
};

// Mapped and touched host memory, kernels of src/ops/*_cpu.cc.
class CpuDevice : public HostDevice {
 public:
  explicit CpuDevice(const CpuSettings& settings) : settings_(settings) {}
  std::unique_ptr<DeviceMemory> map(int64_t bytes) override;
  std::unique_ptr<DeviceMemory> map_over(NodePages& front, int64_t bytes) override;
  std::unique_ptr<DeviceMemory> map_host(int64_t bytes) override;
  std::unique_ptr<DiskArena> open_disk(const std::filesystem::path& folder, int64_t bytes) override;
  BoundCall bind(const Graph& graph, const Op& op, const AddressOf& address) override;
  std::vector<BoundTransfer> bind_transfers(std::span<const Transfer> transfers) override;

 private:
  CpuSettings settings_;
};

// No memory, no disk, no kernels: the schedule alone. Counts bytes, ops and calls, so that a plan can be run
// without a machine.
class NullDevice : public HostDevice {
 public:
  std::unique_ptr<DeviceMemory> map(int64_t bytes) override;
  std::unique_ptr<DeviceMemory> map_host(int64_t bytes) override;
  std::unique_ptr<DiskArena> open_disk(const std::filesystem::path& folder, int64_t bytes) override;
  BoundCall bind(const Graph& graph, const Op& op, const AddressOf& address) override;
  std::vector<BoundTransfer> bind_transfers(std::span<const Transfer> transfers) override;

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
