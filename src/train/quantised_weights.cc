#include "train/quantised_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "cpu/isa.h"
#include "io/json.h"
#include "io/json_values.h"
#include "io/load.h"
#include "ops/dynamic_map.h"
#include "ops/nf4.h"
#include "train/row_io.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStateSuffix = ".quant_state.bitsandbytes__nf4";
constexpr const char* kOtherStateSuffix = ".quant_state.bitsandbytes__fp4";
constexpr const char* kLevelsSuffix = ".quant_map";

void require_finite(std::span<const float> scales, const std::string& weight) {
  const auto bad = std::find_if_not(scales.begin(), scales.end(), [](float s) { return std::isfinite(s); });
  if (bad == scales.end()) return;
  const int64_t block = bad - scales.begin();
  throw DamagedError(weight + ": holds a value that is not finite, between elements " +
                     std::to_string(block * kNf4Block) + " and " + std::to_string((block + 1) * kNf4Block) +
                     "; it cannot be quantised");
}

// The small facts of a quantised weight, which bitsandbytes keeps as JSON in a tensor of bytes.
struct QuantState {
  bool nested = false;
  float offset = 0;
};

void read_bytes(const ModelFolder& model, const PersistentState& state, const TableRow& row,
                std::span<std::byte> staging) {
  const StoredTensor stored = model.find(row.name);
  if (stored.entry->bytes != row.bytes)
    throw DamagedError(row.name + ": has " + std::to_string(stored.entry->bytes) + " bytes, expected " +
                       std::to_string(row.bytes));
  load_row_bytes(state, row, stored, staging);
}

void expect(bool condition, const std::string& where, const std::string& what) {
  if (!condition) throw UsageError(where + ": " + what);
}

QuantState read_state(const ModelFolder& model, const Nf4Rows& rows) {
  const std::string where = rows.codes->name + kStateSuffix;
  const StoredTensor stored = model.find(where);
  std::string text(static_cast<size_t>(stored.entry->bytes), '\0');
  stored.file->read(*stored.entry, 0, std::as_writable_bytes(std::span(text)));
  try {
    const nlohmann::json json = parse_json(text, where);
    expect(json.at("quant_type") == "nf4", where, "quant_type must be nf4");
    expect(json.at("blocksize") == kNf4Block, where, "a blocksize other than 64 is not supported");
    expect(Shape(json.at("shape").get<std::vector<int64_t>>()) == rows.weight_shape(), where,
           "the shape is not the model's, " + rows.weight_shape().to_string());
    QuantState state;
    state.nested = json.contains("nested_offset");
    if (!state.nested) return state;
    expect(json.at("nested_blocksize") == kNf4NestedBlock, where,
           "a nested_blocksize other than 256 is not supported");
    state.offset = json.at("nested_offset").get<float>();
    return state;
  } catch (const nlohmann::json::exception& error) {
    throw DamagedError(where + ": " + error.what());
  }
}

// The levels are the same in every checkpoint; another table would be another format.
void check_levels(const ModelFolder& model, const std::string& weight, std::span<std::byte> staging) {
  std::array<float, 16> levels{};
  load_tensor(model.find(weight + kLevelsSuffix), {16}, std::as_writable_bytes(std::span(levels)), DType::f32,
              staging);
  expect(std::equal(levels.begin(), levels.end(), std::begin(kNf4Levels)), weight + kLevelsSuffix,
         "these are not NF4's levels");
}

void read_quantised(const PersistentState& state, const Nf4Rows& rows, const ModelFolder& model,
                    std::span<std::byte> staging) {
  const std::string& name = rows.codes->name;
  const QuantState stored = read_state(model, rows);
  const bool nested = rows.nested_absmax != nullptr;
  expect(stored.nested == nested, name,
         nested ? "stored without double quantisation; set method.double_quant: false"
                : "stored with double quantisation; set method.double_quant: true");
  check_levels(model, name, staging);
  read_bytes(model, state, *rows.codes, staging);
  read_bytes(model, state, *rows.absmax, staging);
  if (!nested) return;
  for (const TableRow* row : {rows.nested_absmax, rows.nested_map})
    load_row(state, *row, model.find(row->name), staging);
  state.write(*rows.nested_offset, 0, std::as_bytes(std::span(&stored.offset, 1)));
}

// Scales into their rows; with double quantisation they are quantised on the way.
void store_scales(const PersistentState& state, const Nf4Rows& rows, std::span<const float> scales) {
  require_finite(scales, rows.codes->name);
  if (rows.nested_absmax == nullptr) {
    state.write(*rows.absmax, 0, std::as_bytes(scales));
    return;
  }
  const auto& map = signed_dynamic_map().value;
  state.write(*rows.nested_map, 0, std::as_bytes(std::span(map)));
  const ResidentValues<uint8_t> absmax(state, *rows.absmax);
  const ResidentValues<float> nested_absmax(state, *rows.nested_absmax);
  const float offset = nest_scales(scales, map, absmax.span(), nested_absmax.span());
  state.write(*rows.nested_offset, 0, std::as_bytes(std::span(&offset, 1)));
  absmax.flush();
  nested_absmax.flush();
}

}  // namespace

