// What recipes of other tools mean, as real files are written: files that are elsewhere, repeated keys,
// versions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "recipe/load.h"
#include "recipe/option.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;

class RealFiles : public testing::Test {
 protected:
  RealFiles()
      : folder_(testing::TempDir() + "real_files/" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    write("a.jsonl", "{}");
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  [[nodiscard]] LoadedRecipe load(const std::string& text, const Overrides& overrides = {}) const {
    write("q.yaml", text);
    return load_recipe((folder_ / "q.yaml").string(), overrides);
  }
  [[nodiscard]] Recipe recipe(const std::string& text) const { return load(text).recipe; }
  [[nodiscard]] std::string error_of(const std::string& text, const Overrides& overrides = {}) const {
    try {
      (void)load(text, overrides);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  }
  [[nodiscard]] static std::vector<std::string> notes(const LoadedRecipe& loaded) {
    std::vector<std::string> theirs;
    for (const auto& note : loaded.other_tools.no_effect) theirs.push_back(note.theirs);
    return theirs;
  }

  fs::path folder_;
};

const std::string kAxolotlRun = "base_model: m\nadapter: lora\nlora_r: 8\nlora_alpha: 16\n";
const std::string kTrl = "model_name_or_path: m\ndataset_name: a.jsonl\nlearning_rate: 1e-5\n";

TEST_F(RealFiles, the_last_of_repeated_keys_counts_and_the_others_are_noted) {
  const LoadedRecipe loaded =
      load(kAxolotlRun + "learning_rate: 0.0002\noptimizer: adamw_torch\nlearning_rate: 1e-4\n");
  EXPECT_DOUBLE_EQ(loaded.recipe.optimizer.lr, 1e-4);
  EXPECT_THAT(notes(loaded), Contains("learning_rate: 0.0002"));
  // OmegaConf, which reads torchtune's files, refuses them.
  EXPECT_THAT(
      error_of("model: {_component_: torchtune.models.llama3.llama3_8b}\ncheckpointer: {checkpoint_dir: m}\n"
               "epochs: 1\nepochs: 2\n"),
      HasSubstr("epochs"));
}

TEST_F(RealFiles, numbers_have_underscores) {
  EXPECT_EQ(recipe(kAxolotlRun + "sequence_len: 500_000\n").data.max_length, 500'000);
  EXPECT_THAT(error_of(kAxolotlRun + "sequence_len: _5\n"), HasSubstr("expected a whole number"));
}

TEST_F(RealFiles, deepspeed_files_that_the_tools_ship_are_known_by_name) {
  EXPECT_EQ(error_of(kAxolotlRun + "deepspeed: deepspeed_configs/zero3_bf16.json\n"), "no error");
  EXPECT_EQ(error_of(kAxolotlRun + "deepspeed: /elsewhere/ds_z2_offload_config.json\n"), "no error");
  EXPECT_THAT(error_of(kAxolotlRun + "deepspeed: nobody/mine.json\n"), HasSubstr("mine.json"));
  write("mine.json", R"({"zero_optimization": {"stage": 2}, "fp16": {"enabled": true}})");
  EXPECT_THAT(error_of(kAxolotlRun + "deepspeed: mine.json\n"), HasSubstr("'fp16.enabled'"));
  EXPECT_EQ(load(kAxolotlRun + "fp16: true\nbf16: false\ndeepspeed: mine.json\n").recipe.precision.weights,
            DType::f16);
  write("mine.json",
        R"({"zero_optimization": {"stage": 2}, "optimizer": {"type": "Lamb", "params": {"lr": 1}}})");
  EXPECT_THAT(error_of(kAxolotlRun + "deepspeed: mine.json\n"), HasSubstr("'optimizer' of its own"));
  write("mine.json",
        R"({"zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})");
  EXPECT_EQ(error_of(kAxolotlRun + "deepspeed: mine.json\n"), "no error");
}

TEST_F(RealFiles, shares_of_the_handbook_are_the_first_rows) {
  const Recipe read =
      recipe("model_name_or_path: m\ndataset_mixer: {a.jsonl: 0.25}\ndataset_splits: [train]\n");
  ASSERT_EQ(read.data.train.size(), 1U);
  EXPECT_EQ(read.data.train.front().rows.of(100), (std::pair<int64_t, int64_t>{0, 25}));
  EXPECT_THAT(error_of("model_name_or_path: m\ndataset_mixer: {a.jsonl: 1.5}\n"),
              HasSubstr("a share of the rows"));
}

TEST_F(RealFiles, rows_of_tokens_have_no_type) {
  EXPECT_EQ(recipe(kAxolotlRun + "datasets: [{path: a.jsonl, type: }]\n").data.format, RowFormat::input_ids);
}

TEST_F(RealFiles, an_end_of_turn_is_asked_for_by_name) {
  const Recipe read =
      recipe(kAxolotlRun + "datasets: [{path: a.jsonl, type: chat_template}]\neot_tokens: ['<|eot_id|>']\n");
  EXPECT_EQ(read.data.special_tokens.at("eot_token"), "<|eot_id|>");
  EXPECT_TRUE(recipe(kAxolotlRun + "datasets: [{path: a.jsonl, type: alpaca}]\neot_tokens: [a, b]\n")
                  .data.special_tokens.empty());
  EXPECT_THAT(
      error_of(kAxolotlRun + "datasets: [{path: a.jsonl, type: chat_template}]\neot_tokens: [a, b]\n"),
      HasSubstr("several tokens that end a turn"));
}

TEST_F(RealFiles, sharegpt_is_answered_with_its_successor) {
  EXPECT_THAT(error_of(kAxolotlRun + "datasets: [{path: a.jsonl, type: sharegpt, conversation: chatml}]\n"),
              HasSubstr("chat_template with field_messages: conversations"));
}

TEST_F(RealFiles, all_is_no_module_of_peft) {
  EXPECT_THAT(error_of(kAxolotlRun + "lora_target_modules: [all]\n"), HasSubstr("no module is called 'all'"));
  EXPECT_EQ(error_of(kAxolotlRun + "lora_target_modules: all-linear\n"), "no error");
}

TEST_F(RealFiles, numbers_stand_in_quotes) {
  const Recipe read =
      recipe(kAxolotlRun + "learning_rate: '1e-5'\nweight_decay: \"0.1\"\nlora_dropout: '0.05'\n");
  EXPECT_DOUBLE_EQ(read.optimizer.lr, 1e-5);
  EXPECT_DOUBLE_EQ(read.optimizer.weight_decay, 0.1);
}

const std::string kTorchtuneRun =
    "model: {_component_: torchtune.models.qwen2.qwen2_0_5b}\ncheckpointer: {checkpoint_dir: m}\nbatch_size: "
    "2\n"
    "tokenizer: {_component_: torchtune.models.qwen2.qwen2_tokenizer, max_seq_len: 32}\n";

TEST_F(RealFiles, several_data_sets_of_torchtune_are_one) {
  write("b.jsonl", "{}");
  const std::string both =
      "dataset: [{_component_: torchtune.datasets.alpaca_dataset, source: a.jsonl}, {_component_: "
      "torchtune.datasets.alpaca_dataset, source: b.jsonl";
  EXPECT_EQ(recipe(kTorchtuneRun + both + "}]\n").data.train.size(), 2U);
  EXPECT_THAT(error_of(kTorchtuneRun + both + ", train_on_input: false}]\n"), HasSubstr("cannot be mixed"));
}

TEST_F(RealFiles, texts_of_qwen_in_torchtune_end_with_its_end_of_a_turn) {
  const Recipe read =
      recipe(kTorchtuneRun + "dataset: {_component_: torchtune.datasets.alpaca_dataset, source: a.jsonl}\n");
  EXPECT_EQ(read.data.special_tokens.at("eos_token"), "<|im_end|>");
}

TEST_F(RealFiles, weights_begin_anew) {
  EXPECT_EQ(recipe("base_model: m\nreinit_weights: true\n").init, Init::random);
}

TEST_F(RealFiles, packing_before_0_18_of_trl_cut_rows) {
  Overrides overrides;
  EXPECT_TRUE(load(kTrl + "packing: true\n").recipe.data.packing);
  overrides.as_tool = "trl-0.16";
  EXPECT_THAT(error_of(kTrl + "packing: true\n", overrides), HasSubstr("cut to fill sequences"));
}

TEST_F(RealFiles, a_name_that_is_none_of_the_hub_is_noted) {
  const LoadedRecipe loaded = load(kAxolotlRun + "hub_model_id: <your-hub-model-id>\n");
  EXPECT_EQ(loaded.recipe.save.hub, std::nullopt);
  EXPECT_THAT(notes(loaded), Contains("hub_model_id: <your-hub-model-id>"));
}

TEST_F(RealFiles, a_version_and_a_tokenizer_go_with_the_model) {
  const std::string text = kTrl + "model_revision: v2\ntokenizer_name_or_path: other\n";
  EXPECT_THAT(error_of(text), HasSubstr("model_revision: no other version than main"));
  EXPECT_THAT(error_of(text), HasSubstr("tokenizer_name_or_path: a tokenizer of another folder"));
  Overrides overrides;
  overrides.sets = {"model=mine"};
  EXPECT_EQ(error_of(text, overrides), "no error");
  EXPECT_EQ(error_of(kTrl + "tokenizer_name_or_path: m\nmodel_revision: main\n"), "no error");
}

TEST_F(RealFiles, no_steps_are_no_limit_and_the_best_checkpoint_is_kept) {
  EXPECT_EQ(recipe(kAxolotlRun + "max_steps: 0\n").schedule.max_steps, std::nullopt);
  const Recipe read = recipe(kAxolotlRun + "val_set_size: 0.1\neval_steps: 20\nsave_strategy: best\n");
  EXPECT_EQ(read.save.best, "loss");
  EXPECT_EQ(read.save.every, read.eval.every);
}

TEST_F(RealFiles, an_empty_system_message_is_refused_by_name) {
  EXPECT_THAT(error_of(kTrl + "auto_insert_empty_system_msg: true\n"), HasSubstr("an empty system message"));
  EXPECT_EQ(error_of(kTrl + "auto_insert_empty_system_msg: false\n"), "no error");
  EXPECT_THAT(error_of(kTrl + "dataset_kwargs: {append_concat_token: false}\n"),
              HasSubstr("texts without an end-of-text token"));
  EXPECT_FALSE(recipe(kTrl + "dataset_kwargs: {add_special_tokens: false}\n").data.bos);
}

}  // namespace
}  // namespace plimsoll
