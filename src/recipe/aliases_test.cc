// The table of other tools' keys, row by row: tests/other_tools/rows.txt has a line for every key of every
// tool. PLIMSOLL_GOLDEN=write rewrites what stands right of the arrows; the difference is reviewed like code.
#include "recipe/aliases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include "base/error.h"
#include "base/strings.h"
#include "recipe/effective.h"
#include "recipe/hub.h"
#include "recipe/load/load.h"
#include "recipe/option.h"
#include "recipe/translate/combine.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;

constexpr const char* kRows = "tests/other_tools/rows.txt";
constexpr const char* kManual = "docs/howto/other-tools.md";
constexpr std::string_view kArrow = " => ";

std::string read_text(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

bool rewrite() {
  const char* wish = std::getenv("PLIMSOLL_GOLDEN");
  return wish != nullptr && std::string_view(wish) == "write";
}

// The result of a map of a tool's keys: "method.r: 8; ...", "no effect", or "refused: ...".
std::string outcome(const Node& keys, Tool tool) {
  const Source source = {"rows", false, "tests/other_tools"};
  Parts parts;
  Problems problems;
  KeyReport report;
  const Recipe before;
  Layer layer(1, source, tool, before, parts, problems, report);
  for (const Node& item : keys.items) layer.read(*find_alias(item.key, tool), item.key, item);
  combine(layer);
  std::vector<std::string> ours;
  for (const Node& node : layer.take()) ours.push_back(node.key + ": " + as_text(node));
  try {
    problems.throw_if_any();
  } catch (const UsageError& error) {
    return "refused: " + split(error.what(), '\n').front().substr(6);
  }
  if (!ours.empty()) return join(ours, "; ");
  return report.no_effect.empty() ? "nothing" : "no effect";
}

TEST(Aliases, every_row_does_what_its_line_says) {
  std::set<std::pair<Tool, std::string>> seen;
  std::string text;
  std::optional<Tool> tool;
  for (const std::string& line : split(read_text(kRows), '\n')) {
    if (line.empty() || line.front() == '#') {
      text += line + "\n";
      continue;
    }
    if (line.front() == '[') {
      for (const auto& [value, name] : kTools)
        if (line == "[" + std::string(name) + "]") tool = value;
      text += line + "\n";
      continue;
    }
    ASSERT_TRUE(tool.has_value()) << line;
    const std::string theirs = line.substr(0, line.find(kArrow));
    const Node keys = read_yaml("{" + theirs + "}");
    for (const Node& item : keys.items) {
      seen.emplace(*tool, item.key);
      ASSERT_NE(find_alias(item.key, *tool), nullptr) << line;
    }
    const std::string result = outcome(keys, *tool);
    text += theirs + std::string(kArrow) + result + "\n";
    EXPECT_TRUE(rewrite() || line == theirs + std::string(kArrow) + result) << line << "\nbecame " << result;
    EXPECT_NE(result, "nothing") << line;
  }
  text.pop_back();
  if (rewrite()) std::ofstream(kRows, std::ios::binary) << text;
  for (const Alias& row : aliases())
    for (size_t i = 0; i < kTools.size(); ++i)
      for (const std::string& key : split(row.keys[i], ' '))
        EXPECT_TRUE(key.empty() || seen.contains({kTools[i].first, key}))
            << kRows << " has no line for '" << key << "' of " << kTools[i].second;
}

TEST(Aliases, rows_lead_to_keys_that_exist_and_take_their_words) {
  for (const Alias& row : aliases()) {
    if (row.to.empty() || row.to.starts_with('@')) continue;
    const Option* option = find_option(row.to);
    ASSERT_NE(option, nullptr) << row.to;
    for (const auto& [theirs, ours] : row.words) EXPECT_FALSE(theirs.empty()) << row.to;
  }
}

TEST(Aliases, every_word_is_mapped_refused_or_without_effect) {
  for (const Alias& row : aliases())
    for (const auto& [theirs, ours] : row.words) {
      std::string key;
      Tool tool = Tool::script;
      for (size_t i = 0; i < kTools.size() && key.empty(); ++i)
        if (!row.keys[i].empty()) {
          key = split(row.keys[i], ' ').front();
          tool = kTools[i].first;
        }
      const std::string result = outcome(read_yaml("{" + key + ": " + std::string(theirs) + "}"), tool);
      if (key == "model._component_") continue;                    // its words are names of builders
      if (theirs == "auto" && row.to == "@stored_type") continue;  // refused where it decides
      if (theirs == "freeze") continue;                            // needs the model
      if (theirs == "polynomial") continue;                        // needs a rate
      EXPECT_EQ(result.starts_with("refused: "),
                ours.starts_with('!') || result.find("-bit") != std::string::npos)
          << key << ": " << theirs << " became " << result;
    }
}

TEST(Aliases, the_manual_shows_the_table) {
  constexpr std::string_view kBegin =
      "<!-- keys: printed by `plimsoll recipe --aliases`, checked by a test -->\n";
  const std::string manual = read_text(kManual);
  const size_t begin = manual.find(kBegin);
  ASSERT_NE(begin, std::string::npos);
  const std::string wanted = manual.substr(0, begin + kBegin.size()) + aliases_markdown();
  if (rewrite()) std::ofstream(kManual, std::ios::binary) << wanted;
  EXPECT_EQ(read_text(kManual), wanted);
}

class OtherTools : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  LoadedRecipe load(const std::string& text, const Overrides& overrides = {}) const {
    return load_recipe(write("q.yaml", text), overrides);
  }
  std::string error_of(const std::string& text, const Overrides& overrides = {}) const {
    try {
      load(text, overrides);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  }
  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) /
      ("plimsoll_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
};

TEST_F(OtherTools, two_keys_that_differ_are_an_error_with_both_lines) {
  const std::string file = (folder_ / "q.yaml").string();
  EXPECT_EQ(error_of("model: m\nlora_r: 8\nmethod: {r: 4}\n"),
            file + ":2: 'lora_r: 8' says method.r: 8, but " + file + ":3 says method.r: 4; keep one of them");
  EXPECT_EQ(error_of("model: m\nlora_r: 8\n\nlora_rank: 4\n"),
            file + ":4: 'lora_rank: 4' and 'lora_r: 8' at " + file +
                ":2 both say method.r, and not the same; keep one of them");
  EXPECT_EQ(error_of("model: m\nbatch_size: 2\nmicro_batch_size: 4\n"),
            file + ":3: 'micro_batch_size: 4' and 'batch_size: 2' at " + file +
                ":2 contradict each other; keep one of them");
  EXPECT_EQ(error_of("model: m\nlora_r: 8\nlora_rank: 8\nmethod.r: 8\n"), "no error");
  EXPECT_THAT(error_of("model: m\nbatch_size: 2\ngradient_accumulation_steps: 4\nbatch: {effective: 4}\n"),
              HasSubstr("says batch.effective: 8, but"));
}

TEST_F(OtherTools, layers_meet_each_others_parts) {
  const std::string text =
      "model: m\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 4\nbf16: true\n";
  EXPECT_EQ(load(text).recipe.batch, (Recipe::Batch{8, 2}));
  EXPECT_EQ(load(text, {{"gradient_accumulation_steps=3"}, ""}).recipe.batch, (Recipe::Batch{6, 2}));
  EXPECT_EQ(load(text, {{}, "per_device_train_batch_size=1 lora_r=4"}).recipe.batch, (Recipe::Batch{4, 1}));
  EXPECT_EQ(load(text, {{"batch.micro=1"}, ""}).recipe.batch, (Recipe::Batch{8, 1}));
  EXPECT_EQ(load(text, {{"lora_r=4"}, "lora_r=3"}).recipe.method.r, 4);
}

// A mode of another tool is one of ours, or refused: decisions on precision.
TEST_F(OtherTools, modes_of_precision_map_exactly) {
  const auto precision = [&](const std::string& text) {
    return to_yaml(find_option("precision")->get(load("model_name_or_path: m\n" + text).recipe));
  };
  EXPECT_EQ(precision("finetuning_type: full\nbf16: true\n"), "bf16-master");
  EXPECT_EQ(precision("finetuning_type: full\npure_bf16: true\n"), "bf16-pure");
  EXPECT_EQ(precision("finetuning_type: full\n"), "fp32");
  EXPECT_EQ(precision("finetuning_type: lora\nbf16: true\n"), "bf16");
  EXPECT_EQ(precision("use_peft: false\nbf16: true\ndtype: bfloat16\n"), "bf16-pure");
  EXPECT_EQ(precision("use_peft: false\nbf16: true\ndtype: float32\n"), "bf16-master");
  EXPECT_EQ(precision("use_peft: false\nbf16: false\n"), "fp32");
  const auto axolotl = load("base_model: m\nbf16: auto\nfp16:\n").recipe.precision;
  EXPECT_EQ(axolotl, precision_presets()[3].parts);
  EXPECT_EQ(precision("finetuning_type: full\nfp16: true\n"), "fp16");
  EXPECT_EQ(precision("use_peft: true\ndtype: float16\n"), "fp16");
  EXPECT_THAT(error_of("model_name_or_path: m\nuse_peft: false\ndtype: float16\n"),
              HasSubstr("fp16 weights without an fp32 copy lose small updates; say precision: fp16"));
  EXPECT_THAT(error_of("model_name_or_path: m\nfinetuning_type: full\nfp16: true\nbf16: true\n"),
              HasSubstr("contradicts 'bf16: true'"));
}

TEST_F(OtherTools, a_recipe_of_a_tool_has_the_tools_defaults) {
  const Recipe factory = load("model_name_or_path: m\nstage: sft\nlora_rank: 4\n").recipe;
  EXPECT_EQ(factory.method.alpha, 8.0);
  EXPECT_EQ(factory.optimizer.lr, 5e-5);
  EXPECT_EQ(factory.schedule.name, ScheduleName::linear);
  EXPECT_EQ(factory.schedule.epochs, 3);
  EXPECT_EQ(factory.batch.effective, 8);
  const Recipe trl = load("model_name_or_path: m\nuse_peft: false\n").recipe;
  EXPECT_EQ(trl.method.type, MethodType::full);
  EXPECT_EQ(trl.optimizer.lr, 2e-5);
  // One alias among our own keys changes nothing else.
  Recipe own = load("model: m\nlora_rank: 4\n").recipe;
  own.method.r = 16;
  EXPECT_EQ(own, load("model: m\n").recipe);
}

TEST_F(OtherTools, keys_beside_full_fine_tuning_are_without_effect_when_they_are_theirs) {
  const LoadedRecipe loaded =
      load("model_name_or_path: m\nuse_peft: false\nlora_r: 8\noptim: sgd\nadam_beta1: 0.8\n");
  EXPECT_EQ(loaded.recipe.method.type, MethodType::full);
  std::vector<std::string> theirs;
  for (const auto& key : loaded.other_tools.no_effect) theirs.push_back(key.theirs);
  EXPECT_THAT(theirs, testing::UnorderedElementsAre("lora_r: 8", "adam_beta1: 0.8"));
}

TEST_F(OtherTools, trackers_beside_tensorboard_are_told_to_have_no_effect) {
  const LoadedRecipe loaded = load("model_name_or_path: m\nreport_to: [wandb, tensorboard]\n");
  EXPECT_TRUE(loaded.recipe.log.tensorboard);
  ASSERT_EQ(loaded.other_tools.no_effect.size(), 1U);
  EXPECT_EQ(loaded.other_tools.no_effect[0].reason, "'wandb': the run folder's metrics.jsonl is the log");
}

TEST_F(OtherTools, a_later_layer_puts_right_what_this_version_cannot_do) {
  const std::string recipe = "model: m\nprecision: {states: fp16}\n";
  EXPECT_THAT(error_of(recipe), HasSubstr("precision.states: 'fp16' is not supported yet"));
  EXPECT_EQ(error_of(recipe, {{"precision.states=fp32"}, ""}), "no error");
}

TEST_F(OtherTools, names_of_the_hub_are_found_in_the_cache_or_answered_with_the_command) {
  setenv("HF_HUB_CACHE", (folder_ / "hub").c_str(), 1);
  const LoadedRecipe missing = load("model: Qwen/Qwen2.5-0.5B\ndata: {train: tatsu-lab/alpaca}\n");
  ASSERT_EQ(missing.missing.size(), 2U);
  EXPECT_THAT(missing.missing[0], testing::EndsWith(": plimsoll fetch tatsu-lab/alpaca --dataset"));
  EXPECT_THAT(missing.missing[1],
              testing::EndsWith(": plimsoll fetch Qwen/Qwen2.5-0.5B (to plan, --config-only is enough)"));
  EXPECT_THROW(require_present(missing), UsageError);

  const std::string model = "hub/models--Qwen--Qwen2.5-0.5B/";
  write(model + "refs/main", "abc123");
  write(model + "snapshots/abc123/config.json", "{}");
  write(model + "snapshots/older/config.json", "{}");
  const std::string rows = "hub/datasets--tatsu-lab--alpaca/snapshots/d0/data/";
  for (const char* name :
       {"train-00000-of-00002.parquet", "train-00001-of-00002.parquet", "test-00000.parquet"})
    write(rows + name, "x");
  const LoadedRecipe found = load("model: Qwen/Qwen2.5-0.5B\ndata: {train: tatsu-lab/alpaca}\n");
  EXPECT_TRUE(found.missing.empty());
  EXPECT_EQ(found.recipe.model, (folder_ / model / "snapshots/abc123").string());
  EXPECT_THAT(found.recipe.data.train,
              testing::ElementsAre(TrainSource{(folder_ / rows / "train-00000-of-00002.parquet").string()},
                                   TrainSource{(folder_ / rows / "train-00001-of-00002.parquet").string()}));
  const std::string packed = "hub/datasets--a--b/snapshots/d0/";
  for (const char* name : {"train-00000-of-00001.jsonl.gz", "test-00000-of-00001.jsonl.gz", "code.tar.gz"})
    write(packed + name, "x");
  EXPECT_EQ(load("model: Qwen/Qwen2.5-0.5B\ndata: {train: a/b}\n").recipe.data.train.front().path,
            (folder_ / packed / "train-00000-of-00001.jsonl.gz").string());
  // A folder in the recipe's folder goes first.
  write("Qwen/Qwen2.5-0.5B/config.json", "{}");
  EXPECT_EQ(load("model: Qwen/Qwen2.5-0.5B\n").recipe.model, (folder_ / "Qwen/Qwen2.5-0.5B").string());
  unsetenv("HF_HUB_CACHE");
}

TEST_F(OtherTools, the_cache_lies_where_hugging_face_has_it) {
  for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) unsetenv(name);
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  setenv("HOME", "/h", 1);
  EXPECT_EQ(hub_cache(), "/h/.cache/huggingface/hub");
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(hub_cache(), "/x/huggingface/hub");
  setenv("HF_HOME", "/f", 1);
  EXPECT_EQ(hub_cache(), "/f/hub");
  setenv("HF_HUB_CACHE", "/c", 1);
  EXPECT_EQ(hub_cache(), "/c");
  for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) unsetenv(name);
  setenv("HOME", home.c_str(), 1);
}

