// Tests of other tools' recipes: one test for each way in which they once meant something else here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "recipe/dialects/families.h"
#include "recipe/effective.h"
#include "recipe/hub.h"
#include "recipe/load/load.h"
#include "recipe/option.h"
#include "recipe/test_recipe_files.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class Dialects : public RecipeFiles {
 protected:
  [[nodiscard]] static Overrides as(const std::string& tool) {
    Overrides overrides;
    overrides.as_tool = tool;
    return overrides;
  }
};

const std::string kTorchtune =
    "model: {_component_: torchtune.models.llama3_2.lora_llama3_2_1b, lora_attn_modules: [q_proj], "
    "lora_rank: 8}\n"
    "checkpointer: {checkpoint_dir: m}\nbatch_size: 2\n";
const std::string kLlama3 =
    "tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: null}\n";
const std::string kAxolotl = "base_model: m\nadapter: lora\nlora_r: 8\nlora_alpha: 16\n";

// --- meaning ---------------------------------------------------------------------------------------------

TEST_F(Dialects, axolotl_leaves_rows_out_that_are_too_long) {
  EXPECT_EQ(recipe(kAxolotl).data.truncation, Truncation::drop);
  EXPECT_EQ(recipe(kAxolotl + "excess_length_strategy: truncate\n").data.truncation, Truncation::right);
  EXPECT_EQ(recipe(kAxolotl + "lr_scheduler: cosine\ncosine_min_lr_ratio: 0.1\n").schedule.min_ratio, 0.1);
  EXPECT_THAT(error_of(kAxolotl + "lr_scheduler: cosine_with_restarts\ncosine_min_lr_ratio: 0.1\n"),
              HasSubstr("cosine_with_restarts with a lowest rate"));
  EXPECT_EQ(recipe(kAxolotl + "excess_length_strategy: raise\n").data.truncation, Truncation::refuse);
}

TEST_F(Dialects, completion_rows_of_axolotl_begin_a_text_and_are_never_cut_in_silence) {
  const Recipe read = recipe(kAxolotl + "datasets: [{path: a.jsonl, type: completion}]\n");
  EXPECT_EQ(read.data.truncation, Truncation::refuse);
  EXPECT_TRUE(read.data.bos);
}

TEST_F(Dialects, alpaca_rows_of_torchtune_learn_the_prompt_within_the_models_own_tags) {
  const Recipe read = recipe(kTorchtune + kLlama3 +
                             "dataset: {_component_: torchtune.datasets.alpaca_dataset, source: a.jsonl}\n");
  EXPECT_EQ(read.data.format, RowFormat::alpaca);
  EXPECT_EQ(read.data.chat_template, "torchtune/llama3");
  EXPECT_EQ(read.data.train_on_prompt, PromptLoss::yes);
  EXPECT_EQ(recipe(kTorchtune + kLlama3 +
                   "dataset: {_component_: torchtune.datasets.alpaca_dataset, source: a.jsonl, "
                   "train_on_input: False}\n")
                .data.train_on_prompt,
            PromptLoss::no);
}

TEST_F(Dialects, no_length_is_no_truncation_in_torchtune) {
  EXPECT_EQ(recipe(kTorchtune + kLlama3).data.max_length, kLongestRow);
  EXPECT_EQ(recipe(kTorchtune).data.max_length, kLongestRow);
  EXPECT_EQ(recipe(kTorchtune + "tokenizer: {max_seq_len: 512}\n").data.max_length, 512);
  EXPECT_EQ(effective_yaml(recipe(kTorchtune + kLlama3)).find("max_length: null") != std::string::npos, true);
}

TEST_F(Dialects, texts_of_torchtune_begin_a_text_and_lose_one_token_of_the_length) {
  const Recipe read =
      recipe(kTorchtune +
             "tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 512}\n"
             "dataset: {_component_: torchtune.datasets.text_completion_dataset, source: a.jsonl}\n");
  EXPECT_TRUE(read.data.bos);
  EXPECT_EQ(read.data.max_length, 511);
}

TEST_F(Dialects, trl_learns_whole_conversations_and_begins_texts) {
  const Recipe read = recipe("model_name_or_path: m\ndataset_name: a.jsonl\n");
  EXPECT_EQ(read.data.train_on_prompt, PromptLoss::messages);
  EXPECT_EQ(read.data.chat_template, "trl");
  EXPECT_TRUE(read.data.bos);
}

TEST_F(Dialects, adapters_of_trl_and_axolotl_go_where_peft_puts_them) {
  const std::vector<std::string> peft = {"q_proj", "v_proj"};
  EXPECT_EQ(recipe("model_name_or_path: m\ndataset_name: a.jsonl\nuse_peft: true\n").method.targets, peft);
  EXPECT_EQ(recipe(kAxolotl).method.targets, peft);
  EXPECT_TRUE(recipe("model_name_or_path: m\nstage: sft\n").method.targets.empty());
}

TEST_F(Dialects, what_axolotl_leaves_unfrozen_is_all_that_trains) {
  const auto frozen = [&](const std::string& names) {
    return recipe("base_model: m\nunfrozen_parameters: " + names + "\n").method.freeze;
  };
  const std::vector<std::string> all_but = {"^(?!(?:^lm_head\\.weight$|model\\.layers\\.2[0-3].+)).*"};
  EXPECT_EQ(frozen("['^lm_head.weight$', 'model.layers.2[0-3].+']"), all_but);
  EXPECT_TRUE(frozen("[]").empty());
  EXPECT_THAT(error_of("base_model: m\nunfrozen_parameters: ['model.embed_tokens.weight[:3200]']\n"),
              HasSubstr("some rows of a weight"));
}

