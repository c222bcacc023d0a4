#include "report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.h"
#include "base/page.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/units.h"
#include "files/test_folder.h"
#include "files/work_folder.h"
#include "report/curve.h"
#include "report/progress_line.h"

namespace plimsoll {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string line_of(const StepProgress& state, int width) {
  std::array<char, 512> text;
  const FittedLine line = progress_line(state, width, text);
  std::string out(text.data(), line.bytes);
  int columns = 0;
  for (const char c : out) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  EXPECT_EQ(columns, line.columns);
  return out;
}

constexpr StepProgress kState = {512, 938, 1.2041, 1.4e-4, 1571, 0.0, int64_t{6} << 30, 552};

TEST(ProgressLine, fits_every_width_and_keeps_the_step_longest) {
  for (int width = 1; width < 200; ++width) {
    std::array<char, 512> text;
    EXPECT_LE(progress_line(kState, width, text).columns, width) << width;
    EXPECT_LE(loading_line(1 << 20, 1 << 30, width, text).columns, width) << width;
    EXPECT_LE(rows_line("rows    how long they are ", 1 << 10, 1 << 20, width, text).columns, width) << width;
  }
  EXPECT_EQ(line_of(kState, 15), "train   512/938");
  EXPECT_EQ(line_of(kState, 7), "512/938");
  EXPECT_EQ(line_of(kState, 30), "train   512/938  loss 1.2041");
  EXPECT_THAT(line_of(kState, 72), HasSubstr("eta 9:12"));
}

TEST(ProgressLine, shows_all_of_it_beside_a_bar_on_a_usual_terminal_and_no_bar_elsewhere) {
  const std::string wide = line_of(kState, 110);
  EXPECT_THAT(wide, HasSubstr("█░"));
  EXPECT_THAT(wide,
              HasSubstr("  512/938  loss 1.2041  lr 1.40e-04  1571 tok/s  data 0 %  eta 9:12  mem 6.00 GiB"));
  EXPECT_THAT(line_of(kState, 0), Not(HasSubstr("█")));
  std::array<char, 512> text;
  const FittedLine dumb = progress_line(kState, 110, text, ProgressBar::none);
  EXPECT_EQ(std::string(text.data(), dumb.bytes), line_of(kState, 0));
  StepProgress long_run = kState;
  long_run.seconds_left = 3 * 3600 + 61;
  EXPECT_THAT(line_of(long_run, 0), HasSubstr("eta 3:01:01"));
}

TEST(ProgressLine, says_what_several_devices_wait_for) {
  StepProgress state = kState;
  EXPECT_THAT(line_of(state, 0), Not(HasSubstr("comm")));
  state.sending_share = 0.04;
  state.slowest = 2;
  state.slower = 0.18;
  EXPECT_THAT(line_of(state, 0), testing::EndsWith("mem 6.00 GiB  comm 4 %  slowest rank 2 (+18 %)"));
  state.slower = 0.05;
  EXPECT_THAT(line_of(state, 0), testing::EndsWith("mem 6.00 GiB  comm 4 %"));
}

TEST(ProgressLine, counts_rows_beside_a_bar) {
  std::array<char, 512> text;
  const FittedLine line = rows_line("rows    how long they are ", 500'000, 1'000'000, 100, text);
  const std::string said(text.data(), line.bytes);
  EXPECT_THAT(said, testing::StartsWith("rows    how long they are █"));
  EXPECT_THAT(said, testing::EndsWith("░ 500,000 of 1,000,000"));
}

std::string step_line(int64_t step, const std::string& loss) {
  return "{\"step\": " + std::to_string(step) + ", \"loss\": " + loss +
         ", \"grad_norm\": 1, \"lr\": 0.001, \"tokens\": 100, \"seconds\": 0.5, \"data_wait\": 0, \"rss\": " +
         "52428800, \"time\": 1}\n";
}

std::string event_line(int64_t step, const std::string& event, const std::string& more = "") {
  return "{\"time\": 1700000000.5, \"step\": " + std::to_string(step) + ", \"event\": \"" + event + "\"" +
         more + "}\n";
}

constexpr const char* kPlanned =
    ", \"total_steps\": 3, \"planned_process_bytes\": 62914560, \"planned_device_bytes\": 1048576, "
    "\"planned_seconds_per_step\": 0.25, \"effective_batch\": 6, \"micro_batch\": 4, \"kernels\": \"avx2\"";

class Report : public testing::Test {
 protected:
  Report() {
    folder_.write("metrics.jsonl", step_line(1, "4.5") + step_line(2, "null") + step_line(3, "2.5"));
    folder_.write("eval.jsonl", "{\"step\": 3, \"loss\": 2.25, \"target_tokens\": 9, \"seconds\": 1}\n");
    write_events(event_line(3, "end"));
  }
  void write_events(const std::string& last) {
    folder_.write("events.jsonl", event_line(0, "start", kPlanned) + event_line(2, "save") + last);
  }
  [[nodiscard]] RunHistory read() const { return read_history(folder_.path()); }

  TestFolder folder_;
};

TEST_F(Report, a_history_is_what_the_logs_say) {
  const RunHistory run = read();
  EXPECT_EQ(run.state, RunState::finished);
  ASSERT_EQ(run.steps.size(), 3U);
  EXPECT_TRUE(std::isnan(run.steps[1].loss));
  EXPECT_EQ(run.steps[2].tokens_per_second(), 200);
  EXPECT_EQ(run.planned_process_bytes, 62914560);
  EXPECT_EQ(run.batch, "6 = 4 x 2");
  EXPECT_EQ(best_evaluation(run, "loss")->step, 3);
}

TEST_F(Report, the_end_of_a_run_is_known_from_its_events_and_its_lock) {
  write_events("");
  EXPECT_EQ(read().state, RunState::killed);
  {
    const WorkFolder lock(folder_.path(), WorkFolder::inside(folder_.path()));
    EXPECT_EQ(read().state, RunState::running);
    EXPECT_THAT(run_text(read()), Not(HasSubstr("left")));  // no step is
    folder_.write("metrics.jsonl", step_line(1, "4.5"));
    EXPECT_THAT(run_text(read()), HasSubstr("left    about 1.00 s\n"));
  }
  write_events(event_line(3, "signal", ", \"signal\": \"SIGTERM\"") + event_line(3, "save"));
  EXPECT_EQ(read().state, RunState::interrupted);
  write_events(event_line(3, "signal", ", \"signal\": \"SIGUSR1\"") + event_line(3, "save"));
  EXPECT_EQ(read().state, RunState::killed);
  write_events(event_line(3, "stop", ", \"reason\": \"step 3: the loss is nan\\nmore\""));
  EXPECT_EQ(read().state, RunState::stopped);
  EXPECT_THAT(run_text(read()), HasSubstr("stopped: step 3: the loss is nan"));
}

TEST_F(Report, a_line_being_written_does_not_count_and_a_damaged_one_is_named) {
  folder_.write("metrics.jsonl", step_line(1, "4.5") + "{\"step\": 2, \"lo");
  EXPECT_EQ(read().steps.size(), 1U);
  folder_.write("metrics.jsonl", step_line(1, "4.5") + "nonsense\n" + step_line(3, "1"));
  EXPECT_THAT(message_of<DamagedError>([&] { std::ignore = read(); }), HasSubstr("metrics.jsonl:2: "));
}

TEST_F(Report, several_ranks_are_one_run) {
  EXPECT_EQ(ranks_words(read()), "");
  EXPECT_THAT(run_text(read()), Not(HasSubstr("ranks")));
  const auto line = [](int64_t step, const char* more) {
    std::string text = step_line(step, "4.5");
    return text.substr(0, text.size() - 2) + more + "}\n";
  };
  folder_.write("metrics.jsonl",
                line(1, ", \"sending_seconds\": 0.1") +
                    line(2, ", \"sending_seconds\": 0.05, \"slowest_rank\": 2, \"slower\": 0.25") +
                    line(3, ", \"sending_seconds\": 0, \"slowest_rank\": 2, \"slower\": 0.15"));
  folder_.write("events.jsonl",
                event_line(0, "start", std::string(kPlanned) + ", \"ranks\": 3") + event_line(3, "end"));
  EXPECT_EQ(ranks_words(read()), "3 · waiting 10 % · slowest rank 2 (+20 %)") << "it has not ended";
  folder_.write(
      "run.json",
      R"({"measured": {"process_peak_rss_bytes": 52428800}, "ranks": [{"process_peak_rss_bytes": 52428800},
                   {"process_peak_rss_bytes": 62914560}, {"process_peak_rss_bytes": 41943040}]})");
  const RunHistory run = read();
  EXPECT_EQ(ranks_words(run),
            "3 · 60.0 MiB at most (rank 1), 150 MiB together · waiting 10 % · slowest rank 2 (+20 %)");
  EXPECT_THAT(run_text(run), HasSubstr("ranks   3 · 60.0 MiB at most (rank 1)"));
  EXPECT_THAT(run_page(run), HasSubstr("150 MiB together"));
  const auto json = compare_json({run}, "").at("runs").at(0).at("ranks");
  EXPECT_EQ(json.at("count"), 3);
  EXPECT_EQ(json.at("peak_bytes_together"), 157286400);
  EXPECT_EQ(json.at("slowest_rank"), 2);
}

