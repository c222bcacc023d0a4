// plimsoll top: the queue and this machine, live.
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/format.h"
#include "base/print.h"
#include "base/regular_file.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/system_memory.h"
#include "base/units.h"
#include "cli/queue/queue_commands.h"
#include "cli/top/top_screen.h"
#include "cli/top/top_serve.h"
#include "cli/usage_text.h"
#include "files/append_file.h"
#include "files/file.h"
#include "fleet/devices/nvml.h"
#include "fleet/top/gather.h"
#include "train/run_signals.h"

namespace plimsoll {
namespace {

constexpr int64_t kMostRecorded = 256 * kMiB;
constexpr int64_t kLogTail = 64 << 10;
constexpr int64_t kLongestFrame = 64 * kMiB;

struct TopArguments {
  std::string record, replay;
  double interval = 2;
  int64_t count = 0;
  std::optional<std::string> serve;  // where; empty: at the usual place
  bool once = false, json = false;
};

bool is_frame(const std::string& line) {
  try {
    (void)top::read_frame(line, "");
    return true;
  } catch (const DamagedError&) {
    return false;
  }
}

// The place where a recording is continued.
struct RecordingEnd {
  int64_t bytes = std::numeric_limits<int64_t>::max();  // that are kept
  bool lacks_newline = false;
};

// A recorder that was killed, or whose disk was full, leaves a part of a line: nothing goes behind it.
RecordingEnd recording_end(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) return {};
  const std::string text = read_end(path, kLongestFrame);
  const std::string last = text.substr(text.rfind('\n') + 1);  // from 0 on where there is no line end
  if (last.empty()) return {};
  if (is_frame(last)) return {.lacks_newline = true};
  if (last.front() != '{' || std::ssize(text) >= kLongestFrame)
    throw UsageError(formatted("--record {}: does not end with a recorded sample", printable(path)));
  return {.bytes = static_cast<int64_t>(std::filesystem::file_size(path)) - std::ssize(last)};
}

// Appends frames to a file, each as a line.
class FrameRecorder {
 public:
  explicit FrameRecorder(const std::string& path) {
    if (path.empty()) return;
    const RecordingEnd end = recording_end(path);
    file_.emplace(AppendFile::of_user(path, end.bytes));
    if (end.lacks_newline) file_->write("\n");
  }

  void add(const top::Frame& frame) {
    if (file_) file_->write(json_text(top::frame_json(frame), -1));
  }