std::optional<Nf4Rows> find_nf4(const PersistentState& state, const TableRow& row) {
  if (row.dtype != DType::u8 || !is_weight(row) || row.parameter.origin == Origin::derived)
    return std::nullopt;
  return Nf4Rows{&row, state.find(row.name + kAbsmaxSuffix), state.find(row.name + kNestedAbsmaxSuffix),
                 state.find(row.name + kNestedMapSuffix), state.find(row.name + kNestedOffsetSuffix)};
}

std::optional<QuantiseOptions> stored_quantisation(const fs::path& folder) {
  const nlohmann::json config = read_config(folder);
  const auto found = config.find("quantization_config");
  if (found == config.end() || found->is_null()) return std::nullopt;
  const std::string where = (folder / "config.json").string() + ": quantization_config";
  return read_values(where, [&]() -> std::optional<QuantiseOptions> {
    const std::string method = found->value("quant_method", "bitsandbytes");
    expect(method == "bitsandbytes", where,
           "quant_method '" + method + "' is not supported, only bitsandbytes");
    expect(found->value("load_in_4bit", false), where, "only load_in_4bit is supported");
    const std::string type = found->value("bnb_4bit_quant_type", "fp4");
    expect(type == "nf4", where, "bnb_4bit_quant_type '" + type + "' is not supported, only nf4");
    const std::string storage = found->value("bnb_4bit_quant_storage", "uint8");
    expect(storage == "uint8", where,
           "bnb_4bit_quant_storage '" + storage + "' is not supported, only uint8");
    return QuantiseOptions{found->value("bnb_4bit_use_double_quant", false)};
  });
}

void quantise_values(const PersistentState& state, const Nf4Rows& rows, std::span<float> chunk,
                     const ReadValues& read) {
  const auto kernel = detect_isa() == Isa::avx2 ? avx2::nf4_quantize : avx512::nf4_quantize;
  const int64_t count = rows.weight_shape().elements();
  const int64_t step = static_cast<int64_t>(chunk.size()) / kNf4Block * kNf4Block;
  std::vector<uint8_t> codes(static_cast<size_t>(step / 2));
  std::vector<float> scales(static_cast<size_t>(nf4_blocks(count)));
  for (int64_t first = 0; first < count; first += step) {
    const auto values = chunk.first(static_cast<size_t>(std::min(step, count - first)));
    read(first, values);
    kernel({values.data(), static_cast<int64_t>(values.size()), codes.data(),
            scales.data() + first / kNf4Block});
    state.write(*rows.codes, first / 2, std::as_bytes(std::span(codes)).first(values.size() / 2));
  }
  store_scales(state, rows, scales);
}

bool stores_nf4(const ModelFolder& model, const std::string& weight) {
  return model.contains(weight + kStateSuffix) || model.contains(weight + kOtherStateSuffix);
}

void load_nf4(const PersistentState& state, const Nf4Rows& rows, const ModelFolder& model,
              std::span<std::byte> staging) {
  const std::string& name = rows.codes->name;
  if (stores_nf4(model, name)) {
    read_quantised(state, rows, model, staging);
    return;
  }
  const StoredTensor stored = model.find(name);
  expect(
      stored.entry->shape == rows.weight_shape(), name,
      "has the shape " + stored.entry->shape.to_string() + ", expected " + rows.weight_shape().to_string());
  // Half for the values, half for what they are converted from.
  const std::span<std::byte> values = staging.first(staging.size() / 2);
  quantise_values(state, rows, {reinterpret_cast<float*>(values.data()), values.size() / sizeof(float)},
                  [&](int64_t first, std::span<float> to) {
                    load_elements(stored, first, std::as_writable_bytes(to), DType::f32,
                                  staging.subspan(values.size()));
                  });
}

void visit_nf4(const PersistentState& state, const Nf4Rows& rows, std::span<std::byte> staging,
               const UseValues& use) {
  std::vector<float> scales(static_cast<size_t>(nf4_blocks(rows.weight_shape().elements())));
  if (rows.nested_absmax == nullptr) {
    state.read(*rows.absmax, 0, std::as_writable_bytes(std::span(scales)));
  } else {
    const ResidentValues<uint8_t> codes(state, *rows.absmax);
    const ResidentValues<float> absmax(state, *rows.nested_absmax), map(state, *rows.nested_map);
    const ResidentValues<float> offset(state, *rows.nested_offset);
    unnest_scales(codes.span(), absmax.span(), map.span(), offset.span()[0], scales);
  }
  state.visit(*rows.codes, staging, [&](int64_t start, std::span<const std::byte> piece) {
    std::array<float, kNf4Block> values{};
    for (size_t at = 0; at < piece.size(); at += kNf4Block / 2) {
      const auto first = 2 * (start + static_cast<int64_t>(at));
      const auto codes = piece.subspan(at, std::min<size_t>(kNf4Block / 2, piece.size() - at));
      const float scale = scales[static_cast<size_t>(first / kNf4Block)];
      for (size_t i = 0; i < codes.size(); ++i) {
        const auto two = std::to_integer<uint8_t>(codes[i]);
        values[2 * i] = kNf4Levels[two >> 4U] * scale;
        values[2 * i + 1] = kNf4Levels[two & 15U] * scale;
      }
      use(first, std::span(values).first(2 * codes.size()));
    }
  });
}

}  // namespace plimsoll