TEST_F(Dialects, freeze_of_llama_factory_trains_the_layers_that_config_json_counts) {
  write("m/config.json",
        R"({"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 16, "intermediate_size": 8,
            "num_attention_heads": 2, "vocab_size": 16})");
  const std::string begin = "model_name_or_path: m\nstage: sft\ntemplate: empty\nfinetuning_type: freeze\n";
  const auto frozen = [&](const std::string& keys, const std::vector<std::string>& sets = {}) {
    const Recipe read = recipe(begin + keys, sets);
    EXPECT_EQ(read.method.type, MethodType::full);
    return read.method.freeze;
  };
  const auto all_but = [](const std::string& trained) {
    return std::vector<std::string>{"^(?!.*(?:" + trained + R"(|^v_head\.|^score\.)).*)"};
  };
  EXPECT_EQ(frozen(""), all_but(R"(\.2\.|\.3\.)"));
  EXPECT_EQ(frozen("freeze_trainable_layers: 9\n"), all_but(R"(\.0\.|\.1\.|\.2\.|\.3\.)"));
  EXPECT_EQ(frozen("freeze_trainable_layers: -1\n"), all_but(R"(\.0\.)"));
  EXPECT_EQ(frozen("freeze_trainable_layers: 1\nfreeze_trainable_modules: mlp, self_attn\n"),
            all_but(R"(\.3\.mlp|\.3\.self_attn)"));
  EXPECT_EQ(frozen("freeze_trainable_layers: 0\nfreeze_extra_modules: lm_head,norm\n"),
            all_but("lm_head|norm"));
  write("two/config.json",
        R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 8,
            "num_attention_heads": 2, "vocab_size": 16})");
  const std::string other = "model=" + (folder_ / "two").string();
  EXPECT_EQ(frozen("freeze_trainable_layers: 1\n", {other}), all_but(R"(\.1\.)"));
  EXPECT_TRUE(frozen("", {"method.freeze=null"}).empty());
  EXPECT_THAT(error_of(begin + "freeze_trainable_layers: 0\n"), HasSubstr("nothing is left to train"));
  EXPECT_THAT(error_of(begin + "freeze_trainable_modules: feed\n"),
              HasSubstr("no module 'feed' there; it has input_layernorm, mlp,"));
  EXPECT_THAT(error_of(begin + "freeze_extra_modules: wte\n"),
              HasSubstr("no module 'wte' there; it has embed_tokens, lm_head, norm"));
}

TEST_F(Dialects, freeze_of_llama_factory_says_what_it_misses) {
  const std::string keys = "stage: sft\ntemplate: empty\nfinetuning_type: freeze\n";
  EXPECT_THAT(
      error_of("model_name_or_path: absent\n" + keys),
      AllOf(HasSubstr("counts the layers of the model"), HasSubstr("absent: there is no such folder")));
  EXPECT_THAT(
      error_of("model_name_or_path: Nobody/no-such-model\n" + keys),
      AllOf(HasSubstr("counts the layers of the model"), HasSubstr("plimsoll fetch Nobody/no-such-model")));
  write("m/config.json",
        R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 8,
            "num_attention_heads": 2, "vocab_size": 16})");
  EXPECT_FALSE(recipe("model_name_or_path: absent\n" + keys, {"model=" + (folder_ / "m").string()})
                   .method.freeze.empty());
  EXPECT_THAT(error_of("model: m\nfinetuning_type: freeze\n"), HasSubstr("is a word of LLaMA-Factory"));
  EXPECT_TRUE(recipe("model_name_or_path: m\nstage: sft\ntemplate: empty\nfinetuning_type: full\n"
                     "freeze_trainable_layers: 1\n")
                  .method.freeze.empty());
}

TEST_F(Dialects, a_split_is_not_the_files_of_others) {
  const std::string rows = "hub/data/";
  for (const char* name : {"train_sft-00000-of-00001.parquet", "train_gen-00000-of-00001.parquet",
                           "test_sft-00000-of-00001-a3ecf92.parquet"})
    write(rows + name, "x");
  const auto files = [&](const std::string& split) { return split_files(folder_ / "hub", split, ""); };
  EXPECT_THAT(files("train_sft"),
              testing::ElementsAre(testing::EndsWith("train_sft-00000-of-00001.parquet")));
  EXPECT_THAT(files("test_sft"), testing::ElementsAre(testing::EndsWith("a3ecf92.parquet")));
  EXPECT_THROW(files("train"), UsageError);
  write("imdb/train.parquet", "x");
  write("imdb/unsupervised.parquet", "x");
  EXPECT_THAT(split_files(folder_ / "imdb", "train", ""),
              testing::ElementsAre(testing::EndsWith("train.parquet")));
  write("one/rows.parquet", "x");
  EXPECT_EQ(split_files(folder_ / "one", "train", "").size(), 1U);
}

TEST_F(Dialects, pre_training_of_llama_factory_joins_texts_unless_it_says_otherwise) {
  const Recipe joined = recipe("model_name_or_path: m\nstage: pt\ndataset: a.jsonl\n");
  EXPECT_TRUE(joined.data.joined && joined.data.bos);
  EXPECT_TRUE(recipe("model_name_or_path: m\nstage: pt\npacking: true\ndataset: a.jsonl\n").data.joined);
  EXPECT_FALSE(recipe("model_name_or_path: m\nstage: pt\npacking: false\ndataset: a.jsonl\n").data.joined);
  EXPECT_TRUE(recipe("model_name_or_path: m\nstage: pt\npacking: false\ndataset: a.jsonl\n").data.bos);
}

TEST_F(Dialects, mixtures_are_trls) {
  const LoadedRecipe loaded =
      load("model_name_or_path: m\ntorch_dtype: bfloat16\ndatasets: [{path: a.jsonl}]\noutput_dir: o\n");
  EXPECT_EQ(loaded.other_tools.tool, Tool::trl);
  EXPECT_EQ(loaded.recipe.data.train.size(), 1U);
  EXPECT_EQ(load("model_name_or_path: m\ndataset_mixture: {datasets: [{id: a.jsonl, config: default}], "
                 "test_split_size: 10}\n")
                .recipe.data.eval.count,
            10);
}

