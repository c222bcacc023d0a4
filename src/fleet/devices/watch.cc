#include "fleet/devices/watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/strings.h"
#include "fleet/devices/nvml.h"

namespace plimsoll::devices {
namespace {

constexpr size_t kMostText = size_t{16} << 20;  // of an answer

std::chrono::steady_clock::duration seconds_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}

bool send_all(int channel, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t sent = send(channel, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += static_cast<size_t>(sent);
  }
  return true;
}

// The process that asks: it sends a line for each byte that it gets, until the other side is closed. It keeps
// nothing of its parent open, least of all its locks.
[[noreturn]] void answer(int channel, const std::string& library, double card_seconds) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "plimsoll-gpus");
  for (const int one : {SIGINT, SIGHUP, SIGTERM}) std::signal(one, one == SIGTERM ? SIG_DFL : SIG_IGN);
  const int nothing = open("/dev/null", O_RDWR);
  for (const int one : {0, 1, 2}) dup2(nothing, one);
  if (channel != 3) dup3(channel, 3, O_CLOEXEC);  // the library may start helpers
  close_range(4, ~0U, 0);
  try {
    Nvml nvml(library);
    for (char requested = 0; read(3, &requested, 1) == 1;)
      if (!send_all(3, json_text(report_json(nvml.ask(card_seconds)), -1))) break;
    nvml.shut_down();
  } catch (const std::exception&) {  // its parent sees that it is gone
  }
  _exit(0);
}

bool all_well(const GpuReport& report) {
  for (const Gpu& gpu : report.gpus)
    if (!gpu.problem.empty()) return false;
  return report.problem.empty();
}

}  // namespace

WatchTimes watch_times() {
  WatchTimes times;
  const char* text = std::getenv("PLIMSOLL_NVML_SECONDS");
  if (text == nullptr || *text == '\0') return times;
  std::vector<double> seconds;
  for (const std::string& part : split(text, ',')) {
    char* end = nullptr;
    seconds.push_back(std::strtod(part.c_str(), &end));
    if (part.empty() || *end != '\0' || !std::isfinite(seconds.back()) || seconds.back() <= 0)
      seconds.clear();
    if (seconds.empty()) break;
  }
  if (seconds.empty() || seconds.size() > 2)
    throw UsageError(formatted(
        "PLIMSOLL_NVML_SECONDS: expected the seconds that a card may take to answer, or those and the "
        "seconds between two questions (4,2), found '{}'",
        printable(text)));
  times.card = seconds.front();
  times.start = 5 * times.card;
  if (seconds.size() < 2) return times;
  times.between = seconds.back();
  times.retry = 2.5 * times.between;
  return times;
}

GpuWatch::~GpuWatch() {
  retire();
  for (int i = 0; i < 100 && !retired(); ++i) poll(nullptr, 0, 1);
}

void GpuWatch::start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail("the NVIDIA driver cannot be asked: the system gives no more files");
  child_ = fork();
  if (child_ == 0) answer(ends[1], library_, times_.card);
  close(ends[1]);
  channel_ = ends[0];
  fcntl(channel_, F_SETFL, O_NONBLOCK);
  fresh_ = true;
  if (child_ > 0) return;
  child_ = 0;
  fail("the NVIDIA driver cannot be asked: the system starts no more processes");
}

void GpuWatch::ask() {
  if (child_ == 0 && !retired()) {
    if (Clock::now() > next_ + seconds_of(times_.card))
      fail("the NVIDIA driver does not answer: a process that asked it hangs in the kernel");
    return;
  }
  if (child_ == 0) start();
  if (child_ == 0) return;
  requested_at_ = Clock::now();
  requested_ = true;
  text_.clear();
  // Its end, where it is gone already, is seen when its answer is read.
  (void)send(channel_, "?", 1, MSG_NOSIGNAL);
}

// Returns true if the answer is whole, or will never be.
bool GpuWatch::take_answer() {
  char part[65536];
  for (;;) {
    const ssize_t got = recv(channel_, part, sizeof part, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got > 0) text_.append(part, static_cast<size_t>(got));
    if (text_.ends_with('\n')) {
      take(read_report(text_));
      return true;
    }
    if (got > 0 && text_.size() < kMostText) continue;
    fail("the NVIDIA driver's library ended the process that asked it");
    return true;
  }
}

void GpuWatch::take(GpuReport report) {
  report_ = with_known(std::move(report), report_);
  ++answers_;
  requested_ = fresh_ = false;
  const bool well = all_well(report_);
  next_ = Clock::now() + seconds_of(!report_.installed ? times_.absent
                                    : well             ? times_.between
                                                       : times_.retry);
  const bool hangs = std::any_of(report_.gpus.begin(), report_.gpus.end(),
                                 [](const Gpu& gpu) { return gpu.problem == kSilent; });
  if (!report_.problem.empty() || (!well && !hangs)) retire();
}

void GpuWatch::fail(const std::string& problem) {
  GpuReport report;
  report.installed = true;
  report.problem = problem;
  report.driver = report_.driver;
  take(std::move(report));
}

void GpuWatch::retire() {
  if (channel_ >= 0) close(channel_);
  channel_ = -1;
  if (child_ > 0) {
    kill(child_, SIGKILL);
    leaving_ = child_;
  }
  child_ = 0;
}

// While one still hangs in the kernel a second one would hang with it.
bool GpuWatch::retired() {
  if (leaving_ > 0 && waitpid(leaving_, nullptr, WNOHANG) != 0) leaving_ = 0;
  return leaving_ == 0;
}

double GpuWatch::patience() const { return fresh_ ? times_.start : 1.5 * times_.card; }

const GpuReport& GpuWatch::look() {
  if (requested_ && !take_answer() && Clock::now() > requested_at_ + seconds_of(patience()))
    fail("the NVIDIA driver does not answer");
  if (!requested_ && Clock::now() >= next_) ask();
  return report_;
}

const GpuReport& GpuWatch::first() {
  look();
  while (answers_ == 0) {
    pollfd ready{channel_, POLLIN, 0};
    poll(&ready, channel_ >= 0 ? 1 : 0, 50);
    look();
  }
  return report_;
}

}  // namespace plimsoll::devices
