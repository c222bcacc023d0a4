// Tests of shell scripts as recipes: their variables, launchers and arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "recipe/load/load.h"
#include "recipe/test_recipe_files.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class ShellScripts : public RecipeFiles {
 protected:
  ShellScripts() : RecipeFiles("scripts/run.sh") {}
  // Sequences of a step where each process has two.
  [[nodiscard]] int64_t batch(const std::string& launch) const {
    return recipe(launch + " train.py --model_name_or_path m --per_device_train_batch_size 2\n")
        .batch.effective;
  }
};

TEST_F(ShellScripts, a_command_s_arguments_are_keys) {
  const Recipe read = recipe(
      "#!/bin/bash\n"
      "# python other.py --learning_rate 1\n"
      "export LR=3e-5 OUT=\"runs/x\"\n"
      "python train.py \\\n"
      "  --model_name_or_path 'm' --learning-rate=$LR \\\n"
      "  --per_device_train_batch_size 2 --bf16 --max_steps -1 \\\n"
      "  --output_dir ${OUT}/first --lr_scheduler_type \"cosine\" 2>&1 | tee log.txt\n");
  EXPECT_DOUBLE_EQ(read.optimizer.lr, 3e-5);
  EXPECT_EQ(read.batch.micro, 2);
  EXPECT_EQ(read.schedule.name, ScheduleName::cosine);
  EXPECT_EQ(read.schedule.max_steps, std::nullopt);
  EXPECT_THAT(*read.output, HasSubstr("runs/x/first"));
  EXPECT_TRUE(read.precision.master);
}

TEST_F(ShellScripts, a_recipe_that_lies_here_is_found_where_its_path_begins_on_the_authors_machine) {
  write("configs/a.yaml", "base_model: m\nmicro_batch_size: 3\n");
  for (const char* before : {"$1/repo/", "/home/me/repo/", "$STORAGE/"}) {
    const std::string path = std::string(before) + "configs/a.yaml";
    EXPECT_EQ(recipe("torchrun -m axolotl.cli.train " + path + "\n").batch.effective, 3) << path;
  }
  EXPECT_THAT(error_of("torchrun -m axolotl.cli.train $1/a.yaml\n"), HasSubstr("neither beside the script"));
}

TEST_F(ShellScripts, paths_begin_in_the_folder_that_the_script_has_gone_to) {
  write("scripts/src/z.json", R"({"train_micro_batch_size_per_gpu": 3})");
  const std::string launch =
      "deepspeed train.py --model_name_or_path m --learning_rate 1e-4 --deepspeed z.json\n";
  EXPECT_EQ(recipe("cd src\n" + launch).batch.effective, 3);
  EXPECT_EQ(recipe("cd src\ncd $HOME\n" + launch).batch.effective, 8);
}

TEST_F(ShellScripts, a_rank_alone_does_not_make_a_script_llama_factorys) {
  const std::string keys =
      " --model_name_or_path m --lora_rank 4 --learning_rate 1e-4 --per_device_train_batch_size 2\n";
  EXPECT_EQ(load("python finetune.py --use_lora" + keys).other_tools.tool, Tool::trl);
  EXPECT_EQ(load("llamafactory-cli train" + keys).other_tools.tool, Tool::llama_factory);
  EXPECT_EQ(load("python src/train_bash.py --stage sft" + keys).other_tools.tool, Tool::llama_factory);
}

// torchtune's words behind the recipe's file change its keys.
TEST_F(ShellScripts, a_recipe_of_torchtunes_takes_the_words_behind_it) {
  write(
      "tt.yaml",
      "checkpointer: {checkpoint_dir: m}\n"
      "model: {_component_: torchtune.models.llama3.lora_llama3_8b, lora_rank: 8}\nbatch_size: 2\noptimizer: {lr: 1e-4}\n");
  for (
      const char* words :
      {"tune run lora_finetune_single_device --config tt.yaml batch_size=4 optimizer.lr=1e-5",
       "tune run --nproc_per_node 1 lora_finetune_distributed --config tt.yaml batch_size=4 optimizer.lr=1e-5"}) {
    const Recipe read = recipe(words);
    EXPECT_EQ(read.batch.effective, 4) << words;
    EXPECT_DOUBLE_EQ(read.optimizer.lr, 1e-5) << words;
  }
}

TEST_F(ShellScripts, launchers_say_how_many_processes_there_are) {
  EXPECT_EQ(batch("torchrun --nproc_per_node=4 --nnodes 2 --master_port=1"), 16);
  EXPECT_EQ(batch("torchrun --standalone --nproc-per-node 3"), 6);
  EXPECT_EQ(batch("torchrun"), 2);
  EXPECT_EQ(batch("python -m torch.distributed.launch --nproc_per_node 4 --use_env"), 8);
  EXPECT_EQ(batch("accelerate launch --multi_gpu --num_processes 8 --mixed_precision bf16"), 16);
  EXPECT_EQ(batch("accelerate launch --num_processes=6 --num_machines 2 -m"), 12);
  EXPECT_EQ(batch("deepspeed --num_gpus 4 --num_nodes 2"), 16);
  EXPECT_EQ(batch("deepspeed --include localhost:0,2,5 --master_port 1"), 6);
  EXPECT_EQ(batch("deepspeed --include=\"w-0:0,1@w-1:0,1\""), 8);
  EXPECT_EQ(batch("CUDA_VISIBLE_DEVICES=0,1,2 deepspeed"), 6);
  EXPECT_EQ(batch("export CUDA_VISIBLE_DEVICES=0\npython"), 2);
  EXPECT_EQ(batch("#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n"
                  "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node $SLURM_GPUS_ON_NODE"),
            16);
  EXPECT_EQ(batch("#SBATCH --gres=gpu:a100:4,tmpdir:50G\ntorchrun --nproc_per_node $SLURM_GPUS_ON_NODE"), 8);
}

