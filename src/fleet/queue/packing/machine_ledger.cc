#include "fleet/queue/packing/machine_ledger.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/printable.h"
#include "base/proc_file.h"
#include "fleet/queue/processes/process_tree.h"

namespace plimsoll::queue {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr mode_t kForAll = 01777;
constexpr mode_t kReadByAll = 0644;
constexpr int64_t kMostClaimBytes = int64_t{1} << 20;
constexpr int64_t kMostRuns = 1000, kMostFiles = 100;  // of one user
constexpr int64_t kMost = int64_t{1} << 50;            // of memory that anybody is believed to have promised

// As Process::born; 0 where there is no such process.
int64_t born(pid_t pid) {
  const std::optional<Process> process = read_process(pid);
  return process ? process->born : 0;
}

// FNV-1a.
std::string hash_text(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

struct OwnedText {
  uid_t owner = 0;
  std::string text;
};

// A regular file of the user that its name begins with; empty for any other.
OwnedText read_of_owner(const fs::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return {};
  struct stat found {};
  std::string text;
  const std::string owner = path.filename().string().substr(0, path.filename().string().find('-'));
  if (fstat(file, &found) == 0 && S_ISREG(found.st_mode) && std::to_string(found.st_uid) == owner &&
      found.st_size <= kMostClaimBytes) {
    text.resize(static_cast<size_t>(found.st_size));
    const ssize_t got = read(file, text.data(), text.size());
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  }
  close(file);
  return {found.st_uid, text};
}

// Adds up runs; processes are listed once, and each supervisor is looked at once, however many runs name it.
class OthersRuns {
 public:
  void add(const json& run, uid_t owner) {
    const auto bytes = [&](const char* key) {
      return std::clamp<int64_t>(get_whole<int64_t>(run, key), 0, kMost);
    };
    const Tree* tree = tree_of(get_whole<pid_t>(run, "supervisor"), get_whole<int64_t>(run, "born"), owner);
    if (tree == nullptr) return;
    const int64_t promised = std::max<int64_t>(0, bytes("host_bytes") - tree->used);
    sum_.host_bytes = std::min(kMost, sum_.host_bytes + promised);
    int64_t& of_owner = sum_.host_bytes_of[owner];
    of_owner = std::min(kMost, of_owner + promised);
    for (const json& card : run.at("devices"))
      sum_.cards[card.get<std::string>()].push_back({bytes("device_bytes"), tree->processes});
  }
  PromisedByOthers take() { return std::move(sum_); }

 private:
  struct Tree {
    int64_t born = 0;
    std::optional<uid_t> owner = {};
    std::shared_ptr<const std::vector<pid_t>> processes;
    int64_t used = 0;
  };

  // Null where the supervisor is not there, or is not the user's whose file names it.
  const Tree* tree_of(pid_t supervisor, int64_t born, uid_t owner) {
    if (supervisor <= 0) return nullptr;
    if (!children_) {
      processes_ = all_processes();
      children_ = children_of(processes_);
    }
    const auto process = processes_.find(supervisor);
    if (process == processes_.end() || process->second.born != born) return nullptr;
    auto known = trees_.find(supervisor);
    if (known == trees_.end()) {
      Tree tree{.born = born, .owner = owner_of(supervisor), .processes = {}};
      tree.processes = std::make_shared<const std::vector<pid_t>>(descendants(supervisor, *children_));
      if (tree.owner == owner) tree.used = memory_of(*tree.processes).now;
      known = trees_.emplace(supervisor, std::move(tree)).first;
    }
    return known->second.owner == owner ? &known->second : nullptr;
  }

  static std::optional<uid_t> owner_of(pid_t pid) {
    struct stat found {};
    if (stat(("/proc/" + std::to_string(pid)).c_str(), &found) != 0) return std::nullopt;
    return found.st_uid;
  }

  std::map<pid_t, Process> processes_;
  std::optional<Children> children_;
  std::map<pid_t, Tree> trees_;
  PromisedByOthers sum_;
};

// For reading, which is enough to lock it: its maker may have denied writing to others.
int open_lock(const fs::path& path) {
  constexpr int kFlags = O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC;
  // If a file belongs to another user in a folder for all, the kernel may refuse O_CREAT.
  int file = open(path.c_str(), kFlags);
  if (file < 0 && errno == ENOENT) {
    file = open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0666);
    if (file >= 0) fchmod(file, 0666);
    if (file < 0 && errno == EEXIST) file = open(path.c_str(), kFlags);
  }
  return file;
}

}  // namespace

std::string user_words(uid_t user) {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 16384> text{};
  if (getpwuid_r(user, &entry, text.data(), text.size(), &found) == 0 && found != nullptr)
    return "user " + printable(found->pw_name);
  return "user " + std::to_string(user);
}

