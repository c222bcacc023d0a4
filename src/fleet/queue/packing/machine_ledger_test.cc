#include "fleet/queue/packing/machine_ledger.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "fleet/queue/processes/process_tree.h"

namespace plimsoll::queue {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class LedgerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ledger-XXXXXX").string();
    root_ = mkdtemp(name.data());
    folder_ = root_ / "machine";
  }
  void TearDown() override { fs::remove_all(root_); }
  fs::path root_, folder_;
};

TEST_F(LedgerTest, what_a_queue_promises_is_taken_off_in_others_and_not_in_itself) {
  const MachineLedger one(folder_, "/q/one"), two(folder_, "/q/two"), three(folder_, "/q/three");
  one.promise({{getpid(), 1000, 30, {"GPU-a", "GPU-b"}}, {getpid(), 500, 0, {}}});
  two.promise({{getpid(), 7, 5, {"GPU-b"}}});
  EXPECT_EQ(one.promised_by_others().host_bytes, 7);
  EXPECT_EQ(two.promised_by_others().host_bytes, 1500);
  const PromisedByOthers all = three.promised_by_others();
  EXPECT_EQ(all.host_bytes, 1507);
  const auto promised = [](int64_t bytes) { return Field(&PromisedOnCard::bytes, bytes); };
  EXPECT_THAT(all.cards, ElementsAre(Pair("GPU-a", ElementsAre(promised(30))),
                                     Pair("GPU-b", UnorderedElementsAre(promised(30), promised(5)))));
  EXPECT_EQ(*all.cards.at("GPU-a")[0].processes, descendants(getpid()));
  one.promise({});
  EXPECT_EQ(three.promised_by_others().host_bytes, 7);
}

TEST_F(LedgerTest, a_promise_ends_with_its_run_and_what_the_run_has_taken_is_no_longer_promised) {
  const MachineLedger one(folder_, "/q/one"), two(folder_, "/q/two");
  // A supervisor with one process that takes some memory.
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t supervisor = fork();
  if (supervisor == 0) {
    if (fork() == 0) {
      constexpr size_t kTaken = 64 << 20;
      volatile char* taken = new char[kTaken];
      for (size_t i = 0; i < kTaken; i += 4096) taken[i] = 1;
      if (write(ready[1], "x", 1) != 1) _exit(1);
      pause();
    }
    pause();
    _exit(0);
  }
  char told = 0;
  ASSERT_EQ(read(ready[0], &told, 1), 1);
  one.promise({{supervisor, 1 << 30, 0, {}}});
  const int64_t left = two.promised_by_others().host_bytes;
  const std::vector<pid_t> children = descendants(supervisor);
  // Measured, for a sanitizer's own memory counts as well.
  const int64_t used = memory_of(children).now;
  EXPECT_GE(used, 64 << 20);
  EXPECT_NEAR(static_cast<double>(left), static_cast<double>((1 << 30) - used), 8 << 20);
  for (const pid_t child : children) kill(child, SIGKILL);
  kill(supervisor, SIGKILL);
  waitpid(supervisor, nullptr, 0);
  EXPECT_EQ(two.promised_by_others().host_bytes, 0);
}

TEST_F(LedgerTest, one_at_a_time_has_the_lock) {
  const MachineLedger one(folder_, "/q/one"), two(folder_, "/q/two");
  {
    const auto held = one.lock();
    ASSERT_TRUE(held);
    EXPECT_FALSE(two.lock());
  }
  EXPECT_TRUE(two.lock());
}

