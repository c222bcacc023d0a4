// Advice about a recipe of a tiny model, without a command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "advise/faster.h"
#include "advise/fit.h"
#include "advise/largest.h"
#include "advise/savings.h"
#include "advise/sweep.h"
#include "advise/ways.h"
#include "base/units.h"
#include "files/test_folder.h"
#include "prepare/allowed.h"
#include "recipe/load/load.h"

namespace plimsoll {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Sweep, budgets_go_from_end_to_end_in_equal_ratios) {
  const SweptMemory swept = read_sweep("memory=1GiB..32GiB");
  ASSERT_GT(swept.budgets.size(), 2U);
  EXPECT_EQ(swept.budgets.front(), kGiB);
  EXPECT_EQ(swept.budgets.back(), 32 * kGiB);
  const double ratio = static_cast<double>(swept.budgets[1]) / static_cast<double>(swept.budgets[0]);
  for (size_t i = 1; i < swept.budgets.size(); ++i)
    EXPECT_NEAR(static_cast<double>(swept.budgets[i]) / static_cast<double>(swept.budgets[i - 1]), ratio,
                1e-6);
  for (const char* bad : {"memory=1GiB", "length=1..2", "memory", "memory=2GiB..1GiB", "memory=1GiB..1GiB"})
    EXPECT_THROW(read_sweep(bad), UsageError) << bad;
}

// Bytes of a value, of a limit, and how often it was asked.
struct Tries {
  std::function<int64_t(int64_t)> bytes;
  int64_t limit = 0;
  int count = 0;
  int64_t largest(int64_t most) {
    return largest_that_fits(most, limit, [this](int64_t value) -> TriedValue {
      ++count;
      return {value, bytes(value), bytes(value) <= limit};
    });
  }
};

