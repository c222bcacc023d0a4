// The store, and what becomes of an entry when an attempt has ended.
#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "fleet/queue/entry_steps.h"
#include "fleet/queue/log_reading.h"
#include "fleet/queue/outcome.h"
#include "fleet/queue/packing/planned.h"
#include "fleet/queue/store/machine_record.h"

namespace plimsoll::queue {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "queue-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

Entry command(const std::string& name) {
  Entry entry;
  entry.name = name;
  entry.words = {"echo", "a b", std::string("\xff\x80 no UTF-8")};
  entry.environment = {"A=ü"};
  entry.folder = "/";
  entry.need = {2, 30, 40, 5};
  entry.seconds = 1.5;
  entry.priority = -3;
  entry.retries = 2;
  entry.submitted = 1e9;
  return entry;
}

TEST_F(StoreTest, AQueueOfTheFirstVersionGoesOn) {
  {
    Store store(folder_);
    store.add(command("old"));
    Database database((folder_ / "queue.db").string());
    store.begin(1, {}, 1);
    database.run(
        "DROP INDEX alike; ALTER TABLE attempts DROP COLUMN fingerprint; ALTER TABLE attempts DROP COLUMN "
        "words; "
        "ALTER TABLE attempts DROP COLUMN environment; ALTER TABLE attempts DROP COLUMN done; "
        "ALTER TABLE attempts DROP COLUMN card_peak_bytes; ALTER TABLE attempts DROP COLUMN card; "
        "ALTER TABLE entries DROP COLUMN card; ALTER TABLE entries DROP COLUMN held_by; "
        "ALTER TABLE entries DROP COLUMN group_name; ALTER TABLE entries DROP COLUMN processes; "
        "ALTER TABLE attempts DROP COLUMN processes; ALTER TABLE entries DROP COLUMN shared_bytes; "
        "ALTER TABLE attempts DROP COLUMN shared_bytes; "
        "ALTER TABLE entries DROP COLUMN fingerprint; ALTER TABLE entries DROP COLUMN variants; "
        "ALTER TABLE entries DROP COLUMN smaller; ALTER TABLE attempts DROP COLUMN job; "
        "UPDATE entries SET state = state - 1 WHERE state > 2; "
        "ALTER TABLE entries DROP COLUMN output; PRAGMA user_version = 1");
  }
  Store store(folder_);
  Entry entry = command("new");
  entry.output = "/runs/new";
  entry.group = "sweep";
  store.add(entry);
  ASSERT_EQ(store.entries().size(), 2u);
  EXPECT_EQ(store.entries()[0].state, State::running);
  EXPECT_EQ(store.entries()[0].output, "");
  EXPECT_EQ(store.entries()[0].words, entry.words);
  EXPECT_EQ(store.entries()[1].output, "/runs/new");
  ASSERT_EQ(store.entries_of("sweep").size(), 1u);
  EXPECT_EQ(store.entries_of("sweep")[0].id, 2);
  EXPECT_THROW((void)store.entries_of(""), UsageError) << "most entries are of no group";
  EXPECT_EQ(store.attempts(1).size(), 1u);
  EXPECT_TRUE(store.begin(2, {}, 2));
  EXPECT_EQ(store.attempts(2)[0].words, entry.words);
  EXPECT_EQ(store.attempts(1)[0].card_peak_bytes, 0);
}

// The note is for people: what holds an entry is in a column, and in the notes of version 5 alone.
TEST_F(StoreTest, WhatHoldsAnEntryOfAnEarlierVersionIsReadFromItsNote) {
  const auto held = [](const std::string& note) {
    Entry entry = command("held");
    entry.state = State::held;
    entry.note = note;
    return entry;
  };
  {
    Store store(folder_);
    store.add({held("held: 12, which it comes after, is failed; it goes on with plimsoll queue retry 12"),
               held("paused; it goes on with plimsoll queue resume 2")});
    Database((folder_ / "queue.db").string())
        .run(
            "ALTER TABLE entries DROP COLUMN card; ALTER TABLE attempts DROP COLUMN card; "
            "ALTER TABLE entries DROP COLUMN held_by; ALTER TABLE entries DROP COLUMN group_name; "
            "ALTER TABLE entries DROP COLUMN processes; ALTER TABLE attempts DROP COLUMN processes; "
            "ALTER TABLE entries DROP COLUMN shared_bytes; ALTER TABLE attempts DROP COLUMN shared_bytes; "
            "PRAGMA user_version = 5");
  }
  Store store(folder_);
  EXPECT_EQ(store.entry(1).held_by, 12);
  EXPECT_EQ(store.entry(2).held_by, 0);
  EXPECT_TRUE(is_held_by_another(store.entry(1)));
  store.change(1, [](Entry& entry) {
    entry.note = "in other words";
    return true;
  });
  EXPECT_EQ(store.entry(1).held_by, 12);
  store.change(1, [](Entry& entry) {
    entry.state = State::waiting;
    return true;
  });
  EXPECT_EQ(store.entry(1).held_by, 0) << "it waits for nobody any more";
}

TEST_F(StoreTest, PlansForCardsAreKept) {
  Store store(folder_);
  Entry entry = command("trains");
  entry.need = {1, 300, 20, 1, "T4 16GB"};
  entry.smaller = {{20, 9.5, 1, 200, "T4 16GB"}, {30, 5, 1, 400, "A100 80GB"}};
  store.add(entry);
  EXPECT_EQ(store.entry(1).need, entry.need);
  EXPECT_EQ(store.entry(1).smaller, entry.smaller);
  store.begin(1, {"GPU-a"}, 1, [](Entry& found) { found.need.card = "A100 80GB"; });
  EXPECT_EQ(store.attempts(1)[0].need.card, "A100 80GB");
  // As the version before wrote them.
  Database((folder_ / "queue.db").string()).run("UPDATE entries SET smaller = '[[20, 9.5, 1]]'");
  EXPECT_EQ(store.entry(1).smaller, (std::vector<SmallerPlan>{{20, 9.5, 1}}));
}

TEST_F(StoreTest, SeveralDevicesAreKept) {
  {
    Store store(folder_);
    Entry entry = command("one");
    store.add(entry);
    store.begin(1, {}, 1);
    Database((folder_ / "queue.db").string())
        .run(
            "ALTER TABLE entries DROP COLUMN processes; ALTER TABLE attempts DROP COLUMN processes; "
            "ALTER TABLE entries DROP COLUMN shared_bytes; ALTER TABLE attempts DROP COLUMN shared_bytes; "
            "PRAGMA user_version = 6");
  }
  Store store(folder_);
  EXPECT_EQ(store.entry(1).need.processes, 1) << "of the version before";
  EXPECT_EQ(store.attempts(1)[0].need.processes, 1);
  Entry entry = command("three");
  entry.recipe = true;
  entry.need = {3, 300, 20, 3, "T4 16GB", 3, 7};
  entry.smaller = {{20, 9.5, 2, 400, "T4 16GB", 2}};
  store.add(entry);
  EXPECT_EQ(store.entry(2).need, entry.need);
  EXPECT_EQ(store.entry(2).smaller, entry.smaller);
  EXPECT_EQ(with_plan(entry.need, entry.smaller[0]), (Need{2, 400, 20, 2, "T4 16GB", 2, 7}));
  store.begin(2, {"GPU-a", "GPU-b"}, 1,
              [](Entry& found) { found.need = with_plan(found.need, found.smaller[0]); });
  EXPECT_EQ(store.attempts(2)[0].need, (Need{2, 400, 20, 2, "T4 16GB", 2, 7}));
  for (const char* processes : {"0", "'x'", "3"}) {  // two cards
    Database((folder_ / "queue.db").string())
        .run(formatted("UPDATE entries SET processes = {} WHERE id = 2", processes));
    EXPECT_THAT(store.entry(2).damage, HasSubstr("processes")) << processes;
  }
}

TEST_F(StoreTest, ARunThatContinuesMayTakeAnotherNumberOfDevicesAndNoOtherPlan) {
  Machine machine{1000, 8, {}};
  Entry entry;
  entry.need = {0, 0, 60, 3, "", 3};
  entry.smaller = {{50, 9, 3, 0, "", 3}, {40, 12, 2, 0, "", 2}};
  EXPECT_EQ(open_plans(machine, entry), entry.smaller);
  entry.attempts = 1;
  EXPECT_EQ(open_plans(machine, entry), (std::vector<SmallerPlan>{entry.smaller[1]}));
  machine.threads = 2;
  EXPECT_EQ(open_plans(machine, entry), entry.smaller) << "its own does not fit any more";
  entry.smaller = {{50, 9, 3}};
  machine.threads = 8;
  EXPECT_THAT(open_plans(machine, entry), ::testing::IsEmpty());
}

TEST_F(StoreTest, WhatAnAttemptHadOnACardIsKeptAtItsHighest) {
  Store store(folder_);
  store.add(command("one"));
  ASSERT_TRUE(store.begin(1, {"GPU-a"}, 1));
  for (const int64_t bytes : {30, 50, 40}) store.saw_on_cards(1, 1, bytes);
  store.saw_on_cards(1, 2, 99);
  store.finish(1, 1, [](Entry& entry, Attempt& attempt) {
    entry.state = State::done;
    attempt.ended = 2;
  });
  EXPECT_EQ(store.attempts(1)[0].card_peak_bytes, 50);
}

TEST_F(StoreTest, AnAttemptIsHandedOverFollowedAndTakenBack) {
  Store store(folder_);
  const int64_t id = store.add(command("far"));
  ASSERT_TRUE(store.begin(id, {}, 1, {}, kJobToCome));
  EXPECT_EQ(store.entry(id).state, State::submitted);
  EXPECT_EQ(store.attempts(id)[0].job, kJobToCome);
  store.follow(id, 1, [](Entry& entry, Attempt& attempt) {
    entry.state = State::running;
    attempt.job = "12_3";
    attempt.started = 7;
  });
  EXPECT_EQ(store.entry(id).state, State::running);
  EXPECT_EQ(store.attempts(id)[0].job, "12_3");
  EXPECT_EQ(store.attempts(id)[0].started, 7);
  EXPECT_FALSE(store.attempts(id)[0].ended) << "it goes on";
  EXPECT_EQ(store.take_back(id, 1, State::waiting, "again").state, State::waiting);
  EXPECT_TRUE(store.attempts(id).empty());
  EXPECT_EQ(store.entry(id).attempts, 0);
  EXPECT_EQ(store.take_back(id, 1, State::held, "twice").state, State::waiting) << "it is not begun";
  ASSERT_TRUE(store.begin(id, {}, 2, {}, kJobToCome));
  store.change(id, [](Entry& entry) { return entry.stop_requested = true; });
  EXPECT_EQ(store.take_back(id, 1, State::waiting, "").state, State::canceled)
      << "that was asked for meanwhile";
}

TEST_F(StoreTest, ALaunchIsReadBackAsItWasWritten) {
  Launch job;
  job.folder = folder_;
  std::filesystem::create_directories(folder_);
  job.words = {"sh", "-c", "a=b\nc", "", "\xff\x01"};
  job.environment = {"A=1=2"};
  job.working_folder = "/a b";
  job.mark = "M=1";
  job.host_limit = int64_t{5} << 40;
  job.grace_seconds = 2.5;
  job.mask = 027;
  write_launch(job);
  const Launch read = read_launch(folder_);
  EXPECT_EQ(read.words, job.words);
  EXPECT_EQ(read.environment, job.environment);
  EXPECT_EQ(read.working_folder, job.working_folder);
  EXPECT_EQ(read.mark, job.mark);
  EXPECT_EQ(read.host_limit, job.host_limit);
  EXPECT_EQ(read.grace_seconds, job.grace_seconds);
  EXPECT_EQ(read.mask, 027U);
  EXPECT_THROW(read_launch(folder_ / "nowhere"), DamagedError);
}

TEST_F(StoreTest, KeepsEntriesAsTheyWereAdded) {
  int64_t first = 0;
  {
    Store store(folder_);
    first = store.add(command("first"));
    Entry second = command("second");
    second.after = {first};
    EXPECT_GT(store.add(second), first);
    second.after = {99};
    EXPECT_THROW(store.add(second), UsageError);
  }
  Store store(folder_);
  const std::vector<Entry> entries = store.entries();
  ASSERT_EQ(entries.size(), 2u) << "what was refused left nothing behind";
  EXPECT_EQ(entries[0].words, command("").words);
  EXPECT_THAT(entries[0].environment, ElementsAre("A=ü"));
  EXPECT_EQ(entries[0].need, (Need{2, 30, 40, 5}));
  EXPECT_EQ(entries[0].priority, -3);
  EXPECT_FALSE(entries[0].promised);
  EXPECT_THAT(entries[1].after, ElementsAre(first));
}

TEST_F(StoreTest, AnEntryBeginsOnceAndOnlyWhileItWaits) {
  Store store(folder_), other(folder_);
  const int64_t id = store.add(command("one"));
  EXPECT_TRUE(store.begin(id, {"gpu0", "gpu1"}, 10));
  EXPECT_FALSE(other.begin(id, {}, 11));
  EXPECT_EQ(other.entry(id).state, State::running);
  ASSERT_EQ(other.attempts(id).size(), 1u);
  EXPECT_THAT(other.attempts(id)[0].cards, ElementsAre("gpu0", "gpu1"));
  const int64_t before = store.version();
  other.change(id, [](Entry& entry) { return entry.stop_requested = true; });
  EXPECT_NE(store.version(), before) << "others' changes are seen";
  store.finish(id, 1, [](Entry& entry, Attempt& attempt) {
    EXPECT_TRUE(entry.stop_requested) << "read afresh";
    entry.state = State::done;
    attempt.ended = 12;
    attempt.peak_bytes = 7;
  });
  EXPECT_EQ(store.open_entries().size(), 0u);
  EXPECT_EQ(store.attempts(id)[0].peak_bytes, 7);
}

TEST_F(StoreTest, WhatACommandTookIsKnownByItsFingerprint) {
  Store store(folder_);
  const auto run = [&](const std::string& fingerprint, bool done, int64_t peak, double seconds) {
    Entry entry = command("one");
    entry.fingerprint = fingerprint;
    const int64_t id = store.add(entry);
    const double start = 100 * static_cast<double>(id);
    EXPECT_TRUE(store.begin(id, {}, start));
    store.finish(id, 1, [&](Entry& found, Attempt& attempt) {
      found.state = done ? State::done : State::failed;
      attempt.done = done;
      attempt.ended = start + seconds;
      attempt.peak_bytes = peak;
    });
  };
  EXPECT_EQ(store.learned("a").runs, 0);
  run("a", true, 70, 9);
  run("a", true, 50, 7);
  run("a", false, 90, 1);
  run("b", true, 500, 5);
  const Learned learned = store.learned("a");
  EXPECT_EQ(learned.runs, 2);
  EXPECT_EQ(learned.peak_bytes, 70);
  EXPECT_EQ(learned.least_bytes, 90);
  EXPECT_EQ(learned.seconds, 7);
}

TEST_F(StoreTest, VariantsAreKeptInTheirOrder) {
  Store store(folder_);
  Entry entry = command("one");
  entry.variants = {{"a=1 \xff", {{"x", "\xff"}, {"A=ü"}}, "f\n1"}, {"--b", {{"y"}, {}}, "f2"}};
  const Entry found = store.entry(store.add(entry));
  ASSERT_EQ(found.variants.size(), 2u);
  EXPECT_EQ(found.variants[0].text, entry.variants[0].text);
  EXPECT_EQ(found.variants[0].command.words, entry.variants[0].command.words);
  EXPECT_EQ(found.variants[0].command.environment, entry.variants[0].command.environment);
  EXPECT_EQ(found.variants[0].fingerprint, "f\n1");
  EXPECT_EQ(found.variants[1].text, "--b");
}

TEST_F(StoreTest, AChangeThatThrowsChangesNothing) {
  Store store(folder_);
  const int64_t id = store.add(command("one"));
  EXPECT_THROW(store.change(id,
                            [](Entry& entry) -> bool {
                              entry.priority = 7;
                              throw UsageError("no");
                            }),
               UsageError);
  EXPECT_EQ(store.entry(id).priority, -3);
  EXPECT_TRUE(store.begin(id, {}, 1)) << "and holds nothing";
}

TEST_F(StoreTest, IsItsOwnersAlone) {
  Store store(folder_);
  struct stat found {};
  ASSERT_EQ(stat((folder_ / "queue.db").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  chmod(folder_.c_str(), 0750);
  EXPECT_THROW(Store{folder_}, UsageError);
}

TEST_F(StoreTest, ANewerOrForeignDatabaseIsRefused) {
  { Database((folder_ / "queue.db").string()).run("PRAGMA user_version = 77"); }
  EXPECT_THROW(Store{folder_}, UsageError);
  fs::remove_all(folder_ / "queue.db");
  std::ofstream(folder_ / "queue.db") << std::string(5000, 'x');
  EXPECT_THROW(Store{folder_}, DamagedError);
}

TEST_F(StoreTest, ADamagedRowIsHeldAndCanOnlyBeCanceled) {
  Store store(folder_);
  const int64_t id = store.add(command("a"));
  Database((folder_ / "queue.db").string()).run("UPDATE entries SET devices = -1, note = 'before'");
  Entry entry = store.open_entries().at(0);
  EXPECT_EQ(entry.state, State::held);
  EXPECT_THAT(entry.note, HasSubstr("damaged (devices); plimsoll queue cancel 1"));
  EXPECT_EQ(entry.words, command("a").words) << "what can be read is";
  EXPECT_FALSE(store.begin(id, {}, 1));
  entry.state = State::waiting;
  EXPECT_THROW(store.update(entry), UsageError);
  entry.state = State::canceled;
  store.update(entry);
  EXPECT_EQ(store.entry(id).state, State::canceled);
  EXPECT_FALSE(store.find(7).has_value());
  EXPECT_FALSE(store.attempt(id, 1).has_value());
  Entry much = command("b");
  much.need.host_bytes = INT64_MAX;
  EXPECT_THROW(store.add(much), UsageError);
}

TEST_F(StoreTest, WhatCanBeReadOfADatabaseOfAnotherFormIsKept) {
  {
    Store store(folder_);
    store.add({command("a"), command("b")});
    store.begin(2, {"gpu0"}, 5);
    Database((folder_ / "queue.db").string())
        .run("ALTER TABLE entries DROP COLUMN note; CREATE TABLE other(x); DROP TABLE settings");
  }
  EXPECT_THROW(Store{folder_}, DamagedError);
  const Rescued rescued = rescue(folder_);
  EXPECT_EQ(rescued.entries, 2);
  EXPECT_EQ(rescued.attempts, 1);
  EXPECT_TRUE(fs::exists(rescued.damaged));
  Store store(folder_);
  EXPECT_EQ(store.entry(1).words, command("a").words);
  EXPECT_EQ(store.entry(2).state, State::running);
  EXPECT_EQ(store.attempt(2, 1)->cards, std::vector<std::string>{"gpu0"});
}

TEST_F(StoreTest, AnAttemptWithoutRoomForItsRecordHasNotBegun) {
  Launch launch;
  launch.folder = folder_;
  launch.words = {"true"};
  launch.working_folder = "/";
  launch.mark = "A=b";
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit little{100, before.rlim_max};  // the lock has room
  setrlimit(RLIMIT_FSIZE, &little);
  EXPECT_THROW((void)supervise(launch), StoppedError);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  EXPECT_EQ(look_at(folder_).life, Life::never_started);
  EXPECT_TRUE(fs::is_empty(folder_)) << "something is left for every try";
  const std::optional<Exit> exit = supervise(launch);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 0) << exit->problem;
}

TEST_F(StoreTest, ALogIsReadInAnotherProcessWithinItsLimits) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own memory counts";
#endif
  const auto read = [&](const ReadingLimits& limits, const fs::path& log) {
    LogReadings readings(limits);
    for (;; usleep(1000))
      if (const auto verdict = readings.of(log)) return *verdict;
  };
  EXPECT_FALSE(read({}, folder_ / "none").out_of_memory);
  std::ofstream(folder_ / "log") << "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n";
  const LogVerdict verdict = read({}, folder_ / "log");
  EXPECT_TRUE(verdict.out_of_memory);
  EXPECT_FALSE(verdict.headline.empty());
  EXPECT_EQ(verdict.unread, "");
  {
    // More than what tests before this one may have left free in this process's heap.
    std::ofstream log(folder_ / "log", std::ios::app);
    for (int i = 0; i < 200'000; ++i) log << "step " << i << " loss 1.25 " << std::string(60, 'x') << "\n";
  }
  EXPECT_THAT(read({.bytes = 1 << 20}, folder_ / "log").unread, HasSubstr("more than 1.00 MiB"));
  ASSERT_EQ(mkfifo((folder_ / "endless").c_str(), 0600), 0);  // no process ever writes to it
  EXPECT_THAT(read({.seconds = 1}, folder_ / "endless").unread, HasSubstr("longer than 1 s"));
  fs::resize_file(folder_ / "log", 100 << 20);
  EXPECT_THAT(read({}, folder_ / "log").unread,
              HasSubstr("of its log of 100 MiB the first and the last 32.0 MiB"));
  EXPECT_THAT(unread_verdict(SIGXCPU, {.cpu_seconds = 3}).unread,
              HasSubstr("more than 3 s of processor time"));
  EXPECT_THAT(unread_verdict(SIGKILL, {}).unread, HasSubstr("was ended"));
  {
    LogReadings left;  // ends what it began
    EXPECT_FALSE(left.of(folder_ / "endless"));
  }
}

TEST_F(StoreTest, ADamagedRecordIsAFailureAndEndsNoWorker) {
  for (const char* text :
       {"", "{", "[1]", "null", R"({"code": "x"})", R"({"problem": 1})", R"({"seconds": null})",
        R"({"code": 0.5})", R"({"signal": 4294967305})", R"({"peak_bytes": 1.5})"}) {
    std::ofstream(folder_ / "exit.json") << text;
    const std::optional<Exit> exit = read_exit(folder_);
    ASSERT_TRUE(exit.has_value()) << text;
    EXPECT_EQ(exit->problem, "its record is damaged") << text;
  }
  std::filesystem::remove(folder_ / "exit.json");
  for (const char* name : {"exit.json", "worker.json"}) std::filesystem::create_directory(folder_ / name);
  EXPECT_EQ(read_exit(folder_).value_or(Exit{}).problem, "its record is damaged");
  EXPECT_FALSE(recorded_machine(folder_));
}

// ---- What becomes of an entry.

struct Case {
  Entry entry = [] {
    Entry one;
    one.state = State::running;
    one.need = {0, 0, 100, 1};
    one.retries = 1;
    one.attempts = 1;
    return one;
  }();
  Exit exit;
  LogVerdict verdict;
  Attempt attempt;
  Machine machine{1000, 4, {{"gpu0", 100, 0}}};

  State settled() {
    AttemptState state{Life::ended, 0, exit};
    settle(entry, attempt, state, verdict, machine);
    return entry.state;
  }
};

TEST(Outcome, ExitCodeZeroIsDone) {
  Case one;
  one.exit.code = 0;
  one.exit.peak_bytes = 50;
  EXPECT_EQ(one.settled(), State::done);
  EXPECT_EQ(one.attempt.peak_bytes, 50);
}

TEST(Outcome, AFailureThatWouldComeAgainIsNotRepeated) {
  Case one;
  one.exit.code = 1;
  EXPECT_EQ(one.settled(), State::failed);
  EXPECT_EQ(one.entry.note, "exit code 1");
  Case full;
  full.exit.code = 1;
  full.verdict.failure = "the disk is full";
  EXPECT_EQ(full.settled(), State::failed);
  EXPECT_EQ(full.entry.note, "exit code 1: the disk is full");
  for (const int code : {2, 3, 4, 1}) {
    Case recipe;
    recipe.entry.recipe = true;
    recipe.exit.code = code;
    EXPECT_EQ(recipe.settled(), State::failed) << code;
  }
  Case crash;
  crash.exit.signal = SIGSEGV;
  EXPECT_EQ(crash.settled(), State::failed);
  EXPECT_EQ(crash.entry.note, "ended by SIGSEGV");
}

TEST(Outcome, MoreThanReservedIsTriedWithMoreWhileRetriesAreLeft) {
  Case one;
  one.exit.signal = SIGKILL;
  one.exit.over_limit = true;
  one.exit.peak_bytes = 200;
  EXPECT_EQ(one.settled(), State::waiting);
  EXPECT_EQ(one.entry.need.host_bytes, 250);
  EXPECT_EQ(one.entry.retries, 0);
  one.entry.state = State::running;
  EXPECT_EQ(one.settled(), State::failed);
}

TEST(Outcome, ARunOnDevicesGetsMoreOfWhatItRanOutOf) {
  Case device;
  device.entry.need = {1, 40, 100, 1};
  device.exit.code = 1;
  device.verdict = {true, false, "out of memory on GPU 0"};
  EXPECT_EQ(device.settled(), State::waiting);
  EXPECT_EQ(device.entry.need, (Need{1, 60, 100, 1}));
  Case others = Case();
  others.entry.need = {1, 40, 100, 1};
  others.exit.code = 1;
  others.verdict = {true, true, "out of memory on GPU 0"};
  others.settled();
  EXPECT_EQ(others.entry.need.device_bytes, 40) << "others held what was missing";
  Case host;
  host.entry.need = {1, 40, 100, 1};
  host.exit.signal = SIGKILL;
  host.exit.over_limit = true;
  host.exit.peak_bytes = 101;
  host.settled();
  EXPECT_EQ(host.entry.need, (Need{1, 40, 150, 1}));
}

TEST(Outcome, TheKernelsKillsAreTriedAgainAsTheyWere) {
  Case one;
  one.exit.signal = SIGKILL;
  one.exit.kernel_killed = true;
  one.exit.peak_bytes = 60;
  EXPECT_EQ(one.settled(), State::waiting);
  EXPECT_EQ(one.entry.need.host_bytes, 100);
  EXPECT_THAT(one.entry.note, HasSubstr("the kernel ended it"));
}

TEST(Outcome, RecipesGoOnAfterTheyHadToStop) {
  for (const int code : {5, 130}) {
    Case one;
    one.entry.recipe = true;
    one.exit.code = code;
    EXPECT_EQ(one.settled(), State::waiting) << code;
  }
}

TEST(Outcome, WhatWasAskedToEndIsCanceledOrHeldUnlessItWasDone) {
  Case one;
  one.entry.stop_requested = true;
  one.exit.signal = SIGTERM;
  one.exit.canceled = true;
  EXPECT_EQ(one.settled(), State::canceled);
  Case held;
  held.entry.recipe = held.entry.stop_requested = held.entry.hold_requested = true;
  held.exit.code = 130;
  held.exit.canceled = true;
  EXPECT_EQ(held.settled(), State::held);
  EXPECT_FALSE(held.entry.stop_requested || held.entry.hold_requested);
  Case done;
  done.entry.stop_requested = true;
  done.exit.code = 0;
  EXPECT_EQ(done.settled(), State::done);
  EXPECT_FALSE(done.entry.stop_requested) << "a retry would end at once";
}

TEST(Outcome, WhatIsAskedForAfterTheEndOfAnAttemptIsDoneInThePlaceOfAnotherOne) {
  const auto settled = [](bool hold, const std::function<void(Case&)>& end) {
    Case one;
    one.entry.stop_requested = true;
    one.entry.hold_requested = hold;
    end(one);
    return one.settled();
  };
  const auto out_of_memory = [](Case& one) {
    one.exit.code = 1;
    one.verdict = {true, false, "out of memory"};
  };
  const auto killed = [](Case& one) { one.exit.signal = SIGKILL; };
  const auto no_room = [](Case& one) {
    one.entry.recipe = true;
    one.exit.code = 3;
    one.verdict.does_not_fit_now = "1 GiB are free on the card";
  };
  for (const std::function<void(Case&)>& end :
       {std::function<void(Case&)>(out_of_memory), {killed}, {no_room}}) {
    EXPECT_EQ(settled(false, end), State::canceled);
    EXPECT_EQ(settled(true, end), State::held);
  }
}

TEST(Outcome, OfSeveralProcessesOneThatWasKilledIsWorthAnotherTry) {
  for (const bool recipe : {true, false}) {
    Case one;
    one.entry.recipe = recipe;
    one.exit.code = 137;  // of srun
    EXPECT_EQ(one.settled(), recipe ? State::waiting : State::failed)
        << "a command means something by its code";
  }
}

TEST(Outcome, ALostSupervisorTakesNoRetryButDoesNotGoOnForEver) {
  Case one;
  one.entry.retries = 0;
  const AttemptState lost{Life::supervisor_lost, 0, std::nullopt};
  settle(one.entry, one.attempt, lost, {}, one.machine);
  EXPECT_EQ(one.entry.state, State::waiting);
  one.entry.attempts = kMostAttempts;
  settle(one.entry, one.attempt, lost, {}, one.machine);
  EXPECT_EQ(one.entry.state, State::failed);
}

TEST(Settle, ATrainingWhoseRoomOthersHadTakenWaitsAndNeverFails) {
  Case one;
  one.entry.recipe = true;
  one.entry.retries = 0;
  one.entry.attempts = kMostAttempts;
  Exit exit;
  exit.code = 3;
  const AttemptState ended{Life::ended, 0, exit};
  LogVerdict verdict;
  verdict.does_not_fit_now = "the arena needs 3 GiB, 1 GiB are free on the card";
  settle(one.entry, one.attempt, ended, verdict, one.machine);
  EXPECT_EQ(one.entry.state, State::waiting);
  EXPECT_THAT(one.entry.note, HasSubstr("others had taken its room: the arena needs 3 GiB"));
  settle(one.entry, one.attempt, ended, {}, one.machine);
  EXPECT_EQ(one.entry.state, State::failed) << "it fits nowhere";
}

TEST(Settle, ACommandThatIsRefusedForWhatIsFreeGoesDownItsLadder) {
  Case one;
  one.entry.need = {1, 40, 100, 1};
  one.exit.code = 3;
  one.verdict.does_not_fit_now = "the arena needs 3 GiB, 1 GiB are free on the card";
  one.entry.variants = {{"BS=2", {{"true"}, {"BS=2"}}, "f"}};
  EXPECT_EQ(one.settled(), State::waiting);
  EXPECT_EQ(one.entry.need.device_bytes, 60);
  one.entry.retries = 0;
  EXPECT_EQ(one.settled(), State::waiting);
  EXPECT_EQ(one.entry.environment, std::vector<std::string>{"BS=2"});
  EXPECT_THAT(one.attempt.outcome, HasSubstr("1 GiB are free on the card; next attempt: --on-oom BS=2"));
}

TEST(Settle, TheLogSaysWhetherOthersHadTakenItsRoom) {
  const fs::path log = fs::temp_directory_path() / "plimsoll-refused.log";
  const auto said = [&](const std::string& text) {
    std::ofstream(log) << text;
    return diagnose_log(log).does_not_fit_now;
  };
  EXPECT_EQ(said("plan\nerror: does not fit   the arena needs 3 GiB, 1 GiB are free on the card; short by 2 "
                 "GiB\n  memory: auto\n"),
            "the arena needs 3 GiB, 1 GiB are free on the card; short by 2 GiB");
  EXPECT_EQ(said("does not fit   device needs 3 GiB, 2 GiB may be used (T4, of which 1 GiB are free for an "
                 "arena now)\n  short by 1 GiB\n"),
            "device needs 3 GiB, 2 GiB may be used (T4, of which 1 GiB are free for an arena now)");
  EXPECT_EQ(said("error: does not fit   device needs 3 GiB, 1 GiB may be used (memory.device: 1 GiB)\n"), "");
  fs::remove(log);
}

TEST(Planned, APlanIsReadAndOneThatDoesNotFitSaysWhatWould) {
  const std::string plan =
      R"({"feasible": true, "process": {"planned_share_bytes": 77}, "variant": {"threads": 2},
          "device": {"kind": "cpu"}, "run": {"seconds": 9.5}, "predicted": {"seconds_per_step": 0.5},
          "smallest": {"memory_bytes": 40}})";
  const Planned planned = read_plan(plan, {"r.yaml"});
  EXPECT_EQ(planned.need, (Need{0, 0, 77, 2}));
  EXPECT_EQ(planned.seconds, 9.5);
  EXPECT_EQ(planned.seconds_per_step, 0.5);
  EXPECT_EQ(planned.smallest_bytes, 40);
  EXPECT_THROW(
      read_plan(R"({"feasible": false, "process": {}, "smallest": {"memory_bytes": 5}})", {"r.yaml"}),
      DoesNotFitError);
  EXPECT_THROW(read_plan("no plan", {"r.yaml"}), InternalError);
}

