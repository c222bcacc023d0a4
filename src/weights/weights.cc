#include "weights/weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"
#include "cpu/threads.h"
#include "files/atomic.h"
#include "formats/convert.h"
#include "formats/load.h"
#include "formats/model_folder.h"
#include "models/family.h"
#include "models/model.h"
#include "models/wrapper.h"
#include "ops/name_hash.h"
#include "ops/philox.h"
#include "recipe/hub.h"
#include "weights/adapter_config.h"
#include "weights/adapter_start.h"
#include "weights/gguf_names.h"
#include "weights/quantised_weights.h"
#include "weights/rank_reader.h"
#include "weights/row_io.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPeftPrefix = "base_model.model.";

// Has `load` fill the weight's master, from which the weight is rounded; the weight itself where it has none. Where
// this rank has a piece of the master alone, each is filled by itself, with the same values.
template <class Load>
void load_master_first(const PersistentState& state, const TableRow& row, std::span<std::byte> staging,
                       Load load) {
  const TableRow* master = state.master_of(row);
  load(master != nullptr ? *master : row);
  if (master == nullptr) return;
  if (master->is_piece())
    load(row);
  else
    round_from_master(state, row, *master, staging);
}

// Fills a tensor with f32 values from `value(element)`, which compute threads ask.
template <class Value>
void fill_one(const PersistentState& state, const TableRow& target, std::span<std::byte> staging,
              Value value) {
  const int64_t size = size_of(target.dtype);
  state.fill(target, staging, [&](int64_t start, std::span<std::byte> piece) {
    constexpr int64_t kWorthAThread = 4096;
    on_all_threads(static_cast<int64_t>(piece.size()) / size, kWorthAThread, [&](int64_t begin, int64_t end) {
      std::byte* to = piece.data() + begin * size;
      for (int64_t i = begin; i < end; ++i, to += size) {
        const float x = value(start / size + i);
        if (target.dtype == DType::f32) {
          std::memcpy(to, &x, sizeof x);
        } else {
          const uint16_t half = target.dtype == DType::f16 ? f16_from_f32(x) : bf16_from_f32(x);
          std::memcpy(to, &half, sizeof half);
        }
      }
    });
  });
}

// Fills a weight and, where it has one, its master.
template <class Value>
void fill(const PersistentState& state, const TableRow& row, std::span<std::byte> staging, Value value) {
  load_master_first(state, row, staging,
                    [&](const TableRow& target) { fill_one(state, target, staging, value); });
}

// Uniform in (0, 1), element by element.
class Uniform {
 public:
  Uniform(uint64_t seed, std::string_view name, uint32_t draw)
      : stream_(philox_stream(seed, name_hash(name), 0, 0, draw)) {}
  double operator()(int64_t element) const {
    return (static_cast<double>(philox_bits32(stream_, element)) + 0.5) * 0x1p-32;
  }

 private:
  PhiloxStream stream_;
};

// The values that a new weight begins with, element by element.
class NewValues {
 public:
  NewValues(const TableRow& row, uint64_t seed, double normal_range)
      : init_(row.parameter.init), first_(seed, row.name, 0), second_(seed, row.name, 1) {
    // Kaiming-uniform with a = sqrt(5) is uniform within 1 / sqrt(inputs).
    if (init_ == Initialiser::kaiming_uniform)
      range_ = 1.0 / std::sqrt(static_cast<double>(row.whole_shape().last()));
    else
      range_ = normal_range;
  }
  float operator()(int64_t element) const {
    switch (init_) {
      case Initialiser::zeros:
        return 0.0F;
      case Initialiser::ones:
        return 1.0F;
      case Initialiser::kaiming_uniform:
        return static_cast<float>((2.0 * first_(element) - 1.0) * range_);
      case Initialiser::row_norms:
        throw InternalError("NewValues: lengths of rows are those of another weight");
      case Initialiser::normal:
        break;
    }
    // Box-Muller
    const double normal =
        std::sqrt(-2.0 * std::log(first_(element))) * std::cos(2.0 * std::numbers::pi * second_(element));
    return static_cast<float>(normal * range_);
  }

 private:
  Initialiser init_;
  Uniform first_, second_;
  double range_ = 0;
};

