#include "runtime/run_memory.h"

#include "base/error.h"

namespace plimsoll {

std::byte* Arenas::address(const TableRow& row) const {
  if (row.space == Space::disk) throw InternalError(row.name + " is on disk and has no address");
  std::byte* base = row.space == Space::host ? host : device;
  return base == nullptr ? nullptr : base + row.offset;  // the null device has no memory
}

RunMemory::RunMemory(Device& device, const ArenaLayout& layout, const std::filesystem::path& disk_folder,
                     RunRanks& ranks)
    : of_(device) {
  const int64_t disk = layout.arena_bytes(Space::disk);
  const int64_t host = layout.arena_bytes(Space::host);
  if (disk > 0) disk_ = device.open_disk(disk_folder, disk);
  if (layout.shared.bytes > 0) pages_ = std::make_unique<NodePages>(ranks, layout.shared.bytes);
  const bool on_host = layout.shared.space == Space::host;
  device_ =
      pages_ && !on_host ? device.map_over(*pages_, layout.arena_bytes()) : device.map(layout.arena_bytes());
  if (host > 0) host_ = pages_ && on_host ? device.map_host_over(*pages_, host) : device.map_host(host);
  if ((disk > 0 || host > 0) && device.reaches_host()) io_ = std::make_unique<IoQueue>();
}

Arenas RunMemory::arenas() const {
  return {device_->data(), host_ == nullptr ? nullptr : host_->data(), disk_.get(),
          io_.get(),       of_.reaches_host() ? nullptr : &of_,        pages_ == nullptr || pages_->writes()};
}

void RunMemory::seal_shared() {
  if (pages_) pages_->seal();
}

}  // namespace plimsoll
