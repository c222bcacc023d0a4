#include "recipe/load/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "recipe/option.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A folder of this test's own, gone with it.
class Load : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) /
      ("plimsoll_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
};

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

std::string here(const std::string& path) { return (std::filesystem::current_path() / path).string(); }

TEST_F(Load, set_wins_over_the_environment_which_wins_over_the_file) {
  const std::string file =
      write("q.yaml", "model: m\nmethod: {r: 4, alpha: 4}\nseed: 4\nbatch: {effective: 4}\n");
  const LoadedRecipe loaded = load_recipe(
      file, {{"method.r=6", "method.r=7", "batch.effective=6"}, "method.r=5 seed=5 threads=auto"});
  EXPECT_EQ(loaded.recipe.method.r, 7);
  EXPECT_EQ(loaded.recipe.seed, 5);
  EXPECT_EQ(loaded.recipe.batch.effective, 6);
  EXPECT_EQ(loaded.recipe.method.alpha, 4.0);
  EXPECT_THAT(loaded.environment_changes, ElementsAre("seed = 5 (was 4)"));
}

TEST_F(Load, null_takes_a_key_back_to_its_default_as_if_nothing_had_said_it) {
  const std::string file = write("q.yaml",
                                 "model: m\nmethod: {type: full}\nseed: 4\nprecision: {weights: bf16}\n"
                                 "optimizer: {name: adamw, lr: 1e-2, betas: [0.8, 0.9], eps: 1e-6}\n");
  const Recipe usual;
  const auto load = [&](const std::vector<std::string>& sets) {
    return load_recipe(file, {sets, ""}).recipe;
  };
  EXPECT_THAT(error_of([&] { load({"optimizer.name=lion"}); }), HasSubstr("optimizer.eps: has no effect"));
  const Recipe lion = load({"optimizer.name=lion", "optimizer.eps=null"});
  EXPECT_EQ(lion.optimizer.name, OptimizerKind::lion);
  EXPECT_EQ(lion.optimizer.eps, usual.optimizer.eps);
  EXPECT_EQ(lion.optimizer.lr, 1e-2);
  const Recipe adafactor = load({"optimizer=null", "optimizer.name=adafactor", "precision=null"});
  EXPECT_EQ(adafactor.optimizer.lr, usual.optimizer.lr);
  EXPECT_EQ(adafactor.precision, usual.precision);
  EXPECT_EQ(load({"seed=null", "seed=9"}).seed, 9);
  EXPECT_THAT(error_of([&] { load({"model=null"}); }), HasSubstr("'model' is missing"));
  EXPECT_THAT(load_recipe(file, {{}, "seed=null"}).environment_changes,
              ElementsAre("seed = " + std::to_string(usual.seed) + " (was 4)"));
  // In a file a key without a value is a slip.
  EXPECT_THAT(error_of([&] { load_recipe(write("n.yaml", "model: m\nseed:\n"), {}); }),
              HasSubstr("found nothing"));
}

TEST_F(Load, every_key_can_be_taken_back) {
  const std::string file = write("q.yaml", "model: m\n");
  for (const Option& option : options()) {
    if (option.required) continue;
    EXPECT_EQ(option.get(load_recipe(file, {{option.key + "=null"}, ""}).recipe), option.get(Recipe{}))
        << option.key;
  }
}

TEST_F(Load, paths_of_the_file_are_relative_to_it_and_paths_of_overrides_to_the_working_directory) {
  const std::string file =
      write("q.yaml", "model: m\ndata: {train: t.jsonl, eval: e.jsonl}\noutput: /abs/../o\n");
  const Recipe recipe = load_recipe(file, {{"data.eval=e2.jsonl"}, "adapter=a"}).recipe;
  EXPECT_EQ(recipe.model, (folder_ / "m").string());
  EXPECT_THAT(recipe.data.train, ElementsAre(TrainSource{(folder_ / "t.jsonl").string(), 1.0}));
  EXPECT_EQ(recipe.data.eval.path, here("e2.jsonl"));
  EXPECT_EQ(recipe.adapter, here("a"));
  EXPECT_EQ(recipe.output, "/o");
}

TEST_F(Load, json_says_the_same_as_yaml) {
  const std::string json = write("q.json", R"({
  "model": "m", "data": {"train": ["t"], "eval": "2%", "columns": {"prompt": "\ud83d\ude00"}},
  "method": {"type": "lora", "r": 8, "alpha": 16.5, "rslora": true},
  "memory": {"device": "auto", "host": "8GiB"}, "schedule": {"max_steps": null, "warmup": 3},
  "batch": {"micro": "auto"}
})");
  const std::string yaml = write("q.yaml", R"(
model: m
data: {train: [t], eval: 2%, columns: {prompt: "😀"}}
method: {type: lora, r: 8, alpha: 16.5, rslora: true}
memory: {device: auto, host: 8GiB}
schedule: {max_steps: null, warmup: 3}
batch: {micro: auto}
)");
  EXPECT_EQ(load_recipe(json).recipe, load_recipe(yaml).recipe);
}

