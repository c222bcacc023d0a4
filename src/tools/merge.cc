#include "tools/merge.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "files/atomic.h"
#include "files/json.h"
#include "files/new_folder.h"
#include "formats/convert.h"
#include "formats/load.h"
#include "formats/model_writer.h"
#include "models/family.h"
#include "models/model.h"
#include "models/wrapper.h"
#include "ops/linear/int8.h"
#include "passes/adapter_rules.h"
#include "passes/embedding_adapter.h"
#include "prepare/model_paths.h"
#include "prepare/setup.h"
#include "recipe/load/load.h"
#include "runs/model_card.h"
#include "weights/adapter_config.h"
#include "weights/adapter_start.h"
#include "weights/quantised_weights.h"
#include "weights/row_io.h"
#include "weights/weights.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

std::vector<float> read_f32(const StoredTensor& tensor, std::span<std::byte> staging) {
  std::vector<float> values(static_cast<size_t>(tensor.entry->shape.elements()));
  const auto bytes = std::as_writable_bytes(std::span(values));
  load_elements(tensor, 0, bytes, DType::f32, staging);
  require_finite(tensor, 0, bytes, DType::f32);
  return values;
}

// The low-rank update of one weight.
struct Update {
  std::vector<float> a;          // [r, in]
  std::vector<float> b;          // [out, r]
  std::vector<float> magnitude;  // [out]; empty: not DoRA
  int64_t r = 0, in = 0;
  float scale = 1.0F;

  // weight [rows, in] += scale * B[first_row ..] A, then rows of DoRA get their lengths
  void add_to(std::span<float> weight, int64_t first_row) const {
    const auto rows = static_cast<int64_t>(weight.size()) / in;
    for (int64_t row = 0; row < rows; ++row) {
      float* to = weight.data() + row * in;
      for (int64_t k = 0; k < r; ++k) {
        const float factor = scale * b[static_cast<size_t>((first_row + row) * r + k)];
        const float* from = a.data() + k * in;
        for (int64_t i = 0; i < in; ++i) to[i] += factor * from[i];
      }
      if (!magnitude.empty()) give_length(std::span(to, static_cast<size_t>(in)), first_row + row);
    }
  }

  // A row of zeros stays one, as in training.
  void give_length(std::span<float> row, int64_t number) const {
    double squares = 0;
    for (const float x : row) squares += static_cast<double>(x) * x;
    if (squares == 0) return;
    const double factor = magnitude[static_cast<size_t>(number)] / std::sqrt(squares);
    for (float& x : row) x = static_cast<float>(factor * x);
  }
};

class Merger {
 public:
  explicit Merger(const MergeOptions& options)
      : options_(options), staging_(static_cast<size_t>(kLoadStagingBytes)) {
    check_is_adapter();
    LoraOptions lora;
    read_adapter_config(options.adapter, lora, true);
    rules_.emplace(lora);
    dora_ = lora.dora;
    result_.base = options.base ? *options.base : named_base();
    const nlohmann::json config = read_config(result_.base);
    stores_quantised_ = config.contains("quantization_config");
    if (stores_quantised_ && !options_.trained)
      throw UsageError(result_.base.string() +
                       ": is quantised; merging would round it again. Name the 16-bit model with --base");
    base_.emplace(ModelFolder::open(result_.base));
    // Other models are merged by the names of their tensors alone, whatever their family.
    const auto type = config.find("model_type");
    if (type != config.end() && type->is_string())
      require_whole(type->get<std::string>(), config, base_->names(), result_.base.string());
    adapter_.emplace(ModelFolder::open(options.adapter, "adapter_model"));
    check_head();
    find_quantised();
    check_modules();
    check_saved();
    if (parts_head_ && model_.encoder_decoder)
      throw UsageError(options_.adapter.string() +
                       ": changes one of T5's head and embedding, which are one weight in its folder: "
                       "transformers ties them whatever the folder says. Use the adapter beside its base");
  }

