#include "recipe/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "passes/choice_json.h"
#include "recipe/effective.h"
#include "recipe/load/load.h"
#include "recipe/option.h"
#include "recipe/values.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Recipe read(const std::string& text) { return parse_recipe(text, "q.yaml", "/home/recipes"); }
Recipe read_with(const std::string& lines) { return read("model: m\n" + lines); }

TEST(Recipe, needs_no_more_than_a_model) {
  Recipe expected;
  expected.model = "/home/recipes/m";
  EXPECT_EQ(read("model: m"), expected);
}

TEST(Recipe, reads_every_group_of_keys) {
  const Recipe recipe = read(R"(
model: ../models/./qwen/
adapter: /adapters/a
task: pretrain
data:
  train: [a.parquet, b/c.jsonl]
  eval: 2%
  format: text
  columns: {text: body}
  max_length: 256
  train_on_prompt: true
  loader_threads: 1
  prefetch: 4
  shuffle: false
method: {type: lora, r: 8, alpha: 12.5, dropout: 0.1, targets: [q_proj, v_proj], rslora: true}
batch: {effective: 8, micro: 2}
optimizer: {lr: 1e-3, betas: [0.8, 0.95], eps: 1e-6, weight_decay: 0.01, max_grad_norm: 0}
schedule: {name: linear, warmup: 20, min_ratio: 0.1, epochs: 3, max_steps: 100}
memory: {device: 8GiB, host: 80%, headroom: 5%, recompute: none, offload: none, loss_chunk: 512}
device: cpu
threads: 2
seed: 7
eval: {every: 10, micro: 4, metrics: [loss]}
save: {every: 20, keep: 3}
log: {every: 5}
output: runs/x
)");
  EXPECT_EQ(recipe.model, "/home/models/qwen");
  EXPECT_EQ(recipe.adapter, "/adapters/a");
  EXPECT_EQ(recipe.task, Task::pretrain);
  EXPECT_THAT(recipe.data.train,
              ElementsAre(TrainSource{"/home/recipes/a.parquet"}, TrainSource{"/home/recipes/b/c.jsonl"}));
  EXPECT_EQ(recipe.data.eval, (EvalSource{EvalSource::Kind::share, "", 2.0}));
  EXPECT_EQ(recipe.data.format, RowFormat::text);
  EXPECT_EQ(recipe.data.columns.at("text"), "body");
  EXPECT_EQ(recipe.data.max_length, 256);
  EXPECT_EQ(recipe.data.train_on_prompt, PromptLoss::yes);
  EXPECT_EQ(recipe.data.loader_threads, 1);
  EXPECT_EQ(recipe.data.prefetch, 4);
  EXPECT_EQ(recipe.data.shuffle, Shuffle::off);
  EXPECT_EQ(recipe.method.r, 8);
  EXPECT_EQ(recipe.method.alpha, 12.5);
  EXPECT_EQ(recipe.method.dropout, 0.1);
  EXPECT_THAT(recipe.method.targets, ElementsAre("q_proj", "v_proj"));
  EXPECT_TRUE(recipe.method.rslora);
  EXPECT_EQ(recipe.batch, (Recipe::Batch{8, 2}));
  EXPECT_EQ(recipe.optimizer,
            (Recipe::Optimizer{OptimizerKind::adamw, 1e-3, {0.8, 0.95}, 1e-6, 0.0, 0.01, 0.0}));
  EXPECT_EQ(recipe.schedule.name, ScheduleName::linear);
  EXPECT_EQ(recipe.schedule.warmup, (Warmup{Warmup::Unit::steps, 0.0, 20}));
  EXPECT_EQ(recipe.schedule.min_ratio, 0.1);
  EXPECT_EQ(recipe.schedule.epochs, 3);
  EXPECT_EQ(recipe.schedule.max_steps, 100);
  EXPECT_EQ(recipe.memory.device, (MemoryLimit{MemoryLimit::Kind::bytes, 0.0, int64_t{8} << 30}));
  EXPECT_EQ(recipe.memory.host, (MemoryLimit{MemoryLimit::Kind::percent, 80.0, 0}));
  EXPECT_EQ(recipe.memory.headroom_percent, 5.0);
  EXPECT_EQ(recipe.memory.recompute, RecomputePoint::none);
  EXPECT_EQ(recipe.memory.offload, std::vector<std::string>());
  EXPECT_EQ(recipe.memory.loss_chunk, 512);
  EXPECT_EQ(recipe.device, DeviceChoice::cpu);
  EXPECT_EQ(recipe.threads, 2);
  EXPECT_EQ(recipe.seed, 7);
  EXPECT_EQ(recipe.eval, (Recipe::Eval{{.steps = 10}, 4, {"loss"}}));
  EXPECT_EQ(recipe.save.every.steps, 20);
  EXPECT_EQ(recipe.save.keep, 3);
  EXPECT_EQ(recipe.log.every, 5);
  EXPECT_EQ(recipe.output, "/home/recipes/runs/x");
}