 private:
  std::optional<AppendFile> file_;
};

using Source = std::function<std::optional<top::Frame>()>;

// The frames of a recording, in their order.
Source recorded(const std::string& path) {
  auto lines = std::make_shared<std::vector<std::string>>(split(read_text(path, kMostRecorded), '\n'));
  if (const std::string& last = lines->back(); last.empty()) {
    lines->pop_back();
  } else if (!is_frame(last)) {
    say(formatted("note    {}:{}: an incomplete sample is left out", printable(path), lines->size()));
    lines->pop_back();
  }
  if (lines->empty()) throw UsageError(printable(path) + ": holds no frame");
  return [path, lines, at = size_t{0}]() mutable -> std::optional<top::Frame> {
    if (at >= lines->size()) return std::nullopt;
    ++at;
    return top::read_frame((*lines)[at - 1], formatted("{}:{}", printable(path), at));
  };
}

std::string end_of_log(const queue::Store& store, const top::RunStatus& run) {
  const std::filesystem::path log = store.folder_of(run.id, run.attempts) / "log";
  try {
    std::string text = read_end(log, kLogTail);
    if (std::ssize(text) == kLogTail) text.erase(0, text.find('\n') + 1);
    return text;
  } catch (const Error& error) {
    return std::filesystem::exists(std::filesystem::symlink_status(log)) ? error.what() : "";
  }
}

void sleep_for(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (stop_request() == nullptr && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

// A table or a line of JSON for each frame; nothing where they are only recorded.
void show(const TopArguments& arguments, const top::Frame& frame) {
  if (arguments.json) return print(json_text(top::frame_json(frame), arguments.once ? 2 : -1));
  if (arguments.once || arguments.record.empty()) print(top::frame_text(frame, output_columns()));
}

ExitCode print_frames(const TopArguments& arguments, const Source& next) {
  const bool replayed = !arguments.replay.empty();
  if (arguments.once) {
    std::optional<top::Frame> frame = next();
    while (replayed) {  // the last one
      std::optional<top::Frame> later = next();
      if (!later) break;
      frame = std::move(later);
    }
    show(arguments, *frame);
    return ExitCode::ok;
  }
  listen_to_stop_requests();
  std::signal(SIGPIPE, SIG_DFL);  // behind `| head` it ends as every command does
  for (int64_t shown = 0; stop_request() == nullptr && (arguments.count == 0 || shown < arguments.count);
       ++shown) {
    if (shown > 0 && !replayed) sleep_for(arguments.interval);
    const std::optional<top::Frame> frame = stop_request() == nullptr ? next() : std::nullopt;
    if (!frame) break;
    show(arguments, *frame);
    flush_output();
  }
  return ExitCode::ok;
}

// The token of this queue, for its owner: kept, so that addresses stay good.
std::string token_of(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "serve.token";
  constexpr size_t kBytes = 16;
  if (std::filesystem::is_regular_file(path)) {
    std::string token = read_text(path, 4 * kBytes);
    while (!token.empty() && token.back() == '\n') token.pop_back();
    if (token.size() == 2 * kBytes) return token;
  }
  unsigned char random[kBytes];
  if (getrandom(random, sizeof random, 0) != static_cast<ssize_t>(sizeof random))
    throw StoppedError("the system gives no random bytes for a token");
  std::string token;
  for (const unsigned char one : random)
    for (const int digit : {one >> 4, one & 15}) token += "0123456789abcdef"[digit];
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  const bool written =
      file >= 0 && write(file, token.data(), token.size()) == static_cast<ssize_t>(token.size());
  if (file >= 0) close(file);
  if (!written) throw StoppedError(printable(path.string()) + ": cannot be written");
  return token;
}

ExitCode serve_frames(const TopArguments& arguments, const queue::Store& store, const Source& next) {
  if (arguments.once || arguments.json || arguments.count > 0)
    throw UsageError("--serve goes without --once, --json and --count");
  Served served{read_address(*arguments.serve), token_of(store.folder()), arguments.interval,
                [&] { return *next(); }, nullptr};
  served.ready = [&] {
    const std::string& host = served.address.host;
    const bool six = host.find(':') != std::string::npos;
    print(formatted("http://{}:{}/?token={}\n", six ? formatted("[{}]", host) : host, served.address.port,
                    served.token));
    flush_output();
  };
  listen_to_stop_requests();
  std::signal(SIGPIPE, SIG_IGN);
  serve(served);
  return ExitCode::ok;
}

ExitCode run_top(TopArguments arguments) {
  if (!arguments.record.empty() && !arguments.replay.empty())
    throw UsageError("--record and --replay exclude each other");
  if (arguments.serve && !arguments.replay.empty())
    throw UsageError("--serve shows the present, not a recording");
  const bool terminal = isatty(STDOUT_FILENO) == 1 && isatty(STDIN_FILENO) == 1;
  const bool screen = terminal && !arguments.once && !arguments.json && arguments.count == 0;
  // Output to a pipe asks for a table.
  if (!terminal && !arguments.json && !arguments.serve && arguments.record.empty() && arguments.count == 0)
    arguments.once = true;
  if (!arguments.replay.empty()) {
    const Source source = recorded(arguments.replay);
    if (!screen) return print_frames(arguments, source);
    show_screen({source, arguments.interval, nullptr, nullptr});
    return ExitCode::ok;
  }
  queue::Store store(queue::queue_folder());
  devices::GpuWatch gpus(devices::nvml_library(), devices::watch_times());
  top::Gatherer gatherer(
      store, [] { return free_memory().bytes; }, &gpus);
  if (!screen) (void)gpus.first();  // a screen shows what it has, and cards when they answer
  FrameRecorder recorder(arguments.record);
  const Source source = [&] {
    store.require_in_place();
    top::Frame frame = gatherer.take();
    recorder.add(frame);
    return std::optional(std::move(frame));
  };
  if (arguments.serve) return serve_frames(arguments, store, source);
  if (!screen) return print_frames(arguments, source);
  show_screen({source, arguments.interval, [&](int64_t id) { return cancel_entry(store, id); },
               [&](const top::RunStatus& run) { return end_of_log(store, run); }});
  return ExitCode::ok;
}

}  // namespace

void add_top(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<TopArguments>();
  CLI::App* command = app.add_subcommand("top", "the queue and this machine, live");
  command->add_flag("--once", arguments->once, "print one sample as a table");
  command->add_flag("--json", arguments->json,
                    "one line of JSON per sample; with --once one object (docs/reference/json.md)");
  command->add_option("--interval", arguments->interval, "seconds between samples")
      ->check(between(0.1, 3600));
  command->add_option("--count", arguments->count, "end after this many samples")->check(at_least(0));
  command->add_option("--record", arguments->record, "append every sample to a file")->type_name("FILE");
  command->add_option("--replay", arguments->replay, "show a recorded file instead")->type_name("FILE");
  command
      ->add_option_function<std::string>(
          "--serve", [arguments](const std::string& text) { arguments->serve = text; },
          "serve a page and metrics for Prometheus at 127.0.0.1:8642 or another address, with a token")
      ->type_name("ADDRESS:PORT")
      ->expected(0, 1);
  command->callback([arguments, &action] { action = [arguments] { return run_top(*arguments); }; });
}

}  // namespace plimsoll
