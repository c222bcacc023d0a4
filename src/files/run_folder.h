// The output folder of a run. It is a place of the user's: a run removes, renames and overwrites there only
// what it, or an earlier run in the folder, provably wrote (files/manifest.h).
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/atomic.h"
#include "files/manifest.h"
#include "files/work_folder.h"

namespace plimsoll {

class RunFolder {
 public:
  // Takes the folder's lock, creating the folder where it is absent, and reads what a run left there. Folders
  // that an earlier version wrote have no manifest: their files count as the run's where their content shows
  // it (files/adopted_run.h). Unfinished files of a killed run are removed; nothing else is changed before
  // begin().
  explicit RunFolder(const std::filesystem::path& folder);
  // A folder that another process of the same run holds: its path, and nothing else, may be asked for.
  static RunFolder of_other(const std::filesystem::path& folder) { return RunFolder(folder, OfOther{}); }

  [[nodiscard]] const std::filesystem::path& path() const { return folder_; }
  [[nodiscard]] bool holds_run() const { return !manifest_->present().empty(); }
  // Throws UsageError where something has one of these names, or a name that a run makes up (checkpoints,
  // rows of a stop), and no run wrote it.
  void require_free(const std::vector<std::string>& names) const;
  // Throws UsageError where what clear() would remove is not all the run's. A model card that was edited is
  // no reason: clear() keeps it.
  void require_clearable() const;
  // False once the folder was removed, or replaced by another one.
  [[nodiscard]] bool still_there() const { return work_->still_there(); }

  // The run starts.
  void begin();
  // The run that the folder holds goes, result first. A model card that was edited gets another name, which
  // is returned.
  std::optional<std::filesystem::path> clear();
  // Makes the removed folder anew. Throws UsageError where anything but an empty folder has its name.
  void make_again();

  // A whole file.
  void write(const std::string& name, std::string_view content);
  // The file at a temporary path of this folder.
  void put(const std::filesystem::path& temporary, const std::string& name);
  // A file with the content of `from`, a hard link where that can be.
  void link(const std::filesystem::path& from, const std::string& name);
  [[nodiscard]] bool has_hard_links() const;
  // The name of a file that grows enters the manifest.
  std::filesystem::path begin_log(const std::string& name);
  // A log that is of no more use goes.
  void remove_log(const std::string& name);
  // Flushes the logs to disk, and then records the first line of each as what proves it.
  void keep_logs();
  // A folder that appears whole with publish(); then its content is proven.
  std::unique_ptr<AtomicFolder> begin_folder(const std::string& name);
  void publish(AtomicFolder& folder, const std::string& name);
  // False where it holds what is not the run's: then it stays.
  bool remove_folder(const std::string& name);

  // A path for what is not finished yet.
  [[nodiscard]] std::filesystem::path temporary(std::string_view name) const {
    return work_->temporary(name);
  }

 private:
  struct OfOther {};
  RunFolder(std::filesystem::path folder, OfOther) : folder_(std::move(folder)) {}
  void enter(const std::string& name, Manifest::Kind kind);
  void remove(const std::string& name);
  void give_names_back() const;
  std::optional<std::filesystem::path> keep_card();

  std::filesystem::path folder_;
  std::unique_ptr<WorkFolder> work_;
  std::optional<Manifest> manifest_;
  std::map<std::string, bool> logs_;  // that were begun, and whether they are proven
};

// The model card: a run writes it, and people continue it.
inline constexpr const char* kModelCard = "README.md";

// The step in a checkpoint's name, "checkpoint-<step>"; none for other names.
std::optional<int64_t> checkpoint_step(std::string_view name);

}  // namespace plimsoll
