#include "ranks/watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>

#include "base/format.h"
#include "base/system_error.h"

namespace plimsoll {

// The state of one rank, as it reports it.
struct BoardSlot {
  std::atomic<int64_t> beat;     // milliseconds of the machine's clock
  std::atomic<int64_t> calls;    // that it has entered so far
  std::atomic<int64_t> waiting;  // since when, in a call; 0: it is in none
  std::atomic<int32_t> busy;
  std::atomic<int32_t> failed;  // with this exit code
  std::atomic<int32_t> ended;
};

namespace {

constexpr double kFirstSilence = 300;  // seconds, until a plan says how long a step takes
constexpr int kLookEvery = 50;         // milliseconds
// A rank that others wait for may be busy, or in the same call as they, but its watch beats.
constexpr int64_t kBeatLost = 5000;
constexpr int kTimeToSpeak = 10'000;  // milliseconds that others wait for the rank that speaks

int64_t now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The processes of others, as "PID FD" says where the leading one has the page.
std::vector<int> pids_of(const std::vector<std::string>& texts) {
  std::vector<int> pids;
  for (const std::string& text : texts) {
    int pid = 0;
    std::from_chars(text.data(), text.data() + text.size(), pid);
    pids.push_back(pid);
  }
  return pids;
}

void* map_page(int descriptor, size_t bytes) {
  void* const page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (page == MAP_FAILED) throw StoppedError("the system maps no page that processes share");
  return page;
}

int open_process(int pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

}  // namespace

BoardSlot& Watch::slot(int rank) const { return static_cast<BoardSlot*>(board_)[rank]; }

Watch::Watch(Group& group)
    : rank_(group.rank()),
      ranks_(group.size()),
      gone_(static_cast<size_t>(group.size())),
      parent_(getppid()),
      silence_(kFirstSilence) {
  board_bytes_ = sizeof(BoardSlot) * static_cast<size_t>(ranks_);
  int page = -1;
  if (group.leads()) {
    page = memfd_create("plimsoll-ranks", MFD_CLOEXEC);
    if (page < 0 || ftruncate(page, static_cast<off_t>(board_bytes_)) != 0)
      throw StoppedError("the system makes no page that processes share");
  }
  const std::vector<std::string> texts = gather_texts(group, formatted("{} {}", getpid(), page));
  const std::vector<int> pids = pids_of(texts);
  if (!group.leads()) {
    const std::string descriptor = texts.front().substr(texts.front().find(' ') + 1);
    page = open(formatted("/proc/{}/fd/{}", pids.front(), descriptor).c_str(), O_RDWR | O_CLOEXEC);
  }
  int opened = page >= 0 ? 1 : 0;
  if (opened == 1) board_ = map_page(page, board_bytes_);
  for (int rank = 0; rank < ranks_; ++rank) {
    processes_.push_back(rank == rank_ ? -1 : open_process(pids[static_cast<size_t>(rank)]));
    if (rank != rank_ && processes_.back() < 0) opened = 0;
  }
  for (const std::string& each : gather_texts(group, opened == 1 ? "1" : "0"))
    if (each != "1")
      throw UsageError(
          "devices: the processes run on several machines, or in containers of their own; so far all of them "
          "must run on one machine");
  close(page);
  slot(rank_).beat = now();
  group.barrier();  // every slot has begun
  thread_ = std::thread([this] { run(); });
}

Watch::~Watch() {
  stops_ = true;
  if (thread_.joinable()) thread_.join();
  for (const int process : processes_)
    if (process >= 0) close(process);
  munmap(board_, board_bytes_);
}

void Watch::set_last_words(std::function<std::string()> words) {
  const std::lock_guard lock(words_mutex_);
  words_ = std::move(words);
}

void Watch::enters() {
  slot(rank_).calls += 1;
  slot(rank_).waiting = now();
}

void Watch::leaves() { slot(rank_).waiting = 0; }

Watch::Busy::Busy(Watch* watch) : watch_(watch) {
  if (watch_ != nullptr) watch_->slot(watch_->rank_).busy += 1;
}
Watch::Busy::~Busy() {
  if (watch_ != nullptr) watch_->slot(watch_->rank_).busy -= 1;
}

void Watch::fail(ExitCode code) noexcept {
  stops_ = true;  // who says why is this rank
  slot(rank_).failed = static_cast<int32_t>(code);
}

void Watch::ends() noexcept {
  slot(rank_).ended = 1;
  stops_ = true;
}

void Watch::run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are the run's affair
  while (!stops_) {
    slot(rank_).beat = now();
    if (const Verdict verdict = look(); verdict.code != 0 && !stops_) end_all(verdict);
    std::vector<pollfd> ends;
    for (size_t rank = 0; rank < processes_.size(); ++rank)
      if (processes_[rank] >= 0 && !gone_[rank]) ends.push_back({processes_[rank], POLLIN, 0});
    poll(ends.data(), ends.size(), kLookEvery);
  }
}

Watch::Verdict Watch::look() {
  if (getppid() != parent_) return {.code = static_cast<int>(ExitCode::stopped), .why = "mpirun is gone"};
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    if (Verdict found = look_at(rank); found.code != 0) return found;
  }
  return {};
}