TEST_F(Dialects, the_warm_up_of_axolotl_is_at_most_a_hundred_steps) {
  const Warmup warmup = recipe(kAxolotl).schedule.warmup;
  EXPECT_EQ(warmup.steps_of(10'000), 100);
  EXPECT_EQ(warmup.steps_of(1'000), 30);
  EXPECT_EQ(warmup.steps_of(60), 2);  // one step would be two
  EXPECT_EQ(warmup.steps_of(20), 0);
  EXPECT_EQ(recipe(kAxolotl + "warmup_ratio: 0.1\n").schedule.warmup.steps_of(39), 3);
  EXPECT_EQ(recipe(kAxolotl + "warmup_steps: 1\n").schedule.warmup.steps, 2);
}

TEST_F(Dialects, a_polynomial_of_power_1_is_a_line_to_its_last_rate) {
  const std::string base =
      "model_name_or_path: m\nstage: sft\nlearning_rate: 1e-4\nlr_scheduler_type: polynomial\n";
  EXPECT_EQ(recipe(base).schedule.name, ScheduleName::linear);
  EXPECT_DOUBLE_EQ(recipe(base).schedule.min_ratio, 1e-3);
  EXPECT_DOUBLE_EQ(recipe(base + "lr_scheduler_kwargs: {lr_end: 1e-5, power: 1.0}\n").schedule.min_ratio,
                   0.1);
  EXPECT_THAT(error_of(base + "lr_scheduler_kwargs: {power: 2}\n"),
              HasSubstr("of polynomials only those of power 1"));
  EXPECT_THAT(error_of("model_name_or_path: m\nstage: sft\nlr_scheduler_type: polynomial\n"),
              HasSubstr("needs a learning_rate beside it"));
}

TEST_F(Dialects, keys_of_adapters_alone_make_none) {
  EXPECT_EQ(recipe("base_model: m\nadapter:\nlora_r: 8\n").method.type, MethodType::full);
  EXPECT_EQ(recipe("model_name_or_path: m\ndataset_name: a.jsonl\nlora_r: 8\n").method.type,
            MethodType::full);
}

TEST_F(Dialects, a_quantised_base_of_torchtune_is_qlora) {
  EXPECT_EQ(
      recipe("model: {_component_: torchtune.models.llama3.lora_llama3_8b, lora_attn_modules: [q_proj], "
             "quantize_base: True}\ncheckpointer: {checkpoint_dir: m}\n")
          .method.type,
      MethodType::qlora);
}

TEST_F(Dialects, names_inside_of_messages_are_read_or_refused) {
  const auto entry = [](const std::string& keys) {
    return kAxolotl + "datasets: [{path: a.jsonl, type: chat_template, " + keys + "}]\n";
  };
  EXPECT_EQ(
      recipe(entry("message_property_mappings: {role: who, content: what}")).data.columns.at("message_role"),
      "who");
  EXPECT_FALSE(recipe(entry("message_property_mappings: {role: from, content: value}"))
                   .data.columns.contains("message_role"));
  EXPECT_THAT(error_of(entry("roles: {assistant: [narrator]}")), HasSubstr("'datasets.roles.assistant'"));
  write(
      "data/dataset_info.json",
      R"({"t": {"file_name": "a.jsonl", "formatting": "sharegpt", "tags": {"role_tag": "who", "content_tag": "what"}},
    "u": {"file_name": "a.jsonl", "formatting": "sharegpt", "tags": {"user_tag": "asker"}}})");
  const std::string base = "model_name_or_path: m\nstage: sft\n";
  EXPECT_EQ(recipe(base + "dataset: t\n").data.columns.at("message_content"), "what");
  EXPECT_THAT(error_of(base + "dataset: u\n"), HasSubstr("'asker' is no role here"));
}

TEST_F(Dialects, templates_of_llama_factory_are_its_own) {
  for (const char* name : {"default", "empty", "gemma", "gemma2", "granite3", "llama2", "llama3", "ministral",
                           "mistral", "openchat-3.6", "phi", "qwen", "qwen3", "qwen3_5", "qwen3_5_nothink",
                           "qwen3_6", "qwen3_nothink", "vicuna"})
    EXPECT_EQ(
        recipe(std::string("model_name_or_path: m\nstage: sft\ntemplate: ") + name + "\n").data.chat_template,
        std::string("llama-factory/") + name);
  EXPECT_THAT(error_of("model_name_or_path: m\nstage: sft\ntemplate: nobody\n"),
              HasSubstr("known are alpaca, breeze, chatml"));
  for (const auto& [name, same] : {std::pair{"gemma3", "gemma"}, {"ministral3", "ministral"}})
    EXPECT_EQ(
        recipe(std::string("model_name_or_path: m\nstage: sft\ntemplate: ") + name + "\n").data.chat_template,
        std::string("llama-factory/") + same);
}

TEST_F(Dialects, recipes_of_transformers_scripts_have_their_defaults) {
  const std::string end = "output_dir: o\n";
  for (const char* keys :
       {"task_name: sst2\n", "train_file: a.jsonl\nmax_source_length: 64\nmax_target_length: 32\n",
        "dataset_name: a.jsonl\ndo_train: true\nmax_seq_length: 64\n"}) {
    const LoadedRecipe loaded = load("model_name_or_path: m\n" + (keys + end));
    EXPECT_TRUE(loaded.other_tools.of_scripts) << keys;
    EXPECT_DOUBLE_EQ(loaded.recipe.optimizer.lr, 5e-5) << keys;
    EXPECT_EQ(loaded.recipe.precision, precision_presets()[0].parts) << keys;  // fp32
    EXPECT_EQ(loaded.recipe.log.every, 500) << keys;
    EXPECT_EQ(loaded.recipe.schedule.epochs, 3) << keys;
    EXPECT_EQ(loaded.other_tools.once.at("optimizer.lr"), "2e-5") << keys;
    EXPECT_EQ(loaded.other_tools.once.at("precision"), "bf16-master") << keys;
  }
  for (const char* keys :
       {"dataset_name: a.jsonl\ndo_train: true\nuse_peft: true\n", "dataset_name: a.jsonl\n"})
    EXPECT_FALSE(load("model_name_or_path: m\n" + (keys + end)).other_tools.of_scripts) << keys;
  EXPECT_DOUBLE_EQ(load("model_name_or_path: m\ntask_name: sst2\n", as("trl-1.16")).recipe.optimizer.lr,
                   2e-5);
  EXPECT_DOUBLE_EQ(recipe("model_name_or_path: m\ntask_name: sst2\nlearning_rate: 1e-3\n").optimizer.lr,
                   1e-3);
}

TEST_F(Dialects, bf16_of_axolotl_is_auto_unless_it_is_taken_away) {
  const auto precision = [&](const std::string& keys) { return recipe("base_model: m\n" + keys).precision; };
  const Precision fp32 = precision_presets()[0].parts;
  const Precision bf16 = precision_presets()[1].parts;
  const Precision pure = precision_presets()[3].parts;
  EXPECT_EQ(precision(""), pure);
  EXPECT_EQ(precision("fp16: false\n"), pure);
  EXPECT_EQ(precision("bf16: auto\n"), pure);
  EXPECT_EQ(precision("adapter: lora\n"), bf16);
  EXPECT_EQ(precision("adapter: qlora\nload_in_4bit: true\n"), bf16);
  EXPECT_EQ(precision("optimizer: adamw_bnb_8bit\n"), precision("optimizer: adamw_bnb_8bit\nbf16: true\n"));
  EXPECT_EQ(precision("bf16: false\n"), fp32);
  EXPECT_EQ(precision("bf16:\n"), fp32);  // nothing takes the default away
  EXPECT_EQ(precision("fp16: true\n").weights, DType::f16);
  EXPECT_EQ(precision("precision: fp32\n"), fp32);
  EXPECT_EQ(load("base_model: m\n").other_tools.once.at("precision"), "fp32");
}

TEST_F(Dialects, llama_factory_without_a_template_takes_the_models_or_none) {
  const LoadedRecipe loaded = load("model_name_or_path: m\nstage: sft\n");
  EXPECT_EQ(loaded.recipe.data.chat_template, "llama-factory");
  EXPECT_EQ(loaded.other_tools.once.at("data.template"), "auto");
}

TEST_F(Dialects, checkpoints_come_and_stay_as_the_tool_has_them) {
  const auto save = [&](const std::string& text) { return recipe(text).save; };
  const std::string factory = "model_name_or_path: m\nstage: sft\n";
  const std::string trl = "model_name_or_path: m\ndataset_name: a.jsonl\n";
  for (const std::string& text : {factory, trl}) {
    EXPECT_EQ(save(text).every.steps, 500);
    EXPECT_EQ(save(text).keep, kKeepAll);
    EXPECT_EQ(save(text + "save_strategy: epoch\n").every.unit, Every::Unit::epochs);
    EXPECT_FALSE(save(text + "save_strategy: 'no'\n").every.is_requested());
    EXPECT_FALSE(save(text + "save_steps: 0\n").every.is_requested());
    EXPECT_EQ(save(text + "save_total_limit: 3\n").keep, 3);
    EXPECT_EQ(save(text + "save_total_limit: 0\n").keep, kKeepAll);
    EXPECT_EQ(save(text + "save_total_limit:\n").keep, kKeepAll);
    EXPECT_EQ(save(text + "save: {keep: 1}\n").keep, 1);
  }
  EXPECT_EQ(save(kAxolotl).every.unit, Every::Unit::epochs);
  EXPECT_EQ(save(kAxolotl).keep, 4);
  EXPECT_EQ(save(kAxolotl + "save_total_limit: 0\n").keep, 4);
  EXPECT_EQ(save(kAxolotl + "saves_per_epoch: 1\nnum_epochs: 1\n").every.unit, Every::Unit::epochs);
  EXPECT_FALSE(save(kAxolotl + "val_set_size: 0.1\nsave_strategy: best\n").every.is_requested());
  EXPECT_EQ(save(kTorchtune).every.unit, Every::Unit::epochs);
  EXPECT_EQ(save(kTorchtune).keep, kKeepAll);
  EXPECT_FALSE(save(kTorchtune + "save_last_epoch_only: true\n").every.is_requested());
  EXPECT_EQ(recipe("model: m\n").save.keep, 2);
  const auto once = load(factory).other_tools.once;
  EXPECT_EQ(once.at("save.every"), "0");
  EXPECT_EQ(once.at("save.keep"), "2");
  EXPECT_FALSE(load(factory + "save_steps: 10\n").other_tools.once.contains("save.every"));
  EXPECT_THAT(effective_yaml(recipe(factory)), HasSubstr("keep: all"));
}

TEST_F(Dialects, an_evaluation_waits_for_the_rows_that_a_later_layer_names) {
  const std::string base = "model_name_or_path: m\nstage: sft\n";
  const auto with = [&](const std::string& keys, const std::vector<std::string>& sets) {
    Overrides overrides;
    overrides.sets = sets;
    return load(base + keys, overrides);
  };
  const LoadedRecipe epoch = with("eval_strategy: epoch\n", {"data.eval=a.jsonl"});
  EXPECT_EQ(epoch.recipe.eval.every.unit, Every::Unit::epochs);
  EXPECT_THAT(notes(epoch), Not(Contains("eval_strategy: epoch")));
  EXPECT_EQ(with("eval_strategy: steps\neval_steps: 20\n", {"data.eval=a.jsonl"}).recipe.eval.every.steps,
            20);
  EXPECT_EQ(with("eval_strategy: epoch\n", {"data.eval=a.jsonl", "eval.every=5"}).recipe.eval.every.steps, 5);
  EXPECT_FALSE(with("eval_strategy: 'no'\n", {"data.eval=a.jsonl"}).recipe.eval.every.is_requested());
  EXPECT_THAT(notes(with("eval_strategy: epoch\n", {})), Contains("eval_strategy: epoch"));
}

TEST_F(Dialects, the_handbooks_second_split_is_evaluated_on) {
  setenv("HF_HUB_CACHE", folder_.c_str(), 1);
  write("datasets--Org--rows/refs/main", "1");
  for (const char* name : {"train_sft-00000-of-00001.parquet", "test_sft-00000-of-00001.parquet"})
    write(std::string("datasets--Org--rows/snapshots/1/data/") + name, "x");
  const std::string mixture =
      "model_name_or_path: m\ndataset_mixer: {Org/rows: 0.5}\ndataset_splits: [train_sft, test_sft]\n";
  const Recipe read = recipe(mixture + "eval_strategy: epoch\n");
  EXPECT_THAT(read.data.eval.path, testing::EndsWith("test_sft-00000-of-00001.parquet"));
  EXPECT_THAT(read.data.train.front().path, testing::EndsWith("train_sft-00000-of-00001.parquet"));
  EXPECT_TRUE(read.data.eval.rows.is_all());
  EXPECT_EQ(read.eval.every.unit, Every::Unit::epochs);
  EXPECT_EQ(recipe(mixture).data.eval.kind, EvalSource::Kind::none);
  unsetenv("HF_HUB_CACHE");
}

// --- refusals without a reason ---------------------------------------------------------------------------

TEST_F(Dialects, keys_that_say_nothing_more_are_noted) {
  const std::string factory = "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\n";
  const std::string script = "model_name_or_path: m\nmax_source_length: 64\nmax_target_length: 32\n";
  EXPECT_THAT(notes(load(factory + "seed: 1\ndata_seed: 1\n")), Contains("data_seed: 1"));
  EXPECT_THAT(notes(load(factory + "data_seed: 42\n")), Contains("data_seed: 42"));
  EXPECT_THAT(error_of(factory + "seed: 1\ndata_seed: 2\n"), HasSubstr("a seed for the order of rows alone"));
  EXPECT_THAT(notes(load(factory + "upcast_layernorm: true\n")), Contains("upcast_layernorm: true"));
  EXPECT_THAT(error_of("model_name_or_path: m\nstage: sft\nfinetuning_type: full\nupcast_layernorm: true\n"),
              HasSubstr("norms that train"));
  EXPECT_THAT(notes(load(script + "source_lang: en\ntarget_lang: de\nval_max_target_length: 64\n")),
              testing::IsSupersetOf({"source_lang: en", "target_lang: de", "val_max_target_length: 64"}));
  const std::string torchtune = kTorchtune + "exp: a\nuser: {name: b}\noutput_dir: out/${exp}\n";
  EXPECT_THAT(error_of(torchtune), AllOf(HasSubstr("unknown key 'user'"), Not(HasSubstr("'exp'"))));
  EXPECT_THAT(*recipe(kTorchtune + "exp: a\noutput_dir: out/${exp}\n").output, testing::EndsWith("out/a"));
  EXPECT_THAT(error_of(kTorchtune + "exp: a\n"), HasSubstr("unknown key 'exp'"));
}

TEST_F(Dialects, a_part_of_an_epoch_may_be_changed) {
  const std::string base = "model_name_or_path: m\nstage: sft\n";
  EXPECT_EQ(
      recipe(base + "num_train_epochs: 1.5\n", {"schedule.epochs=2", "schedule.max_steps=9"}).schedule.epochs,
      2);
  EXPECT_EQ(recipe(base + "num_train_epochs: 3.0\n", {"num_train_epochs=0.25"}).schedule.epochs, 0.25);
}

TEST_F(Dialects, columns_of_tools_systems_and_histories_are_read) {
  const auto entry = [&](const std::string& columns) {
    write("data/dataset_info.json",
          R"({"t": {"file_name": "a.jsonl", "formatting": "sharegpt", "columns": )" + columns + "}}");
    return std::string("model_name_or_path: m\nstage: sft\ndataset: t\n");
  };
  EXPECT_EQ(recipe(entry(R"({"messages": "talk", "tools": "functions"})")).data.columns.at("tools"),
            "functions");
  EXPECT_EQ(recipe(entry(R"({"messages": "talk", "system": "rules"})")).data.columns.at("system"), "rules");
  const auto ranking = [&](const std::string& formatting, const std::string& columns) {
    write("data/dataset_info.json", R"({"t": {"file_name": "a.jsonl", "ranking": true, "formatting": ")" +
                                        formatting + R"(", "columns": )" + columns + "}}");
    return std::string("model_name_or_path: m\nstage: dpo\ndataset: t\n");
  };
  const auto texts =
      recipe(ranking("alpaca", R"({"prompt": "q", "system": "rules", "history": "before"})")).data.columns;
  EXPECT_EQ(texts.at("system") + " " + texts.at("history"), "rules before");
  EXPECT_EQ(recipe(ranking("sharegpt", R"({"messages": "q", "system": "rules"})")).data.columns.at("system"),
            "rules");
  EXPECT_THAT(error_of(ranking("sharegpt", R"({"messages": "q", "history": "before"})")),
              HasSubstr("history"));
}

