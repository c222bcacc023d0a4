#include "ranks/watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <random>
#include <span>

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
constexpr int kTimeOfNodes = 2000;    // likewise, where it is on another node
constexpr int kTimeToEnd = 2000;      // for set_before_end()
constexpr int kLookOften = 5;
constexpr int kFirstWords = 40;     // of kLookEvery, in which nodes have to hear of each other
constexpr size_t kMostSent = 1024;  // ranks of a node that others hear of

int64_t now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The number that a text begins with.
int number_in(const std::string& text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Ranks with the same text may see each other's processes: the machine since it started, its name, and the space of
// process ids.
std::string node_name() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  std::string text = host.data();
  for (const char* space : {"/proc/self/ns/pid", "/proc/self/ns/net"}) {
    std::array<char, 64> name{};
    if (readlink(space, name.data(), name.size() - 1) > 0) text += formatted(" {}", name.data());
  }
  std::array<char, 64> boot{};
  const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (file >= 0 && read(file, boot.data(), boot.size() - 1) > 0) text += formatted(" {}", boot.data());
  if (file >= 0) close(file);
  return text;
}

// A slot as other nodes get it: clocks differ, so that times are ages.
struct SentSlot {
  int64_t beat_age, calls, waiting_age;  // -1: it is in no call
  int32_t rank, busy, failed, ended;
};

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
      silence_(kFirstSilence),
      heard_(static_cast<size_t>(group.size())) {
  board_bytes_ = sizeof(BoardSlot) * static_cast<size_t>(ranks_);
  find_nodes(group);
  open_page(group);
  if (nodes_ > 1) connect_nodes(group);
  for (int rank = 0; rank < ranks_; ++rank)
    if (rank == rank_ || !is_here(rank)) slot(rank).beat = now();
  group.barrier();  // every slot has begun
  thread_ = std::thread([this] { run(); });
}

void Watch::find_nodes(Group& group) {
  const std::vector<std::string> names = gather_texts(group, node_name());
  nodes_ = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto first = std::ranges::find(names, names[static_cast<size_t>(rank)]) - names.begin();
    node_of_.push_back(static_cast<int>(first));
    if (first == rank) ++nodes_;
  }
}

// The first rank of a node makes the page; the others open it by its process.
void Watch::open_page(Group& group) {
  const int first = node_of_[static_cast<size_t>(rank_)];
  int page = -1;
  if (first == rank_) {
    page = memfd_create("plimsoll-ranks", MFD_CLOEXEC);
    if (page < 0 || ftruncate(page, static_cast<off_t>(board_bytes_)) != 0)
      throw StoppedError("the system makes no page that processes share");
  }
  const std::vector<std::string> texts = gather_texts(group, formatted("{} {}", getpid(), page));
  if (first != rank_) {
    const std::string& text = texts[static_cast<size_t>(first)];
    const std::string descriptor = text.substr(text.find(' ') + 1);
    page = open(formatted("/proc/{}/fd/{}", number_in(text), descriptor).c_str(), O_RDWR | O_CLOEXEC);
  }
  int opened = page >= 0 ? 1 : 0;
  if (opened == 1) board_ = map_page(page, board_bytes_);
  for (int rank = 0; rank < ranks_; ++rank) {
    const bool other = rank != rank_ && is_here(rank);
    processes_.push_back(other ? open_process(number_in(texts[static_cast<size_t>(rank)])) : -1);
    if (other && processes_.back() < 0) opened = 0;
  }
  for (const std::string& each : gather_texts(group, opened == 1 ? "1" : "0"))
    if (each != "1")
      throw UsageError(
          "devices: processes of one machine do not see each other (/proc, process ids): start all of them in one "
          "container");
  close(page);
}

