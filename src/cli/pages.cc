#include "cli/pages.h"

#include <algorithm>

namespace plimsoll {
namespace {

const std::vector<CommandPage>& pages() {
  static const std::vector<CommandPage> kPages = {
      {"",
       "Fine-tunes language models inside a memory budget. A step is planned as a static program, every "
       "tensor of it "
       "is laid out in memory, and the bytes are known before anything is loaded. The run then takes exactly "
       "those "
       "bytes once, or is refused with the amount that is missing.\n\n"
       "The usual order: plan a recipe, train it, ask the run (generate, chat, eval), merge its adapter.\n\n"
       "PLIMSOLL_SET changes keys of the recipe (key=value, several with blanks between them); a run reports "
       "it. "
       "PLIMSOLL_CACHE_DIR is where calibrate keeps its rates. PLIMSOLL_MEMINFO names a file to be read in "
       "the "
       "place of /proc/meminfo.",
       {{"plimsoll plan recipe.yaml --memory 8GiB", "the bytes of the run, or what is missing"},
        {"plimsoll train recipe.yaml", "the run itself"},
        {"plimsoll chat runs/first", "a conversation with its model"}},
       {3, 4, 5, 130},
       "README.md"},
      {"init",
       "Reads a model folder and a data file, and writes a recipe for them in which every line is explained. "
       "The "
       "file is a start: change it, and see what it would take with plimsoll plan.",
       {{"plimsoll init models/qwen data/train.parquet", "writes recipe.yaml"},
        {"plimsoll init models/qwen data/train.parquet --method qlora --out small.yaml",
         "for little memory"}},
       {},
       "docs/recipe.md"},
      {"fetch",
       "Receives a model of the Hugging Face hub (configuration, tokenizer, weights in safetensors), or a "
       "data "
       "set with --dataset, and puts it into the Hugging Face cache, where transformers finds it too. It is "
       "the "
       "only command that connects to the hub. A broken fetch goes on where it was, and every file is "
       "checked "
       "by its checksum.\n\n"
       "HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE mean what they mean to "
       "huggingface_hub; https_proxy and no_proxy are respected. libcurl is opened when the command starts.",
       {{"plimsoll fetch Qwen/Qwen2.5-7B --config-only", "a few MiB: enough to plan"},
        {"plimsoll fetch Qwen/Qwen2.5-7B", "the weights too"},
        {"plimsoll fetch tatsu-lab/alpaca --dataset", "rows to train on"}},
       {4, 5},
       "docs/fetch.md"},
      {"preview",
       "Shows the first rows of a recipe's data as the model reads them: rendered by the chat template, with "
       "what is learnt between \u27e6 and \u27e7, their lengths in tokens, and what data.max_length cuts "
       "off. Of a "
       "text file no more is read than these rows need.",
       {{"plimsoll preview recipe.yaml", "the first three rows"},
        {"plimsoll preview recipe.yaml --rows 50 --html rows.html", "fifty, as a page"},
        {"plimsoll preview recipe.yaml --length 512", "what shorter rows would lose"}},
       {4},
       "docs/data.md"},
      {"plan",
       "Plans a run without loading weights: the bytes of every component, the variant (micro-batch, "
       "recomputation, "
       "offload) that is fastest within the budget, and a predicted time. What does not fit is refused with "
       "the "
       "amount that is missing and the ways that fit.\n\n"
       "A folder in the place of a recipe is a model, planned with every default.",
       {{"plimsoll plan recipe.yaml --memory 8GiB", "the report"},
        {"plimsoll plan recipe.yaml --sweep memory=2GiB..24GiB", "the fastest plan of each budget"},
        {"plimsoll plan recipe.yaml --max length", "the longest sequences that fit"}},
       {3, 4},
       "docs/plan.md, docs/planner.md"},
      {"calibrate",
       "Measures matrix products, memory, and the disk of this machine once, and keeps the rates for plan's "
       "predicted "
       "times. Nothing else is measured, and a run does not need it.",
       {{"plimsoll calibrate --quick", "in seconds, on a coarse grid"}},
       {5},
       "docs/calibrate.md"},
      {"train",
       "Makes the plan, refuses what does not fit, takes the memory once, loads the weights, trains, "
       "evaluates and saves. SIGINT, SIGTERM and a closed terminal let the step at hand finish, save, and "
       "end "
       "with code 130; --resume goes on from there, bit for bit with the same kernels and micro-batch.",
       {{"plimsoll train recipe.yaml", "the run"},
        {"plimsoll train recipe.yaml --resume", "goes on after an interruption"},
        {"plimsoll train recipe.yaml --set optimizer.lr=1e-4 --set output=runs/second", "with other values"}},
       {3, 4, 5, 130},
       "docs/train.md"},
      {"report",
       "What became of a run, from the logs in its folder; also while it goes on. Several runs are compared, "
       "the best first. --html writes one page with a run's curves that needs no network.",
       {{"plimsoll report runs/first --html first.html", "text here, curves on the page"},
        {"plimsoll report runs/a runs/b runs/c", "which of them is best, and what differs"},
        {"plimsoll report --queue --html batch.html",
         "all runs of the queue's last batch, by device and time"}},
       {4},
       "docs/report.md"},
      {"doctor",
       "Finds out why a run ended, from the log of any program: PyTorch, JAX, TensorFlow, cuBLAS, NCCL, "
       "DeepSpeed, Ray, Slurm, Kubernetes, the kernel; from a memory snapshot of PyTorch, or from a run's "
       "folder. Names the cause with the lines that prove it and how certain it is, and what to do next, "
       "what "
       "keeps the result first. A log in which memory did not run out is said to be one.\n\n"
       "With --recipe the next steps are planned, with the bytes that each saves. Snapshots are read as "
       "data; "
       "nothing in them is executed.",
       {{"plimsoll doctor train.log", "the verdict"},
        {"plimsoll doctor train.log --recipe sft.yaml", "and what each next step saves"},
        {"kubectl logs POD | plimsoll doctor - --json", "of standard input, for machines"}},
       {5},
       "docs/doctor.md"},
      {"queue",
       "Many runs, of recipes or of any command, on few devices. A run starts only where what it needs fits "
       "beside what its neighbours have reserved, so that none runs out of memory for others. Entries are on "
       "disk; the worker may end or be killed at any moment, and the next one goes on. "
       "plimsoll queue COMMAND --help lists what each takes.\n\n"
       "PLIMSOLL_QUEUE_DIR is the folder of the queue; else plimsoll/queue in XDG_STATE_HOME or "
       "~/.local/state.",
       {{"plimsoll queue add recipe.yaml --memory 8GiB", "plans it, and reserves what it needs"},
        {"plimsoll queue add --memory 6GiB --threads 2 -- python3 train.py --rank 8", "any command"},
        {"plimsoll queue add recipe.yaml --gpu \"RTX 3060\"", "planned for that card, and run on one"},
        {"plimsoll queue run --memory 24GiB", "the worker: starts what fits"},
        {"plimsoll queue list", "what waits, runs, and ended"}},
       {3, 4, 5},
       "docs/queue.md"},
      {"top",
       "The queue and this machine, live: what each device has, what is reserved and used of it, how far "
       "each "
       "run is, what it was planned to take beside what it takes, what others take, and what the machine "
       "waits for. Keys choose a run, sort, filter, show its log and cancel it.\n\n"
       "Where the output is no terminal one look is printed as a table.",
       {{"plimsoll top", "the full screen; q leaves it"},
        {"plimsoll top --once --json", "one look, for machines"},
        {"plimsoll top --record night.jsonl --count 3600 --interval 10", "ten hours, to be looked at later"},
        {"plimsoll top --replay night.jsonl", "that night again"}},
       {4, 5},
       "docs/top.md"},
      {"devices",
       "The CPU of this machine and its GPUs, with what is free of their memory and who uses it. Without an "
       "NVIDIA driver it says what is missing. A card that does not answer is said not to.\n\n"
       "PLIMSOLL_NVML_SECONDS is how long a card may take to answer (4). PLIMSOLL_NVML names the driver's "
       "library where it is not libnvidia-ml.so.1.",
       {{"plimsoll devices", "what there is, and what is free"}, {"plimsoll devices --json", "for machines"}},
       {},
       "docs/devices.md"},
      {"queue simulate",
       "Runs a workload on a virtual clock with the packing of the queue, beside polling for free memory and "
       "one job per device, and prints when all is done, what crashed, and what was lost.",
       {{"plimsoll queue simulate examples/queue/workload.json", "the three beside each other"}},
       {},
       "docs/queue.md"},
      {"generate",
       "Answers a prompt, token ids, or every row of a data file with a model folder or a finished run. "
       "Memory is "
       "planned before weights are read. The answer to --prompt appears as it grows, whole characters at a "
       "time; "
       "it ends at an end token, at a --stop text, at --max-new-tokens, or where the context is full.\n\n"
       "The same seed, prompt and options give the same text.",
       {{"plimsoll generate runs/first --prompt \"What is the capital of Peru?\"", "one answer"},
        {"plimsoll generate runs/first --data test.jsonl --out answers.jsonl", "an answer to each row"},
        {"plimsoll generate models/q --prompt \"1, 2,\" --stop \"\\n\" --temperature 0.8 --seed 7",
         "sampled"}},
       {3, 4, 5},
       "docs/generate.md"},
      {"chat",
       "A conversation at the terminal. Turns are put to the model by its own chat template, or by the one "
       "that "
       "--template names; the whole conversation is the prompt of each turn. Lines that begin with / are "
       "commands: "
       "/help lists them. Ctrl-C ends an answer, Ctrl-D the conversation.",
       {{"plimsoll chat runs/first", "with the model that a run made"},
        {"plimsoll chat models/q --system \"Answer in one sentence.\" --temperature 0.7", "sampled"}},
       {3, 4, 5},
       "docs/chat.md"},
      {"eval",
       "Loss and perplexity over all rows of a data file, or of the evaluation data of a run; with "
       "--generate also "
       "the share of answers that are exactly the expected ones, and their BLEU. The loss is the mean over "
       "all "
       "target tokens, whatever the batch size is.",
       {{"plimsoll eval runs/first", "the run's model on the run's own evaluation rows"},
        {"plimsoll eval models/q --data test.jsonl --generate --limit 200", "and the answers to 200 rows"}},
       {3, 4, 5},
       "docs/eval.md"},
      {"score",
       "What a reward model gives to answers: those of --response, or of the rows of a data file, where an "
       "answer is a text, a list of messages, a response to a prompt, or one of a pair (chosen, rejected). "
       "Each row has a line of JSON with its number and its score, in the order of the file.",
       {{"plimsoll score runs/reward --prompt \"Say hello.\" --response \"Hello!\" --response \"No.\"",
         "which of two answers is better"},
        {"plimsoll score runs/reward --data answers.jsonl --out rewards.jsonl", "a line for each row"}},
       {3, 4, 5},
       "docs/scores.md"},
      {"classify",
       "What a classifier says of texts: those of --text, or of the rows of a data file, which need no "
       "label. "
       "Each row has a line of JSON with its number, its label or labels, and the probability of each class; "
       "or the numbers of a model of numbers.",
       {{"plimsoll classify runs/reviews --text \"Worth every minute.\"", "one text"},
        {"plimsoll classify runs/reviews --data texts.csv --out labels.jsonl", "a line for each row"}},
       {3, 4, 5},
       "docs/scores.md"},
      {"merge",
       "Folds a LoRA adapter into its base model, W + scale B A for each adapted weight, and writes a new "
       "model "
       "folder that transformers loads. Weights pass through a few MiB of memory, shard by shard; the folder "
       "appears whole or not at all.",
       {{"plimsoll merge runs/first --out models/mine", "the base is the one that the run was trained on"}},
       {4, 5},
       "docs/merge.md"},
      {"convert",
       "Writes a model folder anew with other element types or shards. Weights pass through a few MiB of "
       "memory, and "
       "the folder appears whole or not at all. Narrowing rounds to nearest, ties to even.\n\n--to gguf "
       "writes "
       "one file for llama.cpp: weights, tokenizer and chat template.",
       {{"plimsoll convert models/q --dtype bf16 --out models/q-bf16", "half the bytes of f32"},
        {"plimsoll convert models/q --shard-size 2GiB --out models/q-shards", "files of at most 2 GiB"},
        {"plimsoll convert models/q --to gguf --dtype q8_0 --out q.gguf", "for llama.cpp"}},
       {4, 5},
       "docs/convert.md"},
      {"inspect",
       "Says what a file or folder is and what is in it: a model, an adapter, a run, a checkpoint, a "
       "tokenizer, a "
       "safetensors, Parquet or JSONL file. Reads headers and small files, never weights.",
       {{"plimsoll inspect models/q", "shape, parameters, types, tokenizer"},
        {"plimsoll inspect models/q --tensors", "every tensor"},
        {"plimsoll inspect data/train.parquet --json", "columns and rows, for machines"}},
       {4},
       "docs/inspect.md"},
      {"recipe",
       "Prints a recipe with every default filled in, itself a recipe; with --explain every key that there "
       "is, its "
       "default and its meaning.",
       {{"plimsoll recipe --explain", "all keys"}, {"plimsoll recipe recipe.yaml", "what a run would use"}},
       {},
       "docs/recipe.md"},
      {"completion",
       "Prints a script that teaches a shell to complete commands, options, their values, and keys of the "
       "recipe.",
       {{"plimsoll completion bash > ~/.local/share/bash-completion/completions/plimsoll", "bash"},
        {"plimsoll completion zsh > ~/.zsh/completions/_plimsoll", "zsh, where that folder is in $fpath"},
        {"plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish", "fish"}},
       {},
       "docs/install.md"},
      {"help",
       "The manual of a command, the same as COMMAND --help. --man prints it for man(1).",
       {{"plimsoll help train", "all that train takes"},
        {"plimsoll help train --man | man -l -", "as a page"}},
       {},
       "docs/install.md"},
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
      return "does not fit the memory that may be used";
    case 4:
      return "damaged data or checkpoint";
    case 5:
      return "it had to stop: not finite, disk full, I/O failed";
    case 130:
      return "interrupted, and saved";
    default:
      return "";
  }
}

}  // namespace plimsoll