  MergeResult run() {
    const fs::path out = require_new(options_.out, {options_.adapter, result_.base});
    std::vector<Shard> shards = stored_shards(*base_, options_.dtype);
    if (stores_quantised_) put_whole(shards);
    const int64_t bytes = shards_bytes(shards);
    require_disk_space(out, bytes + bytes / 100, "the merged model", "choose another folder with --out");
    NewFolder folder(out);
    if (!head_.empty()) put_head(shards);
    put_saved(shards);
    for (const Shard& shard : shards) write_shard(folder.path(), shard);
    write_shard_index(shards, folder.path(), "model");
    copy_model_files(result_.base, folder.path());
    // The template that rendered the rows of the training.
    if (constexpr const char* kTemplate = "chat_template.jinja"; fs::exists(options_.adapter / kTemplate))
      copy_model_file(options_.adapter, kTemplate, folder.path());
    if (fs::exists(options_.adapter / kValueHeadFile))
      fs::copy_file(options_.adapter / kValueHeadFile, folder.path() / kValueHeadFile);
    if (!head_.empty()) describe_scores(folder.path());
    if (parts_head_) part_head(folder.path());
    if (stores_quantised_) describe_whole(folder.path());
    if (options_.dtype) set_config_dtype(folder.path(), *options_.dtype);
    write_file_atomically(folder.path() / "README.md", merged_card(result_.base, options_.adapter));
    folder.publish();
    return result_;
  }

 private:
  static constexpr const char* kPrefix = "base_model.model.";
  static constexpr const char* kLmHead = "lm_head.weight";
  static constexpr std::string_view kHeadModule = "lm_head";
  static constexpr const char* kMagnitude = ".lora_magnitude_vector";
  struct AdapterNames {
    std::string_view a, b;
  };
  static constexpr AdapterNames kLinearNames = {".lora_A.weight", ".lora_B.weight"};
  static constexpr AdapterNames kEmbeddingNames = {kEmbeddingA, kEmbeddingB};

  void check_is_adapter() const {
    const fs::path file = options_.adapter / "adapter_config.json";
    if (fs::is_directory(options_.adapter) && !fs::exists(file))
      throw UsageError(formatted("{}: has no adapter_config.json, so it is no adapter{}",
                                 options_.adapter.string(),
                                 fs::exists(options_.adapter / "config.json")
                                     ? "; it is a whole model, and there is nothing to merge"
                                     : ""));
  }

  fs::path named_base() const {
    const fs::path file = options_.adapter / "adapter_config.json";
    const nlohmann::json config = read_config(options_.adapter, "adapter_config.json");
    const auto named = config.find("base_model_name_or_path");
    if (named != config.end() && !named->is_string() && !named->is_null())
      throw DamagedError(formatted("{}: base_model_name_or_path is {}, a string is expected", file.string(),
                                   describe_kind(*named)));
    const auto name = named == config.end() || named->is_null() ? "" : named->get<std::string>();
    if (auto base = base_of_adapter(options_.adapter)) return *std::move(base);
    throw UsageError(
        formatted("{}: base_model_name_or_path '{}' is no model folder here; name it with --base",
                  file.string(), name));
  }

  // Every adapter must find its weight, and of the right shape.
  void check_modules() {
    for (const std::string& name : adapter_->names()) {
      const bool embedding = name.ends_with(kEmbeddingNames.a);
      const AdapterNames& names = embedding ? kEmbeddingNames : kLinearNames;
      if (!name.ends_with(names.a)) continue;
      if (!name.starts_with(kPrefix))
        throw UsageError(formatted("{}: '{}' is no name that PEFT writes", options_.adapter.string(), name));
      const size_t start = std::string_view(kPrefix).size();
      const std::string module = name.substr(start, name.size() - start - names.a.size());
      if (embedding || module == kHeadModule) check_tied(module);
      const Shape weight = shape_of(module + ".weight");
      const Shape& a = adapter_->find(name).entry->shape;
      const Shape& b = adapter_->find(kPrefix + module + std::string(names.b)).entry->shape;
      const int64_t r = rules_->size_of(module).r;
      const size_t in = embedding ? 0 : 1;
      if (weight.rank() != 2 || a != Shape{r, weight[in]} || b != Shape{weight[1 - in], r})
        throw UsageError(
            formatted("{}: the adapter of {}, {} and {}, does not belong to a weight of {} in {}",
                      options_.adapter.string(), module, a.to_string(), b.to_string(), weight.to_string(),
                      result_.base.string()));
      if (dora_ && adapter_->find(kPrefix + module + kMagnitude).entry->shape != Shape{weight[0]})
        throw UsageError(
            formatted("{}: the magnitudes of {} are not {}", options_.adapter.string(), module, weight[0]));
      modules_.emplace(module, embedding);
    }
    if (modules_.empty()) throw UsageError(options_.adapter.string() + ": holds no LoRA weights");
  }

