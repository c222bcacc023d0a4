// TRL and the alignment-handbook: data sets by name, mixtures, inline templates (TRL 1.16.0:
// trl/scripts/utils.py, trl/scripts/sft.py; alignment-handbook: src/alignment/data.py, configs.py).
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "recipe/dialects/data_set.h"
#include "recipe/hub.h"
#include "recipe/translate/combine.h"
#include "recipe/translate/combine_parts.h"
#include "recipe/translate/foreign_value.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// A list of {path, name, split} of TRL or {id, config, split, weight} of the handbook.
std::vector<DataSet> read_list(const Layer& layer, const Node& list) {
  if (list.kind != Node::Kind::list) refuse("expected a list of data sets, found " + describe(list));
  std::vector<DataSet> sets;
  for (const Node& entry : list.items) {
    if (entry.kind != Node::Kind::map) refuse("expected a list of maps, found " + describe(entry));
    refuse_unknown(entry,
                   {"path", "id", "name", "config", "split", "columns", "weight", "data_files", "data_dir"},
                   "datasets");
    const Node* weight = find_node(entry, "weight");
    const auto share = weight == nullptr ? std::optional(1.0) : read_foreign_number(*weight);
    if (!share || *share != 1.0)
      refuse(
          "'datasets.weight': drawing a share of the rows once does not exist here; data.train: {path, rows} "
          "takes a range of them, {path, weight} other ones in every epoch");
    DataSet set;
    const std::string path = text_of(entry, "path", text_of(entry, "id"));
    const Node* files = find_node(entry, "data_files");
    const std::string split = text_of(entry, "split", "train");
    if (files != nullptr && !is_off(*files) && is_loader(path))
      list_files(layer, *files, split, set);
    else
      find_files(layer, entry, path, split, text_of(entry, "name", text_of(entry, "config")), set);
    sets.push_back(set);
  }
  return sets;
}

}  // namespace

std::vector<DataSet> read_trl(const Layer& layer, const Said& name, std::string_view split) {
  const Said* subset = layer.part("@subset");
  std::vector<DataSet> sets;
  for (const Node& one : name.value.items) {
    sets.emplace_back();
    find_files(layer, one, one.text, std::string(split), subset == nullptr ? "" : subset->value.text,
               sets.back());
  }
  return sets;
}

std::vector<DataSet> read_trl_mixture(const Layer& layer, const Node& mixture, std::string_view part) {
  if (mixture.kind == Node::Kind::list) return read_list(layer, mixture);
  if (mixture.kind != Node::Kind::map) refuse("expected data sets, found " + describe(mixture));
  if (const Node* list = find_node(mixture, "datasets")) {
    refuse_unknown(mixture, {"datasets", "seed", "test_split_size"}, "dataset_mixture");
    return read_list(layer, *list);
  }
  // The handbook's older form: {name: share}, with dataset_splits.
  const Said* splits = layer.part("@mixture_splits");
  std::vector<DataSet> sets;
  for (const Node& entry : mixture.items) {
    const auto share = read_foreign_number(entry);
    if (!share || *share <= 0.0 || *share > 1.0)
      refuse(formatted("'{}': expected a share of the rows up to 1", excerpt(entry.key)));
    DataSet set;
    if (*share < 1.0 && part == "train")
      set.rows = ":" + percent(*share);  // alignment 0.3, src/alignment/data.py: the first rows
    std::string split(part);
    if (splits != nullptr)
      for (const Node& one : splits->value.items)
        if (one.text.find(part) != std::string::npos) split = one.text;
    find_files(layer, entry, entry.key, split, "", set);
    sets.push_back(set);
  }
  return sets;
}