TEST_F(Dialects, a_distilled_model_is_of_its_students_family) {
  EXPECT_EQ(unsupported_family("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"), std::nullopt);
  EXPECT_EQ(unsupported_family("deepseek-ai/DeepSeek-R1-Distill-Llama-8B"), std::nullopt);
  EXPECT_EQ(unsupported_family("deepseek-ai/DeepSeek-V2-Lite"), "deepseek");
}

TEST_F(Dialects, an_unknown_key_of_a_script_can_be_taken_out) {
  EXPECT_EQ(recipe("model: m\nmodel_class: llm\nlr: 1e-3\n", {"model_class=null"}).optimizer.lr, 1e-3);
  EXPECT_THAT(error_of("model: m\nmodel_class: llm\n", {"model_class=other"}), HasSubstr("model_class"));
}

TEST_F(Dialects, losses_of_supervised_training_are_refused_for_what_they_are) {
  const std::string base = "model_name_or_path: m\ndataset_name: a.jsonl\n";
  EXPECT_THAT(error_of(base + "loss_type: dft\n"),
              AllOf(HasSubstr("'dft' does not exist here; nll"), Not(HasSubstr("dpo"))));
}

TEST_F(Dialects, keys_of_pairs_in_a_recipe_of_trl_are_those_of_dpo) {
  const std::string base = "model_name_or_path: m\ndataset_name: a.jsonl\n";
  for (const char* keys : {"loss_type: sigmoid\n", "beta: 0.1\n", "max_prompt_length: 512\n"}) {
    const LoadedRecipe loaded = load(base + keys);
    EXPECT_EQ(loaded.recipe.task, Task::dpo) << keys;
    EXPECT_DOUBLE_EQ(loaded.recipe.optimizer.lr, 1e-6) << keys;  // trl/trainer/dpo_config.py
    EXPECT_THAT(loaded.other_tools.notes.at("task"), HasSubstr("DPO is taken")) << keys;
  }
  EXPECT_EQ(recipe(base + "task: reward\n").optimizer.lr, 1e-4);
  EXPECT_EQ(recipe(base).optimizer.lr, 2e-5);
  EXPECT_THAT(error_of(base + "beta: 0.1\noutput_dir: runs/zephyr-KTO\n"), HasSubstr("a name here says kto"));
  EXPECT_EQ(recipe(base + "beta: 0.1\noutput_dir: runs/zephyr-kto\n", {"task=dpo"}).task, Task::dpo);
  EXPECT_THAT(error_of(base + "max_prompt_length: 512\noutput_dir: runs/sft\n"),
              HasSubstr("a name here says sft"));
  EXPECT_EQ(recipe(base + "max_prompt_length: 512\noutput_dir: runs/sft\n", {"task=sft"}).task, Task::sft);
  EXPECT_THAT(load(base + "max_prompt_length: 512\n").other_tools.no_effect.back().reason,
              HasSubstr("since 0.29"));
  write("q.yaml", base + "max_prompt_length: 512\n");
  EXPECT_THROW((void)load_recipe((folder_ / "q.yaml").string(), as("trl-0.16")), UsageError);
}