TEST_F(ShellScripts, a_script_that_trains_answers_within_texts_is_named) {
  write("sft.py", "collator = trl.DataCollatorForCompletionOnlyLM(response_template=a, tokenizer=t)\n");
  const LoadedRecipe loaded = load("python sft.py --model_name_or_path m --per_device_train_batch_size 2\n");
  EXPECT_THAT(loaded.other_tools.notes.at("answers"),
              HasSubstr("trains the answers within its texts alone (line 1)"));
}

TEST_F(ShellScripts, processes_that_only_a_machine_knows_are_told_of) {
  const LoadedRecipe loaded = load(
      "N=$(nvidia-smi -L | wc -l)\n"
      "torchrun --nproc_per_node $N train.py --model_name_or_path m --per_device_train_batch_size 2\n");
  EXPECT_EQ(loaded.recipe.batch.effective, 2);
  EXPECT_THAT(loaded.other_tools.notes.at("batch"), HasSubstr("that of one process"));
}

TEST_F(ShellScripts, variables_have_arithmetic_defaults_and_arrays) {
  const std::string end =
      " --model_name_or_path m --per_device_train_batch_size $B \\\n"
      "  --gradient_accumulation_steps $((TOTAL / B / 4)) ${MORE[@]}\n";
  const Recipe read = recipe(
      "B=${1:-2}\nTOTAL=64\nARGS=\"--nproc_per_node 4 \\\n  --nnodes 1\"\n"
      "MORE=(--learning_rate 1e-4 --num_train_epochs 2)\n"
      "if [ -z \"$LOG\" ]; then\n  LOG=x\nfi\ntorchrun $ARGS train.py" +
      end);
  EXPECT_EQ(read.batch.effective, 64);
  EXPECT_EQ(
      recipe("N=4\ntorchrun --nnodes 1:1 --nproc_per_node $N train.py --model_name_or_path m "
             "--per_device_train_batch_size $(expr 64 / $N) --gradient_accumulation_steps $(expr 1 \\* 2)\n")
          .batch.effective,
      128);
  EXPECT_DOUBLE_EQ(read.optimizer.lr, 1e-4);
  EXPECT_EQ(read.schedule.epochs, 2);
}

TEST_F(ShellScripts, loops_over_arguments_do_not_run_where_there_are_none) {
  const std::string end =
      "torchrun t.py --model_name_or_path m --learning_rate 1e-4 --per_device_train_batch_size ${B:-4}\n";
  for (
      const char* loop :
      {"while [[ $# -gt 0 ]]; do\n  case $1 in\n    --batch) B=\"$2\"; shift 2 ;;\n    *) exit 1 ;;\n  esac\ndone\n",
       "while getopts \"b:\" option; do\n  case $option in\n    b) B=$OPTARG ;;\n  esac\ndone\n",
       "for argument in \"$@\"; do\n  B=${argument#*=}\ndone\n"}) {
    EXPECT_EQ(recipe(loop + end).batch.micro, 4) << loop;
    EXPECT_EQ(recipe("B=2\n" + std::string(loop) + end).batch.micro, 2) << loop;
  }
  EXPECT_THAT(error_of("while true; do B=$N; done\n" + end), HasSubstr("per_device_train_batch_size"));
}

TEST_F(ShellScripts, names_are_numbers_in_arithmetic_alone) {
  const Recipe read = recipe(
      "first=1\nTOTAL=64\nB=2\nRATES=(1e-3 1e-4)\n"
      "python t.py --model m --lr ${RATES[first]} --per_device_train_batch_size $B "
      "--gradient_accumulation_steps $((TOTAL/B/4)) --output_dir ${OUT:-runs/first}\n");
  EXPECT_EQ(read.batch.effective, 16);
  EXPECT_DOUBLE_EQ(read.optimizer.lr, 1e-4);
  EXPECT_THAT(*read.output, HasSubstr("runs/first"));
}

TEST_F(ShellScripts, functions_are_read_where_they_are_written) {
  const std::string body = " {\n  LR=1e-3\n  python t.py --model m --max_steps $N --lr $LR\n}\nmain\n";
  for (const char* head : {"main()", "function main", "function main()"}) {
    EXPECT_DOUBLE_EQ(recipe("N=3\n" + std::string(head) + body).optimizer.lr, 1e-3) << head;
    EXPECT_THAT(error_of("if [ $A ]; then\n  f() {\n    a\n  }\n  N=3\nfi\n" + std::string(head) + body),
                HasSubstr("'$N'"))
        << head;
  }
}

TEST_F(ShellScripts, a_branch_that_asks_for_nothing_says_a_default) {
  const auto rate = [&](const std::string& condition) {
    return error_of("LR=$1\nif [ " + condition + " ]; then\n  LR=1e-3\nfi\npython t.py --model m --lr $LR\n");
  };
  for (const char* asks : {"-z \"$LR\"", "-z \"${LR}\"", "-z ${LR:-}", "\"$LR\" == \"\"", "\"$LR\" = ''"})
    EXPECT_EQ(rate(asks), "no error") << asks;
  for (const char* asks : {"-z \"$LR_OF_ANOTHER\"", "-z $ALR", "\"$LR\" == long", "\"$LR\" != \"\""})
    EXPECT_THAT(rate(asks), HasSubstr("'$LR'")) << asks;
}

