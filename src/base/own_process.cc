#include "base/own_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "base/system_memory.h"
#include "base/units.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// The first byte of an answer says which kind it is.
constexpr char kResult = 'r', kError = 'e', kOfPath = 'p', kOfSystem = 's', kNoMemory = 'm', kOther = 'o';

std::string answer_of(const std::function<std::string()>& work) {
  const auto answer = [](char kind, const std::string& text) { return std::string(1, kind) + text; };
  const auto number = [](const std::error_code& code) { return std::to_string(code.value()) + '\n'; };
  try {
    return answer(kResult, work());
  } catch (const Error& error) {
    return answer(kError, std::to_string(static_cast<int>(error.code())) + '\n' + error.what());
  } catch (const fs::filesystem_error& error) {
    return answer(kOfPath,
                  number(error.code()) + (error.path2().empty() ? error.path1() : error.path2()).string());
  } catch (const std::system_error& error) {
    return answer(kOfSystem, number(error.code()) + error.what());
  } catch (const std::bad_alloc&) {
    return {kNoMemory};
  } catch (const std::exception& error) {
    return answer(kOther, error.what());
  }
}

[[noreturn]] void throw_error(ExitCode code, const std::string& text) {
  switch (code) {
    case ExitCode::usage:
      throw UsageError(text);
    case ExitCode::does_not_fit:
      throw DoesNotFitError(text);
    case ExitCode::damaged:
      throw DamagedError(text);
    case ExitCode::stopped:
      throw StoppedError(text);
    default:
      throw Error(code, text);
  }
}

std::string read_answer(const std::string& answer) {
  const std::string text = answer.substr(1);
  if (answer[0] == kResult) return text;
  if (answer[0] == kNoMemory) throw std::bad_alloc();
  if (answer[0] == kOther) throw InternalError(text);
  const size_t end = text.find('\n');
  const int number = std::stoi(text.substr(0, end));
  const std::string rest = text.substr(end + 1);
  if (answer[0] == kError) throw_error(static_cast<ExitCode>(number), rest);
  const std::error_code code(number, std::generic_category());
  if (answer[0] == kOfPath) throw fs::filesystem_error("", rest, code);
  throw std::system_error(code, rest);
}

bool write_all(int descriptor, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = write(descriptor, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return false;
    if (wrote > 0) done += static_cast<size_t>(wrote);
  }
  return true;
}

std::string read_to_end(int descriptor) {
  std::string text;
  std::vector<char> part(1 << 16);
  for (;;) {
    const ssize_t got = read(descriptor, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(part.data(), static_cast<size_t>(got));
  }
}

// Locks above all: a process that was killed holds none as soon as it is gone, not when its copy is.
[[noreturn]] void be_the_copy(pid_t parent, int answers, const std::function<std::string()>& work) {
  constexpr int kAnswers = STDERR_FILENO + 1;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent || (answers != kAnswers && dup2(answers, kAnswers) < 0)) _exit(1);
  close_range(kAnswers + 1, ~0U, 0);
  _exit(write_all(kAnswers, answer_of(work)) ? 0 : 1);
}

// `kills`: the kernel's count before the child began. If the kernel killed another process for memory during
// that time and this child was ended by a signal from elsewhere, the error names the more probable cause,
// that memory ran out.
[[noreturn]] void throw_end(int status, int64_t kills) {
  if (!WIFSIGNALED(status)) throw InternalError("a process of our own ended without an answer");
  const int signal = WTERMSIG(status);
  const std::string text =
      formatted("a process of our own was ended by signal {} ({})", signal, strsignal(signal));
  for (const int crash : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL})
    if (signal == crash) throw InternalError(text);
  if (signal == SIGKILL && kernel_kills() > kills) {
    const FreeMemory free = free_memory();
    throw DoesNotFitError(formatted("does not fit   {}: memory ran out; {} are free ({})", text,
                                    format_bytes(free.bytes), free.source));
  }
  throw StoppedError(text + (signal == SIGKILL ? ", as the system does where memory has run out" : ""));
}

}  // namespace

std::string in_own_process(const std::function<std::string()>& work, int64_t* peak_bytes) {
  int answers[2];
  if (pipe2(answers, O_CLOEXEC) != 0)
    throw StoppedError(std::string("no pipe to a process of our own: ") + std::strerror(errno));
  const pid_t parent = getpid();
  const int64_t kills = kernel_kills();
  const pid_t pid = fork();
  if (pid == 0) be_the_copy(parent, answers[1], work);
  const int error = errno;
  close(answers[1]);
  const std::string answer = pid > 0 ? read_to_end(answers[0]) : "";
  close(answers[0]);
  if (pid < 0)
    throw StoppedError(std::string("the system starts no more processes (ulimit -u and -v limit them): ") +
                       std::strerror(error));
  int status = 0;
  rusage usage{};
  while (wait4(pid, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  if (peak_bytes != nullptr) *peak_bytes = usage.ru_maxrss * kKiB;
  if (answer.empty() || !WIFEXITED(status) || WEXITSTATUS(status) != 0) throw_end(status, kills);
  return read_answer(answer);
}

}  // namespace plimsoll