  // One of the two changes, and they are no longer the same.
  void check_tied(const std::string& module) {
    model_ = read_model({result_.base, options_.adapter}, files_);
    if (!model_.tied_head) return;
    const std::string table = embedding_module(model_) + ".weight";
    parts_head_ = parts_head_ || module == kHeadModule || module + ".weight" == table;
  }

  // A weight of the base, which may be saved below an adapter; of a head that is tied to the embedding, that.
  [[nodiscard]] StoredTensor stored(const std::string& weight) const {
    const std::string below = kPrefix + weight.substr(0, weight.rfind('.')) + std::string(kBaseLayer);
    if (adapter_->contains(below)) return adapter_->find(below);
    if (!parts_head_ || weight != kLmHead || base_->contains(kLmHead)) return base_->find(weight);
    return stored(embedding_module(model_) + ".weight");
  }

  // PEFT saves the weight below an adapted embedding in addition.
  static bool is_low_rank(const std::string& name) {
    return name.ends_with(kLinearNames.a) || name.ends_with(kLinearNames.b) || name.ends_with(kMagnitude) ||
           name.ends_with(kEmbeddingNames.a) || name.ends_with(kEmbeddingNames.b) ||
           name.ends_with(kBaseLayer);
  }

  // A head that scores sequences, saved whole with the adapter and with whatever else was new; it takes the
  // place of the one for next tokens.
  void check_head() {
    const std::vector<std::string> names = adapter_->names();
    if (std::all_of(names.begin(), names.end(), is_low_rank)) return;
    model_ = read_model({result_.base, options_.adapter}, files_);
    const std::string name = formatted("{}{}.weight", kPrefix, score_module(model_));
    if (!adapter_->contains(name)) return;
    base_->put_below_head(score_prefix(model_));
    const Shape& scores = adapter_->find(name).entry->shape;
    outputs_ = scores.rank() == 2 ? scores[0] : 0;
    const Graph graph =
        build_scores(model_, {1, 1, 1}, DType::f32, std::max<int64_t>(outputs_, 1), Mode::evaluate, "").graph;
    for (const Tensor& tensor : graph.tensors()) {
      if (tensor.role != Role::frozen_weight) continue;
      read_.insert(tensor.name);
      if (tensor.parameter.origin != Origin::fresh) continue;
      const StoredTensor saved = adapter_->find(kPrefix + std::string(tensor.name));
      if (saved.entry->shape != tensor.shape)
        throw UsageError(formatted("{}: its head, {}, does not belong to a model of width {}",
                                   options_.adapter.string(), saved.entry->shape.to_string(), model_.hidden));
      head_.emplace(tensor.name, saved);
    }
  }

  // Other weights that are saved whole take the place of the base's.
  void check_saved() {
    for (const std::string& name : adapter_->names()) {
      if (is_low_rank(name)) continue;
      if (head_.contains(name.substr(std::min(name.size(), std::string_view(kPrefix).size())))) continue;
      if (name.find(".lora_") != std::string::npos || !name.starts_with(kPrefix))
        throw UsageError(formatted(
            "{}: '{}' is not supported: adapters of linear layers and embeddings, and modules that are "
            "saved whole, are",
            options_.adapter.string(), name));
      saved_.emplace(name.substr(std::string_view(kPrefix).size()), adapter_->find(name));
    }
    if (saved_.empty()) return;
    for (const auto& [weight, tensor] : saved_) {
      const bool own_head = weight == kLmHead && model_.tied_head;
      const Shape expected = own_head ? Shape{model_.vocab, model_.hidden} : base_->find(weight).entry->shape;
      if (tensor.entry->shape != expected)
        throw UsageError(formatted("{}: its {}, {}, does not belong to a model where it is {}",
                                   options_.adapter.string(), weight, tensor.entry->shape.to_string(),
                                   expected.to_string()));
    }
    // The embedding alone has changed, and the head that was tied to it has not.
    const std::string table = embedding_module(model_) + ".weight";
    if (model_.tied_head && head_.empty() && saved_.contains(table) && !modules_.contains(kHeadModule))
      saved_.emplace(kLmHead, base_->find(table));
    parts_head_ = parts_head_ || (model_.tied_head && saved_.contains(kLmHead));
  }

