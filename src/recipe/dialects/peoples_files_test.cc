// Tests of files as people write them: DeepSpeed files with schedules, keys that no other file has, sections.
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
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

class PeoplesFiles : public RecipeFiles {
 protected:
  void write_zero(const std::string& sections) const {
    write("z.json", R"({"zero_optimization": {"stage": 2}, )" + sections + "}");
  }
};

const std::string kTrlFile = "model_name_or_path: m\ndataset_name: a.jsonl\nlearning_rate: 1e-5\n";
const std::string kZeroFile = kTrlFile + "lr_scheduler_type: cosine\nwarmup_ratio: 0.1\ndeepspeed: z.json\n";
const std::string kAxolotlFile =
    "base_model: m\nadapter: lora\nlora_r: 8\nlora_alpha: 16\nmicro_batch_size: 1\n";

TEST_F(PeoplesFiles, a_schedule_of_deepspeeds_file_decides_in_place_of_the_recipes) {
  write_zero(
      R"("scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
         "warmup_num_steps": "auto", "total_num_steps": "auto"}})");
  const LoadedRecipe decay = load(kZeroFile);
  EXPECT_EQ(decay.recipe.schedule.name, ScheduleName::linear);
  EXPECT_EQ(decay.recipe.schedule.warmup, (Warmup{Warmup::Unit::percent, 10.0, 0, Warmup::Rise::deepspeed}));
  EXPECT_THAT(notes(decay), Contains("lr_scheduler_type: cosine"));
  EXPECT_THAT(decay.other_tools.notes.at("DeepSpeed's scheduler"), HasSubstr("WarmupDecayLR"));
  EXPECT_EQ(recipe(kZeroFile, {"deepspeed=null"}).schedule.name, ScheduleName::cosine);
  EXPECT_EQ(recipe(kZeroFile, {"schedule.name=cosine"}).schedule.name, ScheduleName::cosine);

  write_zero(
      R"("scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-5, "warmup_num_steps": 30, "warmup_type": "linear"}})");
  const Recipe constant = recipe(kZeroFile);
  EXPECT_EQ(constant.schedule.name, ScheduleName::constant);
  EXPECT_EQ(constant.schedule.warmup, (Warmup{Warmup::Unit::steps, 0.0, 30, Warmup::Rise::deepspeed_linear}));
  // A run's recipe holds it in a word that is read again.
  const Option& option = *find_option("schedule.warmup");
  EXPECT_EQ(option.get(constant), "deepspeed-linear 30");
  EXPECT_EQ(recipe("model: m\nschedule: {warmup: \"deepspeed-linear 30\"}\n").schedule.warmup,
            constant.schedule.warmup);
  EXPECT_EQ(recipe("model: m\nschedule: {warmup: deepspeed 10%}\n").schedule.warmup,
            decay.recipe.schedule.warmup);
}

TEST_F(PeoplesFiles, schedules_and_optimizers_of_deepspeed_that_do_not_exist_here_are_refused) {
  write_zero(R"("scheduler": {"type": "WarmupCosineLR", "params": {}})");
  EXPECT_THAT(error_of(kZeroFile), HasSubstr("'scheduler': 'WarmupCosineLR' does not exist here"));
  write_zero(R"("scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 1e-6}})");
  EXPECT_THAT(error_of(kZeroFile), HasSubstr("warmup_min_lr"));
  write_zero(R"("scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 1000}})");
  EXPECT_THAT(error_of(kZeroFile), HasSubstr("'scheduler.params.total_num_steps' does not exist here"));
  write_zero(R"("scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 3e-4}})");
  EXPECT_THAT(error_of(kZeroFile), HasSubstr("both say optimizer.lr"));
  write_zero(R"("optimizer": {"type": "Adam", "params": {"adam_w_mode": false}})");
  EXPECT_THAT(error_of(kZeroFile), HasSubstr("weight decay in the gradient"));
}