TEST_F(Report, a_folder_without_a_run_is_refused) {
  const TestFolder empty;
  EXPECT_THAT(message_of<UsageError>([&] { read_history(empty.path()); }), HasSubstr("holds no run"));
}

TEST_F(Report, the_text_compares_plan_and_measurement) {
  const std::string text = run_text(read());
  EXPECT_THAT(text, HasSubstr("finished   3 of 3 steps"));
  EXPECT_THAT(text, HasSubstr("4.5000 at first, 2.5000 at last · evaluation 2.2500, best 2.2500 at step 3"));
  EXPECT_THAT(text, HasSubstr("200 tokens/s · 500 ms a step (planned 250 ms)"));
  EXPECT_THAT(text, HasSubstr("process 50.0 MiB (planned 60.0 MiB)"));
}

TEST_F(Report, what_evaluations_tell_beside_the_loss_is_shown_and_the_best_is_by_the_recipes_metric) {
  const auto line = [](int step, const char* loss, const char* accuracy) {
    return "{\"step\": " + std::to_string(step) + ", \"loss\": " + loss +
           ", \"target_tokens\": 9, \"seconds\": 1, \"accuracy\": " + accuracy + ", \"f1\": 0.5}\n";
  };
  folder_.write("eval.jsonl", line(1, "2.5", "0.25") + line(2, "2.75", "0.75") + line(3, "2.25", "null"));
  folder_.write("recipe.yaml",
                "model: m\ntask: classify\ndata: {train: t.jsonl, eval: 5%}\nsave: {best: accuracy}\n");
  const RunHistory run = read();
  EXPECT_EQ(run.goal, "accuracy");
  EXPECT_EQ(best_evaluation(run, "accuracy")->step, 2);
  EXPECT_EQ(best_evaluation(run, "loss")->step, 3);
  EXPECT_FALSE(best_evaluation(run, "pearson").has_value());
  EXPECT_THAT(run_text(run), HasSubstr("f1 0.5000 at last · best accuracy 0.7500 at step 2"));
  EXPECT_THAT(run_page(run), HasSubstr("<tr><td>2</td><td class=\"n\">2.75</td>"));
  EXPECT_THAT(run_page(run), HasSubstr("best evaluation accuracy 0.75 at step 2"));
}

