// The narrow seam between programs and machines: memory, and ops as calls. A backend implements these two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "graph/graph.h"
#include "ops/cpu_kernel.h"

namespace plimsoll {

// The one allocation of a run. `bytes` is what was asked of the system.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  [[nodiscard]] virtual std::byte* data() const = 0;
  [[nodiscard]] virtual int64_t bytes() const = 0;
};

using AddressOf = std::function<std::byte*(TensorId)>;

class Device {
 public:
  virtual ~Device() = default;
  // Throws DoesNotFitError when the device has not that much.
  virtual std::unique_ptr<DeviceMemory> map(int64_t bytes) = 0;
  // Looks at the op once; the call runs it and allocates nothing.
  virtual BoundCall bind(const Graph& graph, const Op& op, const AddressOf& address) = 0;
};

// Mapped and touched host memory, kernels of src/ops/*_cpu.cc.
class CpuDevice : public Device {
 public:
  explicit CpuDevice(const CpuSettings& settings) : settings_(settings) {}
  std::unique_ptr<DeviceMemory> map(int64_t bytes) override;
  BoundCall bind(const Graph& graph, const Op& op, const AddressOf& address) override;

 private:
  CpuSettings settings_;
};

// No memory, no kernels: the schedule alone. Counts what it was asked for, so that a plan can be run without
// a machine.
class NullDevice : public Device {
 public:
  std::unique_ptr<DeviceMemory> map(int64_t bytes) override;
  BoundCall bind(const Graph& graph, const Op& op, const AddressOf& address) override;

  int64_t mapped_bytes = 0;
  int64_t bound_ops = 0;
  int64_t calls = 0;
};

}  // namespace plimsoll
