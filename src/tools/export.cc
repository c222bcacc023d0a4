#include "tools/export.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/shell_word.h"
#include "base/strings.h"
#include "chat/chat_template.h"
#include "files/atomic.h"
#include "files/file.h"
#include "files/new_folder.h"
#include "formats/model_folder.h"
#include "formats/model_writer.h"
#include "prepare/model_paths.h"
#include "recipe/hub.h"
#include "tasks/task.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer.h"
#include "tools/convert_gguf.h"
#include "tools/convert_model.h"
#include "tools/merge.h"
#include "tools/ollama.h"
#include "tools/vllm.h"
#include "weights/adapter_config.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelfile = "Modelfile";
constexpr const char* kTemplateFile = "chat_template.jinja";

bool is_gguf(ExportTo to) { return to == ExportTo::gguf || to == ExportTo::ollama; }

// Moves what is in a folder into the one that holds it.
void lift(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    fs::rename(entry.path(), folder.parent_path() / entry.path().filename());
  fs::remove(folder);
}

GgufKind kind_of(DType dtype) {
  return dtype == DType::f32 ? GgufKind::f32 : dtype == DType::f16 ? GgufKind::f16 : GgufKind::bf16;
}

class Exporter {
 public:
  explicit Exporter(const ExportOptions& options)
      : options_(options), paths_(find_model(options.folder, options.adapter)) {
    options_.each_row = true;
    options_.chat_template = "auto";
    require_choices();
    out_ = require_new(options.target, read_folders());
    if (const auto quantisation = paths_.adapter ? quantisation_of(paths_, options_.sources) : std::nullopt)
      trained_ = TrainedBase{*quantisation, trained_type(paths_, options_.sources)};
    stores_quantised_ = read_config(paths_.base).contains("quantization_config");
    if (stores_quantised_ && options_.into == MergeInto::base)
      throw UsageError(
          formatted("{}: stores its weights quantised, and has no others that --into base could mean",
                    paths_.base.string()));
    if (!options_.precision) options_.precision = trained_type(paths_, options_.sources);
    const auto recipe = recipe_of_run(options_.folder, options_.sources);
    if (recipe && recipe->task == Task::dpo)  // ORPO needs no reference
      for (const char* set : {"dpo.loss=orpo", "dpo.label_smoothing=0"}) options_.sets.emplace_back(set);
    if (recipe) context_ = recipe->data.max_length;
    is_run_ = recipe.has_value();
    const bool scores = recipe && rule_of(recipe->task).scores;
    if (scores) command_ = recipe->task == Task::classify ? "classify" : "score";
    if (recipe && rule_of(recipe->task).masks) command_ = "eval";
    if (command_ == "eval" && options_.to == ExportTo::vllm)
      throw UsageError(
          formatted("{}: vLLM has no model of masked words (task: mlm); export it with --to merged",
                    options_.folder.string()));
    if (is_gguf(options_.to) && scores)
      throw UsageError(
          formatted("{}: a GGUF holds no head that scores sequences (task: {}); export it with --to merged",
                    options_.folder.string(), to_string(recipe->task)));
    if (options_.to == ExportTo::vllm) require_vllm(scores);
  }

  ExportResult run() {
    require_room();
    const Evaluation trained = evaluate(options_);
    result_.device = trained.device;
    NewFolder folder(out_);
    const fs::path stage = folder.path();
    write(stage);
    if (options_.before_check) options_.before_check(stage);
    check(stage, trained.loss);
    tidy(stage);
    list_files(stage);
    write_file_atomically(stage / "check.json", check_json());
    folder.publish();
    name_next();
    return std::move(result_);
  }

 private:
  // Only other weights than the base's own differ from them.
  [[nodiscard]] bool over_plain_base() const {
    return trained_ && !stores_quantised_ &&
           (options_.to == ExportTo::vllm || options_.into == MergeInto::base);
  }
  [[nodiscard]] bool serves_adapter() const { return options_.to == ExportTo::vllm && paths_.adapter; }
  [[nodiscard]] bool merges() const { return paths_.adapter && !serves_adapter(); }
  [[nodiscard]] std::vector<fs::path> read_folders() const {
    std::vector<fs::path> folders = {options_.folder, paths_.base};
    if (paths_.adapter) folders.push_back(*paths_.adapter);
    return folders;
  }