// A head that is tied to the embedding, and parted from it because one of the two trains, begins as it.
std::string stored_name(const PersistentState& state, const ModelFolder& model,
                        const std::vector<const TableRow*>& rows, const TableRow& row) {
  const ParameterInfo& facts = row.parameter;
  if (std::none_of(state.rows().begin(), state.rows().end(), is_adapter)) return row.name;
  if (facts.part != WeightPart::head || facts.origin != Origin::checkpoint ||
      !read_model_spec(model.path() / "config.json").tied_head)
    return row.name;
  const auto table = std::find_if(
      rows.begin(), rows.end(), [](const TableRow* r) { return r->parameter.part == WeightPart::embedding; });
  check_internal(table != rows.end(), "a tied head without an embedding");
  return (*table)->name;
}

void load_one(const PersistentState& state, const TableRow& row, const StoredTensor& stored,
              std::span<std::byte> staging, RankReader* reader) {
  load_master_first(state, row, staging, [&](const TableRow& target) {
    if (reader != nullptr)
      reader->load(state, target, stored, staging);
    else
      load_row(state, target, stored, staging);
  });
}

// Whole values, also of what the folder has quantised.
void load_whole(const PersistentState& state, const TableRow& row, const ModelFolder& model,
                const std::string& name, std::span<std::byte> staging, RankReader* reader) {
  const auto quantised = open_quantised(model, name, row.whole_shape());
  if (!quantised) return load_one(state, row, model.find(name), staging, reader);
  load_master_first(state, row, staging,
                    [&](const TableRow& target) { load_from_quantised(state, target, *quantised, staging); });
}

void write_kept(const KeptFiles& files, const fs::path& to) {
  for (const std::string& name : files.names()) files.write(name, to / name);
}

const char* torch_name(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
}

// Whatever the row, the name of its weight.
std::string weight_name(const TableRow& row) {
  if (row.role != Role::master) return row.name;
  return row.name.substr(0, row.name.size() - std::string_view(kMasterSuffix).size());
}

void copy_tensor(const StoredTensor& from, SafetensorsWriter& writer, std::string_view name,
                 std::span<std::byte> staging) {
  for (int64_t done = 0; done < from.entry->bytes;) {
    const auto part = staging.first(std::min(staging.size(), static_cast<size_t>(from.entry->bytes - done)));
    from.file->read(*from.entry, done, part);
    writer.write(name, part);
    done += std::ssize(part);
  }
}

// Rows to export under the names that `rename` gives them (what ranks divide is left out: each writes its piece), and
// what `from` copies, null: nothing.
template <class Rename>
std::optional<uint32_t> write_rows(const PersistentState& state, const std::vector<const TableRow*>& rows,
                                   const fs::path& file, Rename rename, const SavedFrom* from = nullptr) {
  std::vector<TensorSpec> specs;
  std::set<std::string, std::less<>> copied;
  if (from != nullptr)
    for (const std::string& name : from->copied) {
      const TensorEntry& entry = *from->weights->find(name).entry;
      specs.push_back({name, entry.dtype, entry.shape, from->name_in_files(name)});
      copied.insert(name);
    }
  for (const TableRow* row : rows) {
    const TableRow& weight = *state.find(weight_name(*row));
    const std::string in_file = from != nullptr ? from->name_in_files(rename(*row)) : "";
    if (is_saved_otherwise(state, weight))
      specs.push_back({rename(*row), DType::f32, saved_shape(state, weight), in_file});
    else
      specs.push_back({rename(*row), row->dtype, row->whole_shape(), in_file});
  }
  SafetensorsWriter writer(file, specs, {{"format", "pt"}});
  std::vector<std::byte> staging(static_cast<size_t>(kSaveStagingBytes));
  for (const TensorSpec& spec : writer.tensors()) {
    if (copied.contains(spec.name)) {
      copy_tensor(from->weights->find(spec.name), writer, spec.name, staging);
      continue;
    }
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const TableRow* r) { return rename(*r) == spec.name; });
    const TableRow& weight = *state.find(weight_name(**row));
    if ((*row)->is_piece()) {
      writer.leave(spec.name);
      continue;
    }
    if (!is_saved_otherwise(state, weight)) {
      write_row(state, **row, writer, spec.name, staging);
      continue;
    }
    const std::vector<float> values = values_to_save(state, weight);
    writer.write(spec.name, std::as_bytes(std::span(values)));
  }
  return writer.finish();
}