TEST_F(OtherTools, data_sets_of_llama_factory_come_from_its_list) {
  write("data/dataset_info.json",
        R"({"a": {"file_name": "a.jsonl", "columns": {"prompt": "q", "response": "r"}},
    "chat": {"file_name": "c.jsonl", "formatting": "sharegpt"},
    "pairs": {"file_name": "a.jsonl", "ranking": true},
    "ranked": {"file_name": "a.jsonl", "ranking": true, "formatting": "sharegpt"},
    "asked": {"file_name": "a.jsonl", "ranking": true,
              "columns": {"prompt": "q", "chosen": "good", "rejected": "bad"}},
    "context": {"file_name": "a.jsonl", "ranking": true,
                "columns": {"prompt": "q", "query": "x", "chosen": "good", "rejected": "bad"}},
    "ctx": {"file_name": "a.jsonl", "columns": {"prompt": "q", "query": "x", "response": "r"}}})");
  const std::string base = "model_name_or_path: m\nstage: sft\n";
  const Recipe recipe = load(base + "dataset: a\n").recipe;
  EXPECT_THAT(recipe.data.train, testing::ElementsAre(TrainSource{(folder_ / "data/a.jsonl").string()}));
  EXPECT_EQ(recipe.data.columns.at("instruction"), "q");
  EXPECT_EQ(recipe.data.format, RowFormat::alpaca);
  EXPECT_THAT(error_of(base + "dataset: aa\n"), HasSubstr("has no data set 'aa' (did you mean 'a'?)"));
  EXPECT_EQ(load(base + "dataset: ctx\n").recipe.data.columns.at("input"), "x");
  EXPECT_EQ(load(base + "dataset: chat\n").recipe.data.format, RowFormat::messages);
  EXPECT_THAT(error_of(base + "dataset: a, chat\n"), HasSubstr("different formats"));
  EXPECT_THAT(error_of(base + "dataset: pairs\n"), HasSubstr("'pairs': rows of preferences (ranking)"));
  const std::string dpo = "model_name_or_path: m\nstage: dpo\npref_beta: 0.2\npref_loss: ipo\n";
  const Recipe ranked = load(dpo + "dataset: ranked\n").recipe;
  EXPECT_EQ(ranked.task, Task::dpo);
  EXPECT_EQ(ranked.dpo.loss, PreferenceLoss::ipo);
  EXPECT_EQ(ranked.dpo.beta, 0.2);
  EXPECT_EQ(ranked.data.format, RowFormat::preference);
  EXPECT_EQ(ranked.data.columns.at("prompt"), "conversations");
  EXPECT_EQ(load(dpo + "dataset: asked\n").recipe.data.columns.at("chosen"), "good");
  EXPECT_EQ(load(dpo + "dataset: context\n").recipe.data.columns.count("input"), 1U);
  const Recipe rewards = load("model_name_or_path: m\nstage: rm\ntemplate: qwen\ndataset: ranked\n").recipe;
  EXPECT_EQ(rewards.task, Task::reward);
  EXPECT_EQ(rewards.reward.head, RewardHead::value);
  EXPECT_EQ(rewards.data.chat_template, "llama-factory/qwen");
  EXPECT_EQ(rewards.data.columns.at("prompt"), "conversations");
  EXPECT_EQ(
      load("model_name_or_path: m\nstage: pt\npacking: false\ndataset: a\n").recipe.data.columns.at("text"),
      "q");
}