TEST(Planned, OfACardItsArenaAndAllThatTheProcessHasBesideItIsReserved) {
  const Planned planned = read_plan(
      R"({"feasible": true, "process": {"planned_share_bytes": 99}, "variant": {"threads": 1},
          "device": {"kind": "card", "gpu": "T4 16GB", "arena_bytes": 1000, "outside_bytes": 38,
                     "outside": [{"name": "driver", "bytes": 4, "uncertain_bytes": 3},
                                 {"name": "context", "bytes": 20, "uncertain_bytes": 1},
                                 {"name": "graphs of 9 nodes", "bytes": 10, "uncertain_bytes": 0}]},
          "run": null, "predicted": {"seconds_per_step": 0.5}, "smallest": {"memory_bytes": 700}})",
      {"r.yaml"});
  EXPECT_EQ(planned.need, (Need{1, 1031, 99, 1})) << "what the driver keeps no process has";
  EXPECT_EQ(planned.seconds, 0);
  EXPECT_EQ(planned.smallest_bytes, 700);
}

constexpr int64_t kLauncher = 8 << 20;  // and mpirun, of several processes

TEST(Planned, OfSeveralDevicesTheHostIsOneSumAndEachHasACard) {
  const std::string begin =
      R"({"feasible": true, "process": {"planned_share_bytes": 50}, "variant": {"threads": 2}, "run": {"seconds": 8},
          "predicted": {"seconds_per_step": 0.5}, "smallest": {"memory_bytes": 40}, "devices": {"count": 3, "shared_bytes": 15},)";
  const Planned on_host = read_plan(begin + R"("device": {"kind": "cpu"}})", {"r.yaml"});
  EXPECT_EQ(on_host.need, (Need{0, 0, kLauncher + 150, 6, "", 3, 15}));
  EXPECT_EQ(on_host.smallest_bytes, 120);
  const Planned on_cards = read_plan(
      begin +
          R"("device": {"kind": "card", "gpu": "T4 16GB", "arena_bytes": 1000, "outside_bytes": 9, "outside": []}})",
      {"r.yaml"});
  EXPECT_EQ(on_cards.need, (Need{3, 1009, kLauncher + 150, 6, "", 3, 15}));
  EXPECT_EQ(on_cards.smallest_bytes, 40) << "on each";
  const std::string sweep =
      R"({"points": [{"memory_bytes": 100, "host_bytes": 30, "seconds_per_step": 1.5}]})";
  EXPECT_EQ(read_sweep(sweep, on_host), (std::vector<SmallerPlan>{{kLauncher + 100, 24, 0, 0, "", 3}}));
  EXPECT_EQ(read_sweep(sweep, on_cards), (std::vector<SmallerPlan>{{kLauncher + 90, 24, 6, 100, "", 3}}));
}

