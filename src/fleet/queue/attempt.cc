#include "fleet/queue/attempt.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/json_text.h"
#include "fleet/queue/process_tree.h"

namespace plimsoll::queue {
namespace {

namespace fs = std::filesystem;

std::optional<Exit> read_exit(const fs::path& folder) {
  std::ifstream file(folder / "exit.json");
  if (!file) return std::nullopt;
  Exit exit;
  const nlohmann::json record = read_json_text(file);
  if (!record.is_object()) {
    exit.problem = "its record is damaged";
    return exit;
  }
  exit.code = record.value("code", -1);
  exit.signal = record.value("signal", 0);
  exit.canceled = record.value("canceled", false);
  exit.over_limit = record.value("over_limit", false);
  exit.kernel_killed = record.value("kernel_killed", false);
  exit.peak_bytes = record.value("peak_bytes", int64_t{0});
  exit.left_over = record.value("left_over", 0);
  exit.problem = record.value("problem", "");
  return exit;
}

}  // namespace

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

void end_marked(const std::string& mark) {
  for (int tries = 0; tries < 200; ++tries) {
    const std::vector<pid_t> left = with_environment(mark);
    if (left.empty()) return;
    for (const pid_t one : left) kill(one, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace plimsoll::queue
