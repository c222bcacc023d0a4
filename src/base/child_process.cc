#include "base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

// A file descriptor, closed at its end.
class File {
 public:
  File() = default;
  explicit File(int number) : number_(number) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close_now(); }
  void become(int number) {
    close_now();
    number_ = number;
  }
  void close_now() {
    if (number_ >= 0) close(number_);
    number_ = -1;
  }
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_ = -1;
};

struct Pipe {
  File out, in;
  void make() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw StoppedError("no pipe to another program");
    out.become(ends[0]);
    in.become(ends[1]);
  }
};

// Whole in a file without a name: no program can keep this process waiting by not reading.
void write_input(const File& file, const std::string& input) {
  size_t written = 0;
  while (written < input.size()) {
    const ssize_t some = write(file.number(), input.data() + written, input.size() - written);
    if (some <= 0) throw StoppedError("no room for what another program is to read");
    written += static_cast<size_t>(some);
  }
  lseek(file.number(), 0, SEEK_SET);
}

[[noreturn]] void become_program(std::vector<char*>& arguments, int input, int output, int errors) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  if (errors >= 0) dup2(errors, STDERR_FILENO);
  execvp(arguments.front(), arguments.data());
  _exit(127);
}

// Appends what is there; closes the file at its end.
void take(File& file, short happened, std::string& text) {
  if (happened == 0) return;
  char part[65536];
  const ssize_t got = read(file.number(), part, sizeof part);
  if (got > 0) text.append(part, static_cast<size_t>(got));
  if (got == 0 || (got < 0 && errno != EINTR)) file.close_now();
}

int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

}  // namespace

ChildAnswer run_child(const std::vector<std::string>& words, ChildErrors errors, const std::string& input,
                      double most_seconds) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  Pipe output, complaints;
  output.make();
  if (errors == ChildErrors::kept) complaints.make();
  File nowhere;
  if (errors == ChildErrors::dropped) nowhere.become(open("/dev/null", O_WRONLY | O_CLOEXEC));
  const File reads(memfd_create("input", MFD_CLOEXEC));
  write_input(reads, input);
  const auto end = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(most_seconds * 1000));
  const pid_t pid = fork();
  if (pid == 0)
    become_program(arguments, reads.number(), output.in.number(),
                   errors == ChildErrors::kept ? complaints.in.number() : nowhere.number());
  if (pid < 0) throw StoppedError(formatted("no process for {}: {}", words.front(), std::strerror(errno)));
  output.in.close_now();
  complaints.in.close_now();
  ChildAnswer answer;
  while (output.out.number() >= 0 || complaints.out.number() >= 0) {
    pollfd ready[] = {{output.out.number(), POLLIN, 0}, {complaints.out.number(), POLLIN, 0}};
    poll(ready, 2, most_seconds > 0 ? milliseconds_until(end) : -1);
    take(output.out, ready[0].revents, answer.output);
    take(complaints.out, ready[1].revents, answer.errors);
    if (most_seconds <= 0 || Clock::now() < end) continue;
    answer.late = true;
    kill(pid, SIGKILL);
    break;
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) answer.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) answer.code = 128 + WTERMSIG(status);
  return answer;
}

}  // namespace plimsoll