TEST(Recipe, a_share_of_nothing_needs_no_unit) {
  EXPECT_EQ(read_with("memory: {tie: 0}").memory.tie_percent, 0.0);
  EXPECT_EQ(read_with("memory: {tie: 0.5%, headroom: 0}").memory.headroom_percent, 0.0);
  EXPECT_THROW(read_with("memory: {tie: 1}"), UsageError);  // 1 % or all of it?
}

TEST(Recipe, sizes_of_unlike_devices_are_stated_one_by_one_and_the_least_counts) {
  const auto limit = [](const std::string& text) {
    return read_with("memory: {device: " + text + "}").memory.device;
  };
  const MemoryLimit two = limit("{0: 24GiB, 1: 12GiB}");
  EXPECT_EQ(two.kind, MemoryLimit::Kind::bytes);
  EXPECT_EQ(two.bytes, int64_t{12} << 30);
  EXPECT_EQ(two.each, (std::map<int64_t, int64_t>{{0, int64_t{24} << 30}, {1, int64_t{12} << 30}}));
  EXPECT_EQ(print(two).dump(), R"({"0":"24GiB","1":"12GiB"})");
  EXPECT_EQ(limit(print(two).dump()), two);
  EXPECT_TRUE(limit("12GiB").each.empty());
  for (const std::string bad : {"{}", "{0: auto}", "{0: 80%}", "{a: 24GiB}", "{-1: 24GiB}", "{0x1: 24GiB}",
                                "{0: {1: 2GiB}}", "[24GiB, 12GiB]"})
    EXPECT_THROW(limit(bad), UsageError) << bad;
  EXPECT_THROW(read_with("memory: {host: {0: 24GiB}}"), UsageError);
}

TEST(Recipe, levels_of_recomputation_are_written_as_they_are_read) {
  const auto levels = [](const std::string& text) {
    return read_with("memory: {recompute: " + text + "}").memory.recompute;
  };
  EXPECT_EQ(levels("auto"), std::nullopt);
  EXPECT_EQ(levels("{}"), RecomputePoint::none);
  EXPECT_EQ(levels("{block: all}"), RecomputePoint::block);
  EXPECT_EQ(levels("{cheap: all, mlp: 5}"), RecomputeLevels(RecomputePoint::mlp, 5, RecomputePoint::cheap));
  EXPECT_EQ(levels("{act: 3, none: all}"), RecomputeLevels(RecomputePoint::act, 3, RecomputePoint::none));
  EXPECT_EQ(levels("{act: 3}"), levels("{act: 3, none: all}"));
  for (const std::string text : {"{mlp: 5, cheap: all}", "{act: 3, none: all}", "{block: all, segment: 4}"})
    EXPECT_EQ(recompute_json(*levels(text)).dump(),
              recompute_json(*levels(recompute_json(*levels(text)).dump())).dump());
  for (const std::string bad : {"{mlp: 5, act: 4}", "{cheap: 3, mlp: all}", "{mlp: all, cheap: all}",
                                "{mlp: -1}", "{mlp: all, segment: 2}", "{block: 3, segment: 2}",
                                "{block: all, segment: 0}", "{some: all}", "[block]", "all"})
    EXPECT_THROW(levels(bad), UsageError) << bad;
}

TEST(Recipe, presets_set_all_parts_of_the_precision) {
  const auto parts = [](const std::string& name) { return read_with("precision: " + name).precision; };
  constexpr DType f32 = DType::f32;
  constexpr DType bf16 = DType::bf16;
  EXPECT_EQ(parts("fp32"), (Precision{f32, f32, f32, false, Rounding::nearest}));
  EXPECT_EQ(parts("bf16"), (Precision{bf16, f32, f32, false, Rounding::stochastic}));
  EXPECT_EQ(parts("bf16-master"), (Precision{bf16, f32, f32, true, Rounding::nearest}));
  EXPECT_EQ(parts("bf16-pure"), (Precision{bf16, bf16, bf16, false, Rounding::stochastic}));
  EXPECT_EQ(Recipe().precision, parts("bf16"));
}

