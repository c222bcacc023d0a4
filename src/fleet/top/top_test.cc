// Frames: taken of a queue, written and read again, and as tables.
#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/screen.h"
#include "base/strings.h"
#include "fleet/queue/store/machine_record.h"
#include "fleet/top/gather.h"
#include "fleet/top/metrics.h"
#include "fleet/top/progress.h"

namespace plimsoll::top {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class TopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "top-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  fs::path folder_;
};

TEST_F(TopTest, ProgressIsWhatTheEndsOfTheFilesSay) {
  EXPECT_FALSE(read_progress(folder_)) << "nothing has begun";
  write(
      "events.jsonl",
      R"({"time":1,"step":0,"event":"start","total_steps":50,"planned_process_bytes":7,"planned_seconds_per_step":2.5})"
      "\n{\"half a li");
  ASSERT_TRUE(read_progress(folder_));
  EXPECT_EQ(read_progress(folder_)->steps, 50);
  EXPECT_EQ(read_progress(folder_)->step, 0);
  EXPECT_EQ(read_progress(folder_)->planned_bytes, 7);
  EXPECT_FALSE(read_progress(folder_)->step_seconds);
  std::string lines;
  for (int step = 1; step <= 1000; ++step)  // more than is read
    lines += "{\"step\": " + std::to_string(step) + ", \"loss\": " + std::to_string(step) +
             ", \"lr\": 1, \"seconds\": " + (step == 995 ? "99" : "0.5") + ", \"filler\": \"" +
             std::string(100, 'x') + "\"}\n";
  write("metrics.jsonl", lines + "{\"step\": 1001, \"lo");
  const Progress progress = *read_progress(folder_);
  EXPECT_EQ(progress.step, 1000);
  EXPECT_EQ(progress.loss, 1000);
  EXPECT_EQ(progress.step_seconds, 0.5) << "the median: one slow step is none";
}

TEST_F(TopTest, ProgressOfSeveralRanksIsThatOfOneRun) {
  write("events.jsonl", R"({"time":1,"step":0,"event":"start","total_steps":50,"ranks":3})"
                        "\n");
  std::string lines;
  for (int step = 1; step <= 3; ++step)
    lines += formatted(
        "{{\"step\": {}, \"loss\": 1, \"seconds\": 2, \"sending_seconds\": {}, \"slowest_rank\": 2, \"slower\": "
        "0.18}}\n",
        step, step == 2 ? "9" : "0.5");
  write("metrics.jsonl", lines);
  const Progress progress = *read_progress(folder_);
  EXPECT_EQ(progress.ranks, 3);
  EXPECT_EQ(progress.waiting_share, 0.25) << "the median";
  EXPECT_EQ(progress.slowest, 2);
  EXPECT_EQ(progress.slower, 0.18);
}

TEST_F(TopTest, AFifoInTheFilesPlaceIsNoProgressAndIsNotWaitedFor) {
  ASSERT_EQ(mkfifo((folder_ / "events.jsonl").c_str(), 0600), 0);
  EXPECT_FALSE(read_progress(folder_));
  write("metrics.jsonl", "{\"step\": 3}\n");
  EXPECT_EQ(read_progress(folder_)->step, 3);
}

TEST_F(TopTest, WhatRunsIsATable) {
  const std::map<pid_t, queue::Process> processes = queue::all_processes();
  const queue::Process& own = processes.at(getpid());
  EXPECT_EQ(own.parent, getppid());
  EXPECT_EQ(own.name, "fleet_test");
  EXPECT_GT(own.resident_bytes, 1 << 20);
  EXPECT_THAT(queue::descendants(getppid()), ::testing::Contains(getpid()));
  EXPECT_THAT(queue::descendants(getpid()), ::testing::IsEmpty());
}

