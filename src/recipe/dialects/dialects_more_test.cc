// Tests of recipes of other tools as real files are written: files that are elsewhere, repeated keys,
// versions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "recipe/load/load.h"
#include "recipe/option.h"
#include "recipe/test_recipe_files.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

class RealFiles : public RecipeFiles {};

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

TEST_F(RealFiles, a_share_of_the_steps_between_lines_of_the_log_changes_nothing_but_evaluations) {
  const std::string file = "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\nlogging_steps: ";
  const LoadedRecipe loaded = load(file + "0.01\n");
  EXPECT_THAT(notes(loaded), Contains("logging_steps: 0.01"));
  EXPECT_EQ(recipe(file + "25\n").log.every, 25);
  EXPECT_THAT(error_of(file + "2.5\n"), HasSubstr("logging_steps"));
  const Every every = recipe(file + "0.25\nval_size: 0.1\neval_strategy: steps\n").eval.every;
  EXPECT_EQ(every.unit, Every::Unit::percent);
  EXPECT_DOUBLE_EQ(every.percent, 25.0);
}

TEST_F(RealFiles, a_checkpoint_of_another_tool_is_refused_with_what_to_do) {
  const std::string file = "model_name_or_path: m\nstage: sft\nresume_from_checkpoint: saves/checkpoint-15\n";
  EXPECT_THAT(error_of(file), HasSubstr("--set resume_from_checkpoint=null starts from the beginning"));
  EXPECT_EQ(error_of(file, {"resume_from_checkpoint=null"}), "no error");
  const std::string torchtune =
      "model: {_component_: torchtune.models.llama3.llama3_8b}\n"
      "checkpointer: {checkpoint_dir: m, recipe_checkpoint: recipe_state.pt}\nresume_from_checkpoint: ";
  EXPECT_THAT(error_of(torchtune + "true\n"), HasSubstr("recipe_state.pt"));
  EXPECT_THAT(notes(load(torchtune + "false\n")),
              Contains("checkpointer.recipe_checkpoint: recipe_state.pt"));
}

TEST_F(RealFiles, rows_of_other_hubs_and_of_scripts_may_be_replaced) {
  fs::create_directories(folder_ / "data");
  write("data/dataset_info.json",
        R"({"hub": {"hf_hub_url": "o/r", "ms_hub_url": "o/r"}, "made": {"script_url": "made.py", "columns":
          {"prompt": "q", "response": "a"}}, "other": {"ms_hub_url": "o/r"}})");
  const std::string file = "model_name_or_path: m\nstage: sft\ntemplate: llama3\ndataset: ";
  EXPECT_THAT(error_of(file + "hub\n"), HasSubstr("plimsoll fetch o/r --dataset"));
  EXPECT_THAT(error_of(file + "other\n"), HasSubstr("ms_hub_url"));
  EXPECT_THAT(error_of(file + "made\n"), HasSubstr("script_url"));
  const Recipe replaced = load(file + "made\n", {"data.train=a.jsonl"}).recipe;
  EXPECT_EQ(replaced.data.columns.at("instruction"), "q");
}

TEST_F(RealFiles, axolotls_own_row_formats_become_a_template) {
  const std::string file =
      "base_model: m\ndatasets:\n  - path: a.jsonl\n    type:\n      field_instruction: question\n      "
      "field_output: answer\n";
  const Recipe usual = recipe(file);
  EXPECT_EQ(usual.data.chat_template, "axolotl/formats");
  EXPECT_EQ(usual.data.columns.at("instruction"), "question");
  EXPECT_THAT(*usual.data.template_source, HasSubstr(R"((task ~ " "))")) << "no_input_format's default";
  const Recipe own = recipe(file +
                            "      system_prompt: Be brief.\n      format: \"[INST] {instruction}\\n"
                            "{input} {{}} [/INST]\"\n");
  EXPECT_THAT(*own.data.template_source, HasSubstr(R"(("[INST] " ~ task ~ "\n" ~ given ~ " {} [/INST]"))"));
  EXPECT_THAT(*own.data.template_source, HasSubstr("Be brief."));
  EXPECT_THAT(error_of(file + "      format: \"{instruction} {output}\"\n"),
              HasSubstr("'{output}' is not filled"));
  EXPECT_THAT(error_of(file + "      no_input_format: \"{input}\"\n"), HasSubstr("'{input}' is not filled"));
}