  void require_choices() const {
    if (options_.into && !paths_.adapter)
      throw UsageError(
          formatted("export: --into is for adapters, and {} is a whole model", options_.folder.string()));
    if (options_.into && options_.to == ExportTo::vllm)
      throw UsageError(
          "export: --into is for merged weights; vLLM adds the adapter to those that it serves itself");
    if (!options_.kind) return;
    if (serves_adapter())
      throw UsageError("export: --type is for weights, and an adapter is exported as it is");
    if (!is_gguf(options_.to) && is_quantised(*options_.kind))
      throw UsageError(
          formatted("export: --type {} is for --to gguf and --to ollama", to_string(*options_.kind)));
  }

  void require_vllm(bool scores) const {
    require_family_of_vllm(options_.folder, read_model_spec(paths_.base / "config.json"));
    if (!paths_.adapter) return;
    LoraOptions lora;
    read_adapter_config(*paths_.adapter, lora, true);
    if (scores) lora.modules_to_save.emplace_back("score");  // the head, which is saved whole
    require_served_by_vllm(*paths_.adapter, lora);
  }

  [[nodiscard]] std::optional<DType> dtype() const {
    if (!options_.kind) return std::nullopt;
    switch (*options_.kind) {
      case GgufKind::f32:
        return DType::f32;
      case GgufKind::f16:
        return DType::f16;
      case GgufKind::bf16:
        return DType::bf16;
      default:
        return std::nullopt;
    }
  }

  // Merged weights and the file that is made of them are there at once.
  void require_room() const {
    int64_t bytes =
        is_gguf(options_.to) && !stores_quantised_ ? gguf_file_bytes({paths_.base, {}, options_.kind}) : 0;
    if (stores_quantised_ && !serves_adapter())
      bytes = 8 * ModelFolder::open(paths_.base).bytes();  // in 16 bits, twice
    else if (serves_adapter())
      bytes += ModelFolder::open(*paths_.adapter, "adapter_model").bytes();
    else if (merges() || !is_gguf(options_.to))
      bytes += shards_bytes(stored_shards(ModelFolder::open(paths_.base), dtype()));
    require_disk_space(out_, bytes + bytes / 50, "the export", "choose another folder with --out");
  }

  void write(const fs::path& stage) {
    if (serves_adapter()) return copy_adapter(stage / "model");
    if (!is_gguf(options_.to)) {
      write_model(stage / "model");
      return end_turns(stage / "model");
    }
    model_ = paths_.base;
    if (merges()) {
      model_ = stage / "merged";
      write_model(model_);
    }
    const fs::path view = stage / "view";
    GgufResult gguf = convert_to_gguf({model_, view / kGgufFile, options_.kind});
    result_.notes = std::move(gguf.notes);
    // The check reads it as a model's folder.
    for (const auto& entry : fs::directory_iterator(model_)) {
      const fs::path name = entry.path().filename(), ending = name.extension();
      const bool lists_shards = name.string().ends_with(".safetensors.index.json");
      if (entry.is_regular_file() && !lists_shards &&
          (ending == ".json" || ending == ".model" || ending == ".jinja"))
        fs::copy_file(entry.path(), view / name);
    }
    if (options_.to == ExportTo::ollama) write_modelfile(stage);
  }

  // transformers and vLLM stop at the tokens of generation_config.json alone.
  void end_turns(const fs::path& folder) {
    turn_end_ = turn_end_of(folder);
    if (!turn_end_) return;
    constexpr const char* kFile = "generation_config.json";
    nlohmann::json config =
        fs::exists(folder / kFile) ? read_config(folder, kFile) : nlohmann::json::object();
    const Tokenizer tokenizer = Tokenizer::from_file(*Tokenizer::find_file(folder));
    std::vector<int32_t> ends = read_special_tokens(folder, tokenizer).eos;
    ends.push_back(*turn_end_);
    config["eos_token_id"] = ends;
    write_file_atomically(folder / kFile, config.dump(2) + "\n");
  }