TEST_F(Report, what_no_log_says_is_left_out) {
  std::filesystem::remove(folder_.path() / "events.jsonl");
  std::filesystem::remove(folder_.path() / "run.json");
  EXPECT_THAT(run_text(read()), AllOf(HasSubstr("process 50.0 MiB\n"), Not(HasSubstr("arena"))));
  folder_.write("metrics.jsonl", "");
  EXPECT_THAT(run_text(read()), AllOf(Not(HasSubstr("memory")), Not(HasSubstr("a step"))));
}

TEST_F(Report, the_page_needs_nothing_but_itself_and_escapes_what_it_shows) {
  write_events(event_line(3, "stop", ", \"reason\": \"<script>alert(1)</script>\""));
  const std::string page = run_page(read());
  EXPECT_THAT(page, HasSubstr("planned 60.0 MiB"));
  EXPECT_THAT(page, HasSubstr("stopped: &lt;script>alert(1)&lt;/script>"));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("http")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
}

TEST_F(Report, a_run_of_one_step_is_a_dot_in_the_middle_of_an_axis_with_distinct_ticks) {
  folder_.write("metrics.jsonl", step_line(1, "4.5"));
  folder_.write("eval.jsonl", "");
  const std::string page = run_page(read());
  EXPECT_THAT(page,
              HasSubstr("class=\"dot\" style=\"left:50%;bottom:50%;background:#0072b2\" title=\"4.5\""));
  EXPECT_THAT(page, HasSubstr("<span>step 1</span>"));
  EXPECT_THAT(page, HasSubstr(">4.4</div>"));
  EXPECT_THAT(page, HasSubstr(">4.6</div>"));
}

