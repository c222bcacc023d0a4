#include "report/event_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/print.h"
#include "base/printable.h"
#include "base/strings.h"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kAtOnce = 4096;       // PIPE_BUF: a pipe takes so much whole
constexpr size_t kWaiting = 64 << 10;  // bytes kept for a slow reader
constexpr int kPatience = 10'000;      // milliseconds in which a reader at the end takes something
constexpr double kBetweenLoads = 0.1;  // seconds

std::unique_ptr<EventStream> the_stream;
bool passing_on = false;  // what is shown now was sent already

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string text_of(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A reader that is gone is no signal to this process: a run takes one for the wish to stop.
class WithoutPipeSignal {
 public:
  WithoutPipeSignal() {
    sigset_t waiting;
    sigpending(&waiting);
    was_waiting_ = sigismember(&waiting, SIGPIPE) == 1;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutPipeSignal() {
    constexpr timespec kNow{0, 0};
    if (!was_waiting_)
      while (sigtimedwait(&pipe_, nullptr, &kNow) < 0 && errno == EINTR) {
      }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutPipeSignal(const WithoutPipeSignal&) = delete;
  WithoutPipeSignal& operator=(const WithoutPipeSignal&) = delete;

 private:
  sigset_t pipe_{}, before_{};
  bool was_waiting_ = false;
};

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// "recipes/q.yaml:14: method.r: expected ..." as an object.
Json problem_of(const std::string& line) {
  Json problem = {
      {"message", line}, {"file", nullptr}, {"line", nullptr}, {"key", nullptr}, {"nearest", nullptr}};
  size_t begin = 0;
  for (size_t colon = line.find(':'); colon != std::string::npos; colon = line.find(':', colon + 1)) {
    const size_t end = line.find(':', colon + 1);
    if (end == std::string::npos || !is_number(std::string_view(line).substr(colon + 1, end - colon - 1)))
      continue;
    problem["file"] = line.substr(0, colon);
    problem["line"] = std::stoll(line.substr(colon + 1, std::min<size_t>(end - colon - 1, 9)));
    begin = std::min(end + 2, line.size());
    break;
  }
  const std::string rest = line.substr(begin);
  constexpr std::string_view kUnknown = "unknown key '";
  if (rest.starts_with(kUnknown) || rest.find(": " + std::string(kUnknown)) != std::string::npos) {
    const size_t key = rest.find(kUnknown) + kUnknown.size();
    problem["key"] = rest.substr(key, rest.find('\'', key) - key);
  } else if (const size_t end = rest.find(": "); end != std::string::npos) {
    const std::string word = rest.substr(0, end);
    if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.") == std::string::npos)
      problem["key"] = word;
  }
  constexpr std::string_view kNearest = "did you mean '";
  if (const size_t at = rest.find(kNearest); at != std::string::npos)
    problem["nearest"] =
        rest.substr(at + kNearest.size(), rest.find('\'', at + kNearest.size()) - at - kNearest.size());
  return problem;
}

}  // namespace

EventStream* EventStream::of_process() { return the_stream.get(); }

void EventStream::open(int descriptor, std::string_view command, std::string_view version) {
  const int mode = descriptor < 0 ? -1 : fcntl(descriptor, F_GETFL);
  if (mode < 0)
    throw UsageError(formatted("--events: descriptor {} is not open: a shell opens it with {}>FILE",
                               descriptor, descriptor));
  if ((mode & O_ACCMODE) == O_RDONLY)
    throw UsageError(formatted("--events: descriptor {} is open for reading, not for writing", descriptor));
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);  // programs that this one starts have nothing to say there
  the_stream.reset(new EventStream(descriptor, command, version));
  hear_what_is_said([](std::string_view text) {
    if (passing_on) return;
    the_stream->note(text, text.starts_with("note") ? LogLevel::warn : LogLevel::info);
  });
}

EventStream::EventStream(int descriptor, std::string_view command, std::string_view version)
    : descriptor_(descriptor), process_(getpid()) {
  waiting_.reserve(kWaiting);
  send("begin",
       text_of({{"version", kVersion}, {"command", command}, {"process", process_}, {"plimsoll", version}}));
}

bool EventStream::append(std::string_view event, std::string_view object) {
  std::array<char, 96> head{};
  int length = 0;
  // A line of metrics.jsonl has its time.
  if (event == "step")
    length = std::snprintf(head.data(), head.size(), "{\"event\": \"step\", ");
  else if (!event.empty())
    length = std::snprintf(head.data(), head.size(), "{\"event\": \"%.*s\", \"time\": %.3f, ",
                           static_cast<int>(event.size()), event.data(), now());
  object = trim(object);
  if (length > 0) object.remove_prefix(1);  // its brace
  const size_t bytes = static_cast<size_t>(length) + object.size() + 1;
  // A line that is longer than what is kept goes alone.
  if (!waiting_.empty() && waiting_.size() + bytes > kWaiting) return false;
  waiting_.append(head.data(), static_cast<size_t>(length)).append(object) += '\n';
  return true;
}

void EventStream::send(std::string_view event, std::string_view object) {
  const std::lock_guard guard(lock_);
  if (gone_ || getpid() != process_) return;
  hand_out(0);
  if (left_out_ > 0) {
    std::array<char, 128> told{};
    const int length = std::snprintf(
        told.data(), told.size(),
        "{\"level\": \"warn\", \"text\": \"%lld events were left out: their reader was too slow\"}",
        static_cast<long long>(left_out_));
    if (append("note", {told.data(), static_cast<size_t>(length)})) left_out_ = 0;
  }
  if (left_out_ > 0 || !append(event, object)) ++left_out_;
  hand_out(0);
}

size_t EventStream::next_part() const {
  if (waiting_.size() <= kAtOnce) return waiting_.size();
  const size_t end = waiting_.rfind('\n', kAtOnce - 1);
  return end == std::string::npos ? kAtOnce : end + 1;
}

bool EventStream::write_some(size_t bytes) {
  const WithoutPipeSignal quiet;
  const ssize_t wrote = write(descriptor_, waiting_.data(), bytes);
  if (wrote > 0) waiting_.erase(0, static_cast<size_t>(wrote));
  if (wrote < 0 && errno != EAGAIN && errno != EINTR) gone_ = true;
  return wrote > 0;
}

void EventStream::hand_out(int patience_ms) {
  while (!gone_ && !waiting_.empty()) {
    pollfd ready{descriptor_, POLLOUT, 0};
    const int found = poll(&ready, 1, patience_ms);
    if (found < 0 && errno == EINTR) continue;
    if (found <= 0) return;
    if ((ready.revents & POLLOUT) == 0) {
      gone_ = true;
      return;
    }
    if (!write_some(next_part()) && patience_ms == 0) return;
  }
}

void EventStream::note(std::string_view text, LogLevel level) {
  const char* const word = level == LogLevel::error ? "error" : level == LogLevel::warn ? "warn" : "info";
  send("note", text_of({{"level", word}, {"text", text}}));
}

void EventStream::load(std::string_view what, int64_t done, int64_t total) {
  const double time = now();
  if (done < total && time - last_load_ < kBetweenLoads) return;
  last_load_ = time;
  send("load", text_of({{"what", what}, {"done", done}, {"total", total}}));
}

void EventStream::set_ways(const Json& ways) { ways_ = text_of(ways); }

void EventStream::error(ExitCode code, const std::string& message, bool of_recipe) {
  Json problems = Json::array();
  if (of_recipe)
    for (const std::string& line : split(message, '\n')) problems.push_back(problem_of(line));
  make_room();
  send("error", text_of({{"exit", static_cast<int>(code)},
                         {"message", message},
                         {"problems", problems},
                         {"ways", ways_.empty() ? Json::array() : Json::parse(ways_)}}));
}

void EventStream::make_room() {
  const std::lock_guard guard(lock_);
  if (getpid() != process_ || stalled_) return;
  hand_out(kPatience);
  stalled_ = !waiting_.empty();
}

void EventStream::end(int exit_code) {
  make_room();
  send("end", text_of({{"exit", exit_code}}));
  make_room();
}

void EventObserver::loading(int64_t done, int64_t total) {
  stream_.load("weights", done, total);
  shown_.loading(done, total);
}

void EventObserver::counting(int64_t done, int64_t total) {
  stream_.load("row lengths", done, total);
  shown_.counting(done, total);
}

void EventObserver::storing(int64_t done, int64_t total) {
  stream_.load("rows", done, total);
  shown_.storing(done, total);
}

void EventObserver::answering(int64_t done, int64_t total) {
  stream_.load("answers", done, total);
  shown_.answering(done, total);
}

void EventObserver::logged(std::string_view kind, std::string_view line) {
  // The error and the end of the command say more than the log's.
  const bool of_metrics = kind == "step" || kind == "evaluate" || kind == "plan";
  if (kind != "stop" && kind != "end") stream_.send(of_metrics ? kind : "", line);
  shown_.logged(kind, line);
}

void EventObserver::line_of(const std::string& line, LogLevel level) {
  if (level <= LogLevel::info) stream_.note(line, level);
  passing_on = true;
  shown_.event(line, level);
  passing_on = false;
}

}  // namespace plimsoll
