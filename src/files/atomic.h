// Files and folders that appear whole or not at all, whenever the machine stops: write under a temporary
// name, flush to disk, rename, flush the folder that holds the name. Temporary paths are their callers', on
// the same file system and with nothing of the user's at them (files/work_folder.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace plimsoll {

// For a path that a user named: replaces the file by one with this content. Where a link has the name, what
// it leads to is replaced and the link stays; a device, or a FIFO with a reader, takes the content as it
// comes. Throws UsageError where the place does not allow it, StoppedError where the disk gives up.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Writes a new file. Throws UsageError where the name is taken, and leaves what has it.
void write_new_file(const std::filesystem::path& path, std::string_view content);

// For a name in a folder of ours: whatever has it, a link too, is replaced.
void put_file(const std::filesystem::path& temporary, const std::filesystem::path& path,
              std::string_view content);

// For notes that need not survive a stop of the machine: nothing is flushed. A reader finds the old content or
// the new one. Whether it could be written; the old content stays where not.
bool replace_file(const std::filesystem::path& temporary, const std::filesystem::path& path,
                  std::string_view content);

// A folder being written, at path() until publish(); one never published is removed at the end.
class AtomicFolder {
 public:
  enum class Existing : uint8_t { replace, refuse };

  // Removes what is left at `temporary`. Its parent must be there.
  AtomicFolder(std::filesystem::path final_path, std::filesystem::path temporary);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();

  [[nodiscard]] const std::filesystem::path& path() const { return temporary_; }
  // Flushes everything below to disk and gives the folder its final name. Where something has it already: in
  // its place, or UsageError.
  void publish(Existing existing);

 private:
  std::filesystem::path final_;
  std::filesystem::path temporary_;
  bool published_ = false;
};

// Returns when the file or folder is on the disk: of a folder its names, not what is in its files. Throws
// StoppedError.
void flush_to_disk(const std::filesystem::path& path);

// Flushes the name of a file or folder that was made, as far as that is allowed: a user who may write to a
// folder may not be allowed to read it.
void flush_name(const std::filesystem::path& path) noexcept;

// Makes the folder and its parents, where they are absent, and flushes each as far as that is allowed.
void make_folders(const std::filesystem::path& folder);

// The temporary name under which the old folder waits while the new one takes its place, where folders cannot
// be exchanged: after a crash between the two it gets its name back.
std::filesystem::path set_aside(const std::filesystem::path& temporary);

// Removes a folder: its name goes first, on the disk too, so that what is left of it is never taken for the
// whole.
void remove_folder_atomically(const std::filesystem::path& folder, const std::filesystem::path& temporary);

// Puts the content of `from` at `to`, by a hard link where the file system allows it; what was at `to` is
// replaced at once.
void link_atomically(const std::filesystem::path& from, const std::filesystem::path& to,
                     const std::filesystem::path& temporary);
// A copy takes the name of a file that has other names too.
void unshare_file(const std::filesystem::path& path, const std::filesystem::path& temporary);
// Returns true if files in this folder can have several names.
bool has_hard_links(const std::filesystem::path& file, const std::filesystem::path& temporary);

// Bytes that an ordinary user may still write where `path` is, or would be: its nearest existing parent
// counts.
int64_t free_disk_bytes(const std::filesystem::path& path);

// Throws StoppedError unless `bytes` are free; `what` names what was to be written ("a checkpoint"),
// `otherwise` what helps where so many bytes cannot be freed.
void require_disk_space(const std::filesystem::path& path, int64_t bytes, std::string_view what,
                        std::string_view otherwise = "choose another folder with output");

}  // namespace plimsoll