TEST_F(Load, errors_in_json_name_their_line) {
  const std::string file =
      write("q.json", "{\n\"model\": \"m\",\n\"seed\": -1\n,\n\"task\":\n\"x\", \"modle\": 1}");
  EXPECT_EQ(
      error_of([&] { load_recipe(file); }),
      file + ":3: seed: expected a whole number from 0 to 9,007,199,254,740,992, found '-1'\n" + file +
          ":6: task: expected sft | pretrain | mlm | seq2seq | reward | classify | dpo, found the quoted "
          "text 'x'\n" +
          file + ":6: unknown key 'modle' (did you mean 'model'?)");
  EXPECT_THAT(error_of([&] { load_recipe(write("b.json", "{\n\"model\": \n}")); }),
              HasSubstr("b.json:3: not valid JSON: "));
}

TEST_F(Load, files_that_cannot_be_recipes_are_named) {
  EXPECT_THAT(error_of([&] { load_recipe((folder_ / "none.yaml").string()); }),
              HasSubstr("none.yaml: cannot be opened: No such file"));
  EXPECT_THAT(error_of([] { load_recipe(""); }), HasSubstr("cannot be opened"));
  EXPECT_THAT(error_of([] { load_recipe(std::string(10000, 'x')); }),
              HasSubstr("cannot be opened: File name"));
  EXPECT_THAT(error_of([&] { load_recipe(folder_.string()); }), HasSubstr("is a folder, not a recipe"));
  EXPECT_THAT(error_of([&] { load_recipe(write("e.yaml", "# nothing\n")); }), HasSubstr("e.yaml: is empty"));
  EXPECT_THAT(error_of([&] { load_recipe(write("l.yaml", "\n- model\n")); }),
              HasSubstr("l.yaml:2: a recipe is a map of keys, found a list"));
  EXPECT_THAT(error_of([&] { load_recipe(write("big.yaml", std::string(1100000, '#'))); }),
              HasSubstr("big.yaml: is longer than 1 MiB"));
  EXPECT_THAT(error_of([&] { load_recipe(write("b.yaml", std::string("model: m\nx: \0", 13))); }),
              HasSubstr("b.yaml:2: holds a control character"));
  EXPECT_THAT(error_of([&] { load_recipe(write("u.yaml", "model: m\n\nx: \xD3y\n")); }),
              HasSubstr("u.yaml:3: holds bytes that are no UTF-8"));
}

TEST_F(Load, overrides_alone_make_a_recipe) {
  const Recipe recipe =
      recipe_from_overrides({{assignment("model", "a: #b"), "method.type=full"}, ""}).recipe;
  EXPECT_EQ(recipe.model, here("a: #b"));
  EXPECT_EQ(recipe.method.type, MethodType::full);
  EXPECT_EQ(error_of([] {
              recipe_from_overrides({{"seed=1"}, ""});
            }),
            "--set: 'model' is missing: Hugging Face folder; config.json is enough to plan");
}

TEST_F(Load, overrides_take_lists_maps_and_nested_keys) {
  const LoadedRecipe loaded = recipe_from_overrides(
      {{"model=m", "method.targets=[q_proj, v_proj]", "data.columns.prompt=question", "optimizer={lr: 1}"},
       "data.columns={response: answer} \t seed=1"});
  EXPECT_THAT(loaded.recipe.method.targets, ElementsAre("q_proj", "v_proj"));
  EXPECT_EQ(loaded.recipe.data.columns,
            (std::map<std::string, std::string>{{"prompt", "question"}, {"response", "answer"}}));
  EXPECT_EQ(loaded.recipe.optimizer.lr, 1.0);
  EXPECT_THAT(loaded.environment_changes, ElementsAre("seed = 1 (was 42)"));
}

TEST_F(Load, a_later_preset_replaces_parts_and_a_later_part_changes_a_preset) {
  const std::string file = write("q.yaml", "model: m\nprecision: {gradients: bf16, rounding: nearest}\n");
  EXPECT_EQ(load_recipe(file, {{"precision=bf16"}, ""}).recipe.precision, Precision{});
  const LoadedRecipe loaded = load_recipe(file, {{"precision.master=true"}, "precision=bf16"});
  EXPECT_TRUE(loaded.recipe.precision.master);
  EXPECT_EQ(loaded.recipe.precision.rounding, Rounding::nearest);
  EXPECT_EQ(loaded.recipe.precision.gradients, DType::f32);
}

TEST_F(Load, a_card_of_several_is_named_by_its_number_or_the_beginning_of_its_uuid) {
  const auto recipe = [](const std::string& device) {
    return recipe_from_overrides({{"model=m", "device=" + device}, ""}).recipe;
  };
  for (const char* which : {"", "1", "12", "GPU-1a2b"}) {
    const std::string device = std::string("cuda") + (*which == '\0' ? "" : ":") + which;
    EXPECT_EQ(recipe(device).device, DeviceChoice::cuda);
    EXPECT_EQ(recipe(device).cuda_card, which);
    EXPECT_EQ(find_option("device")->get(recipe(device)), device);
  }
  for (const char* device : {"cuda:", "cuda:x", "cuda:-1", "cuda:12345", "cuda:GPU-", "cuda:1,2", "card:1"})
    EXPECT_THROW(recipe(device), UsageError) << device;
}