Frame example() {
  Frame frame;
  frame.time = 1.7e9;
  frame.worker = true;
  frame.memory = int64_t{16} << 30;
  frame.available = int64_t{9} << 30;
  frame.swap.total = int64_t{8} << 30;
  frame.swap.used = int64_t{3} << 30;
  frame.load = 1.25;
  frame.pressure = {{"cpu", 12.5}, {"memory", 0}};
  frame.devices = {{"cpu:0", int64_t{8} << 30, int64_t{5} << 30, int64_t{4} << 30, 2, 4, 3},
                   {"GPU-a", 100, 50, std::nullopt, 1}};
  RunStatus run;
  run.id = 7;
  run.name = "a\x1b[2Jb";
  run.state = "running";
  run.devices = {"cpu:0"};
  run.reserved = int64_t{3} << 30;
  run.used = int64_t{2} << 30;
  run.cores = 0.75;
  run.started = 5;
  run.progress = Progress{30, 90, 2.0, 1.0, int64_t{3} << 30, std::nullopt};
  frame.runs = {run, RunStatus{}};
  frame.foreign = {{12, "other", int64_t{1} << 30, std::nullopt}};
  return frame;
}

TEST(Frame, SaysWhichRunsGrowAndForHowLongTheirReservationWillDo) {
  Frame frame = example();
  EXPECT_EQ(growth_text(frame.runs[0]), "");
  frame.runs[0].growth = 1024.0 * 1024;
  EXPECT_EQ(growth_text(frame.runs[0]), "grows by 60.0 MiB a minute: beyond its reservation in 17:04");
  EXPECT_THAT(frame_text(frame), HasSubstr("grows by 60.0 MiB a minute"));
  nlohmann::json text = nlohmann::json::parse(frame_json(frame).dump());
  EXPECT_EQ(read_frame(text.dump(), "x").runs[0].growth, 1024.0 * 1024);
  text["runs"][0].erase("growth_bytes_per_second");
  EXPECT_FALSE(read_frame(text.dump(), "x").runs[0].growth) << "of an earlier version";
  frame.runs[0].used = frame.runs[0].reserved;
  EXPECT_THAT(growth_text(frame.runs[0]), HasSubstr("a minute: beyond its reservation"));
}

TEST(Frame, ShowsTheRanksOfARunAsOne) {
  Frame frame = example();
  RunStatus& run = frame.runs[0];
  EXPECT_EQ(ranks_text(run), "") << "it has one";
  run.processes.largest = int64_t{410} << 20;
  run.progress->ranks = 3;
  EXPECT_EQ(ranks_text(run), "3 ranks: largest 410 MiB");
  run.progress->waiting_share = 0.043;
  run.progress->slowest = 2;
  run.progress->slower = 0.08;
  EXPECT_EQ(ranks_text(run), "3 ranks: largest 410 MiB, waiting 4 %") << "not worth saying";
  run.progress->slower = 0.18;
  run.note = "its plan for 3 processes, 1.2 GiB";
  EXPECT_THAT(frame_text(frame),
              HasSubstr("3 ranks: largest 410 MiB, waiting 4 %, slowest rank 2 (+18 %); its plan"));
  const std::string metrics = metrics_text(frame);
  for (const char* name : {"run_ranks", "run_waiting_share", "run_largest_process_bytes"})
    EXPECT_THAT(metrics, HasSubstr(formatted("plimsoll_{}{{id=\"7\"", name)));
  nlohmann::json text = nlohmann::json::parse(frame_json(frame).dump());
  const Frame again = read_frame(text.dump(), "x");
  EXPECT_EQ(ranks_text(again.runs[0]), ranks_text(run));
  for (const char* key : {"ranks", "waiting_share", "slowest_rank", "slower"})
    text["runs"][0]["progress"].erase(key);
  text["runs"][0].erase("largest_process_bytes");
  EXPECT_EQ(ranks_text(read_frame(text.dump(), "x").runs[0]), "") << "of an earlier version";
  run.state = "done";
  EXPECT_EQ(ranks_text(run), "");
}

