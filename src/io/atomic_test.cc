#include "io/atomic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "io/file.h"
#include "io/run_lock.h"
#include "io/test_folder.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Atomic, a_file_is_replaced_and_nothing_else_stays) {
  const TestFolder folder;
  const auto path = folder.write("run.json", "old");
  write_file_atomically(path, "new");
  EXPECT_EQ(read_text(path, 10), "new");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("run.json"));
}

TEST(Atomic, what_was_never_finished_is_removed_and_what_was_being_replaced_comes_back) {
  const TestFolder folder;
  for (const char* name : {"checkpoint-4.tmp", "checkpoint-6.old", "checkpoint-8", "checkpoint-8.old"}) {
    std::filesystem::create_directory(folder.path() / name);
    folder.write(std::string(name) + "/inside", name);
  }
  folder.write("run.json.tmp.123", "half");
  folder.write("my.tmp.notes", "a user's");
  remove_leftovers(folder.path());
  EXPECT_THAT(names_in(folder.path()), ElementsAre("checkpoint-6", "checkpoint-8", "my.tmp.notes"));
  EXPECT_EQ(read_text(folder.path() / "checkpoint-8/inside", 100), "checkpoint-8");
  remove_folder_atomically(folder.path() / "checkpoint-6");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("checkpoint-8", "my.tmp.notes"));
}

TEST(Atomic, a_link_replaces_what_was_there) {
  const TestFolder folder;
  link_atomically(folder.write("from", "new"), folder.write("to", "old"));
  link_atomically(folder.path() / "from", folder.path() / "to");  // once more changes nothing
  EXPECT_EQ(read_text(folder.path() / "to", 10), "new");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("from", "to"));
}

TEST(Atomic, a_file_that_cannot_be_written_leaves_no_trace) {
  const TestFolder folder;
  std::filesystem::create_directory(folder.path() / "run.json");  // a folder stands where the file should go
  folder.write("run.json/inside", "x");
  EXPECT_THROW(write_file_atomically(folder.path() / "run.json", "new"), StoppedError);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("run.json"));
  EXPECT_THROW(write_file_atomically(folder.path() / "absent" / "run.json", "new"), StoppedError);
}

TEST(Atomic, a_folder_appears_only_when_published) {
  const TestFolder folder;
  const auto target = folder.path() / "step-10";
  {
    AtomicFolder checkpoint(target);
    write_file_atomically(checkpoint.path() / "state.json", "{}");
    EXPECT_FALSE(std::filesystem::exists(target));
    checkpoint.publish();
  }
  EXPECT_THAT(names_in(target), ElementsAre("state.json"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-10"));
}

TEST(Atomic, a_folder_not_published_leaves_no_trace) {
  const TestFolder folder;
  { const AtomicFolder checkpoint(folder.path() / "step-10"); }
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

TEST(Atomic, publishing_replaces_an_older_folder_and_clears_what_a_crash_left) {
  const TestFolder folder;
  std::filesystem::create_directory(folder.path() / "best");
  folder.write("best/old", "x");
  std::filesystem::create_directory(folder.path() / "best.tmp");
  folder.write("best.tmp/torn", "x");
  AtomicFolder checkpoint(folder.path() / "best");
  write_file_atomically(checkpoint.path() / "new", "x");
  checkpoint.publish();
  EXPECT_THAT(names_in(folder.path() / "best"), ElementsAre("new"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("best"));
}

TEST(Atomic, too_little_disk_is_said_before_writing) {
  const TestFolder folder;
  EXPECT_GT(free_disk_bytes(folder.path() / "not" / "yet"), 0);
  EXPECT_NO_THROW(require_disk_space(folder.path(), 1, "a checkpoint"));
  EXPECT_THAT(
      message_of<StoppedError>([&] { require_disk_space(folder.path(), INT64_MAX / 2, "a checkpoint"); }),
      HasSubstr("a checkpoint takes 4"));
}

// flock belongs to the open file, so a second lock of the same process is refused like one of another
// process.
TEST(RunLock, a_second_run_in_the_folder_is_refused_by_name) {
  const TestFolder folder;
  const auto run = folder.path() / "runs" / "a";
  {
    const RunLock lock(run);
    EXPECT_EQ(message_of<UsageError>([&] { const RunLock second(run); }),
              run.string() + ": another run (process " + std::to_string(getpid()) +
                  ") is writing there. Wait for it, stop it, or choose another folder with output.");
  }
  EXPECT_NO_THROW(const RunLock third(run));
}

TEST(RunLock, what_it_made_goes_with_it_unless_something_was_written) {
  const TestFolder folder;
  const auto outer = folder.path() / "runs";
  const auto run = outer / "a" / "b";
  { const RunLock lock(run); }
  EXPECT_FALSE(std::filesystem::exists(outer));
  std::filesystem::create_directories(run);
  { const RunLock lock(run); }
  EXPECT_TRUE(std::filesystem::is_empty(run));  // the folder is not its own
  std::filesystem::remove_all(outer);
  {
    const RunLock lock(run / "");
    write_file_atomically(run / "run.json", "{}");
  }
  EXPECT_TRUE(std::filesystem::exists(run / ".lock"));
  EXPECT_TRUE(std::filesystem::exists(run / "run.json"));
}

// Each holder takes its file and folders away while others open them.
TEST(RunLock, never_has_two_holders_although_its_file_comes_and_goes) {
  const TestFolder folder;
  std::atomic<int> holders = 0, most = 0, taken = 0;
  const auto compete = [&] {
    for (int i = 0; i < 400; ++i) {
      try {
        const RunLock lock(folder.path() / "runs" / "a");
        most = std::max(most.load(), ++holders);
        ++taken;
        std::this_thread::yield();
        --holders;
      } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("is writing there"));
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(compete);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
  EXPECT_GT(taken, 0);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "runs" / "a" / ".lock"));
}

TEST(RunLock, a_holder_that_died_leaves_the_folder_free) {
  const TestFolder folder;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const RunLock lock(folder.path());
    _exit(0);  // without unlocking
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  EXPECT_NO_THROW(const RunLock lock(folder.path()));
}

}  // namespace
}  // namespace plimsoll
