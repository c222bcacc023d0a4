#include "prepare/task_setup.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "files/json_values.h"
#include "formats/load.h"
#include "recipe/known_model.h"
#include "tokenizer/tokenizer.h"
#include "weights/weights.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

Preference read_preference(const Recipe& recipe) {
  const bool orpo = recipe.dpo.loss == PreferenceLoss::orpo;
  const bool full = recipe.method.type == MethodType::full;
  Preference preference{recipe.dpo.loss, recipe.dpo.beta, recipe.dpo.label_smoothing,
                        recipe.dpo.ftx + (orpo ? 1.0 : 0.0)};
  if (orpo) return preference;
  preference.reference = full ? Preference::Reference::given : Preference::Reference::computed;
  const bool weighted = std::any_of(recipe.data.train.begin(), recipe.data.train.end(),
                                    [](const TrainSource& source) { return source.weight != 1.0; });
  if (full && weighted)
    throw UsageError(
        "data.train: weights select other rows in every epoch, and task: dpo with method.type: "
        "full reads all of them once before the first step; leave the weights out, or use "
        "method.type: lora");
  return preference;
}

// The token that each word begins with. What a word has behind it is not asked.
std::vector<int32_t> first_tokens(const std::vector<std::string>& words, const fs::path& model,
                                  ModelFiles& files) {
  const auto file = Tokenizer::find_file(model);
  if (!file)
    throw UsageError(
        formatted("classify.words: {} has no tokenizer.json or tokenizer.model, which the words are read "
                  "with",
                  shown_model(model)));
  const auto tokenizer = files.tokenizer(model);
  std::vector<int32_t> first;
  for (const std::string& word : words) {
    std::vector<int32_t> ids;
    tokenizer->encode_into(word, false, ids);
    if (ids.empty())
      throw UsageError(formatted("classify.words: '{}' has no token in {}", word, file->string()));
    const auto same = std::find(first.begin(), first.end(), ids.front());
    if (same != first.end())
      throw UsageError(
          formatted("classify.words: '{}' and '{}' begin with the same token of {} ({}), by which the model "
                    "decides: use words whose first tokens differ",
                    words[static_cast<size_t>(same - first.begin())], word, file->string(), *same));
    first.push_back(ids.front());
  }
  return first;
}

void choose_words(const Recipe& recipe, const ModelPaths& paths, ModelFiles& files, ModelSpec& model) {
  if (recipe.classify.words.empty()) return;
  if (model.scores_sequences || model.encoder)
    throw UsageError(formatted("classify.words: needs a model that predicts next tokens, and {} is a {}",
                               shown_model(paths.base), model.architecture));
  model.words = first_tokens(recipe.classify.words, paths.base, files);
  const auto largest = std::max_element(model.words.begin(), model.words.end());
  if (*largest >= model.vocab)
    throw UsageError(
        formatted("classify.words: the tokenizer gives the id {}, the model has the ids 0 to {} "
                  "(vocab_size in config.json). Tokenizer and model do not belong together.",
                  *largest, model.vocab - 1));
}

// Chooses the scores of a value head where its file lies next to the adapter or the model, or the recipe asks
// for a new one.
void choose_value_head(const Recipe& recipe, const ModelPaths& paths, ModelSpec& model) {
  const fs::path folder = paths.adapter.value_or(paths.base);
  const bool there = fs::exists(folder / kValueHeadFile);
  if (!there && fs::exists(folder / "value_head.bin"))
    throw UsageError((folder / "value_head.bin").string() +
                     ": is a Python pickle, which is not read. Save it as safetensors: python -c \"import "
                     "torch, safetensors.torch as s; s.save_file(torch.load('value_head.bin', "
                     "weights_only=True), 'value_head.safetensors')\"");
  model.value_head = there || recipe.reward.head == RewardHead::value;
  if (!model.value_head) return;
  const std::string where = there ? (folder / kValueHeadFile).string() : "reward.head: value";
  if (model.scores_sequences || model.encoder || model.encoder_decoder)
    throw UsageError(formatted("{}: a value head needs a decoder that predicts next tokens, and {} is a {}",
                               where, shown_model(paths.base), model.architecture));
  if (recipe.method.type == MethodType::full && !model.tied_head && recipe.init == Init::random)
    throw UsageError(where +
                     ": such a folder holds the model's lm_head.weight too, which does not train and, with "
                     "init: random, is nowhere; say reward.head: score");
}

}  // namespace

