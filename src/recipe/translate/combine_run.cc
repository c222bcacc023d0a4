// Keys of ours about the run: what happens how often, what ends it, where it goes.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "recipe/hub.h"
#include "recipe/option.h"
#include "recipe/translate/combine.h"
#include "recipe/translate/combine_parts.h"
#include "recipe/translate/foreign_value.h"
#include "tasks/task.h"

namespace plimsoll {
namespace {

struct EveryParts {
  const char* key;
  const char* steps;
  const char* strategy;
  const char* times;
};

// "save_steps: 500", or 0.1 for a share of all steps.
std::optional<std::string> interval_of(const Node& steps) {
  const auto value = read_foreign_number(steps);
  if (!value || *value < 0.0 || (*value >= 1.0 && std::floor(*value) != *value)) return std::nullopt;
  if (*value > 0.0 && *value < 1.0) return percent(*value);
  return std::to_string(static_cast<int64_t>(*value));
}

// "logging_steps: 0.01" is a share of all steps.
std::optional<std::string> logged_share(const Layer& layer) {
  const Said* every = layer.part("@log_every");
  const auto value = every == nullptr ? std::nullopt : read_foreign_number(every->value);
  return value && *value > 0.0 && *value < 1.0 ? std::optional(percent(*value)) : std::nullopt;
}

// axolotl's times of an epoch are a share of all steps (utils/config/__init__.py:249); nothing where it is
// more.
std::optional<std::string> interval_of_times(const Layer& layer, const Said& times) {
  const auto count = read_foreign_number(times.value);
  const Node* epochs = layer.given("schedule.epochs");
  const auto all = epochs == nullptr ? std::optional(1.0) : read_foreign_number(*epochs);
  if (!count || !all || *count * *all <= 1.0) return std::nullopt;
  return percent(1.0 / (*count * *all));
}

bool has_evaluation(const Layer& layer) {
  return layer.given("data.eval") != nullptr || layer.before().data.eval.kind != EvalSource::Kind::none;
}

// This layer gives the rows to evaluate on that an earlier one's keys waited for.
bool gains_evaluation(const Layer& layer, const EveryParts& every) {
  const Recipe& before = layer.before();
  return every.key == std::string_view("eval.every") && layer.given("data.eval") != nullptr &&
         before.data.eval.kind == EvalSource::Kind::none && !before.eval.every.is_requested() &&
         layer.given("eval.every") == nullptr;
}

void combine_strategy(Layer& layer, const EveryParts& every, const Said& strategy) {
  const Said* steps = layer.part(every.steps);
  if (steps != nullptr && layer.says({every.steps}))
    layer.ignore(*steps, formatted("'{}' switches it off", strategy.as_written));
  if (is_word(&strategy, "epoch")) return layer.emit(every.key, "epoch", {&strategy});
  if (!is_word(&strategy, "best")) {
    // Checkpoints have an interval of the tool's by default, evaluations have none.
    if (every.key == std::string_view("save.every")) return layer.emit(every.key, "0", {&strategy});
    return layer.ignore(strategy, "it happens at the end of the run alone");
  }
  // A checkpoint at each evaluation that is better (combine_best).
  const Node* evaluations = layer.given("eval.every");
  if (evaluations != nullptr)
    layer.emit(every.key, *evaluations, {&strategy});
  else
    layer.emit(every.key, "0", {&strategy});
}

// The steps between evaluations or checkpoints. A number that a strategy switches off has no effect.
void combine_every(Layer& layer, const EveryParts& every) {
  const Said* steps = layer.part(every.steps);
  const Said* strategy = layer.part(every.strategy);
  const Said* times = layer.part(every.times);
  const std::vector<const Said*> all = present({steps, strategy, times});
  const bool gains = gains_evaluation(layer, every);
  if (all.empty() || (!gains && !layer.says({every.steps, every.strategy, every.times}))) return;
  const std::string key = every.key;
  if (gains)
    for (const Said* said : all) layer.withdraw(*said);
  const auto ignore_all = [&](const std::string& why) {
    for (const auto& [name, said] :
         {std::pair{every.steps, steps}, std::pair{every.strategy, strategy}, std::pair{every.times, times}})
      if (said != nullptr && layer.says({name})) layer.ignore(*said, why);
  };
  if (key == "eval.every" && !has_evaluation(layer))
    return ignore_all("no rows to evaluate on are named (data.eval)");
  if (strategy != nullptr && !is_word(strategy, "steps")) return combine_strategy(layer, every, *strategy);
  if (steps != nullptr && !is_off(steps->value)) {
    const auto interval = interval_of(steps->value);
    if (!interval) return layer.refuse(*steps, "expected a number of steps, or a share such as 0.1");
    return layer.emit(key, *interval, present({steps, strategy}));
  }
  if (times != nullptr && !is_off(times->value)) {
    if (const auto interval = interval_of_times(layer, *times)) return layer.emit(key, *interval, {times});
    // core/builders/base.py:517: without an interval a checkpoint comes with each epoch.
    if (key == "save.every") return layer.emit(key, "epoch", {times});
    return layer.ignore(*times, "once an epoch of one is the end of the run");
  }
  if (steps != nullptr || times != nullptr)
    return key == "save.every" ? layer.emit(key, "0", all)
                               : ignore_all("off: it happens at the end of the run alone");
  // transformers/training_args.py:1578: an evaluation with every line of the log; a checkpoint every 500
  // steps.
  const Node* logged = layer.given("log.every");
  const std::string usual = layer.tool() == Tool::trl ? "10" : "500";
  const auto share = logged_share(layer);
  layer.emit(key,
             key == "save.every" ? "500"
             : share             ? *share
             : logged != nullptr ? logged->text
                                 : usual,
             {strategy});
}

// The steps between lines of the log, which tools also state as a share of all steps.
void combine_log(Layer& layer) {
  if (!layer.says({"@log_every"})) return;
  const Said* every = layer.part("@log_every");
  if (logged_share(layer))
    return layer.ignore(*every, "lines of the log come by steps (log.every), not by a share of all");
  const auto steps = read_foreign_whole(every->value);
  if (!steps)
    return layer.refuse(*every, formatted("expected a whole number, found {}", describe(every->value)));
  layer.emit("log.every", std::to_string(*steps), {every});
}

// Sets how many checkpoints stay. transformers removes none by a limit that is not positive; to axolotl 0 is
// no word (core/builders/base.py:520).
void combine_save_limit(Layer& layer) {
  if (layer.says({"@save_limit"})) {
    const Said* limit = layer.part("@save_limit");
    const int64_t count = read_foreign_whole(limit->value).value_or(0);
    const bool is_unset = count == 0 && layer.tool() == Tool::axolotl;
    layer.emit("save.keep", is_unset ? "4" : count < 1 ? "all" : std::to_string(count), {limit});
  }
  const Said* last = layer.part("@save_last");
  if (!layer.says({"@save_last"})) return;
  if (is_true(last))
    layer.emit("save.every", "0", {last});
  else
    layer.ignore(*last, "off: each epoch has a checkpoint", true);
}

bool is_on(const Said* said) { return said != nullptr && read_foreign_flag(said->value) == true; }

// Reads whether example scripts of transformers train. A Trainer by itself trains, whatever its arguments say here, and
// switches do_eval on where it evaluates during a training.
void combine_what_to_do(Layer& layer) {
  const Said *evaluates = layer.part("@do_eval"), *predicts = layer.part("@do_predict");
  for (const auto& [said, name] : {std::pair{evaluates, "@do_eval"}, std::pair{predicts, "@do_predict"}})
    if (said != nullptr && layer.says({name}))
      layer.ignore(*said,
                   said == evaluates ? "there is an evaluation where data.eval names rows"
                                     : "plimsoll generate answers rows after a training",
                   !is_on(said));
  if (!layer.says({"@do_train"})) return;
  const Said* trains = layer.part("@do_train");
  if (read_foreign_flag(trains->value) != false)
    return layer.ignore(*trains, "the command decides: plimsoll train", !is_on(trains));
  const Said* strategy = layer.part("@eval_strategy");
  const bool meanwhile = strategy != nullptr && !is_off(strategy->value) && !is_word(strategy, "no");
  const Said* instead = is_on(predicts) ? predicts : is_on(evaluates) && !meanwhile ? evaluates : nullptr;
  if (instead != nullptr)
    return layer.refuse(*trains,
                        formatted("with {} these are arguments of an evaluation, which plimsoll eval MODEL "
                                  "--data ROWS does; with do_train: true they are those of a training",
                                  instead->as_written));
  if (own_script(layer) == kScriptOfFile)
    return layer.ignore(*trains,
                        "transformers' example scripts alone ask for it; a Trainer trains all the same");
  layer.refuse(*trains, "nothing would be trained; remove it");
}

// The checkpoint that a run ends with, and what it is the best by; transformers writes "eval_" before
// metrics.
void combine_best(Layer& layer) {
  const Said* strategy = layer.part("@save_strategy");
  const bool by_strategy = is_word(strategy, "best");
  if (!layer.says({"@best", "@best_metric", "@greater_is_better"}) &&
      !(by_strategy && layer.says({"@save_strategy"})))
    return;
  const Said* best = layer.part("@best");
  const Said* metric = layer.part("@best_metric");
  const Said* greater = layer.part("@greater_is_better");
  std::string goal(kLossGoal);
  if (metric != nullptr && !is_off(metric->value)) goal = metric->value.text;
  if (goal.starts_with("eval_")) goal.erase(0, 5);
  const std::vector<std::string> known = all_goals();
  if (std::find(known.begin(), known.end(), goal) == known.end())
    return layer.refuse(*metric,
                        formatted("'{}' is not measured here; {} are", excerpt(goal), join(known, ", ")));
  if (greater != nullptr && greater->value.kind != Node::Kind::null &&
      is_true(greater) == (goal == kLossGoal))
    return layer.refuse(*greater, "of a loss less is better, of other metrics more");
  if (is_true(best) || by_strategy)
    return layer.emit(
        "save.best", goal,
        present({is_true(best) ? best : nullptr, metric, greater, by_strategy ? strategy : nullptr}));
  if (goal != kLossGoal && layer.given("stop.patience") != nullptr)
    return layer.refuse(*metric,
                        "needs load_best_model_at_end: true: one metric ends a run and chooses here");
  for (const Said* said : present({best, metric, greater}))
    layer.ignore(*said, "the run ends with its last checkpoint, as load_best_model_at_end: false has it",
                 said == best);
}

// A distance that axolotl gives in steps, as a share of them, or as a number of times in each epoch; 0 where it
// gives none, and where once an epoch is all of the run.
double axolotl_distance(const Layer& layer, const char* steps, const char* times) {
  const Said* often = layer.part(times);
  if (often != nullptr && !is_off(often->value)) {
    const Node* epochs = layer.given("schedule.epochs");
    const double all = read_foreign_number(often->value).value_or(0.0) *
                       (epochs == nullptr ? 1.0 : read_foreign_number(*epochs).value_or(1.0));
    return all > 1.0 ? 1.0 / all : 0.0;
  }
  const Said* said = layer.part(steps);
  return said == nullptr ? 0.0 : read_foreign_number(said->value).value_or(0.0);
}

// axolotl ends with the best checkpoint where each that it saves was evaluated, unless the recipe says no
// (core/builders/causal.py: load_best_model_at_end).
void fill_axolotl_best(Layer& layer) {
  if (layer.tool() != Tool::axolotl || !layer.is_recipe() || layer.part("@rl") != nullptr) return;
  const Said* best = layer.part("@best");
  const Node* patience = layer.given("stop.patience");
  const bool says_no = best != nullptr && read_foreign_flag(best->value) == false;
  if (says_no && (patience == nullptr || is_off(*patience))) return;
  const auto is_given = [&](const char* part) {
    const Said* said = layer.part(part);
    return said != nullptr && !is_off(said->value);
  };
  const double save = axolotl_distance(layer, "@save_steps", "@save_times");
  const double evaluate = axolotl_distance(layer, "@eval_steps", "@eval_times");
  const bool evaluates = is_given("@eval_share") != is_given("@test_datasets");
  if (!evaluates || save <= 0.0 || evaluate <= 0.0 || std::fmod(save, evaluate) != 0.0) return;
  if (layer.given("save.best") == nullptr) layer.read_once_as("save.best", "null");
  layer.emit_default("save.best", kLossGoal);
}

// A tool's checkpoint that a run is to continue. torchtune names its files apart, and reads them where it
// resumes.
void combine_resume(Layer& layer) {
  if (!layer.says({"@resume", "@resumed_states", "@resumed_adapter"})) return;
  static constexpr std::array<std::string_view, 3> kNewest = {"auto", "latest", "last"};
  const Said* resume = layer.part("@resume");
  const bool is_flag = resume == nullptr || is_off(resume->value) || read_foreign_flag(resume->value) ||
                       std::ranges::find(kNewest, resume->value.text) != kNewest.end();
  const bool resumes = resume != nullptr && read_foreign_flag(resume->value).value_or(false);
  if (resume != nullptr && layer.says({"@resume"})) {
    if (!is_flag)
      return layer.refuse(*resume,
                          formatted("'{}' is a checkpoint of {}, whose optimizer states are not read here; "
                                    "--set resume_from_checkpoint=null starts from the beginning",
                                    excerpt(resume->value.text), to_string(*layer.tool())));
    layer.ignore(*resume, "a run starts from the beginning; plimsoll train --resume continues",
                 is_off(resume->value));
  }
  for (const char* name : {"@resumed_states", "@resumed_adapter"}) {
    const Said* file = layer.part(name);
    if (file == nullptr || !layer.says({name})) continue;
    if (resumes && !is_off(file->value))
      return layer.refuse(*file, formatted("'{}' is a checkpoint of torchtune, whose states are not read "
                                           "here; --set resume_from_checkpoint=false starts from the weights",
                                           excerpt(file->value.text)));
    layer.ignore(*file, "read with resume_from_checkpoint: true alone", is_off(file->value));
  }
}

// For several trackers TensorBoard's files are written, and the others are reported separately.
void combine_report_to(Layer& layer) {
  if (!layer.says({"@report_to"})) return;
  const Said* to = layer.part("@report_to");
  std::vector<std::string> others;
  for (const Node& name : to->value.items)
    if (name.text != "tensorboard" && !name.text.ends_with("TensorBoardLogger"))
      others.push_back(formatted("'{}'", excerpt(name.text)));
  if (others.size() < to->value.items.size()) layer.emit("log.tensorboard", "true", {to});
  if (to->value.items.empty() || !others.empty())
    layer.ignore(*to, (others.size() < to->value.items.size() ? join(others, ", ") + ": " : "") +
                          "the run folder's metrics.jsonl is the log");
}

void combine_plugins(Layer& layer) {
  // Kernels, logs, and what measures after the training.
  static constexpr std::array<std::string_view, 5> kIdle = {"liger", "cut_cross_entropy", "kernels",
                                                            "lm_eval", "swanlab"};
  if (!layer.says({"@plugins"})) return;
  const Said* plugins = layer.part("@plugins");
  for (const Node& name : plugins->value.items)
    if (std::none_of(kIdle.begin(), kIdle.end(), [&](std::string_view idle) {
          return name.text.starts_with(formatted("axolotl.integrations.{}.", idle));
        }))
      return layer.refuse(*plugins, formatted("'{}' does not exist here", excerpt(name.text)));
  layer.ignore(*plugins, "none of these plugins changes what is trained");
}

// axolotl's watchdog over the losses that are logged.
void combine_watchdog(Layer& layer) {
  if (!layer.says({"@watchdog", "@watchdog_steps"})) return;
  const Said* limit = layer.part("@watchdog");
  const Said* steps = layer.part("@watchdog_steps");
  if (limit == nullptr || is_off(limit->value)) {
    for (const Said* said : present({limit, steps})) layer.ignore(*said, "off, as here", true);
    return;
  }
  layer.emit("stop.above", limit->value, {limit});
  if (steps != nullptr && !is_off(steps->value)) layer.emit("stop.above_steps", steps->value, {steps});
}

// The name under which a run is uploaded: transformers takes the output folder's where none is given.
void combine_hub(Layer& layer) {
  if (!layer.says({"@push", "@hub_model"})) return;
  const Said* push = layer.part("@push");
  const Said* name = layer.part("@hub_model");
  const bool asks = is_true(push) || (push == nullptr && layer.tool() == Tool::axolotl);
  if (!asks) {
    for (const Said* said : present({push, name})) layer.ignore(*said, "off, as here", true);
    return;
  }
  const Node* output = layer.given("output");
  std::string folder =
      output == nullptr ? "" : std::filesystem::path(output->text).lexically_normal().string();
  while (folder.ends_with('/')) folder.pop_back();
  const std::string text =
      name != nullptr ? name->value.text : std::filesystem::path(folder).filename().string();
  if (text.empty()) return layer.refuse(*push, "needs a hub_model_id beside it");
  if (!is_hub_name(text, true))
    return layer.ignore(name != nullptr ? *name : *push,
                        formatted("'{}' is no name of the hub: no upload is printed", excerpt(text)));
  layer.emit("save.hub", text, present({name, push}));
}

void combine_special_tokens(Layer& layer) {
  if (!layer.says({"@bos_token", "@eos_token", "@unk_token", "@eot_token"})) return;
  // axolotl's end of a turn; another than the end of texts is read for rows of messages only.
  const Said* ends = layer.part("@eot_token");
  const Node* rows = layer.given("data.format");
  if (ends != nullptr && (rows == nullptr || rows->text != "messages")) {
    layer.ignore(*ends, "read for rows of the type chat_template");
    ends = nullptr;
  }
  if (ends != nullptr && ends->value.items.size() > 1)
    return layer.refuse(*ends, "several tokens that end a turn do not exist here; one does");
  std::vector<const Said*> from;
  Node tokens;
  tokens.kind = Node::Kind::map;
  for (const char* part : {"@bos_token", "@eos_token", "@unk_token", "@eot_token"}) {
    const Said* said = layer.part(part);
    if (said == nullptr || (part == std::string_view("@eot_token") && ends == nullptr)) continue;
    from.push_back(said);
    const bool is_list = said->value.kind == Node::Kind::list;
    tokens.items.push_back(
        scalar_at(said->value, is_list ? said->value.items.front().text : said->value.text));
    tokens.items.back().quoted = true;
    tokens.items.back().key = std::string(part).substr(1);
  }
  if (from.empty()) return;
  tokens.line = from.front()->value.line;
  layer.emit("data.special_tokens", tokens, from);
}

// Adds the tokens that a tokenizer.json adds to its vocabulary.
void add_tokens_of(const std::filesystem::path& file, std::set<std::string>& tokens) {
  std::ifstream stream(file);
  const auto tokenizer = nlohmann::json::parse(stream, nullptr, false);
  if (!tokenizer.is_object() || !tokenizer.contains("added_tokens")) return;
  for (const auto& token : tokenizer["added_tokens"])
    if (token.is_object() && token.contains("content") && token["content"].is_string())
      tokens.insert(token["content"].get<std::string>());
}

// The tokens that the model's tokenizer_config.json and tokenizer.json add; nothing if the model is not on this machine.
std::optional<std::set<std::string>> named_tokens(const Layer& layer) {
  const Node* model = layer.given("model");
  if (model == nullptr) return std::nullopt;
  const Located located = locate_on_hub("model", *model, layer.source().folder);
  const auto file = layer.source().folder / located.node.text / "tokenizer_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  const auto config = read_whole(layer, *model, file);
  if (!config) return std::nullopt;
  std::set<std::string> tokens;
  add_tokens_of(file.parent_path() / "tokenizer.json", tokens);
  if (const Node* added = find_node(*config, "added_tokens_decoder"); added != nullptr)
    for (const Node& token : added->items)
      if (const Node* content = find_node(token, "content"); content != nullptr) tokens.insert(content->text);
  return tokens;
}

// Tokens to add change nothing where the tokenizer has them. A model that is named later is looked at then.
void combine_new_tokens(Layer& layer) {
  static constexpr std::array<const char*, 4> kParts = {"@new_tokens", "@more_tokens", "@new_words",
                                                        "@resize"};
  const bool says = layer.says({"@new_tokens", "@more_tokens", "@new_words", "@resize"});
  const bool any = std::ranges::any_of(kParts, [&](const char* name) { return layer.part(name) != nullptr; });
  if (!any || (!says && layer.given("model") == nullptr)) return;
  const auto known = named_tokens(layer);
  for (const char* name : kParts) {
    const Said* said = layer.part(name);
    if (said == nullptr || (!says && !known)) continue;
    const std::vector<Node>& named = said->value.items;
    if (is_off(said->value) || (named.size() == 1 && in_small_letters(named.front().text) == "false")) {
      if (layer.says({name})) layer.ignore(*said, "off, as here", true);
      continue;
    }
    std::vector<std::string> missing;
    for (const Node& token : named)
      if (!known || !known->contains(token.text)) missing.push_back(formatted("'{}'", excerpt(token.text)));
    if (missing.empty() && known) {
      layer.ignore(*said, "the tokenizer has these tokens, and no row of the embedding is added");
      continue;
    }
    missing.resize(std::min<size_t>(missing.size(), 3));
    layer.refuse_until_later(
        *said,
        formatted(
            "other tokens than the tokenizer's are not supported{}; docs/howto/other-tools.md#tokens-to-add "
            "writes a model folder that has them, and --set {}=null trains without them",
            known ? formatted(": the tokenizer has no {}", join(missing, ", "))
                  : std::string(" (whether it has them is not known: the model is not on this machine)"),
            said->key),
        "model");
  }
}

void combine_gpu_limit(Layer& layer) {
  if (!layer.says({"@gpu_limit"})) return;
  const Said* limit = layer.part("@gpu_limit");
  const bool is_number = read_foreign_whole(limit->value).has_value();
  layer.emit("memory.device", limit->value.text + (is_number ? "GiB" : ""), {limit});
}

}  // namespace

std::optional<Node> read_whole(const Layer& layer, const Node& at, const std::filesystem::path& file) {
  try {
    return layer.read_file(scalar_at(at, file.string()));
  } catch (const Error&) {
    return std::nullopt;
  }
}

void combine_run(Layer& layer) {
  combine_log(layer);
  combine_what_to_do(layer);
  combine_resume(layer);
  combine_every(layer, {"eval.every", "@eval_steps", "@eval_strategy", "@eval_times"});
  combine_every(layer, {"save.every", "@save_steps", "@save_strategy", "@save_times"});
  combine_save_limit(layer);
  combine_best(layer);
  fill_axolotl_best(layer);
  combine_watchdog(layer);
  combine_hub(layer);
  combine_report_to(layer);
  combine_plugins(layer);
  combine_special_tokens(layer);
  combine_new_tokens(layer);
  combine_gpu_limit(layer);
}

}  // namespace plimsoll