TEST(Planned, ATrainingOnSeveralDevicesIsBoundToTheirNumberAndToItsThreadsOfEach) {
  std::vector<std::string> words = {"train", "r.yaml", "--set", "devices=4"};
  bind_to_plan(words, {0, 0, kLauncher + 90, 6, "", 3});
  EXPECT_THAT(words,
              ElementsAre("train", "r.yaml", "--set", "devices=3", "--memory", "90", "--threads", "2"));
  bind_to_plan(words, {0, 0, kLauncher + 90, 6, "", 3}, 2);
  EXPECT_THAT(words, ElementsAre("train", "r.yaml", "--set", "devices=3", "--memory", "60", "--threads", "2"))
      << "of a machine with two of them";
  bind_to_plan(words, {0, 0, kLauncher + 9 * kMiB, 6, "", 3, 3 * kMiB}, 2);
  EXPECT_EQ(words[5], std::to_string(7 * kMiB + 128 * kKiB)) << "what both hold once, whole";
  bind_to_plan(words, {0, 0, 50, 2, "", 1});
  EXPECT_THAT(words,
              ElementsAre("train", "r.yaml", "--set", "devices=1", "--memory", "50", "--threads", "2"));
  words = {"train", "r.yaml"};
  bind_to_plan(words, {3, 70, kLauncher + 90, 3, "T4 16GB", 3});
  EXPECT_THAT(words, ElementsAre("train", "r.yaml", "--set", "memory.device=70", "--set", "memory.host=90",
                                 "--set", "devices=3", "--threads", "1"));
}