TEST_F(Dialects, thoughts_are_a_matter_of_templates_with_thoughts) {
  const std::string base = "model_name_or_path: m\nstage: sft\nenable_thinking: false\ntemplate: ";
  EXPECT_EQ(error_of(base + "qwen\n"), "no error");
  EXPECT_EQ(error_of(base + "llama3\n"), "no error");
  EXPECT_EQ(recipe(base + "qwen3\n").data.chat_template, "llama-factory/qwen3_unthinking");
  EXPECT_EQ(recipe(base + "qwen3\n", {"enable_thinking=true"}).data.chat_template, "llama-factory/qwen3");
  for (const char* name : {"qwen3_5", "deepseekr1", "mimo"})
    EXPECT_THAT(error_of(base + name + "\n"), HasSubstr("answers without thoughts")) << name;
}

TEST_F(Dialects, resuming_where_there_is_nothing_to_resume_begins_anew) {
  const std::string base = "model_name_or_path: m\nstage: sft\nresume_from_checkpoint: ";
  EXPECT_EQ(error_of(base + "true\n"), "no error");
  EXPECT_EQ(error_of(base + "null\n"), "no error");
  EXPECT_THAT(error_of(base + "out/checkpoint-500\n"), HasSubstr("resume_from_checkpoint"));
}