TEST_F(LedgerTest, files_that_are_no_promises_promise_nothing) {
  const MachineLedger one(folder_, "/q/one");
  const std::string own = std::to_string(geteuid());
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  };
  write(own + "-a.json", "{");
  write(own + "-b.json", R"([{"supervisor": 1}, 7, {"supervisor": "x", "born": 1}])");
  write(own + "-c.json",
        R"([{"supervisor": -1, "born": 0, "host_bytes": 5, "device_bytes": 0, "devices": []}])");
  write(own + "-d.json", std::string(2 << 20, ' '));
  write("99999-e.json",
        R"([{"supervisor": 1, "born": 1, "host_bytes": 5, "device_bytes": 0, "devices": []}])");
  write("x.json", "[1]");
  write(own + "-h.json", "[1e999]");  // which the library throws at even with exceptions turned off
  fs::create_symlink("/etc/passwd", folder_ / (own + "-f.json"));
  ASSERT_EQ(mkfifo((folder_ / (own + "-g.json")).c_str(), 0600), 0);
  EXPECT_EQ(one.promised_by_others().host_bytes, 0);
}

TEST_F(LedgerTest, a_promise_counts_for_processes_of_its_files_owner_alone) {
  if (geteuid() != 0) GTEST_SKIP() << "files of another user are made by root alone";
  const MachineLedger one(folder_, "/q/one");
  const std::string run = R"({"supervisor": )" + std::to_string(getpid()) + R"(, "born": )" +
                          std::to_string(read_process(getpid())->born) +
                          R"(, "host_bytes": 1000, "device_bytes": 0, "devices": []})";
  std::ofstream(folder_ / "1001-a.json") << "[" << run << "]";
  ASSERT_EQ(chown((folder_ / "1001-a.json").c_str(), 1001, 1001), 0);
  EXPECT_EQ(one.promised_by_others().host_bytes, 0);
  // At most a thousand runs of a file count.
  std::ofstream many(folder_ / "0-b.json");
  for (int i = 0; i < 3000; ++i) many << (i == 0 ? "[" : ",") << run;
  many << "]" << std::flush;
  const PromisedByOthers promised = one.promised_by_others();
  EXPECT_EQ(promised.host_bytes, 1000 * 1000);
  EXPECT_THAT(promised.host_bytes_of, ElementsAre(Pair(0U, 1000 * 1000)));
}

// Links and files that others put under names that a queue might take are left alone.
TEST_F(LedgerTest, a_name_that_another_user_took_keeps_no_promise_back) {
  const MachineLedger one(folder_, "/q/one"), two(folder_, "/q/two");
  one.promise({});
  std::string own;
  for (const auto& file : fs::directory_iterator(folder_))
    if (file.path().extension() == ".json") own = file.path().filename().string();
  const std::string victim = (root_ / "victim").string();
  std::ofstream(victim) << "kept";
  fs::create_hard_link(victim, folder_ / (own + "." + std::to_string(getpid())));
  one.promise({{getpid(), 1000, 0, {}}});
  EXPECT_EQ(two.promised_by_others().host_bytes, 1000);
  EXPECT_EQ(fs::file_size(victim), 4U);
}

TEST_F(LedgerTest, who_holds_the_lock_is_named_and_so_is_a_folder_of_another_user) {
  const MachineLedger one(folder_, "/q/one");
  EXPECT_EQ(one.warning(), "");
  const auto held = one.lock();
  EXPECT_THAT(one.lock_words(), HasSubstr("/lock is held by " + user_words(geteuid()) + " (process " +
                                          std::to_string(getpid()) + ")"));
  EXPECT_FALSE(one.lock(0));
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(folder_.c_str(), 1001, 1001), 0);
  EXPECT_THAT(MachineLedger(folder_, "/q/two").warning(), HasSubstr("belongs to " + user_words(1001)));
}

TEST_F(LedgerTest, a_folder_in_which_others_could_put_promises_away_is_refused) {
  fs::create_directory(folder_);
  chmod(folder_.c_str(), 0777);
  EXPECT_THROW(MachineLedger(folder_, "/q"), UsageError);
  chmod(folder_.c_str(), 01777);
  EXPECT_NO_THROW(MachineLedger(folder_, "/q"));
  std::ofstream(root_ / "file") << "x";
  EXPECT_THROW(MachineLedger(root_ / "file", "/q"), UsageError);
}

}  // namespace
}  // namespace plimsoll::queue
