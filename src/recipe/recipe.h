// A recipe: the run that the user wants. How it fits into memory is the planner's work. Each member is one
// key of the recipe with its default; options.cc declares the keys, docs/reference/recipe.md lists them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/optimizer_kind.h"
#include "passes/keep_frozen.h"
#include "passes/offload.h"
#include "passes/recompute.h"
#include "plan/program/graphs.h"
#include "ranks/exchange_way.h"
#include "recipe/row_range.h"
#include "recipe/run_values.h"
#include "tasks/rows.h"
#include "tasks/task.h"
#include "tensor/tensor.h"

namespace plimsoll {

// Enumerations hold what exists. Values that are known but missing are refused by name: unsupported.cc.
enum class PromptLoss : uint8_t { no, yes, messages };  // messages: of conversations, not of prompts
enum class SharePrefixes : uint8_t { automatic, on, off };
enum class MethodType : uint8_t { full, lora, qlora };
enum class ScheduleName : uint8_t { cosine, linear, constant };
enum class Rounding : uint8_t { nearest, stochastic };
enum class RewardHead : uint8_t { score, value };
enum class SaveFormat : uint8_t { automatic };

// An integer key for which `auto` is allowed stores it as 0.
inline constexpr int64_t kAuto = 0;

// A limit on memory: whatever is free, a share of what is free, or a stated size (which is taken as it is). Of unlike
// devices sizes are stated one by one; all ranks have one layout, so the least of them is the limit.
struct MemoryLimit {
  enum class Kind : uint8_t { automatic, percent, bytes };
  Kind kind = Kind::automatic;
  double percent = 0.0;                  // of what is free, when kind is percent
  int64_t bytes = 0;                     // when kind is bytes
  std::map<int64_t, int64_t> each = {};  // bytes by the rank whose device it is; `bytes` is the least of them
  friend bool operator==(const MemoryLimit&, const MemoryLimit&) = default;
};

// data.max_length: null: as long as the longest row is.
inline constexpr int64_t kLongestRow = 0;

// Rows to train on: a file, a folder or a pattern, how often an epoch visits its rows, and which of them.
struct TrainSource {
  std::string path;
  double weight = 1.0;
  RowRange rows = {};
  friend bool operator==(const TrainSource&, const TrainSource&) = default;
};

// Rows to evaluate on: none, a file or folder of their own, or a share or a number of the training rows.
struct EvalSource {
  enum class Kind : uint8_t { none, path, share, count };
  Kind kind = Kind::none;
  std::string path;
  double percent = 0.0;
  int64_t count = 0;
  RowRange rows = {};  // with Kind::path
  [[nodiscard]] bool is_held_out() const { return kind == Kind::share || kind == Kind::count; }
  friend bool operator==(const EvalSource&, const EvalSource&) = default;
};

// Steps over which the learning rate rises from 0, stated or as a share of all steps. In axolotl's way a
// share is rounded down, at most `steps`, and two where that is one.
struct Warmup {
  enum class Unit : uint8_t { percent, steps, axolotl };
  Unit unit = Unit::percent;
  double percent = 3.0;
  int64_t steps = 0;
  // The rate rises evenly, or as DeepSpeed's WarmupLR has it, a step late, by the logarithm or evenly.
  enum class Rise : uint8_t { even, deepspeed, deepspeed_linear };
  Rise rise = Rise::even;
  // A share is rounded up to whole steps. With Unit::axolotl `steps` 0 is any number.
  [[nodiscard]] int64_t steps_of(int64_t total_steps) const;
  friend bool operator==(const Warmup&, const Warmup&) = default;
};

// Types of trained tensors. LoRA adapters, their gradients and states are f32 whatever these are.
struct Precision {
  DType weights = DType::bf16;
  DType gradients = DType::f32;
  DType states = DType::f32;
  bool master = false;                       // an f32 copy of 16-bit weights
  Rounding rounding = Rounding::stochastic;  // of bf16 weights after an update
  bool tf32 = false;                         // products of f32 on cards
  friend bool operator==(const Precision&, const Precision&) = default;
};

struct PrecisionPreset {
  std::string_view name;
  Precision parts;
};
// fp32, bf16, bf16-master, bf16-pure, fp16.
const std::array<PrecisionPreset, 5>& precision_presets();
// The rounding that suits the other parts: bf16 weights without a master copy lose small updates unless
// rounded stochastically.
Rounding default_rounding(const Precision& parts);

struct Recipe {
  struct Data {
    std::vector<TrainSource> train;
    EvalSource eval;
    std::optional<RowFormat> format;             // none: found in the columns
    std::map<std::string, std::string> columns;  // our name of a column -> its name in the files
    std::string chat_template = "auto";
    std::optional<std::string> template_source;  // Jinja, or the path of a file of it
    std::optional<std::string> date;             // of templates that print one: YYYY-MM-DD
    int64_t max_length = 1024;                   // of task: seq2seq, of sources
    int64_t target_length = 0;                   // of its targets; 0: as much
    [[nodiscard]] int64_t targets_at_most() const { return target_length > 0 ? target_length : max_length; }
    Truncation truncation = Truncation::right;
    bool packing = false;  // whole rows in one sequence
    bool joined = false;   // data.packing: joined; all texts are one stream, which sequences are cut from
    SharePrefixes share_prefixes = SharePrefixes::automatic;
    RowErrors on_error = RowErrors::stop;
    PromptLoss train_on_prompt = PromptLoss::no;
    bool bos = false;                                   // rows of text begin as the tokenizer begins a text
    std::map<std::string, std::string> special_tokens;  // by name: eos_token, ...
    int64_t loader_threads = kAuto;
    int64_t prefetch = kAuto;
    std::optional<bool> pin;  // none means auto
    Shuffle shuffle = Shuffle::full;
    int64_t reading = kReading;
    friend bool operator==(const Data&, const Data&) = default;
  };
  // Keys of task: reward.
  struct Reward {
    RewardHead head = RewardHead::score;
    double centering = 0.0;
    friend bool operator==(const Reward&, const Reward&) = default;
  };
  // Keys of task: dpo.
  struct Dpo {
    PreferenceLoss loss = PreferenceLoss::sigmoid;
    double beta = 0.1;
    double label_smoothing = 0.0;
    double ftx = 0.0;
    friend bool operator==(const Dpo&, const Dpo&) = default;
  };
  // Keys of task: mlm.
  struct Mlm {
    double probability = 0.15;  // of a token to be drawn
    double mask = 0.8;          // of one that is drawn to be hidden
    double random = 0.1;        // and to be another one
    friend bool operator==(const Mlm&, const Mlm&) = default;
  };
  // Keys of task: classify.
  struct Classify {
    std::vector<std::string> labels;  // names of the classes; empty: as the model's config says
    ClassProblem problem = ClassProblem::one_of;
    std::vector<std::string> words;   // that stand for the classes, in a head for next tokens; empty: none
    std::optional<std::string> glue;  // the task of GLUE whose labels and problem these are
    friend bool operator==(const Classify&, const Classify&) = default;
  };
  struct Method {
    MethodType type = MethodType::lora;
    int64_t r = 16;
    double alpha = 32.0;
    double dropout = 0.0;
    std::vector<std::string> targets;  // empty means all-linear
    bool rslora = false;
    // By regular expressions over the ends of modules' names, in their order.
    std::vector<std::pair<std::string, int64_t>> rank_pattern;
    std::vector<std::pair<std::string, double>> alpha_pattern;
    std::vector<int64_t> layers;  // that get adapters; empty: all
    std::vector<std::string> layers_pattern;
    std::vector<std::string> modules_to_save;
    std::vector<std::string> freeze;  // of full fine-tuning: regular expressions
    double loraplus_ratio = 1.0;
    bool dora = false;
    std::string init = "lora";  // or pissa, pissa_niter_N, olora
    int64_t bits = 4;           // of a quantised base: 4 (NF4) or 8 (int8)
    bool double_quant = true;
    // Modules that stay in 16 or 32 bits, by the ends of their names; none: those that transformers leaves.
    std::optional<std::vector<std::string>> unquantised;
    double neftune_alpha = 0.0;
    friend bool operator==(const Method&, const Method&) = default;
  };
  struct Batch {
    int64_t effective = 16;
    int64_t micro = kAuto;
    int64_t micro_tokens = kAuto;
    friend bool operator==(const Batch&, const Batch&) = default;
  };
  struct Optimizer {
    OptimizerKind name = OptimizerKind::adamw;
    double lr = 2e-4;
    std::array<double, 2> betas = {0.9, 0.999};
    double eps = 1e-8;
    double momentum = 0.0;
    double weight_decay = 0.0;
    double max_grad_norm = 1.0;  // 0 switches clipping off
    friend bool operator==(const Optimizer&, const Optimizer&) = default;
  };
  struct Schedule {
    ScheduleName name = ScheduleName::cosine;
    Warmup warmup;
    double min_ratio = 0.0;
    double epochs = 1;  // a part of one: 0.5
    std::optional<int64_t> max_steps;
    friend bool operator==(const Schedule&, const Schedule&) = default;
  };
  struct Memory {
    MemoryLimit device;                 // on a CPU: of the whole process
    MemoryLimit host;                   // with a device that has memory of its own
    std::optional<std::string> gpu;     // the full name of a GPU of the catalogue, to plan for
    std::optional<double> tie_percent;  // none: auto, by how well seconds are known
    int64_t disk_bytes = 0;
    double headroom_percent = 10.0;
    std::vector<std::string> allow;
    std::optional<std::string> plan;
    std::optional<std::string> tier;
    std::optional<RecomputeLevels> recompute;         // none means auto
    std::optional<std::vector<std::string>> offload;  // what leaves the device; none means auto
    std::optional<OffloadTargets> offload_to;         // by layers; none means auto
    std::optional<int64_t> prefetch;                  // none means auto
    int64_t loss_chunk = kAuto;                       // tokens
    KeepFrozen keep_frozen = KeepFrozen::automatic;
    ShardStage shard = ShardStage::automatic;       // what several devices divide
    ExchangeWay exchange = ExchangeWay::automatic;  // of several GPUs
    bool node_copy = true;                          // those of a machine have frozen weights once
    UseGraphs graphs = UseGraphs::automatic;
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  struct Eval {
    Every every;
    int64_t micro = kAuto;
    std::vector<std::string> metrics = {"loss"};
    friend bool operator==(const Eval&, const Eval&) = default;
  };
  struct Save {
    Every every;
    int64_t keep = 2;
    std::optional<std::string> best;
    SaveFormat format = SaveFormat::automatic;
    std::optional<std::string> hub;  // where the run is to be uploaded: the command is printed at the end
    friend bool operator==(const Save&, const Save&) = default;
  };
  struct Log {
    int64_t every = 1;
    bool tensorboard = false;
    friend bool operator==(const Log&, const Log&) = default;
  };

