#include "fleet/queue/machine_ledger.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/json_text.h"
#include "base/printable.h"
#include "base/proc_file.h"
#include "fleet/queue/process_tree.h"

namespace plimsoll::queue {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr mode_t kForAll = 01777;
constexpr mode_t kReadByAll = 0644;
constexpr int64_t kMostClaimBytes = int64_t{1} << 20;
constexpr int64_t kMost = int64_t{1} << 50;  // of memory that anybody is believed to have promised

// When a process began, in the kernel's ticks; with its number it is a name for all time. 0: there is none.
int64_t born(pid_t pid) {
  constexpr int kField = 20;  // behind the name and the state
  const std::string text = read_proc(fs::path("/proc") / std::to_string(pid) / "stat");
  size_t at = text.rfind(')');
  for (int i = 0; i < kField && at != std::string::npos; ++i) at = text.find(' ', at + 1);
  return at == std::string::npos ? 0 : std::strtoll(text.c_str() + at, nullptr, 10);
}

// FNV-1a.
std::string hash_text(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

// A regular file of the user that its name begins with; empty for any other.
std::string read_of_owner(const fs::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return "";
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
  return text;
}

void add_run(const json& run, const std::map<pid_t, Process>& processes, PromisedByOthers& sum) {
  const auto bytes = [&](const char* key) {
    return std::clamp<int64_t>(run.at(key).get<int64_t>(), 0, kMost);
  };
  const pid_t supervisor = run.at("supervisor").get<pid_t>();
  if (supervisor <= 0 || born(supervisor) != run.at("born").get<int64_t>()) return;
  const auto tree = std::make_shared<const std::vector<pid_t>>(descendants(supervisor, processes));
  const int64_t used = memory_of(*tree).now;
  sum.host_bytes = std::min(kMost, sum.host_bytes + std::max<int64_t>(0, bytes("host_bytes") - used));
  for (const json& card : run.at("devices"))
    sum.cards[card.get<std::string>()].push_back({bytes("device_bytes"), tree});
}

int open_lock(const fs::path& path) {
  // Where a file is another's in a folder for all, the kernel may refuse O_CREAT.
  int file = open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) {
    file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file >= 0) fchmod(file, 0666);
    if (file < 0 && errno == EEXIST) file = open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  }
  return file;
}

}  // namespace

MachineLedger::MachineLedger(const fs::path& folder, const fs::path& queue_folder)
    : folder_(folder),
      own_name_(std::to_string(geteuid()) + "-" + hash_text(queue_folder.string()) + ".json") {
  if (mkdir(folder_.c_str(), kForAll) == 0) chmod(folder_.c_str(), kForAll);
  struct stat found {};
  const bool mine = lstat(folder_.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
  if (!mine) throw UsageError(printable(folder_.string()) + ": is no folder, and cannot be made one");
  if ((found.st_mode & S_IWOTH) != 0 && (found.st_mode & S_ISVTX) == 0)
    throw UsageError(
        printable(folder_.string()) +
        ": others could put away what a queue has promised; chmod 1777, or PLIMSOLL_MACHINE_DIR");
  const int file = open_lock(folder_ / "lock");
  if (file < 0)
    throw UsageError(printable((folder_ / "lock").string()) + ": " + std::generic_category().message(errno) +
                     "; PLIMSOLL_MACHINE_DIR names another folder for the queues of this machine");
  close(file);
}

MachineLedger::Lock::~Lock() {
  if (file_ >= 0) close(file_);
}

std::optional<MachineLedger::Lock> MachineLedger::lock() const {
  constexpr int kTries = 40;
  const int file = open_lock(folder_ / "lock");
  if (file < 0) return std::nullopt;
  Lock lock(file);
  for (int i = 0; i < kTries; ++i) {
    if (flock(file, LOCK_EX | LOCK_NB) == 0) return std::optional<Lock>(std::move(lock));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return std::nullopt;
}

PromisedByOthers MachineLedger::promised_by_others() const {
  PromisedByOthers sum;
  std::map<pid_t, Process> processes;
  std::error_code none;
  for (const auto& file : fs::directory_iterator(folder_, none)) {
    const std::string name = file.path().filename().string();
    if (!name.ends_with(".json") || name == own_name_) continue;
    const json runs = read_json_text(read_of_owner(file.path()));
    if (!runs.is_array() || runs.empty()) continue;
    if (processes.empty()) processes = all_processes();
    for (const json& run : runs) try {
        add_run(run, processes, sum);
      } catch (const json::exception&) {  // not ours to mend
      }
  }
  return sum;
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
  const fs::path name = folder_ / own_name_, other = folder_ / (own_name_ + "." + std::to_string(getpid()));
  const int file = open(other.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, kReadByAll);
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