  void write_model(const fs::path& out) {
    if (merges()) {
      MergeOptions merging{.adapter = *paths_.adapter, .base = paths_.base, .out = out, .dtype = dtype()};
      if (options_.into != MergeInto::base) merging.trained = trained_;
      merge(merging);
      return;
    }
    constexpr int64_t kShard = 5'000'000'000;
    convert_model({.folder = paths_.base, .out = out, .dtype = dtype(), .shard_bytes = kShard});
  }

  void copy_adapter(const fs::path& out) const {
    fs::create_directory(out);
    for (const auto& entry : fs::directory_iterator(*paths_.adapter)) {
      const std::string name = entry.path().filename().string();
      const bool weights =
          name.starts_with("adapter_model.safetensors") || name.starts_with("adapter_model-");
      if (entry.is_regular_file() && (weights || name == "README.md"))
        copy_model_file(*paths_.adapter, name, out);
    }
    copy_model_files(*paths_.adapter, out);
    // Paths are from the run's place; the base is where it is.
    nlohmann::ordered_json config =
        nlohmann::ordered_json::parse(read_text(out / "adapter_config.json", kMostConfig));
    if (!is_hub_name(config.value("base_model_name_or_path", std::string()), true))
      config["base_model_name_or_path"] = fs::absolute(paths_.base).lexically_normal().string();
    write_file_atomically(out / "adapter_config.json", config.dump(2) + "\n");
  }

  // The template that rendered the rows; none: they had none.
  [[nodiscard]] std::optional<ChatTemplate> template_of_rows() const {
    const fs::path own = is_run_ ? options_.folder : model_;
    const bool rendered = !is_run_ || fs::exists(own / kTemplateFile);
    return rendered ? ChatTemplate::of_folder(own, std::nullopt) : std::nullopt;
  }

  void write_modelfile(const fs::path& stage) {
    const auto chat = template_of_rows();
    ModelfileFacts facts;
    facts.stops = end_texts(model_, chat);
    facts.context = modelfile_context();
    if (!chat) {
      facts.go_template = "{{ .Prompt }}";
      result_.notes.emplace_back("the rows had no chat template: TEMPLATE passes the prompt as it is");
    } else {
      TurnsFound found = find_turns(*chat, text_before());
      if (found.turns) facts.go_template = found.turns->in_go();
      if (!found.turns)
        result_.notes.push_back(
            formatted("TEMPLATE is left out: the chat template {}; Ollama reads the one in the file itself",
                      found.why));
      if (found.turns && !found.turns->takes_system)
        result_.notes.emplace_back(
            "TEMPLATE leaves system messages out: the chat template has no place for one");
    }
    write_file_atomically(stage / kModelfile, modelfile_text(facts));
  }

  [[nodiscard]] int64_t modelfile_context() const {
    constexpr int64_t kUsual = 2048;
    const int64_t positions = read_model_spec(paths_.base / "config.json").max_positions;
    return std::min(positions, std::max(kUsual, context_.value_or(kUsual)));
  }

  // The text that llama.cpp puts before every other one by itself.
  [[nodiscard]] std::string text_before() const {
    const auto path = Tokenizer::find_file(model_);
    if (!path) return "";
    const Tokenizer tokenizer = Tokenizer::from_file(*path);
    const SpecialTokens special = read_special_tokens(model_, tokenizer);
    const auto ids = tokenizer.encode("a", true);
    return special.bos && !ids.empty() && ids.front() == *special.bos ? tokenizer.token(*special.bos) : "";
  }

  void check(const fs::path& stage, const LossResult& trained) {
    const bool gguf = is_gguf(options_.to);
    const fs::path made = stage / (gguf ? "view" : "model");
    const GgufKind kind = options_.kind.value_or(kind_of(stored_type()));
    const double tolerance = options_.tolerance.value_or(usual_tolerance(kind, *options_.precision));
    LossResult reference = trained;
    if (over_plain_base()) {
      result_.over_quantised = trained.loss;
      result_.format = trained_->quantisation.format;
      reference = over_base(stage).loss;
    }
    result_.check = compare_losses(reference, losses_of(made).loss, tolerance, out_.string());
    if (gguf) check_gguf(made, model_);
    if (!serves_adapter()) check_end_tokens(made, paths_.base, turn_end_);
    if (options_.to != ExportTo::ollama) return;
    const ModelfileFacts facts = read_modelfile(read_text(stage / kModelfile, kMostConfig));
    if (facts.stops != end_texts(paths_.base, template_of_rows()))
      throw DamagedError(
          formatted("{}: its stops are not the end tokens of the model; nothing was exported", kModelfile));
  }