TEST_F(RealFiles, row_types_that_axolotl_names_have_their_columns_and_formats) {
  const auto read = [&](const std::string& type) {
    return recipe("base_model: m\ndatasets: [{path: a.jsonl, type: \"" + type + "\"}]\n").data;
  };
  const auto orca = read("alpaca_w_system.load_open_orca");
  EXPECT_EQ(orca.format, RowFormat::alpaca);
  EXPECT_EQ(orca.columns.at("system"), "system_prompt");
  EXPECT_FALSE(orca.columns.contains("input"));
  EXPECT_THAT(*orca.template_source, HasSubstr(R"(("### System:\n" ~ ns.system ~ "\n"))"));
  EXPECT_THAT(*orca.template_source, HasSubstr(R"(("### Human:\n" ~ task ~ "\n### Assistant:\n"))"));
  EXPECT_THAT(*read("alpaca_w_system.load_instruct").template_source, HasSubstr(R"((ns.system ~ "\n\n"))"));
  EXPECT_THAT(*read("alpaca_chat.load_qa").template_source, HasSubstr("concisely completes the request."));
  EXPECT_THAT(*read("alpaca_chat.load_no_prompt").template_source,
              HasSubstr(R"(("USER: " ~ task ~ "\nASSISTANT:"))"));
  EXPECT_THAT(*read("context_qa.load_v2").template_source,
              AllOf(HasSubstr(R"(("Context: " ~ given ~ "\nQuestion: " ~ task ~ "\n"))"),
                    HasSubstr(R"("Answer: " ~ message.content)")));
  const auto teacher = read("gpteacher:chat");
  EXPECT_EQ(teacher.chat_template, "axolotl/alpaca:chat");
  EXPECT_EQ(teacher.columns.at("output"), "response");
  EXPECT_EQ(read("oasst").columns.at("instruction"), "INSTRUCTION");
  EXPECT_THAT(error_of("base_model: m\ndatasets: [{path: a.jsonl, type: \"summarizetldr:chat\"}]\n"),
              HasSubstr("'summarizetldr:chat' does not exist here"));
}

TEST_F(RealFiles, tokens_to_add_change_nothing_where_the_tokenizer_has_them) {
  fs::create_directories(folder_ / "has");
  write("has/tokenizer_config.json",
        R"({"added_tokens_decoder": {"5": {"content": "<a>"}, "6": {"content": "<b>"}}})");
  const std::string axolotl = "base_model: has\nadapter: lora\ntokens: ";
  EXPECT_THAT(notes(load(axolotl + "[<a>, <b>]\n")), Contains("tokens: [<a>, <b>]"));
  EXPECT_THAT(error_of(axolotl + "[<a>, <c>]\n"), HasSubstr("has no '<c>'"));
  write("has/tokenizer.json", R"({"added_tokens": [{"id": 7, "content": "<c>"}]})");
  EXPECT_EQ(error_of(axolotl + "[<a>, <c>]\n"), "no error");
  EXPECT_EQ(error_of("model_name_or_path: has\nstage: sft\ntemplate: llama3\nadd_special_tokens: 'False'\n"),
            "no error");
  const std::string elsewhere = "base_model: o/nowhere\nadapter: lora\ntokens: [<a>]\n";
  EXPECT_THAT(error_of(elsewhere), HasSubstr("other tokens than the tokenizer's are not supported"));
  EXPECT_EQ(error_of(elsewhere, {"model=" + (folder_ / "has").string()}), "no error");
  const std::string lf =
      "model_name_or_path: has\nstage: sft\ntemplate: llama3\nresize_vocab: true\nadd_tokens: ";
  EXPECT_EQ(error_of(lf + "<a>,<b>\n"), "no error");
  EXPECT_THAT(error_of(lf + "<a>,new\n"), HasSubstr("has no 'new'"));
}

TEST_F(RealFiles, pre_training_begins_texts_where_the_tokenizer_says_so) {
  const std::string file = "stage: pt\ndataset: a.jsonl\nmodel_name_or_path: ";
  for (const auto& [name, config, begins] :
       {std::tuple{"said", R"({"add_bos_token": true})", true},
        std::tuple{"not", R"({"add_bos_token": false})", false},
        std::tuple{"llama2", R"({"tokenizer_class": "LlamaTokenizer"})", true},
        std::tuple{"llama3", R"({"tokenizer_class": "PreTrainedTokenizerFast"})", false}}) {
    fs::create_directories(folder_ / name);
    write(std::string(name) + "/tokenizer_config.json", config);
    EXPECT_EQ(recipe(file + name + "\n").data.bos, begins) << name;
    EXPECT_EQ(load(file + "o/nowhere\n", {"model=" + (folder_ / name).string()}).recipe.data.bos, begins)
        << name;
  }
}

TEST_F(RealFiles, instructions_of_older_torchtune_are_those_of_alpaca) {
  const std::string file =
      "model: {_component_: torchtune.models.llama3.llama3_8b}\ncheckpointer: {checkpoint_dir: m}\n"
      "tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer}\n"
      "dataset: {_component_: torchtune.datasets.instruct_dataset, source: a.jsonl, template: torchtune.data.";
  const Recipe old = recipe(file + "AlpacaInstructTemplate}\n");
  EXPECT_EQ(old.data.format, RowFormat::alpaca);
  EXPECT_EQ(old.data.train_on_prompt, PromptLoss::no);
  EXPECT_THAT(error_of(file + "SummarizeTemplate}\n"), HasSubstr("SummarizeTemplate' does not exist here"));
}

TEST_F(RealFiles, keys_of_the_file_name_each_other_and_loggers_have_any) {
  const LoadedRecipe loaded = load(
      "root: out\nshared: ${root}/shared\nresults: ${shared}/results\noutput_dir: ${results}/run\n"
      "model: {_component_: torchtune.models.llama3.llama3_8b}\ncheckpointer: {checkpoint_dir: m}\n"
      "metric_logger: {_component_: torchtune.training.metric_logging.WandBLogger, job_type: first}\n");
  EXPECT_THAT(*loaded.recipe.output, testing::EndsWith("out/shared/results/run"));
  EXPECT_THAT(notes(loaded),
              testing::AllOf(Contains("shared: out/shared"), Contains("results: out/shared/results"),
                             Contains("metric_logger.job_type: first")));
  EXPECT_EQ(error_of(kAxolotlRun + "special_tokens: {}\neval_table_max_new_tokens: 128\n"), "no error");
  EXPECT_THAT(error_of(kAxolotlRun + "special_tokens: {new: <a>}\n"), HasSubstr("special_tokens"));
}

TEST_F(RealFiles, files_of_a_loader_need_no_path) {
  const std::string file = "base_model: m\ndatasets:\n  - ds_type: json\n    type: alpaca\n";
  EXPECT_EQ(recipe(file + "    data_files: [a.jsonl]\n").data.train.size(), 1U);
  EXPECT_THAT(error_of(file), HasSubstr("an entry has no path"));
}

TEST_F(RealFiles, numbers_have_underscores) {
  EXPECT_EQ(recipe(kAxolotlRun + "sequence_len: 500_000\n").data.max_length, 500'000);
  EXPECT_THAT(error_of(kAxolotlRun + "sequence_len: _5\n"), HasSubstr("expected a whole number"));
}

TEST_F(RealFiles, deepspeed_files_that_the_tools_ship_are_known_by_name) {
  EXPECT_EQ(error_of(kAxolotlRun + "deepspeed: deepspeed_configs/zero3_bf16.json\n"), "no error");
  EXPECT_EQ(error_of(kAxolotlRun + "deepspeed: /elsewhere/ds_z2_offload_config.json\n"), "no error");
  EXPECT_EQ(load(kAxolotlRun + "deepspeed: /elsewhere/ds_z2_offload_config.json\n")
                .other_tools.notes.count("DeepSpeed's file"),
            0U);
  write("mine.json", R"({"zero_optimization": {"stage": 2}, "fp16": {"enabled": true}})");
  EXPECT_THAT(error_of(kAxolotlRun + "deepspeed: mine.json\n"), HasSubstr("'fp16.enabled'"));
  EXPECT_EQ(load(kAxolotlRun + "fp16: true\nbf16: false\ndeepspeed: mine.json\n").recipe.precision.weights,
            DType::f16);
  write("mine.json",
        R"({"zero_optimization": {"stage": 2}, "optimizer": {"type": "Lamb", "params": {"lr": 1}}})");
  EXPECT_THAT(error_of(kAxolotlRun + "deepspeed: mine.json\n"),
              HasSubstr("'optimizer': 'Lamb' does not exist here"));
  write("mine.json",
        R"({"zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})");
  EXPECT_EQ(error_of(kAxolotlRun + "deepspeed: mine.json\n"), "no error");
}

// --- batches
// -------------------------------------------------------------------------------------------------

TEST_F(RealFiles, batch_of_a_device_times_accumulation_times_processes_is_the_effective_batch) {
  struct Keys {
    std::string base, micro, accumulation;
  };
  const std::vector<Keys> tools = {
      {"model_name_or_path: m\nstage: sft\n", "per_device_train_batch_size", "gradient_accumulation_steps"},
      {"model_name_or_path: m\nstage: sft\n", "micro_batch_size", "gradient_accumulation_steps"},
      {"base_model: m\n", "micro_batch_size", "gradient_accumulation_steps"},
      {"model: {_component_: torchtune.models.qwen2.qwen2_0_5b}\ncheckpointer: {checkpoint_dir: m}\n",
       "batch_size", "gradient_accumulation_steps"},
      {"model_name_or_path: m\ndataset_name: a.jsonl\n", "per_device_train_batch_size",
       "gradient_accumulation_steps"},
      {"model: m\n", "batch_size", "gradient_accumulation_steps"},
      {"model: m\n", "batch_size_per_gpu", "gradient_accumulation_steps"},
      {"model: m\n", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}};
  const std::vector<std::string> launchers = {"world_size: ",
                                              "num_processes: ",
                                              "nproc_per_node: ",
                                              "n_gpus: ",
                                              "num_gpus: ",
                                              "gpus_per_node: ",
                                              "accelerate_config: {num_machines: 1, num_processes: ",
                                              "nnodes: 1\nnum_gpus: "};
  const std::vector<int64_t> numbers = {1, 2, 3, 8, 16};
  for (const Keys& tool : tools)
    for (const std::string& launcher : launchers)
      for (const int64_t micro : numbers)
        for (const int64_t times : numbers) {
          const int64_t processes = numbers[static_cast<size_t>(micro * 7 + times * 3) % numbers.size()];
          const std::string text = tool.base + tool.micro + ": " + std::to_string(micro) + "\n" +
                                   tool.accumulation + ": " + std::to_string(times) + "\n" + launcher +
                                   std::to_string(processes) +
                                   (launcher.find('{') != std::string::npos ? "}\n" : "\n");
          const LoadedRecipe loaded = load(text);
          ASSERT_EQ(loaded.recipe.batch.effective, micro * times * processes) << text;
          EXPECT_TRUE(loaded.other_tools.notes.empty()) << text;
        }
}

TEST_F(RealFiles, nodes_and_parts_of_a_model_count) {
  const auto batch = [&](const std::string& text) {
    return recipe("batch_size: 4\nmodel: m\n" + text).batch.effective;
  };
  EXPECT_EQ(batch("nproc_per_node: 2\nnnodes: 3\n"), 24);
  EXPECT_EQ(batch("nproc_per_node: 2\nnnodes: 3\nworld_size: 6\n"), 24);
  EXPECT_EQ(batch("num_processes: 6\nnum_machines: 3\n"), 24);  // accelerate's is of all machines
  const auto divided_batch = [&](const std::string& text) {
    return recipe(kAxolotlRun + "micro_batch_size: 2\n" + text).batch.effective;
  };
  EXPECT_EQ(divided_batch("world_size: 8\ntensor_parallel_size: 2\ncontext_parallel_size: 2\n"), 4);
  EXPECT_EQ(recipe("model_name_or_path: m\nstage: sft\nper_device_train_batch_size: 2\nray_num_workers: 4\n")
                .batch.effective,
            8);
  EXPECT_EQ(recipe(kAxolotlRun + "micro_batch_size: 2\nray_num_workers: 4\n").batch.effective, 2);
  EXPECT_EQ(recipe(kAxolotlRun + "micro_batch_size: 2\nuse_ray: true\nray_num_workers: 4\n").batch.effective,
            8);
  EXPECT_EQ(divided_batch("dp_shard_size: 2\ndp_replicate_size: 3\n"), 12);
  EXPECT_EQ(divided_batch("dp_shard_size: 4\ntensor_parallel_size: 2\nworld_size: 8\n"), 8);
  EXPECT_THAT(error_of(kAxolotlRun + "micro_batch_size: 2\ndp_shard_size: 4\nworld_size: 3\n"),
              HasSubstr("says 4 processes, 'world_size: 3' 3"));
  EXPECT_THAT(error_of("model: m\nbatch_size: 4\nnproc_per_node: 2\nnnodes: 3\nworld_size: 5\n"),
              HasSubstr("2 x 3 = 6 processes, 'world_size: 5' says 5"));
  EXPECT_THAT(error_of("model: m\nbatch_size: 4\nnum_gpus: 2\nnnodes: 3\n"), HasSubstr("Say world_size"));
  EXPECT_EQ(batch("num_gpus: 2\nnnodes: 3\nworld_size: 6\n"), 24);
  EXPECT_THAT(error_of(kAxolotlRun + "micro_batch_size: 2\nworld_size: 3\ntensor_parallel_size: 2\n"),
              HasSubstr("3 processes cannot be divided by 2"));
  const std::string most = "model: m\nbatch_size: 1000000\ngradient_accumulation_steps: 1000000\n";
  EXPECT_THAT(error_of(most + "nproc_per_node: 1000000\nnnodes: 1000000\n"), HasSubstr("1,000,000"));
  EXPECT_THAT(error_of(kAxolotlRun + "micro_batch_size: 2\ndp_shard_size: 4000000000\n"
                                     "dp_replicate_size: 4000000000\n"),
              HasSubstr("1,000,000"));
}

TEST_F(RealFiles, shards_of_a_mesh_divide_the_weights_and_what_shares_a_layer_is_one_process) {
  const std::string axolotl = kAxolotlRun + "micro_batch_size: 2\n";
  const LoadedRecipe sharded = load(axolotl + "dp_shard_size: 4\n");
  EXPECT_EQ(sharded.recipe.batch.effective, 8);
  EXPECT_EQ(sharded.recipe.memory.shard, ShardStage::weights);
  EXPECT_EQ(recipe(axolotl + "dp_replicate_size: 4\n").memory.shard, Recipe{}.memory.shard);
  EXPECT_EQ(recipe(axolotl + "dp_shard_size: 1\ntensor_parallel_size: 1\n").batch.effective, 2);
  const LoadedRecipe hybrid = load(axolotl + "dp_shard_size: 2\ndp_replicate_size: 3\n");
  EXPECT_EQ(hybrid.recipe.batch.effective, 12);
  EXPECT_EQ(hybrid.recipe.memory.shard, ShardStage::weights);
  EXPECT_EQ(
      recipe("model: {_component_: torchtune.models.llama3.llama3_8b}\ncheckpointer: {checkpoint_dir: m}\n"
             "batch_size: 4\nnproc_per_node: 4\ndata_parallel_replicate_dim: 2\n")
          .batch.effective,
      16);
  const std::string factory = "model_name_or_path: m\nstage: sft\nper_device_train_batch_size: 2\n";
  const std::string tune = "model: m\nbatch_size: 4\nnproc_per_node: 4\n";
  for (const auto& [text, key] :
       {std::pair{axolotl + "tensor_parallel_size: 2\nworld_size: 4\n", "tensor_parallel_size"},
        {axolotl + "context_parallel_size: 2\nworld_size: 4\n", "context_parallel_size"},
        {axolotl + "sequence_parallel_degree: 2\nworld_size: 4\n", "sequence_parallel_degree"},
        {factory + "sequence_parallel_size: 2\nworld_size: 4\n", "sequence_parallel_size"},
        {tune + "tensor_parallel_dim: 2\n", "tensor_parallel_dim"},
        {tune + "context_parallel_dim: 2\n", "context_parallel_dim"},
        {kTrl + "per_device_train_batch_size: 2\nparallelism_config: {tp_size: 2}\nworld_size: 4\n",
         "parallelism_config_tp_size"}}) {
    const LoadedRecipe split = load(text);
    EXPECT_EQ(split.recipe.batch.effective, text.starts_with("model: m") ? 8 : 4) << text;
    ASSERT_EQ(split.other_tools.notes.size(), 1U) << text;
    EXPECT_THAT(split.other_tools.notes.begin()->second,
                AllOf(HasSubstr(key), HasSubstr("count as one process of the batch")));
  }
  const LoadedRecipe unsaid = load(axolotl + "tensor_parallel_size: 2\n");
  EXPECT_EQ(unsaid.recipe.batch.effective, 2);
  EXPECT_THAT(unsaid.other_tools.notes.at("batch"), HasSubstr("of N processes it is N x 2"));
  EXPECT_EQ(
      recipe(kTrl + "per_device_train_batch_size: 2\nparallelism_config: {dp_shard_size: 4}\n").memory.shard,
      ShardStage::weights);
  write("acc.yaml",
        "{num_processes: 8, use_parallelism_config: true, parallelism_config: "
        "{parallelism_config_dp_shard_size: 4, parallelism_config_dp_replicate_size: 2}}");
  EXPECT_EQ(recipe(kTrl + "per_device_train_batch_size: 2\naccelerate_config: acc.yaml\n").batch.effective,
            16);
}

TEST_F(RealFiles, a_batch_that_processes_split_among_them_is_refused) {
  EXPECT_THAT(error_of(kTrl + "split_batches: true\n"), HasSubstr("a batch that the processes split"));
  EXPECT_THAT(error_of(kTrl + "accelerator_config: {split_batches: true, dispatch_batches: false}\n"),
              HasSubstr("a batch that the processes split"));
  EXPECT_EQ(error_of(kTrl + "accelerator_config: {split_batches: false, dispatch_batches: true}\n"),
            "no error");
}

TEST_F(RealFiles, adapters_of_llama_factory_are_in_bf16_whether_it_is_off_or_not_said) {
  const std::string lora = "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\n";
  EXPECT_EQ(recipe(lora).precision, recipe(lora + "bf16: true\n").precision);
  EXPECT_EQ(recipe(lora + "bf16: false\n").precision, recipe(lora + "bf16: true\n").precision);
  EXPECT_NE(recipe("model_name_or_path: m\nstage: sft\nfinetuning_type: full\nbf16: false\n").precision,
            recipe(lora).precision);
}

TEST_F(RealFiles, keys_that_change_nothing_are_noted) {
  EXPECT_THAT(notes(load(kAxolotlRun + "lora_fan_in_fan_out: true\n")),
              Contains("lora_fan_in_fan_out: true"));
  EXPECT_THAT(notes(load(kTrl + "should_log: true\npad_to_max_length: true\n")),
              AllOf(Contains("should_log: true"), Contains("pad_to_max_length: true")));
  EXPECT_THAT(error_of("base_model: m\nadapter: ia3\nlora_r: 8\nmicro_batch_size: 2\n"),
              HasSubstr("adapter: 'ia3' is not known here"));
  EXPECT_THAT(error_of(kAxolotlRun + "max_packed_sequence_len: 512\n"),
              HasSubstr("sample_packing: true packs whole rows"));
  EXPECT_EQ(error_of(kAxolotlRun + "datasets: [{path: a.jsonl, type: alpaca, train_on_split: train}]\n"),
            "no error");
  EXPECT_THAT(error_of(kTrl + "eval_strategy: steps\ndataset_name: some/rows\n"),
              HasSubstr("rows to evaluate on (--set data.eval=FILE names others)"));
}

TEST_F(RealFiles, a_batch_of_one_process_is_noted_until_their_number_is_said) {
  const std::string text = kAxolotlRun + "micro_batch_size: 2\ngradient_accumulation_steps: 4\n";
  EXPECT_THAT(load(text).other_tools.notes.at("batch"),
              HasSubstr("batch.effective is 8, that of one process; of N processes it is N x 8"));
  for (const char* set : {"world_size=3", "batch.effective=24"}) {
    Overrides overrides;
    overrides.sets = {set};
    const LoadedRecipe loaded = load(text, overrides);
    EXPECT_EQ(loaded.recipe.batch.effective, 24);
    EXPECT_TRUE(loaded.other_tools.notes.empty()) << set;
  }
  EXPECT_TRUE(load("model: m\nbatch: {effective: 4}\n").other_tools.notes.empty());
}

TEST_F(RealFiles, batches_of_deepspeed_are_read_and_must_agree) {
  const auto batch = [&](const std::string& file, const std::string& more = "") {
    write("ds.json", file);
    return recipe("model: m\ndeepspeed: ds.json\n" + more).batch;
  };
  const std::string whole =
      R"({"train_batch_size": 384, "train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": 8,
          // three cards
          "zero_optimization": {"stage": 2} /* no offload */})";
  EXPECT_EQ(batch(whole).effective, 384);
  EXPECT_EQ(batch(whole).micro, 16);
  EXPECT_EQ(batch(whole, "world_size: 3\nbatch_size_per_gpu: 16\n").effective, 384);
  const std::string automatic =
      R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"})";
  EXPECT_EQ(batch(automatic, "batch_size: 2\nworld_size: 4\n").effective, 8);
  EXPECT_EQ(batch(R"({"train_batch_size": 48, "train_micro_batch_size_per_gpu": "auto"})", "batch_size: 4\n")
                .effective,
            48);
  const auto error = [&](const std::string& file, const std::string& more) {
    write("ds.json", file);
    return error_of("model: m\ndeepspeed: ds.json\n" + more);
  };
  const std::string other =
      R"({"train_batch_size": 256, "train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": 8})";
  EXPECT_THAT(error(other, "world_size: 3\n"), HasSubstr("16 x 8 x 3 = 384, train_batch_size says 256"));
  EXPECT_EQ(batch(other).effective, 256);  // two processes
  EXPECT_THAT(error(R"({"train_batch_size": 100, "train_micro_batch_size_per_gpu": 16})", ""),
              HasSubstr("16 x A x N cannot be that, train_batch_size says 100"));
  EXPECT_THAT(error(whole, "batch_size: 2\n"), HasSubstr("contradicts 'batch_size: 2'"));
  EXPECT_THAT(error(R"({"gradient_clipping": 0.5})", "gradient_clipping: 1.0\n"), HasSubstr("contradict"));
  EXPECT_THAT(error_of("model: m\ntrain_batch_size: 32\n"), HasSubstr("of one device, or of all?"));
  EXPECT_EQ(recipe("model: m\ntrain_batch_size: 32\ntrain_micro_batch_size_per_gpu: 4\n").batch.effective,
            32);
}

TEST_F(RealFiles, configurations_of_accelerate_are_read) {
  write("acc.yaml",
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nmixed_precision: "
        "bf16\nnum_machines: 1\n"
        "num_processes: 3\ndeepspeed_config: {gradient_accumulation_steps: 8, zero_stage: 3, "
        "offload_optimizer_device: "
        "cpu, offload_param_device: none}\n");
  const LoadedRecipe loaded =
      load("model: m\nbatch_size_per_gpu: 16\naccelerate_config: acc.yaml\nmemory: {disk: 9GiB}\n");
  EXPECT_EQ(loaded.recipe.batch.effective, 384);
  EXPECT_EQ(loaded.recipe.memory.tier, "stage3");
  // The file itself, with a model.
  Overrides overrides;
  overrides.sets = {"model=m", "batch_size_per_gpu=16"};
  const Recipe itself = load_recipe((folder_ / "acc.yaml").string(), overrides).recipe;
  EXPECT_EQ(itself.batch.effective, 384);
  overrides.sets = {"accelerate_config=" + (folder_ / "acc.yaml").string()};
  EXPECT_EQ(load(kTrl + "per_device_train_batch_size: 2\n", overrides).recipe.batch.effective, 48);
  EXPECT_EQ(recipe(kTrl + "per_device_train_batch_size: 2\naccelerate_config: zero2\n").batch.effective, 16);
  EXPECT_EQ(recipe(kTrl + "per_device_train_batch_size: 2\naccelerate_config: single_gpu\n").batch.effective,
            2);
  EXPECT_THAT(error_of(kTrl + "accelerate_config: {megatron_lm_config: {a: 1}}\n"),
              HasSubstr("'megatron_lm_config'"));
}

TEST_F(RealFiles, offload_of_deepspeed_is_a_tier_wherever_the_device_is_said) {
  write("z.json", R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})");
  const auto loaded = [&](const std::string& more, const std::vector<std::string>& sets) {
    Overrides overrides;
    overrides.sets = sets;
    return load("model: m\ndeepspeed: z.json\n" + more, overrides);
  };
  const std::vector<std::vector<std::string>> targets = {
      {"device=card", "memory.device=4GiB"},
      {"device=cuda"},
      {"device=cuda:1"},
      {"device=emulated"},
      {"device=card", "memory.device=auto", "memory.gpu=RTX 3060 12GB"},
      {"memory.disk=4GiB"}};
  for (const std::vector<std::string>& sets : targets) {
    const LoadedRecipe with = loaded("", sets);
    EXPECT_EQ(with.recipe.memory.tier, "stage2_offload") << sets.front();
    EXPECT_THAT(notes(with), testing::Not(Contains("deepspeed: z.json"))) << sets.front();
  }
  EXPECT_EQ(loaded("device: emulated\n", {}).recipe.memory.tier, "stage2_offload");
  const LoadedRecipe on_cpu = loaded("", {});
  EXPECT_EQ(on_cpu.recipe.memory.tier, std::nullopt);
  EXPECT_THAT(notes(on_cpu), Contains("deepspeed: z.json"));
  EXPECT_EQ(loaded("memory: {disk: 4GiB}\n", {"memory.disk=0"}).recipe.memory.tier, std::nullopt);
  EXPECT_EQ(loaded("", {"memory.tier=minimal", "memory.disk=4GiB"}).recipe.memory.tier, "minimal");
  EXPECT_EQ(loaded("", {"memory.tier=null", "memory.disk=4GiB"}).recipe.memory.tier, std::nullopt);
  EXPECT_EQ(loaded("", {"memory.disk=4GiB", "memory.tier=null"}).recipe.memory.tier, std::nullopt);
  EXPECT_EQ(loaded("", {"memory.offload=none", "memory.disk=4GiB"}).recipe.memory.tier, std::nullopt);
}

// -------------------------------------------------------------------------------------------------------------

TEST_F(RealFiles, shares_of_the_handbook_are_the_first_rows) {
  const Recipe read =
      recipe("model_name_or_path: m\ndataset_mixer: {a.jsonl: 0.25}\ndataset_splits: [train]\n");
  ASSERT_EQ(read.data.train.size(), 1U);
  EXPECT_EQ(read.data.train.front().rows.of(100), (std::pair<int64_t, int64_t>{0, 25}));
  EXPECT_THAT(error_of("model_name_or_path: m\ndataset_mixer: {a.jsonl: 1.5}\n"),
              HasSubstr("a share of the rows"));
}

TEST_F(RealFiles, conversations_of_the_handbooks_older_recipes_are_packed_and_its_pairs_are_not) {
  const std::string mixture =
      "model_name_or_path: m\ndataset_mixer: {a.jsonl: 1.0}\ndataset_splits: [train]\n";
  const LoadedRecipe packed = load(mixture);
  EXPECT_TRUE(packed.recipe.data.packing);
  EXPECT_THAT(packed.other_tools.notes.at("packing"), HasSubstr("--set data.packing=false"));
  EXPECT_FALSE(recipe(mixture + "packing: false\n").data.packing);
  EXPECT_FALSE(recipe(mixture + "beta: 0.1\nloss_type: sigmoid\n").data.packing);
  EXPECT_FALSE(recipe("model_name_or_path: m\ndataset_mixture: {datasets: [{id: a.jsonl}]}\n").data.packing);
}

TEST_F(RealFiles, lengths_of_answers_that_cut_nothing_are_noted) {
  const std::string pairs = "model_name_or_path: m\nbeta: 0.1\nmax_length: 100\ndataset_name: a.jsonl\n";
  EXPECT_EQ(error_of(pairs + "loss_type: sigmoid\nmax_completion_length: 100\n"), "no error");
  EXPECT_THAT(error_of(pairs + "loss_type: sigmoid\nmax_completion_length: 99\n"),
              HasSubstr("answers that are cut by themselves"));
  EXPECT_EQ(error_of(pairs + "output_dir: runs/orpo\nmax_completion_length: 99\n"), "no error");
}

TEST_F(RealFiles, pairs_of_axolotls_named_types_have_their_columns_and_a_template) {
  const auto read = [&](const std::string& type) {
    return recipe(kAxolotlRun + "rl: dpo\ndatasets: [{path: a.jsonl, type: " + type + "}]\n").data;
  };
  const auto intel = read("chatml.intel");
  EXPECT_EQ(intel.format, RowFormat::preference);
  EXPECT_EQ(intel.chat_template, "axolotl/chatml");
  EXPECT_EQ(intel.columns.at("prompt"), "question");
  EXPECT_EQ(intel.columns.at("system"), "system");
  const auto argilla = read("llama3.argilla");
  EXPECT_EQ(argilla.chat_template, "axolotl/llama3");
  EXPECT_EQ(argilla.columns.at("chosen"), "chosen_response");
  EXPECT_EQ(read("chatml.prompt_pairs").columns.at("prompt"), "prompt");
  EXPECT_FALSE(read("chatml.ultra").columns.contains("prompt")) << "the answers have their question in them";
  EXPECT_FALSE(read("chat_template.argilla").columns.contains("prompt"));
  EXPECT_THAT(error_of(kAxolotlRun + "rl: dpo\ndatasets: [{path: a.jsonl, type: chatml.other}]\n"),
              HasSubstr("'chatml.other' does not exist here"));
  const auto clue = recipe(kAxolotlRun + "datasets: [{path: a.jsonl, type: jeopardy}]\n").data;
  EXPECT_EQ(clue.columns.at("input"), "category");
  EXPECT_THAT(*clue.template_source, HasSubstr("what is "));
}

TEST_F(RealFiles, pairs_of_torchtune_are_dpos_and_its_reference_is_the_model_that_it_begins_with) {
  const std::string tune =
      "model: {_component_: torchtune.models.llama3.llama3_8b}\ncheckpointer: {checkpoint_dir: m}\nbatch_size: 4\n"
      "tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer}\n"
      "dataset: {_component_: torchtune.datasets.stack_exchange_paired_dataset, source: json, data_files: a.jsonl}\n";
  const Recipe pairs = recipe(tune +
                              "loss: {_component_: torchtune.rlhf.loss.DPOLoss, beta: 0.05}\n"
                              "ref_checkpointer: {checkpoint_dir: m}\n");
  EXPECT_EQ(pairs.task, Task::dpo);
  EXPECT_DOUBLE_EQ(pairs.dpo.beta, 0.05);
  EXPECT_EQ(pairs.data.format, RowFormat::preference);
  EXPECT_EQ(pairs.data.columns.at("chosen"), "response_j");
  EXPECT_EQ(pairs.data.chat_template, "torchtune/llama3");
  EXPECT_THAT(
      error_of(tune +
               "loss: {_component_: torchtune.rlhf.loss.DPOLoss}\nref_checkpointer: {checkpoint_dir: o}\n"),
      HasSubstr("another reference"));
  EXPECT_THAT(error_of(tune + "loss: {_component_: torchtune.rlhf.loss.RSOLoss}\n"),
              HasSubstr("and DPOLoss are"));
}

TEST_F(RealFiles, tokenizers_of_torchtune_name_the_template_and_a_system_message_begins_it) {
  const auto read = [&](const std::string& tokenizer, const std::string& more = "") {
    return recipe(
               "model: {_component_: torchtune.models.x.y}\ncheckpointer: {checkpoint_dir: m}\nbatch_size: 4\n"
               "tokenizer: {_component_: torchtune.models." +
               tokenizer +
               "}\ndataset: {_component_: "
               "torchtune.datasets.instruct_dataset, source: json, data_files: a.jsonl" +
               more + "}\n")
        .data;
  };
  EXPECT_EQ(read("gemma.gemma_tokenizer").chat_template, "torchtune/plain");
  EXPECT_EQ(read("phi3.phi3_mini_tokenizer").chat_template, "torchtune/phi3");
  EXPECT_EQ(read("phi4.phi4_tokenizer").chat_template, "torchtune/phi4");
  EXPECT_EQ(read("llama3.llama3_tokenizer").template_source, std::nullopt);
  EXPECT_THAT(*read("llama3.llama3_tokenizer", ", new_system_prompt: 'Be \"good\".'").template_source,
              AllOf(HasSubstr(R"('content': "Be \"good\".")"), HasSubstr("<|start_header_id|>")));
}

TEST_F(RealFiles, an_expression_for_targets_names_the_modules_that_it_takes_of_every_layer) {
  const auto read = [&](const std::string& expression) {
    return load("base_model: m\nadapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_modules: '" +
                expression + "'\n")
        .recipe.method.targets;
  };
  EXPECT_THAT(
      read(R"(model.language_model.layers.[\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj)"),
      testing::UnorderedElementsAre("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                    "down_proj"));
  EXPECT_THAT(read(R"(.*\.self_attn\.(q|v)_proj)"), testing::ElementsAre("q_proj", "v_proj"));
  EXPECT_THAT(
      error_of("base_model: m\nadapter: lora\nlora_target_modules: '.*layers.(1|2).self_attn.q_proj'\n"),
      HasSubstr("takes no linear module of every layer"));
  // One that is no expression, and one that would try every way to divide a name.
  for (const char* bad : {"(q_proj", "((.*)*)*x"})
    EXPECT_THAT(error_of(std::string("base_model: m\nadapter: lora\nlora_target_modules: '") + bad + "'\n"),
                HasSubstr("takes no linear module of every layer"));
}

TEST_F(RealFiles, robust_pairs_without_flipped_labels_are_those_of_dpo) {
  const std::string pairs = "model_name_or_path: m\nbeta: 0.1\ndataset_name: a.jsonl\nloss_type: robust\n";
  EXPECT_EQ(recipe(pairs).dpo.loss, PreferenceLoss::sigmoid);
  EXPECT_THAT(error_of(pairs + "label_smoothing: 0.1\n"), HasSubstr("robust"));
}

TEST_F(RealFiles, launch_files_that_are_not_here_are_noted) {
  const std::string trl = kTrl + "learning_rate: 1.0e-5\n";
  const LoadedRecipe deep = load(trl + "deepspeed: configs/mine.json\n");
  EXPECT_THAT(deep.other_tools.notes.at("DeepSpeed's file"),
              HasSubstr("configs/mine.json is not on this machine"));
  EXPECT_DOUBLE_EQ(deep.recipe.optimizer.lr, 1e-5);
  const LoadedRecipe launched = load(trl + "accelerate_config: configs/mine.yaml\n");
  EXPECT_THAT(launched.other_tools.notes.at("accelerate's file"), HasSubstr("is not on this machine"));
  write("z.json", R"({"zero_optimization": {"stage": 2}})");
  EXPECT_EQ(
      load(trl + "deepspeed: configs/mine.json\n", {.sets = {"deepspeed=" + (folder_ / "z.json").string()}})
          .other_tools.notes.count("DeepSpeed's file"),
      0U);
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

TEST_F(RealFiles, sharegpt_is_read_as_its_successor_where_its_template_is_known) {
  const LoadedRecipe loaded =
      load(kAxolotlRun + "datasets: [{path: a.jsonl, type: sharegpt, conversation: chatml}]\n");
  EXPECT_EQ(loaded.recipe.data.format, RowFormat::messages);
  EXPECT_EQ(loaded.recipe.data.chat_template, "axolotl/chatml");
  EXPECT_EQ(loaded.recipe.data.columns.at("messages"), "conversations");
  EXPECT_THAT(loaded.other_tools.notes.at("sharegpt"), HasSubstr("read as chat_template"));
  EXPECT_EQ(recipe(kAxolotlRun + "chat_template: llama3\ndatasets: [{path: a.jsonl, type: sharegpt}]\n")
                .data.chat_template,
            "axolotl/llama3");
  for (const char* entry : {"type: sharegpt", "type: sharegpt, conversation: vicuna_v1.1"})
    EXPECT_THAT(error_of(kAxolotlRun + "datasets: [{path: a.jsonl, " + entry + "}]\n"),
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

TEST_F(RealFiles, older_recipes_of_torchtune_say_the_length_at_their_rows) {
  const std::string head =
      "model: {_component_: torchtune.models.llama3.llama3_8b}\ntokenizer: {_component_: "
      "torchtune.models.llama3.llama3_tokenizer}\ncheckpointer: {checkpoint_dir: m}\nbatch_size: 2\n";
  const std::string rows = "dataset: {_component_: torchtune.datasets.alpaca_dataset, source: a.jsonl";
  EXPECT_EQ(recipe(head + rows + ", max_seq_len: 512}\n").data.max_length, 512);
  EXPECT_EQ(recipe(head + rows + ", max_seq_len: null}\n").data.max_length, kLongestRow);
  EXPECT_THAT(error_of(head + "dataset: {_component_: torchtune.datasets.text_completion_dataset, source: "
                              "a.jsonl, column: text, max_seq_len: 512}\n"),
              HasSubstr("tokenizer.max_seq_len"));
}

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
  EXPECT_THAT(error_of(text),
              HasSubstr("tokenizer_name_or_path: a tokenizer or config.json of another folder"));
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

TEST_F(RealFiles, a_name_says_which_of_trl_s_trainers_reads_its_beta) {
  const std::string text = kTrl + "beta: 0.05\noutput_dir: runs/zephyr-ORPO\n";
  const LoadedRecipe loaded = load(text);
  EXPECT_EQ(loaded.recipe.task, Task::dpo);
  EXPECT_EQ(loaded.recipe.dpo.loss, PreferenceLoss::orpo);
  EXPECT_DOUBLE_EQ(loaded.recipe.dpo.beta, 0.05);
  EXPECT_THAT(loaded.other_tools.notes.at("task"), HasSubstr("ORPO is taken"));
  Overrides overrides;
  overrides.sets = {"dpo.loss=sigmoid"};
  EXPECT_EQ(load(text, overrides).recipe.dpo.loss, PreferenceLoss::sigmoid);
  // A loss that is named is not ORPO's.
  EXPECT_THAT(error_of(text + "loss_type: sigmoid\n"), HasSubstr("a name here says orpo: say task: dpo"));
  EXPECT_THAT(error_of(kTrl + "beta: 0.05\noutput_dir: runs/orpo-then-dpo\n"),
              HasSubstr("a name here says orpo:"));
  for (const char* name : {"runs/corpora", "runs/corporate-dpo"})
    EXPECT_EQ(recipe(kTrl + "beta: 0.05\noutput_dir: " + name + "\n").dpo.loss, PreferenceLoss::sigmoid)
        << name;
}

TEST_F(RealFiles, keys_of_pairs_that_are_off_or_read_by_others_only_are_noted) {
  const std::string pairs = kTrl + "beta: 0.1\n";
  const LoadedRecipe loaded =
      load(pairs + "reference_free: false\nref_model_mixup_alpha: 0.9\nref_model_sync_steps: 64\n");
  EXPECT_THAT(notes(loaded), Contains("ref_model_sync_steps: 64"));
  EXPECT_THAT(error_of(pairs + "reference_free: true\n"), HasSubstr("without their reference"));
  EXPECT_THAT(error_of(pairs + "sync_ref_model: true\n"), HasSubstr("sync_ref_model"));
}

TEST_F(RealFiles, older_names_of_packing_and_of_special_tokens_are_read) {
  EXPECT_TRUE(recipe(kTrl + "use_packing: true\n").data.packing);
  EXPECT_FALSE(recipe(kTrl + "use_packing: false\n").data.packing);
  EXPECT_EQ(recipe(kAxolotlRun + "tokens: {eos_token: </s>}\n").data.special_tokens.at("eos_token"), "</s>");
}

TEST_F(RealFiles, keys_by_which_scripts_name_their_rows_are_read) {
  write("b.jsonl", "{}");
  const std::string script = "model_id: m\ntraining: {learning_rate: 1e-4, num_epochs: 1}\n";
  const Recipe read =
      recipe(script + "data_file: a.jsonl\ndev_file: b.jsonl\ntest_size: 0.1\ntest_file: c.jsonl\n");
  EXPECT_THAT(read.model, HasSubstr("m"));
  ASSERT_EQ(read.data.train.size(), 1U);
  EXPECT_THAT(read.data.train.front().path, HasSubstr("a.jsonl"));
  EXPECT_THAT(read.data.eval.path, HasSubstr("b.jsonl"));
  EXPECT_EQ(recipe(script + "data_file: a.jsonl\ntest_size: 0.1\n").data.eval.kind, EvalSource::Kind::share);
}

TEST_F(RealFiles, unknown_keys_that_are_off_are_noted_unless_a_word_of_training_is_in_them) {
  EXPECT_THAT(notes(load(kTrl + "sanity_check_only: false\n")), Contains("sanity_check_only: false"));
  EXPECT_THAT(error_of(kTrl + "sanity_check_only: true\n"), HasSubstr("unknown key 'sanity_check_only'"));
  for (const std::string key : {"mask_questions", "answers_only"})
    EXPECT_THAT(error_of(kTrl + key + ": false\n"), HasSubstr("unknown key '" + key + "'"));
}

TEST_F(RealFiles, parts_of_an_epoch_are_kept) {
  EXPECT_DOUBLE_EQ(recipe(kTrl + "num_train_epochs: 0.5\n").schedule.epochs, 0.5);
  EXPECT_DOUBLE_EQ(recipe(kAxolotlRun + "num_epochs: 1.5\n").schedule.epochs, 1.5);
  EXPECT_DOUBLE_EQ(recipe(kTrl + "num_train_epochs: 3.0\n").schedule.epochs, 3.0);
  const Recipe limited = recipe(kTrl + "num_train_epochs: 0.5\nmax_steps: 20\n");
  EXPECT_EQ(limited.schedule.max_steps, 20);
  EXPECT_EQ(recipe(kTrl + "num_train_epochs: 0\nmax_steps: 20\n").schedule.max_steps, 20);
  EXPECT_THAT(error_of(kTrl + "num_train_epochs: 0\n"), HasSubstr("expected a number of epochs"));
  EXPECT_DOUBLE_EQ(
      recipe(kAxolotlRun + "num_epochs: 0.5\nval_set_size: 0.1\nevals_per_epoch: 4\n").eval.every.percent, 50)
      << "of all steps, which are half an epoch";
}

TEST_F(RealFiles, a_stream_of_texts_is_a_data_set_whose_texts_are_packed_apart) {
  const std::string stream =
      kAxolotlRun +
      "max_steps: 10\nsequence_len: 64\npretraining_dataset:\n  - path: a.jsonl\n    type: pretrain\n";
  const Recipe read = recipe(stream + "    text_column: body\n    skip: 100\nsample_packing: true\n");
  ASSERT_EQ(read.data.train.size(), 1U);
  EXPECT_EQ(read.data.format, RowFormat::text);
  EXPECT_EQ(read.data.columns.at("text"), "body");
  EXPECT_TRUE(read.data.packing);
  EXPECT_FALSE(read.data.joined) << "no text sees another";
  EXPECT_EQ(read.data.truncation, Truncation::refuse) << "axolotl cuts it into windows that overlap";
  EXPECT_EQ(read.data.train.front().rows, parse_row_range("100:"));
  EXPECT_EQ(recipe(kAxolotlRun + "max_steps: 10\npretraining_dataset: [{path: a.jsonl, type: completion}]\n"
                                 "sample_packing: true\n")
                .data.columns.at("text"),
            "text");
  EXPECT_EQ(
      recipe(kAxolotlRun + "max_steps: 10\npretraining_dataset: a.jsonl\nsample_packing: true\n").data.format,
      RowFormat::text);
  EXPECT_THAT(error_of(stream), HasSubstr("sample_packing=true"));
  EXPECT_THAT(error_of(stream + "sample_packing: true\npretrain_multipack_attn: false\n"),
              HasSubstr("pretrain_multipack_attn: packed texts that see each other"));
  EXPECT_THAT(error_of(stream + "  - path: b.jsonl\nsample_packing: true\n"),
              HasSubstr("the first data set alone"));
  EXPECT_THAT(error_of(kAxolotlRun +
                       "pretraining_dataset: [{path: a.jsonl, type: pygmalion}]\nsample_packing: true\n"),
              HasSubstr("'pygmalion' does not exist here"));
}

TEST_F(RealFiles, a_script_s_sections_may_name_their_model_as_axolotl_does) {
  const Recipe read = recipe(
      "base_model: m\nlora: {r: 4, alpha: 8}\ndata: {train_file: a.jsonl, max_seq_length: 64}\n"
      "training: {per_device_train_batch_size: 2, gradient_accumulation_steps: 8, num_train_epochs: 2,\n"
      "  learning_rate: 2.0e-4, warmup_ratio: 0.03}\n");
  EXPECT_EQ(read.batch.effective, 16);
  EXPECT_EQ(read.method.r, 4);
  EXPECT_EQ(read.data.max_length, 64);
  EXPECT_DOUBLE_EQ(read.optimizer.lr, 2e-4);
  EXPECT_EQ(read.save.keep, kKeepAll) << "transformers' default, not axolotl's 4";
}

TEST_F(RealFiles, extras_that_are_off_are_noted_and_scripts_have_words_of_their_own) {
  EXPECT_THAT(notes(load(kTrl + "use_ia3: false\nuse_focal_loss: false\n")),
              AllOf(Contains("use_ia3: false"), Contains("use_focal_loss: false")));
  EXPECT_THAT(error_of(kTrl + "use_ia3: true\n"), HasSubstr("another kind than LoRA's"));
  EXPECT_THAT(error_of(kTrl + "use_chat_template: false\n"), HasSubstr("unknown key 'use_chat_template'"));
  const LoadedRecipe own = load(kTrl + "template_name: qwen\nuse_peft: true\ntarget_modules: all\n");
  EXPECT_THAT(notes(own), Contains("template_name: qwen"));
  EXPECT_THAT(own.other_tools.notes.at("rows"), HasSubstr("the script of this file"));
  EXPECT_THAT(error_of("model: m\ntemplate_name: qwen\n"), HasSubstr("data.template names a template"));
  EXPECT_EQ(recipe(kTrl + "max_train_samples: -1\n").data.train.size(), 1U);
  EXPECT_THAT(recipe(kTrl + "val_ratio: 0.05\ntest_ratio: 0.15\n").data.eval.percent, testing::DoubleEq(20));
  EXPECT_EQ(recipe(kTrl + "validation_split_percentage: 5\nvalidation_file: a.jsonl\n").data.eval.kind,
            EvalSource::Kind::path);
  EXPECT_THAT(error_of(kTrl + "test_ratio: 0.1\nvalidation_file: a.jsonl\n"), HasSubstr("holds rows out"));
  EXPECT_THAT(error_of(kTrl + "truncation_side: left\n"), HasSubstr("at their beginning"));
  EXPECT_EQ(recipe(kTrl + "truncation_mode: keep_end\n").data.truncation, Truncation::refuse)
      << "exact where no row is cut";
  const std::string factory = "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\ndataset: a.jsonl\n";
  EXPECT_EQ(recipe(factory + "sft_packing: false\ndev_ratio: 0.1\n").data.eval.kind, EvalSource::Kind::share);
  EXPECT_DOUBLE_EQ(recipe(factory + "neft_alpha: 5\n").method.neftune_alpha, 5);
}

TEST_F(RealFiles, a_script_s_file_without_a_model_has_the_defaults_of_scripts) {
  const std::string file =
      "num_train_epochs: 2\nper_device_train_batch_size: 4\nlearning_rate: 1.0e-5\nbf16: true\nsave_strategy: epoch\n";
  Overrides overrides;
  overrides.sets = {"model=m", "data.train=a.jsonl"};
  const LoadedRecipe loaded = load(file, overrides);
  EXPECT_EQ(loaded.recipe.method.type, MethodType::full) << "no key speaks of adapters";
  EXPECT_EQ(loaded.recipe.batch.effective, 4);
  EXPECT_EQ(loaded.recipe.schedule.name, ScheduleName::linear);
  EXPECT_THAT(loaded.other_tools.notes.at("rows"), HasSubstr("the script of this file"));
  EXPECT_EQ(load(file + "lora_r: 8\n", overrides).recipe.method.type, MethodType::lora);
  EXPECT_EQ(load("method: {r: 4}\n" + file, overrides).recipe.method.type, MethodType::lora)
      << "a recipe of ours";
}

TEST_F(RealFiles, a_flat_file_of_transformers_arguments_is_not_axolotl_s) {
  const std::string file =
      "base_model: m\ndataset_path: a.jsonl\nnum_train_epochs: 1\nper_device_train_batch_size: 2\n"
      "learning_rate: 2.0e-4\nlogging_steps: 5\nbf16: true\n";
  const LoadedRecipe loaded =
      load(file + "lora_r: 8\nlora_alpha: 16\nload_in_4bit: true\ntrain_on_responses_only: true\n");
  EXPECT_EQ(loaded.recipe.method.type, MethodType::qlora);
  EXPECT_EQ(loaded.recipe.data.truncation, Truncation::right) << "axolotl drops rows";
  EXPECT_EQ(loaded.recipe.data.train_on_prompt, PromptLoss::no);
  EXPECT_EQ(loaded.recipe.save.keep, kKeepAll);
  EXPECT_EQ(recipe("base_model: m\ndatasets: [{path: a.jsonl, type: alpaca}]\nmicro_batch_size: 2\n")
                .data.truncation,
            Truncation::drop);
}

TEST_F(RealFiles, texts_have_no_answers_alone) {
  const std::string file =
      "model: {base: m}\ntraining: {num_train_epochs: 1, learning_rate: 1.0e-5}\n"
      "data: {train_path: a.jsonl, train_on_responses_only: true";
  EXPECT_EQ(recipe(file + "}\n").data.train_on_prompt, PromptLoss::no);
  EXPECT_THAT(error_of(file + ", text_field: text}\n"), HasSubstr("a text has no answer"));
}

TEST_F(RealFiles, the_model_itself_as_reference_is_that_of_this_program) {
  const std::string file = kTrl + "task: dpo\nbeta: 0.1\n";
  EXPECT_EQ(error_of(file + "ref_model: m\n"), "no error");
  EXPECT_THAT(error_of(file + "ref_model: other\n"), HasSubstr("ref_model"));
}

TEST_F(RealFiles, a_configuration_of_accelerate_alone_says_nothing_of_a_training) {
  const std::string file = "compute_environment: LOCAL_MACHINE\nmixed_precision: bf16\nnum_processes: 4\n";
  Overrides overrides;
  overrides.sets = {"model=m", "data.train=a.jsonl"};
  EXPECT_THAT(load(file, overrides).other_tools.notes.at("accelerate"),
              HasSubstr("nothing of what they train"));
  EXPECT_EQ(load(file + kTrl).other_tools.notes.count("accelerate"), 0U);
}

TEST_F(RealFiles, a_script_s_cuda_is_any_device) {
  const std::string file =
      "model_name_or_path: m\ntrain_file: a.jsonl\nnum_train_epochs: 1\nlearning_rate: 1e-5\n";
  EXPECT_EQ(recipe(file + "device: cuda\n").device, DeviceChoice::automatic);
  EXPECT_EQ(recipe(file + "device: cpu\n").device, DeviceChoice::cpu);
}

TEST_F(RealFiles, the_first_rows_are_a_range_of_the_file) {
  const std::string script = "model_name_or_path: m\nnum_train_epochs: 1\nper_device_train_batch_size: 2\n";
  const Recipe read = recipe(script + "train_file: a.jsonl\nmax_train_samples: 10\n");
  ASSERT_EQ(read.data.train.size(), 1U);
  EXPECT_EQ(read.data.train.front().rows, parse_row_range(":10"));
  EXPECT_EQ(recipe(script + "train_file: a.jsonl\nmax_train_samples: null\n").data.train.front().rows,
            RowRange{});
  EXPECT_THAT(error_of(script + "train_file: a.jsonl\nmax_train_samples: 0.5\n"),
              HasSubstr("max_train_samples"));
  EXPECT_THAT(error_of(script + "train_file: a.jsonl\nblock_size: 64\nmax_train_samples: 10\n"),
              HasSubstr("counts blocks"));
}

TEST_F(RealFiles, a_prompt_s_length_and_its_answer_s_are_the_length_of_both) {
  const LoadedRecipe loaded = load(kTrl + "source_max_len: 48\ntarget_max_len: 16\n");
  EXPECT_EQ(loaded.recipe.data.max_length, 64);
  EXPECT_THAT(loaded.other_tools.notes.at("lengths"), HasSubstr("cut together"));
}

TEST_F(RealFiles, files_lie_in_a_folder_above_the_recipe_s_as_well) {
  fs::create_directories(folder_ / "configs");
  std::ofstream(folder_ / "configs/z.json") << R"({"zero_optimization": {"stage": 2}})";
  EXPECT_EQ(error_of(kTrl + "deepspeed: configs/z.json\n"), "no error");
}

}  // namespace
}  // namespace plimsoll