TEST_F(OtherTools, the_task_says_which_losses_trl_has) {
  const std::string base = "model_name_or_path: m\nuse_peft: true\n";
  const Recipe preferred = load(base + "task: dpo\nloss_type: [sigmoid_norm]\nbeta: 2\n").recipe;
  EXPECT_EQ(preferred.dpo.loss, PreferenceLoss::sigmoid_norm);
  EXPECT_EQ(preferred.dpo.beta, 2.0);
  EXPECT_THAT(error_of(base + "task: dpo\nloss_type: hinge\n"), HasSubstr("'hinge' does not exist here"));
  EXPECT_EQ(load(base + "loss_type: ipo\n").recipe.dpo.loss, PreferenceLoss::ipo);
  EXPECT_EQ(load(base + "loss_type: chunked_nll\n").recipe.task, Task::sft);
  EXPECT_EQ(load(base + "task: reward\nlora_task_type: SEQ_CLS\ncenter_rewards_coefficient: 0.01\n")
                .recipe.reward.centering,
            0.01);
}

TEST_F(OtherTools, scripts_say_tasks_by_their_lengths_and_names) {
  const std::string base = "model_name_or_path: m\nper_device_train_batch_size: 8\n";
  const Recipe translated = load(base + "max_source_length: 64\nmax_target_length: 16\n").recipe;
  EXPECT_EQ(translated.task, Task::seq2seq);
  EXPECT_EQ(translated.data.max_length, 64);
  EXPECT_EQ(translated.data.target_length, 16);
  EXPECT_THAT(error_of(base + "max_source_length: 64\nsource_prefix: \"summarize: \"\n"),
              HasSubstr("source_prefix"));
  const Recipe judged = load(base + "task_name: stsb\n").recipe;
  EXPECT_EQ(judged.task, Task::classify);
  EXPECT_EQ(judged.classify.glue, "stsb");
}

