#include "runtime/device.h"

#include <cstring>

#include "base/error.h"
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

BoundCall job_of(const Transfer& transfer) {
  if (transfer.host == nullptr) {
    if (transfer.fetches)
      return [disk = transfer.disk, offset = transfer.disk_offset, copy = transfer.copy] {
        disk->read(offset, copy);
      };
    return [disk = transfer.disk, offset = transfer.disk_offset, copy = transfer.copy] {
      disk->write(offset, copy);
    };
  }
  std::byte* to = transfer.fetches ? transfer.copy.data() : transfer.host;
  const std::byte* from = transfer.fetches ? transfer.host : transfer.copy.data();
  return [=, bytes = transfer.copy.size()] { std::memcpy(to, from, bytes); };
}

}  // namespace

std::unique_ptr<DeviceMemory> Device::map_over(NodePages&, int64_t) {
  throw InternalError("a device was asked for memory that processes share");
}
std::unique_ptr<DeviceMemory> Device::map_host_over(NodePages&, int64_t) {
  throw InternalError("a device was asked for host memory that processes share");
}
void Device::run_library(const std::function<void(void*)>&) {
  throw InternalError("a device that has no queue was asked for a library's work");
}
void Device::add_up_ranks(std::span<const std::byte>, int64_t, DType, std::byte*) {
  throw InternalError("a device that is no card was asked for sums over ranks");
}
void Device::finish_exchange(const std::function<void()>&) {
  throw InternalError("a device that is no card was asked for an exchange");
}
void Device::begin_capture() { throw InternalError("a device without graphs was asked for one"); }
std::unique_ptr<gpu::CardGraph> Device::end_capture() {
  throw InternalError("a device without graphs was asked for one");
}
void Device::launch(const gpu::CardGraph&) {
  throw InternalError("a device without graphs was asked for one");
}

void HostDevice::upload(std::byte* to, std::span<const std::byte> from) {
  std::memcpy(to, from.data(), from.size());
}

void HostDevice::download(std::span<std::byte> to, const std::byte* from) {
  std::memcpy(to.data(), from, to.size());
}

void HostDevice::copy(std::byte* to, std::span<const std::byte> from) {
  std::memcpy(to, from.data(), from.size());
}

void HostDevice::fill(std::span<std::byte> bytes, int value) {
  std::memset(bytes.data(), value, bytes.size());
}

std::unique_ptr<DeviceMemory> CpuDevice::map(int64_t bytes) {
  return std::make_unique<Arena>(bytes, settings_.threads);
}

std::unique_ptr<DeviceMemory> CpuDevice::map_over(NodePages& front, int64_t bytes) {
  return std::make_unique<Arena>(bytes, settings_.threads, &front);
}

std::unique_ptr<DeviceMemory> CpuDevice::map_host(int64_t bytes) { return map(bytes); }

std::unique_ptr<DiskArena> CpuDevice::open_disk(const std::filesystem::path& folder, int64_t bytes) {
  return std::make_unique<DiskArena>(folder, bytes);
}

BoundCall CpuDevice::bind(const Graph& graph, const Op& op, const AddressOf& address) {
  return bind_cpu(CpuBinding(graph, op, settings_, address));
}

// Jobs that run one by one need no word of which comes after which.
std::vector<BoundTransfer> CpuDevice::bind_transfers(std::span<const Transfer> transfers) {
  std::vector<BoundTransfer> bound;
  for (const Transfer& transfer : transfers) bound.push_back({.job = job_of(transfer)});
  return bound;
}

std::unique_ptr<DeviceMemory> NullDevice::map(int64_t bytes) {
  mapped_bytes += bytes;
  return std::make_unique<NullMemory>(bytes);
}

std::unique_ptr<DeviceMemory> NullDevice::map_host(int64_t bytes) {
  host_bytes += bytes;
  return std::make_unique<NullMemory>(bytes);
}

std::unique_ptr<DiskArena> NullDevice::open_disk(const std::filesystem::path&, int64_t bytes) {
  disk_bytes += bytes;
  return nullptr;
}

BoundCall NullDevice::bind(const Graph&, const Op&, const AddressOf&) {
  ++bound_ops;
  return [this] { ++calls; };
}

std::vector<BoundTransfer> NullDevice::bind_transfers(std::span<const Transfer> transfers_of_program) {
  std::vector<BoundTransfer> bound;
  for (const Transfer& transfer : transfers_of_program)
    bound.push_back({.job = [this, bytes = static_cast<int64_t>(transfer.copy.size())] {
      ++transfers;
      transferred_bytes += bytes;
    }});
  return bound;
}

}  // namespace plimsoll