TEST_F(Dialects, sections_of_a_training_script_are_read_through) {
  const std::string text =
      "experiment: {name: first, stage: qlora, seed: 7}\n"
      "model: {name: m, dtype: bfloat16}\n"
      "data: {train_path: a.jsonl, train_split: train, max_length: 96}\n"
      "lora: {r: 4, alpha: 8, bias: none, task_type: CAUSAL_LM, target_modules: [q_proj]}\n"
      "quantization: {enabled: true, load_in_4bit: true, compute_dtype: bfloat16}\n"
      "training:\n  lr: 3e-4\n  num_train_epochs: 2\n  per_device_train_batch_size: 2\n"
      "  gradient_accumulation_steps: 3\n  wandb_run_name: x\n  scheduler: cosine\n"
      "wandb: {project: p, log: 3}\n";
  const LoadedRecipe loaded = load(text);
  const Recipe& read = loaded.recipe;
  EXPECT_EQ(read.method.type, MethodType::qlora);
  EXPECT_EQ(read.method.r, 4);
  EXPECT_DOUBLE_EQ(read.optimizer.lr, 3e-4);
  EXPECT_EQ(read.batch.effective, 6);
  EXPECT_EQ(read.schedule.epochs, 2);
  EXPECT_EQ(read.schedule.name, ScheduleName::cosine);
  EXPECT_EQ(read.data.max_length, 96);
  EXPECT_EQ(read.seed, 7);
  EXPECT_THAT(notes(loaded), testing::IsSupersetOf({"experiment.name: first", "wandb.project: p",
                                                    "wandb_run_name: x", "data.train_split: train"}));
  EXPECT_THAT(error_of(text + "generator: {temperature: 1}\n"), HasSubstr("unknown key 'generator'"));
  EXPECT_THAT(error_of("model: {name: m}\ntraining: {lr: 1e-3, overfit: 3}\n"),
              HasSubstr("q.yaml:2: unknown key 'training.overfit'"));
  EXPECT_THAT(error_of("model: {name: m, hidden_dim: 8}\ntraining: {lr: 1e-3}\n"),
              HasSubstr("unknown key 'model.hidden_dim'"));
  EXPECT_THAT(error_of("model: m\ndata: {train: a.jsonl, max_lenght: 3}\n"), HasSubstr("did you mean"));
}

TEST_F(Dialects, adapters_of_a_section_that_is_off_are_none) {
  const std::string text = "model: {name: m}\ntraining: {num_train_epochs: 1}\n";
  EXPECT_EQ(recipe(text + "lora: {enabled: false, r: 8}\n").method.type, MethodType::full);
  EXPECT_EQ(recipe(text + "lora: {enabled: true, r: 8}\n").method.type, MethodType::lora);
  EXPECT_EQ(recipe(text + "lora: {r: 8}\nquantization: {enabled: false, load_in_4bit: true}\n").method.type,
            MethodType::lora);
}

TEST_F(Dialects, keys_about_logs_of_a_recipe_are_noted) {
  EXPECT_THAT(notes(load(kAxolotl + "experiment_name: x\nwandb_whatever: 3\n")),
              testing::IsSupersetOf({"experiment_name: x", "wandb_whatever: 3"}));
}

TEST_F(Dialects, what_is_no_yaml_is_called_by_its_name) {
  const auto error = [&](const std::string& name, const std::string& text) -> std::string {
    write(name, text);
    try {
      (void)load_recipe((folder_ / name).string());
    } catch (const UsageError& caught) {
      return caught.what();
    }
    return "no error";
  };
  EXPECT_THAT(error("run.sh", "#!/bin/sh\nset -e: x: y\npython train.py\n"),
              HasSubstr("is a script that starts no training"));
  EXPECT_THAT(error("run.py", "import x: y: z\n"), HasSubstr("is a program, not a recipe"));
  EXPECT_THAT(error("README.md", "# Title: a: b\n```yaml\nmodel: m\n```\n"),
              HasSubstr("is a document, not a recipe"));
  EXPECT_THAT(error("q.yml", "model: m: n\n"), HasSubstr("q.yml:1: "));
}

TEST_F(Dialects, another_method_leaves_out_what_the_file_says_of_the_first) {
  const std::string text = "model: m\nmethod: {type: lora, r: 8, alpha: 16}\n";
  Overrides overrides;
  overrides.sets = {"method.type=full"};
  const LoadedRecipe loaded = load(text, overrides);
  EXPECT_EQ(loaded.recipe.method.type, MethodType::full);
  EXPECT_THAT(loaded.other_tools.notes.at("method"), HasSubstr("method.r, method.alpha of the recipe"));
  EXPECT_THAT(error_of(text, {"method.type=full", "method.r=4"}), HasSubstr("method.r: has no effect with"));
  EXPECT_THAT(error_of("model: m\nadapter: a\n", {"method.type=full"}), HasSubstr("continues LoRA training"));
  EXPECT_THAT(error_of("model: m\nmethod: {type: full, r: 8}\n"), HasSubstr("has no effect with"));
}

// --- versions --------------------------------------------------------------------------------------------

TEST_F(Dialects, the_newest_version_is_assumed_and_another_can_be_named) {
  const std::string text = "model_name_or_path: m\ndataset_name: a.jsonl\n";
  const LoadedRecipe newest = load(text);
  EXPECT_EQ(newest.other_tools.version.version, (Version{{1, 16, 0}}));
  EXPECT_TRUE(newest.other_tools.version.is_assumed);
  EXPECT_EQ(newest.recipe.precision, precision_presets()[2].parts);  // bf16-master
  const LoadedRecipe older = load(text, as("trl-0.16.1"));
  EXPECT_FALSE(older.other_tools.version.is_assumed);
  EXPECT_EQ(older.recipe.precision, precision_presets()[0].parts);  // fp32
  EXPECT_EQ(older.recipe.log.every, 500);
  EXPECT_THAT([&] { (void)load(text, as("trl-0.1")); },
              testing::ThrowsMessage<UsageError>(HasSubstr("known since")));
  EXPECT_THAT([&] { (void)load(text, as("x-1")); },
              testing::ThrowsMessage<UsageError>(HasSubstr("is no tool here")));
}

TEST_F(Dialects, a_default_is_reported_where_it_is_not_ours) {
  const auto& defaults = load("model_name_or_path: m\ndataset_name: a.jsonl\n").other_tools.defaults;
  EXPECT_THAT(defaults, Contains("schedule.name: linear"));
  EXPECT_THAT(defaults, Contains("data.train_on_prompt: messages"));
  EXPECT_THAT(defaults, Not(Contains(testing::StartsWith("data.shuffle"))));  // true in both
}

// --- refusals that were none -----------------------------------------------------------------------------