void Watch::connect_nodes(Group& group) {
  if (node_of_[static_cast<size_t>(rank_)] == rank_) link_ = std::make_unique<NodeLink>();
  const std::vector<std::string> addresses = gather_texts(group, link_ ? link_->address() : "");
  const std::string run = broadcast_text(group, formatted("{}", std::random_device()()));
  std::vector<std::string> others;
  for (int rank = 0; rank < ranks_; ++rank)
    if (rank != rank_ && !addresses[static_cast<size_t>(rank)].empty())
      others.push_back(addresses[static_cast<size_t>(rank)]);
  if (link_) link_->connect(others, std::stoull(run));
  // A firewall between them, or networks of IPv6 alone, lets nothing through: then nothing is concluded from silence.
  for (int tries = 0; link_ && tries < kFirstWords && (tries < 3 || !hears_all()); ++tries) {
    send_to_nodes();
    poll(nullptr, 0, kLookEvery);
    receive_from_nodes();
  }
  const std::vector<std::string> all = gather_texts(group, !link_ || hears_all() ? "1" : "0");
  hears_nodes_ = std::ranges::find(all, "0") == all.end();
}

bool Watch::hears_all() const {
  for (int rank = 0; rank < ranks_; ++rank)
    if (!is_here(rank) && !heard_[static_cast<size_t>(node_of_[static_cast<size_t>(rank)])]) return false;
  return true;
}

int Watch::most_on_a_node() const {
  int most = 0;
  for (const int first : node_of_)
    most = std::max(most, static_cast<int>(std::ranges::count(node_of_, first)));
  return most;
}

std::vector<int> Watch::on_this_node() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < ranks_; ++rank)
    if (is_here(rank)) ranks.push_back(rank);
  return ranks;
}

int Watch::ranks_here() const {
  return static_cast<int>(std::ranges::count(node_of_, node_of_[static_cast<size_t>(rank_)]));
}

int Watch::place_here() const {
  return static_cast<int>(
      std::count(node_of_.begin(), node_of_.begin() + rank_, node_of_[static_cast<size_t>(rank_)]));
}

void Watch::send_to_nodes() noexcept {
  if (!link_) return;
  std::array<SentSlot, kMostSent> sent{};
  size_t count = 0;
  const int64_t at = now();
  for (int rank = 0; rank < ranks_ && count < sent.size(); ++rank) {
    if (!is_here(rank)) continue;
    const BoardSlot& own = slot(rank);
    const int64_t waiting = own.waiting;
    sent[count++] = {at - own.beat, own.calls, waiting == 0 ? -1 : at - waiting, rank, own.busy,
                     own.failed,    own.ended};
  }
  link_->send(std::as_bytes(std::span(sent).first(count)));
}

void Watch::receive_from_nodes() {
  if (!link_) return;
  link_->receive([this](std::span<const std::byte> bytes) {
    for (; bytes.size() >= sizeof(SentSlot); bytes = bytes.subspan(sizeof(SentSlot))) {
      SentSlot sent{};
      std::memcpy(&sent, bytes.data(), sizeof sent);
      if (sent.rank < 0 || sent.rank >= ranks_ || is_here(sent.rank)) continue;
      heard_[static_cast<size_t>(node_of_[static_cast<size_t>(sent.rank)])] = true;
      BoardSlot& other = slot(sent.rank);
      const int64_t at = now();
      other.beat = at - sent.beat_age;
      other.calls = std::max<int64_t>(other.calls, sent.calls);
      other.waiting = sent.waiting_age < 0 ? 0 : at - sent.waiting_age;
      other.busy = sent.busy;
      if (sent.failed != 0) other.failed = sent.failed;
      if (sent.ended != 0) other.ended = sent.ended;
    }
  });
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

void Watch::set_before_end(std::function<void()> work) {
  const std::lock_guard lock(words_mutex_);
  before_end_ = std::move(work);
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
  send_to_nodes();
}

void Watch::ends() noexcept {
  slot(rank_).ended = 1;
  send_to_nodes();
  stops_ = true;
}

void Watch::run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are the run's affair
  while (!stops_) {
    slot(rank_).beat = now();
    receive_from_nodes();
    send_to_nodes();
    if (const Verdict verdict = look(); verdict.code != 0 && !stops_) end_all(verdict);
    std::vector<pollfd> ends;
    for (size_t rank = 0; rank < processes_.size(); ++rank)
      if (processes_[rank] >= 0 && !gone_[rank]) ends.push_back({processes_[rank], POLLIN, 0});
    poll(ends.data(), ends.size(), kLookEvery);
  }
}