TEST(Recipe, bf16_pure_leaves_states_to_optimizers_that_have_types_of_their_own) {
  constexpr DType bf16 = DType::bf16;
  for (const char* name : {"adamw8bit", "adafactor"})
    EXPECT_EQ(
        read_with(std::string("method: {type: full}\nprecision: bf16-pure\noptimizer: {name: ") + name + "}")
            .precision,
        (Precision{bf16, bf16, DType::f32, false, Rounding::stochastic}));
}

TEST(Recipe, a_map_of_precision_starts_from_bf16_and_rounds_as_it_suits) {
  EXPECT_EQ(read_with("precision: {weights: fp32}").precision, read_with("precision: fp32").precision);
  EXPECT_EQ(read_with("precision: {master: true}").precision, read_with("precision: bf16-master").precision);
  EXPECT_EQ(read_with("precision: {rounding: nearest}").precision.rounding, Rounding::nearest);
  EXPECT_EQ(read_with("precision: {gradients: bf16}").precision,
            (Precision{DType::bf16, DType::bf16, DType::f32, false, Rounding::stochastic}));
}

TEST(Recipe, warm_up_as_a_share_is_rounded_up_to_steps) {
  EXPECT_EQ((Warmup{Warmup::Unit::percent, 3.0, 0}.steps_of(100)), 3);
  EXPECT_EQ((Warmup{Warmup::Unit::percent, 7.0, 0}.steps_of(100)), 7);
  EXPECT_EQ((Warmup{Warmup::Unit::percent, 3.0, 0}.steps_of(101)), 4);
  EXPECT_EQ((Warmup{Warmup::Unit::steps, 0.0, 12}.steps_of(5)), 12);
}

// One recipe that differs from the defaults in every option that may differ.
constexpr const char* kUnusual = R"(
model: "weird: name #1/\u00e4 'x'"
adapter: ~
data:
  train: [a%, "null", b]
  eval: 1%/2%
  format: prompt-response
  columns: {prompt: "null", response: "a: [b"}
  template: plain
  max_length: 77
  train_on_prompt: true
  loader_threads: 1
  prefetch: 3
  shuffle: false
method: {r: 3, alpha: 0.1, dropout: 0.30000000000000004, targets: [a.b, "1"], rslora: true,
         rank_pattern: {"a\\.[0-3]\\..*": 2, q: 5}, alpha_pattern: {"'": 0.5}, layers: [3, 0], layers_pattern: block,
         modules_to_save: [lm_head], loraplus_ratio: 16, dora: true, init: pissa_niter_8, neftune_alpha: 5}
batch: {effective: 9, micro: 5}
optimizer: {lr: 1.2345678901234567e-7, betas: [0.0, 0.123], eps: 1e-11, weight_decay: 1, max_grad_norm: 1e9}
schedule: {name: linear, warmup: 0.07%, min_ratio: 1, epochs: 2, max_steps: 5}
precision: {weights: fp32, gradients: bf16}
memory: {device: 33.3%, host: 1000001, headroom: 0%, recompute: none, offload: none, loss_chunk: 1}
device: cpu
threads: 3
seed: 9007199254740992
eval: {every: 1, micro: 2}
save: {every: 3, keep: 1}
log: {every: 9}
output: o
)";

TEST(EffectiveRecipe, reads_back_to_the_same_recipe_from_anywhere) {
  for (const std::string text :
       {"model: m", kUnusual,
        "model: m\nmethod: {type: full, freeze: ['^(?!(?:a|b)).*', 'layers\\.[0-7]']}\nprecision: fp32",
        "model: m\nprecision: bf16-pure", "model: m\nschedule: {name: constant, warmup: 0}",
        "model: m\nmemory: {device: 8GB, host: 512MiB}\ndata: {eval: 50%, train: x}"}) {
    const Recipe recipe = read(text);
    const std::string effective = effective_yaml(recipe);
    EXPECT_EQ(parse_recipe(effective, "e.yaml", "/somewhere/else"), recipe) << effective;
  }
}

