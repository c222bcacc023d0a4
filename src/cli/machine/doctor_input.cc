#include "cli/machine/doctor_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/print.h"
#include "base/regular_file.h"
#include "base/units.h"
#include "fleet/doctor/pickle.h"
#include "fleet/doctor/snapshot.h"
#include "report/history.h"

namespace plimsoll {
namespace {

constexpr size_t kChunk = size_t{1} << 20;
constexpr int64_t kWorthDrawing = 64 * kMiB;
constexpr size_t kMostLogs = 64;

// "reading 42 %", on a terminal.
class ReadProgress {
 public:
  explicit ReadProgress(int64_t total)
      : total_(total), shown_(total >= kWorthDrawing && isatty(STDERR_FILENO) == 1) {}
  ReadProgress(const ReadProgress&) = delete;
  ReadProgress& operator=(const ReadProgress&) = delete;
  ~ReadProgress() {
    if (shown_) std::fprintf(stderr, "\r\033[K");
  }
  void add(size_t bytes) {
    done_ += static_cast<int64_t>(bytes);
    if (!shown_ || done_ * 100 / total_ == percent_) return;
    percent_ = done_ * 100 / total_;
    std::fprintf(stderr, "\rreading %3d %%", static_cast<int>(std::min<int64_t>(percent_, 100)));
  }

 private:
  int64_t total_, done_ = 0, percent_ = -1;
  bool shown_;
};

size_t read_some(int descriptor, const std::string& name, char* to, size_t most) {
  for (;;) {
    const ssize_t got = read(descriptor, to, most);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) throw StoppedError(formatted("{}: {}", printable(name), system_message(errno)));
  }
}

struct Closed {
  int descriptor;
  ~Closed() {
    if (descriptor != STDIN_FILENO) close(descriptor);
  }
};

void take_snapshot(std::string_view piece, const std::string& name, std::string& bytes) {
  if (static_cast<int64_t>(bytes.size() + piece.size()) > doctor::Pickle::kMostBytes)
    throw UsageError(
        formatted("{}: a pickle of more than {}", printable(name), format_bytes(doctor::Pickle::kMostBytes)));
  bytes += piece;
}

void read_stream(int descriptor, const std::string& name, const std::string& file, DoctorInput& input) {
  struct stat status {};
  ReadProgress progress(fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) ? status.st_size : 0);
  doctor::LogScanner scanner;
  std::vector<char> buffer(kChunk);
  bool first = true;
  bool pickle = false;
  while (const size_t got = read_some(descriptor, name, buffer.data(), buffer.size())) {
    const std::string_view piece(buffer.data(), got);
    if (first) pickle = doctor::looks_like_pickle(piece);
    first = false;
    pickle ? take_snapshot(piece, name, input.snapshot) : scanner.feed(piece);
    progress.add(got);
  }
  if (pickle) return;
  scanner.finish();
  doctor::add_evidence(scanner, file, input.evidence);
}

bool is_log_name(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const std::string end = path.extension().string();
  return end == ".log" || end == ".out" || end == ".err" || end == ".txt" || name == "stdout" ||
         name == "stderr";
}

const doctor::MessageRow& killed_run() {
  static const doctor::MessageRow kRow{
      "plimsoll.ended_without_a_word",
      doctor::Sign::killed,
      {},
      {},
      "the run was killed, or the machine went down: its folder records no more",
      {},
      false};
  return kRow;
}
const doctor::MessageRow& stopped_run() {
  static const doctor::MessageRow kRow{"plimsoll.stopped",
                                       doctor::Sign::other_failure,
                                       {},
                                       {},
                                       "the run stopped itself and said why",
                                       {},
                                       false};
  return kRow;
}

// A run that was killed or stopped, as a message of its folder.
bool add_run(const std::string& folder, doctor::Evidence& evidence) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::path(folder) / "metrics.jsonl", error) &&
      !std::filesystem::exists(std::filesystem::path(folder) / "run.json", error))
    return false;
  const RunHistory run = read_history(folder);
  if (run.state != RunState::killed && run.state != RunState::stopped) return true;
  doctor::Message message;
  message.row = run.state == RunState::killed ? &killed_run() : &stopped_run();
  message.quote = formatted("{} after step {}", state_words(run.state), format_count(run.last_step()));
  if (run.state == RunState::stopped && !run.events.empty())
    message.quote += ": " + event_words(run.events.back());
  message.step = run.last_step();
  message.of_steps = run.total_steps > 0 ? run.total_steps : -1;
  if (run.planned_process_bytes > 0) message.bytes["planned_process"] = {run.planned_process_bytes, 0};
  if (largest_rss(run) > 0) message.bytes["measured_process"] = {largest_rss(run), 0};
  evidence.messages.push_back(std::move(message));
  return true;
}

}  // namespace

DoctorInput read_doctor_input(const std::string& path) {
  const Closed closed{path == "-" ? STDIN_FILENO : open_regular(path)};
  DoctorInput input;
  read_stream(closed.descriptor, path == "-" ? "standard input" : path, "", input);
  return input;
}

doctor::Evidence read_doctor_folder(const std::string& folder) {
  std::vector<std::filesystem::path> logs;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_regular_file() && is_log_name(entry.path())) logs.push_back(entry.path());
  std::sort(logs.begin(), logs.end());
  if (logs.size() > kMostLogs)
    throw UsageError(formatted("{}: {} logs; name one of them", printable(folder), logs.size()));
  DoctorInput input;
  for (const auto& log : logs) {
    const Closed closed{open_regular(log)};
    read_stream(closed.descriptor, log.string(), log.filename().string(), input);
  }
  const bool is_run = add_run(folder, input.evidence);
  if (!is_run && logs.empty())
    throw UsageError(printable(folder) + ": no run of Plimsoll, and no log (.log, .out, .err, .txt) in it");
  return std::move(input.evidence);
}

}  // namespace plimsoll
