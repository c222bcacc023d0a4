// Models, adapters, and files of tensors.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/model/describe.h"
#include "formats/model_folder.h"
#include "models/spec.h"
#include "tokenizer/tokenizer.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Elements and bytes by type, as one line: "bf16 494.0 M in 942 MiB".
void add_tensors(Description& d, const std::vector<StoredTensor>& tensors, bool listed) {
  struct Sum {
    int64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::map<DType, Sum> types;
  std::map<std::string, int64_t> files;
  Sum all;
  FactTable table{
      "tensors", {"name", "dtype", "shape", "bytes", "file"}, {false, false, false, true, false}, {}, {}};
  for (const StoredTensor& tensor : tensors) {
    const TensorEntry& entry = *tensor.entry;
    const std::string file = tensor.file->path().filename().string();
    for (Sum* sum : {&all, &types[entry.dtype]}) {
      sum->tensors += 1;
      sum->elements += entry.shape.elements();
      sum->bytes += entry.bytes;
    }
    files[file] += entry.bytes;
    if (listed)
      table.add({entry.name, std::string(to_string(entry.dtype)), entry.shape.to_string(),
                 format_count(entry.bytes), file},
                {entry.name, to_string(entry.dtype), entry.shape.dims(), entry.bytes, file});
  }
  std::vector<std::string> words;
  Json by_type = Json::object();
  for (const auto& [dtype, sum] : types) {
    words.push_back(formatted("{} ({} tensors, {})", to_string(dtype), format_count(sum.tensors),
                              format_bytes(sum.bytes)));
    by_type[std::string(to_string(dtype))] = {
        {"tensors", sum.tensors}, {"elements", sum.elements}, {"bytes", sum.bytes}};
  }
  d.add_count("parameters", all.elements);
  d.add("bytes", format_bytes(all.bytes), all.bytes);
  d.add("types", join(words, ", "), by_type);
  d.add_count("tensors", all.tensors);
  d.add_count("files", static_cast<int64_t>(files.size()));
  if (listed) d.tables.push_back(std::move(table));
}

std::vector<StoredTensor> all_of(const ModelFolder& model) {
  std::vector<StoredTensor> tensors;
  for (const std::string& name : model.names()) tensors.push_back(model.find(name));
  return tensors;
}

std::string text_of(const nlohmann::json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && found->is_string() ? found->get<std::string>() : "";
}

bool is_texts(const nlohmann::json& list) {
  return list.is_array() &&
         std::all_of(list.begin(), list.end(), [](const nlohmann::json& item) { return item.is_string(); });
}

void add_shape(Description& d, const ModelSpec& spec) {
  d.add("architecture", spec.architecture);
  d.add_count("layers", spec.layers);
  d.add_count("hidden", spec.hidden);
  d.add("heads",
        formatted("{}, {} of keys and values", format_count(spec.heads), format_count(spec.kv_heads)),
        {{"heads", spec.heads}, {"kv_heads", spec.kv_heads}, {"head_dim", spec.head_dim}});
  d.add_count("mlp width", spec.mlp_width);
  d.add("vocabulary", format_count(spec.vocab) + (spec.tied_head ? ", head tied" : ""),
        {{"size", spec.vocab}, {"tied_head", spec.tied_head}});
  d.add_count("positions", spec.max_positions);
}

void add_tokenizer(Description& d, const fs::path& folder) {
  const auto file = Tokenizer::find_file(folder);
  if (!file) {
    d.add("tokenizer", "none", nullptr);
    return;
  }
  const Description tokenizer = describe_tokenizer(*file);
  Json value = Json::object();
  std::string text;
  for (const Fact& fact : tokenizer.facts) {
    value[fact.name] = fact.value;
    if (fact.name == "model") text = fact.text;
    if (fact.name == "pieces") text += formatted(", {} pieces", fact.text);
    if (fact.name == "problem") text += formatted(" ({})", fact.text);
  }
  d.add("tokenizer", text, std::move(value));
}

void add_chat_template(Description& d, const fs::path& folder) {
  std::string where;
  if (fs::exists(folder / "chat_template.jinja")) {
    where = "chat_template.jinja";
  } else if (fs::exists(folder / "tokenizer_config.json") &&
             read_config(folder, "tokenizer_config.json").contains("chat_template")) {
    where = "tokenizer_config.json";
  }
  d.add("chat template", where.empty() ? "none" : where, where.empty() ? Json(nullptr) : Json(where));
}

}  // namespace

Description describe_model(const fs::path& folder, bool tensors) {
  Description d{"model", {}, {}};
  const nlohmann::json config = read_config(folder);
  try {
    add_shape(d, read_model_spec(folder / "config.json"));
  } catch (const Error& error) {
    d.add("architecture", text_of(config, "model_type"));
    d.add("problem", error.what());
  }
  const auto quantised = config.find("quantization_config");
  if (quantised != config.end() && quantised->is_object()) {
    const auto eight = quantised->find("load_in_8bit");
    const bool is_int8 = eight != quantised->end() && *eight == true;
    d.add("quantised",
          formatted("{} {}", text_of(*quantised, "quant_method"),
                    is_int8 ? "int8" : text_of(*quantised, "bnb_4bit_quant_type")),
          Json::parse(quantised->dump()));
  }
  if (has_weights(folder)) {
    const ModelFolder model = ModelFolder::open(folder);
    add_tensors(d, all_of(model), tensors);
  } else {
    d.add("weights", "none", nullptr);
  }
  add_tokenizer(d, folder);
  add_chat_template(d, folder);
  return d;
}

Description describe_adapter(const fs::path& folder, bool tensors) {
  Description d{"adapter", {}, {}};
  const nlohmann::json config = read_config(folder, "adapter_config.json");
  d.add("method", text_of(config, "peft_type"));
  for (const char* key : {"r", "lora_alpha"})
    if (config.contains(key)) d.add(key, config[key].dump(), Json::parse(config[key].dump()));
  for (const char* key : {"rank_pattern", "alpha_pattern", "layers_to_transform", "modules_to_save"})
    if (config.contains(key) && !config[key].is_null() && !config[key].empty())
      d.add(key, config[key].dump(), Json::parse(config[key].dump()));
  for (const char* key : {"use_rslora", "use_dora"})
    if (config.contains(key) && config[key] == true) d.add(key, "yes", true);
  if (const auto targets = config.find("target_modules"); targets != config.end())
    d.add("targets",
          targets->is_string() ? targets->get<std::string>()
          : is_texts(*targets) ? join(targets->get<std::vector<std::string>>(), ", ")
                               : targets->dump(),
          Json::parse(targets->dump()));
  d.add("base model", text_of(config, "base_model_name_or_path"));
  const ModelFolder adapter = ModelFolder::open(folder, "adapter_model");
  add_tensors(d, all_of(adapter), tensors);
  return d;
}

Description describe_safetensors(const fs::path& file, bool tensors) {
  Description d{"safetensors", {}, {}};
  const SafetensorsFile opened = SafetensorsFile::open(file);
  std::vector<StoredTensor> all;
  for (const TensorEntry& entry : opened.tensors()) all.push_back({&opened, &entry});
  add_tensors(d, all, tensors);
  if (!opened.metadata().empty()) {
    std::vector<std::string> words;
    for (const auto& [key, value] : opened.metadata()) words.push_back(formatted("{}: {}", key, value));
    d.add("metadata", join(words, ", "), opened.metadata());
  }
  return d;
}

}  // namespace plimsoll
