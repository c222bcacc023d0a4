// The supervisor: after the fork it is alone in its process, and writes to nothing but its own folder.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/system_memory.h"
#include "base/units.h"
#include "files/atomic.h"
#include "fleet/queue/processes/attempt.h"
#include "fleet/queue/processes/command_line.h"
#include "fleet/queue/processes/memory_group.h"
#include "fleet/queue/processes/memory_history.h"
#include "fleet/queue/processes/process_tree.h"

namespace plimsoll::queue {
namespace {

namespace fs = std::filesystem;

constexpr int kLookMilliseconds = 250;
constexpr double kKeepSeconds = 5;
constexpr int64_t kGroupBytes = 32 * kMiB;  // or a sixteenth: the kernel's own, and what is not yet seen
constexpr size_t kRecordBytes = 4096;       // more than any record takes
constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A file of its own: what lies under its name without being one is removed, as a link would be written through
// and a FIFO waited for.
int open_log(const std::string& path) {
  struct stat there {};
  if (lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode) && unlink(path.c_str()) != 0) return -1;
  return open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
}

class Supervisor {
 public:
  explicit Supervisor(const Launch& launch) : launch_(launch) {}

  // Returns when nothing of the command is left and its record is on disk; nothing where the attempt is, or
  // was, another's.
  std::optional<Exit> run() {
    if (!take_lock()) return std::nullopt;
    make_record_and_log();
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    kills_before_ = kernel_kills();
    block_signals();
    start();
    started_at_ = seconds_now();
    while (command_ > 0 && !command_ended_) tick();
    end_what_is_left();
    if (!history_.bytes().empty()) keep(history_, launch_.folder);
    const int64_t kills = kernel_kills();
    exit_.kernel_killed = exit_.signal == SIGKILL && kills > kills_before_;
    if (group_ && exit_.code != 0 && group_->kills() > 0) {
      exit_.over_limit = true;
      exit_.kernel_killed = false;
      exit_.peak_bytes = std::max(exit_.peak_bytes, launch_.host_limit);
    } else if (group_ && group_->peak() > 0) {
      exit_.peak_bytes = std::min(exit_.peak_bytes, group_->peak());
    }
    exit_.seconds = seconds_now() - started_at_;
    write_record();
    return exit_;
  }

 private:
  // Made under another name and locked before it has its own: no process sees it unlocked.
  bool take_lock() {
    const std::string mine = (launch_.folder / ("lock." + std::to_string(getpid()))).string();
    lock_ = open(mine.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (lock_ < 0 || flock(lock_, LOCK_EX | LOCK_NB) != 0) return false;
    const std::string own_id = std::to_string(getpid()) + "\n";
    const bool written = write(lock_, own_id.data(), own_id.size()) > 0 && fsync(lock_) == 0;
    const bool first = written && link(mine.c_str(), (launch_.folder / "lock").c_str()) == 0;
    unlink(mine.c_str());
    // On the disk before the command starts: after a power cut a training that had begun must not begin
    // again.
    fs::path made = launch_.folder / "lock";
    for (int above = 0; first && above < 4; ++above, made = made.parent_path()) flush_name(made);
    return first;
  }

  // Ends the supervisor because the system gives too little. Nothing has begun: any worker may take the
  // attempt again, and starts it when there is enough.
  [[noreturn]] void give_back(const char* what) const {
    const std::string why = std::strerror(errno);
    for (const char* name : {"exit.json.tmp", "lock"}) unlink((launch_.folder / name).c_str());
    throw StoppedError(formatted("{}: {}: {}", printable(launch_.folder.string()), what, why));
  }

  void make_record_and_log() {
    const fs::path partial = launch_.folder / "exit.json.tmp";
    record_ = open(partial.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const std::string blanks(kRecordBytes, ' ');
    if (record_ >= 0 && write(record_, blanks.data(), blanks.size()) == static_cast<ssize_t>(blanks.size()) &&
        fsync(record_) == 0)
      log_ = open_log((launch_.folder / "log").string());
    if (log_ < 0) give_back("takes no files");
  }

  void block_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int one : kSignals) sigaddset(&set, one);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }

