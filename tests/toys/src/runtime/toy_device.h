// The CPU's kernels with a mark at every call: a backend of one file.
#pragma once

#include "runtime/device.h"

namespace plimsoll {

class ToyDevice : public CpuDevice {
 public:
  explicit ToyDevice(const CpuSettings& settings) : CpuDevice(settings) {}
  BoundCall bind(const Graph& graph, const Op& op, const AddressOf& address) override;
  [[nodiscard]] int64_t calls() const { return calls_; }

 private:
  int64_t calls_ = 0;
};

std::string toy_kernels_text(const CpuSettings& settings);

}  // namespace plimsoll
