// The driver's reports, by a library of cards that do not exist (tests/fake_nvml.cc).
#include <fcntl.h>
#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "fleet/devices/nvml.h"
#include "fleet/devices/watch.h"

namespace plimsoll::devices {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char* kA = "GPU-aaaaaaaa-0000-0000-0000-000000000000";
constexpr const char* kB = "GPU-bbbbbbbb-0000-0000-0000-000000000000";

class DevicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "devices-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    setenv("FAKE_NVML", (folder_ / "cards").c_str(), 1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Whole or not at all, as it is read at the same time.
  void tell(const std::string& text) const {
    std::ofstream(folder_ / "new") << text;
    fs::rename(folder_ / "new", folder_ / "cards");
  }
  static GpuReport ask(double seconds = 5) { return Nvml(PLIMSOLL_FAKE_NVML).ask(seconds); }
  // The next answer of a watch.
  static GpuReport next(GpuWatch& watch) {
    for (const int64_t before = watch.answers(); watch.answers() == before;) {
      watch.look();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return watch.look();
  }
  static constexpr WatchTimes kSoon{0.01, 0.01, 0.01, 0.3, 20};
  fs::path folder_;
};

TEST_F(DevicesTest, CardsAreToldWithTheirMemoryAndWhoHasIt) {
  tell(std::string("driver 550.9\ncard ") + kA + " 1000 300\nname Big\nprocess 12 200\nprocess 13 -\ncard " +
       kB + " 2000 0\nmig\nno-processes\n");
  const GpuReport report = ask();
  EXPECT_TRUE(report.installed);
  EXPECT_EQ(report.problem, "");
  EXPECT_EQ(report.driver, "550.9");
  ASSERT_THAT(report.gpus, SizeIs(2));
  const Gpu& a = report.gpus[0];
  EXPECT_EQ(a.uuid, kA);
  EXPECT_EQ(a.name, "Big");
  EXPECT_EQ(a.total, 1000);
  EXPECT_EQ(a.used, 300);
  EXPECT_EQ(a.compute, "8.9");
  EXPECT_EQ(a.busy_percent, 37);
  ASSERT_THAT(a.processes, SizeIs(2));
  EXPECT_EQ(a.processes[0].bytes, 200);
  EXPECT_FALSE(a.processes[1].bytes) << "it is not told, and is not 0";
  EXPECT_TRUE(report.gpus[1].mig);
  EXPECT_FALSE(report.gpus[1].processes_known);
  EXPECT_EQ(report_json(read_report(report_json(report).dump())).dump(), report_json(report).dump());
}

TEST_F(DevicesTest, WhatTheDriverKeepsForItselfIsNobodysToHave) {
  tell(std::string("card ") + kA + " 1000 300\nreserved 40\n");
  EXPECT_EQ(ask().gpus[0].total, 960);
  EXPECT_EQ(ask().gpus[0].used, 300);
  tell(std::string("card ") + kA + " 1000 300\nreserved 2000\n");
  EXPECT_EQ(ask().gpus[0].total, 0);
}

TEST_F(DevicesTest, MoreProcessesThanExpectedAreAllListed) {
  std::string text = std::string("card ") + kA + " 1000 300\n";
  for (int i = 1; i <= 1000; ++i) text += "process " + std::to_string(i) + " 1\n";
  tell(text);
  EXPECT_THAT(ask().gpus[0].processes, SizeIs(1000));
}

TEST_F(DevicesTest, EveryFailureIsSaidInItsWords) {
  EXPECT_THAT(Nvml("libno-such-library.so.1").ask(1).problem, HasSubstr("there is no NVIDIA driver"));
  EXPECT_FALSE(Nvml("libno-such-library.so.1").ask(1).installed);
  EXPECT_THAT(Nvml("libm.so.6").ask(1).problem, HasSubstr("lacks functions"));
  for (const auto& [code, words] : std::map<int, const char*>{{9, "kernel module is not loaded"},
                                                              {18, "restart the machine"},
                                                              {4, "may not be asked by this user"},
                                                              {999, "does not answer: Unknown Error"}}) {
    tell("init " + std::to_string(code) + "\n");
    EXPECT_THAT(ask().problem, HasSubstr(words));
    EXPECT_THAT(ask().gpus, IsEmpty());
    EXPECT_TRUE(ask().installed);
  }
  for (const auto& [code, words] : std::map<int, const char*>{
           {15, "is lost"}, {16, "until it is reset"}, {10, "gave up"}, {999, "Unknown Error"}}) {
    tell(std::string("card ") + kA + " 10 1\nerror " + std::to_string(code) + "\ncard " + kB + " 10 1\n");
    const GpuReport report = ask();
    EXPECT_THAT(report.gpus[0].problem, HasSubstr(words));
    EXPECT_FALSE(report.gpus[0].busy_percent || report.gpus[0].processes_known);
    EXPECT_EQ(report.gpus[1].problem, "") << "one card's failure is not the other's";
    EXPECT_TRUE(report_json(report)["gpus"][0]["used_bytes"].is_null());
  }
}

TEST_F(DevicesTest, ForeignTextAndWildNumbersAreHeldWithinBounds) {
  tell(std::string("card ") + kA + " 18446744073709551615 18446744073709551614\nname \\x1b[2J\\xff\\x0aX\n");
  const GpuReport report = ask();
  EXPECT_EQ(report.gpus[0].name, "\x1b[2J\xff\nX");
  EXPECT_LE(report.gpus[0].total, int64_t{1} << 50);
  const std::string line = report_json(report).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  EXPECT_EQ(line.find('\n'), std::string::npos) << "an answer is a line";
  EXPECT_EQ(read_report(line).gpus[0].uuid, kA);
  for (const char* damaged : {"", "{", "[]", "null", R"({"installed":1})", R"({"installed":true,"problem":"",
       "driver":"","gpus":[{"index":"x"}]})"})
    EXPECT_THAT(read_report(damaged).problem, HasSubstr("damaged"));
}

TEST_F(DevicesTest, ACardThatHangsIsSaidNotToAnswerAndHoldsUpNobody) {
  tell(std::string("card ") + kA + " 10 1\nhang 600\ncard " + kB + " 10 1\n");
  Nvml nvml(PLIMSOLL_FAKE_NVML);
  const GpuReport report = nvml.ask(1);
  EXPECT_EQ(report.gpus[0].problem, "does not answer");
  EXPECT_EQ(report.gpus[0].uuid, kA) << "what it has told is kept";
  EXPECT_EQ(report.gpus[1].problem, "");
  tell(std::string("card ") + kA + " 10 1\ncard " + kB + " 10 5\n");
  const auto begin = std::chrono::steady_clock::now();
  const GpuReport again = nvml.ask(60);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(50))
      << "it is not waited for again";
  EXPECT_EQ(again.gpus[0].problem, kSilent);
  EXPECT_EQ(again.gpus[1].used, 5);
  nvml.shut_down();
}

