#include "files/atomic.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "base/error.h"
#include "files/append_file.h"
#include "files/file.h"
#include "files/test_folder.h"
#include "files/work_folder.h"

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

struct Held : WorkFolder {
  explicit Held(const std::filesystem::path& folder) : WorkFolder(folder, WorkFolder::inside(folder)) {}
};

TEST(Atomic, a_file_is_replaced_and_nothing_else_stays) {
  const TestFolder folder;
  const auto path = folder.write("run.json", "old");
  write_file_atomically(path, "new");
  EXPECT_EQ(read_text(path, 10), "new");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("run.json"));
}

TEST(Atomic, a_new_file_replaces_nothing) {
  const TestFolder folder;
  write_new_file(folder.path() / "new", "first");
  EXPECT_THROW(write_new_file(folder.path() / "new", "second"), UsageError);
  EXPECT_EQ(read_text(folder.path() / "new", 10), "first");
  std::filesystem::create_symlink("absent", folder.path() / "link");
  EXPECT_THROW(write_new_file(folder.path() / "link", "second"), UsageError);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("link", "new"));
}

TEST(Atomic, a_lock_that_has_another_name_is_not_written_into) {
  const TestFolder folder;
  const auto mine = folder.write("mine", "20261122\n");
  std::filesystem::create_directory(folder.path() / ".plimsoll");
  std::filesystem::create_hard_link(mine, folder.path() / ".plimsoll/lock");
  {
    const Held held(folder.path());
    EXPECT_TRUE(held.still_there());
    EXPECT_THAT(message_of<UsageError>([&] { const Held second(folder.path()); }),
                HasSubstr("process " + std::to_string(getpid())));
  }
  EXPECT_EQ(read_text(mine, 100), "20261122\n");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("mine"));
}

TEST(Atomic, a_link_stays_and_what_it_leads_to_is_replaced) {
  const TestFolder folder;
  folder.write("page", "old");
  std::filesystem::create_symlink("page", folder.path() / "link");
  write_file_atomically(folder.path() / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path() / "link"));
  EXPECT_EQ(read_text(folder.path() / "page", 10), "new");
}

TEST(Atomic, a_device_stays_one_and_a_fifo_without_a_reader_is_refused) {
  const TestFolder folder;
  write_file_atomically("/dev/null", "gone");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  ASSERT_EQ(mkfifo((folder.path() / "fifo").c_str(), 0600), 0);
  EXPECT_THROW(write_file_atomically(folder.path() / "fifo", "x"), UsageError);
  EXPECT_TRUE(std::filesystem::is_fifo(folder.path() / "fifo"));
}

TEST(Atomic, files_that_are_none_are_refused_and_nobody_waits) {
  const TestFolder folder;
  ASSERT_EQ(mkfifo((folder.path() / "fifo").c_str(), 0600), 0);
  for (const std::filesystem::path& path : {folder.path() / "fifo", std::filesystem::path("/dev/zero")})
    EXPECT_THAT(message_of<UsageError>([&] { read_text(path, 10); }), HasSubstr("is no regular file"));
  EXPECT_THAT(message_of<UsageError>([&] { read_text(folder.path(), 10); }), HasSubstr("is a folder"));
}

TEST(Atomic, a_new_file_follows_no_link_and_a_log_neither) {
  const TestFolder folder;
  folder.write("mine", "a user's");
  std::filesystem::create_symlink("mine", folder.path() / "link");
  EXPECT_THROW(File::create(folder.path() / "link"), StoppedError);
  EXPECT_THROW(File::create(folder.path() / "mine"), StoppedError);
  EXPECT_THROW(AppendFile(folder.path() / "link", 0), StoppedError);
  EXPECT_EQ(read_text(folder.path() / "mine", 10), "a user's");
}