TEST_F(OtherTools, data_sets_of_axolotl_say_their_format_or_are_refused) {
  write("a.jsonl", "{}");
  const auto text = [](const std::string& entry) {
    return "base_model: m\ndatasets:\n  - {path: a.jsonl, " + entry + "}\n";
  };
  EXPECT_EQ(load(text("type: completion, field: body")).recipe.data.columns.at("text"), "body");
  EXPECT_EQ(load(text("type: alpaca")).recipe.data.chat_template, "axolotl/alpaca");
  EXPECT_EQ(load(text("type: chat_template")).recipe.data.format, RowFormat::messages);
  EXPECT_THAT(error_of(text("type: sharegpt.load_role")),
              HasSubstr("q.yaml:3: datasets: 'datasets.type': 'sharegpt"));
  EXPECT_EQ(load(text("type: completion, split: \"train[:10%]\"")).recipe.data.train.front().rows,
            parse_row_range(":10%"));
  EXPECT_THAT(error_of(text("type: completion, split: train+test")), HasSubstr("several splits together"));
  EXPECT_THAT(error_of(text("type: {field_instruction: q, format: \"### {other}\"}")),
              HasSubstr("'{other}' is not filled in there"));
  EXPECT_THAT(error_of(text("tpye: alpaca")), HasSubstr("(did you mean 'type'?)"));
}