TEST_F(PeoplesFiles, an_optimizer_of_deepspeeds_file_has_the_recipes_numbers_or_contradicts_them) {
  write_zero(
      R"("optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": [0.9, 0.95], "eps": 1e-7, "weight_decay": 0.1}})");
  const Recipe own = recipe(kZeroFile);
  EXPECT_EQ(own.optimizer.name, OptimizerKind::adamw);
  EXPECT_EQ(own.optimizer.betas[1], 0.95);
  EXPECT_EQ(own.optimizer.eps, 1e-7);
  EXPECT_EQ(own.optimizer.weight_decay, 0.1);
  EXPECT_THAT(error_of(kZeroFile + "weight_decay: 0.2\n"), HasSubstr("both say optimizer.weight_decay"));
  EXPECT_THAT(error_of(kZeroFile + "optim: adafactor\n"), HasSubstr("both say optimizer.name"));
}

TEST_F(PeoplesFiles, deepspeed_and_fsdp_train_a_whole_copy_of_weights_in_bf16) {
  const auto master = [&](const std::string& text) { return recipe(text).precision.master; };
  const std::string full = "base_model: m\nmicro_batch_size: 1\n";
  EXPECT_FALSE(master(full + "bf16: true\n"));
  EXPECT_TRUE(master(full + "bf16: true\ndeepspeed: zero3_bf16.json\n"));
  EXPECT_TRUE(master(full + "bf16: auto\nfsdp: [full_shard, auto_wrap]\n"));
  EXPECT_TRUE(master(full + "deepspeed: zero2.json\n"));
  EXPECT_TRUE(master(full + "optimizer: adamw_bnb_8bit\ndeepspeed: zero2.json\n"));
  EXPECT_FALSE(master(full + "deepspeed:\n"));
  EXPECT_FALSE(
      master(full + "adapter: lora\nlora_r: 4\nlora_alpha: 8\nbf16: true\ndeepspeed: zero3_bf16.json\n"));
  const std::string trl = kTrlFile + "bf16: true\ntorch_dtype: bfloat16\n";
  EXPECT_FALSE(master(trl));
  const LoadedRecipe launched = load(trl + "deepspeed: zero3.json\n");
  EXPECT_TRUE(launched.recipe.precision.master);
  EXPECT_EQ(launched.other_tools.once.at("precision"), "bf16-pure");  // of runs that began before
  write(
      "acc.yaml",
      "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\nnum_processes: 2\n");
  write("r.yaml", trl);
  EXPECT_TRUE(load("accelerate launch --config_file acc.yaml run_sft.py r.yaml\n", {}, "t.sh")
                  .recipe.precision.master);
  EXPECT_FALSE(
      load("accelerate launch --num_processes 2 run_sft.py r.yaml\n", {}, "t.sh").recipe.precision.master);
}

TEST_F(PeoplesFiles, a_file_with_a_section_about_adapters_is_no_axolotl_file_that_trains_all_weights) {
  const std::string file =
      "base_model: m\ndata_path: a.jsonl\nmax_seq_length: 64\nlora:\n  r: 32\n  alpha: 64\n  dropout: 0.05\n  bias: none\n  "
      "task_type: CAUSAL_LM\n  target_modules: [q_proj]\n";
  for (const std::string more : {"", "learning_rate: 1e-4\n", "micro_batch_size: 2\nnum_epochs: 2\n"}) {
    const LoadedRecipe loaded = load(file + more);
    EXPECT_EQ(loaded.recipe.method.type, MethodType::lora) << more;
    EXPECT_EQ(loaded.recipe.method.r, 32) << more;
    EXPECT_NE(loaded.other_tools.tool, Tool::axolotl) << more;
  }
  EXPECT_EQ(load(kAxolotlFile + "datasets: [{path: a.jsonl, type: alpaca}]\n").other_tools.tool,
            Tool::axolotl);
}