TEST_F(Load, a_stated_precision_is_told_from_the_default) {
  const auto states = [](const std::vector<std::string>& sets) {
    return recipe_from_overrides({sets, ""}).states_precision;
  };
  EXPECT_FALSE(states({"model=m"}));
  EXPECT_TRUE(states({"model=m", "precision=bf16"}));
  EXPECT_TRUE(states({"model=m", "precision.gradients=bf16"}));
  EXPECT_FALSE(states({"model=m", "precision=bf16", "precision=null"}));
}

TEST_F(Load, shares_of_masked_words_are_not_more_than_all) {
  const auto of = [&](const std::string& mlm) {
    return error_of([&] { load_recipe(write("q.yaml", "model: m\ntask: mlm\nmlm: " + mlm + "\n")); });
  };
  EXPECT_THAT(of("{mask: 0.95}"), HasSubstr("mlm.mask: with mlm.random: 0.1 they are more than 1"));
  EXPECT_THAT(of("{mask: 0.5, random: 0.6}"),
              HasSubstr("mlm.random: with mlm.mask: 0.5 they are more than 1"));
}

TEST_F(Load, tf32_is_a_part_of_the_precision_that_is_not_told_where_it_is_off) {
  const auto precision = [](const std::string& value) {
    return find_option("precision")
        ->get(recipe_from_overrides({{"model=m", "precision=" + value}, ""}).recipe);
  };
  EXPECT_EQ(precision("{weights: fp32, tf32: true}")["tf32"], true);
  EXPECT_EQ(precision("{gradients: bf16}").contains("tf32"), false);
  EXPECT_EQ(precision("fp32"), "fp32");
  EXPECT_THROW(precision("{weights: bf16, tf32: true}"), UsageError);
}

TEST_F(Load, wrong_overrides_are_quoted) {
  const auto error = [](const std::string& set) {
    return error_of([&] { recipe_from_overrides({{"model=m", set}, ""}); });
  };
  EXPECT_EQ(error("method.r"), "--set method.r: expected key=value, such as method.r=8");
  EXPECT_EQ(error("=8"), "--set =8: expected key=value, such as method.r=8");
  EXPECT_EQ(error("method.rr=8"), "--set method.rr=8: unknown key 'method.rr' (did you mean 'method.r'?)");
  EXPECT_EQ(error("method..r=8"), "--set method..r=8: unknown key 'method.' (did you mean 'method'?)");
  EXPECT_THAT(error("method.r=[8"), HasSubstr("--set method.r=[8: a key must be a word, not a list or a map "
                                              "(is a bracket left open?)"));
  EXPECT_THAT(error("method.r='8"), HasSubstr("--set method.r='8: not valid YAML: "));
  EXPECT_EQ(error("method.r="),
            "--set method.r=: method.r: expected a whole number from 1 to 8,192, found nothing");
  EXPECT_THAT(error(std::string(100000, '.') + "=1"), HasSubstr("expected key=value"));
  EXPECT_THAT(error_of([] {
                recipe_from_overrides({{"model=m"}, "seed=x threads"});
              }),
              testing::StartsWith("PLIMSOLL_SET seed=x: seed: expected"));
}

TEST_F(Load, an_unchanged_environment_reports_nothing) {
  EXPECT_THAT(recipe_from_overrides({{"model=m"}, " "}).environment_changes, IsEmpty());
  EXPECT_THAT(recipe_from_overrides({{"model=m"}, "seed=42"}).environment_changes, IsEmpty());
}

TEST_F(Load, training_needs_data_and_an_output) {
  const auto error = [](const std::vector<std::string>& sets) {
    return error_of([&] { require_trainable(recipe_from_overrides({sets, ""}).recipe); });
  };
  EXPECT_EQ(error({"model=m", "data.train=t", "output=o"}), "no error");
  EXPECT_EQ(error({"model=m"}),
            "data.train: is missing: name the files to train on (--set data.train=FILE)\n"
            "output: is missing: name the folder of the run (--set output=FOLDER)");
}

TEST_F(Load, what_if_leaves_out_what_means_nothing_beside_it) {
  Overrides overrides;
  overrides.sets = {"model=m", "method={type: lora, r: 8}", "optimizer={name: adamw, betas: [0.9, 0.95]}"};
  overrides.what_if = {"method.type=full", "optimizer.name=sgd", "optimizer.momentum=0.9"};
  const Recipe recipe = recipe_from_overrides(overrides).recipe;
  EXPECT_EQ(recipe.method.type, MethodType::full);
  EXPECT_EQ(recipe.optimizer.momentum, 0.9);
  overrides.what_if = {"method.type=full", "method.r=4"};
  EXPECT_THROW(recipe_from_overrides(overrides), UsageError);
}

}  // namespace
}  // namespace plimsoll