  void start() {
    make_group();
    int failed[2] = {-1, -1};
    if (pipe2(failed, O_CLOEXEC) != 0) give_back("no pipe");
    command_ = fork();
    if (command_ == 0) {
      become_command(failed[1]);
      _exit(127);
    }
    if (command_ < 0) give_back("no process");
    close(failed[1]);
    int error = 0;
    if (command_ > 0 && read(failed[0], &error, sizeof error) == static_cast<ssize_t>(sizeof error))
      exit_.problem = formatted("{}: {}", launch_.words.front(), std::strerror(error));
    close(failed[0]);
    // A group that did not take the command holds nothing to a limit; one that has ended already is in none.
    if (group_ && command_ > 0 && exit_.problem.empty() && !group_->has(command_))
      if (const auto process = read_process(command_); process && process->state != 'Z') group_.reset();
  }

  // Looking four times a second misses what is taken at once: where it may, the kernel holds the limit.
  void make_group() {
    if (launch_.host_limit <= 0 || !launch_.own_group) return;
    const std::string name = formatted("plimsoll-{}-{}-{}", launch_.folder.parent_path().filename().string(),
                                       launch_.folder.filename().string(), getpid());
    group_ = MemoryGroup::make(name, launch_.host_limit + std::max(kGroupBytes, launch_.host_limit / 16));
    if (!group_) return;
    // For a process that finds that this supervisor was killed.
    std::ofstream(launch_.folder / "group") << group_->folder().string();
  }

  void become_command(int failed) const {
    if (group_) (void)group_->take(getpid());
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // it does not outlive its supervisor
    setpgid(0, 0);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    for (const int one : kSignals) std::signal(one, SIG_DFL);
    for (const int one : {SIGPIPE, SIGXFSZ}) std::signal(one, SIG_DFL);
    if (launch_.mask) umask(*launch_.mask);
    const int nothing = open("/dev/null", O_RDONLY);
    std::vector<char*> words;
    for (const std::string& word : launch_.words) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    for (const std::string& one : launch_.environment) putenv(const_cast<char*>(one.c_str()));
    putenv(const_cast<char*>(launch_.mark.c_str()));
    if (nothing >= 0 && dup2(nothing, 0) == 0 && dup2(log_, 1) == 1 && dup2(log_, 2) == 2 &&
        chdir(launch_.working_folder.c_str()) == 0)
      execvp(words.front(), words.data());
    const int error = errno;
    if (write(failed, &error, sizeof error) < 0) _exit(126);
  }

  void tick() {
    pollfd ready{signals_, POLLIN, 0};
    poll(&ready, 1, kLookMilliseconds);
    take_signals();
    reap();
    if (command_ended_) return;
    const std::map<pid_t, Process> processes = all_processes();
    const std::vector<pid_t> tree = descendants(getpid(), processes);
    note_processes(tree, processes);
    TreeMemory memory = memory_of(tree);
    // One look at several processes may count more than they had (process_tree.h).
    if (tree.size() > 1 && memory.peak > exit_.peak_bytes) {
      const TreeMemory again = memory_of(tree);
      memory = again.now < memory.now ? again : memory;
    }
    // After the kernel has ended one of several processes, the others would continue without it.
    const bool over = takes_too_much(memory, tree.size()) || (group_ && group_->kills() > 0);
    file_bytes_ = std::max(file_bytes_, memory.file_bytes);
    exit_.peak_bytes = std::max(exit_.peak_bytes, memory.peak);
    remember(memory.now);
    if (over && !exit_.over_limit) {
      exit_.over_limit = true;
      send(descendants(getpid()), SIGKILL);
    }
    if (requested_at_ == 0 && access((launch_.folder / "cancel").c_str(), F_OK) == 0) ask();
    if (requested_at_ != 0 && seconds_now() > requested_at_ + grace()) send(tree, SIGKILL);
  }

  // A control group decides, where there is one. Elsewhere a run is not ended for what processes seemed to
  // have together while they shared memory and let go of it.
  bool takes_too_much(TreeMemory& memory, size_t processes) const {
    if (group_ || launch_.host_limit <= 0 || memory.now <= launch_.host_limit || exit_.over_limit)
      return false;
    if (processes > 1) memory.now = memory.peak = memory_standing_still(getpid());
    return memory.now > launch_.host_limit;
  }

  // For a process that finds that this supervisor was killed: by this it knows what left its tree and its
  // environment.
  void note_processes(const std::vector<pid_t>& tree, const std::map<pid_t, Process>& processes) {
    std::string text;
    for (const pid_t pid : tree) text += formatted("{} {}\n", pid, processes.at(pid).born);
    if (text == noted_) return;
    noted_ = text;
    (void)replace_file(launch_.folder / "processes.tmp", launch_.folder / "processes", text);
  }

  [[nodiscard]] double grace() const { return read_grace(launch_.folder).value_or(launch_.grace_seconds); }

