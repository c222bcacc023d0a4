#include "cli/pages.h"

#include <algorithm>

namespace plimsoll {
namespace {

const std::vector<CommandPage>& pages() {
  static const std::vector<CommandPage> kPages = {
      {"",
       "Fine-tunes language models within a memory budget. A training step is planned as a static program: "
       "every tensor has its address, and the peak memory is known before anything is loaded. The run then "
       "allocates exactly those bytes, once, or is refused with the amount that is missing.\n\n"
       "The usual order: plan a recipe, train it, try the result (generate, chat, eval), merge its "
       "adapter.\n\n"
       "PLIMSOLL_SET changes keys of the recipe (key=value, separated by spaces); a run reports it. "
       "PLIMSOLL_CACHE_DIR is the folder of calibrate's measurements. PLIMSOLL_MEMINFO names a file to read "
       "instead of /proc/meminfo.",
       {{"plimsoll plan recipe.yaml --memory 8GiB", "memory of the run, or what is missing"},
        {"plimsoll train recipe.yaml", "train"},
        {"plimsoll chat runs/first", "chat with its model"}},
       {3, 4, 5, 130},
       "README.md"},
      {"demo",
       "Shows what the program does with files that it carries: a plan, its refusal in too little memory, the "
       "training of a small model from random weights, three questions. It takes about half a minute on two "
       "cores, prints each command that it runs, and writes to plimsoll-demo/ alone.",
       {{"plimsoll demo", "writes to plimsoll-demo/"}, {"plimsoll demo --folder /tmp/demo", "elsewhere"}},
       {5, 130},
       "README.md"},
      {"init",
       "Reads a model folder and a data file, and writes a commented recipe for them. Change it as you "
       "like, and see its memory with plimsoll plan.",
       {{"plimsoll init models/qwen data/train.parquet", "writes recipe.yaml"},
        {"plimsoll init models/qwen data/train.parquet --method qlora --out small.yaml",
         "for a GPU or machine with little memory"}},
       {4},
       "docs/reference/recipe.md"},
      {"fetch",
       "Downloads a model (configuration, tokenizer, weights in safetensors), or a data set with --dataset, "
       "from the Hugging Face hub into the Hugging Face cache, where transformers finds it too. It is the "
       "only command that connects to the hub. An interrupted download resumes, and every file is verified "
       "by its checksum.\n\n"
       "HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE work as in huggingface_hub, "
       "https_proxy and no_proxy as usual. The command needs libcurl.",
       {{"plimsoll fetch Qwen/Qwen2.5-7B --config-only", "a few MiB: enough to plan"},
        {"plimsoll fetch Qwen/Qwen2.5-7B", "the weights too"},
        {"plimsoll fetch tatsu-lab/alpaca --dataset", "rows to train on"}},
       {4, 5},
       "docs/howto/install.md"},
      {"preview",
       "Shows the first rows of a recipe's data as the model sees them: rendered by the chat template, with "
       "the trained tokens between \u27e6 and \u27e7, lengths in tokens, and what data.max_length "
       "truncates. Only these rows are read from a text file.",
       {{"plimsoll preview recipe.yaml", "the first three rows"},
        {"plimsoll preview recipe.yaml --rows 50 --html rows.html", "fifty, as a page"},
        {"plimsoll preview recipe.yaml --length 512", "what a shorter limit would truncate"}},
       {4},
       "docs/howto/data.md"},
      {"fit",
       "Says which methods of fine-tuning at which lengths fit this machine or a GPU, with the memory that "
       "each takes and its speed. A name is enough: a path, then the Hugging Face cache, then the built-in "
       "catalogue of 100 shapes with 213 names; nothing is downloaded. A config.json of your own decides, "
       "and where it differs from the catalogue the keys are named.\n\n"
       "Every cell is the plan that plimsoll plan makes of that method and length; where none fits, the "
       "least memory that one takes. Exit code 3: nothing fits.",
       {{"plimsoll fit qwen2.5-7b", "this machine: its GPUs, its CPU"},
        {"plimsoll fit --list", "the names that are known"},
        {"plimsoll fit Qwen/Qwen2.5-7B --gpu \"RTX 3060 12GB\" --host-memory 24GiB", "another one"},
        {"plimsoll fit models/mine/config.json --lengths 1024,4096 --methods lora --json", "as JSON"}},
       {3, 4},
       "docs/howto/fit-into-memory.md"},
      {"plan",
       "Plans a run without loading weights and without a GPU: peak memory by component, the fastest "
       "variant within the budget (micro-batch size and gradient accumulation, activation checkpointing, "
       "offloading), and predicted time and throughput. A run that does not fit is refused with the amount "
       "that is missing and with changes that fit.\n\n"
       "A model folder instead of a recipe, its config.json alone or a model's name is planned with all "
       "defaults; the built-in catalogue has the shapes of 213 names. --rows and --tokens plan "
       "a run whose rows do not exist yet.",
       {{"plimsoll plan recipe.yaml --memory 8GiB", "the report"},
        {"plimsoll plan qwen2.5-7b --gpu \"RTX 4090\" --rows 50000 --tokens 120", "without data or a model"},
        {"plimsoll plan recipe.yaml --sweep memory=2GiB..24GiB", "the fastest plan of each budget"},
        {"plimsoll plan recipe.yaml --max length", "the longest sequences that fit"}},
       {3, 4},
       "docs/howto/fit-into-memory.md, docs/explanation/planner.md"},
      {"calibrate",
       "Measures matrix products, memory and disk of this machine once, and saves the speeds for the times "
       "that plan predicts. Optional: a run does not need it.",
       {{"plimsoll calibrate --quick", "in seconds, on a coarse grid"}},
       {5},
       "docs/reference/devices.md"},
      {"train",
       "Plans the run, refuses it if it does not fit, allocates its memory once, loads the weights, trains, "
       "evaluates and saves checkpoints. Ctrl-C, SIGTERM and a closed terminal finish the current step, "
       "save a checkpoint and exit with code 130. --resume continues from the newest checkpoint, with the "
       "same bits if kernels and micro-batch size are the same.\n\n"
       "Mixed precision (precision), gradient clipping (optimizer.max_grad_norm) and early stopping "
       "(stop.patience) are keys of the recipe; plimsoll recipe --explain explains all of them.",
       {{"plimsoll train recipe.yaml", "the run"},
        {"plimsoll train recipe.yaml --resume", "continue after an interruption"},
        {"plimsoll train recipe.yaml --set optimizer.lr=1e-4 --set output=runs/second", "with other values"}},
       {3, 4, 5, 130},
       "docs/howto/train.md, docs/howto/resume.md"},
      {"report",
       "Reports a finished or running run from the logs in its folder: loss, throughput, peak memory, "
       "checkpoints. Several runs are compared, the best first. --html writes a page with the run's curves "
       "that needs no network.",
       {{"plimsoll report runs/first --html first.html", "text here, curves on the page"},
        {"plimsoll report runs/a runs/b runs/c", "the best of them, and what differs"},
        {"plimsoll report --queue --html batch.html",
         "all runs of the queue's last batch, by device and time"}},
       {4, 5},
       "docs/howto/train.md"},
      {"doctor",
       "Finds out why a run ran out of memory: from the log of any program (PyTorch, JAX, TensorFlow, "
       "cuBLAS, NCCL, DeepSpeed, Ray, Slurm, Kubernetes, the kernel), from a memory snapshot of PyTorch, or "
       "from a run folder. Names the cause, the lines that show it and how certain it is, then the next "
       "steps, those that keep the result first. Also reports when a log shows no out-of-memory error.\n\n"
       "With --recipe the next steps are planned, with the memory that each saves. Snapshots are parsed as "
       "data; nothing in them is executed.",
       {{"plimsoll doctor train.log", "the verdict"},
        {"plimsoll doctor train.log --recipe sft.yaml", "and what each next step saves"},
        {"kubectl logs POD | plimsoll doctor - --json", "a log from standard input, JSON output"}},
       {5},
       "docs/howto/out-of-memory-logs.md"},
      {"queue",
       "Runs many jobs (recipes or any command) on few devices. A job starts only when its planned or "
       "stated memory fits beside what running jobs have reserved, so no job runs out of memory because of "
       "another. Jobs are stored on disk: the worker may stop or be killed at any time, and the next worker "
       "continues. plimsoll queue COMMAND --help lists the options of each command.\n\n"
       "PLIMSOLL_QUEUE_DIR is the folder of the queue; by default plimsoll/queue in XDG_STATE_HOME or "
       "~/.local/state.",
       {{"plimsoll queue add recipe.yaml --memory 8GiB", "plan it and reserve the memory it needs"},
        {"plimsoll queue add --memory 6GiB --threads 2 -- python3 train.py --rank 8", "any command"},
        {"plimsoll queue add recipe.yaml --gpu \"RTX 3060\"", "plan for that GPU, and run on one"},
        {"plimsoll queue run --memory 24GiB", "the worker: starts jobs that fit"},
        {"plimsoll queue list", "waiting, running and finished jobs"}},
       {3, 4, 5},
       "docs/howto/queue.md"},
      {"top",
       "The queue and this machine, live: total, reserved and used memory of each device, progress of each "
       "run, its planned and current memory, the memory of other processes, and the load of the machine. "
       "Keys select a run, sort, filter, show its log and cancel it.\n\n"
       "Without a terminal, one sample is printed as a table.",
       {{"plimsoll top", "full screen; q quits"},
        {"plimsoll top --once --json", "one sample as JSON"},
        {"plimsoll top --record night.jsonl --count 3600 --interval 10", "record ten hours"},
        {"plimsoll top --replay night.jsonl", "replay them"}},
       {4, 5},
       "docs/howto/queue.md"},
      {"devices",
       "Lists the CPU and the GPUs (cards) of this machine, free host memory and GPU memory, and the "
       "processes that use it. Without an NVIDIA driver it says what is missing. Unresponsive GPUs are "
       "marked.\n\n"
       "PLIMSOLL_NVML_SECONDS is the time that a GPU may take to answer (4). PLIMSOLL_NVML names the "
       "driver's library if it is not libnvidia-ml.so.1.",
       {{"plimsoll devices", "devices and free memory"}, {"plimsoll devices --json", "JSON output"}},
       {},
       "docs/reference/devices.md"},
      {"queue simulate",
       "Simulates a workload under three policies: the packing of the queue, polling for free memory, and "
       "one job per device. Prints the total time, crashes and lost work of each.",
       {{"plimsoll queue simulate examples/queue/workload.json", "the three policies compared"}},
       {},
       "docs/howto/queue.md"},
      {"generate",
       "Generates text with a model folder or a finished run: for a prompt, token ids, or every row of a "
       "data file. Memory, with its KV cache, is planned before weights are loaded. The answer to --prompt "
       "is streamed; it ends at an end-of-sequence token, a --stop text, --max-new-tokens, or a full "
       "context.\n\n"
       "The same seed, prompt and options give the same text.",
       {{"plimsoll generate runs/first --prompt \"What is the capital of Peru?\"", "one answer"},
        {"plimsoll generate runs/first --data test.jsonl --out answers.jsonl", "answer every row"},
        {"plimsoll generate models/q --prompt \"1, 2,\" --stop \"\\n\" --temperature 0.8 --seed 7",
         "sampled"}},
       {3, 4, 5},
       "docs/howto/answers.md"},
      {"chat",
       "A conversation at the terminal. Turns are rendered by the model's chat template, or by --template; "
       "the whole conversation is the prompt of each turn, and its KV cache is planned before weights are "
       "loaded. Lines that begin with / are commands; /help lists them. Ctrl-C ends an answer, Ctrl-D the "
       "conversation.",
       {{"plimsoll chat runs/first", "with the model that a run made"},
        {"plimsoll chat models/q --system \"Answer in one sentence.\" --temperature 0.7", "sampled"}},
       {3, 4, 5},
       "docs/howto/answers.md"},
      {"eval",
       "Loss and perplexity over a data file, or over the evaluation data of a run; with --generate also "
       "exact matches and BLEU of generated answers. The loss is the mean over all target tokens, "
       "independent of the batch size.",
       {{"plimsoll eval runs/first", "the run's model on the run's own evaluation rows"},
        {"plimsoll eval models/q --data test.jsonl --generate --limit 200",
         "and exact matches of 200 generated answers"}},
       {3, 4, 5},
       "docs/howto/answers.md"},
      {"score",
       "Scores answers with a reward model: those of --response, or the rows of a data file (a text, a list "
       "of messages, a response to a prompt, or a pair of chosen and rejected answers). Prints one line of "
       "JSON per row, with its number and score, in the order of the file.",
       {{"plimsoll score runs/reward --prompt \"Say hello.\" --response \"Hello!\" --response \"No.\"",
         "the better of two answers"},
        {"plimsoll score runs/reward --data answers.jsonl --out rewards.jsonl", "one line per row"}},
       {3, 4, 5},
       "docs/howto/scores.md"},
      {"classify",
       "Classifies texts: those of --text, or the rows of a data file, which need no labels. Prints one "
       "line of JSON per row, with its number, its label or labels and the probability of each class; for "
       "regression models, their values.",
       {{"plimsoll classify runs/reviews --text \"Worth every minute.\"", "one text"},
        {"plimsoll classify runs/reviews --data texts.csv --out labels.jsonl", "one line per row"}},
       {3, 4, 5},
       "docs/howto/scores.md"},
      {"merge",
       "Merges a LoRA adapter into its base model (W + scale B A for each adapted weight) and writes a new "
       "model folder that transformers loads. Weights are streamed through a few MiB of memory; the folder "
       "appears complete or not at all.",
       {{"plimsoll merge runs/first --out models/mine", "into the base model of the run"}},
       {4, 5},
       "docs/howto/export.md"},
      {"convert",
       "Rewrites a model folder with another data type or shard size. Weights are streamed through a few "
       "MiB of memory; the folder appears complete or not at all. Narrower types are rounded to nearest, "
       "ties to even.\n\n"
       "--to gguf writes one file for llama.cpp: weights, tokenizer and chat template. `plimsoll export` does so "
       "for a run, and checks it.",
       {{"plimsoll convert models/q --dtype bf16 --out models/q-bf16", "half the bytes of f32"},
        {"plimsoll convert models/q --shard-size 2GiB --out models/q-shards", "files of at most 2 GiB"},
        {"plimsoll convert models/q --to gguf --dtype q8_0 --out q.gguf", "for llama.cpp"}},
       {4, 5},
       "docs/howto/export.md"},
      {"export",
       "Makes a finished run into what others serve: a merged Hugging Face folder, a GGUF file, a folder for "
       "Ollama (the file and a Modelfile), or an adapter for vLLM. What was written is read back, and its loss "
       "over rows that are held out is compared with the run's; the folder appears complete and checked, or "
       "not at all. check.json in it has the figures.\n\n"
       "An adapter of a QLoRA run was trained over weights in 4 or 8 bits, and is merged into these by default.",
       {{"plimsoll export runs/first --to merged", "a folder for transformers, runs/first-merged"},
        {"plimsoll export runs/first --to gguf --type q4_k_m --out mine", "mine/model.gguf, for llama.cpp"},
        {"plimsoll export runs/first --to ollama --type q8_0 --rows held-out.jsonl",
         "checked with these rows"},
        {"plimsoll export runs/first --to vllm", "the adapter, and the line that serves it"}},
       {3, 4, 5},
       "docs/howto/export.md"},
      {"inspect",
       "Describes a file or folder: a model, an adapter, a run, a checkpoint, a tokenizer, a safetensors, "
       "Parquet or JSONL file. Reads headers and small files, never weights.",
       {{"plimsoll inspect models/q", "shape, parameters, types, tokenizer"},
        {"plimsoll inspect models/q --tensors", "every tensor"},
        {"plimsoll inspect data/train.parquet --json", "columns and rows, as JSON"}},
       {4},
       "docs/reference/formats.md"},
      {"recipe",
       "Prints a recipe with all defaults filled in (itself a recipe); with --explain all keys, their "
       "defaults and meanings.",
       {{"plimsoll recipe --explain", "all keys"},
        {"plimsoll recipe recipe.yaml", "the recipe that a run would use"}},
       {},
       "docs/reference/recipe.md"},
      {"completion",
       "Prints a shell completion script for commands, options, their values and recipe keys.",
       {{"plimsoll completion bash > ~/.local/share/bash-completion/completions/plimsoll", "bash"},
        {"plimsoll completion zsh > ~/.zsh/completions/_plimsoll", "zsh, where that folder is in $fpath"},
        {"plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish", "fish"}},
       {},
       "docs/howto/install.md"},
      {"help",
       "The manual of a command, as COMMAND --help. --man prints it for man(1).",
       {{"plimsoll help train", "all options of train"},
        {"plimsoll help train --man | man -l -", "as a page"}},
       {},
       "docs/reference/commands.md"},
  };
  return kPages;
}

}  // namespace

const CommandPage* find_page(std::string_view name) {
  const auto found = std::find_if(pages().begin(), pages().end(),
                                  [&](const CommandPage& page) { return page.name == name; });
  return found == pages().end() ? nullptr : &*found;
}

std::string_view exit_meaning(int code) {
  switch (code) {
    case 0:
      return "done";
    case 1:
      return "a bug in Plimsoll; the message asks for a report";
    case 2:
      return "bad input or usage";
    case 3:
      return "does not fit the memory budget";
    case 4:
      return "damaged data or checkpoint";
    case 5:
      return "the run had to stop: loss not finite, disk full, I/O error";
    case 130:
      return "interrupted, and saved";
    default:
      return "";
  }
}

}  // namespace plimsoll