TEST(Max, is_the_last_value_that_fits_whatever_bytes_grow_like) {
  const std::vector<std::function<int64_t(int64_t)>> curves = {
      [](int64_t v) { return 100 + 7 * v; }, [](int64_t v) { return 100 + v * v / 50; },
      [](int64_t v) { return 100 + v / 128 * 1000; },
      [](int64_t v) { return v < 4000 ? int64_t{0} : v * 1000; }};
  for (const auto& bytes : curves)
    for (const int64_t limit : {150, 1000, 54'321}) {
      Tries tries{bytes, limit};
      int64_t expected = 0;
      while (expected < 10'000 && bytes(expected + 1) <= limit) ++expected;
      EXPECT_EQ(tries.largest(10'000), expected) << limit;
      EXPECT_LE(tries.count, 3 * 14 + 2);  // every third try halves
    }
}

TEST(Max, of_a_straight_line_is_found_in_a_few_tries) {
  Tries tries{[](int64_t v) { return 12'345 + 678 * v; }, 12'345 + 678 * 4'321 + 5};
  EXPECT_EQ(tries.largest(1 << 20), 4'321);
  EXPECT_LE(tries.count, 6);
}

TEST(Max, is_all_or_nothing_at_the_ends) {
  Tries all{[](int64_t v) { return v; }, 100};
  EXPECT_EQ(all.largest(100), 100);
  EXPECT_EQ(all.count, 1);
  Tries none{[](int64_t v) { return 100 + v; }, 100};
  EXPECT_EQ(none.largest(100), 0);
}

// A recipe's file with its model and rows, and plans of it under changes.
class Advice : public ::testing::Test {
 protected:
  Advice() {
    write("config.json",
          R"({"model_type": "qwen2", "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4,
              "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 8000,
              "tie_word_embeddings": true, "max_position_embeddings": 4096})");
    write_rows(40);
    write_recipe("1024");
    wish_.models = std::make_shared<ModelFiles>();
    wish_.rows = std::make_shared<OpenedRows>();
  }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path() / name) << text;
  }
  void write_recipe(const std::string& length) {
    write("recipe.json", R"({"model": ".", "method": {"type": "full"}, "device": "cpu",
                             "data": {"train": "rows.jsonl", "format": "input-ids", "max_length": )" +
                             length + R"(}, "batch": {"effective": 8}, "memory": {"device": "2GiB"}})");
  }
  // Rows of so many tokens and more.
  void write_rows(int tokens) {
    std::ofstream out(folder_.path() / "rows.jsonl");
    for (int row = 0; row < 24; ++row) {
      out << R"({"input_ids": [1)";
      for (int i = 1; i < tokens + row; ++i) out << ", " << 2 + (i * 7 + row) % 500;
      out << "]}\n";
    }
  }

  [[nodiscard]] PlanInput input(const Changes& changes) const {
    Overrides overrides;
    for (const KeyChange& change : base_) overrides.sets.push_back(change.assignment());
    for (const KeyChange& change : changes) overrides.what_if.push_back(change.assignment());
    const Recipe recipe = load_recipe((folder_.path() / "recipe.json").string(), overrides).recipe;
    return plan_input(recipe, {Isa::avx2, 1}, wish_);
  }
  [[nodiscard]] WhatIf what_if() const {
    return [this](const Changes& changes) { return input(changes); };
  }
  [[nodiscard]] std::vector<Way> ways() const {
    const PlanInput requested = input({});
    const Plan plan = plan_allowed(requested.resolved, requested.machine, requested.data.get()).plan;
    EXPECT_FALSE(plan.fits());
    const auto command = [](const Changes& changes) {
      std::string words = "plan";
      for (const KeyChange& change : changes) words += " " + change.assignment();
      return words;
    };
    return ways_out({what_if(), command}, requested.resolved.recipe, plan.request, refusal_of(plan));
  }

  TestFolder folder_;
  PlanWish wish_;
  Changes base_;
};

TEST_F(Advice, variants_that_read_the_same_rows_share_them) {
  const auto rows = input({}).data;
  EXPECT_EQ(input({{"method.type", "lora"}}).data, rows);
  EXPECT_EQ(input({{"memory.device", "100MiB"}, {"optimizer.name", "adamw8bit"}}).data, rows);
  EXPECT_NE(input({{"data.max_length", "32"}}).data, rows);
  EXPECT_NE(input({{"batch.effective", "4"}}).data, rows) << "a step has other rows";
}

TEST_F(Advice, no_file_of_rows_is_opened_twice) {
  const PlanInput whole = input({});
  const Changes shorter = {{"data.max_length", "32"}};
  const PlanInput alone = [&] {
    PlanWish other = wish_;
    other.rows = std::make_shared<OpenedRows>();
    std::swap(other, wish_);
    PlanInput found = input(shorter);
    std::swap(other, wish_);
    return found;
  }();
  std::filesystem::remove(folder_.path() / "rows.jsonl");
  const PlanInput cut = input(shorter);
  EXPECT_EQ(cut.data->summary->tokens, 24 * 32);
  EXPECT_EQ(cut.data->summary->tokens, alone.data->summary->tokens);
  EXPECT_EQ(cut.data->summary->bytes_per_epoch, alone.data->summary->bytes_per_epoch);
  EXPECT_EQ(cut.request.target.host.total(), alone.request.target.host.total());
  EXPECT_GT(whole.data->summary->tokens, 24 * 32);
  EXPECT_ANY_THROW(input({{"data.columns", "{input_ids: other}"}})) << "rows that are read otherwise";
}

TEST_F(Advice, a_length_of_the_longest_row_is_found_once) {
  write_recipe("null");
  EXPECT_EQ(input({}).resolved.recipe.data.max_length, 40 + 23);
  std::filesystem::remove(folder_.path() / "rows.jsonl");
  EXPECT_EQ(input({{"method.type", "lora"}}).resolved.recipe.data.max_length, 40 + 23);
}

TEST_F(Advice, a_cell_that_fits_is_the_plan_and_one_that_does_not_has_the_least) {
  const FitCell cell = fit_cell(what_if(), "lora", 32, 512);
  const PlanInput requested = input({{"method.type", "lora"}, {"data.max_length", "32"}});
  const Plan plan = plan_allowed(requested.resolved, requested.machine, requested.data.get()).plan;
  EXPECT_TRUE(cell.fits);
  EXPECT_EQ(cell.memory_bytes, plan.memory_bytes());
  EXPECT_EQ(cell.variant, variant_words(plan.request.workload.experiment, plan.variant));
  EXPECT_EQ(cell.tokens_per_second, plan.tokens_per_second());

  base_ = {{"memory.device", "20MiB"}};
  const FitCell refused = fit_cell(what_if(), "lora", 32, 512);
  const PlanRequest request = input({{"method.type", "lora"}, {"data.max_length", "32"}}).request;
  EXPECT_FALSE(refused.fits);
  EXPECT_FALSE(refused.fits_memory);
  EXPECT_EQ(refused.memory_bytes, memory_bytes(request, make_plan(request).smallest));
}

TEST_F(Advice, a_cell_says_the_same_whatever_the_shorter_one_said) {
  FitCell hopeless;
  hopeless.method = "lora";
  for (const char* memory : {"2GiB", "20MiB"}) {
    base_ = {{"memory.device", memory}};
    const FitCell alone = fit_cell(what_if(), "lora", 64, 512);
    const FitCell after = fit_cell(what_if(), "lora", 64, 512, &hopeless);
    EXPECT_EQ(alone.fits, after.fits);
    EXPECT_EQ(alone.memory_bytes, after.memory_bytes);
    EXPECT_EQ(alone.variant, after.variant);
  }
}

TEST_F(Advice, a_cell_beyond_the_positions_or_not_possible_says_why) {
  const FitCell beyond = fit_cell(what_if(), "lora", 513, 512);
  EXPECT_TRUE(beyond.beyond);
  EXPECT_EQ(beyond.why_not, "the model knows 512 positions");
  base_ = {{"method.freeze", "[embedding]"}};
  const FitCell impossible = fit_cell(what_if(), "lora", 32, 512);
  EXPECT_FALSE(impossible.fits);
  EXPECT_FALSE(impossible.beyond);
  EXPECT_THAT(impossible.why_not, HasSubstr("method.freeze"));
}

TEST(Fit, the_first_choice_fits_most_lengths_and_is_the_faster_of_equals) {
  const auto cell = [](const char* method, int64_t length, bool fits, double speed) {
    FitCell one;
    one.method = method;
    one.length = length;
    one.fits = fits;
    one.tokens_per_second = speed;
    return one;
  };
  EXPECT_EQ(first_choice({cell("qlora", 1, true, 5), cell("lora", 1, true, 6), cell("full", 1, false, 0)}),
            "lora");
  EXPECT_EQ(first_choice({cell("qlora", 1, true, 5), cell("qlora", 2, true, 1), cell("lora", 1, true, 6),
                          cell("lora", 2, false, 0)}),
            "qlora");
  EXPECT_EQ(first_choice({cell("full", 1, false, 0)}), "");
}

TEST(Fit, lists_are_read_and_bad_ones_refused) {
  EXPECT_EQ(read_lengths("2048, 512,512", "--lengths"), (std::vector<int64_t>{512, 2048}));
  for (const char* bad : {"", "512,", "5x", "0", "-1", "999999999", "9999999999"})
    EXPECT_THROW(read_lengths(bad, "--lengths"), UsageError) << bad;
  EXPECT_EQ(read_methods("lora,qlora,lora", "--methods"), (std::vector<std::string>{"lora", "qlora"}));
  for (const char* bad : {"", "lora,", "dora"})
    EXPECT_THROW(read_methods(bad, "--methods"), UsageError) << bad;
}

TEST_F(Advice, ways_fit_and_those_with_the_same_result_come_first) {
  base_ = {{"memory.device", "100MiB"}};
  const std::vector<Way> found = ways();
  ASSERT_FALSE(found.empty());
  EXPECT_TRUE(std::ranges::is_sorted(found, {}, [](const Way& way) { return !way.same_result; }));
  EXPECT_THAT(found, Contains(Field(&Way::command, HasSubstr("method.type=lora"))));
  EXPECT_THAT(found, Contains(Field(&Way::command, HasSubstr("memory.disk="))));
  for (const Way& way : found) {
    const bool is_larger = way.command.find("memory.device") != std::string::npos;
    EXPECT_TRUE(is_larger || way.memory_bytes <= 100 * kMiB) << way.command;
  }
}

TEST_F(Advice, keys_that_hold_the_planner_are_let_go_until_it_fits) {
  base_ = {{"method.type", "lora"},
           {"batch.micro", "8"},
           {"memory.recompute", "none"},
           {"memory.loss_chunk", "512"}};
  const Plan open = make_plan(input({}).request);
  ASSERT_TRUE(open.fits());
  base_.push_back({"memory.device", std::to_string(open.memory_bytes() - 1) + "B"});
  const std::vector<Way> found = ways();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().command, "plan batch.micro=auto");
  EXPECT_TRUE(found.front().same_result);
  EXPECT_LT(found.front().memory_bytes, open.memory_bytes());
  EXPECT_THAT(found, Each(Field(&Way::command, Not(HasSubstr("memory.recompute=")))));
}

TEST_F(Advice, an_impossible_change_is_no_advice) {
  EXPECT_FALSE(fitting_plan(what_if(), {{"data.max_length", "1000000"}}));
  EXPECT_TRUE(fitting_plan(what_if(), {{"method.type", "lora"}}));
}

TEST_F(Advice, savings_are_of_what_the_recipe_neither_names_nor_allows) {
  const auto names = [this] {
    const PlanInput requested = input({});
    const AllowedPlan plan = plan_allowed(requested.resolved, requested.machine, requested.data.get());
    std::vector<std::string> found;
    for (const Saving& saving : not_allowed_savings(requested, plan.recipe, plan.plan)) {
      EXPECT_LT(saving.device_bytes, plan.plan.arena_bytes());
      found.push_back(saving.means);
    }
    return found;
  };
  EXPECT_THAT(names(), Contains("adamw8bit"));
  base_ = {{"memory.allow", "[adamw8bit]"}};
  EXPECT_THAT(names(), Not(Contains("adamw8bit")));
}

TEST_F(Advice, a_run_of_days_has_faster_ones_and_a_short_one_none) {
  const auto faster = [this] {
    const PlanInput requested = input({});
    const Plan plan = plan_allowed(requested.resolved, requested.machine, requested.data.get()).plan;
    return faster_runs(what_if(), requested.resolved.recipe, plan);
  };
  EXPECT_TRUE(faster().empty());
  base_ = {{"schedule.epochs", "1000000"}};
  const std::vector<Faster> found = faster();
  ASSERT_FALSE(found.empty());
  EXPECT_TRUE(std::ranges::is_sorted(found, {}, &Faster::run_seconds));
  EXPECT_THAT(found.front().sets, Contains("schedule.epochs=1"));
}

TEST_F(Advice, a_sweep_has_the_plans_of_its_budgets) {
  const PlanRequest request = input({}).request;
  const Sweep swept = sweep(request, {40 * kMiB, 200 * kMiB, 1 * kGiB});
  ASSERT_FALSE(swept.points.empty());
  for (const SweptPlan& point : swept.points) {
    EXPECT_LE(point.plan.memory_bytes(), point.budget);
    EXPECT_GE(point.plan.memory_bytes(), swept.smallest_bytes);
  }
}

TEST_F(Advice, the_largest_micro_batch_is_the_effective_batch_where_memory_allows) {
  const PlanInput requested = input({});
  const Quantity quantity = quantity_called("micro_batch", requested.request.workload.experiment);
  const LargestValue largest = largest_of(quantity, what_if(), memory_budget(requested.request));
  EXPECT_EQ(largest.value, 8);
  EXPECT_TRUE(largest.bounded);
  EXPECT_TRUE(largest.plan.fits());
  EXPECT_THROW(quantity_called("width", requested.request.workload.experiment), UsageError);
}

}  // namespace
}  // namespace plimsoll
