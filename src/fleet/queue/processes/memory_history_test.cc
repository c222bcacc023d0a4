#include "fleet/queue/processes/memory_history.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <random>

#include "base/units.h"

namespace plimsoll::queue {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

MemoryHistory of(double seconds, const std::function<double(double)>& mebibytes, double tick = 0.25) {
  MemoryHistory history;
  for (double at = 0; at < seconds; at += tick)
    history.add(at, static_cast<int64_t>(mebibytes(at) * static_cast<double>(kMiB)));
  return history;
}

TEST(MemoryHistory, keeps_the_highest_of_each_span_in_bounded_room) {
  MemoryHistory history;
  for (int i = 0; i < 1'000'000; ++i) history.add(0.25 * i, i == 600'000 ? 99 : 7);
  EXPECT_LE(history.bytes().size(), MemoryHistory::kMostSpans);
  EXPECT_GE(history.bytes().size(), MemoryHistory::kMostSpans / 2 - 1);
  const auto spike = static_cast<size_t>(0.25 * 600'000 / history.span_seconds());
  EXPECT_EQ(history.bytes()[spike], 99);
  EXPECT_EQ(history.bytes()[spike - 1], 7);
}

TEST(MemoryHistory, spans_that_nobody_saw_are_as_before) {
  MemoryHistory history;
  history.add(0.1, 5);
  history.add(1.1, 9);
  history.add(1.2, 4);
  EXPECT_THAT(history.bytes(), ElementsAre(5, 5, 5, 5, 9));
}

TEST(MemoryHistory, is_read_as_it_was_kept_and_damage_is_none) {
  std::string name = (fs::temp_directory_path() / "history-XXXXXX").string();
  const fs::path folder = mkdtemp(name.data());
  EXPECT_FALSE(kept_memory(folder));
  keep(MemoryHistory(8, {1, 2, 3}), folder);
  EXPECT_EQ(kept_memory(folder)->span_seconds(), 8);
  EXPECT_THAT(kept_memory(folder)->bytes(), ElementsAre(1, 2, 3));
  for (const char* text :
       {"", "[]", "{", R"({"bytes":[1]})", R"({"span_seconds":0,"bytes":[1]})",
        R"({"span_seconds":1,"bytes":["x"]})", R"({"span_seconds":"1","bytes":[1]})",
        R"({"span_seconds":1,"bytes":[1.8e20]})", R"({"span_seconds":1,"bytes":[0.5]})",
        R"({"span_seconds":1,"bytes":[-1]})", R"({"span_seconds":1,"bytes":[true]})",
        R"({"span_seconds":1e300,"bytes":[1]})", R"({"span_seconds":1,"bytes":[9223372036854775807]})"}) {
    std::ofstream(folder / "memory.json") << text;
    EXPECT_FALSE(kept_memory(folder)) << text;
  }
  fs::remove_all(folder / "memory.json");
  fs::create_directory(folder / "memory.json.tmp");  // it cannot be written
  keep(MemoryHistory(8, {1}), folder);
  EXPECT_FALSE(kept_memory(folder));
  fs::remove_all(folder);
}

TEST(Growth, steady_growth_is_told_with_its_rate_also_under_noise) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(0, 5);
  const auto growth = growth_of(of(600, [&](double at) { return 500 + 0.1 * at + noise(random); }));
  ASSERT_TRUE(growth);
  EXPECT_NEAR(growth->bytes_per_second, 0.1 * static_cast<double>(kMiB), 0.01 * static_cast<double>(kMiB));
  EXPECT_GE(growth->z, 4);
  EXPECT_NEAR(seconds_until(*growth, growth->now + 60 * kMiB), 600, 60);
  EXPECT_EQ(seconds_until(*growth, 0), 0);
}

TEST(Growth, what_is_no_leak_is_none) {
  std::mt19937 random(2);
  std::normal_distribution<double> noise(0, 20);
  const auto saw = [](double at) { return 300 + 200 * std::fmod(at, 10.0) / 10; };
  for (const auto& [name, use] : std::initializer_list<std::pair<const char*, std::function<double(double)>>>{
           {"constant", [](double) { return 500.0; }},
           {"noise", [&](double) { return 500 + noise(random); }},
           {"saw teeth", saw},
           {"a start that levels off", [](double at) { return 500 * (1 - std::exp(-at / 60)); }},
           {"a step in the earlier half", [](double at) { return at < 300 ? 300.0 : 500.0; }},
           {"a step in the later half", [](double at) { return at < 500 ? 300.0 : 500.0; }},
           {"a ramp that ends", [](double at) { return std::min(at, 400.0); }},
           {"less all the time", [](double at) { return 800 - at; }},
           {"hardly anything", [](double at) { return 5000 + 0.01 * at; }},
       })
    EXPECT_FALSE(growth_of(of(600, use))) << name;
  EXPECT_FALSE(growth_of(of(50, [](double at) { return 100 + at; }))) << "too early to tell";
}

// None of 400 runs whose use wanders within a range is reported as leaking.
TEST(Growth, is_not_said_of_chance) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> use(100, 900);
  for (int run = 0; run < 400; ++run) EXPECT_FALSE(growth_of(of(120, [&](double) { return use(random); })));
}

}  // namespace
}  // namespace plimsoll::queue
