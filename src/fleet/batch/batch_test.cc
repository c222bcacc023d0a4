#include "fleet/batch/batch.h"

#include "base/screen.h"
#include "base/strings.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

namespace plimsoll::batch {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Bar bar(int64_t id, double started, double ended, int64_t bytes, bool done = true) {
  Bar made;
  made.id = id;
  made.name = "run" + std::to_string(id);
  made.outcome = done ? "exit code 0" : "exit code 1";
  made.done = done;
  made.devices = {"cpu:0"};
  made.started = started;
  made.ended = ended;
  made.need.host_bytes = bytes;
  made.peak_bytes = bytes / 2;
  return made;
}

Batch example() {
  Batch batch;
  batch.machine = {1000, 2, {{"GPU-a", 400, 0}}};
  batch.bars = {bar(1, 100, 150, 600), bar(2, 150, 200, 800, false), bar(3, 160, 180, 200)};
  batch.bars[2].devices = {"GPU-a"};
  batch.bars[2].need.devices = 1;
  batch.bars[2].need.device_bytes = 300;
  batch.bars[2].card_peak_bytes = 250;
  batch.bars[0].memory = queue::MemoryHistory(25, {100, 500});
  batch.begin = 100;
  batch.end = 200;
  batch.runs = 3;
  batch.done = 2;
  batch.failed = 1;
  return batch;
}

TEST(Batch, sums_of_what_is_reserved_and_used_go_by_time) {
  const Batch batch = example();
  EXPECT_EQ(most_reserved(batch, "cpu:0"), 1000) << "1 ended when 2 began";
  EXPECT_EQ(most_reserved(batch, "GPU-a"), 300);
  EXPECT_EQ(most_used(batch, "GPU-a"), 250);
  EXPECT_DOUBLE_EQ(share_reserved(batch, "cpu:0"), (600 * 50 + 800 * 50 + 200 * 20) / 1e5);
  EXPECT_DOUBLE_EQ(share_reserved(batch, "GPU-a"), 300 * 20 / 4e4);
  const Course course = course_of(batch, 4);
  EXPECT_THAT(course.reserved, ElementsAre(600, 600, 1000, 800));
  EXPECT_THAT(course.used, ElementsAre(100, 500, 500, 400)) << "without a course the peak counts";
}

TEST(Batch, is_told_in_text_data_and_a_page) {
  Batch batch = example();
  batch.bars[1].name = "<b>\x1b[2J";
  const std::string text = batch_text(batch, 120), html = batch_page(batch);
  EXPECT_THAT(text, HasSubstr("3 runs in 3 attempts: 2 done, 1 failed, 0 open; 100 s in all"));
  EXPECT_THAT(text, HasSubstr("▒"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(html, HasSubstr("class=\"run failed\""));
  EXPECT_THAT(html, Not(HasSubstr("<b>\x1b")));
  EXPECT_THAT(html, Not(HasSubstr("2 <b>")));
  EXPECT_THAT(html, HasSubstr("<h2>GPU-a</h2>"));
  const nlohmann::json data = nlohmann::json::parse(batch_json(batch).dump());
  EXPECT_EQ(data["devices"][0]["most_reserved_bytes"], 1000);
  EXPECT_EQ(data["attempts"].size(), 3);
  EXPECT_EQ(data["attempts"][2]["peak_device_bytes"], 250);
  EXPECT_EQ(data["devices"][1]["most_used_bytes"], 250);
  EXPECT_THAT(text, HasSubstr("peaks of 250 B at most"));
  EXPECT_THAT(text, HasSubstr("300 B + 200 B  250 B + 100 B"));
  EXPECT_THAT(html, HasSubstr("<td>300 B</td><td>250 B</td>"));
  EXPECT_THAT(batch_text({}, 120), HasSubstr("nothing has run"));
  EXPECT_THAT(batch_page({}), HasSubstr("Nothing has run"));
}

TEST(Batch, its_trainings_are_ranked_by_loss) {
  Batch batch = example();
  EXPECT_TRUE(ranked(batch).empty());
  EXPECT_THAT(batch_text(batch, 120), Not(HasSubstr("rank")));
  batch.bars[0].loss = 0.5;
  batch.bars[1].loss = 1.0;
  batch.bars[1].eval_loss = 1.25;
  batch.bars[2].eval_loss = 1.125;
  const std::string text = batch_text(batch, 120);
  EXPECT_LT(text.find("1   3  run3  1.1250"), text.find("2   2  run2  1.2500"));
  EXPECT_LT(text.find("2   2  run2  1.2500"), text.find("3   1  run1       -"));
  EXPECT_THAT(batch_page(batch), HasSubstr("the best first"));
  EXPECT_EQ(batch_json(batch)["ranked"], nlohmann::json({3, 2, 1}));
  EXPECT_EQ(batch_json(batch)["attempts"][1]["best_eval_loss"], 1.25);
}

TEST(Batch, fits_a_screen_of_60_columns) {
  Batch batch = example();
  batch.bars[0].loss = 0.5;
  batch.bars[1].outcome = "exit code 1: out of memory at step 12, and tried again with half the batch";
  for (const std::string& line : split(batch_text(batch, 60), '\n')) EXPECT_LE(columns_of(line), 60U) << line;
  EXPECT_THAT(batch_text(batch, 60), HasSubstr("      ▒▒▒▒▒▒\n")) << "the second half of the time";
}

TEST(Batch, is_what_ran_since_the_last_pause) {
  std::string name = (fs::temp_directory_path() / "batch-XXXXXX").string();
  const fs::path folder = mkdtemp(name.data());
  queue::Store store(folder);
  const auto ran = [&](double submitted, double started, double ended) {
    queue::Entry entry;
    entry.name = "x";
    entry.words = {"true"};
    entry.submitted = submitted;
    const int64_t id = store.add(entry);
    store.begin(id, {}, started);
    store.finish(id, 1, [&](queue::Entry& found, queue::Attempt& attempt) {
      found.state = queue::State::done;
      attempt.done = true;
      attempt.ended = ended;
    });
  };
  ran(0, 1000, 9000);
  ran(0, 1100, 1200);
  ran(9000, 9100, 9200);
  ran(9000, 20000, 20100);
  ran(9000, 20050, 20400);
  const Batch last = take(store, 30000, 3600);
  EXPECT_EQ(last.runs, 2);
  EXPECT_EQ(last.begin, 20000);
  EXPECT_EQ(last.end, 20400);
  EXPECT_EQ(last.mean_wait, 11025);
  EXPECT_EQ(take(store, 30000, std::numeric_limits<double>::infinity()).runs, 5);
  EXPECT_EQ(take(store, 30000, 20000).runs, 5);
  ran(0, 0, 10);  // as of a row whose time is damaged
  EXPECT_EQ(take(store, 30000, std::numeric_limits<double>::infinity()).begin, 0);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace plimsoll::batch