Watch::Verdict Watch::look_at(int rank) {
  const BoardSlot& other = slot(rank);
  if (const int code = other.failed; code != 0) return {.code = code, .silent_from = rank, .why = {}};
  if (other.ended != 0) return {};
  if (has_ended(rank, 0)) {
    gone_[static_cast<size_t>(rank)] = true;
    // Its last report may have come after the look above.
    if (const int code = other.failed; code != 0) return {.code = code, .silent_from = rank, .why = {}};
    if (other.ended != 0) return {};
    return {.code = static_cast<int>(ExitCode::stopped),
            .silent_from = rank,
            .why = formatted("the process of rank {} ended", rank)};
  }
  const int64_t waiting = slot(rank_).waiting;
  const double waited = waiting == 0 ? 0.0 : 1e-3 * static_cast<double>(now() - waiting);
  if (waited <= silence_) return {};
  const bool stopped = now() - other.beat > kBeatLost;
  const bool behind = other.calls < slot(rank_).calls && other.busy == 0;
  if (!stopped && !behind) return {};
  return {.code = static_cast<int>(ExitCode::stopped),
          .silent_from = rank,
          .why = formatted("rank {} has said nothing for {} s (stop.silence)", rank,
                           static_cast<int64_t>(waited))};
}

// The rank that speaks: the one that failed by itself, else the first that is left.
int Watch::speaker(const Verdict& verdict) const {
  if (verdict.why.empty()) return verdict.silent_from;
  for (int rank = 0; rank < rank_; ++rank)
    if (rank != verdict.silent_from && !has_ended(rank, 0)) return rank;
  return rank_;
}

bool Watch::has_ended(int rank, int milliseconds) const {
  pollfd end = {processes_[static_cast<size_t>(rank)], POLLIN, 0};
  return poll(&end, 1, milliseconds) > 0;
}

void Watch::wait_for_leader() const {
  if (rank_ != 0) static_cast<void>(has_ended(0, kTimeToSpeak));
}

// mpirun ends all processes when the first one has ended with an error: that is the one that speaks.
void Watch::end_all(const Verdict& verdict) {
  if (const int rank = speaker(verdict); rank != rank_) {
    static_cast<void>(has_ended(rank, kTimeToSpeak));
    _exit(verdict.code);
  }
  const std::unique_lock lock(words_mutex_, std::try_to_lock);
  const std::string words = lock.owns_lock() && words_ ? words_() : std::string();
  const std::string text = formatted("error: {}: all processes of the run end{}\n", verdict.why, words);
  [[maybe_unused]] const ssize_t written = write(voice_, text.data(), text.size());
  _exit(verdict.code);
}

}  // namespace plimsoll