namespace {

// The handbook's scripts of its older form pack conversations, whatever the recipe says (alignment 0.4, scripts/run_sft.py:
// packing=True). Its scripts for pairs do not.
void pack_as_the_handbook(Layer& layer) {
  const Node* task = layer.given("task");
  const bool answers = task != nullptr ? task->is_word("sft") : layer.before().task == Task::sft;
  if (!answers || layer.given("data.packing") != nullptr) return;
  layer.emit_default("data.packing", "true");
  layer.read_once_as("data.packing", "false");
  layer.note(
      "packing",
      "the handbook's scripts that read dataset_mixer pack conversations; here each stays whole and sees itself "
      "alone, where TRL of that time joined and cut them: --set data.packing=false has one in a sequence");
}

// The handbook's rules for conversations: their template prints the tokens that begin and end them.
void combine_dataset_arguments(Layer& layer, bool is_mixture) {
  const Said* begins = layer.part("@add_special_tokens");
  if (layer.says({"@add_special_tokens"}))
    layer.emit("data.bos", is_true(begins) ? "true" : "false", {begins});
  const Said* ends = layer.part("@append_concat_token");
  if (layer.says({"@append_concat_token"})) {
    if (is_true(ends) || is_mixture)
      layer.ignore(*ends, "texts end with their token, conversations as their template says");
    else
      layer.refuse(*ends, "texts without an end-of-text token do not exist here");
  }
  const Said* system = layer.part("@empty_system");
  if (!layer.says({"@empty_system"})) return;
  if (is_true(system))
    layer.refuse(*system, "an empty system message before conversations without one does not exist here");
  else
    layer.ignore(*system, "off, as here", true);
}

// A whole number of a JSON file of the model's folder; nothing where file or number are missing.
std::optional<int64_t> number_in(const Layer& layer, const Node& at, const fs::path& file,
                                 std::initializer_list<const char*> keys) {
  const auto read = read_whole(layer, at, file);
  for (const char* key : keys) {
    const Node* node = read ? find_node(*read, key) : nullptr;
    if (const auto number = node == nullptr ? std::nullopt : read_foreign_whole(*node)) return number;
  }
  return std::nullopt;
}

// run_clm.py without block_size: as long as the tokenizer takes, or 1,024 where the model takes less than that.
std::optional<int64_t> usual_block(const Layer& layer) {
  const Node* model = layer.given("model");
  const Located located = locate_on_hub(
      "model", model != nullptr ? *model : scalar_at(Node{}, layer.before().model), layer.source().folder);
  const fs::path folder = layer.source().folder / located.node.text;
  std::error_code ignored;
  if (!fs::exists(folder / "config.json", ignored)) return std::nullopt;
  constexpr int64_t kUsual = 1024;
  const auto positions =
      number_in(layer, located.node, folder / "config.json", {"max_position_embeddings", "n_positions"});
  const auto length =
      fs::exists(folder / "tokenizer_config.json", ignored)
          ? number_in(layer, located.node, folder / "tokenizer_config.json", {"model_max_length"})
          : std::nullopt;
  if (length && *length > 0 && (!positions || *length <= *positions)) return *length;
  return positions && *positions > 0 ? std::min(kUsual, *positions) : kUsual;
}

// transformers' run_clm.py joins all texts and cuts them into blocks. Other scripts may mean another thing by
// the key.
void combine_blocks(Layer& layer) {
  const Said* block = layer.part("@block_size");
  const std::string script = own_script(layer);
  const bool is_clm = script == "run_clm.py" || script == "run_clm_no_trainer.py";
  if (block == nullptr) {
    if (!is_clm || !layer.says({kProgramPart})) return;
    const Said& program = *layer.part(kProgramPart);
    layer.emit("task", "pretrain", {&program});
    layer.emit("data.packing", "joined", {&program});
    if (const auto length = usual_block(layer))
      layer.emit("data.max_length", std::to_string(*length), {&program});
    else
      layer.refuse_until_later(
          program,
          "joins texts and cuts them into blocks, whose length the command leaves to the tokenizer of a model that "
          "this machine lacks: --set block_size=N says it",
          "data.max_length");
    return;
  }
  if (!layer.says({"@block_size"})) return;
  if (is_off(block->value)) return layer.ignore(*block, "off, as here", true);
  if (!script.empty() && !is_clm)
    return layer.refuse(
        *block,
        formatted("what {} makes of texts is not in its command: data.packing: joined cuts joined "
                  "texts into blocks of data.max_length, true fills sequences with whole rows",
                  script),
        "data.packing");
  layer.emit("task", "pretrain", {block});
  layer.emit("data.packing", "joined", {block});
  layer.emit("data.max_length", block->value, {block});
}

// run_mlm.py without line_by_line, of max_seq_length tokens.
void join_masked(Layer& layer, const Said& program) {
  const auto length = layer.given("data.max_length") == nullptr ? usual_block(layer) : std::nullopt;
  if (layer.given("data.max_length") == nullptr && !length)
    return layer.refuse_until_later(
        program,
        "joins texts and cuts them into blocks without --line_by_line: --set "
        "data.packing=joined --set data.max_length=N says it, --set data.packing=false "
        "reads each text by itself",
        "data.packing");
  layer.emit("data.packing", "joined", {&program});
  if (length) layer.emit("data.max_length", std::to_string(*length), {&program});
}

// transformers' run_mlm.py, alone in having these keys.
void combine_masks(Layer& layer) {
  const Said* probability = layer.part("@mlm_probability");
  const Said* by_line = layer.part("@line_by_line");
  const std::string script = own_script(layer);
  const bool is_mlm = script == "run_mlm.py" || script == "run_mlm_no_trainer.py";
  const bool starts = is_mlm && layer.says({kProgramPart});
  if (layer.says({"@mlm_probability"})) {
    layer.emit("task", "mlm", {probability});
    layer.emit("mlm.probability", probability->value, {probability});
  } else if (starts) {
    layer.emit("task", "mlm", {layer.part(kProgramPart)});
  }
  if (layer.says({"@line_by_line"}))
    layer.ignore(*by_line, is_off(by_line->value) ? "off: data.packing: joined joins texts"
                                                  : "each row is a text by itself, as here");
  if (starts && (by_line == nullptr || is_off(by_line->value))) join_masked(layer, *layer.part(kProgramPart));
}

}  // namespace