TEST_F(OtherTools, packing_is_what_keeps_rows_apart) {
  const std::string base = "model_name_or_path: m\nstage: sft\n";
  EXPECT_TRUE(load(base + "packing: true\nneat_packing: true\n").recipe.data.packing);
  EXPECT_FALSE(load(base + "packing: false\n").recipe.data.packing);
  EXPECT_THAT(error_of(base + "packing: true\n"), HasSubstr("packing: attention across rows"));
}

TEST_F(OtherTools, trl_says_in_two_keys_what_is_learnt) {
  const auto prompt = [&](const std::string& text) {
    return load("model_name_or_path: m\nuse_peft: true\n" + text).recipe.data.train_on_prompt;
  };
  EXPECT_EQ(prompt(""), PromptLoss::messages);
  EXPECT_EQ(prompt("assistant_only_loss: true\n"), PromptLoss::no);
  EXPECT_EQ(prompt("completion_only_loss: true\n"), PromptLoss::messages);
  EXPECT_EQ(prompt("completion_only_loss: false\n"), PromptLoss::yes);
}

TEST_F(OtherTools, a_tier_follows_from_deepspeed_where_something_has_a_place_to_go) {
  write("z3.json", R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"},
    "offload_param": {"device": "none"}}})");
  const auto tier = [&](const std::string& text) { return load("model: m\n" + text).recipe.memory.tier; };
  EXPECT_EQ(tier("deepspeed: z3.json\n"), std::nullopt);
  EXPECT_EQ(tier("deepspeed: z3.json\nmemory: 4GiB\n"), std::nullopt);
  EXPECT_EQ(tier("deepspeed: z3.json\ndevice: card\nmemory: {device: 4GiB}\n"), "stage3");
  EXPECT_EQ(tier("deepspeed_stage: 2\ncpu_offload: true\nmemory: {disk: 4GiB}\n"), "stage2_offload");
  EXPECT_EQ(tier("deepspeed_stage: 2\nmemory: {disk: 4GiB}\n"), std::nullopt);
  EXPECT_EQ(error_of("model: m\ndeepspeed: none.json\n"), "no error");
}