  std::string model;  // paths are absolute and normalised
  Init init = Init::weights;
  std::optional<std::string> adapter;
  Task task = Task::sft;
  Reward reward;
  Classify classify;
  Mlm mlm;
  Dpo dpo;
  Data data;
  Method method;
  Batch batch;
  Optimizer optimizer;
  Schedule schedule;
  Precision precision;
  Memory memory;
  DeviceChoice device = DeviceChoice::automatic;
  std::string cuda_card;  // of cuda:1, cuda:GPU-1a2b3c4d: which one; empty: the first
  int64_t devices = 1;    // processes that share each effective batch, a device each; kAuto: a card each
  std::vector<std::string> cards = {};  // that devices names, as cuda_card; empty: a number of devices
  int64_t threads = kAuto;              // of each of them
  int64_t seed = 42;
  Eval eval;
  Save save;
  StopLimits stop;
  Log log;
  std::optional<std::string> output;

  // True if it is planned for a device with memory of its own, by `device` or by the name of one.
  [[nodiscard]] bool is_of_card() const {
    return device == DeviceChoice::card || device == DeviceChoice::cuda ||
           (device == DeviceChoice::automatic && memory.gpu);
  }

  // True if a token's draws are keyed by the row that it is in (dropout of adapters, NEFTune). Rows that
  // share a prefix have draws keyed by what stands before the token.
  [[nodiscard]] bool draws_by_rows() const { return method.dropout > 0 || method.neftune_alpha > 0; }

  friend bool operator==(const Recipe&, const Recipe&) = default;
};

}  // namespace plimsoll