ModelSpec model_of(const Recipe& recipe, const ModelPaths& paths, ModelFiles& files) {
  ModelSpec model = read_model(paths, files);
  if (recipe.data.reading < kPaddingReading) model.padding_row.reset();
  if (recipe.task == Task::classify) choose_words(recipe, paths, files, model);
  if (recipe.task == Task::reward) choose_value_head(recipe, paths, model);
  return model;
}

TaskSpec read_task(const Recipe& recipe, const ModelSpec& model) {
  TaskSpec task;
  task.task = recipe.task;
  const std::string config = shown_config(recipe.model);
  const bool masks = rule_of(task.task).masks;
  if (model.encoder && !masks && rule_of(task.task).classes == nullptr)
    throw UsageError(formatted(
        "{}: is a {}, an encoder: task: mlm (masked words) and classify are for it, not {}; say --set task=mlm",
        config, model.architecture, to_string(task.task)));
  if (masks && !model.encoder)
    throw UsageError(formatted(
        "{}: is a {}, no encoder: task: mlm hides words from an encoder (BERT, RoBERTa, ModernBERT); say --set "
        "task={}",
        config, model.architecture, model.encoder_decoder ? "seq2seq" : "pretrain"));
  if (masks && recipe.method.type != MethodType::full && model.encoder->fresh_words)
    throw UsageError(formatted(
        "{}: its checkpoint has no head for words ({}), and PEFT saves none with adapters; train with method.type: full, or "
        "from a {}",
        config, model.encoder->words_layer, model.architecture));
  const bool two = model.encoder_decoder && !rule_of(task.task).scores;
  if (two != rule_of(task.task).has_targets)
    throw UsageError(
        formatted("{}: is a {}{}{}; say --set task={}", config, model.architecture,
                  two ? ", an encoder and a decoder: task: seq2seq, reward and classify are for it, not "
                      : ", which has no encoder: task: sft is for it, not ",
                  to_string(task.task), two ? "seq2seq" : "sft"));
  if (task.task == Task::dpo) task.preference = read_preference(recipe);
  if (!rule_of(task.task).scores) {
    if (model.scores_sequences)
      throw UsageError(
          formatted("{}: is a {}, whose head scores sequences: task: reward and classify are for it, not {}",
                    config, model.architecture, to_string(task.task)));
    return task;
  }
  if (task.task == Task::reward) {
    task.centering = recipe.reward.centering;
    if (model.scores_sequences && model.labels > 1)
      throw UsageError(
          formatted("{}: its head has {} labels; a reward model has one (task: classify is for several)",
                    config, model.labels));
    return task;
  }
  task.problem = recipe.classify.problem;
  const auto named = static_cast<int64_t>(recipe.classify.labels.size());
  task.outputs = named > 0 ? named : model.labels;
  if (task.problem == ClassProblem::numbers && task.outputs == 0) task.outputs = 1;
  if (task.outputs == 0)
    throw UsageError(
        formatted("classify.labels: name the classes, such as --set 'classify.labels=[negative, "
                  "positive]': {} has no id2label",
                  config));
  if (model.scores_sequences && model.labels > 0 && model.labels != task.outputs)
    throw UsageError(formatted("classify.labels: {} classes, but the head of {} has {}", task.outputs, config,
                               model.labels));
  if (task.problem == ClassProblem::one_of && task.outputs < 2)
    throw UsageError(
        "classify.labels: one class leaves nothing to decide: name two or more, or use "
        "classify.problem: numbers");
  return task;
}

std::vector<std::string> label_names(const Recipe& recipe, const nlohmann::json& config) {
  if (!recipe.classify.labels.empty()) return recipe.classify.labels;
  const auto names = config.find("id2label");
  if (names == config.end() || !names->is_object()) return {};
  std::vector<std::string> labels;
  for (size_t i = 0; i < names->size(); ++i) {
    const auto name = names->find(std::to_string(i));
    if (name == names->end() || !name->is_string()) return {};
    labels.push_back(name->get<std::string>());
  }
  return labels;
}

std::optional<std::string> problem_of_head(const nlohmann::json& config) {
  const auto type = config.find("problem_type");
  if (type == config.end() || !type->is_string()) return std::nullopt;
  if (*type == "multi_label_classification") return "any-of";
  if (*type == "regression") return "numbers";
  return "one-of";
}

}  // namespace plimsoll
