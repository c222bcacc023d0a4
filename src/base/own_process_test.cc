#include "base/own_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>

#include "base/error.h"
#include "base/system_memory.h"
#include "base/units.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// The error that this process gets for a failure there: its class and its text.
template <class Thrown>
std::string told(const std::function<std::string()>& work) {
  try {
    in_own_process(work);
  } catch (const Thrown& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(OwnProcess, gives_back_what_the_work_returns_and_nothing_else) {
  int changed = 0;
  const std::string answer = in_own_process([&] {
    changed = 1;
    return std::string(300'000, 'x') + std::string("\0\n", 2) + std::to_string(getpid());
  });
  EXPECT_EQ(changed, 0);
  EXPECT_EQ(answer.substr(299'999, 3), std::string("x\0\n", 3));
  EXPECT_NE(answer.substr(300'002), std::to_string(getpid()));
  EXPECT_EQ(in_own_process([] { return std::string(); }), "");
}

TEST(OwnProcess, says_what_it_had_at_most) {
  const auto peak_with = [](size_t bytes) {
    int64_t peak = 0;
    in_own_process([&] { return std::to_string(std::string(bytes, 'x').find('y')); }, &peak);
    return peak;
  };
  const int64_t without = peak_with(1);
  EXPECT_GT(without, kMiB);
  EXPECT_GT(peak_with(size_t{64} << 20), without + 60 * kMiB);
}

TEST(OwnProcess, what_is_thrown_there_is_thrown_here) {
  EXPECT_EQ(told<UsageError>([]() -> std::string { throw UsageError("wrong\nof two lines"); }),
            "wrong\nof two lines");
  EXPECT_EQ(told<DoesNotFitError>([]() -> std::string { throw DoesNotFitError("too large"); }), "too large");
  EXPECT_EQ(told<DamagedError>([]() -> std::string { throw DamagedError("torn"); }), "torn");
  EXPECT_EQ(told<StoppedError>([]() -> std::string { throw StoppedError("full"); }), "full");
  try {
    in_own_process([]() -> std::string { throw InternalError("ours"); });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::internal);
  }
  EXPECT_THROW(in_own_process([]() -> std::string { throw std::bad_alloc(); }), std::bad_alloc);
  EXPECT_EQ(told<InternalError>([]() -> std::string { throw std::logic_error("odd"); }), "odd");
}

TEST(OwnProcess, failures_of_the_system_keep_their_numbers_and_paths) {
  try {
    in_own_process([] { return std::to_string(fs::file_size("/nowhere/at all")); });
    FAIL();
  } catch (const fs::filesystem_error& error) {
    EXPECT_EQ(error.path1(), "/nowhere/at all");
    EXPECT_EQ(error.code(), std::errc::no_such_file_or_directory);
  }
  try {
    in_own_process(
        []() -> std::string { throw std::system_error(EAGAIN, std::generic_category(), "no thread"); });
    FAIL();
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), std::errc::resource_unavailable_try_again);
  }
}

TEST(OwnProcess, that_it_was_ended_is_told) {
  const auto end = [](int signal) {
    return [signal]() -> std::string {
      const rlimit none{};
      setrlimit(RLIMIT_CORE, &none);
      std::signal(signal, SIG_DFL);  // sanitizers and test frameworks listen
      raise(signal);
      return "";
    };
  };
  EXPECT_NE(told<StoppedError>(end(SIGKILL)).find("signal 9"), std::string::npos);
  EXPECT_NE(told<InternalError>(end(SIGSEGV)).find("signal 11"), std::string::npos);
  EXPECT_NE(told<InternalError>([]() -> std::string { _exit(7); }).find("without an answer"),
            std::string::npos);
}

TEST(OwnProcess, its_memory_is_not_this_processs) {
  constexpr int64_t kMuch = 256 * kMiB;
  in_own_process([] {
    std::string much(kMuch, 'x');
    return std::to_string(much[much.size() / 2]);
  });
  EXPECT_LT(process_memory().peak_rss, kMuch);
}

TEST(OwnProcess, has_no_files_of_this_process) {
  const int open_here = fcntl(STDERR_FILENO, F_DUPFD, 100);  // no number that the copy may use itself
  EXPECT_EQ(in_own_process([&] { return std::to_string(write(open_here, "", 0)); }), "-1");
  close(open_here);
}

}  // namespace
}  // namespace plimsoll