// Labels of a chart: 256 MiB and not 205 next to 1 GiB.
TEST(Ticks, of_bytes_are_round_numbers_of_the_unit_that_they_are_told_in) {
  for (const auto& [top, step] : std::vector<std::pair<int64_t, int64_t>>{{600 * kMiB, 200 * kMiB},
                                                                          {1023 * kMiB, 500 * kMiB},
                                                                          {kGiB, 256 * kMiB},
                                                                          {kGiB + kGiB / 4, 256 * kMiB},
                                                                          {2 * kGiB, 512 * kMiB},
                                                                          {5 * kGiB, kGiB},
                                                                          {6 * kGiB, 2 * kGiB}})
    EXPECT_EQ(page::tick_bytes(top), step) << format_bytes(top);
}

TEST_F(Report, a_long_reason_is_shown_whole) {
  const std::string reason = "step 3: " + std::string(40, 'x') + " in the folder \u00e4\u00f6 at the end";
  write_events(event_line(3, "stop", ", \"reason\": \"" + reason + "\""));
  std::string text;  // on one line
  for (const std::string& word : split(run_text(read()), ' '))
    if (const auto part = trim(word); !part.empty()) text += std::string(part) + " ";
  EXPECT_THAT(text, HasSubstr("stopped: " + reason));
}

TEST_F(Report, a_run_without_a_step_has_a_page_too) {
  folder_.write("metrics.jsonl", "");
  folder_.write("eval.jsonl", "");
  EXPECT_THAT(run_page(read()), HasSubstr("0 of 3 steps"));
  EXPECT_THAT(run_text(read()), HasSubstr("none that is finite"));
}

TEST(Curve, keeps_every_spike_in_a_bounded_number_of_points) {
  std::vector<int64_t> steps;
  std::vector<double> values;
  for (int64_t i = 1; i <= 10000; ++i) {
    steps.push_back(i);
    values.push_back(i == 5003 ? 9.0 : i == 7001 ? std::nan("") : 1.0);
  }
  const auto curve = make_curve(steps, values, 100);
  EXPECT_EQ(curve.size(), 100U);
  EXPECT_EQ(curve.back().step, 10000);
  double highest = 0;
  for (const CurvePoint& point : curve) highest = std::max(highest, point.high);
  EXPECT_EQ(highest, 9.0);
  const Axis axis{1, 3, 0, 2};
  EXPECT_EQ(path_of(make_curve({1, 2, 3}, {0, std::nan(""), 2}, 10), axis), "M0 1000L1000 0");
}

TEST(Curve, smoothing_does_not_lag_and_passes_over_what_is_not_finite) {
  std::vector<double> falling;
  for (int i = 0; i < 100; ++i) falling.push_back(100.0 - i);
  const auto values = smoothed(falling, 10);
  for (size_t i = 0; i < 90; ++i) EXPECT_NEAR(values[i], falling[i], 1e-9);
  EXPECT_NEAR(values[99], 6.0, 1e-9);  // of the last eleven
  const auto gap = smoothed({4.0, std::nan(""), 2.0, std::nan("")}, 1);
  EXPECT_EQ(gap[0], 4.0);
  EXPECT_EQ(gap[1], 3.0);
  EXPECT_EQ(gap[3], 2.0);
  EXPECT_TRUE(std::isnan(smoothed({std::nan("")}, 4)[0]));
}

