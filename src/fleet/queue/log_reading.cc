#include "fleet/queue/log_reading.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <new>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/json_text.h"
#include "base/units.h"

namespace plimsoll::queue {
namespace {

using nlohmann::json;

std::string verdict_text(const LogVerdict& verdict) {
  return json{{"out_of_memory", verdict.out_of_memory},
              {"of_others", verdict.of_others},
              {"headline", verdict.headline},
              {"failure", verdict.failure},
              {"no_room_now", verdict.does_not_fit_now},
              {"unread", verdict.unread}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<LogVerdict> read_verdict(const std::string& text) {
  const json root = read_json_text(text);
  try {
    return LogVerdict{root.at("out_of_memory"), root.at("of_others"),   root.at("headline"),
                      root.at("failure"),       root.at("no_room_now"), root.at("unread")};
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

LogVerdict unread(const std::string& why) {
  LogVerdict verdict;
  verdict.unread = "its log was not read: " + why;
  return verdict;
}

// In the copy of the worker: the log is all that it has to do with.
[[noreturn]] void read_and_leave(const std::filesystem::path& log, int answer, const ReadingLimits& limits) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int signal = 1; signal < SIGRTMIN; ++signal) std::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  alarm(limits.seconds);
  const rlimit most_time = {limits.cpu_seconds, limits.cpu_seconds + 1};
  setrlimit(RLIMIT_CPU, &most_time);
  rlimit before{};
  getrlimit(RLIMIT_DATA, &before);
  const rlimit most = {std::min(before.rlim_max, static_cast<rlim_t>(limits.bytes)), before.rlim_max};
  setrlimit(RLIMIT_DATA, &most);
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  // Locks and databases of the worker are not held by this process.
  dup2(answer, STDIN_FILENO);
  close_range(3, ~0U, 0);
  std::string text;
  try {
    text = verdict_text(diagnose_log(log));
  } catch (const std::bad_alloc&) {
    setrlimit(RLIMIT_DATA, &before);  // for the words about it
    text = verdict_text(unread("that takes more than " + format_bytes(limits.bytes)));
  } catch (const std::exception& error) {
    text = verdict_text(unread(error.what()));
  }
  const bool whole = write(STDIN_FILENO, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  _exit(whole ? 0 : 1);
}

}  // namespace

LogReadings::~LogReadings() {
  for (auto& [log, reading] : readings_) {
    if (reading.process != 0) {
      kill(reading.process, SIGKILL);
      waitpid(reading.process, nullptr, 0);
    }
    if (reading.answer >= 0) close(reading.answer);
  }
}

std::optional<LogVerdict> LogReadings::of(const std::filesystem::path& log) {
  auto found = readings_.find(log);
  if (found == readings_.end()) found = readings_.emplace(log, begin(log)).first;
  if (!found->second.verdict) take(found->second);
  return found->second.verdict;
}

LogReadings::Reading LogReadings::begin(const std::filesystem::path& log) const {
  Reading reading;
  std::error_code error;
  if (!std::filesystem::exists(log, error)) {
    reading.verdict.emplace();
    return reading;
  }
  reading.answer = memfd_create("verdict", MFD_CLOEXEC);
  reading.process = reading.answer < 0 ? -1 : fork();
  if (reading.process == 0) read_and_leave(log, reading.answer, limits_);
  if (reading.process < 0) {
    reading.process = 0;
    reading.verdict = unread("the system starts no process for it");
  }
  return reading;
}

LogVerdict unread_verdict(int status, const ReadingLimits& limits) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
    return unread(formatted("that takes longer than {} s", limits.seconds));
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
    return unread(formatted("that takes more than {} s of processor time", limits.cpu_seconds));
  return unread("the process that read it was ended");
}

void LogReadings::take(Reading& reading) const {
  int status = 0;
  const pid_t ended = waitpid(reading.process, &status, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return;
  reading.process = 0;
  std::string text(1 << 16, '\0');
  const ssize_t got = pread(reading.answer, text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  close(reading.answer);
  reading.answer = -1;
  reading.verdict = read_verdict(text);
  if (reading.verdict) return;
  reading.verdict = unread_verdict(status, limits_);
}

void LogReadings::forget(const std::filesystem::path& folder) {
  std::erase_if(readings_,
                [&](auto& one) { return one.first.parent_path() == folder && one.second.process == 0; });
}

}  // namespace plimsoll::queue