TEST_F(ShellScripts, what_a_script_does_not_know_is_refused_by_its_name_and_can_be_said) {
  const std::string loop =
      "for LR in 1e-5 2e-5; do\n  python train.py --model_name_or_path m --num_train_epochs 1 "
      "--learning_rate $LR\n"
      "done\n";
  EXPECT_THAT(error_of(loop),
              HasSubstr("run.sh:2: optimizer.lr: expected a number from 0 to 10, found '$LR'"));
  EXPECT_DOUBLE_EQ(recipe(loop, {"learning_rate=2e-5"}).optimizer.lr, 2e-5);
  const std::string branch =
      "E=3\nif [ \"$MODE\" = long ]; then\n  E=9\nfi\npython t.py --model_name_or_path m --lr 1e-5 "
      "--num_epochs $E\n";
  EXPECT_THAT(error_of(branch), HasSubstr("run.sh:5: num_epochs"));
  EXPECT_THAT(error_of("python t.py --lr 1 --model m --frobnicate 3\n"),
              HasSubstr("unknown key 'frobnicate'"));
}

TEST_F(ShellScripts, a_script_of_several_trainings_or_none_is_refused) {
  EXPECT_THAT(error_of("python a.py --lr 1e-3 --model m\npython b.py --lr 1e-4 --model m\n"),
              HasSubstr("run.sh:2: is a script that starts 2 trainings (lines 1, 2)"));
  EXPECT_THAT(error_of("echo python a.py --lr 1e-3\npip install x\npython eval.py --model m\n"),
              HasSubstr("is a script that starts no training"));
}

TEST_F(ShellScripts, one_of_several_trainings_is_named_by_its_line) {
  const std::string two =
      "OUT=runs\npython a.py --lr 1e-3 --model m\npython b.py --lr 1e-4 --output_dir $OUT/b \\\n  --model m\n";
  EXPECT_THAT(error_of(two), AllOf(HasSubstr("(lines 2, 3)"), HasSubstr("plimsoll plan SCRIPT:2")));
  const auto named = [&](const std::string& line) {
    return load_recipe((folder_ / "scripts/run.sh").string() + ":" + line, {}).recipe;
  };
  EXPECT_DOUBLE_EQ(named("2").optimizer.lr, 1e-3);
  EXPECT_DOUBLE_EQ(named("3").optimizer.lr, 1e-4);
  EXPECT_THAT(named("3").output.value_or(""), HasSubstr("runs/b")) << "with the script's variables";
  for (const std::string line : {"1", "4", "0", "x"}) EXPECT_THROW((void)named(line), UsageError) << line;
  write("scripts/plain.yaml", "model: m\n");
  EXPECT_THROW((void)load_recipe((folder_ / "scripts/plain.yaml").string() + ":1", {}), UsageError);
}

TEST_F(ShellScripts, a_script_that_names_another_loss_is_refused_until_its_task_is_said) {
  const std::string keys = " --model_name_or_path m --learning_rate 1e-5 --num_train_epochs 1\n";
  EXPECT_THAT(error_of("python src/sft_kl_2.py" + keys),
              HasSubstr("trains with another loss by its name (kl)"));
  EXPECT_EQ(recipe("python src/sft_kl_2.py" + keys, {"task=sft"}).task, Task::sft);
  EXPECT_EQ(recipe("python src/sft_clean.py" + keys).task, Task::sft);
  EXPECT_THAT(error_of("python train_dpo.py" + keys), HasSubstr("(dpo)"));
  EXPECT_EQ(recipe("python train_dpo.py --beta 0.1" + keys).task, Task::dpo) << "its keys say so";
  write("scripts/own.yaml", "model_name_or_path: m\nlearning_rate: 1e-5\nnum_train_epochs: 1\n");
  EXPECT_THAT(error_of("python src/sft_kl_2.py --config own.yaml\n"), HasSubstr("(kl)"));
  EXPECT_EQ(recipe("python src/sft_2.py --config own.yaml\n").task, Task::sft);
  write("scripts/own.yaml", "model_name_or_path: m\nlearning_rate: 1e-5\nbeta: 0.2\n");
  EXPECT_EQ(recipe("python run_dpo.py --config own.yaml\n").task, Task::dpo);
  EXPECT_THAT(error_of("python run_kto.py --config own.yaml\n"), HasSubstr("(kto)"));
}

TEST_F(ShellScripts, defaults_behind_a_colon_are_known) {
  const std::string run =
      ": ${LR:=3e-5} ${ROWS:=4}\n: \"${LR:=1e-1}\"\npython t.py --model m --lr $LR --batch_size $ROWS\n";
  EXPECT_DOUBLE_EQ(recipe(run).optimizer.lr, 3e-5);
  EXPECT_EQ(recipe(run).batch.micro, 4);
  EXPECT_DOUBLE_EQ(recipe("LR=2e-5\n" + run).optimizer.lr, 2e-5) << "it is set already";
}

TEST_F(ShellScripts, functions_that_are_never_called_start_nothing) {
  const std::string functions =
      "small() {\n  python a.py --lr 1e-3 --model m\n}\nfunction large {\n  python a.py --lr 1e-4 --model m\n}\n"
      "function other () { python a.py --lr 1e-5 --model m; }\nmain() {\n  large\n}\n";
  EXPECT_DOUBLE_EQ(recipe(functions + "small\n").optimizer.lr, 1e-3);
  EXPECT_DOUBLE_EQ(recipe(functions + "if true; then\n  main \"$@\"\nfi\n").optimizer.lr, 1e-4);
  EXPECT_DOUBLE_EQ(recipe(functions + "other\n").optimizer.lr, 1e-5);
  EXPECT_THAT(error_of(functions + "small\nmain\n"), HasSubstr("starts 2 trainings (lines 2, 5)"));
  EXPECT_THAT(error_of(functions + "\"$1\"\n"), HasSubstr("starts 3 trainings"));
  EXPECT_DOUBLE_EQ(recipe("train() {\n  python a.py --lr 1e-3 --model m\n}\n").optimizer.lr, 1e-3)
      << "a file of functions for others";
}