// A quantised weight is one row here: that of its codes.
bool is_value_head(const TableRow& row) { return row.name.starts_with(kValueHead); }

std::vector<const TableRow*> base_rows(const PersistentState& state) {
  std::vector<const TableRow*> rows;
  for (const TableRow& row : state.rows()) {
    const bool fresh = row.parameter.origin == Origin::fresh && !is_beside_adapters(state, row);
    if (is_weight(row) && (fresh || row.parameter.origin == Origin::checkpoint)) rows.push_back(&row);
  }
  return rows;
}

// Adapters, and what is saved with them, as they are trained: f32 masters where there are any.
std::vector<const TableRow*> adapter_rows(const PersistentState& state) {
  std::vector<const TableRow*> rows;
  for (const TableRow& row : state.rows()) {
    if (!is_weight(row) || !is_beside_adapters(state, row)) continue;
    const TableRow* master = state.master_of(row);
    rows.push_back(master != nullptr ? master : &row);
  }
  return rows;
}

// A head of its own with tie_word_embeddings set: transformers does not tie them then, and a dropped head
// would go unnoticed here.
void require_tied(const PersistentState& state, const ModelFolder& model, std::span<std::byte> staging) {
  constexpr const char* kHead = "lm_head.weight";
  const auto& rows = state.rows();
  const auto embedding_row = std::find_if(rows.begin(), rows.end(), [](const TableRow& row) {
    return is_weight(row) && row.parameter.part == WeightPart::embedding;
  });
  if (embedding_row == rows.end()) return;
  const std::string own = embedding_row->name;
  const bool has_head = std::any_of(rows.begin(), rows.end(), [](const TableRow& row) {
    return is_weight(row) && (row.parameter.part == WeightPart::head ||
                              row.parameter.origin == Origin::fresh);  // another one in its place
  });
  if (has_head || !model.contains(kHead) || !model.contains(own)) return;
  const StoredTensor head = model.find(kHead), embedding = model.find(own);
  bool same = head.entry->dtype == embedding.entry->dtype && head.entry->shape == embedding.entry->shape;
  const auto half = static_cast<int64_t>(staging.size()) / 2;
  for (int64_t at = 0; same && at < head.entry->bytes; at += half) {
    const auto count = static_cast<size_t>(std::min(half, head.entry->bytes - at));
    const auto a = staging.first(count), b = staging.subspan(static_cast<size_t>(half), count);
    head.file->read(*head.entry, at, a);
    embedding.file->read(*embedding.entry, at, b);
    same = std::memcmp(a.data(), b.data(), count) == 0;
  }
  if (!same)
    throw UsageError(
        formatted("{}: config.json says tie_word_embeddings, but lm_head.weight is another one than {}; say "
                  "\"tie_word_embeddings\": false to use it",
                  model.path().string(), own));
}

// The prefix of the names of a T5 below a head that scores sequences: "transformer.".
std::string_view prefix_of(const PersistentState& state) {
  constexpr std::string_view kPrefix = "transformer.";
  return state.find(std::string(kPrefix) + "shared.weight") != nullptr ? kPrefix : std::string_view();
}

bool has_value_head(const PersistentState& state) {
  return std::any_of(state.rows().begin(), state.rows().end(), is_value_head);
}

// The rows that are saved, without a value head: that has a file of its own.
std::vector<const TableRow*> without_value_head(std::vector<const TableRow*> rows) {
  std::erase_if(rows, [](const TableRow* row) { return is_value_head(*row); });
  return rows;
}

// modules_to_save in addition to adapters: for a head both names that PEFT gives, whichever the model has,
// and a pooler that is new. Null without a head.
std::vector<std::string> saved_heads(const PersistentState& state) {
  std::vector<std::string> modules;
  for (const TableRow& row : state.rows()) {
    if (!is_weight(row) || row.parameter.origin != Origin::fresh || is_value_head(row)) continue;
    if (modules.empty()) modules = {"classifier", "score"};
    const std::string module = row.name.substr(0, row.name.rfind('.'));
    const std::string top = module.substr(0, module.find('.'));
    const std::string& saved = top == "classification_head" ? top : module;  // T5's is saved as a whole
    if (top != "classifier" && top != "score" && modules.back() != saved) modules.push_back(saved);
  }
  return modules;
}

}  // namespace

