#include "runs/model_card.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/strings.h"
#include "base/units.h"
#include "files/file.h"
#include "files/run_folder.h"
#include "formats/model_folder.h"
#include "recipe/hub.h"
#include "recipe/option.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// As a recipe writes the key's value.
std::string value_of(const Recipe& recipe, const char* key) { return to_yaml(find_option(key)->get(recipe)); }

std::string title_of(const Recipe& recipe) {
  const std::string base = model_name(recipe.model);
  if (recipe.init == Init::random)
    return formatted("A model of the shape of {}, trained from random weights", base);
  if (recipe.method.type == MethodType::full) return base + ", fine-tuned";
  return "Adapter for " + base;
}

std::string front_matter(const Recipe& recipe) {
  const auto hub = hub_model_of(recipe.model);
  const bool full = recipe.method.type == MethodType::full;
  return formatted(
      "---\nlibrary_name: {}\n{}pipeline_tag: {}\ntags:\n- plimsoll\n{}---\n\n",
      full ? "transformers" : "peft",
      hub && recipe.init == Init::weights ? formatted("base_model: {}\n", to_yaml(Json(hub->name))) : "",
      rule_of(recipe.task).result.pipeline_tag, full ? "" : "- lora\n");
}

std::string method_row(const Recipe& recipe) {
  const std::string type = value_of(recipe, "method.type");
  if (recipe.method.type == MethodType::full) return type;
  const Recipe::Method& method = recipe.method;
  return formatted(
      "{}{}, rank {}, alpha {}, dropout {}, on {}{}{}", type, method.dora ? " with DoRA" : "",
      value_of(recipe, "method.r"), value_of(recipe, "method.alpha"), value_of(recipe, "method.dropout"),
      value_of(recipe, "method.targets"),
      method.layers.empty() ? "" : " of layers " + value_of(recipe, "method.layers"),
      method.modules_to_save.empty() ? "" : "; whole " + value_of(recipe, "method.modules_to_save"));
}

std::string data_row(const Recipe& recipe) {
  std::vector<std::string> names;
  for (const TrainSource& source : recipe.data.train) {
    const fs::path path = source.path;
    names.push_back((path.parent_path().filename() / path.filename()).string());
  }
  constexpr size_t kShown = 4;
  const size_t more = names.size() - std::min(names.size(), kShown);
  names.resize(names.size() - more);
  return formatted("{}{}, rows of at most {} tokens", join(names, ", "),
                   more > 0 ? formatted(" and {} more", more) : "", format_count(recipe.data.max_length));
}

// The card in a folder; empty where the folder has none that may travel on: a link may lead to anything, but
// for the Hugging Face cache's own.
std::string card_in(const fs::path& folder) {
  constexpr int64_t kMostBytes = kMiB;
  const fs::path path = folder / kModelCard;
  std::error_code none;
  if (!fs::is_regular_file(path, none) || fs::file_size(path, none) > kMostBytes) return "";
  if (fs::is_symlink(path) && !hub_model_of(folder)) return "";
  return read_text(path, kMostBytes);
}

// The rows of the table in a card that a run wrote.
std::string training_rows(const std::string& card) {
  constexpr const char* kEnd = "Trained with Plimsoll;";
  const size_t table = card.find("| | |\n|---|---|\n");
  const size_t end = card.find(kEnd);
  if (table == std::string::npos || end == std::string::npos || end < table) return "";
  return card.substr(table, end - table);
}

// The use of a model, by the classes that its config.json names.
std::string_view use_of_model(const nlohmann::json& config) {
  const auto classes = config.find("architectures");
  const bool named =
      classes != config.end() && classes->is_array() && !classes->empty() && classes->front().is_string();
  const std::string name = named ? classes->front().get<std::string>() : "";
  if (name.ends_with("ForMaskedLM")) return rule_of(Task::mlm).result.pipeline_tag;
  if (name.ends_with("ForSequenceClassification")) return rule_of(Task::classify).result.pipeline_tag;
  const auto separate = config.find("is_encoder_decoder");
  const bool has_targets = separate != config.end() && *separate == true;
  return rule_of(has_targets ? Task::seq2seq : Task::sft).result.pipeline_tag;
}