  [[nodiscard]] DType stored_type() const {
    const ModelFolder base = ModelFolder::open(paths_.base);
    return base.find(base.names().front()).entry->dtype;
  }

  Evaluation losses_of(const fs::path& weights) const {
    EvalOptions requested = options_;
    requested.sources = std::make_shared<RecipeSources>();
    requested.weights = weights;
    return evaluate(requested);
  }

  // The adapter over the base's own weights: without its recipe nothing says that it was trained over others.
  Evaluation over_base(const fs::path& stage) const {
    if (serves_adapter()) return losses_of(stage / "model");
    const fs::path copy = stage / "adapter";
    copy_adapter(copy);
    Evaluation evaluation = losses_of(copy);
    fs::remove_all(copy);
    return evaluation;
  }

  void tidy(const fs::path& stage) const {
    if (!is_gguf(options_.to)) return lift(stage / "model");
    for (const char* name : {kGgufFile, "README.md"})
      if (fs::exists(stage / "view" / name)) fs::rename(stage / "view" / name, stage / name);
    fs::remove_all(stage / "view");
    fs::remove_all(stage / "merged");
  }

  void list_files(const fs::path& stage) {
    for (const auto& entry : fs::directory_iterator(stage)) {
      result_.files.push_back({entry.path().filename().string(), static_cast<int64_t>(entry.file_size())});
      result_.bytes += result_.files.back().bytes;
    }
    std::sort(result_.files.begin(), result_.files.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  }

  [[nodiscard]] std::string check_json() const {
    const LossCheck& check = result_.check;
    nlohmann::ordered_json json = {{"rows", check.rows},
                                   {"target_tokens", check.tokens},
                                   {"loss_of_run", check.run},
                                   {"loss_of_export", check.exported},
                                   {"mean_difference", check.difference},
                                   {"largest_difference_of_a_row", check.largest},
                                   {"tolerance", check.tolerance}};
    if (result_.over_quantised) json[over_key(result_)] = *result_.over_quantised;
    return json.dump(2) + "\n";
  }

  void name_next() {
    const std::string out = plimsoll::quoted(out_.string());
    std::string name = fs::path(options_.folder).lexically_normal().filename().string();
    if (name.empty()) name = "model";
    switch (options_.to) {
      case ExportTo::merged:
        result_.next.push_back(formatted("plimsoll {} {}", command_, out));
        break;
      case ExportTo::gguf:
        result_.next.push_back("llama-server -m " + plimsoll::quoted((out_ / kGgufFile).string()));
        break;
      case ExportTo::ollama:
        result_.next.push_back(formatted("ollama create {} -f {}", plimsoll::quoted(name),
                                         plimsoll::quoted((out_ / kModelfile).string())));
        break;
      case ExportTo::vllm:
        result_.next.push_back(serves_adapter() ? vllm_command(name) : "vllm serve " + out);
    }
  }

  [[nodiscard]] std::string vllm_command(const std::string& name) const {
    LoraOptions lora;
    read_adapter_config(*paths_.adapter, lora, true);
    return formatted("vllm serve {} --enable-lora --max-lora-rank {} --lora-modules {}",
                     plimsoll::quoted(paths_.base.string()), vllm_rank(lora),
                     plimsoll::quoted(formatted("{}={}", name, out_.string())));
  }

  static constexpr int64_t kMostConfig = int64_t{1} << 20;

  ExportOptions options_;
  ModelPaths paths_;
  fs::path out_, model_;                // model_: what a GGUF is made of
  std::optional<TrainedBase> trained_;  // of a QLoRA run
  bool stores_quantised_ = false;       // the base's folder has quantised weights
  std::optional<int64_t> context_;
  std::optional<int32_t> turn_end_;  // that a merged folder names in addition
  bool is_run_ = false;
  std::string command_ = "chat";  // of this program, which tries the merged folder
  ExportResult result_;
};

}  // namespace

std::string over_key(const ExportResult& result) {
  return formatted("loss_of_run_over_{}", to_string(result.format));
}

ExportResult export_run(const ExportOptions& options) { return Exporter(options).run(); }

}  // namespace plimsoll