TEST(EffectiveRecipe, names_every_key_that_applies) {
  const std::string qlora = effective_yaml(read_with("method: {type: qlora}"));
  const std::string full = effective_yaml(read_with("method: {type: full}"));
  EXPECT_THAT(
      qlora, testing::StartsWith("model: /home/recipes/m\ninit: weights\nadapter: null\ntask: sft\ndata:\n"));
  EXPECT_THAT(qlora, testing::HasSubstr("\n  lr: 2e-4\n  betas: [0.9, 0.999]\n  eps: 1e-8\n"));
  EXPECT_THAT(qlora, testing::HasSubstr("\n  targets: all-linear\n"));
  EXPECT_THAT(full, testing::Not(testing::HasSubstr("targets")));
  for (const Option& option : options()) {
    const std::string name = option.key.substr(option.key.rfind('.') + 1);
    if (option.key == "dpo.loss") continue;  // ends as stop.loss does
    EXPECT_EQ(qlora.find("\n" + name + ": ") == std::string::npos &&
                  qlora.find("\n  " + name + ": ") == std::string::npos,
              option.is_part || option.task || name == "model" || name == "momentum")
        << option.key;
  }
}

TEST(Fingerprint, differs_in_what_decides_the_result_and_in_nothing_else) {
  const std::string base = experiment_fingerprint(read(kUnusual));
  const auto differences = [&](const std::string& key, const std::string& value) {
    const Recipe recipe = read(effective_yaml(read(kUnusual)));
    LoadedRecipe changed =
        recipe_from_overrides({{assignment("model", recipe.model), key + "=" + value}, ""});
    LoadedRecipe plain = recipe_from_overrides({{assignment("model", recipe.model)}, ""});
    return experiment_differences(experiment_fingerprint(plain.recipe),
                                  experiment_fingerprint(changed.recipe));
  };
  EXPECT_THAT(experiment_differences(base, base), IsEmpty());
  EXPECT_THAT(differences("optimizer.lr", "1e-3"),
              ElementsAre(ExperimentDifference{"optimizer.lr", "2e-4", "0.001"}));
  EXPECT_THAT(differences("precision", "fp32"),
              ElementsAre(ExperimentDifference{"precision", "bf16", "fp32"}));
  EXPECT_THAT(differences("data.eval", "2%"), ElementsAre(ExperimentDifference{"data.eval", "", "2%"}));
  EXPECT_EQ(differences("seed", "1").size(), 1U);
  EXPECT_EQ(differences("method.type", "full").size(), 1U);  // LoRA's keys are at their defaults
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"batch.micro", "2"},
                                                        {"memory.device", "1GiB"},
                                                        {"threads", "3"},
                                                        {"log.every", "2"},
                                                        {"save.every", "2"},
                                                        {"stop.loss", "5"},
                                                        {"eval.micro", "2"},
                                                        {"data.prefetch", "2"},
                                                        {"data.eval", "f.jsonl"},
                                                        {"output", "o"},
                                                        {"device", "cpu"},
                                                        {"memory.loss_chunk", "8"}})
    EXPECT_THAT(differences(key, value), IsEmpty()) << key;
}

TEST(Fingerprint, of_runs_before_there_was_data_reading_is_of_the_first_rules) {
  Recipe recipe = read_with("");
  const std::string today = experiment_fingerprint(recipe);
  recipe.data.reading = kFirstReading;
  const std::string before = experiment_fingerprint(recipe);
  EXPECT_THAT(before, testing::Not(testing::HasSubstr("data.reading")));
  EXPECT_EQ(reading_of(today), kReading);
  EXPECT_EQ(reading_of(before), kFirstReading);
  EXPECT_THAT(experiment_differences(before, today),
              ElementsAre(ExperimentDifference{"data.reading", "1", std::to_string(kReading)}));
}

TEST(Fingerprint, a_shuffle_of_runs_before_there_was_another_is_that_in_windows) {
  nlohmann::json saved = nlohmann::json::parse(experiment_fingerprint(read_with("")));
  EXPECT_EQ(saved["data.shuffle"], "full");
  EXPECT_FALSE(began_before_full_shuffle(saved.dump()));
  saved["data.shuffle"] = true;
  EXPECT_TRUE(began_before_full_shuffle(saved.dump()));
  const auto differences_to = [&](const char* word) {
    return experiment_differences(
        saved.dump(), experiment_fingerprint(read_with("data: {shuffle: " + std::string(word) + "}")));
  };
  EXPECT_THAT(differences_to("window"), IsEmpty());
  EXPECT_THAT(differences_to("true"), ElementsAre(ExperimentDifference{"data.shuffle", "window", "full"}));
  EXPECT_THAT(differences_to("false"), ElementsAre(ExperimentDifference{"data.shuffle", "window", "false"}));
}

TEST(Fingerprint, text_that_is_none_is_damage) {
  const std::string good = experiment_fingerprint(read_with(""));
  for (const char* bad : {"", "[]", "{", "3"}) EXPECT_THROW(experiment_differences(good, bad), DamagedError);
}

}  // namespace
}  // namespace plimsoll