std::vector<std::string> copied_files(const fs::path& folder) {
  std::vector<std::string> names;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt",
        "vocab.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "added_tokens.json",
        "chat_template.jinja", "generation_config.json", "preprocessor_config.json", "processor_config.json",
        "video_preprocessor_config.json"})
    if (fs::exists(folder / name)) names.emplace_back(name);
  return names;
}

bool is_adapter(const TableRow& row) { return is_weight(row) && row.parameter.origin == Origin::adapter; }

bool is_weight(const TableRow& row) {
  return row.role == Role::frozen_weight || row.role == Role::trainable_weight;
}

bool is_beside_adapters(const PersistentState& state, const TableRow& row) {
  if (row.parameter.origin == Origin::adapter) return true;
  const bool trains = row.role == Role::trainable_weight || row.role == Role::master;
  return trains && std::any_of(state.rows().begin(), state.rows().end(), is_adapter);
}

void load_base_weights(const PersistentState& state, const fs::path& folder, const LoadProgress& progress,
                       FreshHead fresh, RankReader* reader) {
  ModelFolder model = open_weights(folder);
  model.put_below_head(prefix_of(state));
  if (has_value_head(state)) model.add_file(kValueHeadFile);
  std::vector<std::byte> staging(static_cast<size_t>(kLoadStagingBytes));
  require_tied(state, model, staging);
  const auto rows = base_rows(state);
  int64_t total = 0;
  for (const TableRow* row : rows) total += row->bytes;  // of this rank
  int64_t done = 0;
  for (const TableRow* row : rows) {
    const bool may_stay = fresh == FreshHead::stays && row->parameter.origin == Origin::fresh;
    if (may_stay && !model.contains(row->name)) continue;
    if (const auto quantised = find_quantised(state, *row)) {
      load_quantised(state, *quantised, model, staging, reader);
    } else {
      load_whole(state, *row, model, stored_name(state, model, rows, *row), staging, reader);
    }
    done += row->bytes;
    if (progress) progress(done, total);
  }
  if (fresh != FreshHead::stays) return;
  // A head that is to train with adapters continues from the folder's own.
  for (const TableRow& row : state.rows())
    if (is_weight(row) && row.parameter.origin == Origin::fresh && is_beside_adapters(state, row) &&
        model.contains(row.name))
      load_whole(state, row, model, row.name, staging, reader);
}

namespace {

constexpr std::string_view kDecay = ".A_log";

// Logarithms of decays of the gated delta rule: of numbers from 0.01 to 16, uniformly.
void init_decays(const PersistentState& state, const TableRow& row, uint64_t seed,
                 std::span<std::byte> staging) {
  constexpr double kLeast = 0.01, kMost = 16.0;
  const Uniform uniform(seed, row.name, 0);
  fill(state, row, staging,
       [&](int64_t i) { return static_cast<float>(std::log(kLeast + (kMost - kLeast) * uniform(i))); });
}

}  // namespace

void init_base_weights(const PersistentState& state, const ModelSpec& model, uint64_t seed) {
  std::vector<std::byte> staging(static_cast<size_t>(kLoadStagingBytes));
  for (const TableRow* row : base_rows(state)) {
    // T5's table is not scaled where it is read: transformers gives it sqrt(d_model) times as much.
    const bool table = model.encoder_decoder && row->parameter.part == WeightPart::embedding;
    const double wider = table ? std::sqrt(static_cast<double>(model.hidden)) : 1.0;
    const NewValues value(*row, seed, wider * model.initializer_range);
    if (model.delta_net && row->name.ends_with(kDecay)) {
      init_decays(state, *row, seed, staging);
      continue;
    }
    if (const auto quantised = find_quantised(state, *row)) {
      const std::span chunk(reinterpret_cast<float*>(staging.data()), staging.size() / sizeof(float));
      quantise_values(state, *quantised, chunk, [&](int64_t first, std::span<float> to) {
        for (size_t i = 0; i < to.size(); ++i) to[i] = value(first + static_cast<int64_t>(i));
      });
    } else {
      fill(state, *row, staging, value);
    }
  }
}

