#include "files/run_folder.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "files/adopted_run.h"
#include "files/file.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCheckpoint = "checkpoint-";

fs::path manifest_file(const fs::path& folder) { return WorkFolder::inside(folder) / "manifest.jsonl"; }

[[noreturn]] void refuse(const fs::path& path, bool listed) {
  throw UsageError(formatted("{}: {}. Move it away, or choose another output.", path.string(),
                             listed ? "was changed, or put there, after the run wrote its files"
                                    : "is there already, and no run wrote it; this one would"));
}

// Weights are removed first: from then on what is left is not taken for a model.
bool is_weights(const std::string& name) { return name.ends_with(".safetensors"); }

}  // namespace

std::optional<int64_t> checkpoint_step(std::string_view name) {
  if (!name.starts_with(kCheckpoint)) return std::nullopt;
  int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto result = std::from_chars(name.data() + kCheckpoint.size(), end, step);
  return result.ec == std::errc() && result.ptr == end && step >= 0 ? std::optional(step) : std::nullopt;
}

RunFolder::RunFolder(const fs::path& folder)
    : folder_(folder), work_(std::make_unique<WorkFolder>(folder, WorkFolder::inside(folder))) {
  manifest_.emplace(folder_, manifest_file(folder_));
  if (!manifest_->exists()) adopt_run(folder_, *manifest_);
  give_names_back();
  work_->clear_temporaries();
}

void RunFolder::require_free(const std::vector<std::string>& names) const {
  std::set<std::string> wanted(names.begin(), names.end());
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (checkpoint_step(name) || is_stopped_batch(name)) wanted.insert(name);
  }
  for (const std::string& name : wanted) {
    const bool listed = manifest_->lists(name);
    // The contents of a checkpoint are looked at where it would be removed, and by its checksums.
    if (listed && checkpoint_step(name) && fs::is_directory(fs::symlink_status(folder_ / name))) continue;
    if (const auto path = manifest_->foreign(name)) refuse(*path, listed);
  }
}

void RunFolder::require_clearable() const {
  for (const std::string& name : manifest_->present()) {
    if (name == kModelCard) continue;
    if (const auto path = manifest_->foreign(name)) refuse(*path, true);
  }
}

std::optional<fs::path> RunFolder::keep_card() {
  if (!manifest_->lists(kModelCard) || !manifest_->foreign(kModelCard)) return std::nullopt;
  fs::path kept = folder_ / "README.old.md";
  for (int number = 2; !is_absent(kept); ++number) kept = folder_ / (formatted("README.old-{}.md", number));
  fs::rename(folder_ / kModelCard, kept);
  return kept;
}

// On file systems where folders cannot be exchanged, a crash may have left the old one under a temporary
// name.
void RunFolder::give_names_back() const {
  const fs::path temporaries = work_->temporary("");
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(temporaries)) found.push_back(entry.path());
  for (const fs::path& path : found) {
    const fs::path name = path.filename().stem();
    if (path.extension() == ".old" && manifest_->lists(name.string()) && is_absent(folder_ / name))
      fs::rename(path, folder_ / name);
  }
}

void RunFolder::begin() { manifest_->write(temporary("manifest.jsonl")); }

std::optional<fs::path> RunFolder::clear() {
  require_clearable();
  const auto card = keep_card();
  std::vector<std::string> names = manifest_->present();
  std::stable_partition(names.begin(), names.end(), is_weights);
  for (const std::string& name : names) remove(name);
  work_->clear_rank_logs();
  flush_to_disk(folder_ / ".");  // before the list forgets them: what comes back would be a stranger's
  manifest_->forget_all();
  manifest_->write(temporary("manifest.jsonl"));
  return card;
}

void RunFolder::remove(const std::string& name) {
  const fs::path path = folder_ / name;
  if (fs::is_directory(fs::symlink_status(path)))
    remove_folder_atomically(path, temporary(name));
  else
    fs::remove(path);
}

void RunFolder::make_again() {
  const bool is_empty = fs::is_directory(fs::symlink_status(folder_)) && fs::is_empty(folder_);
  if (!is_absent(folder_) && !is_empty)
    throw UsageError(folder_.string() + ": was replaced by another folder while the run was writing there");
  auto work = std::make_unique<WorkFolder>(folder_, WorkFolder::inside(folder_));
  work_ = std::move(work);
  manifest_.emplace(folder_, manifest_file(folder_));
  logs_.clear();
  begin();
}

void RunFolder::enter(const std::string& name, Manifest::Kind kind) {
  check_internal(manifest_.has_value() && work_ != nullptr,
                 "a rank other than the first writes into the run's folder");
  if (!manifest_->lists(name) && !is_absent(folder_ / name))
    throw StoppedError((folder_ / name).string() +
                       ": appeared during the run, which would write it. Move it away.");
  manifest_->begin(name, kind);
}

void RunFolder::write(const std::string& name, std::string_view content) {
  enter(name, Manifest::Kind::file);
  put_file(temporary(name), folder_ / name, content);
  manifest_->close(name);
}

void RunFolder::put(const fs::path& temporary, const std::string& name) {
  enter(name, Manifest::Kind::file);
  flush_to_disk(temporary);
  fs::rename(temporary, folder_ / name);
  flush_to_disk(folder_ / ".");
  manifest_->close(name);
}

void RunFolder::link(const fs::path& from, const std::string& name) {
  enter(name, Manifest::Kind::file);
  link_atomically(from, folder_ / name, temporary(name));
  manifest_->close(name);
}

bool RunFolder::has_hard_links() const {
  return plimsoll::has_hard_links(work_->lock_file(), temporary("link"));
}

fs::path RunFolder::begin_log(const std::string& name) {
  enter(name, Manifest::Kind::log);
  logs_[name] = false;
  fs::path path = folder_ / name;
  // A file that has another name too, in a backup by hard links, would grow there.
  if (!is_absent(path) && fs::hard_link_count(path) > 1) unshare_file(path, temporary(name));
  return path;
}

void RunFolder::remove_log(const std::string& name) {
  logs_.erase(name);
  remove(name);
  flush_to_disk(folder_ / ".");
  manifest_->forget(name);
}

// A mark on the disk that vouches for a line which a power cut has taken would make the log another's.
void RunFolder::keep_logs() {
  bool any_to_prove = false;
  for (const auto& [name, proven] : logs_) {
    if (is_absent(folder_ / name)) continue;
    flush_to_disk(folder_ / name);
    any_to_prove = any_to_prove || !proven;
  }
  if (!any_to_prove) return;
  flush_to_disk(folder_ / ".");  // their names
  for (auto& [name, proven] : logs_) {
    if (proven || is_absent(folder_ / name) || fs::file_size(folder_ / name) == 0) continue;
    manifest_->close(name);
    proven = true;
  }
}

std::unique_ptr<AtomicFolder> RunFolder::begin_folder(const std::string& name) {
  enter(name, Manifest::Kind::folder);
  return std::make_unique<AtomicFolder>(folder_ / name, temporary(name));
}

void RunFolder::publish(AtomicFolder& folder, const std::string& name) {
  folder.publish(AtomicFolder::Existing::replace);
  manifest_->close(name);
}

bool RunFolder::remove_folder(const std::string& name) {
  if (manifest_->foreign(name)) return false;
  remove(name);
  manifest_->forget(name);
  return true;
}

}  // namespace plimsoll