  // The weights that the run had quantised, adapted or not, as its own program has them, and those that its base stores so:
  // method.unquantised may have named these.
  void find_quantised() {
    if (!options_.trained) return;
    const ModelSpec model = read_model({result_.base, options_.adapter}, files_);
    const BatchShape least{1, 1, 1};
    const Graph graph = head_.empty() ? build_loss(model, least, DType::f32, 1, Mode::evaluate, "loss")
                                      : build_scores(model, least, DType::f32, std::max<int64_t>(outputs_, 1),
                                                     Mode::evaluate, "")
                                            .graph;
    const Graph made = quantise(graph, options_.trained->quantisation);
    // Codes keep the names of their weights, and their numbers.
    for (size_t i = 0; i < graph.tensors().size(); ++i) {
      const Tensor& whole = graph.tensors()[i];
      const bool by_run = made.tensors()[i].dtype != whole.dtype;
      if (by_run) quantised_by_run_.insert(whole.name);
      if (by_run || (stores_quantised_ && is_persistent(whole.role) && whole.shape.rank() == 2 &&
                     open_quantised(*base_, whole.name, whole.shape) != nullptr))
        quantised_.emplace(whole.name, whole.shape);
    }
  }

  // A weight that the base stores in 4 bits is a list of bytes there.
  [[nodiscard]] Shape shape_of(const std::string& weight) const {
    const auto found = quantised_.find(weight);
    return stores_quantised_ && found != quantised_.end() ? found->second : stored(weight).entry->shape;
  }

  // The weights themselves instead of their codes and scales, in the type of what is not quantised.
  void put_whole(std::vector<Shard>& shards) const {
    std::optional<DType> whole = options_.dtype;
    for (const Shard& shard : shards)
      for (const TensorSpec& spec : shard.tensors)
        if (!whole && spec.shape.rank() == 2 && can_convert(spec.dtype, DType::f32)) whole = spec.dtype;
    for (Shard& shard : shards) {
      std::erase_if(shard.tensors, [&](const TensorSpec& spec) {
        return !quantised_.contains(spec.name) && quantised_.contains(quantised_weight_of(spec.name));
      });
      for (TensorSpec& spec : shard.tensors)
        if (const auto found = quantised_.find(spec.name); found != quantised_.end())
          spec = {spec.name, whole.value_or(DType::f32), found->second, spec.in_file};
    }
  }

  // The weight that a tensor holds scales or other facts of: named after it in 4 bits, after its module in 8.
  static std::string quantised_weight_of(const std::string& name) {
    constexpr std::string_view kWeight = ".weight";
    const size_t end = name.find(formatted("{}.", kWeight));
    if (end != std::string::npos) return name.substr(0, end + kWeight.size());
    const bool is_fact = name.ends_with(kInt8AbsmaxSuffix) || name.ends_with(kInt8FormatSuffix);
    return is_fact ? name.substr(0, name.rfind('.')) + std::string(kWeight) : "";
  }

  static void describe_whole(const fs::path& folder) {
    nlohmann::json config = read_config(folder);
    config.erase("quantization_config");
    write_file_atomically(folder / "config.json", config.dump(2) + "\n");
  }

  // Other heads go: of an encoder whatever the model with this head does not have (cls.predictions, a
  // pooler).
  void put_head(std::vector<Shard>& shards) const {
    for (Shard& shard : shards)
      std::erase_if(shard.tensors, [&](const TensorSpec& spec) {
        return head_.contains(spec.name) || spec.name == kLmHead ||
               (model_.encoder && !read_.contains(spec.name));
      });
    std::erase_if(shards, [](const Shard& shard) { return shard.tensors.empty(); });
    check_internal(!shards.empty(), "a model without weights was merged");
    const DType dtype = shards.back().tensors.front().dtype;
    for (const auto& [name, tensor] : head_)
      shards.back().tensors.push_back({name, dtype, tensor.entry->shape});
  }

