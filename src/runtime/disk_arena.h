// The disk's arena: one file without a name, so that nothing stays behind however the process ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace plimsoll {

// Reads and writes go past the page cache where the file system allows it: the cache would take the memory
// that the plan has given to the device. Otherwise pages are dropped right after use.
class DiskArena {
 public:
  // Claims all `bytes`, which read as zeros, in `folder`. Throws DoesNotFitError when the disk has not that
  // much.
  DiskArena(const std::filesystem::path& folder, int64_t bytes);
  ~DiskArena();
  DiskArena(const DiskArena&) = delete;
  DiskArena& operator=(const DiskArena&) = delete;

  [[nodiscard]] int64_t bytes() const { return bytes_; }
  // Offsets, sizes and addresses that are multiples of this pass straight through; the rest goes through a
  // small buffer. 1: the page cache is used.
  [[nodiscard]] int64_t block() const { return block_; }

  // One caller at a time. Throws StoppedError with the system's reason.
  void read(int64_t offset, std::span<std::byte> to);
  void write(int64_t offset, std::span<const std::byte> from);

 private:
  struct FreeDeleter {
    void operator()(std::byte* memory) const;
  };

  void open_file();
  void claim();
  void choose_block();
  void transfer(int64_t offset, std::byte* memory, int64_t bytes, bool writes);
  void transfer_unaligned(int64_t offset, std::byte* memory, int64_t bytes, bool writes);
  void transfer_aligned(int64_t offset, std::byte* memory, int64_t bytes, bool writes);
  void drop_pages(int64_t offset, int64_t bytes, bool dirty) const;
  [[noreturn]] void fail(const char* what, int64_t offset, int error) const;

  std::filesystem::path folder_;
  int64_t bytes_;
  int descriptor_ = -1;
  int64_t block_ = 1;
  std::unique_ptr<std::byte[], FreeDeleter> bounce_;
};

}  // namespace plimsoll
