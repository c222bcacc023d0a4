// The arenas of a run, one in each space that its layout uses, and the queue that moves bytes between them.
#pragma once

#include <filesystem>
#include <memory>

#include "layout/program_layout.h"
#include "ranks/node_pages.h"
#include "runtime/device.h"
#include "runtime/disk_arena.h"
#include "runtime/io_queue.h"

namespace plimsoll {

// The addresses of the arenas; not owned. Spaces that a run does not use have none.
struct Arenas {
  std::byte* device = nullptr;
  std::byte* host = nullptr;
  DiskArena* disk = nullptr;
  IoQueue* io = nullptr;
  Device* apart = nullptr;  // whose `device` is, where the host does not reach it
  // False where another process of the node writes what all of them have in common.
  bool writes_shared = true;

  // Throws InternalError for a tensor on disk.
  [[nodiscard]] std::byte* address(const TableRow& row) const;
};

class RunMemory {
 public:
  // `disk_folder` holds the disk's arena, where there is one. `ranks`: with whom it has the layout's front in common,
  // where that has one; all of them call this then.
  RunMemory(Device& device, const ArenaLayout& layout, const std::filesystem::path& disk_folder,
            RunRanks& ranks = no_other_ranks());

  [[nodiscard]] Arenas arenas() const;
  // As requested from the system.
  [[nodiscard]] int64_t device_bytes() const { return device_->bytes(); }
  [[nodiscard]] int64_t host_bytes() const { return host_ == nullptr ? 0 : host_->bytes(); }
  // The part of an arena, the device's or the host's, that the processes of this node have once.
  [[nodiscard]] int64_t shared_bytes() const { return pages_ == nullptr ? 0 : pages_->bytes(); }
  [[nodiscard]] int64_t disk_bytes() const { return disk_ == nullptr ? 0 : disk_->bytes(); }
  // This process only reads that part from here on.
  void seal_shared();
  [[nodiscard]] double seconds_waited() const { return io_ == nullptr ? 0 : io_->seconds_waited(); }

 private:
  Device& of_;
  std::unique_ptr<DiskArena> disk_;  // first: a full disk is noticed before memory is touched
  std::unique_ptr<NodePages> pages_;
  std::unique_ptr<DeviceMemory> device_, host_;
  std::unique_ptr<IoQueue> io_;  // last: its thread uses the arenas
};

}  // namespace plimsoll
