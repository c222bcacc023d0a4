// Every key of a recipe, declared once. Defaults are those of the members in recipe.h.
#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "recipe/option_types.h"
#include "tasks/glue.h"
#include "tasks/task.h"

namespace plimsoll {
namespace {

using namespace option_types;  // NOLINT: the table below is written in them

constexpr IntegerRange kCount = {1, 1'000'000};
constexpr int64_t kMostDevices = 1024;

// A checkpoint belongs to one value of the option.
Option experiment(Option option) {
  option.experiment = true;
  return option;
}
Option required(Option option) {
  option.required = true;
  return option;
}
Option lora(Option option) {
  option.method = MethodType::lora;
  return experiment(std::move(option));
}
Option qlora(Option option) {
  option.method = MethodType::qlora;
  return experiment(std::move(option));
}
Option four_bits(Option option) {
  option.four_bits = true;
  return qlora(std::move(option));
}
Option of_optimizers(bool OptimizerTraits::*uses, Option option) {
  option.optimizer_uses = uses;
  return experiment(std::move(option));
}
Words<OptimizerKind> optimizer_words() {
  Words<OptimizerKind> words;
  for (const OptimizerTraits& optimizer : kOptimizers) words.emplace_back(optimizer.name, optimizer.kind);
  return words;
}
Option of_task(Task task, Option option) {
  option.task = task;
  return experiment(std::move(option));
}
Option part(Option option) {
  option.is_part = true;
  return option;
}
Option told_if_on(Option option) {
  option.told_if_on = true;
  return part(std::move(option));
}

Option data_pin() {
  return make(
      "data.pin", FIELD(data.pin), "auto, true or false", "page-locked (pinned) staging memory for CUDA",
      [](const Node& node, Folder) -> std::optional<std::optional<bool>> {
        if (node.is_word("auto")) return std::optional<bool>();
        const auto value = read_boolean(node);
        if (!value) return std::nullopt;
        return std::make_optional(value);
      },
      [](const std::optional<bool>& value) { return value ? Json(*value) : Json("auto"); });
}

// The meaning of `true` in runs of earlier versions, the order of windows, is settled where runs are read.
Option data_shuffle() {
  return make(
      "data.shuffle", FIELD(data.shuffle), "full (or true), window or false",
      "shuffle the rows in each epoch: all of them, or within windows of 12 MiB",
      [](const Node& node, Folder) -> std::optional<Shuffle> {
        if (node.is_word("full")) return Shuffle::full;
        if (node.is_word("window")) return Shuffle::window;
        const auto value = read_boolean(node);
        if (!value) return std::nullopt;
        return *value ? Shuffle::full : Shuffle::off;
      },
      [](Shuffle value) {
        return value == Shuffle::off ? Json(false) : Json(value == Shuffle::full ? "full" : "window");
      });
}

Option method_targets() {
  return make(
      "method.targets", FIELD(method.targets),
      "all-linear, or a list such as [q_proj, v_proj] or [all-linear, lm_head]",
      "LoRA: linear layers that get an adapter; embedding and head only if named",
      [](const Node& node, Folder) -> std::optional<std::vector<std::string>> {
        if (node.is_word("all-linear")) return std::vector<std::string>();
        auto names = read_names(node);
        return names && !names->empty() ? names : std::nullopt;
      },
      [](const std::vector<std::string>& names) { return names.empty() ? Json("all-linear") : Json(names); });
}

std::vector<std::string> glue_names() {
  std::vector<std::string> names;
  for (const GlueTask& task : glue_tasks()) names.emplace_back(task.name);
  return names;
}

// Texts that differ and are not blank, of any letters: classes are called as people call them.
std::optional<std::vector<std::string>> read_texts(const Node& node) {
  std::vector<std::string> texts;
  const std::vector<Node> single = {node};
  for (const Node& item : node.kind == Node::Kind::list ? node.items : single) {
    const auto text = read_text(item);
    if (!text || trim(*text).empty()) return std::nullopt;
    if (std::find(texts.begin(), texts.end(), *text) != texts.end()) return std::nullopt;
    texts.push_back(*text);
  }
  return texts;
}

Option classify_labels() {
  return make(
      "classify.labels", FIELD(classify.labels), "a list of names such as [negative, positive], or null",
      "classify: class names in the order of their ids; null: id2label of the model's config.json",
      [](const Node& node, Folder) -> std::optional<std::vector<std::string>> {
        if (node.kind == Node::Kind::null) return std::vector<std::string>();
        return read_texts(node);
      },
      [](const std::vector<std::string>& names) { return names.empty() ? Json(nullptr) : Json(names); });
}

Option classify_words() {
  return make(
      "classify.words", FIELD(classify.words), "a list of texts such as [' bad', ' good'], or null",
      "classify: label words (verbalizers), one per class, that follow a text; the class is chosen by the "
      "logits of these words, without a new head",
      [](const Node& node, Folder) -> std::optional<std::vector<std::string>> {
        if (node.kind == Node::Kind::null) return std::vector<std::string>();
        return read_texts(node);
      },
      [](const std::vector<std::string>& words) { return words.empty() ? Json(nullptr) : Json(words); });
}

Option optimizer_betas() {
  static constexpr NumberRange kBeta = {0, 1, true};
  return make(
      "optimizer.betas", FIELD(optimizer.betas), "a list of two numbers from 0 to below 1",
      "decay rates of the first and second moment",
      [](const Node& node, Folder) -> std::optional<std::array<double, 2>> {
        if (node.kind != Node::Kind::list || node.items.size() != 2) return std::nullopt;
        const auto first = read_number(node.items[0], kBeta);
        const auto second = read_number(node.items[1], kBeta);
        if (!first || !second) return std::nullopt;
        return std::array<double, 2>{*first, *second};
      },
      [](const std::array<double, 2>& betas) { return Json(betas); });
}

Json precision_parts(const Recipe& recipe);

// The presets' name, or a map of all parts where no preset has the same.
Option precision() {
  std::string names;
  for (const PrecisionPreset& preset : precision_presets())
    names += (names.empty() ? "" : " | ") + std::string(preset.name);
  Option option;
  option.key = "precision";
  option.values = names + ", or a map of its parts";
  option.meaning =
      "mixed precision: data types of weights, gradients and optimizer states; a map starts from bf16";
  option.set = [](Recipe& recipe, const Node& node, Folder) {
    for (const PrecisionPreset& preset : precision_presets()) {
      if (!node.is_word(preset.name)) continue;
      recipe.precision = preset.parts;
      return true;
    }
    return false;
  };
  option.get = [](const Recipe& recipe) -> Json {
    for (const PrecisionPreset& preset : precision_presets())
      if (recipe.precision == preset.parts) return std::string(preset.name);
    return precision_parts(recipe);
  };
  return experiment(std::move(option));
}

template <class Field>
Option number_type(std::string key, Field field, std::string meaning, bool may_be_fp16 = false) {
  std::vector<std::pair<std::string, DType>> types = {{"fp32", DType::f32}, {"bf16", DType::bf16}};
  if (may_be_fp16) types.emplace_back("fp16", DType::f16);
  return part(choice<DType>(std::move(key), field, std::move(types), std::move(meaning)));
}

template <class Field>
Option name_list(std::string key, Field field, std::string meaning) {
  return make(
      std::move(key), field, "a list of names", std::move(meaning),
      [](const Node& node, Folder) { return read_names(node); },
      [](const std::vector<std::string>& value) { return Json(value); });
}

template <class Field>
Option every(std::string key, Field field, std::string meaning) {
  return make(
      std::move(key), field, "a whole number of steps, epoch, or a share of all steps such as 10%",
      std::move(meaning), [](const Node& node, Folder) { return read_every(node); },
      [](const Every& value) { return print(value); });
}

Words<Task> task_words() {
  return {
#define TASK(name, meaning) {#name, Task::name},
#include "tasks/tasks.def"
#undef TASK
  };
}

std::string task_meaning() {
  std::string text;
#define TASK(name, meaning) text += std::string(text.empty() ? "" : "; ") + #name + ": " + (meaning);
#include "tasks/tasks.def"
#undef TASK
  return text;
}

std::vector<Option> model_options() {
  return {
      required(experiment(make(
          "model", FIELD(model), "a path", "Hugging Face folder; config.json is enough to plan", read_path,
          [](const std::string& path) { return path.empty() ? Json(nullptr) : Json(path); }))),
      experiment(choice<Init>("init", FIELD(init), {{"weights", Init::weights}, {"random", Init::random}},
                              "start from pretrained weights, or from random weights (pretraining from "
                              "scratch)")),
      experiment(optional_path("adapter", FIELD(adapter), "PEFT adapter folder to continue training")),
      experiment(choice<Task>("task", FIELD(task), task_words(), task_meaning())),
      of_task(Task::reward,
              choice<RewardHead>("reward.head", FIELD(reward.head),
                                 {{"score", RewardHead::score}, {"value", RewardHead::value}},
                                 "reward: the kind of a new head: score.weight, as transformers loads it, or "
                                 "a value head with bias and dropout, saved as LLaMA-Factory reads it")),
      of_task(Task::reward, number("reward.centering", FIELD(reward.centering), {0, 1e3},
                                   "reward: coefficient that centers rewards: it multiplies the squared sum "
                                   "of a pair's rewards, which is added to the loss")),
      of_task(Task::classify, classify_labels()),
      of_task(Task::classify, classify_words()),
      of_task(Task::classify,
              choice<ClassProblem>("classify.problem", FIELD(classify.problem),
                                   {{"one-of", ClassProblem::one_of},
                                    {"any-of", ClassProblem::any_of},
                                    {"numbers", ClassProblem::numbers}},
                                   "classify: one-of: one class per row; any-of: multi-label; numbers: "
                                   "regression")),
      of_task(Task::classify, optional_word("classify.glue", FIELD(classify.glue), glue_names(),
                                            "classify: name of a GLUE task, which sets labels, problem and "
                                            "how its .tsv files are read")),
      of_task(Task::mlm, number("mlm.probability", FIELD(mlm.probability), {1e-6, 1},
                                "mlm: share of a text's tokens that the model is to guess, drawn anew in "
                                "every epoch; special tokens are never drawn")),
      of_task(Task::mlm, number("mlm.mask", FIELD(mlm.mask), {0, 1},
                                "mlm: share of those that the mask token stands for")),
      of_task(Task::mlm,
              number("mlm.random", FIELD(mlm.random), {0, 1},
                     "mlm: share of those that a random token stands for; the rest is left as it is")),
      of_task(Task::dpo,
              choice<PreferenceLoss>("dpo.loss", FIELD(dpo.loss),
                                     {{"sigmoid", PreferenceLoss::sigmoid},
                                      {"sigmoid_norm", PreferenceLoss::sigmoid_norm},
                                      {"ipo", PreferenceLoss::ipo},
                                      {"orpo", PreferenceLoss::orpo}},
                                     "dpo: the loss of a pair; sigmoid_norm: log-probabilities are means "
                                     "over tokens; orpo needs no reference model")),
      of_task(Task::dpo, number("dpo.beta", FIELD(dpo.beta), {1e-6, 1e3},
                                "dpo: beta, the strength of the KL penalty towards the reference model; "
                                "orpo: weight of the odds ratio")),
      of_task(Task::dpo,
              number("dpo.label_smoothing", FIELD(dpo.label_smoothing), {0, 0.5, true},
                     "dpo: label smoothing: assumed share of pairs with flipped preference (sigmoid, "
                     "sigmoid_norm)")),
      of_task(Task::dpo,
              number("dpo.ftx", FIELD(dpo.ftx), {0, 1e3},
                     "dpo: coefficient of an SFT loss on the chosen answer (RPO's alpha): its mean negative "
                     "log-likelihood, which is added to the loss")),
  };
}

Words<std::optional<RowFormat>> format_words() {
  Words<std::optional<RowFormat>> words = {{"auto", std::nullopt}};
  for (const auto& [format, word] : kRowFormats) words.emplace_back(word, format);
  return words;
}

std::vector<Option> data_options() {
  return {
      experiment(data_train()),
      experiment(make("data.eval", FIELD(data.eval),
                      "a path, {path, rows}, a share such as 2%, a number of rows, or null",
                      "evaluation rows: a file, or a share or number of rows split off the training data",
                      read_eval_source, [](const EvalSource& source) { return print(source); })),
      experiment(choice("data.format", FIELD(data.format), format_words(),
                        "kind of rows; auto: found by the names of the columns")),
      experiment(data_columns()),
      experiment(data_template()),
      experiment(data_template_source()),
      experiment(data_date()),
      experiment(data_max_length()),
      experiment(data_truncation()),
      experiment(data_packing()),
      choice<SharePrefixes>(
          "data.share_prefixes", FIELD(data.share_prefixes),
          {{"auto", SharePrefixes::automatic}, {"on", SharePrefixes::on}, {"off", SharePrefixes::off}},
          "shared prefixes: tokens that rows of a micro-batch begin with in common are computed once for "
          "all of them; changes memory and time, not the result (with dropout or neftune_alpha, on also "
          "changes the random draws)"),
      data_on_error(),
      experiment(data_train_on_prompt()),
      experiment(boolean("data.bos", FIELD(data.bos),
                         "begin texts and plain prompts with the tokenizer's first tokens, such as BOS")),
      experiment(data_special_tokens()),
      auto_integer("data.loader_threads", FIELD(data.loader_threads), {1, 256},
                   "threads that prepare batches"),
      auto_integer("data.prefetch", FIELD(data.prefetch), {1, 1024}, "batches prepared ahead"),
      data_pin(),
      experiment(data_shuffle()),
      experiment(
          integer("data.reading", FIELD(data.reading), {kFirstReading, kReading},
                  "version of the rules by which rows are read (docs/howto/data.md); runs that began with 1 "
                  "or 2 keep it")),
  };
}

std::vector<Option> method_options() {
  return {
      experiment(choice<MethodType>(
          "method.type", FIELD(method.type),
          {{"full", MethodType::full}, {"lora", MethodType::lora}, {"qlora", MethodType::qlora}},
          "full: train all weights; lora: train adapters, the base frozen; qlora: the same with a base in 4 "
          "bits (NF4) or 8 (method.bits)")),
      experiment(method_freeze()),
      lora(integer("method.r", FIELD(method.r), {1, 8192}, "LoRA: rank of the adapters")),
      lora(number("method.alpha", FIELD(method.alpha), {0, 1e6},
                  "LoRA: the adapters' output is scaled by alpha / r")),
      lora(number("method.dropout", FIELD(method.dropout), {0, 1, true},
                  "LoRA: dropout on the adapters' input")),
      lora(method_targets()),
      lora(boolean("method.rslora", FIELD(method.rslora), "LoRA: scale by alpha / sqrt(r) (rsLoRA)")),
      lora(method_rank_pattern()),
      lora(method_alpha_pattern()),
      lora(method_layers()),
      lora(method_layers_pattern()),
      lora(method_modules_to_save()),
      lora(number("method.loraplus_ratio", FIELD(method.loraplus_ratio), {1e-6, 1e6},
                  "LoRA+: factor on the learning rate of B matrices and of vectors")),
      lora(boolean("method.dora", FIELD(method.dora),
                   "DoRA: train magnitude and direction of weights separately")),
      lora(method_init()),
      qlora(method_bits()),
      four_bits(boolean("method.double_quant", FIELD(method.double_quant),
                        "QLoRA: double quantisation: the scales of 4-bit weights are kept in 8 bits")),
      qlora(method_unquantised()),
      experiment(number("method.neftune_alpha", FIELD(method.neftune_alpha), {0, 1e4},
                        "NEFTune: noise on embeddings in training, at most alpha / sqrt(length x width); 0: "
                        "none")),
  };
}

std::vector<Option> step_options() {
  return {
      experiment(integer("batch.effective", FIELD(batch.effective), kCount,
                         "effective batch size: sequences per optimizer step over all devices and gradient "
                         "accumulation; never changed by the planner")),
      auto_integer("batch.micro", FIELD(batch.micro), kCount,
                   "micro-batch size: sequences per forward and backward pass; the rest is gradient "
                   "accumulation. Changes memory and time, not the result"),
      auto_integer("batch.micro_tokens", FIELD(batch.micro_tokens), kCount,
                   "micro-batch size in tokens, for as many sequences as fit; changes memory and time, not "
                   "the result"),
      experiment(choice<OptimizerKind>("optimizer.name", FIELD(optimizer.name), optimizer_words(),
                                       "the optimizer; docs/howto/train.md compares them")),
      experiment(number("optimizer.lr", FIELD(optimizer.lr), {0, 10}, "peak learning rate")),
      of_optimizers(&OptimizerTraits::betas, optimizer_betas()),
      of_optimizers(&OptimizerTraits::eps, number("optimizer.eps", FIELD(optimizer.eps), {1e-20, 1},
                                                  "epsilon, added to the denominator")),
      of_optimizers(&OptimizerTraits::momentum,
                    number("optimizer.momentum", FIELD(optimizer.momentum), {0, 1, true}, "SGD: momentum")),
      experiment(number("optimizer.weight_decay", FIELD(optimizer.weight_decay), {0, 10},
                        "weight decay: decoupled (AdamW); with sgd added to the gradient")),
      experiment(number("optimizer.max_grad_norm", FIELD(optimizer.max_grad_norm), {0, 1e9},
                        "gradient clipping: the maximum norm of all gradients together; 0: off")),
      experiment(choice<ScheduleName>("schedule.name", FIELD(schedule.name),
                                      {{"cosine", ScheduleName::cosine},
                                       {"linear", ScheduleName::linear},
                                       {"constant", ScheduleName::constant}},
                                      "learning rate schedule after the warmup")),
      experiment(make(
          "schedule.warmup", FIELD(schedule.warmup),
          "a share such as 3%, a number of steps, axolotl, or deepspeed (deepspeed-linear) and one of these",
          "warmup: steps over which the learning rate rises from 0",
          [](const Node& node, Folder) { return read_warmup(node); },
          [](const Warmup& warmup) { return print(warmup); })),
      experiment(number("schedule.min_ratio", FIELD(schedule.min_ratio), {0, 1},
                        "final learning rate as a share of lr (cosine, linear)")),
      experiment(make(
          "schedule.epochs", FIELD(schedule.epochs), "a number above 0, at most 1e9",
          "passes over the training data; 0.5: half of its steps",
          [](const Node& node, Folder) {
            const auto epochs = read_number(node, {0, 1e9});
            return epochs && *epochs > 0 ? epochs : std::nullopt;
          },
          [](double epochs) { return print_count(epochs); })),
      experiment(make(
          "schedule.max_steps", FIELD(schedule.max_steps), "null or a whole number from 1",
          "stop after this many optimizer steps; overrides epochs",
          [](const Node& node, Folder) -> std::optional<std::optional<int64_t>> {
            if (node.kind == Node::Kind::null) return std::optional<int64_t>();
            const auto steps = read_integer(node, {1, 1'000'000'000});
            if (!steps) return std::nullopt;
            return std::make_optional(steps);
          },
          [](const std::optional<int64_t>& steps) { return print(steps); })),
  };
}

std::vector<Option> precision_options() {
  return {
      precision(),
      number_type("precision.weights", FIELD(precision.weights), "data type of trained weights", true),
      number_type("precision.gradients", FIELD(precision.gradients), "data type of gradients"),
      number_type("precision.states", FIELD(precision.states), "data type of optimizer states"),
      part(boolean("precision.master", FIELD(precision.master),
                   "keep fp32 master weights beside 16-bit weights")),
      part(choice<Rounding>("precision.rounding", FIELD(precision.rounding),
                            {{"nearest", Rounding::nearest}, {"stochastic", Rounding::stochastic}},
                            "rounding of updated bf16 weights; the default depends on the other parts")),
      told_if_on(boolean("precision.tf32", FIELD(precision.tf32),
                         "TF32: fp32 matrix products on tensor cores with a 10-bit mantissa; GPUs only")),
  };
}

// cuda:1 is CUDA's card of that number, cuda:GPU-1a2b3c4d the one whose UUID begins so.
Option device() {
  Option option = choice<DeviceChoice>(
      "device", FIELD(device),
      {{"auto", DeviceChoice::automatic},
       {"cpu", DeviceChoice::cpu},
       {"card", DeviceChoice::card},
       {"cuda", DeviceChoice::cuda},
       {"emulated", DeviceChoice::emulated}},
      "device of the run; auto: an NVIDIA GPU of this machine if it can be used, else the CPU; cuda: a GPU "
      "or an error (cuda:1, or cuda: and the start of a UUID, picks one of several); card: a GPU of another "
      "machine, to plan for; emulated: GPU kernels on an emulated GPU, for tests");
  option.set = [set = option.set](Recipe& recipe, const Node& node, Folder folder) {
    constexpr std::string_view kBegin = "cuda:";
    recipe.cuda_card.clear();
    if (node.kind != Node::Kind::scalar || !node.text.starts_with(kBegin)) return set(recipe, node, folder);
    const std::string which = node.text.substr(kBegin.size());
    const bool number =
        !which.empty() && which.size() < 4 && which.find_first_not_of("0123456789") == std::string::npos;
    if (!number && !(which.starts_with("GPU-") && which.size() > 4)) return false;
    recipe.device = DeviceChoice::cuda;
    recipe.cuda_card = which;
    return true;
  };
  option.get = [get = option.get](const Recipe& recipe) -> Json {
    return recipe.cuda_card.empty() ? get(recipe) : Json("cuda:" + recipe.cuda_card);
  };
  return option;
}

// A card as devices names it: its number, or the beginning of its UUID; "" of any other text.
std::string card_in(const std::string& text) {
  constexpr std::string_view kBegin = "cuda:";
  const std::string which = text.starts_with(kBegin) ? text.substr(kBegin.size()) : text;
  const bool number = text.size() != which.size() && !which.empty() && which.size() < 4 &&
                      which.find_first_not_of("0123456789") == std::string::npos;
  return number || (which.starts_with("GPU-") && which.size() > 4) ? which : "";
}

std::optional<std::vector<std::string>> read_cards(const Node& node) {
  std::vector<std::string> cards;
  const auto add = [&](std::string_view text) {
    cards.push_back(card_in(std::string(trim(text))));
    return !cards.back().empty();
  };
  if (node.kind == Node::Kind::list) {
    for (const Node& item : node.items)
      if (item.kind != Node::Kind::scalar || !add(item.text)) return std::nullopt;
  } else {
    if (node.kind != Node::Kind::scalar) return std::nullopt;
    for (const std::string& part : split(node.text, ','))
      if (!add(part)) return std::nullopt;
  }
  return cards.empty() ? std::nullopt : std::optional(cards);
}

// A number, or the cards themselves, which are as many.
Option devices() {
  Option option = auto_integer(
      "devices", FIELD(devices), {1, kMostDevices},
      "devices that share every effective batch (data parallel), a process each: a number, or cards of this machine by "
      "number or UUID; auto: every card of one kind that this machine has");
  option.values = formatted("{}, or cards such as cuda:0,cuda:2", option.values);
  option.set = [set = option.set](Recipe& recipe, const Node& node, Folder folder) {
    recipe.cards.clear();
    if (set(recipe, node, folder)) return true;
    const auto cards = read_cards(node);
    if (!cards) return false;
    recipe.cards = *cards;
    recipe.devices = std::ssize(recipe.cards);
    return recipe.devices <= kMostDevices;
  };
  option.get = [get = option.get](const Recipe& recipe) -> Json {
    if (recipe.cards.empty()) return get(recipe);
    Json cards = Json::array();
    for (const std::string& card : recipe.cards) cards.push_back("cuda:" + card);
    return cards;
  };
  return option;
}

Option save_keep() {
  return make(
      "save.keep", FIELD(save.keep), "all, or " + describe(kCount), "number of latest checkpoints to keep",
      [](const Node& node, Folder) {
        return node.is_word("all") ? std::optional(kKeepAll) : read_integer(node, kCount);
      },
      [](int64_t keep) { return keep == kKeepAll ? Json("all") : Json(keep); });
}

std::vector<Option> run_options() {
  return {
      device(),
      devices(),
      auto_integer("threads", FIELD(threads), {1, 4096},
                   "CPU threads; auto: one per CPU (hardware thread) that the process may use; "
                   "with several devices, of each process"),
      // Up to 2^53, which every JSON reader keeps exactly.
      experiment(integer("seed", FIELD(seed), {0, int64_t{1} << 53},
                         "random seed: order of rows, dropout, rounding, new weights")),
      every("eval.every", FIELD(eval.every), "steps between evaluations; 0: at the end only"),
      auto_integer("eval.micro", FIELD(eval.micro), kCount, "batch size of evaluation"),
      name_list("eval.metrics", FIELD(eval.metrics), "metrics of evaluation"),
      every("save.every", FIELD(save.every), "steps between checkpoints; 0: at the end only"),
      save_keep(),
      optional_word("save.best", FIELD(save.best), all_goals(),
                    "also keep the checkpoint that is best in this evaluation metric, and save its weights "
                    "as the result; metrics other than loss belong to reward, classify and dpo"),
      choice<SaveFormat>("save.format", FIELD(save.format), {{"auto", SaveFormat::automatic}},
                         "auto: a full model in safetensors, or a PEFT adapter folder"),
      save_hub(),
      stop_loss(),
      stop_above(),
      integer("stop.above_steps", FIELD(stop.above_steps), kCount, "steps in a row that stop.above needs"),
      integer(
          "stop.patience", FIELD(stop.patience), {0, 1'000'000},
          "early stopping: stop after this many evaluations without a better save.best metric (or loss); 0: "
          "never"),
      auto_integer("stop.silence", FIELD(stop.silence), {1, 1'000'000},
                   "several devices: seconds after which a process that does not answer ends the run; auto: "
                   "300, or 20 steps as predicted"),
      integer("log.every", FIELD(log.every), kCount, "steps between log lines"),
      boolean("log.tensorboard", FIELD(log.tensorboard), "write TensorBoard event files to the run folder"),
      optional_path("output", FIELD(output), "run folder; required by train"),
  };
}

Json precision_parts(const Recipe& recipe) {
  Json parts = Json::object();
  const std::string group = "precision.";
  for (const Option& option : options())
    if (option.is_part && !(option.told_if_on && option.get(recipe) == false))
      parts[option.key.substr(group.size())] = option.get(recipe);
  return parts;
}

}  // namespace

const std::vector<Option>& options() {
  static const std::vector<Option> kOptions = [] {
    std::vector<Option> all;
    for (auto make_group : {model_options, data_options, method_options, step_options, precision_options,
                            memory_options, run_options})
      for (Option& option : make_group()) all.push_back(std::move(option));
    return all;
  }();
  return kOptions;
}

}  // namespace plimsoll