TEST_F(PeoplesFiles, unknown_keys_are_listed_together_with_what_leaves_all_of_them_out) {
  const std::string text = kTrlFile + "frobnicate: 3\ndata: {nobody: 1}\nloss2_weight: [0.5, 1]\n";
  const std::string error = error_of(text);
  EXPECT_THAT(error, AllOf(HasSubstr("q.yaml:4: unknown key 'frobnicate'"),
                           HasSubstr("unknown key 'loss2_weight'"), HasSubstr("unknown key 'data.nobody'")));
  EXPECT_THAT(
      error,
      EndsWith("\n3 keys are not known here; if they do not change the training, leave all of them out "
               "by --set frobnicate=null --set data.nobody=null --set loss2_weight=null"));
  EXPECT_EQ(error_of(text, {"frobnicate=null", "loss2_weight=null", "data.nobody=null"}), "no error");
  EXPECT_THAT(error_of(kTrlFile + "frobnicate: 3\n"),
              EndsWith("one key is not known here; if it does not change the training, leave it out by --set "
                       "frobnicate=null"));
  const std::string script =
      "torchrun --nproc_per_node 2 t.py --model_name_or_path m --dataset_name a.jsonl --learning_rate 1e-4 "
      "--kl_weight 0.3 --teacher big\n";
  EXPECT_THAT(error_of(script, {}, "t.sh"), EndsWith("by --set kl_weight=null --set teacher=null"));
  EXPECT_EQ(error_of(script, {"kl_weight=null", "teacher=null"}, "t.sh"), "no error");
  // In a recipe of our own it is a mistake to put right.
  EXPECT_THAT(error_of("model: m\nfrobnicate: 3\n"), Not(HasSubstr("not known here;")));
}

TEST_F(PeoplesFiles, keys_about_what_is_beside_the_training_are_noted) {
  for (const std::string key : {"save_final_dir: out", "eval_dir: rows", "test_data: b.jsonl", "merge: true",
                                "merge_after: true", "log_with: wandb", "gguf_type: q4", "hf_username: me",
                                "upload_to: there", "token: abc", "work_dir: /w"}) {
    const LoadedRecipe loaded = load(kTrlFile + key + "\n");
    EXPECT_THAT(notes(loaded), Contains(key));
  }
  for (const std::string key : {"eval_frac: 0.1", "test_split_size: 5", "save_best_by: x",
                                "log_prob_weight: 1", "merge_datasets: true", "hf_dataset: x",
                                "export_model_layers: 3", "eval_num: 5", "test_run: true", "eval_only: true"})
    EXPECT_THAT(error_of(kTrlFile + key + "\n"), HasSubstr("unknown key")) << key;
  EXPECT_THAT(error_of("model: m\nsave_evry: 5\n"), HasSubstr("unknown key 'save_evry'"));
}

TEST_F(PeoplesFiles, words_for_the_method_are_read) {
  for (const std::string key : {"peft: lora", "peft_type: LORA", "train_type: lora", "tuner_type: lora"}) {
    const Recipe lora =
        recipe("model_name_or_path: m\nper_device_train_batch_size: 2\nlora_r: 4\ntrain_file: a.jsonl\n" +
               key + "\n");
    EXPECT_EQ(lora.method.type, MethodType::lora) << key;
  }
  const std::string file = "model_name_or_path: m\nper_device_train_batch_size: 2\ntrain_file: a.jsonl\n";
  EXPECT_EQ(recipe(file + "method: lora\nlora_r: 4\nlora_alpha: 8\n").method.r, 4);
  EXPECT_THAT(error_of(file + "method: lora\nload_in_4bit: true\n"),
              HasSubstr("'lora' contradicts 'load_in_4bit: true'"));
  EXPECT_EQ(recipe(file + "method: lora\nload_in_4bit: true\n", {"method.type=qlora"}).method.type,
            MethodType::qlora);
  EXPECT_EQ(recipe(file + "peft: lora\nload_in_4bit: true\n").method.type, MethodType::qlora);
  EXPECT_EQ(recipe(file + "peft: none\n").method.type, MethodType::full);
  EXPECT_THAT(error_of(file + "peft: ia3\n"), HasSubstr("IA3 does not exist here"));
  EXPECT_THAT(error_of(file + "train_type: distill\n"), HasSubstr("train_type: 'distill' is not known here"));
}