void init_fresh_weights(const PersistentState& state, const ModelSpec& model, uint64_t seed) {
  std::vector<std::byte> staging(static_cast<size_t>(kLoadStagingBytes));
  for (const TableRow& row : state.rows()) {
    if (!is_weight(row) || row.parameter.origin != Origin::fresh) continue;
    const NewValues value(row, seed, model.initializer_range);
    fill(state, row, staging, value);
  }
}

namespace {

// All values of a weight, in order, a few at a time.
void visit_values(const PersistentState& state, const TableRow& row, std::span<std::byte> staging,
                  const UseValues& use) {
  if (const auto quantised = find_quantised(state, row))
    return visit_quantised(state, *quantised, staging, use);
  const int64_t size = size_of(row.dtype);
  state.visit(row, staging, [&](int64_t start, std::span<const std::byte> piece) {
    std::array<float, 1024> values{};
    const size_t most = values.size() * static_cast<size_t>(size);
    for (size_t at = 0; at < piece.size(); at += most) {
      const auto part = piece.subspan(at, std::min(most, piece.size() - at));
      const auto to = std::span(values).first(part.size() / static_cast<size_t>(size));
      convert(part, row.dtype, std::as_writable_bytes(to), DType::f32);
      use((start + static_cast<int64_t>(at)) / size, to);
    }
  });
}

// DoRA's magnitudes: with B zero the adapted layer is the layer itself.
void init_row_norms(const PersistentState& state, const TableRow& row, std::span<std::byte> staging) {
  const TableRow* weight = state.find(row.module + ".weight");
  check_internal(weight != nullptr, "a magnitude without its weight: " + row.name);
  const int64_t rows = row.shape[0];
  const auto quantised = find_quantised(state, *weight);
  const int64_t width = (quantised ? weight_shape(*quantised) : weight->shape)[1];
  std::vector<double> squares(static_cast<size_t>(rows));
  visit_values(state, *weight, staging, [&](int64_t first, std::span<const float> values) {
    for (size_t i = 0; i < values.size(); ++i)
      squares[static_cast<size_t>((first + static_cast<int64_t>(i)) / width)] +=
          static_cast<double>(values[i]) * values[i];
  });
  fill(state, row, staging,
       [&](int64_t i) { return static_cast<float>(std::sqrt(squares[static_cast<size_t>(i)])); });
}

}  // namespace

void init_adapters(const PersistentState& state, uint64_t seed) {
  constexpr double kNormalRange = 1.0;  // of an embedding's B, as PEFT has it
  std::vector<std::byte> staging(static_cast<size_t>(kLoadStagingBytes));
  for (const TableRow& row : state.rows()) {
    if (!is_adapter(row)) continue;
    if (row.parameter.init == Initialiser::row_norms)
      init_row_norms(state, row, staging);
    else
      fill(state, row, staging, NewValues(row, seed, kNormalRange));
  }
}

namespace {

void load_otherwise(const PersistentState& state, const TableRow& row, const StoredTensor& stored,
                    std::span<std::byte> staging) {
  require_shape(stored, saved_shape(state, row));
  std::vector<float> values(static_cast<size_t>(stored.entry->shape.elements()));
  const auto bytes = std::as_writable_bytes(std::span(values));
  load_elements(stored, 0, bytes, DType::f32, staging);
  require_finite(stored, 0, bytes, DType::f32);
  store_saved(state, row, values);
}

}  // namespace

