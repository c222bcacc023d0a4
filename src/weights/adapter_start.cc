#include "weights/adapter_start.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/error.h"
#include "formats/convert.h"
#include "formats/load.h"
#include "ops/name_hash.h"
#include "weights/low_rank_start.h"
#include "weights/row_io.h"
#include "weights/weights.h"

namespace plimsoll {
namespace {

bool is_a(const TableRow& row) { return row.parameter.adapter == AdapterPart::a; }
bool is_start(const TableRow& row) { return row.parameter.origin == Origin::derived; }

std::vector<float> read_values(const PersistentState& state, const TableRow& row) {
  std::vector<std::byte> stored(static_cast<size_t>(row.bytes));
  state.read(row, 0, stored);
  std::vector<float> values(static_cast<size_t>(row.shape.elements()));
  convert(stored, row.dtype, std::as_writable_bytes(std::span(values)), DType::f32);
  return values;
}

void write_values(const PersistentState& state, const TableRow& row, std::span<const float> values) {
  std::vector<std::byte> stored(static_cast<size_t>(row.bytes));
  convert(std::as_bytes(values), DType::f32, stored, row.dtype);
  state.write(row, 0, stored);
}

// An adapter's weight, and its master where it has one.
void write_adapter_values(const PersistentState& state, const TableRow& row, std::span<const float> values) {
  write_values(state, row, values);
  if (const TableRow* master = state.master_of(row)) write_values(state, *master, values);
}

// The rows of one adapted layer.
struct AdaptedLayer {
  std::string module;
  const TableRow *weight = nullptr, *a = nullptr, *b = nullptr, *start_a = nullptr, *start_b = nullptr;