TEST(Planned, PlansAreKeptThatNoOtherBeats) {
  const Need own{0, 0, 100, 4};
  const std::vector<SmallerPlan> kept = worth_keeping(
      {{50, 30}, {90, 20}, {100, 25, 2}, {100, 40, 1}, {50, 45, 1}, {60, 50, 1}, {100, 10}, {40, 46, 2}},
      own);
  EXPECT_EQ(kept, (std::vector<SmallerPlan>{
                      {90, 20}, {100, 25, 2}, {50, 30}, {100, 40, 1}, {50, 45, 1}, {40, 46, 2}}));
}

TEST(Planned, SmallerPlansAreThoseThatAreWorthIt) {
  Planned planned;
  planned.need = {0, 0, 100, 1};
  planned.seconds = 50;
  planned.seconds_per_step = 0.5;
  const std::string sweep = R"({"points": [{"memory_bytes": 40, "seconds_per_step": 1.5},
      {"memory_bytes": 79, "seconds_per_step": 0.75}, {"memory_bytes": 80, "seconds_per_step": 0.7},
      {"memory_bytes": 96, "seconds_per_step": 0.6}, {"memory_bytes": 100, "seconds_per_step": 0.5}]})";
  const std::vector<SmallerPlan> plans = read_sweep(sweep, planned);
  ASSERT_EQ(plans.size(), 2u);
  EXPECT_EQ(plans[0].host_bytes, 80);
  EXPECT_NEAR(plans[0].seconds, 70, 1e-9);
  EXPECT_EQ(plans[1].host_bytes, 40);
  EXPECT_NEAR(plans[1].seconds, 150, 1e-9);
  EXPECT_THROW(read_sweep("{}", planned), InternalError);
  planned.need = {1, 100, 7, 1, "T4 16GB"};
  const std::vector<SmallerPlan> there = read_sweep(
      R"({"points": [{"memory_bytes": 40, "host_bytes": 30, "seconds_per_step": 1.5},
                     {"memory_bytes": 100, "host_bytes": 7, "seconds_per_step": 0.5}]})",
      planned);
  EXPECT_EQ(there, (std::vector<SmallerPlan>{{30, 150, 1, 40, "T4 16GB"}}));
}

TEST(Planned, ATrainingIsBoundToItsPlanInThePlaceOfAnother) {
  std::vector<std::string> words = {"train", "r.yaml"};
  bind_to_plan(words, {0, 0, 77, 2});
  EXPECT_THAT(words, ElementsAre("train", "r.yaml", "--memory", "77", "--threads", "2"));
  bind_to_plan(words, {0, 0, 50, 2});
  EXPECT_THAT(words, ElementsAre("train", "r.yaml", "--memory", "50", "--threads", "2"));
  // A value of --set behind --memory counts.
  words = {"train", "r.yaml", "--set", "memory.device=8GiB"};
  bind_to_plan(words, {1, 70, 50, 1, "T4 16GB"});
  EXPECT_THAT(words, ElementsAre("train", "r.yaml", "--set", "memory.device=70", "--set", "memory.host=50",
                                 "--threads", "1"));
  bind_to_plan(words, {1, 60, 55, 1, "T4 16GB"});
  EXPECT_THAT(words, ElementsAre("train", "r.yaml", "--set", "memory.device=60", "--set", "memory.host=55",
                                 "--threads", "1"));
}

}  // namespace
}  // namespace plimsoll::queue