void load_adapters(const PersistentState& state, const fs::path& folder, FreshHead fresh,
                   RankReader* reader) {
  ModelFolder adapter = ModelFolder::open(folder, "adapter_model");
  if (has_value_head(state)) adapter.add_file(kValueHeadFile);
  std::vector<std::byte> staging(static_cast<size_t>(kLoadStagingBytes));
  for (const TableRow& row : state.rows()) {
    if (!is_weight(row) || !is_beside_adapters(state, row)) continue;
    const bool may_stay = fresh == FreshHead::stays && row.parameter.origin == Origin::fresh;
    const std::string name = is_value_head(row) ? row.name : kPeftPrefix + row.name;
    if (may_stay && !adapter.contains(name)) continue;
    const StoredTensor stored = adapter.find(name);
    if (!is_saved_otherwise(state, row))
      load_one(state, row, stored, staging, reader);
    else
      load_otherwise(state, row, stored, staging);
  }
  // PEFT saves what is below an adapted embedding or head, and reads it over the base.
  for (const std::string& name : adapter.names()) {
    if (!name.starts_with(kPeftPrefix) || !name.ends_with(kBaseLayer)) continue;
    const size_t start = std::string_view(kPeftPrefix).size();
    const std::string module = name.substr(start, name.size() - start - kBaseLayer.size());
    const TableRow* base = state.find(module + ".weight");
    if (base != nullptr && base->role == Role::frozen_weight)
      load_one(state, *base, adapter.find(name), staging, reader);
  }
}

SavedFrom::SavedFrom(const fs::path& model_folder, const fs::path& temporary)
    : config(read_config(model_folder)),
      base(model_folder.string()),
      files(model_folder, copied_files(model_folder), temporary) {
  if (const auto hub = hub_model_of(model_folder)) {
    base = hub->name;
    revision = hub->revision;
  }
}

void SavedFrom::keep_weights(const fs::path& model_folder, const ModelSpec& model) {
  // The head for next tokens, where it is not tied to the embedding.
  constexpr const char* kWordHead = "lm_head.weight";
  const bool has_head = model.value_head && !model.tied_head;
  if (!has_head && model.wrapper.empty()) return;
  weights = ModelFolder::open(model_folder);
  if (has_head) copied.emplace_back(kWordHead);
  if (model.wrapper.empty()) return;
  const std::vector<std::string> all = weights->names();
  require_whole(model.wrapper, config, all, model_folder.string());
  for (const std::string& name : all)
    if (!name.starts_with(kTextModule) && name != kWordHead && !name.starts_with(score_module(model) + "."))
      copied.push_back(name);
  config["tie_word_embeddings"] = model.tied_head;
}

int64_t SavedFrom::copied_bytes() const {
  int64_t bytes = 0;
  for (const std::string& name : copied) bytes += weights->find(name).entry->bytes;
  return bytes;
}

std::string SavedFrom::name_in_files(const std::string& name) const {
  return weights ? weights->name_in_files(name) : name;
}