void combine_trl(Layer& layer) {
  if (layer.tool() != Tool::trl) return;
  combine_blocks(layer);
  combine_masks(layer);
  const Said* chat = layer.part("@chat_template");
  if (layer.says({"@chat_template"})) {
    const bool is_jinja =
        chat->value.text.find("{%") != std::string::npos || chat->value.text.ends_with(".jinja");
    if (is_jinja)
      layer.emit("data.template_source", chat->value, {chat});
    else
      layer.refuse(
          *chat,
          formatted("the template '{}' does not exist here; a text in Jinja does", excerpt(chat->value.text)),
          "data.template_source");
  }
  const Said* mixture = layer.part("@mixture");
  combine_dataset_arguments(layer, mixture != nullptr);
  // 0.18.0, trl/trainer/sft_config.py: packing_strategy; before it packing cut rows.
  const Node* packs = layer.given("data.packing");
  if (packs != nullptr && packs->is_word("true") && layer.version() < Version{{0, 18, 0}}) {
    const Said packing = {*packs, "packing", "packing: true", 0};
    layer.refuse_until_later(packing,
                             "rows that are cut to fill sequences, as TRL did before 0.18, do not exist here",
                             "data.packing");
  }
  // The handbook holds rows out of a mixture.
  if (!layer.says({"@mixture"})) return;
  if (mixture->value.kind == Node::Kind::map && find_node(mixture->value, "datasets") == nullptr)
    layer.ignore({mixture->value, mixture->key, mixture->key, 0},
                 "its rows are read as TRL reads conversations today; the handbook of its time put an empty "
                 "system message before those without one");
  if (mixture->key == "dataset_mixer") pack_as_the_handbook(layer);
  const Node* held = find_node(mixture->value, "test_split_size");
  if (held == nullptr || is_off(*held)) return;
  const auto size = read_foreign_number(*held);
  if (!size) return layer.refuse(*mixture, "'dataset_mixture.test_split_size': expected a number");
  const bool whole = *size >= 1.0 && std::floor(*size) == *size;
  layer.emit("data.eval",
             whole ? std::to_string(static_cast<int64_t>(*size)) : std::to_string(*size * 100.0) + "%",
             {mixture});
}

}  // namespace plimsoll