TEST_F(PeoplesFiles, axolotls_second_key_for_bf16_and_its_arguments_of_bitsandbytes) {
  const Recipe recipe_of_both = recipe(kAxolotlFile + "bf16: false\nbfloat16: true\n");
  EXPECT_EQ(recipe_of_both.precision.weights, DType::bf16);
  EXPECT_EQ(recipe(kAxolotlFile + "bf16: false\n").precision.weights, DType::f32);
  const std::string kwargs =
      "base_model: m\nadapter: qlora\nload_in_4bit: true\nbnb_config_kwargs: {llm_int8_has_fp16_weight: "
      "false, bnb_4bit_quant_type: ";
  EXPECT_FALSE(recipe(kwargs + "nf4, bnb_4bit_use_double_quant: false}\n").method.double_quant);
  EXPECT_THAT(error_of(kwargs + "fp4}\n"), HasSubstr("FP4 does not exist here"));
}

TEST_F(PeoplesFiles, columns_that_axolotl_reads_elsewhere_are_no_matter_where_they_are_the_usual_ones) {
  const auto with = [](const std::string& column) {
    return kAxolotlFile + "datasets:\n  - {path: a.jsonl, type: alpaca, field_instruction: " + column +
           ", field_output: output}\n";
  };
  EXPECT_EQ(error_of(with("instruction")), "no error");
  EXPECT_THAT(error_of(with("question")), HasSubstr("'datasets.field_instruction' is not known here"));
}

TEST_F(PeoplesFiles, programs_of_any_name_with_arguments_of_transformers_are_trainings) {
  const std::string arguments =
      " --model_name_or_path m --learning_rate 1e-4 --num_train_epochs 2 --output_dir o --dataset_name a.jsonl\n";
  EXPECT_EQ(load("mytrainer" + arguments, {}, "t.sh").recipe.schedule.epochs, 2);
  EXPECT_EQ(load("$PYTHON train_sft.py" + arguments, {}, "t.sh").recipe.schedule.epochs, 2);
  EXPECT_THAT(error_of("sbatch job.slurm" + arguments, {}, "t.sh"), HasSubstr("starts no training"));
  EXPECT_THAT(error_of("mytool --model_name_or_path m\n", {}, "t.sh"), HasSubstr("starts no training"));
}

TEST_F(PeoplesFiles, a_batch_divided_by_the_number_of_devices_comes_out_whole) {
  const auto of = [&](const std::string& count) {
    return load(
               "n=" + count +
                   "\nmicro=2\ntorchrun --nproc_per_node $n t.py --model_name_or_path m --dataset_name a.jsonl "
                   "--learning_rate 1e-4 --per_device_train_batch_size $micro --gradient_accumulation_steps $((32 / (micro * n)))\n",
               {}, "t.sh")
        .recipe.batch.effective;
  };
  EXPECT_EQ(of("$(nvidia-smi -L | wc -l)"), 32);
  EXPECT_EQ(of("$(python -c 'import torch; print(torch.cuda.device_count())')"), 32);
  EXPECT_EQ(of("4"), 32);
}

TEST_F(PeoplesFiles, other_rows_for_data_sets_of_two_formats_are_rendered_as_those_were) {
  const std::string file =
      "base_model: m\nadapter: lora\nlora_r: 8\nlora_alpha: 16\nmicro_batch_size: 2\nchat_template: gemma\ndatasets:\n"
      "  - {path: a.jsonl, type: chat_template, field_messages: messages}\n"
      "  - {path: b.jsonl, type: chat_template, field_messages: conversations}\n";
  EXPECT_THAT(error_of(file), HasSubstr("--set data.train=FILE"));
  EXPECT_EQ(recipe(file, {"data.train=c.jsonl"}).data.chat_template, "axolotl/gemma");
}

