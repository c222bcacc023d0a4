#include "weights/quantised_weights.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "files/json.h"
#include "files/json_values.h"
#include "formats/convert.h"
#include "models/family.h"
#include "models/parameter_names.h"
#include "passes/name_pattern.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// The part of a module's name that repeats in every block: behind its last number, but for a number at its
// end ("attn.gk_proj.0").
std::string within_block(const std::string& module) {
  size_t start = 0;
  for (size_t dot = module.find('.'), part = 0; dot != std::string::npos;
       part = dot + 1, dot = module.find('.', part))
    if (module.find_first_not_of("0123456789", part) == dot) start = dot + 1;
  return module.substr(start);
}

// Modules that have a matrix which is not quantised; one name for what no block has quantised.
std::vector<std::string> kept_in(const ModelFolder& model) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<std::string> whole;
  std::set<std::string> quantised;  // within their blocks
  for (const std::string& name : model.names()) {
    if (!name.ends_with(kWeight)) continue;
    const std::string module = name.substr(0, name.size() - kWeight.size());
    if (stores_nf4(model, name) || stores_int8(model, name))
      quantised.insert(within_block(module));
    else if (model.find(name).entry->shape.rank() == 2)
      whole.push_back(module);
  }
  std::set<std::string> kept;
  for (const std::string& module : whole) {
    const std::string end = within_block(module);
    kept.insert(quantised.contains(end) ? module : end);
  }
  return {kept.begin(), kept.end()};
}

// By the rule of transformers (should_convert_module): from the name's beginning to a dot as a regular
// expression, or its end.
std::vector<std::string> kept_by(const nlohmann::json& skipped, const ModelSpec& model) {
  std::vector<std::string> kept = unquantised_modules(model);
  if (skipped.is_null()) return kept;
  constexpr const char* kKey = "llm_int8_skip_modules";
  std::vector<std::pair<std::string, NamePattern>> patterns;
  for (const std::string& text : skipped.get<std::vector<std::string>>())
    patterns.emplace_back(text, NamePattern(formatted("(?:{})(?:(?<=\\.)|(?=\\.|$))", text), text, kKey));
  for (const std::string& name : parameter_names(model)) {
    const std::string module = name.substr(0, name.rfind('.'));
    if (std::any_of(patterns.begin(), patterns.end(), [&](const auto& pattern) {
          return module.ends_with(pattern.first) || pattern.second.match(module);
        }))
      kept.push_back(module);
  }
  return kept;
}

// Returns true if weights in 4 bits have scales that are quantised again. Throws UsageError for 4 bits of another
// kind.
bool stores_nested(const nlohmann::json& config, const std::string& where) {
  expect(config.value("load_in_4bit", false), where, "only load_in_4bit and load_in_8bit are supported");
  const std::string type = config.value("bnb_4bit_quant_type", "fp4");
  expect(type == "nf4", where, formatted("bnb_4bit_quant_type '{}' is not supported, only nf4", type));
  const std::string storage = config.value("bnb_4bit_quant_storage", "uint8");
  expect(storage == "uint8", where,
         formatted("bnb_4bit_quant_storage '{}' is not supported, only uint8", storage));
  return config.value("bnb_4bit_use_double_quant", false);
}

}  // namespace

std::optional<QuantisedRows> find_quantised(const PersistentState& state, const TableRow& row) {
  if (const auto nf4 = find_nf4(state, row)) return *nf4;
  if (const auto int8 = find_int8(state, row)) return *int8;
  return std::nullopt;
}

Shape weight_shape(const QuantisedRows& rows) {
  return std::visit([](const auto& of_format) -> Shape { return of_format.weight_shape(); }, rows);
}

void quantise_values(const PersistentState& state, const QuantisedRows& rows, std::span<float> chunk,
                     const ReadValues& read) {
  std::visit([&](const auto& of_format) { quantise_values(state, of_format, chunk, read); }, rows);
}

void load_quantised(const PersistentState& state, const QuantisedRows& rows, const ModelFolder& model,
                    std::span<std::byte> staging, RankReader* reader) {
  if (const auto* nf4 = std::get_if<Nf4Rows>(&rows)) return load_nf4(state, *nf4, model, staging, reader);
  load_int8(state, std::get<Int8Rows>(rows), model, staging, reader);
}

void visit_quantised(const PersistentState& state, const QuantisedRows& rows, std::span<std::byte> staging,
                     const UseValues& use) {
  if (const auto* nf4 = std::get_if<Nf4Rows>(&rows)) return visit_nf4(state, *nf4, staging, use);
  visit_int8(state, std::get<Int8Rows>(rows), staging, use);
}

std::optional<QuantiseOptions> stored_quantisation(const fs::path& folder, const nlohmann::json& config,
                                                   const std::function<ModelSpec()>& model) {
  const auto found = config.find("quantization_config");
  if (found == config.end() || found->is_null()) return std::nullopt;
  const std::string where = (folder / "config.json").string() + ": quantization_config";
  return read_values(where, [&]() -> std::optional<QuantiseOptions> {
    const std::string method = found->value("quant_method", "bitsandbytes");
    expect(method == "bitsandbytes", where,
           formatted("quant_method '{}' is not supported, only bitsandbytes", method));
    QuantiseOptions options;
    if (found->value("load_in_8bit", false))
      options.format = WeightFormat::int8;
    else
      options.nested = stores_nested(*found, where);
    const auto skipped = found->find("llm_int8_skip_modules");
    options.kept = has_weights(folder)
                       ? kept_in(ModelFolder::open(folder))
                       : kept_by(skipped == found->end() ? nlohmann::json() : *skipped, model());
    return options;
  });
}

std::unique_ptr<StoredCodes> open_quantised(const ModelFolder& model, const std::string& weight,
                                            const Shape& shape) {
  if (stores_nf4(model, weight)) return std::make_unique<StoredNf4>(model, weight, shape);
  if (stores_int8(model, weight)) return std::make_unique<StoredInt8>(model, weight, shape);
  return nullptr;
}

std::unique_ptr<RoundTrip> round_trip(const StoredTensor& stored, const QuantiseOptions& options,
                                      DType compute, std::span<std::byte> staging) {
  if (options.format == WeightFormat::int8)
    return std::make_unique<Int8RoundTrip>(stored.entry->name, stored.entry->shape.last(), compute);
  return std::make_unique<Nf4RoundTrip>(stored, options.nested, compute, staging);
}

void load_from_quantised(const PersistentState& state, const TableRow& row, StoredCodes& stored,
                         std::span<std::byte> staging) {
  // Half for a piece of the row, half for its values in f32.
  const auto half = staging.size() / 2;
  const std::span values(reinterpret_cast<float*>(staging.data() + half), half / sizeof(float));
  const auto size = static_cast<size_t>(size_of(row.dtype));
  state.fill(row, staging.first(half), [&](int64_t start, std::span<std::byte> piece) {
    for (size_t at = 0; at < piece.size() / size;) {
      const auto part = values.first(std::min(values.size(), piece.size() / size - at));
      stored.read(start / static_cast<int64_t>(size) + static_cast<int64_t>(at), part);
      convert(std::as_bytes(part), DType::f32, piece.subspan(at * size, part.size() * size), row.dtype);
      at += part.size();
    }
  });
}

}  // namespace plimsoll