TEST(Atomic, a_users_log_goes_on_behind_a_link_and_in_a_fifo) {
  const TestFolder folder;
  folder.write("mine", "kept|torn");
  std::filesystem::create_symlink("mine", folder.path() / "link");
  AppendFile::of_user(folder.path() / "link", 5).write("added");
  EXPECT_EQ(read_text(folder.path() / "mine", 20), "kept|added");
  ASSERT_EQ(mkfifo((folder.path() / "fifo").c_str(), 0600), 0);
  const int reader = open((folder.path() / "fifo").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  AppendFile::of_user(folder.path() / "fifo", 0).write("read");
  std::array<char, 8> read_there{};
  EXPECT_EQ(read(reader, read_there.data(), read_there.size()), 4);
  close(reader);
  AppendFile::of_user(folder.path() / "new", 0).write("x");
  EXPECT_EQ(std::filesystem::status(folder.path() / "new").permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_THROW(AppendFile::of_user(folder.path() / "absent" / "new", 0), UsageError);
}

TEST(Atomic, a_note_is_replaced_whole_and_stays_where_it_cannot_be) {
  const TestFolder folder;
  const std::filesystem::path note = folder.write("note", "old");
  EXPECT_TRUE(replace_file(folder.path() / "note.tmp", note, "new"));
  EXPECT_EQ(read_text(note, 10), "new");
  EXPECT_FALSE(replace_file(folder.path() / "absent" / "note.tmp", note, "newer"));
  std::filesystem::create_directory(folder.path() / "taken");
  EXPECT_FALSE(replace_file(folder.path() / "note.tmp", folder.path() / "taken", "newer"));
  EXPECT_EQ(read_text(note, 10), "new");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("note", "taken"));
}

TEST(Atomic, a_link_replaces_what_was_there) {
  const TestFolder folder;
  link_atomically(folder.write("from", "new"), folder.write("to", "old"), folder.path() / "tmp");
  link_atomically(folder.path() / "from", folder.path() / "to",
                  folder.path() / "tmp");  // once more changes nothing
  EXPECT_EQ(read_text(folder.path() / "to", 10), "new");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("from", "to"));
}

TEST(Atomic, a_file_that_cannot_be_written_leaves_no_trace) {
  const TestFolder folder;
  std::filesystem::create_directory(folder.path() / "run.json");  // a folder stands where the file should go
  folder.write("run.json/inside", "x");
  EXPECT_THROW(write_file_atomically(folder.path() / "run.json", "new"), UsageError);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("run.json"));
  EXPECT_THROW(write_file_atomically(folder.path() / "absent" / "run.json", "new"), UsageError);
}