TEST_F(PeoplesFiles, data_sets_of_two_formats_are_put_right_by_other_rows) {
  write("dataset_info.json",
        R"({"a": {"file_name": "a.jsonl"}, "b": {"file_name": "a.jsonl", "formatting": "sharegpt"}})");
  const std::string mixed =
      "model_name_or_path: m\nstage: sft\ndataset: a,b\ndataset_dir: .\ntemplate: qwen\n";
  EXPECT_THAT(error_of(mixed),
              HasSubstr("data sets of different formats cannot be mixed yet; --set data.train=FILE"));
  const Recipe other = recipe(mixed, {"data.train=" + (folder_ / "a.jsonl").string()});
  EXPECT_EQ(other.data.chat_template, "llama-factory/qwen");
  EXPECT_FALSE(other.data.format.has_value());
}

TEST_F(PeoplesFiles, names_of_splits_and_of_the_method_need_no_section) {
  const LoadedRecipe loaded = load(kTrlFile + "train_split: train\neval_split: test\n");
  EXPECT_THAT(notes(loaded), AllOf(Contains("train_split: train"), Contains("eval_split: test")));
  EXPECT_THAT(error_of(kTrlFile + "train_split: train[:10%]\n"), HasSubstr("unknown key 'train_split'"));
  EXPECT_EQ(recipe("model: m\nmethod: lora\n").method.type, MethodType::lora);
  EXPECT_EQ(recipe("model: m\nmethod: full\n").method.type, MethodType::full);
  EXPECT_THAT(error_of("model: m\nmethod: other\n"), HasSubstr("method: expected a map of keys"));
}

TEST_F(PeoplesFiles, swifts_command_has_swifts_names_and_defaults) {
  const std::string command =
      "swift sft --model m --dataset a.jsonl --lora_rank 4 --max_length 128 --attn_impl flash_attn --template qwen2_5 "
      "--model_name bot --deepspeed zero2 --num_train_epochs 2\n";
  const LoadedRecipe loaded = load("CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 " + command, {}, "t.sh");
  const Recipe& lora = loaded.recipe;
  EXPECT_EQ(lora.method.type, MethodType::lora);
  EXPECT_EQ(lora.method.r, 4);
  EXPECT_EQ(lora.method.alpha, 32);
  EXPECT_EQ(lora.method.dropout, 0.05);
  EXPECT_EQ(lora.optimizer.lr, 1e-4);
  EXPECT_EQ(lora.optimizer.betas[1], 0.95);
  EXPECT_EQ(lora.optimizer.weight_decay, 0.1);
  EXPECT_EQ(lora.schedule.name, ScheduleName::cosine);
  EXPECT_EQ(lora.batch.effective, 16);
  EXPECT_EQ(lora.data.max_length, 128);
  EXPECT_EQ(lora.data.truncation, Truncation::drop);
  EXPECT_EQ(lora.precision.weights, DType::bf16);
  EXPECT_THAT(notes(loaded), Contains("attn_impl: flash_attn"));
  EXPECT_THAT(loaded.other_tools.notes.at("script"),
              AllOf(HasSubstr("swift sft declares"), HasSubstr("weight_decay 0.1")));

  const Recipe full =
      load(
          "swift sft --model m --dataset a.jsonl --train_type full --per_device_train_batch_size 32 "
          "--truncation_strategy right\n",
          {}, "t.sh")
          .recipe;
  EXPECT_EQ(full.method.type, MethodType::full);
  EXPECT_EQ(full.optimizer.lr, 1e-5);
  EXPECT_EQ(full.batch.effective, 32);
  EXPECT_EQ(full.data.max_length, 0);
  EXPECT_EQ(full.data.truncation, Truncation::right);
  EXPECT_THAT(error_of("swift sft --model m --dataset a.jsonl --train_type longlora\n", {}, "t.sh"),
              HasSubstr("'longlora' is not known here"));
  EXPECT_THAT(error_of("swift sft --model m --dataset a.jsonl --truncation_strategy left\n", {}, "t.sh"),
              HasSubstr("truncation_strategy"));
  EXPECT_EQ(load("swift sft --model m --dataset a.jsonl --loss_scale all\n", {}, "t.sh")
                .recipe.data.train_on_prompt,
            PromptLoss::yes);
  EXPECT_THAT(error_of("swift sft --model m --dataset a.jsonl --loss_scale last_round\n", {}, "t.sh"),
              HasSubstr("answers but the last"));
}

