#include "runtime/device.h"

#include "runtime/arena.h"

namespace plimsoll {
namespace {

class NullMemory : public DeviceMemory {
 public:
  explicit NullMemory(int64_t bytes) : bytes_(bytes) {}
  [[nodiscard]] std::byte* data() const override { return nullptr; }
  [[nodiscard]] int64_t bytes() const override { return bytes_; }

 private:
  int64_t bytes_;
};

}  // namespace

std::unique_ptr<DeviceMemory> CpuDevice::map(int64_t bytes) {
  return std::make_unique<Arena>(bytes, settings_.threads);
}

BoundCall CpuDevice::bind(const Graph& graph, const Op& op, const AddressOf& address) {
  return bind_cpu(CpuBinding(graph, op, settings_, address));
}

std::unique_ptr<DeviceMemory> NullDevice::map(int64_t bytes) {
  mapped_bytes += bytes;
  return std::make_unique<NullMemory>(bytes);
}

BoundCall NullDevice::bind(const Graph&, const Op&, const AddressOf&) {
  ++bound_ops;
  return [this] { ++calls; };
}

}  // namespace plimsoll
