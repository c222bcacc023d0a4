// The hidden folder in which a command keeps its lock and whatever is not finished yet: `.plimsoll` inside a
// run's folder, `.NAME.plimsoll` next to a folder NAME that a command is about to make.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace plimsoll {

// Held from construction to destruction, by one process at a time. The kernel drops the lock when the process
// ends however it ends, so it never goes stale. At the end what is unfinished goes; where nothing but the
// lock is left, the hidden folder goes, and the folders that were made for it go too: a command that is
// refused leaves no trace.
class WorkFolder {
 public:
  // Creates the folder when it is absent. Throws UsageError naming `subject`, the folder that is written, and
  // the process that holds it; and where what has the hidden name is not of our making. Follows no link.
  WorkFolder(const std::filesystem::path& subject, std::filesystem::path place);
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  ~WorkFolder();

  static std::filesystem::path inside(const std::filesystem::path& folder);
  // `out` without a slash at its end.
  static std::filesystem::path beside(const std::filesystem::path& out);

  // A path for what is not finished yet.
  [[nodiscard]] std::filesystem::path temporary(std::string_view name) const;
  [[nodiscard]] std::filesystem::path lock_file() const;
  // Removes what another process left unfinished.
  void clear_temporaries() const;
  // Removes the lines of the run's other processes.
  void clear_rank_logs() const;
  // False once the folder was removed, or replaced by another one.
  [[nodiscard]] bool still_there() const;

 private:
  void open();
  // False where the file was removed between its opening and its locking.
  [[nodiscard]] bool lock();
  // Takes the name for a file of its own where the locked one has another name too.
  void unshare();
  void write_holder();
  void remove_traces() const noexcept;
  void remove_made() const noexcept;

  std::filesystem::path subject_, place_;
  std::vector<std::filesystem::path> made_;  // folders that were not there, outermost first
  int descriptor_ = -1;
};

// Returns true if a run holds the folder now.
bool is_locked(const std::filesystem::path& folder);

}  // namespace plimsoll