TEST_F(ShellScripts, trainings_by_the_same_recipe_in_branches_are_one) {
  write("q.yaml", "model_name_or_path: m\nstage: sft\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\n");
  const std::string branches =
      "if [ -n \"$MORE\" ]; then\n  llamafactory-cli train q.yaml\nelse\n  llamafactory-cli train q.yaml\nfi\n";
  EXPECT_DOUBLE_EQ(recipe(branches).optimizer.lr, 1e-4);
  write("r.yaml", "model_name_or_path: m\nstage: sft\nlearning_rate: 1e-5\n");
  EXPECT_THAT(error_of("llamafactory-cli train q.yaml\nllamafactory-cli train r.yaml\n"),
              HasSubstr("starts 2 trainings"));
}

TEST_F(ShellScripts, the_folder_of_the_script_is_known) {
  write("scripts/here.jsonl", "{}");
  for (const char* folder : {"$(dirname \"$0\")", "$(cd \"$(dirname \"${BASH_SOURCE[0]}\")\" && pwd)",
                             "$(realpath $(dirname $0))"}) {
    const std::string text =
        "HERE=" + std::string(folder) +
        "\npython train.py --model_name_or_path m --lr 1e-5 --train_file $HERE/here.jsonl\n";
    const Recipe read = recipe(text);
    ASSERT_EQ(read.data.train.size(), 1U) << folder;
    EXPECT_TRUE(fs::exists(read.data.train.front().path)) << folder;
  }
}

TEST_F(ShellScripts, blocks_of_run_clm_are_as_long_as_a_model_that_is_here_takes) {
  fs::create_directories(folder_ / "scripts/m");
  const std::string command = "python run_clm.py --model_name_or_path m --do_train --train_file ../a.jsonl\n";
  EXPECT_THAT(error_of(command), HasSubstr("--set block_size=N says it")) << "the model is not here";
  write("scripts/m/config.json", R"({"max_position_embeddings": 512})");
  EXPECT_EQ(recipe(command).data.max_length, 512);
  write("scripts/m/config.json", R"({"max_position_embeddings": 32768})");
  EXPECT_EQ(recipe(command).data.max_length, 1024);
  write("scripts/m/tokenizer_config.json", R"({"model_max_length": 2048})");
  EXPECT_EQ(recipe(command).data.max_length, 2048);
  write("scripts/m/tokenizer_config.json", R"({"model_max_length": 1000000000000000019884624838656})");
  EXPECT_EQ(recipe(command).data.max_length, 1024);
}

TEST_F(ShellScripts, lengths_of_prompts_and_answers_add_up_in_medicalgpt_s_script) {
  const std::string rest =
      " --model_name_or_path m --learning_rate 1e-5 --max_source_length 100 --max_target_length 50\n";
  const LoadedRecipe loaded = load("python supervised_finetuning.py" + rest);
  EXPECT_EQ(loaded.recipe.task, Task::sft);
  EXPECT_EQ(loaded.recipe.data.max_length, 150);
  EXPECT_THAT(loaded.other_tools.notes.at("lengths"), HasSubstr("cut together"));
  EXPECT_EQ(recipe("python train.py" + rest).task, Task::seq2seq);
  const Recipe pairs = recipe("python dpo_training.py --use_peft True --target_modules all" + rest);
  EXPECT_EQ(pairs.task, Task::dpo);
  EXPECT_EQ(pairs.data.max_length, 150);
  EXPECT_TRUE(pairs.method.targets.empty()) << "all linear layers";
  EXPECT_EQ(recipe("python orpo_training.py" + rest).dpo.loss, PreferenceLoss::orpo);
  EXPECT_EQ(recipe("python reward_modeling.py" + rest).task, Task::reward);
  const std::string adapter = " --use_peft True --lora_rank 8 --lora_dropout 0.05 --target_modules all";
  EXPECT_DOUBLE_EQ(recipe("python reward_modeling.py" + adapter + rest).method.dropout, 0.05);
  EXPECT_DOUBLE_EQ(recipe("python dpo_training.py" + adapter + rest).method.dropout, 0.0) << "TRL's trainer";
  const LoadedRecipe adapted =
      load("torchrun --nproc_per_node 2 supervised_finetuning.py --use_peft True --lora_rank 4" + rest);
  EXPECT_TRUE(adapted.other_tools.of_scripts);
  EXPECT_EQ(adapted.recipe.data.max_length, 150);
  EXPECT_EQ(adapted.recipe.method.r, 4);
}

TEST_F(ShellScripts, a_command_s_arguments_win_over_the_recipe_that_it_names) {
  write("q.yaml",
        "model_name_or_path: m\nstage: sft\ntemplate: qwen\nper_device_train_batch_size: 1\nlearning_rate: "
        "1e-4\n");
  const Recipe read = recipe(
      "CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train q.yaml --learning_rate 5e-6 \\\n  --output_dir "
      "$OUT\n");
  EXPECT_DOUBLE_EQ(read.optimizer.lr, 5e-6);
  EXPECT_EQ(read.batch.effective, 2);
  EXPECT_EQ(read.output, std::nullopt);
  EXPECT_EQ(read.data.chat_template, "llama-factory/qwen");
  EXPECT_THAT(error_of("llamafactory-cli train nobody.yaml\n"),
              HasSubstr("run.sh:1: starts a training by 'nobody.yaml'"));
}