  void put_saved(std::vector<Shard>& shards) const {
    std::set<std::string> there;
    for (const Shard& shard : shards)
      for (const TensorSpec& spec : shard.tensors) there.insert(spec.name);
    const DType dtype = shards.back().tensors.front().dtype;
    for (const auto& [name, tensor] : saved_)
      if (!there.contains(name)) shards.back().tensors.push_back({name, dtype, tensor.entry->shape});
    if (parts_head_ && !there.contains(kLmHead) && !saved_.contains(kLmHead))
      shards.back().tensors.push_back({kLmHead, dtype, stored(kLmHead).entry->shape});
  }

  static void part_head(const fs::path& folder) {
    nlohmann::json config = read_config(folder);
    config["tie_word_embeddings"] = false;
    write_file_atomically(folder / "config.json", config.dump(2) + "\n");
  }

  // The names of the classes are in the recipe of the run that made the adapter.
  void describe_scores(const fs::path& folder) const {
    const fs::path own = options_.adapter / "recipe.yaml";
    TaskSpec task{.task = model_.encoder ? Task::classify : Task::reward, .outputs = outputs_};
    std::vector<std::string> labels;
    if (fs::exists(own)) {
      const Recipe recipe = load_recipe(own.string(), {}).recipe;
      task.task = recipe.task;
      task.problem = recipe.classify.problem;
      labels = recipe.classify.labels;
    }
    nlohmann::json config = read_config(folder);
    describe_head({task, model_, labels}, config);
    write_file_atomically(folder / "config.json", config.dump(2) + "\n");
  }

  std::optional<Update> update_of(const std::string& weight) {
    constexpr std::string_view kWeight = ".weight";
    if (!weight.ends_with(kWeight)) return std::nullopt;
    const std::string module = weight.substr(0, weight.size() - kWeight.size());
    const auto found = modules_.find(module);
    if (found == modules_.end()) return std::nullopt;
    const auto [r, scale] = rules_->size_of(module);
    const auto factor = static_cast<float>(scale);
    const auto part = [&](std::string_view name) {
      return adapter_->find(kPrefix + module + std::string(name));
    };
    if (found->second) {
      // The table has tokens as rows: it changes by scale * A^T B^T.
      const int64_t width = part(kEmbeddingNames.b).entry->shape[0];
      return Update{transposed(read_f32(part(kEmbeddingNames.b), staging_), r),
                    transposed(read_f32(part(kEmbeddingNames.a), staging_), model_.vocab),
                    {},
                    r,
                    width,
                    factor};
    }
    return Update{read_f32(part(kLinearNames.a), staging_),
                  read_f32(part(kLinearNames.b), staging_),
                  dora_ ? read_f32(part(kMagnitude), staging_) : std::vector<float>(),
                  r,
                  part(kLinearNames.a).entry->shape[1],
                  factor};
  }

  void write_shard(const fs::path& folder, const Shard& shard) {
    SafetensorsWriter writer(folder / shard.file, shard.tensors, {{"format", "pt"}});
    for (const TensorSpec& spec : writer.tensors()) {
      if (const auto head = head_.find(spec.name); head != head_.end()) {
        write_saved(writer, spec, head->second);
        continue;
      }
      if (const auto saved = saved_.find(spec.name); saved != saved_.end()) {
        write_saved(writer, spec, saved->second);
        continue;
      }
      const StoredTensor tensor = stored(spec.name);
      const auto update = update_of(spec.name);
      if (update || quantised_.contains(spec.name)) {
        write_merged(writer, spec, tensor, update ? &*update : nullptr);
        result_.merged += update ? 1 : 0;
      } else if (tensor.entry->name != spec.name) {
        write_saved(writer, spec, tensor);
        continue;
      } else {
        copy_tensor(tensor, spec.dtype, writer, staging_);
      }
      ++result_.tensors;
      result_.bytes += bytes_of(spec);
    }
    writer.finish();
  }

