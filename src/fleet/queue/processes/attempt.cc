#include "fleet/queue/processes/attempt.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/printable.h"
#include "files/atomic.h"
#include "fleet/queue/processes/memory_group.h"
#include "fleet/queue/processes/process_tree.h"

namespace plimsoll::queue {
namespace fs = std::filesystem;

namespace {

Exit exit_of(const nlohmann::json& record) {
  const auto whole = [&](const char* key, auto otherwise) {
    return record.contains(key) ? get_whole<decltype(otherwise)>(record, key) : otherwise;
  };
  Exit exit;
  exit.code = whole("code", -1);
  exit.signal = whole("signal", 0);
  exit.canceled = record.value("canceled", false);
  exit.over_limit = record.value("over_limit", false);
  exit.kernel_killed = record.value("kernel_killed", false);
  exit.peak_bytes = whole("peak_bytes", int64_t{0});
  exit.seconds = record.value("seconds", 0.0);
  exit.left_over = whole("left_over", 0);
  exit.problem = record.value("problem", "");
  return exit;
}

}  // namespace

std::optional<Exit> read_exit(const fs::path& folder) {
  std::ifstream file(folder / "exit.json");
  if (!file) return std::nullopt;
  try {
    const nlohmann::json record = read_json_text(file);
    if (record.is_object()) return exit_of(record);
  } catch (const nlohmann::json::exception&) {  // of another kind than was written
  }
  Exit exit;
  exit.problem = "its record is damaged";
  return exit;
}

// Fields that each end with a null byte, as words and environments may hold anything else.
void write_launch(const Launch& launch) {
  std::string text;
  const auto add = [&](const char* name, const std::string& value) {
    text += formatted("{}={}", name, value) + '\0';
  };
  for (const std::string& one : launch.words) add("word", one);
  for (const std::string& one : launch.environment) add("environment", one);
  add("working_folder", launch.working_folder);
  add("mark", launch.mark);
  add("host_limit", std::to_string(launch.host_limit));
  add("grace_seconds", std::to_string(launch.grace_seconds));
  if (launch.mask) add("mask", std::to_string(*launch.mask));
  if (launch.hands_signals_on) add("hands_signals_on", "1");
  const fs::path partial = launch.folder / "launch.tmp";
  if (!replace_file(partial, launch.folder / "launch", text))
    throw StoppedError(printable(partial.string()) + ": cannot be written");
}

Launch read_launch(const fs::path& folder) {
  std::ifstream file(folder / "launch", std::ios::binary);
  Launch launch;
  launch.folder = folder;
  launch.own_group = false;
  std::string field;
  while (std::getline(file, field, '\0')) {
    const size_t equals = field.find('=');
    const std::string name = field.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : field.substr(equals + 1);
    if (name == "word") launch.words.push_back(value);
    if (name == "environment") launch.environment.push_back(value);
    if (name == "working_folder") launch.working_folder = value;
    if (name == "mark") launch.mark = value;
    if (name == "host_limit") launch.host_limit = std::strtoll(value.c_str(), nullptr, 10);
    if (name == "mask") launch.mask = static_cast<mode_t>(std::strtol(value.c_str(), nullptr, 10)) & 0777;
    if (name == "hands_signals_on") launch.hands_signals_on = value == "1";
    if (name == "grace_seconds") launch.grace_seconds = std::strtod(value.c_str(), nullptr);
  }
  if (launch.words.empty() || launch.mark.empty())
    throw DamagedError(printable((folder / "launch").string()) + ": says nothing that could be run");
  return launch;
}

AttemptState look_at(const fs::path& folder) {
  AttemptState state;
  const int lock = open((folder / "lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (lock < 0) return state;
  if (flock(lock, LOCK_SH | LOCK_NB) != 0) {
    char text[32] = {};
    if (read(lock, text, sizeof text - 1) > 0) state.supervisor = static_cast<pid_t>(std::atoi(text));
    state.life = Life::alive;
  } else {  // the record is there before the lock is free
    state.exit = read_exit(folder);
    state.life = state.exit ? Life::ended : Life::supervisor_lost;
  }
  close(lock);
  return state;
}

void ask_to_end(const fs::path& folder) {
  const int file = open((folder / "cancel").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file >= 0) close(file);
}

void set_grace(const fs::path& folder, double seconds) {
  (void)replace_file(folder / "grace.tmp", folder / "grace", std::to_string(seconds) + "\n");
}

std::optional<double> read_grace(const fs::path& folder) {
  double seconds = 0;
  if (std::ifstream(folder / "grace") >> seconds) return seconds;
  return std::nullopt;
}

namespace {

// The folder of its control group; "" where it had none.
std::string group_of(const fs::path& folder) {
  std::string group;
  std::getline(std::ifstream(folder / "group"), group);
  return group.find("/plimsoll-") == std::string::npos ? "" : group;
}

// The processes that the supervisor saw of the attempt, what they started, those in its group, and those with
// its mark.
std::set<pid_t> left_behind(const std::string& mark, const fs::path& folder) {
  std::set<pid_t> found;
  const auto add = [&](const std::vector<pid_t>& some) { found.insert(some.begin(), some.end()); };
  add(with_environment(mark));
  if (const std::string group = group_of(folder); !group.empty()) add(processes_of_group(group));
  const std::map<pid_t, Process> processes = all_processes();
  std::ifstream noted(folder / "processes");
  int64_t born = 0;
  for (pid_t pid = 0; noted >> pid >> born;) {
    const auto process = processes.find(pid);
    if (process == processes.end() || process->second.born != born) continue;
    found.insert(pid);
    add(descendants(pid, processes));
  }
  found.erase(getpid());
  std::erase_if(found, [&](pid_t pid) {
    const auto process = processes.find(pid);
    return process != processes.end() && process->second.state == 'Z';
  });
  return found;
}

}  // namespace

void end_marked(const std::string& mark, const fs::path& folder) {
  for (int tries = 0; tries < 200; ++tries) {
    const std::set<pid_t> left = left_behind(mark, folder);
    if (left.empty()) break;
    for (const pid_t one : left) kill(one, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (const std::string group = group_of(folder); !group.empty()) rmdir(group.c_str());  // where it is empty
}

void wake_or_end_supervisor(const fs::path& folder, double seconds_since_request, double grace_seconds) {
  constexpr double kSlack = 5;
  const AttemptState state = look_at(folder);
  if (state.life != Life::alive || state.supervisor <= 0) return;
  const std::optional<Process> process = read_process(state.supervisor);
  if (process && process->state == 'T') kill(state.supervisor, SIGCONT);
  const double grace = read_grace(folder).value_or(grace_seconds);
  if (seconds_since_request > 2 * grace + kSlack)
    kill(state.supervisor, SIGKILL);  // its command goes with it
}

}  // namespace plimsoll::queue