TEST_F(DevicesTest, AWatchKeepsTheNamesOfCardsThatStopAnsweringAndSeesThemComeBack) {
  const std::string well = std::string("card ") + kA + " 10 1\ncard " + kB + " 20 2\n";
  const std::string hangs = std::string("card ") + kA + " 10 1\ncard " + kB + " 20 2\nhang 1\n";
  tell(well);
  GpuWatch watch(PLIMSOLL_FAKE_NVML, kSoon);
  EXPECT_THAT(watch.first().gpus, SizeIs(2));
  const auto until = [&](auto&& true_of) {
    for (int i = 0; i < 2000; ++i)
      if (true_of(next(watch))) return;
    FAIL() << report_json(watch.look()).dump();
  };
  until([](const GpuReport& report) { return report.gpus[1].used == 2; });
  tell(hangs);
  until([](const GpuReport& report) { return report.gpus[1].problem == "does not answer"; });
  EXPECT_EQ(watch.look().gpus[1].uuid, kB);
  EXPECT_EQ(watch.look().gpus[1].total, 20);
  tell(well);
  until([](const GpuReport& report) { return report.gpus[1].problem.empty(); });
  tell(std::string("card ") + kA + " 10 1\n");
  until([](const GpuReport& report) { return report.gpus.back().problem == "is gone"; });
  EXPECT_EQ(watch.look().gpus.back().uuid, kB);
  tell("init 18\n");  // of a process that asks already nothing changes
  tell(well + "error 15\n");
  until([](const GpuReport& report) { return report.gpus[1].problem.find("is lost") == 0; });
  tell("init 18\n");
  until([](const GpuReport& report) { return !report.problem.empty(); });
  ASSERT_THAT(watch.look().gpus, SizeIs(2)) << "a driver that fails is not one without cards";
  EXPECT_THAT(watch.look().gpus[0].problem, HasSubstr("restart the machine"));
  tell(well);
  until([](const GpuReport& report) { return report.problem.empty() && report.gpus[0].problem.empty(); });
}