TEST_F(Dialects, parts_of_splits_and_the_first_rows_are_ranges) {
  const Recipe read = recipe(
      kTorchtune + kLlama3 +
      "dataset: {_component_: torchtune.datasets.alpaca_dataset, source: a.jsonl, split: 'train[:95%]'}\n"
      "dataset_val: {_component_: torchtune.datasets.alpaca_dataset, source: a.jsonl, split: 'train[95%:]'}\n"
      "run_val_every_n_steps: 50\n");
  EXPECT_EQ(read.data.train.front().rows, parse_row_range(":95%"));
  EXPECT_EQ(read.data.eval.rows, parse_row_range("95%:"));
  EXPECT_EQ(read.eval.every.steps, 50);
  EXPECT_EQ(recipe("model_name_or_path: m\nstage: sft\ndataset: a.jsonl\nmax_samples: 1000\n")
                .data.train.front()
                .rows,
            parse_row_range(":1000"));
}

TEST_F(Dialects, what_a_missing_data_set_would_be_stays_known_when_another_is_named) {
  const std::string text =
      kTorchtune + kLlama3 + "dataset: {_component_: torchtune.datasets.alpaca_cleaned_dataset}\n";
  setenv("HF_HUB_CACHE", (folder_ / "none").c_str(), 1);
  EXPECT_THAT(error_of(text), HasSubstr("plimsoll fetch yahma/alpaca-cleaned --dataset"));
  EXPECT_EQ(recipe(text, {"data.train=a.jsonl"}).data.format, RowFormat::alpaca);
  unsetenv("HF_HUB_CACHE");
}

TEST_F(Dialects, a_device_of_another_build_is_noted) {
  EXPECT_THAT(notes(load(kTorchtune + "device: cuda\n")), Contains("device: cuda"));
}

TEST_F(Dialects, an_empty_list_of_layers_is_all_of_them_as_peft_has_it) {
  EXPECT_EQ(recipe(kAxolotl + "peft_layers_to_transform: []\n").method.layers,
            recipe(kAxolotl).method.layers);
}

// A device that is set in addition to such a file is a device of this program.
TEST_F(Dialects, a_device_that_is_set_beside_another_tools_file_is_ours) {
  for (const std::string& text : {kTorchtune + "device: cuda\n", kAxolotl})
    EXPECT_EQ(recipe(text, {"device=card", "memory.device=4GiB"}).device, DeviceChoice::card);
}

TEST_F(Dialects, special_tokens_are_asked_for_by_name) {
  const Recipe read =
      recipe(kAxolotl + "special_tokens: {pad_token: <pad>, eos_token: </s>, bos_token: <s>}\n");
  EXPECT_EQ(read.data.special_tokens.at("eos_token"), "</s>");
  EXPECT_EQ(read.data.special_tokens.size(), 2U);
}

TEST_F(Dialects, eight_bit_states_go_with_full_bf16) {
  const Recipe read = recipe("base_model: m\noptimizer: adamw_bnb_8bit\nbf16: true\nlearning_rate: 1e-5\n");
  EXPECT_EQ(read.precision.weights, DType::bf16);
  EXPECT_EQ(read.precision.gradients, DType::bf16);
  EXPECT_EQ(read.precision.states, DType::f32);
}

TEST_F(Dialects, a_base_in_8_bits_is_one_here_with_a_note_on_what_differs) {
  const std::string factory = "model_name_or_path: m\nstage: sft\n";
  for (const std::string& text : {kAxolotl + "load_in_8bit: true\n", factory + "quantization_bit: 8\n"}) {
    const LoadedRecipe read = load(text);
    EXPECT_EQ(read.recipe.method.type, MethodType::qlora) << text;
    EXPECT_EQ(read.recipe.method.bits, 8) << text;
    EXPECT_THAT(read.other_tools.notes.at("8 bits"), HasSubstr("activations are not quantised")) << text;
  }
  const Recipe trl =
      recipe("model_name_or_path: m\ndataset_name: a.jsonl\nuse_peft: true\nload_in_8bit: true\n");
  EXPECT_EQ(trl.method.bits, 8);
  EXPECT_EQ(trl.method.type, MethodType::qlora);
  EXPECT_EQ(recipe(kAxolotl + "load_in_8bit: false\n").method.type, MethodType::lora);
  EXPECT_EQ(error_of(kAxolotl + "load_in_8bit: false\n"), "no error");
}

TEST_F(Dialects, eight_bits_are_set_to_four_and_to_none) {
  const std::string factory = "model_name_or_path: m\nstage: sft\n";
  const Recipe four = recipe(kAxolotl + "load_in_8bit: true\n", {"load_in_8bit=false", "load_in_4bit=true"});
  EXPECT_EQ(four.method.type, MethodType::qlora);
  EXPECT_EQ(four.method.bits, 4);
  EXPECT_EQ(recipe(factory + "quantization_bit: 8\n", {"quantization_bit=4"}).method.bits, 4);
  EXPECT_EQ(recipe(factory + "quantization_bit: 4\n", {"quantization_bit=8"}).method.bits, 8);
  EXPECT_EQ(recipe(kAxolotl + "load_in_8bit: true\n", {"load_in_8bit=false"}).method.type, MethodType::lora);
  EXPECT_EQ(recipe(kAxolotl + "load_in_8bit: true\n", {"method.bits=4"}).method.bits, 4);
}

TEST_F(Dialects, eight_bits_that_contradict_or_cannot_train_are_refused) {
  EXPECT_THAT(error_of(kAxolotl + "load_in_8bit: true\nload_in_4bit: true\n"),
              HasSubstr("load_in_8bit: contradicts 'load_in_4bit: true'; keep one of them"));
  EXPECT_THAT(error_of("base_model: m\nadapter: qlora\nload_in_8bit: true\n"),
              HasSubstr("load_in_8bit: contradicts 'adapter: qlora'; keep one of them"));
  EXPECT_THAT(error_of("base_model: m\nload_in_8bit: true\n"),
              HasSubstr("8-bit weights cannot train; adapters beside them do (method.type: qlora)"));
}

TEST_F(Dialects, watchdogs_patience_and_uploads_are_keys_of_ours) {
  const Recipe read =
      recipe(kAxolotl +
             "loss_watchdog_threshold: 5.0\nloss_watchdog_patience: 4\nearly_stopping_patience: 3\n"
             "val_set_size: 0.1\nhub_model_id: me/mine\n");
  EXPECT_EQ(read.stop.above, 5.0);
  EXPECT_EQ(read.stop.above_steps, 4);
  EXPECT_EQ(read.stop.patience, 3);
  EXPECT_EQ(read.save.hub, "me/mine");
  EXPECT_EQ(
      recipe("model_name_or_path: m\ndataset_name: a.jsonl\npush_to_hub: true\noutput_dir: runs/zephyr\n")
          .save.hub,
      "zephyr");
}