// The use of an adapter: a run's card says it; that of others follows from PEFT's word for the task, which
// has none for masked words.
std::string use_of_adapter(const fs::path& base, const fs::path& adapter) {
  constexpr std::string_view kTag = "\npipeline_tag: ";
  const std::string card = card_in(adapter);
  const size_t tag = card.starts_with("---\n") ? card.find(kTag) : std::string::npos;
  if (tag != std::string::npos && tag < card.find("\n---\n", 3)) {
    const size_t begin = tag + kTag.size();
    const std::string use = card.substr(begin, card.find('\n', begin) - begin);
    for (const Task task : {Task::sft, Task::mlm, Task::seq2seq, Task::classify})
      if (rule_of(task).result.pipeline_tag == use) return use;
  }
  const nlohmann::json config = read_config(adapter, "adapter_config.json");
  const auto type = config.find("task_type");
  if (type != config.end() && *type == "SEQ_CLS")
    return std::string(rule_of(Task::classify).result.pipeline_tag);
  return std::string(use_of_model(read_config(base)));
}

}  // namespace

std::string merged_card(const fs::path& base, const fs::path& adapter) {
  const auto hub = hub_model_of(base);
  const std::string rows = training_rows(card_in(adapter));
  return formatted(
      "---\nlibrary_name: transformers\n{}pipeline_tag: {}\ntags:\n- plimsoll\n- lora\n---\n\n# {}, "
      "fine-tuned\n\nThe adapter `{}`, folded into {} with Plimsoll.\n{}",
      hub ? formatted("base_model: {}\n", to_yaml(Json(hub->name))) : "", use_of_adapter(base, adapter),
      printable(model_name(base)), printable(adapter.lexically_normal().filename().string()),
      printable(model_name(base)), rows.empty() ? "" : "\nHow the adapter was trained:\n\n" + rows);
}

std::string converted_card(const fs::path& folder, const std::string& change) {
  std::string card = card_in(folder);
  if (card.empty()) {
    const bool adapter = fs::exists(folder / "adapter_config.json");
    card = formatted("---\nlibrary_name: {}\npipeline_tag: {}\ntags:\n- plimsoll\n---\n\n# {}\n",
                     adapter ? "peft" : "transformers",
                     adapter ? "text-generation" : use_of_model(read_config(folder)),
                     printable(model_name(folder)));
  }
  if (!card.ends_with('\n')) card += '\n';
  return formatted("{}\nWritten anew with Plimsoll: {}.\n", card, change);
}

std::string gguf_card(const fs::path& folder, const std::string& file) {
  std::string card = converted_card(folder, file + ", for llama.cpp and what is built on it");
  constexpr std::string_view kLibrary = "library_name: ";
  const size_t end = card.starts_with("---\n") ? card.find("\n---\n", 3) : std::string::npos;
  if (end == std::string::npos) return "---\nlibrary_name: gguf\n---\n\n" + card;
  const size_t library = card.find(kLibrary);
  if (library >= end) return card.insert(4, "library_name: gguf\n");
  const size_t value = library + kLibrary.size();
  return card.replace(value, card.find('\n', value) - value, "gguf");
}

std::string model_card(const Recipe& recipe, const Plan& plan, const RunRecord& record) {
  std::string text =
      formatted("{}# {}\n\n| | |\n|---|---|\n", front_matter(recipe), printable(title_of(recipe)));
  const auto row = [&](const std::string& name, const std::string& value) {
    text += formatted("| {} | {} |\n", name, printable(value));
  };
  row("base model", model_name(recipe.model) + (recipe.init == Init::random ? " (its shape alone)" : ""));
  row("method", method_row(recipe));
  row("data", data_row(recipe));
  row("steps",
      formatted("{}, {} sequences each", format_count(record.steps), format_count(recipe.batch.effective)));
  row("optimizer", formatted("{}, rate {}, {} schedule", value_of(recipe, "optimizer.name"),
                             value_of(recipe, "optimizer.lr"), value_of(recipe, "schedule.name")));
  row("precision", value_of(recipe, "precision"));
  row("loss", formatted("{} in the last step{}", format_number("%.4f", record.final_loss),
                        record.eval_loss ? formatted(", {} on the evaluation rows",
                                                     format_number("%.4f", *record.eval_loss))
                                         : ""));
  if (record.best)
    row("weights of", formatted("step {}, the best evaluation by its {}, {}", format_count(record.best->step),
                                record.best->goal, format_number("%.4f", record.best->value)));
  row("memory", formatted("process at most {} (planned {})", format_bytes(record.memory.peak_rss),
                          format_bytes(plan.process_peak_bytes())));
  return text +
         "\nTrained with Plimsoll; `recipe.yaml` has every setting, `plimsoll report .` the course of the "
         "run.\n";
}

void write_model_card(RunFolder& folder, const std::string& card) {
  try {
    folder.require_free({kModelCard});
  } catch (const UsageError&) {
    return;  // the user's own
  }
  folder.write(kModelCard, card);
}

}  // namespace plimsoll
