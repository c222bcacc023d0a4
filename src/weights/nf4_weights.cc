#include "weights/nf4_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "cpu/isa.h"
#include "files/json.h"
#include "files/json_values.h"
#include "formats/convert.h"
#include "formats/load.h"
#include "ops/dynamic_map.h"
#include "ops/linear/nf4.h"
#include "weights/quantised_parts.h"
#include "weights/rank_reader.h"
#include "weights/row_io.h"

namespace plimsoll {
namespace {

constexpr const char* kStateSuffix = ".quant_state.bitsandbytes__nf4";
constexpr const char* kOtherStateSuffix = ".quant_state.bitsandbytes__fp4";
constexpr const char* kLevelsSuffix = ".quant_map";
constexpr int64_t kWeightsOfByte = 2;

void require_finite(std::span<const float> scales, const std::string& weight) {
  const auto bad = std::find_if_not(scales.begin(), scales.end(), [](float s) { return std::isfinite(s); });
  if (bad == scales.end()) return;
  const int64_t block = bad - scales.begin();
  throw DamagedError(
      formatted("{}: holds a value that is not finite, between elements {} and {}; it cannot be quantised",
                weight, block * kNf4Block, (block + 1) * kNf4Block));
}

Nf4State read_state(const ModelFolder& model, const std::string& weight, const Shape& shape) {
  const std::string where = weight + kStateSuffix;
  const StoredTensor stored = model.find(where);
  std::string text(static_cast<size_t>(stored.entry->bytes), '\0');
  stored.file->read(*stored.entry, 0, std::as_writable_bytes(std::span(text)));
  try {
    const nlohmann::json json = parse_json(text, where);
    expect(json.at("quant_type") == "nf4", where, "quant_type must be nf4");
    expect(json.at("blocksize") == kNf4Block, where, "a blocksize other than 64 is not supported");
    expect(Shape(get_wholes<int64_t>(json.at("shape"))) == shape, where,
           "the shape is not the model's, " + shape.to_string());
    Nf4State state;
    state.nested = json.contains("nested_offset");
    if (!state.nested) return state;
    expect(json.at("nested_blocksize") == kNf4NestedBlock, where,
           "a nested_blocksize other than 256 is not supported");
    state.offset = json.at("nested_offset").get<float>();
    return state;
  } catch (const nlohmann::json::exception& error) {
    throw DamagedError(formatted("{}: {}", where, error.what()));
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
                    std::span<std::byte> staging, RankReader* reader) {
  const std::string& name = rows.codes->name;
  const Nf4State stored = read_state(model, name, rows.weight_shape());
  const bool nested = rows.nested_absmax != nullptr;
  expect(stored.nested == nested, name,
         nested ? "stored without double quantisation; set method.double_quant: false"
                : "stored with double quantisation; set method.double_quant: true");
  check_levels(model, name, staging);
  read_as_stored(state, *rows.codes, model, staging, reader);
  read_as_stored(state, *rows.absmax, model, staging, reader);
  if (!nested) return;
  for (const TableRow* row : {rows.nested_absmax, rows.nested_map}) {
    if (reader != nullptr)
      reader->load(state, *row, model.find(row->name), staging);
    else
      load_row(state, *row, model.find(row->name), staging);
  }
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

auto nf4_kernel() { return detect_isa() == Isa::avx2 ? avx2::nf4_quantize : avx512::nf4_quantize; }

// Codes of a part that begins with a block, into their row (those that this rank has of it, where it writes any), and
// its scales into those of the whole weight.
void quantise_part(const PersistentState& state, const Nf4Rows& rows, ElementRange part,
                   std::span<float> chunk, const ReadValues& read, std::span<float> scales,
                   bool writes_codes = true) {
  const auto kernel = nf4_kernel();
  const int64_t end = part.first + part.elements;
  const int64_t step = static_cast<int64_t>(chunk.size()) / kNf4Block * kNf4Block;
  std::vector<uint8_t> codes(static_cast<size_t>(step / 2));
  for (int64_t first = part.first; first < end; first += step) {
    const auto values = chunk.first(static_cast<size_t>(std::min(step, end - first)));
    read(first, values);
    kernel({values.data(), static_cast<int64_t>(values.size()), codes.data(),
            scales.data() + first / kNf4Block});
    if (!writes_codes) continue;
    write_codes(state, *rows.codes, first / 2, std::as_bytes(std::span(codes)).first(values.size() / 2));
  }
}

// As quantise_values(), each rank its share. The scales of all come together before they are quantised again,
// so that their mean, which is taken out of them, has the bits that one rank finds.
void quantise_by_ranks(const PersistentState& state, const Nf4Rows& rows, const StoredTensor& stored,
                       std::span<float> chunk, const ReadValues& read, RankReader& reader) {
  static_assert(kPieceUnit % kNf4Block == 0);
  std::vector<float> scales(static_cast<size_t>(nf4_blocks(rows.weight_shape().elements())));
  const RankShare part = share_of_codes(state, *rows.codes, kWeightsOfByte, reader);
  make_by_ranks(
      state, *rows.codes, part, kWeightsOfByte,
      {std::as_writable_bytes(std::span(scales)), static_cast<size_t>(part.each / kNf4Block) * sizeof(float)},
      part.own.elements * size_of(stored.entry->dtype),
      [&] { quantise_part(state, rows, part.own, chunk, read, scales); }, reader);
  store_scales(state, rows, scales);
}

}  // namespace

std::optional<Nf4Rows> find_nf4(const PersistentState& state, const TableRow& row) {
  if (row.dtype != DType::u8 || !is_weight(row) || row.parameter.origin == Origin::derived)
    return std::nullopt;
  return Nf4Rows{&row, state.find(row.name + kAbsmaxSuffix), state.find(row.name + kNestedAbsmaxSuffix),
                 state.find(row.name + kNestedMapSuffix), state.find(row.name + kNestedOffsetSuffix)};
}

void quantise_values(const PersistentState& state, const Nf4Rows& rows, std::span<float> chunk,
                     const ReadValues& read) {
  // The processes of a node may have one copy of codes that are offloaded, and of scales each its own on its card.
  const bool writes_codes = state.writes(*rows.codes);
  if (!writes_codes && !state.writes(*rows.absmax)) return;
  const int64_t count = rows.weight_shape().elements();
  std::vector<float> scales(static_cast<size_t>(nf4_blocks(count)));
  quantise_part(state, rows, {0, count}, chunk, read, scales, writes_codes);
  store_scales(state, rows, scales);
}

StoredNf4::StoredNf4(const ModelFolder& model, const std::string& name, const Shape& shape)
    : codes_(model.find(name)),
      absmax_(model.find(name + kAbsmaxSuffix)),
      state_(read_state(model, name, shape)) {
  const int64_t blocks = nf4_blocks(shape.elements());
  expect_bytes(codes_, (shape.elements() + 1) / 2);
  expect_bytes(absmax_, state_.nested ? blocks : blocks * int64_t{sizeof(float)});
  if (!state_.nested) return;
  nested_ = model.find(name + kNestedAbsmaxSuffix);
  expect_bytes(nested_, nf4_nested_blocks(blocks) * int64_t{sizeof(float)});
  const StoredTensor map = model.find(name + kNestedMapSuffix);
  expect_bytes(map, int64_t{sizeof map_});
  map.file->read(*map.entry, 0, std::as_writable_bytes(std::span(map_)));
}

void StoredNf4::read(int64_t first, std::span<float> to) {
  const auto count = static_cast<int64_t>(to.size());
  const int64_t first_block = first / kNf4Block;
  read_scales(first_block, (first + count - 1) / kNf4Block - first_block + 1);
  bytes_.resize(static_cast<size_t>((first + count + 1) / 2 - first / 2));
  codes_.file->read(*codes_.entry, first / 2, std::as_writable_bytes(std::span(bytes_)));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = first + i;
    const uint8_t two = bytes_[static_cast<size_t>(at / 2 - first / 2)];
    const int code = at % 2 == 0 ? two >> 4 : two & 15;
    to[static_cast<size_t>(i)] =
        kNf4Levels[code] * scales_[static_cast<size_t>(at / kNf4Block - first_block)];
  }
}

void StoredNf4::read_scales(int64_t first, int64_t count) {
  scales_.resize(static_cast<size_t>(count));
  if (!state_.nested) {
    absmax_.file->read(*absmax_.entry, first * int64_t{sizeof(float)},
                       std::as_writable_bytes(std::span(scales_)));
    return;
  }
  std::vector<uint8_t> codes(static_cast<size_t>(count));
  absmax_.file->read(*absmax_.entry, first, std::as_writable_bytes(std::span(codes)));
  for (int64_t i = 0; i < count;) {
    const int64_t nested = (first + i) / kNf4NestedBlock;
    const int64_t end = std::min(count, (nested + 1) * kNf4NestedBlock - first);
    float scale = 0;
    nested_.file->read(*nested_.entry, nested * int64_t{sizeof scale},
                       std::as_writable_bytes(std::span(&scale, 1)));
    unnest_scales(std::span(codes).subspan(static_cast<size_t>(i), static_cast<size_t>(end - i)), {&scale, 1},
                  map_, state_.offset, std::span(scales_).subspan(static_cast<size_t>(i)));
    i = end;
  }
}

Nf4RoundTrip::Nf4RoundTrip(const StoredTensor& weight, bool nested, DType compute,
                           std::span<std::byte> staging)
    : compute_(compute) {
  const int64_t count = weight.entry->shape.elements();
  scales_.resize(static_cast<size_t>(nf4_blocks(count)));
  // Half for the values, half for what they are converted from.
  const auto half = staging.size() / 2;
  const std::span chunk(reinterpret_cast<float*>(staging.data()), half / sizeof(float));
  const int64_t step = std::ssize(chunk) / kNf4Block * kNf4Block;
  codes_.resize(static_cast<size_t>(step / 2));
  for (int64_t first = 0; first < count; first += step) {
    const auto values = chunk.first(static_cast<size_t>(std::min(step, count - first)));
    load_elements(weight, first, std::as_writable_bytes(values), DType::f32, staging.subspan(half));
    nf4_kernel()({values.data(), std::ssize(values), codes_.data(), scales_.data() + first / kNf4Block});
  }
  require_finite(scales_, weight.entry->name);
  if (!nested) return;
  const auto& map = signed_dynamic_map().value;
  std::vector<uint8_t> codes(scales_.size());
  std::vector<float> absmax(static_cast<size_t>(nf4_nested_blocks(std::ssize(scales_))));
  const float offset = nest_scales(scales_, map, codes, absmax);
  unnest_scales(codes, absmax, map, offset, scales_);
}

int64_t Nf4RoundTrip::least_rows(int64_t inputs) const { return kNf4Block / std::gcd(inputs, kNf4Block); }

void Nf4RoundTrip::apply(int64_t first, std::span<float> values) {
  check_internal(first % kNf4Block == 0, "NF4 from within a block");
  const auto count = std::ssize(values);
  codes_.resize(static_cast<size_t>((count + 1) / 2));
  found_.resize(static_cast<size_t>(nf4_blocks(count)));
  nf4_kernel()({values.data(), count, codes_.data(), found_.data()});
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t two = codes_[static_cast<size_t>(i / 2)];
    const float value = kNf4Levels[i % 2 == 0 ? two >> 4U : two & 15U] *
                        scales_[static_cast<size_t>((first + i) / kNf4Block)];
    values[static_cast<size_t>(i)] = value;
  }
  round_to(compute_, values);
}

bool stores_nf4(const ModelFolder& model, const std::string& weight) {
  return model.contains(weight + kStateSuffix) || model.contains(weight + kOtherStateSuffix);
}

void load_nf4(const PersistentState& state, const Nf4Rows& rows, const ModelFolder& model,
              std::span<std::byte> staging, RankReader* reader) {
  const std::string& name = rows.codes->name;
  if (stores_nf4(model, name)) return read_quantised(state, rows, model, staging, reader);
  with_stored_values(model, name, rows.weight_shape(), staging,
                     [&](const StoredTensor& stored, std::span<float> chunk, const ReadValues& read) {
                       if (reader == nullptr) return quantise_values(state, rows, chunk, read);
                       quantise_by_ranks(state, rows, stored, chunk, read, *reader);
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