Watch::Verdict Watch::look() {
  if (getppid() != parent_)
    return {.code = static_cast<int>(ExitCode::stopped), .seen_by_all = true, .why = "mpirun is gone"};
  // Those of this node first: where its first rank is stopped, nothing new is known of other nodes.
  for (const bool here : {true, false})
    for (int rank = 0; rank < ranks_; ++rank) {
      if (rank == rank_ || is_here(rank) != here) continue;
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
  if (!hears_nodes_ && !is_here(rank)) return {};
  const int64_t waiting = slot(rank_).waiting;
  const double waited = waiting == 0 ? 0.0 : 1e-3 * static_cast<double>(now() - waiting);
  if (waited <= silence_) return {};
  const bool stopped = now() - other.beat > kBeatLost;
  const bool behind = other.calls < slot(rank_).calls && other.busy == 0;
  if (!stopped && !behind) return {};
  return {.code = static_cast<int>(ExitCode::stopped),
          .silent_from = rank,
          .seen_by_all = true,
          .why = formatted("rank {} has said nothing for {} s (stop.silence)", rank,
                           static_cast<int64_t>(waited))};
}

// The rank that speaks: the one that failed by itself, else the first that is left.
int Watch::speaker(const Verdict& verdict) const {
  if (verdict.why.empty()) return verdict.silent_from;
  for (int rank = 0; rank < rank_; ++rank)
    if (rank != verdict.silent_from && (verdict.seen_by_all || is_here(rank)) && !has_ended(rank, 0))
      return rank;
  return rank_;
}

bool Watch::has_ended(int rank, int milliseconds) const {
  // A process of another node is mpirun's to know, which ends this one too.
  if (!is_here(rank)) milliseconds = std::min(milliseconds, kTimeOfNodes);
  pollfd end = {processes_[static_cast<size_t>(rank)], POLLIN, 0};
  return poll(&end, 1, milliseconds) > 0;
}

void Watch::wait_for_leader() const {
  if (rank_ != 0 && is_here(0)) static_cast<void>(has_ended(0, kTimeToSpeak));
}

// mpirun ends all processes when the first one has ended with an error: that is the one that speaks.
void Watch::end_all(const Verdict& verdict) {
  for (int rank = speaker(verdict); rank != rank_; rank = speaker(verdict)) {
    const bool killed = has_ended(rank, kTimeToSpeak) && is_here(rank) && slot(rank).failed == 0;
    if (!killed || verdict.why.empty()) leave(verdict.code);  // else the next one speaks
  }
  std::unique_lock lock(words_mutex_, std::try_to_lock);
  const std::string words = lock.owns_lock() && words_ ? words_() : std::string();
  if (lock.owns_lock()) lock.unlock();
  const std::string text = formatted("error: {}: all processes of the run end{}\n", verdict.why, words);
  [[maybe_unused]] const ssize_t written = write(voice_, text.data(), text.size());
  // The message is out: the end of this process is no news, and other nodes hear of one that this node alone sees.
  if (!verdict.seen_by_all) slot(verdict.silent_from).failed = verdict.code;
  slot(rank_).failed = verdict.code;
  send_to_nodes();
  leave(verdict.code);
}

// A library that does not come back must not hold the process.
void Watch::leave(int code) {
  std::function<void()> work;
  if (const std::unique_lock lock(words_mutex_, std::try_to_lock); lock.owns_lock()) work = before_end_;
  if (work) {
    const auto done = std::make_shared<std::atomic<bool>>(false);
    std::thread([work, done] {
      work();
      *done = true;
    }).detach();
    for (int waited = 0; waited < kTimeToEnd && !*done; waited += kLookOften)
      std::this_thread::sleep_for(std::chrono::milliseconds(kLookOften));
  }
  _exit(code);
}

}  // namespace plimsoll