TEST_F(PeoplesFiles, swift_rlhf_trains_pairs_and_reward_models_and_refuses_other_types_by_name) {
  const std::string rest =
      " --model m --dataset a.jsonl --max_completion_length 64 --rpo_alpha 0.1 --beta 0.2\n";
  const Recipe pairs = load("swift rlhf" + rest, {}, "t.sh").recipe;
  EXPECT_EQ(pairs.task, Task::dpo);
  EXPECT_DOUBLE_EQ(pairs.dpo.beta, 0.2);
  EXPECT_DOUBLE_EQ(pairs.dpo.ftx, 0.1);
  EXPECT_EQ(pairs.method.type, MethodType::lora);
  EXPECT_DOUBLE_EQ(pairs.method.dropout, 0.0) << "TRL's trainer of pairs";
  EXPECT_EQ(pairs.optimizer.lr, 1e-4);
  EXPECT_EQ(pairs.optimizer.betas[1], 0.95);
  const Recipe scores =
      load("swift rlhf --rlhf_type rm --tuner_type full --model m --dataset a.jsonl\n", {}, "t.sh").recipe;
  EXPECT_EQ(scores.task, Task::reward);
  EXPECT_EQ(scores.optimizer.lr, 1e-5);
  EXPECT_THAT(error_of("swift rlhf --rlhf_type kto --model m --dataset a.jsonl\n", {}, "t.sh"),
              HasSubstr("KTO does not exist here; dpo does: --set rlhf_type=dpo"));
  EXPECT_THAT(error_of("swift rlhf --rlhf_type orpo --model m --dataset a.jsonl\n", {}, "t.sh"),
              HasSubstr("--set dpo.loss=orpo"));
}

TEST_F(PeoplesFiles, swift_pt_trains_texts_that_begin_as_the_tokenizer_begins_them) {
  const Recipe texts =
      load(
          "torchrun --nnodes 2:2 --nproc_per_node 4 swift/cli/pt.py --learning_rate 1e-5 --model m --dataset a.jsonl --packing true\n",
          {}, "t.sh")
          .recipe;
  EXPECT_EQ(texts.task, Task::pretrain);
  EXPECT_TRUE(texts.data.bos);
  EXPECT_TRUE(texts.data.packing);
  EXPECT_EQ(texts.batch.effective, 16);
  EXPECT_EQ(load("swift pt --model m --dataset a.jsonl\n", {}, "t.sh").recipe.optimizer.weight_decay, 0.1);
}

TEST_F(PeoplesFiles, optimizers_that_do_not_exist_are_refused_with_a_command_that_works) {
  for (const auto& [name, closest] :
       std::vector<std::pair<std::string, std::string>>{{"galore_adamw_8bit", "adamw8bit"},
                                                        {"apollo_adamw", "adamw"},
                                                        {"lomo", "sgd"},
                                                        {"adalomo", "adafactor"},
                                                        {"badam", "adamw"},
                                                        {"muon", "adamw"}}) {
    const std::string file = kTrlFile + "optim: " + name + "\n", set = "optim=" + closest;
    EXPECT_THAT(error_of(file), HasSubstr("does not exist here; " + closest + " does: --set " + set)) << name;
    EXPECT_EQ(error_of(file, {set}), "no error") << name;
  }
  const std::string factory = "model_name_or_path: m\nstage: sft\ntemplate: qwen\ncutoff_len: 64\n";
  for (const std::string key : {"use_galore", "use_apollo", "use_badam", "use_muon"}) {
    EXPECT_THAT(error_of(factory + key + ": true\n", {"data.train=a.jsonl"}),
                HasSubstr("--set " + key + "=null trains without it"));
    EXPECT_EQ(error_of(factory + key + ": true\n", {"data.train=a.jsonl", key + "=null"}), "no error");
  }
  EXPECT_THAT(error_of(kAxolotlFile + "relora: true\n"), HasSubstr("restarts of adapters (ReLoRA)"));
}