TEST(Frame, IsMetricsWithOneHeadingEachAndNamesThatEndNothing) {
  Frame frame = example();
  frame.runs[0].name = "a\"\\\nb";
  const std::string text = metrics_text(frame);
  EXPECT_THAT(text, HasSubstr("# TYPE plimsoll_device_used_bytes "
                              "gauge\nplimsoll_device_used_bytes{device=\"cpu:0\"} 4294967296\n"));
  EXPECT_THAT(text, Not(HasSubstr("plimsoll_device_used_bytes{device=\"GPU-a\"}"))) << "is not known";
  EXPECT_THAT(text, HasSubstr("plimsoll_host_pressure_percent{resource=\"cpu\"} 12.5\n"));
  EXPECT_THAT(text, HasSubstr("plimsoll_runs{state=\"running\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("plimsoll_run_step{id=\"7\",name=\"a\\\""));
  EXPECT_THAT(text, Not(HasSubstr("run_loss")));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    EXPECT_THAT(line, ::testing::MatchesRegex("#.*|plimsoll_[a-z_]+([{].*[}])? [0-9.e+-]+"));
}

TEST(Frame, IsTheSameWhenItIsReadAgain) {
  const std::string text = frame_json(example()).dump();
  const Frame again = read_frame(text, "x:1");
  EXPECT_EQ(frame_json(again).dump(), text);
  EXPECT_EQ(again.runs[0].progress->steps, 90);
  EXPECT_FALSE(again.devices[1].used);
  EXPECT_FALSE(again.runs[1].progress);
}

TEST(Frame, NumbersThatAreNotWholeOrBeyondAllBoundsAreRefused) {
  const nlohmann::json good = nlohmann::json::parse(frame_json(example()).dump());
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, nlohmann::json>>{
           {"/memory_bytes", 1e75},
           {"/memory_bytes", 0.5},
           {"/available_bytes", true},
           {"/time", 1e300},
           {"/load", "1"},
           {"/runs/0/id", 18446744073709551615U},
           {"/runs/0/threads", 4294967296},
           {"/runs/0/progress/step", 1e10},
           {"/devices/0/capacity_bytes", 9223372036854775807},
           {"/pressure/cpu", 1e300}}) {
    nlohmann::json odd = good;
    odd[nlohmann::json::json_pointer(key)] = value;
    EXPECT_THROW(read_frame(odd.dump(), "x:1"), DamagedError) << key << " " << value;
  }
  EXPECT_NO_THROW(read_frame(good.dump(), "x:1"));
  EXPECT_THROW(read_frame(R"({"time": 1e999})", "x:1"), DamagedError);
}

TEST(Frame, WhatIsNoFrameIsRefusedByItsPlace) {
  for (const char* text : {"", "[]", "{}", "{\"time\": \"x\"}", "nonsense"}) {
    try {
      read_frame(text, "night.jsonl:3");
      FAIL() << text;
    } catch (const DamagedError& error) {
      EXPECT_THAT(error.what(), HasSubstr("night.jsonl:3"));
    }
  }
}