  void take(const TableRow& row) {
    const TableRow*& place = is_start(row) ? (is_a(row) ? start_a : start_b) : (is_a(row) ? a : b);
    place = &row;
  }
};

std::vector<AdaptedLayer> layers_with_start(const PersistentState& state) {
  std::vector<AdaptedLayer> layers;
  std::map<Name, size_t> places;
  const auto is_of_adapter = [](const TableRow& row) {
    const AdapterPart part = row.parameter.adapter;
    return is_weight(row) && (part == AdapterPart::a || part == AdapterPart::b);
  };
  for (const TableRow& row : state.rows())
    if (is_of_adapter(row) && is_start(row) && places.emplace(row.module, layers.size()).second)
      layers.push_back({.module = row.module, .weight = state.find(row.module + ".weight")});
  for (const TableRow& row : state.rows())
    if (const auto place = places.find(row.module); is_of_adapter(row) && place != places.end())
      layers[place->second].take(row);
  for (const AdaptedLayer& layer : layers)
    for (const TableRow* one : {layer.weight, layer.a, layer.b, layer.start_a, layer.start_b})
      check_internal(one != nullptr, "an adapter's start without its layer: " + layer.module);
  return layers;
}

// weight -= scale * B A, a few rows at a time, rounded to the weight's type.
void take_out(const PersistentState& state, const AdaptedLayer& layer, double scale) {
  const std::vector<float> a = read_values(state, *layer.start_a), b = read_values(state, *layer.start_b);
  const int64_t out = layer.weight->shape[0], in = layer.weight->shape[1], r = layer.start_a->shape[0];
  const int64_t size = size_of(layer.weight->dtype);
  std::vector<float> values(static_cast<size_t>(in));
  std::vector<std::byte> stored(static_cast<size_t>(in * size));
  for (int64_t row = 0; row < out; ++row) {
    state.read(*layer.weight, row * in * size, stored);
    convert(stored, layer.weight->dtype, std::as_writable_bytes(std::span(values)), DType::f32);
    for (int64_t k = 0; k < r; ++k) {
      const float factor = static_cast<float>(scale) * b[static_cast<size_t>(row * r + k)];
      for (int64_t i = 0; i < in; ++i)
        values[static_cast<size_t>(i)] -= factor * a[static_cast<size_t>(k * in + i)];
    }
    convert(std::as_bytes(std::span(values)), DType::f32, stored, layer.weight->dtype);
    state.write(*layer.weight, row * in * size, stored);
  }
}

}  // namespace

const TableRow* start_of(const PersistentState& state, const TableRow& adapter) {
  if (is_a(adapter)) return state.find(adapter.module + kStartOfA);
  return adapter.parameter.adapter == AdapterPart::b ? state.find(adapter.module + kStartOfB) : nullptr;
}

void start_adapters(const PersistentState& state, const LoraOptions& lora, const CpuSettings& cpu,
                    uint64_t seed) {
  const AdapterRules rules(lora);
  for (const AdaptedLayer& layer : layers_with_start(state)) {
    const auto [r, scale] = rules.size_of(layer.module);
    const std::vector<float> values = read_values(state, *layer.weight);
    const WeightView view{values, layer.weight->shape[0], layer.weight->shape[1]};
    const LowRank part = lora.start == AdapterStart::olora
                             ? leading_part(view, r, cpu.isa, cpu.threads)
                             : principal_part(view, r, scale, lora.start_iterations,
                                              name_hash(layer.module) ^ seed, cpu.isa, cpu.threads);
    write_adapter_values(state, *layer.a, part.a);
    write_adapter_values(state, *layer.b, part.b);
    write_values(state, *layer.start_a, part.a);
    write_values(state, *layer.start_b, part.b);
  }
}

void take_out_starts(const PersistentState& state, const LoraOptions& lora) {
  const AdapterRules rules(lora);
  for (const AdaptedLayer& layer : layers_with_start(state))
    take_out(state, layer, rules.size_of(layer.module).scale);
}

namespace {

bool is_transposed(const TableRow& adapter) { return adapter.parameter.adapter == AdapterPart::embedding_a; }

}  // namespace

std::vector<float> transposed(std::span<const float> values, int64_t columns) {
  const auto width = static_cast<size_t>(columns), height = values.size() / width;
  std::vector<float> result(values.size());
  for (size_t row = 0; row < height; ++row)
    for (size_t column = 0; column < width; ++column)
      result[column * height + row] = values[row * width + column];
  return result;
}

bool is_saved_otherwise(const PersistentState& state, const TableRow& adapter) {
  return is_transposed(adapter) || start_of(state, adapter) != nullptr;
}

Shape saved_shape(const PersistentState& state, const TableRow& adapter) {
  const Shape& shape = adapter.shape;
  if (is_transposed(adapter)) return {shape[1], shape[0]};
  if (start_of(state, adapter) == nullptr) return shape;
  return is_a(adapter) ? Shape{2 * shape[0], shape[1]} : Shape{shape[0], 2 * shape[1]};
}

std::vector<float> values_to_save(const PersistentState& state, const TableRow& adapter) {
  const TableRow* master = state.master_of(adapter);
  std::vector<float> trained = read_values(state, master != nullptr ? *master : adapter);
  if (is_transposed(adapter)) return transposed(trained, adapter.shape[1]);
  const std::vector<float> start = read_values(state, *start_of(state, adapter));
  if (is_a(adapter)) {
    for (const float x : start) trained.push_back(-x);
    return trained;
  }
  const int64_t r = adapter.shape[1];
  std::vector<float> both;
  for (int64_t row = 0; row < adapter.shape[0]; ++row) {
    both.insert(both.end(), trained.begin() + row * r, trained.begin() + (row + 1) * r);
    both.insert(both.end(), start.begin() + row * r, start.begin() + (row + 1) * r);
  }
  return both;
}

void store_saved(const PersistentState& state, const TableRow& adapter, std::span<const float> values) {
  if (is_transposed(adapter))
    return write_adapter_values(state, adapter, transposed(values, adapter.shape[0]));
  std::vector<float> trained, start;
  if (is_a(adapter)) {
    const size_t half = values.size() / 2;
    trained.assign(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half));
    for (const float x : values.subspan(half)) start.push_back(-x);
  } else {
    const auto r = static_cast<size_t>(adapter.shape[1]);
    for (size_t at = 0; at < values.size(); at += 2 * r) {
      const auto row = values.subspan(at, 2 * r);
      trained.insert(trained.end(), row.begin(), row.begin() + static_cast<std::ptrdiff_t>(r));
      start.insert(start.end(), row.begin() + static_cast<std::ptrdiff_t>(r), row.end());
    }
  }
  write_adapter_values(state, adapter, trained);
  write_values(state, *start_of(state, adapter), start);
}

}  // namespace plimsoll