TEST_F(ShellScripts, files_of_launchers_lie_where_the_script_is_started) {
  write("acc.yaml", "{num_processes: 8, mixed_precision: bf16}");
  const std::string rest = " train.py --model_name_or_path m --per_device_train_batch_size 2\n";
  EXPECT_EQ(recipe("accelerate launch --config_file acc.yaml" + rest).batch.effective, 16);
  EXPECT_EQ(recipe("accelerate launch --config_file=acc.yaml --num_processes 4" + rest).batch.effective, 8);
  write("ds.json", R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2})");
  EXPECT_EQ(recipe("deepspeed --num_gpus 4 train.py --deepspeed ds.json --model_name_or_path m "
                   "--per_device_train_batch_size 2 --gradient_accumulation_steps 8\n")
                .batch.effective,
            64);
  EXPECT_THAT(error_of("deepspeed --num_gpus 3 train.py --deepspeed ds.json --model_name_or_path m "
                       "--per_device_train_batch_size 2 --gradient_accumulation_steps 8\n"),
              HasSubstr("2 x 8 x 3 = 48, train_batch_size says 64"));
}

TEST_F(ShellScripts, defaults_are_those_of_what_is_started) {
  const std::string rest = " --model_name_or_path m --per_device_train_batch_size 2\n";
  const LoadedRecipe own = load("python finetune.py" + rest);
  EXPECT_DOUBLE_EQ(own.recipe.optimizer.lr, 5e-5);
  EXPECT_EQ(own.recipe.precision.weights, DType::f32);
  EXPECT_THAT(own.other_tools.notes.at("rows"), HasSubstr("finetune.py"));
  EXPECT_DOUBLE_EQ(recipe("trl sft" + rest).optimizer.lr, 2e-5);
  // A script of one's own that gets a rank trains adapters, whatever it is called.
  for (const char* name : {"finetune.py", "sft.py"}) {
    const LoadedRecipe lora =
        load(std::string("python ") + name + " --lora_r 8 --completion_only_loss" + rest);
    EXPECT_EQ(lora.recipe.method.type, MethodType::lora) << name;
    EXPECT_EQ(lora.recipe.data.train_on_prompt, PromptLoss::no) << name;
    EXPECT_THAT(
        lora.other_tools.notes.at("rows"),
        HasSubstr("its own optimizer.lr, schedule.epochs, data.max_length, method.alpha, method.targets"));
  }
  EXPECT_EQ(recipe("trl sft --lora_r 8" + rest).method.type, MethodType::full);
}

TEST_F(ShellScripts, texts_that_are_handed_to_another_shell_are_read) {
  const std::string rest = " train.py --model_name_or_path m --per_device_train_batch_size 2";
  EXPECT_EQ(
      recipe("N=4\nsrun bash -lc \"cd x && torchrun --nproc_per_node $N" + rest + "\"\n").batch.effective, 8);
  EXPECT_EQ(recipe("CMD=\"torchrun --nproc_per_node 8" + rest + "\"\neval \"$CMD\"\n").batch.effective, 16);
  EXPECT_EQ(recipe("apptainer exec --nv image.sif torchrun --nproc_per_node 8" + rest + "\n").batch.effective,
            16);
  write("r.yaml", "model_name_or_path: m\nstage: sft\nlearning_rate: 3e-4\n");
  for (const char* here : {"$PWD", "${SLURM_SUBMIT_DIR}", "$(pwd)"})
    EXPECT_DOUBLE_EQ(recipe(std::string("llamafactory-cli train ") + here + "/r.yaml\n").optimizer.lr, 3e-4)
        << here;
}

TEST_F(ShellScripts, what_a_script_declares_says_what_its_command_leaves_out) {
  write(
      "train.py",
      "import transformers\n"
      "@dataclass\n"
      "class ModelArguments:\n"
      "    \"\"\"model_max_length: int = 7\"\"\"\n"
      "    model_name_or_path: Optional[str] = field(default=\"facebook/opt\")\n"
      "    use_lora: bool = field(\n        default=True,  # on\n        metadata={\"help\": \"learning_rate = 9\"})\n"
      "    lora_r: int = 16\n"
      "    lora_target_modules: List[str] = field(default_factory=lambda: ['q_proj', \"v_proj\"])\n"
      "    gamma: float = 2.0\n"
      "class TrainingArguments(transformers.TrainingArguments):\n"
      "    cache_dir: Optional[str] = None\n"
      "    model_max_length: int = field(default=512)\n"
      "    learning_rate: float = 1e-3\n"
      "    max_steps: int = -1\n"
      "    def model(self):\n"
      "        lora_alpha: int = 3\n"
      "weight_decay: float = 0.5\n"
      "parser.add_argument('--lora-alpha', '-a', type=int, default=64)\n"
      "parser.add_argument('--num_train_epochs', type=int, default=2)\n"
      "other.add_argument('--num_train_epochs', type=int, default=9)\n"
      "parser.add_argument('--warmup_steps', type=int, default=STEPS)\n");
  const std::string command =
      "python train.py --model_name_or_path m --learning_rate 2e-4 --per_device_train_batch_size 2";
  const LoadedRecipe loaded = load(command + "\n");
  const Recipe& read = loaded.recipe;
  EXPECT_THAT(read.model, testing::EndsWith("/m"));
  EXPECT_DOUBLE_EQ(read.optimizer.lr, 2e-4);
  EXPECT_EQ(read.data.max_length, 512);
  EXPECT_EQ(read.method.type, MethodType::lora);
  EXPECT_EQ(read.method.r, 16);
  EXPECT_DOUBLE_EQ(read.method.alpha, 64);
  EXPECT_DOUBLE_EQ(read.optimizer.weight_decay, 0);  // no argument
  EXPECT_EQ(read.schedule.epochs, 3);                // declared twice: transformers' own
  EXPECT_THAT(loaded.other_tools.notes.at("script"),
              AllOf(HasSubstr("train.py declares what its command leaves out"),
                    HasSubstr("model_max_length 512 (line 14)"), testing::Not(HasSubstr("learning_rate"))));
  EXPECT_THAT(loaded.other_tools.notes.at("rows"), testing::Not(HasSubstr("data.max_length")));
  EXPECT_EQ(recipe(command + " --use_lora False\n").method.type, MethodType::full);
  EXPECT_EQ(recipe(command + " --max_seq_length 64\n").data.max_length, 64);  // the same in another word
  EXPECT_EQ(load(command + "\n", {"model_max_length=128"}).recipe.data.max_length, 128);
  write("c.yaml", "model_max_length: 96\n");
  EXPECT_EQ(recipe(command + " --config c.yaml\n").data.max_length, 96);
  EXPECT_EQ(recipe("python other.py --model_name_or_path m --learning_rate 2e-4\n").data.max_length,
            Recipe{}.data.max_length);
}

