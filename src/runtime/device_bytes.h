// Memory of a device as ranks exchange it: by copies between it and memory from which the device copies by itself.
#pragma once

#include <memory>
#include <span>

#include "ranks/ordered_sum.h"
#include "runtime/device.h"

namespace plimsoll {

// To be read to DeviceStaging of the same device, and written from it.
class DeviceBytes final : public ByteStore {
 public:
  DeviceBytes(Device& device, std::span<std::byte> bytes) : device_(device), bytes_(bytes) {}
  [[nodiscard]] size_t size() const override { return bytes_.size(); }
  [[nodiscard]] bool is_of_card() const override { return !device_.reaches_host(); }
  void read(size_t at, std::span<std::byte> to) const override {
    if (!to.empty()) device_.copy(to.data(), bytes_.subspan(at, to.size()));
  }
  void write(size_t at, std::span<const std::byte> from) const override {
    if (!from.empty()) device_.copy(bytes_.data() + at, from);
  }

 private:
  Device& device_;
  std::span<std::byte> bytes_;
};

class DeviceStaging final : public RankStaging {
 public:
  DeviceStaging(Device& device, int64_t bytes) : device_(device), memory_(device.map_host(bytes)) {}
  [[nodiscard]] std::span<std::byte> bytes() override {
    return {memory_->data(), static_cast<size_t>(memory_->bytes())};
  }
  void settle() override { device_.finish_copies(); }

 private:
  Device& device_;
  std::unique_ptr<DeviceMemory> memory_;
};

}  // namespace plimsoll