std::string copied_words(const SavedFrom& from, const ModelSpec& model) {
  if (model.wrapper.empty() || from.copied.empty()) return "";
  std::vector<std::string> parts;
  for (const std::string& name : from.copied) {
    const std::string_view rest = std::string_view(name).substr(name.starts_with("model.") ? 6 : 0);
    const std::string part(rest.substr(0, rest.find('.')));
    if (std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
  }
  return formatted("copied  {} tensors of {} ({}), unchanged, with each saved model",
                   format_count(std::ssize(from.copied)), join(parts, ", "),
                   format_bytes(from.copied_bytes()));
}

void describe_head(const ScoreHead& head, nlohmann::json& config) {
  if (rule_of(head.task.task).masks) config["architectures"] = {family_of(head.model).architecture};
  if (!rule_of(head.task.task).scores || head.model.value_head || !head.model.words.empty()) return;
  FamilyRule family = family_of(head.model);
  if (!head.model.wrapper.empty()) {
    family.architecture = head.model.architecture;
    family.scoring_name = {};
  }
  config["architectures"] = {scoring_architecture(family)};
  const auto outputs = static_cast<size_t>(head.task.outputs);
  const bool known = config.contains("id2label") && config["id2label"].size() == outputs;
  if (!head.labels.empty() || !known) {
    nlohmann::json names = nlohmann::json::object(), numbers = nlohmann::json::object();
    for (size_t i = 0; i < outputs; ++i) {
      const std::string name = i < head.labels.size() ? head.labels[i] : "LABEL_" + std::to_string(i);
      names[std::to_string(i)] = name;
      numbers[name] = i;
    }
    config["id2label"] = std::move(names);
    config["label2id"] = std::move(numbers);
  }
  config.erase("num_labels");
  if (const auto problem_type = rule_of(head.task.task).problem_type)
    config["problem_type"] = problem_type(head.task);
  if (head.model.pad_token)
    (head.model.wrapper.empty() ? config : config["text_config"])["pad_token_id"] = *head.model.pad_token;
}

std::optional<uint32_t> write_model(const PersistentState& state, const SavedFrom& from, const fs::path& to) {
  nlohmann::json config = from.config;
  const auto rows = without_value_head(base_rows(state));
  const char* dtype = torch_name(rows.front()->dtype);
  config[config.contains("torch_dtype") ? "torch_dtype" : "dtype"] = dtype;
  for (const char* key : {"torch_dtype", "dtype"})
    if (const auto text = config.find("text_config"); text != config.end() && text->contains(key))
      (*text)[key] = dtype;
  write_file_atomically(to / "config.json", config.dump(2) + "\n");
  write_kept(from.files, to);
  return write_rows(
      state, rows, to / "model.safetensors", [](const TableRow& row) { return row.name; }, &from);
}

void write_model_pieces(const PersistentState& state, const fs::path& folder) {
  ModelFolder made = open_weights(folder);
  made.put_below_head(prefix_of(state));
  write_pieces(state, base_rows(state), made);
}

namespace {

bool hides_words(const nlohmann::json& config) {
  const auto classes = config.find("architectures");
  return classes != config.end() && classes->is_array() && !classes->empty() &&
         classes->front().is_string() &&
         classes->front().get_ref<const std::string&>().ends_with("ForMaskedLM");
}

}  // namespace

std::optional<uint32_t> write_adapter(const PersistentState& state, const LoraOptions& lora,
                                      const SavedFrom& from, const fs::path& to) {
  std::vector<std::string> targets;
  for (const TableRow& row : state.rows()) {
    if (!is_adapter(row)) continue;
    const std::string name = target_name(row.module);
    if (std::find(targets.begin(), targets.end(), name) == targets.end()) targets.push_back(name);
  }
  const std::vector<std::string> heads = saved_heads(state);
  nlohmann::ordered_json config = adapter_config(lora, targets, heads);
  if (from.config.contains("text_config")) config["exclude_modules"] = kNoTextModules;
  config["base_model_name_or_path"] = from.base;
  config["revision"] =
      from.revision ? nlohmann::ordered_json(*from.revision) : nlohmann::ordered_json(nullptr);
  config["task_type"] = !heads.empty()                                   ? "SEQ_CLS"
                        : from.config.value("is_encoder_decoder", false) ? "SEQ_2_SEQ_LM"
                                                                         : "CAUSAL_LM";
  if (hides_words(from.config))
    config["task_type"] = nullptr;  // PEFT has none; of the saved model (describe_head)
  write_file_atomically(to / "adapter_config.json", config.dump(2) + "\n");
  write_kept(from.files, to);
  return write_rows(state, without_value_head(adapter_rows(state)), to / "adapter_model.safetensors",
                    [](const TableRow& row) { return kPeftPrefix + weight_name(row); });
}

std::optional<uint32_t> write_value_head(const PersistentState& state, const fs::path& to) {
  std::vector<const TableRow*> rows;
  for (const TableRow& row : state.rows())
    if (is_weight(row) && is_value_head(row)) {
      const TableRow* master = state.master_of(row);
      rows.push_back(master != nullptr ? master : &row);
    }
  if (rows.empty()) return std::nullopt;
  return write_rows(state, rows, to / kValueHeadFile, [](const TableRow& row) { return weight_name(row); });
}

int64_t export_bytes(const PersistentState& state, bool adapter, const SavedFrom& from) {
  int64_t bytes = from.files.bytes() + static_cast<int64_t>(from.config.dump().size());
  if (!adapter) bytes += from.copied_bytes();
  for (const TableRow* row : adapter ? adapter_rows(state) : base_rows(state)) {
    const TableRow* start = start_of(state, *state.find(weight_name(*row)));
    bytes += row->whole_bytes() + (start == nullptr ? 0 : start->bytes);
  }
  return bytes;
}

}  // namespace plimsoll
