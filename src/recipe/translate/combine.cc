#include "recipe/translate/combine.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/shell_word.h"
#include "base/strings.h"
#include "passes/name_pattern.h"
#include "recipe/option.h"
#include "recipe/translate/combine_parts.h"
#include "recipe/translate/foreign_value.h"
#include "recipe/values.h"

namespace plimsoll {
namespace {

// axolotl's `adapter` and TRL's `use_peft` alone mean that there are adapters; a script's rank does, too.
bool rank_says_lora(const Layer& layer) {
  return layer.tool() != Tool::axolotl && (layer.tool() != Tool::trl || !own_script(layer).empty());
}

// The key that says 8 bits, or nullptr: a flag of its own, or a number where others say 4.
const Said* eight_bits(Layer& layer) {
  const Said* by_flag = layer.part("@eight_bit");
  if (is_true(by_flag)) return by_flag;
  if (by_flag != nullptr && layer.says({"@eight_bit"})) layer.ignore(*by_flag, "off, as here", true);
  const Said* by_number = layer.part("@four_bit");
  return is_word(by_number, "eight") ? by_number : nullptr;
}

constexpr const char* kEightBitsTopic = "8 bits";

// The bits of a quantised base, where they are not those that stand there.
void emit_bits(Layer& layer, const Said* eight, const std::vector<const Said*>& from) {
  if (eight == nullptr) {
    layer.forget_note(kEightBitsTopic);
    if (layer.before().method.bits != 4) layer.emit("method.bits", "4", from);
    return;
  }
  layer.emit("method.bits", "8", {eight});
  layer.note(kEightBitsTopic,
             "the base's weights are bitsandbytes' in 8 bits, and its activations are not quantised as they "
             "are there: products are computed in the run's precision, nearer to those of the whole weights");
}

void combine_method(Layer& layer) {
  if (layer.given("method.type") != nullptr) layer.forget_note(kTrainersMethod);
  const bool has_adapter_keys = layer.emits("method.r") || layer.emits("method.alpha") ||
                                layer.says({"@targets", "@all_targets", "@attention_targets"});
  const bool is_lora_by_rank = has_adapter_keys && rank_says_lora(layer);
  if (!layer.says({"@method", "@use_lora", "@four_bit", "@eight_bit", "@quantize_base"}) && !has_adapter_keys)
    return;
  const Said* method = layer.part("@method");
  const Said* use_lora = layer.part("@use_lora");
  const Said* eight = eight_bits(layer);
  const Said* four_bit = layer.part("@four_bit");
  const Said* quantised = layer.part("@quantize_base");
  const bool in_four = is_true(four_bit), is_quantised = in_four || eight != nullptr;
  const auto from = present({method, use_lora, eight == four_bit ? nullptr : eight, four_bit, quantised});
  if (from.empty()) {  // the rank alone: LoRA is the default, and what the tool's script would do
    if (is_lora_by_rank) layer.emit_default("method.type", "lora");
    return;
  }
  std::string type = "full";
  if (is_word(method, "freeze")) {  // and method.freeze: dialects/llama_factory_freeze.cc
    if (layer.tool() != Tool::llama_factory)
      return layer.refuse(*method, "is a word of LLaMA-Factory; method.freeze says what stays as it is");
  } else if (method != nullptr)
    type = method->value.text;
  else if (is_true(use_lora) || (use_lora == nullptr && rank_says_lora(layer) &&
                                 (is_quantised || is_true(quantised) || has_adapter_keys)))
    type = "lora";
  // torchtune names DoRA in the builder.
  if (type == "dora" || type == "qdora") {
    layer.emit("method.dora", "true", {method});
    type.replace(type.find("dora"), 4, "lora");
  }
  if (type == "lora" && is_true(quantised)) type = "qlora";
  if (method != nullptr && use_lora != nullptr && is_true(use_lora) != (type != "full"))
    return layer.refuse(*use_lora, formatted("contradicts '{}'; keep one of them", method->as_written));
  if (in_four && eight != nullptr)
    return layer.refuse(*eight, formatted("contradicts '{}'; keep one of them", four_bit->as_written));
  if (is_quantised && type == "full")
    return layer.refuse(*(in_four ? four_bit : eight),
                        formatted("{}-bit weights cannot train; adapters beside them do (method.type: qlora)",
                                  in_four ? 4 : 8));
  const Said* const against = eight != nullptr ? eight : four_bit != nullptr && !in_four ? four_bit : nullptr;
  if (type == "qlora" && against != nullptr)
    return layer.refuse(*against, formatted("contradicts '{}'; keep one of them",
                                            (is_true(quantised) ? quantised : method)->as_written));
  if (is_quantised && method != nullptr && method->key == "method" && type == "lora")
    return layer.refuse_until_later(
        *method,
        formatted(
            "'lora' contradicts '{}': --set method.type=qlora trains on a quantised base, --set method.type=lora "
            "on a whole one",
            (in_four ? four_bit : eight)->as_written),
        "method.type");
  if (is_quantised) type = "qlora";
  layer.emit("method.type", type, from);
  if (type == "qlora") emit_bits(layer, eight, from);
}

// LLaMA-Factory decomposes by 16 iterations by default; -1 is exactly.
void combine_start(Layer& layer) {
  if (!layer.says({"@pissa", "@pissa_iterations"})) return;
  const Said* pissa = layer.part("@pissa");
  const Said* iterations = layer.part("@pissa_iterations");
  if (!is_true(pissa)) {
    for (const Said* said : present({pissa, iterations}))
      layer.ignore(*said, "pissa_init is off, as here", true);
    return;
  }
  const int64_t count = iterations == nullptr ? 16 : read_foreign_whole(iterations->value).value_or(0);
  if (count == 0 || count < -1) return layer.refuse(*iterations, "expected -1 or a whole number from 1");
  layer.emit("method.init", count == -1 ? "pissa" : "pissa_niter_" + std::to_string(count),
             present({pissa, iterations}));
}

// The names of attention's linears that torchtune spells otherwise.
std::string linear_name(const std::string& theirs) { return theirs == "output_proj" ? "o_proj" : theirs; }

// PEFT tries a text as an expression on the whole names of modules (tuners_utils.py: check_target_module_exists). Returns
// the layers' linear modules that it takes in a decoder; none where it takes some of the layers, or nothing.
std::vector<std::string> modules_of(const std::string& expression) {
  constexpr std::array<std::string_view, 9> kModules = {
      "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.qkv_proj",
      "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj",    "mlp.gate_up_proj"};
  constexpr std::array<int, 6> kLayers = {0, 1, 2, 7, 10, 23};
  const NamePattern pattern(formatted("(?:{})\\z", expression), expression, "target_modules");
  for (const char* stem : {"model.layers.", "model.language_model.layers.", "language_model.model.layers."}) {
    std::vector<std::string> names;
    for (const std::string_view module : kModules) {
      const auto taken = std::ranges::count_if(kLayers, [&](int layer) {
        return pattern.match(formatted("{}{}.{}", stem, layer, module)).has_value();
      });
      if (taken != 0 && taken != std::ssize(kLayers)) return {};
      if (taken != 0) names.emplace_back(module.substr(module.find('.') + 1));
    }
    if (!names.empty()) return names;
  }
  return {};
}

// Returns true if the targets are such an expression.
bool combine_expression(Layer& layer, const Said& targets) {
  if (targets.value.items.size() != 1) return false;
  const Node& said = targets.value.items.front();
  if (said.text.find_first_of("\\[(*+|^$?") == std::string::npos) return false;
  std::vector<std::string> names;
  try {
    names = modules_of(said.text);
  } catch (const UsageError&) {  // NOLINT: no expression, or one that takes too long: refused below
  }
  if (names.empty())
    layer.refuse_until_later(
        targets,
        "takes no linear module of every layer: method.targets names modules, and method.layers the layers",
        "method.targets");
  else
    layer.emit("method.targets", list_at(targets.value, names), {&targets});
  return true;
}

void combine_targets(Layer& layer) {
  if (!layer.says({"@targets", "@all_targets", "@attention_targets", "@mlp_targets", "@head_target"})) return;
  const Said* targets = layer.part("@targets");
  const Said* all = layer.part("@all_targets");
  if (is_true(all)) {
    const auto from = present({all, targets});
    if (targets == nullptr) return layer.emit("method.targets", "all-linear", from);
    std::vector<std::string> both = {"all-linear"};  // and others, such as the embedding
    for (const Node& name : targets->value.items) both.push_back(name.text);
    return layer.emit("method.targets", list_at(targets->value, both), from);
  }
  if (all != nullptr && targets == nullptr) layer.ignore(*all, "off, as here", true);
  if (targets != nullptr && combine_expression(layer, *targets)) return;
  if (targets != nullptr) {
    // PEFT knows no module of that name; a script of one's own that takes the word means all of them by it.
    const bool is_peft =
        layer.tool() == Tool::axolotl || (layer.tool() == Tool::trl && own_script(layer).empty());
    for (const Node& name : targets->value.items) {
      if (name.text == "all" && is_peft)
        return layer.refuse(*targets, "no module is called 'all'; all-linear means all of them");
      if (name.text == "all" || name.text == "all-linear" || name.text == "ALL")
        return layer.emit("method.targets", "all-linear", {targets});
    }
    return layer.emit("method.targets", targets->value, {targets});
  }
  const Said* attention = layer.part("@attention_targets");
  const Said* mlp = layer.part("@mlp_targets");
  std::vector<std::string> names;
  if (attention != nullptr)
    for (const Node& name : attention->value.items) names.push_back(linear_name(name.text));
  if (is_true(mlp)) names.insert(names.end(), {"gate_proj", "up_proj", "down_proj"});
  const Said* head = layer.part("@head_target");
  if (is_true(head)) names.emplace_back("lm_head");
  const auto from = present({attention, mlp, head});
  if (names.empty() && head != nullptr) layer.ignore(*head, "off, as here", true);
  if (!names.empty()) layer.emit("method.targets", list_at(from.front()->value, names), from);
}

// axolotl names what trains, by expressions that are tried at the beginning of a name, in which dots are
// dots.
void combine_frozen(Layer& layer) {
  if (!layer.says({"@unfrozen"})) return;
  const Said* unfrozen = layer.part("@unfrozen");
  std::vector<std::string> patterns;
  for (const Node& name : unfrozen->value.items) {
    if (name.text.ends_with(']') && name.text.find_last_of('[') != std::string::npos &&
        name.text.find_first_not_of("0123456789:", name.text.find_last_of('[') + 1) == name.text.size() - 1)
      return layer.refuse(*unfrozen, "training some rows of a weight does not exist here");
    std::string pattern;
    for (size_t i = 0; i < name.text.size(); ++i) {
      const bool dot = name.text[i] == '.' && (i + 1 == name.text.size() || name.text[i + 1] != '+');
      pattern += dot ? "\\." : std::string(1, name.text[i]);
    }
    patterns.push_back(pattern);
  }
  if (patterns.empty()) return layer.ignore(*unfrozen, "off, as here", true);
  layer.emit("method.freeze", list_at(unfrozen->value, {formatted("^(?!(?:{})).*", join(patterns, "|"))}),
             {unfrozen});
}

void combine_betas(Layer& layer) {
  if (!layer.says({"@beta1", "@beta2"})) return;
  const Said* first = layer.part("@beta1");
  const Said* second = layer.part("@beta2");
  const auto from = present({first, second});
  layer.emit("optimizer.betas",
             list_at(from.front()->value, {first != nullptr ? first->value.text : "0.9",
                                           second != nullptr ? second->value.text : "0.999"}),
             from);
}

void combine_clip(Layer& layer) {
  if (!layer.says({"@clip"})) return;
  const Said* clip = layer.part("@clip");
  // transformers clips by numbers above 0 alone.
  const bool is_none = is_off(clip->value) || read_foreign_number(clip->value).value_or(1.0) <= 0.0;
  layer.emit("optimizer.max_grad_norm", is_none ? scalar_at(clip->value, "0") : clip->value, {clip});
}

void combine_warmup(Layer& layer) {
  const Said* ratio = layer.part("@warmup_ratio");
  const Said* steps = layer.part("@warmup_steps");
  const bool has_steps = steps != nullptr && !is_off(steps->value);
  if (has_steps && ratio != nullptr && !is_off(ratio->value))
    layer.ignore(*ratio, "warmup_steps is given beside it, and wins");
  const Said* used = has_steps || ratio == nullptr ? steps : ratio;
  const auto value = read_foreign_number(used->value);
  if (!value || *value < 0.0)
    return layer.refuse(*used, "expected a share such as 0.03 or a number of steps");
  // transformers takes a warmup_steps below 1 as a share.
  const bool is_share = used == ratio || (*value > 0.0 && *value < 1.0);
  if (!is_share && std::floor(*value) != *value)
    return layer.refuse(*used, "expected a whole number of steps");
  const bool of_axolotl = layer.tool() == Tool::axolotl;
  // axolotl 0.19.0, core/builders/base.py:256: one step of warm-up is two.
  const auto whole = static_cast<int64_t>(of_axolotl && *value == 1.0 ? 2.0 : *value);
  const std::string text =
      is_share ? (of_axolotl ? "axolotl " : "") + percent(*value) : std::to_string(whole);
  layer.emit("schedule.warmup", text, present({used}));
}

// transformers' cosine_with_min_lr has its end as a rate or as a share of the highest one.
void combine_schedule_arguments(Layer& layer) {
  const Said* given = layer.part("@schedule_kwargs");
  if (!layer.says({"@schedule_kwargs"}) || is_off(given->value)) return;
  const Node* rate = find_node(given->value, "min_lr");
  const Node* share = find_node(given->value, "min_lr_rate");
  const Node* cycles = find_node(given->value, "num_cycles");
  // One cycle, the default, restarts nothing.
  if (is_word(layer.part("@schedule"), "cosine_with_restarts") && cycles != nullptr &&
      given->value.items.size() == 1 && read_foreign_number(*cycles) == 1.0)
    return layer.ignore(*given, "one cosine, as here", true);
  const size_t known =
      (rate != nullptr ? 1U : 0U) + (share != nullptr ? 1U : 0U) + (cycles != nullptr ? 1U : 0U);
  if (given->value.kind != Node::Kind::map || known != given->value.items.size() ||
      !is_word(layer.part("@schedule"), "cosine_with_min_lr") || (cycles != nullptr && cycles->text != "0.5"))
    return layer.refuse(
        *given, "of the arguments of schedules only min_lr and min_lr_rate of cosine_with_min_lr exist here");
  const Node* highest = layer.given("optimizer.lr");
  const auto lowest = rate == nullptr ? std::nullopt : read_foreign_number(*rate);
  const auto most = highest == nullptr ? std::nullopt : read_foreign_number(*highest);
  if (share != nullptr) return layer.emit("schedule.min_ratio", *share, {given});
  if (most.value_or(0.0) <= 0.0 || !lowest)
    return layer.refuse(*given, "min_lr needs a learning_rate beside it");
  layer.emit("schedule.min_ratio", to_yaml(Json(lowest.value_or(0.0) / most.value_or(1.0))), {given});
}

// transformers' polynomial of power 1 falls in a straight line to lr_end, which is 1e-7 where nothing says another
// (optimization.py: get_polynomial_decay_schedule_with_warmup).
void combine_polynomial(Layer& layer) {
  const Said* name = layer.part("@schedule");
  const Said* given = layer.part("@schedule_kwargs");
  const bool has_arguments = given != nullptr && !is_off(given->value);
  double last = 1e-7;
  bool is_line = true;
  if (has_arguments)
    for (const Node& item : given->value.items) {
      const auto value = read_foreign_number(item);
      if (item.key == "lr_end" && value) last = *value;
      is_line = is_line && value && (item.key == "lr_end" || (item.key == "power" && *value == 1.0));
    }
  const Node* highest = layer.given("optimizer.lr");
  const double most = highest == nullptr ? 0.0 : read_foreign_number(*highest).value_or(0.0);
  if (!is_line)
    return layer.refuse(*given, "of polynomials only those of power 1 exist here, with lr_end or without");
  if (most <= last) return layer.refuse(*name, "needs a learning_rate beside it, higher than lr_end");
  const auto from = present({name, has_arguments ? given : nullptr});
  layer.emit("schedule.name", "linear", from);
  layer.emit("schedule.min_ratio", to_yaml(Json(last / most)), from);
}

void combine_schedule(Layer& layer) {
  if (combine_deepspeed_schedule(layer)) return;
  const Said* name = layer.part("@schedule");
  const bool no_warmup = is_word(name, "constant") && layer.tool() != std::nullopt;
  // transformers' restarts have one cycle where no other number is given: the cosine itself.
  const bool is_cosine = is_word(name, "cosine_with_min_lr") || is_word(name, "cosine_with_restarts");
  // axolotl reads the lowest rate with `cosine` alone.
  if (is_word(name, "cosine_with_restarts") && layer.given("schedule.min_ratio") != nullptr)
    return layer.refuse(*name, "cosine_with_restarts with a lowest rate does not exist here; cosine does");
  const bool is_polynomial = is_word(name, "polynomial");
  if (is_polynomial && layer.says({"@schedule", "@schedule_kwargs"}))
    combine_polynomial(layer);
  else if (layer.says({"@schedule"}))
    layer.emit("schedule.name",
               is_word(name, "constant_with_warmup") ? "constant"
               : is_cosine                           ? "cosine"
                                                     : name->value.text,
               {name});
  if (!is_polynomial) combine_schedule_arguments(layer);
  if (no_warmup && layer.says({"@schedule"})) {
    layer.emit("schedule.warmup", "0", {name});
    for (const char* part : {"@warmup_ratio", "@warmup_steps"})
      if (layer.says({part})) layer.ignore(*layer.part(part), "lr_scheduler_type: constant has no warm-up");
  } else if (layer.says({"@warmup_ratio", "@warmup_steps"})) {
    combine_warmup(layer);
  }
}

// axolotl has two keys for it, of which one that is on is enough (core/builders/base.py).
const Said* bf16_key(const Layer& layer) {
  const Said* other = layer.part("@bfloat16");
  return is_true(other) || layer.part("@bf16") == nullptr ? other : layer.part("@bf16");
}

// axolotl's bf16 is auto where it is not set (utils/schemas/config.py:561).
bool is_automatic_bf16(const Layer& layer) {
  return layer.tool() == Tool::axolotl && bf16_key(layer) == nullptr && layer.part("@stored_type") == nullptr;
}

// A frozen base loaded in fp16 under autocast to bf16 (bf16: true): what trains is computed in bf16, and no
// loss is scaled.
bool is_frozen_fp16_in_bf16(const Layer& layer) {
  return is_word(layer.part("@stored_type"), "fp16") && is_true(bf16_key(layer)) &&
         !is_true(layer.part("@fp16")) && layer.method() != MethodType::full;
}

bool is_loaded_in_bf16(const Layer& layer) {
  return is_word(layer.part("@stored_type"), "bf16") || layer.tool() == Tool::axolotl;
}

// decisions: a mode of another tool is one of ours, or refused.
std::string precision_of(const Layer& layer) {
  const Said* stored = layer.part("@stored_type");
  const bool is_full = layer.method() == MethodType::full;
  if (is_true(layer.part("@pure_bf16"))) return "bf16-pure";
  // The launcher's word counts where the recipe does not choose bf16 itself.
  const bool launched_in_fp16 = is_word(layer.part("@mixed"), "fp16") && !is_true(bf16_key(layer));
  if (is_true(layer.part("@fp16")) || launched_in_fp16) return "fp16";
  // torchtune keeps weights, gradients and states in its dtype.
  if (const Said* type = layer.part("@train_type"))
    return type->value.text == "bf16" ? (is_full ? "bf16-pure" : "bf16") : type->value.text;
  if (is_word(stored, "fp16")) return is_frozen_fp16_in_bf16(layer) ? "bf16" : "fp16";
  if (is_automatic_bf16(layer) || is_true(bf16_key(layer)) || is_word(layer.part("@mixed"), "bf16")) {
    // Adapters train in fp32 on frozen bf16 weights. Else: autocast over fp32 weights keeps a master copy,
    // weights loaded in bf16 have none.
    if (!is_full) return "bf16";
    return is_loaded_in_bf16(layer) && !keeps_whole_copy(layer) ? "bf16-pure" : "bf16-master";
  }
  // A quantised base has no other type than that of its adapters.
  if (is_word(stored, "auto")) return layer.method() == MethodType::qlora ? "bf16" : "";
  if (is_word(stored, "bf16")) return is_full ? "bf16-pure" : "bf16";
  // LLaMA-Factory takes the type of a frozen base from the model and the device, whether `bf16: false` is written
  // or not (model/patcher.py: infer_optim_dtype).
  const bool infers = layer.tool() == Tool::llama_factory && !is_full;
  return infers || layer.method() == MethodType::qlora ? "bf16" : "fp32";
}

void combine_precision(Layer& layer) {
  const auto from =
      present({layer.part("@pure_bf16"), layer.part("@fp16"), layer.part("@bf16"), layer.part("@bfloat16"),
               layer.part("@train_type"), layer.part("@stored_type"), layer.part("@mixed")});
  const bool is_launched =
      layer.says({"@deepspeed", "@stage", "@fsdp", "@fsdp_config"}) && keeps_whole_copy(layer);
  if (from.empty() && is_launched && layer.tool() == Tool::axolotl && layer.method() == MethodType::full)
    return layer.emit("precision", "bf16-master", keys_of_launch(layer));  // its bf16 is auto
  if (from.empty() || (!is_launched && !layer.says({"@pure_bf16", "@fp16", "@bf16", "@bfloat16",
                                                    "@train_type", "@stored_type", "@mixed"})))
    return;
  const std::string precision = precision_of(layer);
  if (is_automatic_bf16(layer))
    layer.read_once_as("precision", layer.method() == MethodType::qlora ? "bf16" : "fp32");
  if (is_frozen_fp16_in_bf16(layer)) layer.read_once_as("precision", "fp16");
  if (precision == "bf16-master" && is_loaded_in_bf16(layer) && keeps_whole_copy(layer))
    layer.read_once_as("precision", "bf16-pure");
  if (is_true(layer.part("@fp16")) && is_true(bf16_key(layer)))
    return layer.refuse(*layer.part("@fp16"), formatted("contradicts '{}'", bf16_key(layer)->as_written));
  // Neither copies of the weights nor a scale of the loss: the type of the weights and of everything else.
  const Said* alone =
      layer.part("@train_type") != nullptr ? layer.part("@train_type") : layer.part("@stored_type");
  const bool mixed = is_true(layer.part("@fp16")) || is_word(layer.part("@mixed"), "fp16");
  if (precision == "fp16" && !mixed && layer.method() == MethodType::full)
    return layer.refuse(*alone, "fp16 weights without an fp32 copy lose small updates; say precision: fp16");
  if (precision.empty())
    return layer.refuse(
        *layer.part("@stored_type"),
        "the type that the folder happens to have is no answer here; say float32 or bfloat16");
  if (precision != "bf16-pure" || !has_own_states(layer)) return layer.emit("precision", precision, from);
  for (const auto& [key, value] : kPureWeights) layer.emit(key, value, from);
}

// A share of the rows: 0.05. A number of rows has no key here.
void combine_eval_percent(Layer& layer) {
  if (!layer.says({"@eval_percent"})) return;
  const Said* share = layer.part("@eval_percent");
  const auto value = read_foreign_number(share->value);
  if (is_off(share->value)) return layer.ignore(*share, "off: no rows are held out", true);
  if (layer.given("data.eval") != nullptr)  // transformers' scripts hold out rows where no file has some
    return layer.ignore(*share, "the rows to evaluate on have a file of their own");
  if (!value || *value <= 0.0 || *value >= 100.0) return layer.refuse(*share, "expected percent, such as 5");
  layer.emit("data.eval", percent(*value / 100.0), {share});
}

// Rows that a script holds out to test on: not trained on, as those to evaluate on. Both are one share here.
void combine_test_share(Layer& layer) {
  const Said* test = layer.part("@test_share");
  if (is_off(test->value)) return layer.ignore(*test, "off: no rows are held out", true);
  const Said* share = layer.says({"@eval_share"}) ? layer.part("@eval_share") : nullptr;
  const auto of_test = read_foreign_number(test->value);
  const auto of_eval = share == nullptr ? std::optional(0.0) : read_foreign_number(share->value);
  const double both = of_test.value_or(-1.0) + of_eval.value_or(0.0);
  if (!of_test || !of_eval || *of_test < 0.0 || *of_eval < 0.0 || both >= 1.0)
    return layer.refuse(*test,
                        "expected a share such as 0.05, and together with that to evaluate on less than 1");
  if (layer.given("data.eval") != nullptr)
    return layer.refuse(
        *test,
        "holds rows out of those to train on, beside a file of rows to evaluate on; data.train: "
        "{path, rows} says a range");
  layer.emit("data.eval", percent(both), present({share, test}));
}

void combine_eval_share(Layer& layer) {
  if (layer.says({"@test_share"})) {
    combine_test_share(layer);
    if (!is_off(layer.part("@test_share")->value)) return;
  }
  if (!layer.says({"@eval_share"})) return;
  const Said* share = layer.part("@eval_share");
  const auto value = read_foreign_number(share->value);
  if (is_off(share->value)) return layer.ignore(*share, "off: no rows are held out", true);
  // A script's own share is for those who have no file of rows to evaluate on.
  const bool is_of_script = share->key != "val_size" && share->key != "val_set_size";
  if (is_of_script && layer.given("data.eval") != nullptr)
    return layer.ignore(*share, "the rows to evaluate on have a file of their own");
  if (!value || *value < 0.0) return layer.refuse(*share, "expected a share such as 0.05");
  if (*value >= 1.0) return layer.emit("data.eval", std::to_string(static_cast<int64_t>(*value)), {share});
  layer.emit("data.eval", percent(*value), {share});
}

// LLaMA-Factory's packing lets tokens see neighbouring rows; its neat_packing does what packing is here.
void combine_packing(Layer& layer) {
  if (!layer.says({"@packing", "@neat_packing"})) return;
  const Said* packing = layer.part("@packing");
  const Said* neat = layer.part("@neat_packing");
  const Node* task = layer.given("task");
  if (task != nullptr && task->text == "pretrain") {
    const bool apart = packing != nullptr && !is_true(packing);
    return layer.emit("data.packing", apart ? "false" : "joined", present({packing, neat}));
  }
  if (is_true(packing) && !is_true(neat))
    return layer.refuse(*packing,
                        "attention across rows does not exist here; neat_packing: true packs without it");
  layer.emit("data.packing", is_true(neat) ? "true" : "false", present({neat, packing}));
}

// TRL has a key for prompts with completions, where by default only answers are trained, and one for
// conversations, where by default everything is trained.
void combine_answers_only(Layer& layer) {
  if (!layer.says({"@completion_only", "@assistant_only"})) return;
  const Said* completion = layer.part("@completion_only");
  const Said* assistant = layer.part("@assistant_only");
  const bool prompts = completion != nullptr && !is_true(completion);
  // In TRL's own scripts a conversation without assistant_only_loss is trained whole.
  const bool is_trl = layer.tool() == Tool::trl && own_script(layer).empty();
  const bool messages = is_trl && !is_true(assistant);
  if (prompts && !messages)
    return layer.refuse(*completion,
                        formatted("contradicts '{}' here: one key says both", assistant->as_written));
  layer.emit("data.train_on_prompt",
             prompts    ? "true"
             : messages ? "messages"
                        : "false",
             present({completion, assistant}));
}

// A script that names another loss than its keys choose has one of its own.
void refuse_other_losses(Layer& layer) {
  constexpr std::array<std::string_view, 14> kLosses = {"distill", "distillation", "dpo",  "grpo", "kd",
                                                        "kl",      "kto",          "orpo", "ppo",  "reward",
                                                        "rl",      "rlhf",         "rloo", "simpo"};
  if (layer.tool() != Tool::trl || !layer.says({kProgramPart}) || layer.given("task") != nullptr) return;
  const Said& program = *layer.part(kProgramPart);
  const Recipe& before = layer.before();  // of the file that a script reads with --config
  const std::string& script = program.value.text;
  if (script.starts_with("trl ")) return;
  std::string words = in_small_letters(script);
  std::ranges::replace_if(
      words, [](unsigned char c) { return std::isalnum(c) == 0; }, ' ');
  const std::string_view chosen = before.task == Task::reward               ? "reward"
                                  : before.task != Task::dpo                ? ""
                                  : before.dpo.loss == PreferenceLoss::orpo ? "orpo"
                                                                            : "dpo";
  for (const std::string& word : split(words, ' '))
    if (word != chosen && std::ranges::find(kLosses, word) != kLosses.end())
      return layer.refuse_until_later(
          program,
          formatted(
              "{} trains with another loss by its name ({}), which the command does not describe; --set task=sft "
              "trains on its rows alone, task=dpo and task=reward on preferences",
              script, word),
          "task");
}

// A script of one's own has templates of its own; its command has a name alone.
void combine_script_template(Layer& layer) {
  const Said* name = layer.part("@script_template");
  if (!layer.says({"@script_template"})) return;
  if (own_script(layer).empty())
    layer.refuse_until_later(*name, "is a key of scripts of one's own; data.template names a template here",
                             "data.template");
  else
    layer.ignore(*name,
                 "how a script of one's own words its rows; data.template and data.format say it here");
}

// The version of a model, and a tokenizer of another folder, go with the model's name.
void combine_model(Layer& layer) {
  const Said* revision = layer.part("@revision");
  if (layer.says({"@revision"})) {
    if (is_word(revision, "main"))
      layer.ignore(*revision, "the version in the cache is the one that was downloaded");
    else
      layer.refuse_until_later(
          *revision,
          formatted("no other version than main is looked for; the folder of '{}' can be the model",
                    excerpt(revision->value.text)),
          "model");
  }
  const Said* tokenizer = layer.part("@tokenizer_name");
  if (!layer.says({"@tokenizer_name"})) return;
  if (is_off(tokenizer->value)) return layer.ignore(*tokenizer, "off, as here", true);
  const Node* model = layer.given("model");
  if (model != nullptr && model->text == tokenizer->value.text)
    return layer.ignore(*tokenizer, "the model's own, as here", true);
  layer.refuse_until_later(
      *tokenizer,
      "a tokenizer or config.json of another folder than the model's does not exist here; put it into the "
      "model's",
      "model");
}

// Epochs, also a part of one: 0.5.
void combine_epochs(Layer& layer) {
  if (!layer.says({"@epochs"})) return;
  const Said* epochs = layer.part("@epochs");
  const auto count = read_foreign_number(epochs->value);
  const Node* steps = layer.given("schedule.max_steps");  // what ends the run, whatever epochs are
  const bool is_limited = steps != nullptr && read_foreign_number(*steps).value_or(0.0) > 0.0;
  if (!count || (*count <= 0.0 && !is_limited))
    return layer.refuse(*epochs, formatted("expected a number of epochs, found {}", describe(epochs->value)));
  layer.emit("schedule.epochs", to_yaml(print_count(*count > 0.0 ? *count : 1.0)), {epochs});
}

// A seed for the order of rows has no effect if it is that of all else (transformers: 42 unless given).
void combine_data_seed(Layer& layer) {
  if (!layer.says({"@data_seed"})) return;
  const Said* order = layer.part("@data_seed");
  const Node* seed = layer.given("seed");
  const std::string all = seed != nullptr ? seed->text : std::to_string(layer.before().seed);
  if (is_off(order->value) && order->value.text != "0")
    layer.ignore(*order, "nothing is given", true);
  else if (order->value.text == all)
    layer.ignore(*order, "the seed of all else, as here");
  else
    layer.refuse_until_later(
        *order, "a seed for the order of rows alone does not exist here; seed decides all", "seed");
}

// LLaMA-Factory holds the norms' weights in fp32; their products have fp32 values here, whatever is stored.
void combine_norms(Layer& layer) {
  if (!layer.says({"@upcast_norms"})) return;
  const Said* upcast = layer.part("@upcast_norms");
  if (!is_true(upcast))
    layer.ignore(*upcast, "off, as here", true);
  else if (layer.method() != MethodType::full)
    layer.ignore(*upcast, "norms beside adapters do not train, and are computed in fp32");
  else
    layer.refuse(*upcast,
                 "another type for norms that train does not exist here; precision says that of all weights");
}

}  // namespace

void combine(Layer& layer) {
  combine_launch(layer);  // keys of the files that it reads
  combine_epochs(layer);  // keys by epochs need them
  combine_data_seed(layer);
  combine_model(layer);
  combine_script_template(layer);
  combine_preference(layer);  // the data sets ask for the task
  refuse_other_losses(layer);
  combine_method(layer);
  combine_named_bits(layer);
  if (layer.is_recipe()) fill_tool_method(layer);  // the precision needs the method
  combine_targets(layer);
  combine_frozen(layer);
  combine_llama_factory_freeze(layer);
  combine_start(layer);
  combine_batch(layer);
  combine_betas(layer);
  combine_clip(layer);
  combine_schedule(layer);
  combine_precision(layer);
  combine_norms(layer);
  combine_torchtune(layer);  // a length that the data set needs
  combine_data(layer);
  combine_llama_factory(layer);
  combine_axolotl(layer);
  combine_trl(layer);
  combine_packing(layer);
  combine_answers_only(layer);
  combine_eval_share(layer);
  combine_eval_percent(layer);
  combine_run(layer);
  combine_shard(layer);
}

}  // namespace plimsoll