TEST_F(DevicesTest, ADriverThatHangsAtItsStartIsNotWaitedForAndHoldsNothingOfItsParent) {
  tell("sleep 600\n");
  const int lock = open((folder_ / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  WatchTimes times = kSoon;
  times.start = 0.3;
  GpuWatch watch(PLIMSOLL_FAKE_NVML, times);
  watch.look();
  close(lock);
  const int again = open((folder_ / "lock").c_str(), O_RDWR | O_CLOEXEC);
  for (int i = 0; i < 10'000 && flock(again, LOCK_EX | LOCK_NB) != 0; ++i) usleep(1000);
  EXPECT_EQ(flock(again, LOCK_EX | LOCK_NB), 0) << "the process that asks has no share in it";
  close(again);
  EXPECT_EQ(watch.answers(), 0);
  EXPECT_THAT(watch.first().problem, HasSubstr("does not answer"));
}

TEST_F(DevicesTest, WithoutADriverThereIsOneAnswerAndNobodyIsAskedAgainSoon) {
  GpuWatch watch("libno-such-library.so.1", {0.01, 0.01, 60, 1, 20});
  EXPECT_FALSE(watch.first().installed);
  for (int i = 0; i < 20; ++i) {
    watch.look();
    usleep(2000);
  }
  EXPECT_EQ(watch.answers(), 1);
}

TEST(WatchTimesTest, AreAsTheEnvironmentSays) {
  setenv("PLIMSOLL_NVML_SECONDS", "0.5", 1);
  EXPECT_EQ(watch_times().card, 0.5);
  EXPECT_EQ(watch_times().start, 2.5);
  EXPECT_EQ(watch_times().between, 2);
  setenv("PLIMSOLL_NVML_SECONDS", "3,0.1", 1);
  EXPECT_EQ(watch_times().card, 3);
  EXPECT_EQ(watch_times().between, 0.1);
  for (const char* bad : {"0", "-1", "x", "1x", "nan", "inf", "1,", ",1", "1,2,3", "1,0"}) {
    setenv("PLIMSOLL_NVML_SECONDS", bad, 1);
    EXPECT_THROW((void)watch_times(), UsageError) << bad;
  }
  unsetenv("PLIMSOLL_NVML_SECONDS");
}

std::vector<Gpu> two_cards(const char* second_name) {
  std::vector<Gpu> gpus(2);
  gpus[0] = {0, kA, "Big", 10, 0, {}, false, {}, {}, false, {}};
  gpus[1] = {1, kB, second_name, 10, 0, {}, false, {}, {}, false, {}};
  return gpus;
}

TEST(VisibleGpusTest, AreReadAsCudaReadsThem) {
  const auto visible = [](const char* list) { return visible_gpus(two_cards("Big"), list, false).uuids; };
  EXPECT_THAT(visible(""), IsEmpty());
  EXPECT_THAT(visible("1,0"), ElementsAre(kB, kA));
  EXPECT_THAT(visible(" GPU-b , GPU-aaaaaaaa"), ElementsAre(kB, kA));
  EXPECT_THAT(visible(kB), ElementsAre(kB));
  EXPECT_THAT(visible("0,-1,1"), ElementsAre(kA));
  EXPECT_THAT(visible("1,7,0"), ElementsAre(kB)) << "what comes behind a name of no card is not seen";
  EXPECT_THAT(visible("GPU-"), IsEmpty()) << "more than one begins so";
  EXPECT_THAT(visible("0,GPU-a"), IsEmpty()) << "twice the same";
  EXPECT_THAT(visible_gpus(two_cards("Big"), "0,NoDevFiles", false).note, HasSubstr("'NoDevFiles'"));
}

TEST(VisibleGpusTest, NumbersOfCardsThatDifferNeedTheOrderOfTheBus) {
  EXPECT_THROW((void)visible_gpus(two_cards("Small"), "1", false), UsageError);
  EXPECT_THAT(visible_gpus(two_cards("Small"), "1", true).uuids, ElementsAre(kB));
  EXPECT_THAT(visible_gpus(two_cards("Small"), "GPU-b", false).uuids, ElementsAre(kB));
  EXPECT_EQ(find_gpu(two_cards("Small"), "1", false), nullptr);
}

TEST(ShortNameTest, IsOfUuidsAlone) {
  EXPECT_EQ(short_name(kA), "GPU-aaaaaaaa");
  EXPECT_EQ(short_name("GPU-a"), "GPU-a");
  EXPECT_EQ(short_name("cpu:0"), "cpu:0");
}

}  // namespace
}  // namespace plimsoll::devices