TEST_F(PeoplesFiles, tokens_to_add_are_refused_with_what_to_do) {
  const std::string file = kAxolotlFile + "special_tokens: {additional_special_tokens: ['<a>']}\n";
  EXPECT_THAT(error_of(file),
              AllOf(HasSubstr("other tokens than the tokenizer's"), HasSubstr("#tokens-to-add"),
                    HasSubstr("--set special_tokens.additional_special_tokens=null")));
}

TEST_F(PeoplesFiles, columns_that_a_script_names_are_those_of_the_rows) {
  const std::string data = "data: {train_file: a.jsonl, prompt_field: q, ";
  const std::string rest =
      "}\ntraining: {learning_rate: 1e-5, per_device_train_batch_size: 1, num_train_epochs: 1, logging_steps: 1}\nlora: {r: 8}\nmodel: {name: m}\n";
  EXPECT_EQ(recipe(data + "response_field: a" + rest).data.columns,
            (std::map<std::string, std::string>{{"prompt", "q"}, {"response", "a"}}));
  const Recipe pairs = recipe(data + "chosen_field: b, rejected_field: c" + rest +
                              "dpo: {beta: 0.3, loss_type: ipo, precompute_ref_log_probs: false}\n");
  EXPECT_EQ(pairs.data.columns,
            (std::map<std::string, std::string>{{"prompt", "q"}, {"chosen", "b"}, {"rejected", "c"}}));
  EXPECT_EQ(pairs.task, Task::dpo);
  EXPECT_DOUBLE_EQ(pairs.dpo.beta, 0.3);
  EXPECT_EQ(pairs.dpo.loss, PreferenceLoss::ipo);
  const std::string classes =
      "python run_classification.py --model_name_or_path m --train_file a.jsonl --output_dir o --learning_rate 1e-5 ";
  const Recipe scores = load(classes + "--text_column_names s --label_column_name l\n", {}, "t.sh").recipe;
  EXPECT_EQ(scores.task, Task::classify);
  EXPECT_EQ(scores.data.columns, (std::map<std::string, std::string>{{"sentence", "s"}, {"label", "l"}}));
  EXPECT_THAT(error_of(classes + "--text_column_names s,t\n", {}, "t.sh"),
              HasSubstr("columns whose texts are joined"));
}

TEST_F(PeoplesFiles, rows_are_known_by_the_words_of_a_scripts_key_and_arguments_by_their_beginning) {
  const std::string command = "python my.py --model_name_or_path m --output_dir o --learning_rate 1e-5 ";
  const LoadedRecipe rows =
      load(command + "--train_local_dataset a.jsonl --eval_local_dataset b.jsonl\n", {}, "t.sh");
  EXPECT_THAT(rows.recipe.data.train.front().path, EndsWith("a.jsonl"));
  EXPECT_THAT(rows.recipe.data.eval.path, EndsWith("b.jsonl"));
  EXPECT_THAT(rows.other_tools.notes.at("script"), HasSubstr("my.py is not on this machine"));
  EXPECT_THAT(error_of(command + "--train_data_mode a\n", {}, "t.sh"),
              HasSubstr("unknown key 'train_data_mode'"));
  EXPECT_EQ(load(command + "--train_file a.jsonl --adam_eps 1e-6\n", {}, "t.sh").recipe.optimizer.eps, 1e-6);
  EXPECT_THAT(error_of(command + "--train_file a.jsonl --weight 1\n", {}, "t.sh"),
              HasSubstr("unknown key 'weight'"));
  const std::string folder = command + "--data_dir rows --data_subset x\n";
  EXPECT_THAT(error_of(folder, {}, "t.sh"), HasSubstr("--set data.train=FILE names them"));
  EXPECT_EQ(error_of(folder, {"data.train=a.jsonl"}, "t.sh"), "no error");
}