TEST_F(ShellScripts, branches_whose_tests_the_script_answers_are_taken_or_left) {
  const auto rate = [&](const std::string& text) {
    return recipe("LR=1e-3\n" + text + "\npython t.py --model m --lr $LR\n").optimizer.lr;
  };
  const std::string then = "; then\n  LR=1e-4\nfi";
  for (const char* holds :
       {"if [ -n \"a\" ]", "if [[ -z \"${MORE:-}\" ]]", "if [ \"$LR\" = \"1e-3\" ]", "if [[ $LR != 1e-4 ]]",
        "if ! [ -z \"$LR\" ]", "if [ ! -z $LR ]", "if [ $((2 * 4)) -eq 8 ]", "if true", "if test 2 -gt 1",
        "if [ -z \"\" ] && [ 3 -le 3 ]", "if [ -n \"\" ] || [ a != b ]",
        "if false; then\n  LR=1e-5\nelif [ a = a ]",
        "if false; then\n  LR=1e-5\nelse\n  LR=1e-4\nfi\nif true"})
    EXPECT_DOUBLE_EQ(rate(holds + then), 1e-4) << holds;
  for (const char* fails :
       {"if [ -z \"$LR\" ]", "if [[ \"$LR\" == none ]]", "if false", "if [ a = a ] && [ 1 -gt 2 ]",
        "if true; then\n  :\nelif [ a = a ]", "if [ b = a ] || [ 3 -lt 3 ]"})
    EXPECT_DOUBLE_EQ(rate(fails + then), 1e-3) << fails;
  for (const char* unknown :
       {"if [ \"$MODE\" = a ]", "if [ -f x ]", "if [[ $LR == 1* ]]", "if [ -n \"$1\" ]",
        "if [[ -n a && $X == b ]]", "while [ a = a ]; do\n if [ a = a ]", "if grep -q a b"}) {
    const std::string end = std::string(unknown).starts_with("while") ? "\ndone" : "";
    EXPECT_THAT(error_of("LR=1e-3\n" + (unknown + then) + end + "\npython t.py --model m --lr $LR\n"),
                HasSubstr("'$LR'"))
        << unknown;
  }
  EXPECT_EQ(
      recipe(
          "if [ a = b ]; then\n  python t.py --model m --lr 1e-4\nelse\n  python t.py --model m --lr 1e-5\n"
          "fi\n")
          .optimizer.lr,
      1e-5);
}

TEST_F(ShellScripts, commands_behind_signs_run_as_those_before_them_say) {
  const auto rate = [&](const std::string& text) {
    return recipe("ALPHA=None\nA=(--lr 1e-3)\n" + text + "\npython t.py --model m ${A[@]}\n").optimizer.lr;
  };
  EXPECT_DOUBLE_EQ(rate("[ \"$ALPHA\" != None ] && A+=(--lr 1e-4)"), 1e-3);
  EXPECT_DOUBLE_EQ(rate("[ \"$ALPHA\" = None ] && A+=(--lr 1e-4)"), 1e-4);
  EXPECT_DOUBLE_EQ(rate("[ \"$ALPHA\" = None ] || A+=(--lr 1e-4)"), 1e-3);
  EXPECT_DOUBLE_EQ(rate("[ \"$ALPHA\" = x ] && A=(--lr 1e-4) || A=(--lr 1e-5)"), 1e-5);
  EXPECT_DOUBLE_EQ(rate("[ \"$ALPHA\" = None ] &&\n  A=(--lr 1e-4) || A=(--lr 1e-5)"), 1e-4);
  EXPECT_DOUBLE_EQ(rate("[ a = b ] && {\n  B=1\n  A=(--lr 1e-4)\n}"), 1e-3);
  EXPECT_DOUBLE_EQ(rate("mkdir -p x && cd x && A=(--lr 1e-4)"), 1e-4);
  EXPECT_THAT(error_of("LR=1\n[ -f x ] && LR=1e-4\npython t.py --model m --lr $LR\n"), HasSubstr("'$LR'"));
  EXPECT_THAT(error_of("LR=1\n[ -f x ] && {\n  B=2\n  LR=1e-4\n}\npython t.py --model m --lr $LR\n"),
              HasSubstr("'$LR'"));
}