  // Under its name in the model, not in the adapter.
  void write_saved(SafetensorsWriter& writer, const TensorSpec& spec, const StoredTensor& saved) {
    const DType dtype = spec.dtype;
    const int64_t elements = saved.entry->shape.elements();
    const int64_t piece = kLoadStagingBytes / 4;
    std::vector<std::byte> out(static_cast<size_t>(std::min(piece, elements) * size_of(dtype)));
    for (int64_t at = 0; at < elements; at += piece) {
      const auto part =
          std::span(out).first(static_cast<size_t>(std::min(piece, elements - at) * size_of(dtype)));
      load_elements(saved, at, part, dtype, staging_);
      require_finite(saved, at, part, dtype);
      writer.write(spec.name, part);
    }
    ++result_.tensors;
    result_.bytes += elements * size_of(dtype);
  }

  // Rows at a time, so that no weight is in memory as a whole: as the run had it. `update`: null for a weight that is in
  // quantised_ and was not adapted.
  void write_merged(SafetensorsWriter& writer, const TensorSpec& spec, const StoredTensor& tensor,
                    const Update* update) {
    const int64_t rows = spec.shape[0], in = spec.shape.last();
    const DType dtype = spec.dtype;
    std::unique_ptr<StoredCodes> codes;
    std::unique_ptr<RoundTrip> trip;
    if (quantised_.contains(spec.name) && stores_quantised_)
      codes = open_quantised(*base_, spec.name, spec.shape);
    if (!codes && quantised_by_run_.contains(spec.name))
      trip = round_trip(tensor, options_.trained->quantisation, options_.trained->compute, staging_);
    const int64_t least = trip ? trip->least_rows(in) : 1;
    const int64_t block = std::min(rows, std::max<int64_t>(1, kLoadStagingBytes / (in * 4) / least) * least);
    std::vector<float> values(static_cast<size_t>(block * in));
    std::vector<std::byte> rounded(values.size() * static_cast<size_t>(size_of(dtype)));
    for (int64_t row = 0; row < rows; row += block) {
      const auto count = static_cast<size_t>(std::min(block, rows - row) * in);
      const auto part = std::span(values).first(count);
      if (codes) {
        codes->read(row * in, part);
        round_to(options_.trained->compute, part);
      } else {
        load_elements(tensor, row * in, std::as_writable_bytes(part), DType::f32, staging_);
      }
      require_finite(tensor, row * in, std::as_bytes(part), DType::f32);
      if (trip) trip->apply(row * in, part);
      if (update != nullptr) update->add_to(part, row);
      const auto out = std::span(rounded).first(count * static_cast<size_t>(size_of(dtype)));
      convert(std::as_bytes(part), DType::f32, out, dtype);
      if (const auto bad = find_not_finite(out, dtype))
        throw DamagedError(formatted(
            "{}: with it element {} of {} becomes NaN or infinite as {}: the adapter's values or its "
            "lora_alpha are too large",
            options_.adapter.string(), row * in + *bad, spec.name, to_string(dtype)));
      writer.write(spec.name, out);
    }
  }

  MergeOptions options_;
  std::optional<AdapterRules> rules_;
  bool dora_ = false;
  MergeResult result_;
  std::optional<ModelFolder> base_, adapter_;
  ModelFiles files_;
  ModelSpec model_;
  std::map<std::string, StoredTensor, std::less<>> head_;   // by name in the model; empty: no such head
  std::set<std::string> read_;                              // by the model with that head
  int64_t outputs_ = 0;                                     // of the head
  std::map<std::string, StoredTensor, std::less<>> saved_;  // by the weight's name in the model
  bool parts_head_ = false;        // it was tied to the embedding, and is no longer the same
  bool stores_quantised_ = false;  // the base's folder has quantised weights
  // Weights that the run had so, or that the base's folder has; and those of the run alone.
  std::map<std::string, Shape, std::less<>> quantised_;
  std::set<std::string, std::less<>> quantised_by_run_;
  std::map<std::string, bool, std::less<>> modules_;  // whether it is an embedding
  std::vector<std::byte> staging_;
};

}  // namespace

MergeResult merge(const MergeOptions& options) { return Merger(options).run(); }

}  // namespace plimsoll