TEST(Frame, AsATableNamesWhatIsKnownAndDashesTheRest) {
  const std::string text = frame_text(example());
  EXPECT_THAT(text, HasSubstr("cpu:0   8.00 GiB  5.00 GiB  4.00 GiB       -  3.00 GiB      3/4     2"));
  EXPECT_THAT(text, HasSubstr("30/90  2.00 s  2:00"));
  EXPECT_THAT(text, HasSubstr("swap 3.00 GiB of 8.00 GiB in use"));
  EXPECT_THAT(text, HasSubstr("others 5.00 GiB")) << "16 less 9 available and 2 of runs";
  EXPECT_THAT(text, HasSubstr("cpu 12.5 %"));
  EXPECT_THAT(text, Not(HasSubstr("io")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_EQ(seconds_left(example().runs[0]), 120);
  EXPECT_FALSE(seconds_left(example().runs[1]));
}

// One card that answers, one that does not report whose its memory is, one that is silent.
Frame with_cards() {
  Frame frame = example();
  DeviceStatus card{"GPU-aaaaaaaa-1111-2222-3333-444444444444", 900, 300, 200, 1};
  card.model = "Big\x1b[2J";
  card.memory = 1000;
  card.memory_used = 450;
  card.others = 250;
  card.busy_percent = 37;
  card.processes = {{12, "a\x1b[2J", 250}, {13, "", std::nullopt}};
  frame.devices.push_back(card);
  card.used = card.others = std::nullopt;
  card.name = "GPU-bbbbbbbb-1111-2222-3333-444444444444";
  frame.devices.push_back(card);
  card.name = "GPU-c";
  card.problem = "is lost";
  card.memory_used = std::nullopt;
  card.processes.clear();
  frame.devices.push_back(card);
  frame.runs[0].used_on_card = 200;
  return frame;
}

TEST(Frame, SaysOfARunThatItHasMoreOfACardThanItReserved) {
  Frame frame = with_cards();
  frame.runs[0].device_count = 1;
  frame.runs[0].growth.reset();
  frame.runs[0].device_bytes = 150;
  EXPECT_THAT(frame_text(frame), HasSubstr("took 200 B on a card, more than it reserved"));
  frame.runs[0].device_bytes = 200;
  EXPECT_THAT(frame_text(frame), Not(HasSubstr("more than it reserved")));
}

TEST(Frame, SaysOfCardsWhatIsKnownAndWhatIsUnknown) {
  const std::string text = frame_text(with_cards());
  EXPECT_THAT(text, HasSubstr("GPU-aaaaaaaa     900 B     300 B     200 B    250 B     350 B"));
  EXPECT_THAT(text, HasSubstr("Big\\u001b[2J, 1000 B, 37 % busy"));
  EXPECT_THAT(text, HasSubstr("GPU-bbbbbbbb     900 B     300 B   unknown  unknown     450 B"));
  EXPECT_THAT(text, HasSubstr("is lost; nothing new starts there"));
  EXPECT_THAT(text, HasSubstr("200 B + 2.00 GiB")) << "of the run, on its card and on the host";
  EXPECT_THAT(text, HasSubstr("12  a\\u001b[2J  GPU-aaaaaaaa       250 B"));
  EXPECT_THAT(text, HasSubstr("13  ?           GPU-aaaaaaaa     unknown"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_EQ(free_bytes(with_cards().devices[2]), 350) << "900 less 300 reserved and 250 of others";
  EXPECT_EQ(free_bytes(with_cards().devices[3]), 450) << "what is in use, where that is more than reserved";
  EXPECT_FALSE(free_bytes(with_cards().devices[4])) << "it does not answer";
}

TEST(Frame, WithCardsIsTheSameWhenItIsReadAgainAndInMetrics) {
  const std::string text = frame_json(with_cards()).dump();
  EXPECT_EQ(frame_json(read_frame(text, "x:1")).dump(), text);
  nlohmann::json older = nlohmann::json::parse(text);
  for (nlohmann::json& one : older["devices"]) one.erase("model");
  older["runs"][0].erase("used_device_bytes");
  EXPECT_EQ(read_frame(older.dump(), "x").devices[2].memory, std::nullopt) << "of an earlier version";
  const std::string metrics = metrics_text(with_cards());
  const std::string a = "{device=\"GPU-aaaaaaaa-1111-2222-3333-444444444444\"} ";
  EXPECT_THAT(metrics, HasSubstr("plimsoll_device_others_bytes" + a + "250\n"));
  EXPECT_THAT(metrics, HasSubstr("plimsoll_device_memory_used_bytes" + a + "450\n"));
  EXPECT_THAT(metrics, HasSubstr("plimsoll_device_answers" + a + "1\n"));
  EXPECT_THAT(metrics, HasSubstr("plimsoll_device_answers{device=\"GPU-c\"} 0\n"));
  EXPECT_THAT(metrics, Not(HasSubstr("plimsoll_device_memory_used_bytes{device=\"GPU-c\"}")));
  EXPECT_THAT(metrics, HasSubstr("plimsoll_run_device_used_bytes{id=\"7\""));
}

TEST(Frame, ANarrowScreenKeepsStepTimeAndNoteInALineForEachRun) {
  Frame frame = example();
  frame.runs[0].name = "a-name-that-is-longer-than-a-narrow-screen-has-room-for";
  frame.runs[0].note = "waits until 7 has ended, which is in about four minutes";
  frame.runs[0].growth.reset();
  std::vector<const top::RunStatus*> runs;
  for (const top::RunStatus& run : frame.runs) runs.push_back(&run);
  for (const size_t columns : {60, 80, 120}) {
    const std::vector<std::string> lines = split(runs_text(runs, columns), '\n');
    EXPECT_EQ(lines.size(), frame.runs.size() + 2) << "the titles, a line each, and the end";
    for (const std::string& line : lines) EXPECT_LE(columns_of(line), columns) << line;
    EXPECT_THAT(lines[0], HasSubstr("s/step"));
    EXPECT_THAT(lines[0], HasSubstr("left"));
    EXPECT_THAT(lines[0], HasSubstr("note"));
    for (const std::string& line : split(frame_heading(frame, columns), '\n'))
      EXPECT_LE(columns_of(line), columns) << line;
  }
}

TEST(Frame, NoLineOfCardsAndOthersIsWiderThanTheScreen) {
  Frame frame = with_cards();
  frame.foreign.push_back(
      {4194304, "a-process-whose-name-is-as-long-as-a-narrow-screen-is-wide-and-longer", 1 << 30, 63.5});
  for (top::DeviceStatus& device : frame.devices) {
    device.model = "NVIDIA H100 80GB HBM3 of a name without an end";
    for (top::CardProcess& one : device.processes)
      one.name = "/opt/programs/of/others/that/have/long/names/python3.12";
  }
  for (const size_t columns : {60, 80, 120}) {
    const std::string text = frame_text(frame, columns);
    EXPECT_THAT(text, HasSubstr("used there"));
    for (const std::string& line : split(text, '\n')) EXPECT_LE(columns_of(line), columns) << line;
  }
  EXPECT_THAT(frame_text(frame, 160), HasSubstr("python3.12"));
}

TEST(Frame, LossesAreThoseOfTheLastStepAndTheBestEvaluation) {
  Frame frame = example();
  ASSERT_TRUE(frame.runs[0].progress);
  frame.runs[0].progress->loss = 1.25;
  frame.runs[0].progress->best_loss = 1.125;
  EXPECT_THAT(frame_text(frame), HasSubstr("1.2500"));
  EXPECT_THAT(frame_text(frame), HasSubstr("1.1250"));
  const std::string text = frame_json(frame).dump();
  EXPECT_EQ(read_frame(text, "x").runs[0].progress->best_loss, 1.125);
}

TEST(Frame, AnEmptyQueueSaysSoInThePlaceOfAList) {
  Frame frame;
  EXPECT_THAT(frame_text(frame), HasSubstr("the queue is empty"));
  EXPECT_THAT(frame_text(frame), Not(HasSubstr("s/step")));
  EXPECT_THAT(frame_text(example()), Not(HasSubstr("the queue is empty")));
}

TEST_F(TopTest, AFrameOfAQueueHasItsMachineItsRunsAndTheirReservations) {
  queue::Store store(folder_ / "queue");
  queue::Entry entry;
  entry.name = "one";
  entry.words = {"true"};
  entry.need = {1, 30, 40, 2};
  const int64_t id = store.add(entry);
  entry.output = (folder_ / "run").string();
  store.add(entry);
  write("run/events.jsonl", R"({"event":"start","step":3,"total_steps":9})");
  Gatherer gatherer(store, [] { return int64_t{1000}; });
  EXPECT_EQ(gatherer.take().devices.size(), 1u) << "no worker has said what it has";
  queue::record_machine(store.folder(), {500, 4, {{"GPU-a", 90, 0}}});
  ASSERT_TRUE(store.begin(id, {"GPU-a"}, 100));
  ASSERT_TRUE(store.begin(id + 1, {"GPU-a"}, 100));
  const Frame frame = gatherer.take();
  EXPECT_FALSE(frame.worker);
  EXPECT_EQ(frame.available, 1000);
  EXPECT_GT(frame.memory, 0);
  ASSERT_EQ(frame.devices.size(), 2u);
  EXPECT_EQ(frame.devices[0].capacity, 500);
  EXPECT_EQ(frame.devices[0].reserved, 80);
  EXPECT_EQ(frame.devices[0].threads_reserved, 4);
  EXPECT_EQ(frame.devices[1].reserved, 60);
  EXPECT_EQ(frame.devices[1].runs, 2);
  ASSERT_EQ(frame.runs.size(), 2u);
  EXPECT_EQ(frame.runs[0].state, "running");
  EXPECT_FALSE(frame.runs[0].used) << "its supervisor has not come: what it takes is not known";
  EXPECT_FALSE(frame.runs[0].progress);
  EXPECT_EQ(frame.runs[1].progress->step, 3);
  EXPECT_EQ(frame.runs[1].progress->steps, 9);
}

}  // namespace
}  // namespace plimsoll::top