// The rest of transformers' defaults holds too, where the file is nothing but its arguments.
TEST_F(OtherTools, arguments_of_a_trainer_alone_train_all_weights_with_a_note) {
  const std::string dumped = R"({"output_dir": "out", "per_device_train_batch_size": 2, "seed": 7})";
  const std::string path = write("training_args.json", dumped);
  const auto read = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"model=m", "data.train=t.jsonl"});
    return load_recipe(path, {.sets = more, .environment = {}});
  };
  const LoadedRecipe whole = read({});
  EXPECT_EQ(whole.recipe.method.type, MethodType::full);
  EXPECT_EQ(whole.recipe.optimizer.lr, 5e-5);
  EXPECT_EQ(whole.recipe.seed, 7);
  EXPECT_THAT(whole.other_tools.notes.at("method of the Trainer"), HasSubstr("--method lora"));
  for (const char* method : {"lora", "full"}) {
    const LoadedRecipe stated = read({std::string("method.type=") + method});
    EXPECT_EQ(stated.recipe.method.type, method == std::string("full") ? MethodType::full : MethodType::lora);
    EXPECT_FALSE(stated.other_tools.notes.contains("method of the Trainer"));
  }
  write("training_args.json", R"({"per_device_train_batch_size": 2, "lora_r": 4})");
  EXPECT_EQ(read({}).recipe.method.type, MethodType::lora);
  // A recipe of this program that has keys of theirs stays one.
  write("training_args.json", R"({"data": {"max_length": 64}, "per_device_train_batch_size": 2})");
  EXPECT_EQ(read({}).recipe.method.type, MethodType::lora);
  EXPECT_FALSE(read({}).other_tools.tool.has_value());
}

TEST_F(OtherTools, a_dump_that_says_not_to_train_is_a_training_unless_it_evaluates_alone) {
  const auto dump = [&](const std::string& more) {
    return write(
        "args.json",
        R"({"do_train": false, "per_device_train_batch_size": 2, "num_train_epochs": 3, "learning_rate": 1e-5)" +
            more + "}");
  };
  const auto read = [&](const std::string& more) {
    Overrides set;
    set.sets = {"model=m", "data.train=a.jsonl"};
    return load_recipe(dump(more), set);
  };
  for (const char* more : {"", R"(, "do_eval": false, "do_predict": false)",
                           R"(, "do_eval": true, "eval_strategy": "steps", "eval_steps": 10)"}) {
    const LoadedRecipe loaded = read(more);
    EXPECT_EQ(loaded.recipe.method.type, MethodType::full) << more;
    EXPECT_TRUE(std::ranges::any_of(loaded.other_tools.no_effect, [](const auto& key) {
      return key.theirs == "do_train: false" && !key.is_off &&
             key.reason.find("a Trainer trains") != std::string::npos;
    })) << more;
  }
  for (const char* more :
       {R"(, "do_eval": true)", R"(, "do_eval": true, "eval_strategy": "no")", R"(, "do_predict": true)"})
    try {
      read(more);
      ADD_FAILURE() << more;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("arguments of an evaluation, which plimsoll eval MODEL --data ROWS does"));
    }
  EXPECT_THAT(error_of("model_name_or_path: m\ntrain_file: t.csv\ndo_train: false\n"),
              HasSubstr("nothing would be trained"));
}