MachineLedger::MachineLedger(const fs::path& folder, const fs::path& queue_folder)
    : folder_(folder), own_name_(formatted("{}-{}.json", geteuid(), hash_text(queue_folder.string()))) {
  if (mkdir(folder_.c_str(), kForAll) == 0) chmod(folder_.c_str(), kForAll);
  struct stat found {};
  const bool mine = lstat(folder_.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
  if (!mine) throw UsageError(printable(folder_.string()) + ": is no folder, and cannot be made one");
  if ((found.st_mode & S_IWOTH) != 0 && (found.st_mode & S_ISVTX) == 0)
    throw UsageError(
        printable(folder_.string()) +
        ": others could put away what a queue has promised; chmod 1777, or PLIMSOLL_MACHINE_DIR");
  if (found.st_uid != 0 && found.st_uid != geteuid())
    warning_ = formatted(
        "{}: belongs to {}, who can put away what other queues have promised: memory may be given out "
        "twice; root can make it its own (chown root), or PLIMSOLL_MACHINE_DIR names another "
        "folder for the queues of this machine",
        printable(folder_.string()), user_words(found.st_uid));
  const int file = open_lock(folder_ / "lock");
  if (file >= 0) {
    close(file);
    return;
  }
  const std::string why = std::generic_category().message(errno) +
                          "; PLIMSOLL_MACHINE_DIR names another folder for the queues of this machine";
  if (lstat((folder_ / "lock").c_str(), &found) != 0 || found.st_uid == geteuid())
    throw UsageError(formatted("{}: {}", printable((folder_ / "lock").string()), why));
  // Another user's, which must not keep this one's runs from starting.
  if (!warning_.empty()) warning_ += "\n";
  warning_ += formatted("{}: belongs to {} and cannot be opened, so that memory may be given out twice: {}",
                        printable((folder_ / "lock").string()), user_words(found.st_uid), why);
}

MachineLedger::Lock::~Lock() {
  if (file_ >= 0) close(file_);
}

std::string MachineLedger::lock_words() const {
  const std::string path = printable((folder_ / "lock").string());
  struct stat found {};
  if (stat((folder_ / "lock").c_str(), &found) != 0) return path + " is gone";
  if (const int file = open_lock(folder_ / "lock"); file >= 0) {
    close(file);
  } else {
    return formatted("{} belongs to {} and cannot be opened", path, user_words(found.st_uid));
  }
  // "1: FLOCK  ADVISORY  WRITE 77 fe:00:1234 0 EOF"
  std::istringstream lines(read_proc("/proc/locks"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string number, kind, mode, access, place;
    pid_t holder = 0;
    if (!(fields >> number >> kind >> mode >> access >> holder >> place) || kind != "FLOCK" || holder <= 0)
      continue;
    if (!place.ends_with(":" + std::to_string(found.st_ino))) continue;
    struct stat process {};
    if (stat(("/proc/" + std::to_string(holder)).c_str(), &process) != 0) continue;
    return formatted("{} is held by {} (process {})", path, user_words(process.st_uid), holder);
  }
  return path + " is held by a process that the system does not name";
}

std::optional<MachineLedger::Lock> MachineLedger::lock(int wait_milliseconds) const {
  constexpr int kTryMilliseconds = 50;
  const int file = open_lock(folder_ / "lock");
  if (file < 0) return std::nullopt;
  Lock lock(file);
  for (int waited = 0; waited <= wait_milliseconds; waited += kTryMilliseconds) {
    if (flock(file, LOCK_EX | LOCK_NB) == 0) return std::optional<Lock>(std::move(lock));
    if (waited < wait_milliseconds) std::this_thread::sleep_for(std::chrono::milliseconds(kTryMilliseconds));
  }
  return std::nullopt;
}

PromisedByOthers MachineLedger::promised_by_others() const {
  OthersRuns sum;
  std::map<uid_t, int64_t> runs_of, files_of;
  std::error_code none;
  for (const auto& file : fs::directory_iterator(folder_, none)) {
    const std::string name = file.path().filename().string();
    if (!name.ends_with(".json") || name == own_name_) continue;
    const OwnedText found = read_of_owner(file.path());
    if (found.text.empty() || ++files_of[found.owner] > kMostFiles) continue;
    const json runs = read_json_text(found.text);
    if (!runs.is_array()) continue;
    for (const json& run : runs) {
      if (++runs_of[found.owner] > kMostRuns) break;
      try {
        sum.add(run, found.owner);
      } catch (const json::exception&) {  // not ours to mend
      }
    }
  }
  return sum.take();
}

void MachineLedger::promise(const std::vector<PromisedRun>& runs) const {
  json list = json::array();
  for (const PromisedRun& run : runs)
    list.push_back({{"supervisor", run.supervisor},
                    {"born", born(run.supervisor)},
                    {"host_bytes", run.host_bytes},
                    {"device_bytes", run.device_bytes},
                    {"devices", run.cards}});
  const std::string text = list.dump(-1, ' ', false, json::error_handler_t::replace);
  const fs::path name = folder_ / own_name_;
  std::string other = (folder_ / (own_name_ + ".XXXXXX")).string();  // a name that no other process can take
                                                                     // before
  const int file = mkostemp(other.data(), O_CLOEXEC);
  if (file < 0) return;
  fchmod(file, kReadByAll);
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(file);
  if (!written || std::rename(other.c_str(), name.c_str()) != 0) unlink(other.c_str());
}

fs::path machine_folder() {
  if (const char* named = std::getenv("PLIMSOLL_MACHINE_DIR"); named != nullptr && *named != '\0')
    return named;
  struct stat found {};
  const bool shared = stat("/run/lock", &found) == 0 && S_ISDIR(found.st_mode) &&
                      (found.st_mode & (S_IWOTH | S_ISVTX)) == (S_IWOTH | S_ISVTX);
  return fs::path(shared ? "/run/lock" : "/tmp") / "plimsoll";
}

}  // namespace plimsoll::queue