TEST(Atomic, a_folder_appears_only_when_published) {
  const TestFolder folder;
  const auto target = folder.path() / "step-10";
  {
    AtomicFolder checkpoint(target, folder.path() / "unfinished");
    write_file_atomically(checkpoint.path() / "state.json", "{}");
    EXPECT_FALSE(std::filesystem::exists(target));
    checkpoint.publish(AtomicFolder::Existing::refuse);
  }
  EXPECT_THAT(names_in(target), ElementsAre("state.json"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-10"));
}

TEST(Atomic, a_folder_not_published_leaves_no_trace) {
  const TestFolder folder;
  { const AtomicFolder checkpoint(folder.path() / "step-10", folder.path() / "unfinished"); }
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

TEST(Atomic, publishing_replaces_an_older_folder_and_clears_what_a_crash_left) {
  const TestFolder folder;
  std::filesystem::create_directory(folder.path() / "best");
  folder.write("best/old", "x");
  std::filesystem::create_directory(folder.path() / "unfinished");
  folder.write("unfinished/torn", "x");
  AtomicFolder checkpoint(folder.path() / "best", folder.path() / "unfinished");
  write_file_atomically(checkpoint.path() / "new", "x");
  EXPECT_THROW(checkpoint.publish(AtomicFolder::Existing::refuse), UsageError);
  EXPECT_THAT(names_in(folder.path() / "best"), ElementsAre("old"));
  checkpoint.publish(AtomicFolder::Existing::replace);
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
TEST(WorkFolder, a_second_run_in_the_folder_is_refused_by_name) {
  const TestFolder folder;
  const auto run = folder.path() / "runs" / "a";
  {
    const Held lock(run);
    EXPECT_EQ(message_of<UsageError>([&] { const Held second(run); }),
              run.string() + ": another command (process " + std::to_string(getpid()) +
                  ") is writing there. Wait for it, stop it, or choose another folder.");
  }
  EXPECT_NO_THROW(const Held third(run));
}

TEST(WorkFolder, what_it_made_goes_with_it_unless_something_was_written) {
  const TestFolder folder;
  const auto outer = folder.path() / "runs";
  const auto run = outer / "a" / "b";
  { const Held lock(run); }
  EXPECT_FALSE(std::filesystem::exists(outer));
  std::filesystem::create_directories(run);
  { const Held lock(run); }
  EXPECT_TRUE(std::filesystem::is_empty(run));  // the folder is not its own
  std::filesystem::remove_all(outer);
  {
    const Held lock(run / "");
    write_file_atomically(run / ".plimsoll/manifest.jsonl", "");
    write_file_atomically(run / "run.json", "{}");
  }
  EXPECT_TRUE(std::filesystem::exists(run / ".plimsoll/lock"));
  EXPECT_TRUE(std::filesystem::exists(run / "run.json"));
}

// Each holder takes its file and folders away while others open them.
TEST(WorkFolder, never_has_two_holders_although_its_file_comes_and_goes) {
  const TestFolder folder;
  std::atomic<int> holders = 0, most = 0, taken = 0;
  const auto compete = [&] {
    for (int i = 0; i < 400; ++i) {
      try {
        const Held lock(folder.path() / "runs" / "a");
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
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "runs" / "a" / ".plimsoll"));
}

TEST(WorkFolder, what_is_not_ours_under_its_name_is_refused_and_stays) {
  const TestFolder folder;
  const auto mine = folder.write("mine", "a user's");
  const auto refused = [&] { return message_of<UsageError>([&] { const Held lock(folder.path()); }); };
  std::filesystem::create_symlink("mine", folder.path() / ".plimsoll");
  EXPECT_THAT(refused(), HasSubstr("was not written by plimsoll"));
  std::filesystem::remove(folder.path() / ".plimsoll");
  std::filesystem::create_directory(folder.path() / ".plimsoll");
  for (const char* name : {"lock", "notes", "tmp"}) {
    std::filesystem::create_symlink("../mine", folder.path() / ".plimsoll" / name);
    EXPECT_THAT(refused(), HasSubstr(name));
    std::filesystem::remove(folder.path() / ".plimsoll" / name);
  }
  folder.write(".plimsoll/lock", "twelve days of work");
  EXPECT_THAT(refused(), HasSubstr(".plimsoll/lock: was not written by plimsoll"));
  EXPECT_EQ(read_text(mine, 10), "a user's");
  EXPECT_EQ(read_text(folder.path() / ".plimsoll/lock", 100), "twelve days of work");
}

TEST(WorkFolder, a_folder_that_this_user_may_not_write_to_is_named) {
  if (geteuid() != 0) GTEST_SKIP() << "another user takes root";
  const TestFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  std::filesystem::create_directory(folder.path() / ".plimsoll");
  folder.write(".plimsoll/lock", "");
  constexpr uid_t kAnother = 64'001;
  if (seteuid(kAnother) != 0) GTEST_SKIP() << "this machine has no other users";
  const std::string said = message_of<UsageError>([&] { const Held lock(folder.path()); });
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_THAT(said, HasSubstr(folder.path().string() + ": this user may not write there"));
}

TEST(WorkFolder, a_holder_that_died_leaves_the_folder_free) {
  const TestFolder folder;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Held lock(folder.path());
    _exit(0);  // without unlocking
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  EXPECT_NO_THROW(const Held lock(folder.path()));
}

}  // namespace
}  // namespace plimsoll