TEST_F(Report, a_run_that_ended_before_its_last_step_says_why) {
  folder_.write("metrics.jsonl", step_line(1, "4.5") + step_line(2, "4.0"));
  write_events(event_line(2, "end", ", \"reason\": \"2 evaluations without a lower loss (stop.patience)\""));
  EXPECT_THAT(run_text(read()), AllOf(HasSubstr("ended early   2 of 3 steps"), HasSubstr("because"),
                                      HasSubstr("2 evaluations without a lower loss")));
  EXPECT_THAT(run_page(read()), HasSubstr("ended early"));
  write_events(event_line(2, "end"));
  EXPECT_THAT(run_text(read()), HasSubstr("stop.patience")) << "of an earlier version";
  EXPECT_EQ(run_json(read())["end_reason"], "stop.patience");
}

TEST_F(Report, saves_in_a_row_are_one_line) {
  std::string saves;
  for (int step = 1; step <= 3; ++step) saves += event_line(step, "save");
  folder_.write("events.jsonl", event_line(0, "start", kPlanned) + saves + event_line(3, "end"));
  EXPECT_THAT(run_text(read()), HasSubstr("saved, 3 times since step 1"));
}

TEST_F(Report, every_line_fits_a_screen_of_60_columns) {
  write_events(event_line(2, "end", ", \"reason\": \"2 evaluations without a lower loss (stop.patience)\""));
  const std::string text = run_text(read(), 60) + compare_text({read(), read()}, 60);
  for (const std::string& line : split(text, '\n'))
    EXPECT_TRUE(columns_of(line) <= 60 || line.find(folder_.path().string()) != std::string::npos) << line;
}

TEST_F(Report, several_runs_are_ranked_by_their_best_evaluation) {
  RunHistory worse = read(), better = read(), without = read();
  worse.folder = "worse";
  better.folder = "better/";
  without.folder = "without";
  better.evaluations.front().loss = 1.5;
  without.evaluations.clear();
  worse.settings = {{"optimizer.lr", "0.1"}, {"seed", "1"}, {"output", "a"}};
  better.settings = {{"optimizer.lr", "0.01"}, {"seed", "1"}, {"output", "b"}};
  without.settings = better.settings;
  const std::string text = compare_text({without, worse, better});
  EXPECT_LT(text.find("1  better"), text.find("2  worse"));
  EXPECT_LT(text.find("2  worse"), text.find("3  without"));
  EXPECT_THAT(text, AllOf(HasSubstr("optimizer.lr  0.01"), Not(HasSubstr("seed")), Not(HasSubstr("output"))));
  const auto json = compare_json({without, worse, better});
  EXPECT_EQ(json["runs"][0]["best_evaluation"]["loss"], 1.5);
  EXPECT_EQ(json["differs"], nlohmann::json({"optimizer.lr"}));
}

TEST_F(Report, several_runs_have_a_table_of_losses_and_metrics_sorted_by_any_of_them) {
  RunHistory one = read(), other = read();
  one.folder = "qnli <1>";
  other.folder = "cola";
  one.evaluations = {{10, 0.5, {{"accuracy", 0.9}, {"f1", 0.8}}}};
  other.evaluations = {{10, 0.4, {{"accuracy", 0.7}, {"matthews", 0.3}}}};
  one.goal = "accuracy";
  other.goal = "matthews";
  const std::string text = compare_text({one, other});
  EXPECT_THAT(text,
              AllOf(HasSubstr("accuracy"), HasSubstr("f1"), HasSubstr("matthews"), HasSubstr("0.3000")));
  EXPECT_LT(text.find("1  cola"), text.find("2  qnli")) << "their goals differ: by loss";
  EXPECT_LT(compare_text({other, one}, 100, "accuracy").find("1  qnli"), std::string::npos);
  EXPECT_EQ(compare_json({other, one}, "f1")["runs"][0]["folder"], "qnli <1>") << "who lacks it comes last";
  EXPECT_EQ(compare_json({one, other})["metrics"], nlohmann::json({"accuracy", "matthews", "f1"}));
  EXPECT_THROW((void)compare_text({one, other}, 100, "bleu"), UsageError);
  const std::string page = compare_page({one, other}, "accuracy");
  EXPECT_THAT(
      page, AllOf(HasSubstr("<th class=\"n\">accuracy</th>"), HasSubstr("qnli &lt;1>"), HasSubstr("0.9000")));
  EXPECT_LT(page.find("qnli"), page.find("cola"));
}

}  // namespace
}  // namespace plimsoll