TEST_F(ShellScripts, a_script_has_no_arguments_of_its_own_and_a_function_may) {
  EXPECT_DOUBLE_EQ(recipe("python t.py --model m --lr 1e-4 --bf16 false \"$@\"\n").optimizer.lr, 1e-4);
  EXPECT_NE(error_of("f() {\n  python t.py --model m --lr 1e-4 --bf16 false \"$@\"\n}\nf --lr 1e-5\n"),
            "no error");
}

TEST_F(ShellScripts, files_that_a_script_sources_say_its_variables) {
  write("scripts/settings.sh", "LR=2e-4\nBATCH=3\n");
  write("above.sh", "MODEL=m\n");
  const Recipe read = recipe(
      "source \"$(dirname \"${BASH_SOURCE[0]}\")/settings.sh\"\n. above.sh\nsource none.sh\n"
      "python t.py --model $MODEL --lr $LR --per_device_train_batch_size ${BATCH:-1}\n");
  EXPECT_DOUBLE_EQ(read.optimizer.lr, 2e-4);
  EXPECT_EQ(read.batch.micro, 3);
}

TEST_F(ShellScripts, one_training_from_the_beginning_or_a_checkpoint_is_one) {
  write(
      "c.yaml",
      "base_model: m\ndatasets: [{path: a.jsonl, type: alpaca}]\nlearning_rate: 1e-4\nmicro_batch_size: 1\n");
  const std::string script =
      "LAST=$(ls runs | tail -1)\nif [ -n \"$LAST\" ]; then\n  axolotl train c.yaml --resume_from_checkpoint \"$LAST\"\n"
      "else\n  axolotl train c.yaml\nfi\n";
  EXPECT_DOUBLE_EQ(recipe(script).optimizer.lr, 1e-4);
}

TEST_F(ShellScripts, what_a_script_hands_on_by_other_names_is_read_by_these) {
  write("train.py",
        "parser.add_argument('--peak', type=float, default=3e-4)\n"
        "parser.add_argument('--rank_', type=int)\n"
        "training_args = TrainingArguments(\n    learning_rate=args.peak, num_train_epochs=2,\n"
        "    bf16=is_bf16_supported(), output_dir=args.out)\n"
        "config.max_seq_length = args.block_size\n"
        "if args.use_lora:\n    lora = LoraConfig(r=args.rank_, lora_alpha=32, target_modules=['q_proj'])\n");
  const std::string command = "python train.py --model_name_or_path m --per_device_train_batch_size 2";
  const LoadedRecipe loaded = load(command + " --block_size 96 --use_lora true --rank_ 4\n");
  EXPECT_EQ(loaded.recipe.data.max_length, 96);
  EXPECT_FALSE(loaded.recipe.data.packing);
  EXPECT_DOUBLE_EQ(loaded.recipe.optimizer.lr, 3e-4);
  EXPECT_EQ(loaded.recipe.schedule.epochs, 2);
  EXPECT_EQ(loaded.recipe.method.r, 4);
  EXPECT_DOUBLE_EQ(loaded.recipe.method.alpha, 32);
  EXPECT_THAT(loaded.other_tools.notes.at("names"), HasSubstr("block_size is its max_seq_length (line 6)"));
  EXPECT_DOUBLE_EQ(recipe(command + " --peak 1e-5 --use_lora false\n").optimizer.lr, 1e-5);
  const std::string silent = command + " --peak 1e-5\n";
  EXPECT_THAT(error_of(silent), HasSubstr("makes adapters (LoraConfig, line 8)"));
  EXPECT_EQ(recipe(silent, {"use_lora=false"}).method.type, MethodType::full);
  EXPECT_THAT(error_of(command + " --use_lora false --other 3\n"), HasSubstr("unknown key 'other'"));
  write("train.py", "args = SFTConfig(learning_rate=1e-4 * scale, per_device_train_batch_size=4)\n");
  EXPECT_THAT(error_of(command + "\n"), HasSubstr("works out learning_rate (line 1) by itself"));
  EXPECT_DOUBLE_EQ(recipe(command + "\n", {"learning_rate=1e-4"}).optimizer.lr, 1e-4);
  EXPECT_DOUBLE_EQ(recipe(command + " --learning_rate 1e-5\n").optimizer.lr, 1e-5);
}

TEST_F(ShellScripts, a_program_of_one_s_own_that_calls_its_model_base_model_is_not_axolotl) {
  const std::string command = "python finetune.py --base_model m --data_path a.jsonl --num_epochs 6";
  const Recipe bare = recipe(command + " --batch_size 64 --micro_batch_size 4 --cutoff_len 96 --lora_r 4\n");
  EXPECT_EQ(bare.method.type, MethodType::lora);
  EXPECT_EQ(bare.batch.effective, 64);
  EXPECT_EQ(bare.batch.micro, 4);
  EXPECT_EQ(bare.data.max_length, 96);
  EXPECT_EQ(bare.schedule.epochs, 6);
  write(
      "finetune.py",
      "def train(\n    base_model: str = '',\n    batch_size: int = 128,\n    micro_batch_size: int = 4,\n"
      "    learning_rate: float = 3e-4,\n    cutoff_len: int = 256,\n    lora_r: int = 8,\n"
      "    lora_target_modules: List[str] = [\n        'q_proj',\n    ],\n    train_on_inputs: bool = True,\n):\n"
      "    config = LoraConfig(r=lora_r, lora_alpha=16)\n"
      "    trainer = Trainer(args=TrainingArguments(warmup_steps=100, fp16=True))\n"
      "if __name__ == '__main__':\n    fire.Fire(train)\n");
  const Recipe read = recipe(command + "\n");
  EXPECT_EQ(read.method.type, MethodType::lora) << "it always makes adapters";
  EXPECT_EQ(read.method.r, 8);
  EXPECT_DOUBLE_EQ(read.method.alpha, 16);
  EXPECT_EQ(read.batch.effective, 128);
  EXPECT_DOUBLE_EQ(read.optimizer.lr, 3e-4);
  EXPECT_EQ(read.data.max_length, 256);
  EXPECT_TRUE(read.data.train_on_prompt == PromptLoss::yes);
  EXPECT_EQ(load(command + "\n").recipe.precision, load(command + " --fp16 true\n").recipe.precision);
  write("c.yaml", "base_model: m\nmicro_batch_size: 2\nlearning_rate: 1e-4\n");
  EXPECT_EQ(recipe("python -m axolotl.cli.train c.yaml\n").data.truncation, Truncation::drop) << "this is";
}