TEST_F(OtherTools, run_clm_joins_texts_into_blocks) {
  const std::string of_scripts = "model_name_or_path: m\ntrain_file: t.txt\ndo_train: true\n";
  const Recipe recipe = load(of_scripts + "block_size: 64\n").recipe;
  EXPECT_EQ(recipe.task, Task::pretrain);
  EXPECT_TRUE(recipe.data.joined);
  EXPECT_EQ(recipe.data.max_length, 64);
  const auto script = [&](const std::string& name, const std::string& more) {
    const std::string path = write("s.sh", "#!/bin/bash\npython " + name +
                                               " --model_name_or_path m --train_file t.txt --do_train " +
                                               "--per_device_train_batch_size 2 " + more + "\n");
    try {
      const Recipe read = load_recipe(path).recipe;
      return std::string(read.data.joined ? "joined" : "rows");
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(script("run_clm.py", "--block_size 64"), "joined");
  EXPECT_THAT(script("run_clm.py", ""), HasSubstr("whose length the command leaves to the tokenizer"));
  EXPECT_EQ(script("run_clm_with_mine.py", ""), "rows");
  EXPECT_THAT(script("mine.py", "--block_size 64"),
              HasSubstr("what mine.py makes of texts is not in its command"));
}

TEST_F(OtherTools, arguments_of_the_example_scripts_mean_what_these_do) {
  const std::string of_scripts = "model_name_or_path: m\ntrain_file: t.csv\ndo_train: true\n";
  EXPECT_EQ(load(of_scripts + "task_name: RTE\n").recipe.classify.glue, "rte");
  EXPECT_EQ(load(of_scripts + "adafactor: true\n").recipe.optimizer.name, OptimizerKind::adafactor);
  EXPECT_EQ(load(of_scripts + "adafactor: false\n").recipe.optimizer.name, OptimizerKind::adamw);
  const std::string lengths = "max_source_length: 64\nmax_target_length: 16\n";
  EXPECT_EQ(find_option("data.columns")
                ->get(load(of_scripts + lengths + "text_column: a\nsummary_column: b\n").recipe),
            Json({{"prompt", "a"}, {"response", "b"}}));
  EXPECT_THAT(error_of(of_scripts + lengths + "summary_column: b\n"), HasSubstr("needs text_column too"));
}

TEST_F(OtherTools, a_frozen_base_in_fp16_is_trained_in_the_type_of_autocast) {
  const std::string adapters = "model_name_or_path: m\nuse_peft: true\ntorch_dtype: float16\n";
  const auto precision = [&](const std::string& more) {
    return find_option("precision")->get(load(adapters + more).recipe);
  };
  EXPECT_EQ(precision("bf16: true\n"), "bf16");
  EXPECT_EQ(precision("bf16: true\nload_in_4bit: true\n"), "bf16");
  EXPECT_EQ(precision("fp16: true\n"), "fp16");
  EXPECT_THAT(
      error_of("model_name_or_path: m\nper_device_train_batch_size: 1\ntorch_dtype: float16\nbf16: true\n"),
      HasSubstr("fp16 weights without an fp32 copy"));
}

TEST_F(OtherTools, axolotl_ends_with_its_best_where_each_saved_checkpoint_was_evaluated) {
  const auto best = [&](const std::string& more) {
    return load(
               "base_model: m\nsequence_len: 64\nlearning_rate: 1e-4\ndatasets: [{path: a.jsonl, type: alpaca}]\n" +
               more)
        .recipe.save.best.value_or("last");
  };
  const std::string each = "val_set_size: 0.1\nnum_epochs: 4\nevals_per_epoch: 4\nsaves_per_epoch: 1\n";
  EXPECT_EQ(best(each), "loss");
  EXPECT_EQ(best(each + "load_best_model_at_end: false\n"), "last");
  EXPECT_EQ(best("num_epochs: 1\n" + each.substr(each.find("evals"))), "last");  // no rows to evaluate on
  EXPECT_EQ(best("val_set_size: 0.1\nnum_epochs: 1\nevals_per_epoch: 4\nsaves_per_epoch: 1\n"), "last");
  EXPECT_EQ(best("val_set_size: 0.1\neval_steps: 50\nsave_steps: 100\n"), "loss");
  EXPECT_EQ(best("val_set_size: 0.1\neval_steps: 50\nsave_steps: 120\n"), "last");
  EXPECT_EQ(best("val_set_size: 0.1\neval_steps: 50\nsave_strategy: epoch\n"), "last");
}

TEST_F(OtherTools, stages_and_strategies_say_what_several_devices_divide) {
  const auto shard = [&](const std::string& text) {
    return find_option("memory.shard")->get(load("model: m\n" + text).recipe).get<std::string>();
  };
  for (const char* stage : {"0", "1", "2", "3"}) {
    write("z.json",
          std::string(R"({"zero_optimization": {"stage": )") + stage + R"(, "overlap_comm": true}})");
    EXPECT_EQ(shard("deepspeed: z.json\n"), shard(std::string("zero_stage: ") + stage + "\n")) << stage;
  }
  EXPECT_EQ(shard("zero_stage: 0\n"), "none");
  EXPECT_EQ(shard("zero_stage: 1\n"), "states");
  EXPECT_EQ(shard("zero_stage: 2\n"), "gradients");
  const std::string whole = shard("zero_stage: 3\n");  // what FULL_SHARD is, too
  EXPECT_EQ(shard("zero_stage: 2\noptimizer: {name: adafactor}\n"), "auto");
  EXPECT_EQ(shard("deepspeed: false\n"), "auto");
  const std::string trl = "model_name_or_path: m\nuse_peft: true\n";
  const auto of_trl = [&](const std::string& text) {
    const Recipe recipe = load(trl + text).recipe;
    return std::pair(find_option("memory.shard")->get(recipe).get<std::string>(),
                     recipe.memory.tier.value_or("-"));
  };
  EXPECT_EQ(of_trl("fsdp: full_shard auto_wrap\n").first, whole);
  EXPECT_EQ(of_trl("fsdp: [shard_grad_op, auto_wrap]\n").first, "gradients");
  EXPECT_EQ(of_trl("fsdp: no_shard\n").first, "none");
  EXPECT_EQ(of_trl("fsdp: ''\nfsdp_config:\n").first, "auto");
  EXPECT_EQ(of_trl("fsdp: []\nfsdp_config: {min_num_params: 0, xla: false}\n").first, "auto")
      << "as transformers writes it";
  EXPECT_THAT(error_of(trl + "fsdp: hybird auto_wrap\n"), HasSubstr("'hybird' is no strategy of FSDP"));
  EXPECT_EQ(of_trl("fsdp: true\nfsdp_config: {reshard_after_forward: false, min_num_params: 0}\n").first,
            "gradients");
  EXPECT_EQ(of_trl("fsdp: full_shard offload\nmemory: {disk: 4GiB}\n"),
            std::pair(whole, std::string("minimal")));
  EXPECT_EQ(of_trl("accelerate_config: fsdp2\n").first, whole);
  EXPECT_EQ(of_trl("accelerate_config: multi_gpu\n").first, "none");
  EXPECT_EQ(of_trl("accelerate_config: single_gpu\n").first, "auto");
  write("f.yaml",
        "distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: 2, fsdp_offload_params: true}\n");
  EXPECT_EQ(of_trl("accelerate_config: f.yaml\nmemory: {disk: 4GiB}\n"),
            std::pair(std::string("gradients"), std::string("minimal")));
  write("d.yaml", "distributed_type: MULTI_GPU\nfsdp_config: {fsdp_sharding_strategy: 1}\n");
  EXPECT_EQ(of_trl("accelerate_config: d.yaml\n").first, "none");
}

TEST_F(OtherTools, what_rounds_in_the_exchange_and_parts_within_a_machine_are_refused) {
  const auto error = [&](const std::string& json) {
    write("z.json", json);
    return error_of("model: m\ndeepspeed: z.json\n");
  };
  EXPECT_THAT(error(R"({"communication_data_type": "fp16"})"),
              HasSubstr("'communication_data_type: fp16' rounds"));
  EXPECT_EQ(error(R"({"communication_data_type": "fp32"})"), "no error");
  EXPECT_THAT(error(R"({"zero_optimization": {"stage": 3, "zero_quantized_gradients": true}})"),
              HasSubstr("'zero_quantized_gradients'"));
  EXPECT_EQ(error(R"({"zero_optimization": {"stage": 3, "zero_quantized_weights": false}})"), "no error");
  EXPECT_EQ(error(R"({"zero_optimization": {"stage": 3, "mics_shard_size": 4}})"), "no error");
  const std::string trl = "model_name_or_path: m\nuse_peft: true\n";
  EXPECT_EQ(load(trl + "fsdp: hybrid_shard auto_wrap\n").recipe.memory.shard, ShardStage::weights);
  EXPECT_EQ(load(trl + "fsdp: hybrid_shard_zero2 auto_wrap\n").recipe.memory.shard, ShardStage::gradients);
  EXPECT_EQ(load(trl + "accelerate_config: {distributed_type: FSDP, fsdp_config: {fsdp_sharding_strategy: "
                       "HYBRID_SHARD}}\n")
                .recipe.memory.shard,
            ShardStage::weights);
  Overrides overrides;
  overrides.sets = {"memory.shard=states"};
  EXPECT_EQ(find_option("memory.shard")
                ->get(load(trl + "fsdp: hybrid_shard\n", overrides).recipe)
                .get<std::string>(),
            "states");
}

TEST_F(OtherTools, the_effective_recipe_reads_back_to_the_same) {
  for (const char* file :
       {"llama_factory_lora_sft.yaml", "llama_factory_full_sft.yaml", "axolotl_lora.yml", "axolotl_qlora.yml",
        "torchtune_lora.yaml", "trl_sft.json", "script.yaml", "script.json", "dataclass.yaml"}) {
    const Recipe recipe = load_recipe(std::string("tests/other_tools/") + file).recipe;
    EXPECT_EQ(parse_recipe(effective_yaml(recipe), "e.yaml", "/elsewhere"), recipe) << file;
  }
}

}  // namespace
}  // namespace plimsoll
