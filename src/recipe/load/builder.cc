#include "recipe/load/builder.h"

#include "base/error.h"
#include "base/format.h"
#include "base/lines.h"
#include "base/shell_word.h"
#include "base/strings.h"
#include "base/units.h"
#include "models/spec.h"
#include "recipe/aliases.h"
#include "recipe/dialects/families.h"
#include "recipe/hub.h"
#include "recipe/translate/sections.h"
#include "recipe/unsupported.h"
#include "tasks/glue.h"

namespace plimsoll {
namespace {

constexpr std::string_view kPrecisionParts = "precision.";

std::string expected(const Option& option, const Node& node) {
  return formatted("{}: expected {}, found {}", option.key, option.values, describe(node));
}

}  // namespace

void Problems::add(const std::string& place, const std::string& message, const std::string& key, int layer) {
  ++count_;
  if (!is_full()) lines_.push_back({key, formatted("{}: {}", place, message), layer});
}

void Problems::add_first(const std::string& place, const std::string& message) {
  ++count_;
  lines_.insert(lines_.begin(), {"", formatted("{}: {}", place, message), 0});
  if (lines_.size() > kShown) lines_.pop_back();
}

void Problems::forget(const std::string& key, int layer) {
  count_ -= std::erase_if(lines_, [&](const Line& line) { return line.key == key && line.layer < layer; });
}

void Problems::throw_if_any() const {
  if (count_ == 0) return;
  std::string text;
  for (const Line& line : lines_) text += (text.empty() ? "" : "\n") + visible_breaks(line.text);
  if (count_ > lines_.size())
    text += formatted("\nand {} more", format_count(static_cast<int64_t>(count_ - lines_.size())));
  if (!advice_.empty()) text += "\n" + visible_breaks(advice_);
  throw RecipeError(text);
}

std::string Source::place(int line) const {
  return has_lines && line > 0 ? formatted("{}:{}", name, line) : name;
}

void RecipeBuilder::apply(const Node& root, const Source& source) {
  ++calls_;
  if (root.kind == Node::Kind::null) {
    problems_.add(source.place(0), "is empty: a recipe is a map of keys, 'model:' at least");
  } else if (root.kind != Node::Kind::map) {
    problems_.add(source.place(root.line), "a recipe is a map of keys, found " + describe(root));
  } else {
    walk(translator_.translate(root, source, current(), problems_), "", source);
  }
}

void RecipeBuilder::walk(const Node& map, const std::string& prefix, const Source& source) {
  for (const Node* child : distinct(map, prefix, source)) visit(*child, prefix + child->key, source);
}

void RecipeBuilder::visit(const Node& child, const std::string& key, const Source& source) {
  // "memory: 8GiB" is the budget itself.
  if (key == "memory" && child.kind == Node::Kind::scalar)
    return assign(*find_option("memory.device"), child, source);
  // "method: lora", as some scripts have it.
  if (key == "method" && (child.is_word("lora") || child.is_word("qlora") || child.is_word("full")))
    return assign(*find_option("method.type"), child, source);
  const Option* option = find_option(key);
  if (is_group(key) && (child.kind == Node::Kind::map || option == nullptr)) {
    if (child.kind == Node::Kind::map) return walk(child, key + ".", source);
    if (child.kind == Node::Kind::null) return take_back_group(key, source);
    problems_.add(source.place(child.line),
                  formatted("{}: expected a map of keys, found {}", key, describe(child)));
  } else if (option != nullptr) {
    assign(*option, child, source);
  } else {
    report_unknown(child, key, source);
  }
}

// In a file "data:" with nothing below it has no effect; on the command line it takes back the whole group.
void RecipeBuilder::take_back_group(const std::string& group, const Source& source) {
  if (!source.takes_back) return;
  for (const Option& option : options())
    if (option.key.starts_with(group + ".")) take_back(option, source);
}

void RecipeBuilder::take_back(const Option& option, const Source& source) {
  problems_.forget(option.key, calls_);
  missing_.erase(option.key);
  given_.erase(option.key);
  taken_back_[option.key] = calls_;
  if (option.required) return;
  const Node usual = read_yaml(to_yaml(option.get(Recipe{})));
  check_internal(option.set(recipe_, usual, source.folder), "recipe: no default of " + option.key);
  if (option.key == "precision") forget_precision_parts();
}

// A preset replaces parts given before it.
void RecipeBuilder::forget_precision_parts() {
  std::erase_if(given_, [](const auto& given) { return given.first.starts_with(kPrecisionParts); });
}

void RecipeBuilder::assign(const Option& option, const Node& node, const Source& source) {
  if (node.kind == Node::Kind::null && source.takes_back) return take_back(option, source);
  const std::string place = source.place(node.line);
  if (node.kind == Node::Kind::map) distinct(node, option.key + ".", source);
  problems_.forget(option.key, calls_);  // a later layer puts right what an earlier one had wrong
  if (const auto refusal = refuse_node(option.key, node)) return problems_.add(place, *refusal, option.key);
  try {
    const Node located = on_this_machine(option.key, node, source);
    if (!option.set(recipe_, located, source.folder)) return problems_.add(place, expected(option, node));
  } catch (const UsageError& error) {
    return problems_.add(place, error.what());
  }
  if (const auto refusal = refuse_value(option.key, option.get(recipe_)))
    problems_.add(place, *refusal, option.key);
  if (option.key == "precision") forget_precision_parts();
  taken_back_.erase(option.key);
  Given& given = given_[option.key];
  // A key can be written nested and dotted in one file.
  if (given.call == calls_ && given.place != place)
    problems_.add(place, formatted("key '{}' is given twice (first at {})", option.key, given.place));
  given = {place, calls_};
}

Node RecipeBuilder::on_this_machine(const std::string& key, const Node& node, const Source& source) {
  if (key != "model" && key != "adapter" && key != "data.train" && key != "data.eval") return node;
  Located located = locate_on_hub(key, node, source.folder);
  std::vector<std::string>& missing = missing_[key];
  missing.clear();
  for (const std::string& name : located.missing)
    missing.push_back(formatted("{}: {}", source.place(node.line), name));
  return std::move(located.node);
}

std::vector<std::string> RecipeBuilder::missing() const {
  std::vector<std::string> all;
  for (const auto& [key, lines] : missing_) all.insert(all.end(), lines.begin(), lines.end());
  return all;
}

bool RecipeBuilder::states_precision() const {
  return std::any_of(given_.begin(), given_.end(), [](const auto& given) {
    return given.first == "precision" || given.first.starts_with(kPrecisionParts);
  });
}

std::vector<const Node*> RecipeBuilder::distinct(const Node& map, const std::string& prefix,
                                                 const Source& source) {
  std::vector<const Node*> children;
  std::map<std::string_view, int> first_lines;
  for (const Node& child : map.items) {
    const auto [first, is_new] = first_lines.emplace(child.key, child.key_line);
    if (is_new) {
      children.push_back(&child);
    } else {
      problems_.add(source.place(child.key_line), formatted("key '{}' is given twice (first at line {})",
                                                            excerpt(prefix + child.key), first->second));
    }
  }
  return children;
}

void RecipeBuilder::report_unknown(const Node& child, const std::string& key, const Source& source) {
  // An unknown key inside of a known map is named itself.
  if ((is_alias_group(key) || is_section(key)) && child.kind == Node::Kind::map && !child.items.empty()) {
    for (const Node& inner : child.items) report_unknown(inner, formatted("{}.{}", key, inner.key), source);
    return;
  }
  const std::string suggestion = problems_.is_full() ? "" : suggest_key(key);
  const std::string hint = suggestion.empty() ? "; `plimsoll recipe --explain` lists the keys"
                                              : formatted(" (did you mean '{}'?)", suggestion);
  problems_.add(source.place(child.key_line), formatted("unknown key '{}'{}", excerpt(key), hint));
  if (source.has_lines && translator_.report().tool) unknown_.push_back(key);
}

// One command leaves out all keys of a tool's or a script's file that are not known here, rather than one after the
// other. The user says whether they change the training.
void RecipeBuilder::advise_about_unknown() {
  if (unknown_.empty()) return;
  std::string options;
  for (const std::string& key : unknown_) options += " --set " + quoted(key + "=null");
  const bool is_one = unknown_.size() == 1;
  problems_.set_advice(formatted("{} not known here; if {} not change the training, leave {} out by{}",
                                 is_one ? "one key is" : formatted("{} keys are", unknown_.size()),
                                 is_one ? "it does" : "they do", is_one ? "it" : "all of them", options));
}

Recipe RecipeBuilder::current() const {
  Recipe recipe = recipe_;
  if (!given_.contains("precision.rounding")) recipe.precision.rounding = default_rounding(recipe.precision);
  return recipe;
}

std::vector<std::string> RecipeBuilder::keys_since(int first) const {
  std::vector<std::string> keys;
  for (const Option& option : options()) {
    const auto given = given_.find(option.key);
    const auto taken_back = taken_back_.find(option.key);
    if ((given != given_.end() && given->second.call >= first) ||
        (taken_back != taken_back_.end() && taken_back->second >= first))
      keys.push_back(option.key);
  }
  return keys;
}

Recipe RecipeBuilder::finish(const std::string& name) {
  Recipe recipe = current();
  take_glue_task(recipe);
  take_words(recipe);
  // `precision: bf16-pure` sets states only for optimizers that have a choice. Adapters' have none.
  if (recipe.method.type == MethodType::full && traits_of(recipe.optimizer.name).own_types &&
      recipe.precision.states == DType::bf16 && !given_.contains("precision.states"))
    recipe.precision.states = DType::f32;
  if (problems_.count() > 0) check_family();
  // Keys are held against each other only when each of them is right.
  if (problems_.count() == 0) check_together(recipe);
  for (const Option& option : options())
    if (option.required && problems_.count() == 0 && !given_.contains(option.key))
      problems_.add(name, formatted("'{}' is missing: {}", option.key, option.meaning));
  advise_about_unknown();
  problems_.throw_if_any();
  return recipe;
}

// Takes the settings of a task of GLUE; equal keys in the recipe are no conflict, as saved recipes hold all
// keys.
void RecipeBuilder::take_glue_task(Recipe& recipe) {
  if (!recipe.classify.glue) return;
  const GlueTask& task = *find_glue_task(*recipe.classify.glue);
  const std::string other = "is another one than that of classify.glue: " + *recipe.classify.glue;
  if (given_.contains("classify.labels") && !recipe.classify.labels.empty() &&
      recipe.classify.labels != task.labels)
    conflict("classify.labels", other + "; remove one of them");
  if (given_.contains("classify.problem") && recipe.classify.problem != task.problem)
    conflict("classify.problem", other + "; remove one of them");
  recipe.classify.labels = task.labels;
  recipe.classify.problem = task.problem;
}

// Classes without names are called by their words.
void RecipeBuilder::take_words(Recipe& recipe) {
  const std::vector<std::string>& words = recipe.classify.words;
  if (words.empty()) return;
  if (recipe.classify.labels.empty())
    for (const std::string& word : words) recipe.classify.labels.emplace_back(trim(word));
  if (words.size() != recipe.classify.labels.size())
    conflict("classify.words", formatted("{} words for {} classes (classify.labels); name one for each",
                                         words.size(), recipe.classify.labels.size()));
  if (recipe.classify.problem != ClassProblem::one_of)
    conflict("classify.words", formatted("one of them is right; classify.problem: {} needs a head of its own",
                                         to_yaml(find_option("classify.problem")->get(recipe))));
}

// By its config.json where that is on this machine, or else by its name.
void RecipeBuilder::check_family() {
  const auto given = given_.find("model");
  if (given == given_.end()) return;
  const std::filesystem::path folder = recipe_.model;
  std::error_code ignored;
  if (std::filesystem::exists(folder / "config.json", ignored)) {
    try {
      (void)models_.spec(folder);
    } catch (const std::exception& error) {
      problems_.add_first(given->second.place, error.what());
    }
    return;
  }
  const std::string& named = translator_.report().model_name;
  const std::string& name = named.empty() ? recipe_.model : named;
  if (const auto family = unsupported_family(name))
    problems_.add_first(
        given->second.place,
        formatted(
            "model: '{}' is, by its name, of a family that is not supported: {} (llama, mistral, qwen2, qwen3, qwen3.5, smollm3, gemma 2 and 3, olmo 2 and 3, granite, ministral, phi-3 and phi-4, gla, t5, mt5, bert, roberta, xlm-roberta and modernbert are)",
            excerpt(name), *family));
}

void RecipeBuilder::conflict(const std::string& key, const std::string& message) {
  const auto given = given_.find(key);
  check_internal(given != given_.end(), "conflict over a key that was not given: " + key);
  problems_.add(given->second.place, formatted("{}: {}", key, message));
}

namespace {

// "adamw, lion and sgd": whose states have the type of precision.states.
std::string optimizers_of_any_type() {
  std::vector<std::string> names;
  for (const OptimizerTraits& optimizer : kOptimizers)
    if (!optimizer.own_types) names.emplace_back(optimizer.name);
  const std::string last = names.back();
  names.pop_back();
  return formatted("{} and {}", join(names, ", "), last);
}

std::string method_name(MethodType type) {
  switch (type) {
    case MethodType::full:
      return "full";
    case MethodType::lora:
      return "lora";
    case MethodType::qlora:
      return "qlora";
  }
  throw InternalError("method_name: no such method");
}

}  // namespace

void RecipeBuilder::forget_what_means_nothing(int first) {
  if (recipe_.method.type == MethodType::full) recipe_.adapter.reset();
  for (const Option& option : options()) {
    const auto given = given_.find(option.key);
    if (given == given_.end() || given->second.call >= first) continue;
    if (!applies_to_optimizer(option, recipe_) || !applies(option, recipe_)) given_.erase(given);
  }
}

void RecipeBuilder::leave_out_of_other_methods(int first) {
  std::vector<std::string> keys;
  for (const Option& option : options()) {
    const auto given = given_.find(option.key);
    if (given == given_.end() || given->second.call >= first || option.method <= recipe_.method.type)
      continue;
    given_.erase(given);
    keys.push_back(option.key);
  }
  if (!keys.empty())
    translator_.note("method",
                     formatted("{} of the recipe have no effect with method.type: {} and are left out",
                               join(keys, ", "), method_name(recipe_.method.type)));
}

// Tasks of pairs and tasks that score whole sequences read rows of their own, and have no packing; the latter
// have no logits.
void RecipeBuilder::check_task(const Recipe& recipe) {
  const std::optional<RowFormat> format = recipe.data.format;
  const bool scores = rule_of(recipe.task).scores, pairs = rule_of(recipe.task).pairs;
  const bool of_scores = format == RowFormat::preference || format == RowFormat::sentence_label;
  const std::string task = "task: " + std::string(to_string(recipe.task));
  const std::optional<RowFormat>& own = rule_of(recipe.task).format;
  if (format && (own ? format != own : of_scores))
    conflict("data.format",
             formatted("{} does not belong to {}{}", to_yaml(find_option("data.format")->get(recipe)), task,
                       own ? std::string("; it reads ") + std::string(to_string(*own))
                           : std::string("; preference is for reward and dpo, sentence-label for classify")));
  if (recipe.data.target_length > 0 && !rule_of(recipe.task).has_targets)
    conflict("data.max_length",
             formatted("a source and a target are of task: seq2seq; {} has one length", task));
  if (recipe.data.packing && rule_of(recipe.task).has_targets)
    conflict("data.packing", "is not supported with " + task);
  if (recipe.data.packing && (scores || pairs)) conflict("data.packing", "is not supported with " + task);
  if (recipe.data.joined) check_joined(recipe);
  if (rule_of(recipe.task).masks) check_masks(recipe);
  if (recipe.task == Task::dpo) check_preference(recipe);
  const auto named = static_cast<int64_t>(recipe.classify.labels.size());
  const TaskSpec spec{
      .task = recipe.task, .outputs = std::max<int64_t>(1, named), .problem = recipe.classify.problem};
  if (recipe.save.best && !is_goal(spec, *recipe.save.best))
    conflict("save.best", formatted("'{}' is not measured here; {} has {}", *recipe.save.best, task,
                                    join(goals_of(spec), ", ")));
  if (!scores) return;
  if (recipe.memory.loss_chunk != kAuto)
    conflict("memory.loss_chunk",
             formatted("has no effect with {}, which has no logits over the vocabulary", task));
}

// Texts that are joined are one stream of tokens, which are all trained.
void RecipeBuilder::check_joined(const Recipe& recipe) {
  const std::optional<RowFormat> format = recipe.data.format;
  if (recipe.task != Task::pretrain && !rule_of(recipe.task).masks && format != RowFormat::text)
    conflict("data.packing", "joined is for texts: say task: pretrain, or data.format: text");
  if (recipe.data.max_length == kLongestRow)
    conflict("data.packing", "joined needs the length of its sequences: data.max_length");
  if (recipe.data.max_length == 1)
    conflict("data.packing", "joined needs sequences of at least 2 tokens: data.max_length");
  if (recipe.data.truncation != Truncation::right && given_.contains("data.truncation"))
    conflict("data.truncation", "has no effect with data.packing: joined, which loses no end of a text");
  if (recipe.data.share_prefixes == SharePrefixes::on)
    conflict("data.share_prefixes",
             "has no effect with data.packing: joined, whose sequences begin anywhere");
  if (recipe.memory.keep_frozen == KeepFrozen::on)
    conflict("memory.keep_frozen", "is not supported with data.packing: joined, whose sequences are no rows");
}

// Other words are hidden in every epoch, of texts as they are.
void RecipeBuilder::check_masks(const Recipe& recipe) {
  if (recipe.data.format && *recipe.data.format != RowFormat::text &&
      *recipe.data.format != RowFormat::input_ids)
    conflict("data.format", "task: mlm reads text or input-ids");
  if (recipe.mlm.mask + recipe.mlm.random > 1) {
    const bool random = given_.contains("mlm.random");
    const char* other = random ? "mlm.mask" : "mlm.random";
    conflict(random ? "mlm.random" : "mlm.mask",
             formatted("with {}: {} they are more than 1, which is all of them", other,
                       to_yaml(find_option(other)->get(recipe))));
  }
  if (recipe.memory.keep_frozen == KeepFrozen::on)
    conflict("memory.keep_frozen", "is not supported with task: mlm, which hides other words in every epoch");
}

void RecipeBuilder::check_preference(const Recipe& recipe) {
  const PreferenceLoss loss = recipe.dpo.loss;
  const std::string named = "dpo.loss: " + to_yaml(find_option("dpo.loss")->get(recipe));
  const bool sigmoid = loss == PreferenceLoss::sigmoid || loss == PreferenceLoss::sigmoid_norm;
  if (recipe.dpo.label_smoothing > 0 && !sigmoid)
    conflict("dpo.label_smoothing",
             formatted("has no effect with {}; it is of dpo.loss: sigmoid and sigmoid_norm", named));
  if (recipe.data.train_on_prompt == PromptLoss::yes && recipe.dpo.ftx == 0 && loss != PreferenceLoss::orpo)
    conflict(
        "data.train_on_prompt",
        formatted("has no effect with {} without dpo.ftx: losses between two answers leave the prompt out",
                  named));
}

void RecipeBuilder::check_together(const Recipe& recipe) {
  const auto gave = [this](const std::string& key) { return given_.contains(key); };
  for (const Option& option : options())
    if (!applies_to_optimizer(option, recipe) && gave(option.key))
      conflict(option.key, formatted("has no effect with optimizer.name: {}; remove it",
                                     to_yaml(find_option("optimizer.name")->get(recipe))));
    else if (!applies_to_task(option, recipe) && gave(option.key))
      conflict(option.key, formatted("has no effect with task: {}; remove it, or say task: {}",
                                     to_string(recipe.task), to_string(*option.task)));
    else if (recipe.method.type >= option.method && !applies(option, recipe) && gave(option.key))
      conflict(option.key, formatted("has no effect with method.bits: {}; remove it", recipe.method.bits));
    else if (!applies(option, recipe) && gave(option.key))
      conflict(option.key, formatted("has no effect with method.type: {}; remove it, or say method.type: {}",
                                     method_name(recipe.method.type), method_name(option.method)));
  if (recipe.method.type == MethodType::full && recipe.adapter)
    conflict("adapter", "continues LoRA training, but method.type is full");
  check_task(recipe);
  const bool answers = recipe.data.format == RowFormat::prompt_response ||
                       recipe.data.format == RowFormat::messages || recipe.data.format == RowFormat::alpaca;
  if (rule_of(recipe.task).prompts == Prompts::none && answers)
    conflict("data.format", to_yaml(find_option("data.format")->get(recipe)) +
                                " belongs to task: sft; pretrain reads text or input-ids");
  if (recipe.batch.micro > recipe.batch.effective)
    conflict("batch.micro",
             formatted("is larger than batch.effective ({})", format_count(recipe.batch.effective)));
  if (recipe.batch.micro_tokens != kAuto && (recipe.data.packing || recipe.data.joined))
    conflict("batch.micro_tokens",
             "has no effect with data.packing, which fills sequences of data.max_length");
  if (recipe.schedule.name == ScheduleName::constant && recipe.schedule.min_ratio > 0.0)
    conflict("schedule.min_ratio", "has no effect with schedule.name: constant");
  if (recipe.eval.every.is_requested() && recipe.data.eval.kind == EvalSource::Kind::none)
    conflict("eval.every", "there is nothing to evaluate on: give data.eval a file or a share such as 2%");
  if (recipe.save.best && recipe.data.eval.kind == EvalSource::Kind::none)
    conflict("save.best", "needs evaluation: give data.eval a file or a share such as 2%");
  if (recipe.stop.patience > 0 && recipe.data.eval.kind == EvalSource::Kind::none)
    conflict("stop.patience", "needs evaluation: give data.eval a file or a share such as 2%");
  if (recipe.precision.master && recipe.precision.weights == DType::f32)
    conflict(gave("precision.master") ? "precision.master" : "precision.weights",
             "fp32 weights need no fp32 master copy");
  if (recipe.precision.tf32 && recipe.precision.weights != DType::f32)
    conflict(gave("precision.tf32") ? "precision.tf32" : "precision.weights",
             "is of products of fp32 weights; bf16 and fp16 have tensor cores without it");
  if (recipe.precision.weights == DType::f16) {
    if (!recipe.precision.master)
      conflict(gave("precision.master") ? "precision.master" : "precision.weights",
               "fp16 weights need an fp32 master copy: small updates are lost in fp16");
    if (recipe.precision.gradients != DType::f32 || recipe.precision.states != DType::f32)
      conflict(recipe.precision.gradients != DType::f32 ? "precision.gradients" : "precision.states",
               "gradients and states beside fp16 weights are fp32");
  }
  const bool has_own_states = traits_of(recipe.optimizer.name).own_types;
  if (recipe.method.type == MethodType::full && recipe.precision.states == DType::bf16 && has_own_states)
    conflict("precision.states",
             formatted("bf16 is for the states of {}; those of optimizer.name: {} are small already: say "
                       "precision.states: fp32",
                       optimizers_of_any_type(), to_yaml(find_option("optimizer.name")->get(recipe))));
  if (recipe.precision.rounding == Rounding::stochastic &&
      default_rounding(recipe.precision) == Rounding::nearest)
    conflict("precision.rounding", "stochastic is for bf16 weights without a master copy");
}

}  // namespace plimsoll
