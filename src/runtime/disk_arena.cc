#include "runtime/disk_arena.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/format.h"
#include "base/regular_file.h"
#include "base/units.h"
#include "layout/disk_file.h"

namespace plimsoll {
namespace {

// Long enough for the disk's full rate, short enough that an error or a signal is noticed soon.
constexpr int64_t kPiece = 8 * kMiB;
constexpr int64_t kBounce = kMiB;

int64_t round_down(int64_t value, int64_t unit) { return value / unit * unit; }

int64_t free_bytes(const std::filesystem::path& folder) {
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) != 0) return 0;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

}  // namespace

void DiskArena::FreeDeleter::operator()(std::byte* memory) const { std::free(memory); }

DiskArena::DiskArena(const std::filesystem::path& folder, int64_t bytes)
    : folder_(folder), bytes_(disk_file_bytes(std::max<int64_t>(bytes, 1))) {
  open_file();
  try {
    claim();
    bounce_.reset(static_cast<std::byte*>(
        std::aligned_alloc(static_cast<size_t>(kLargestDiskBlock), static_cast<size_t>(kBounce))));
    if (bounce_ == nullptr) throw std::bad_alloc();
    choose_block();
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

DiskArena::~DiskArena() { close(descriptor_); }

void DiskArena::open_file() {
  descriptor_ = open_unnamed(folder_, "offload");
  if (descriptor_ < 0) fail("cannot be created", 0, errno);
}

void DiskArena::claim() {
  const int64_t free = free_bytes(folder_);
  const int error = free < bytes_ ? ENOSPC : posix_fallocate(descriptor_, 0, bytes_);
  if (error == 0) return;
  throw DoesNotFitError(formatted(
      "does not fit   what is offloaded to the disk needs {} in {}, where {} are free: {}\n  free some "
      "space, or set memory.disk lower",
      format_bytes(bytes_), folder_.string(), format_bytes(free), std::strerror(error)));
}

// The smallest block that the disk takes without its cache, tried on one that is just that aligned.
void DiskArena::choose_block() {
  const int flags = fcntl(descriptor_, F_GETFL);
  if (fcntl(descriptor_, F_SETFL, flags | O_DIRECT) != 0) return;
  for (const int64_t block : {int64_t{512}, kLargestDiskBlock}) {
    std::byte* address = bounce_.get() + block % kLargestDiskBlock;
    if (pread(descriptor_, address, static_cast<size_t>(block), block % kLargestDiskBlock) < 0) continue;
    block_ = block;
    return;
  }
  fcntl(descriptor_, F_SETFL, flags);
}

void DiskArena::read(int64_t offset, std::span<std::byte> to) {
  transfer(offset, to.data(), static_cast<int64_t>(to.size()), false);
}

void DiskArena::write(int64_t offset, std::span<const std::byte> from) {
  // Shared by both directions; a write only reads from the memory.
  transfer(offset, const_cast<std::byte*>(from.data()), static_cast<int64_t>(from.size()), true);
}

void DiskArena::transfer(int64_t offset, std::byte* memory, int64_t bytes, bool writes) {
  check_internal(offset >= 0 && bytes <= bytes_ - offset, "a transfer leaves the disk's arena");
  const bool aligned =
      offset % block_ == 0 && reinterpret_cast<uintptr_t>(memory) % static_cast<uintptr_t>(block_) == 0;
  const int64_t direct = aligned ? round_down(bytes, block_) : 0;
  transfer_aligned(offset, memory, direct, writes);
  transfer_unaligned(offset + direct, memory + direct, bytes - direct, writes);
}

// Whole blocks pass through the buffer; what a write leaves of the first and the last one is read before.
void DiskArena::transfer_unaligned(int64_t offset, std::byte* memory, int64_t bytes, bool writes) {
  while (bytes > 0) {
    const int64_t start = round_down(offset, block_);
    const int64_t before = offset - start;
    const int64_t now = std::min(bytes, kBounce - before);
    const int64_t blocks = round_up(before + now, block_);
    const bool whole = before == 0 && now == blocks;
    if (!writes || !whole) transfer_aligned(start, bounce_.get(), blocks, false);
    if (writes) {
      std::memcpy(bounce_.get() + before, memory, static_cast<size_t>(now));
      transfer_aligned(start, bounce_.get(), blocks, true);
    } else {
      std::memcpy(memory, bounce_.get() + before, static_cast<size_t>(now));
    }
    offset += now;
    memory += now;
    bytes -= now;
  }
}

void DiskArena::transfer_aligned(int64_t offset, std::byte* memory, int64_t bytes, bool writes) {
  for (int64_t done = 0; done < bytes;) {
    const auto piece = static_cast<size_t>(std::min(bytes - done, kPiece));
    const ssize_t moved = writes ? pwrite(descriptor_, memory + done, piece, offset + done)
                                 : pread(descriptor_, memory + done, piece, offset + done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0)
      fail(writes ? "cannot be written" : "cannot be read", offset + done, moved < 0 ? errno : EIO);
    if (block_ == 1) drop_pages(offset + done, moved, writes);
    done += moved;
  }
}

void DiskArena::drop_pages(int64_t offset, int64_t bytes, bool dirty) const {
  constexpr unsigned kWritten =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  // Both are advice: where they do not work, the cache keeps its pages until the system wants them.
  if (dirty) sync_file_range(descriptor_, offset, bytes, kWritten);
  posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_DONTNEED);
}

void DiskArena::fail(const char* what, int64_t offset, int error) const {
  throw StoppedError(formatted(
      "the offload file in {} {} at byte {}: {}\n  the last checkpoint is intact; continue with --resume",
      folder_.string(), what, format_count(offset), std::strerror(error)));
}

}  // namespace plimsoll