TEST_F(PeoplesFiles, another_reference_than_the_model_is_refused_by_its_key) {
  const std::string file = kTrlFile + "beta: 0.1\nreference_model_path: ";
  EXPECT_THAT(error_of(file + "other\n"), HasSubstr("reference_model_path: does not exist here"));
  EXPECT_EQ(error_of(file + "m\n"), "no error");
  EXPECT_THAT(error_of(kTrlFile + "reference_model_path: other\n"), HasSubstr("say task: dpo"));
}

TEST_F(PeoplesFiles, a_name_that_says_qlora_needs_a_key_that_says_the_bits) {
  const std::string file =
      "model_name_or_path: m\ndataset_path: a.jsonl\noutput_dir: o/m-qlora\nlora_r: 8\n"
      "per_device_train_batch_size: 1\nlearning_rate: 1e-4\nnum_train_epochs: 1\n";
  EXPECT_THAT(error_of(file), HasSubstr("a name here says qlora"));
  EXPECT_EQ(recipe(file + "load_in_4bit: true\n").method.type, MethodType::qlora);
  EXPECT_EQ(recipe(file, {"method.type=lora"}).method.type, MethodType::lora);
}

TEST_F(PeoplesFiles, a_rank_beside_rows_that_a_script_names_is_lora) {
  const std::string rest =
      "\nmodel_name_or_path: m\nlora_r: 8\nper_device_train_batch_size: 1\nnum_train_epochs: 1\n";
  const LoadedRecipe script = load("dataset_path: a.jsonl" + rest);
  EXPECT_EQ(script.recipe.method.type, MethodType::lora);
  EXPECT_EQ(script.recipe.optimizer.lr, 5e-5) << "transformers'";
  EXPECT_EQ(recipe("dataset_name: a.jsonl" + rest).method.type, MethodType::full) << "TRL without use_peft";
}

TEST_F(PeoplesFiles, what_pads_and_what_draws_curves_changes_nothing) {
  const std::string file =
      kTrlFile +
      "tokenizer_padding_side: right\naccelerator_config: {gradient_accumulation_kwargs: "
      "{sync_each_batch: true}}\nwandb: {project: p, tags: [a]}\n";
  EXPECT_THAT(notes(load(file)),
              AllOf(Contains("tokenizer_padding_side: right"), Contains(HasSubstr("wandb:"))));
}

TEST_F(PeoplesFiles, the_first_run_glue_names_tasks_with_dashes) {
  const Recipe glue =
      load(
          "python run_glue.py --task_name SST-2 --do_lower_case --data_dir rows --model_name_or_path m "
          "--per_gpu_eval_batch_size 4 --learning_rate 1e-5 --output_dir o\n",
          {"data.train=a.jsonl"}, "t.sh")
          .recipe;
  EXPECT_EQ(find_option("classify.glue")->get(glue), "sst2");
}

TEST_F(PeoplesFiles, run_mlm_joins_texts_into_blocks_of_its_length) {
  const std::string command =
      "python run_mlm.py --model_name_or_path m --train_file a.jsonl --output_dir o --learning_rate 1e-5 ";
  const Recipe joined = load(command + "--max_seq_length 128\n", {}, "t.sh").recipe;
  EXPECT_EQ(joined.task, Task::mlm);
  EXPECT_TRUE(joined.data.joined);
  EXPECT_EQ(joined.data.max_length, 128);
  EXPECT_THAT(error_of(command + "\n", {}, "t.sh"), HasSubstr("without --line_by_line"));
}

}  // namespace
}  // namespace plimsoll