TEST_F(Dialects, evaluations_and_checkpoints_come_by_epoch_or_share) {
  const std::string base = kAxolotl + "val_set_size: 0.1\nnum_epochs: 2\n";
  EXPECT_EQ(recipe(base + "evals_per_epoch: 4\n").eval.every.percent, 12.5);
  EXPECT_EQ(recipe(base + "saves_per_epoch: 1\n").save.every.percent, 50.0);
  EXPECT_EQ(recipe(base + "eval_strategy: epoch\n").eval.every.unit, Every::Unit::epochs);
  EXPECT_EQ(recipe(base + "save_steps: 0.25\n").save.every.percent, 25.0);
  EXPECT_EQ(
      recipe("model_name_or_path: m\nstage: sft\nval_size: 0.1\neval_strategy: steps\nlogging_steps: 20\n")
          .eval.every.steps,
      20);
}

TEST_F(Dialects, the_end_of_a_cosine_is_a_share_of_its_beginning) {
  const std::string base =
      "model_name_or_path: m\ndataset_name: a.jsonl\nlearning_rate: 1.0e-4\nlr_scheduler_type: "
      "cosine_with_min_lr\n";
  EXPECT_EQ(recipe(base + "lr_scheduler_kwargs: {min_lr_rate: 0.1}\n").schedule.min_ratio, 0.1);
  EXPECT_NEAR(recipe(base + "lr_scheduler_kwargs: {min_lr: 1.0e-5}\n").schedule.min_ratio, 0.1, 1e-12);
  EXPECT_THAT(error_of(base + "lr_scheduler_kwargs: {power: 2}\n"), HasSubstr("lr_scheduler_kwargs: "));
}

TEST_F(Dialects, templates_in_jinja_stand_in_for_the_folders) {
  EXPECT_EQ(recipe("model_name_or_path: m\ndataset_name: a.jsonl\nchat_template: \"{{ messages }}\\n{% if x "
                   "%}{% endif %}\"\n")
                .data.template_source,
            "{{ messages }}\n{% if x %}{% endif %}");
}

TEST_F(Dialects, label_smoothing_is_refused_by_name) {
  EXPECT_THAT(error_of("model_name_or_path: m\ndataset_name: a.jsonl\nlabel_smoothing_factor: 0.1\n"),
              HasSubstr("label_smoothing_factor: not supported"));
}

// --- names -----------------------------------------------------------------------------------------------

TEST_F(Dialects, the_key_that_is_unknown_is_the_one_named) {
  EXPECT_THAT(
      error_of(kTorchtune + kLlama3 +
               "dataset: {_component_: torchtune.datasets.alpaca_dataset, source: a.jsonl, filter_fn: f}\n"),
      HasSubstr("'dataset.filter_fn' is not known here"));
  EXPECT_THAT(error_of(kTorchtune + "checkpointer.nobody: 3\n"),
              HasSubstr("unknown key 'checkpointer.nobody'"));
  EXPECT_THAT(error_of("model: {_component_: torchtune.models.llama3.llama3_8b}\ncheckpointer: "
                       "{checkpoint_dir: m, nobody: 3}\n"),
              HasSubstr("unknown key 'checkpointer.nobody'"));
}

TEST_F(Dialects, unknown_keys_that_say_nothing_are_noted) {
  const LoadedRecipe loaded = load(kAxolotl + "wandb_whatever:\nnobody_knows: ''\nnor_this: []\n");
  EXPECT_THAT(notes(loaded), testing::IsSupersetOf({"wandb_whatever: null", "nor_this: []"}));
  // axolotl would not read it either; a name of training stays an error.
  EXPECT_THAT(notes(load(kAxolotl + "nobody_knows: 3\n")), Contains("nobody_knows: 3"));
  for (const char* key :
       {"warmup_ration: 0.1", "softprompt_tokens: 3", "nobody_knows: {a: 1}", "loss_of_mine: 2"})
    EXPECT_THAT(error_of(kAxolotl + key + "\n"), HasSubstr("unknown key")) << key;
  EXPECT_THAT(error_of("model: m\nnobody_knows:\n"),
              HasSubstr("unknown key 'nobody_knows'"));  // in a recipe of ours
}

TEST_F(Dialects, a_family_that_does_not_exist_is_told_first) {
  const std::string error = error_of("base_model: google/gemma-7b\nadapter: lora\nnobody: {a: 1}\n");
  EXPECT_THAT(error.substr(0, error.find('\n')), HasSubstr("a family that is not supported: gemma"));
  write("m/config.json", R"({"model_type": "falcon"})");
  const std::string here = error_of(kAxolotl + "nobody: {a: 1}\n");
  EXPECT_THAT(here.substr(0, here.find('\n')), HasSubstr("falcon"));
  EXPECT_EQ(unsupported_family("meta-llama/Llama-3.2-1B"), std::nullopt);
  EXPECT_EQ(unsupported_family("microsoft/phi-2"), "phi");
  for (const char* later :
       {"google/gemma-2-2b", "google/gemma-3-1b-it", "torchtune.models.gemma2.gemma2_2b",
        "torchtune.models.phi3.phi3_mini", "microsoft/Phi-3.5-mini-instruct", "microsoft/phi-4",
        "allenai/OLMo-2-0425-1B", "allenai/Olmo-3-7B", "ibm-granite/granite-3.3-2b-base"})
    EXPECT_EQ(unsupported_family(later), std::nullopt) << later;
  EXPECT_EQ(unsupported_family("allenai/OLMo-7B-hf"), "olmo");
  EXPECT_EQ(unsupported_family("ibm-granite/granite-3.0-1b-a400m-base"), "mixture of experts");
}

TEST_F(Dialects, a_key_of_the_file_can_be_replaced_or_taken_out) {
  const std::string text =
      "model_name_or_path: m\nstage: sft\ndataset: a.jsonl\nmax_samples: 10\nlabel_smoothing_factor: 0.1\n";
  const Recipe read = recipe(text, {"max_samples=null", "label_smoothing_factor=0"});
  EXPECT_TRUE(read.data.train.front().rows.is_all());
  EXPECT_EQ(recipe(kAxolotl + "loss_watchdog_threshold: 5\n", {"loss_watchdog_threshold=0"}).stop.above,
            std::nullopt);
  EXPECT_EQ(recipe(kAxolotl + "nobody_knows: 3\n", {"nobody_knows=null"}).method.r, 8);
  EXPECT_EQ(
      recipe(kTorchtune + kLlama3 + "dataset: {_component_: torchtune.datasets.alpaca_cleaned_dataset}\n",
             {"dataset.source=a.jsonl"})
          .data.train.size(),
      1U);
}

}  // namespace
}  // namespace plimsoll
