// Files and folders that appear whole or not at all, whenever the machine stops: write under a temporary
// name, flush to disk, rename, flush the folder that holds the name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace plimsoll {

// Replaces `path` by a file with this content.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// A folder being written, at path() until publish(). What an interrupted run left at the temporary name is
// removed at the start; a folder never published is removed at the end. Callers hold the RunLock around it.
class AtomicFolder {
 public:
  explicit AtomicFolder(std::filesystem::path final_path);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();

  // The temporary name: the final one with ".tmp".
  [[nodiscard]] const std::filesystem::path& path() const { return temporary_; }
  // Flushes everything below to disk and gives the folder its final name, in place of one that has it
  // already.
  void publish();

 private:
  std::filesystem::path final_;
  std::filesystem::path temporary_;
  bool published_ = false;
};

// Removes a folder: its name goes first, so that what is left of it is never taken for the whole.
void remove_folder_atomically(const std::filesystem::path& folder);

// Below `folder`: removes what was never finished (`*.tmp`, `*.tmp.<process>`), and gives a folder back its
// name where it was about to be replaced. Callers hold the RunLock.
void remove_leftovers(const std::filesystem::path& folder);

// Puts the content of `from` at `to`, by a hard link where the file system allows it; what was at `to` is
// replaced at once.
void link_atomically(const std::filesystem::path& from, const std::filesystem::path& to);

// Bytes that an ordinary user may still write where `path` is, or would be: its nearest existing parent
// counts.
int64_t free_disk_bytes(const std::filesystem::path& path);

// Throws StoppedError unless `bytes` are free; `what` names what was to be written ("a checkpoint").
void require_disk_space(const std::filesystem::path& path, int64_t bytes, std::string_view what);

}  // namespace plimsoll