  void remember(int64_t bytes) {
    const double now = seconds_now();
    history_.add(now - started_at_, bytes);
    if (now < kept_at_ + kKeepSeconds) return;
    kept_at_ = now;
    keep(history_, launch_.folder);
  }

  void take_signals() {
    signalfd_siginfo got{};
    while (read(signals_, &got, sizeof got) == static_cast<ssize_t>(sizeof got))
      if (got.ssi_signo != SIGCHLD && requested_at_ == 0) ask();
  }

  void ask() {
    requested_at_ = seconds_now();
    exit_.canceled = true;
    // srun ends its tasks on SIGTERM, and hands SIGUSR2 on, at which each of them asks all to save and end.
    if (launch_.hands_signals_on && command_ > 0 && !command_ended_)
      kill(command_, launch_.words.front() == "srun" ? SIGUSR2 : SIGTERM);
    else
      send(descendants(getpid()), SIGTERM);
  }

  static void send(const std::vector<pid_t>& processes, int number) {
    for (const pid_t one : processes) kill(one, number);
  }

  void reap() {
    for (;;) {
      int status = 0;
      rusage used{};
      const pid_t ended = wait4(-1, &status, WNOHANG, &used);
      if (ended <= 0) return;
      if (ended != command_) continue;
      // The peak that no tick has seen. The fork counts too, until the command takes its place: some MiB.
      exit_.peak_bytes = std::max(exit_.peak_bytes, int64_t{used.ru_maxrss} * kKiB - file_bytes_);
      command_ended_ = true;
      if (WIFEXITED(status)) exit_.code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) exit_.signal = WTERMSIG(status);
    }
  }

  // Processes that the command left running have become this one's children, and end now.
  void end_what_is_left() {
    for (bool first = true;; first = false) {
      reap();
      const std::vector<pid_t> left = descendants(getpid());
      if (left.empty()) return;
      if (first) exit_.left_over = static_cast<int>(left.size());
      send(left, SIGKILL);
      pollfd none{signals_, POLLIN, 0};
      poll(&none, 1, 20);
      take_signals();
    }
  }

  void write_record() const {
    const nlohmann::json record = {{"code", exit_.code},
                                   {"signal", exit_.signal},
                                   {"canceled", exit_.canceled},
                                   {"over_limit", exit_.over_limit},
                                   {"kernel_killed", exit_.kernel_killed},
                                   {"peak_bytes", exit_.peak_bytes},
                                   {"seconds", exit_.seconds},
                                   {"left_over", exit_.left_over},
                                   {"problem", exit_.problem.substr(0, 1000)}};
    const std::string text = record.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    if (record_ < 0 || pwrite(record_, text.data(), text.size(), 0) < 0) return;
    fsync(record_);
    std::rename((launch_.folder / "exit.json.tmp").c_str(), (launch_.folder / "exit.json").c_str());
    const int folder = open(launch_.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) fsync(folder);
  }

  const Launch& launch_;
  int lock_ = -1, record_ = -1, log_ = -1, signals_ = -1;
  pid_t command_ = 0;
  bool command_ended_ = false;
  double requested_at_ = 0, started_at_ = 0, kept_at_ = 0;
  int64_t file_bytes_ = 0;  // most of mapped files that the command had
  std::string noted_;       // the processes that the attempt's folder lists
  MemoryHistory history_;
  std::optional<MemoryGroup> group_;
  int64_t kills_before_ = 0;
  Exit exit_;
};

void close_all_files() {
  for (int one = 0; one <= 2; ++one) {
    const int nothing = open("/dev/null", O_RDWR);
    if (nothing != one && nothing >= 0) {
      dup2(nothing, one);
      close(nothing);
    }
  }
  close_range(3, ~0U, 0);
}

}  // namespace

std::optional<Exit> supervise(const Launch& launch) { return Supervisor(launch).run(); }

pid_t launch(const Launch& launch) {
  const pid_t pid = fork();
  if (pid < 0) throw StoppedError(std::string("no process for a run: ") + std::strerror(errno));
  if (pid > 0) return pid;
  setsid();
  close_all_files();
  // Ending the worker by its command line must not end the runs.
  show_command_as("plimsoll run " + launch.folder.parent_path().filename().string());
  try {
    if (!Supervisor(launch).run()) _exit(1);
  } catch (const std::exception&) {
    _exit(1);  // no record: the worker sees a supervisor that was lost
  }
  _exit(0);  // it ran the command to its end, whatever has become of its record
}

}  // namespace plimsoll::queue