TEST_F(ShellScripts, a_value_that_an_argument_of_the_script_decides_is_that_argument_s) {
  const std::string command = "python t.py --model_name_or_path m --train_file a.jsonl --do_train";
  const auto script = [&](const std::string& value) {
    write("t.py",
          "@dataclass\nclass A:\n    test_size: float = 0.1\n    bf16: bool = False\n"
          "args = TrainingArguments(learning_rate=1e-4 if bf16 else 3e-4, per_device_train_batch_size=2, "
          "load_best_model_at_end=" +
              value + ")\n");
  };
  const auto best = [&](const std::string& more) {
    return recipe(command + more + "\n").save.best.value_or("last");
  };
  for (const char* value : {"True if test_size > 0 else False", "test_size > 0", "args.test_size != 0",
                            "not args.bf16", "True"}) {
    script(value);
    EXPECT_EQ(best(""), "loss") << value;
    EXPECT_DOUBLE_EQ(recipe(command + "\n").optimizer.lr, 3e-4);
  }
  script("True if test_size >= 0.2 else False");
  EXPECT_EQ(best(""), "last");
  EXPECT_EQ(best(" --test_size 0.2"), "loss");
  EXPECT_DOUBLE_EQ(recipe(command + " --bf16 true\n").optimizer.lr, 1e-4);
  script("True if found else False");
  EXPECT_EQ(best(""), "last") << "nobody says what it is";
}

TEST_F(ShellScripts, arithmetic_has_an_older_form) {
  const std::string command =
      "python t.py --model_name_or_path m --learning_rate 1e-4 --gradient_accumulation_steps ";
  EXPECT_EQ(
      recipe("ALL=32\nMICRO=2\n" + command + "$[$ALL/$MICRO] --per_device_train_batch_size $[ MICRO ]\n")
          .batch.effective,
      32);
  EXPECT_THAT(error_of(command + "$[32/$NODES]\n"), HasSubstr("'$[32/$NODES]'"));
}

TEST_F(ShellScripts, the_program_may_lie_behind_a_variable) {
  EXPECT_DOUBLE_EQ(
      recipe("deepspeed --num_gpus 2 ${ROOT}/src/t.py --model_name_or_path m --learning_rate 1e-4\n")
          .optimizer.lr,
      1e-4);
}

TEST_F(ShellScripts, a_file_about_adapters_that_a_command_names_is_read) {
  write("lora.json", R"({"lora_r": 4, "lora_alpha": 8, "lora_target_modules": ["q_proj"]})");
  const Recipe read = recipe(
      "python train.py --model_name_or_path m --learning_rate 1e-4 --llama --use_lora --lora_config lora.json\n");
  EXPECT_EQ(read.method.type, MethodType::lora);
  EXPECT_EQ(read.method.r, 4);
  EXPECT_THAT(
      error_of("python train.py --model_name_or_path m --learning_rate 1e-4 --lora_config none.json\n"),
      HasSubstr("unknown key 'lora_config'"));
}

TEST_F(ShellScripts, quotes_comments_and_texts_behind_signs_are_read_as_a_shell_reads_them) {
  const Recipe read = recipe(
      "cat <<EOF > x\npython b.py --lr 1 --model m\nEOF\n"
      "python t.py --lr 1e-3 --model \"m\" \\\n  # --lr 1e-4 \\\n  --num_epochs 7\n");
  EXPECT_DOUBLE_EQ(read.optimizer.lr, 1e-3);
  EXPECT_EQ(read.schedule.epochs, Recipe{}.schedule.epochs);
  std::string grows = "A=0123456789\n", doubles = "A=(x x)\n";
  for (int i = 0; i < 60; ++i) grows += "A=$A$A\n";
  for (int i = 0; i < 60; ++i) doubles += "A=(${A[@]} ${A[@]})\n";
  EXPECT_THAT(error_of(grows), HasSubstr("grow beyond a recipe's size"));
  std::string nested = "LR=";
  for (int i = 0; i < 50'000; ++i) nested += "${X:-";
  EXPECT_NE(error_of(nested + "\npython t.py --model m --lr $LR\n"), "no error");
  EXPECT_DOUBLE_EQ(recipe("python t.py --model m --lr ${X:-${Y:-1e-4}}\n").optimizer.lr, 1e-4);
  EXPECT_THAT(error_of(doubles), HasSubstr("grow beyond a recipe's size"));
  for (const char* text : {"'", "\"$(", "${", "A=(", "$((", "`", "x <<",
                           "python t.py --lr $((1/0)) --model m", "A=(;b c\n", "A=(a (b) c)\n"})
    EXPECT_NE(error_of(text), "no error") << text;
  std::string many = "python t.py --model m --lr 1e-3 ";
  for (int i = 0; i < 200'000; ++i) many += ">a";
  EXPECT_DOUBLE_EQ(recipe(many + "\n").optimizer.lr, 1e-3);
}

}  // namespace
}  // namespace plimsoll
