#include "weights/int8_weights.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "cpu/isa.h"
#include "ops/linear/int8.h"
#include "weights/row_io.h"

namespace plimsoll {
namespace {

constexpr int64_t kCodesOfByte = 1;

// Half of the staging holds a row's values.
static_assert(kInt8MostInputs * int64_t{sizeof(float)} <= kLoadStagingBytes / 2);

auto int8_kernel() { return detect_isa() == Isa::avx2 ? avx2::int8_quantize : avx512::int8_quantize; }

float value_of(int8_t code, float absmax) { return static_cast<float>(code) * (absmax * kInt8Step); }

// Rows of a weight, one after another.
struct Rows {
  int64_t first = 0;
  int64_t count = 0;
};

// Those that a range of elements lies in.
Rows rows_of(ElementRange part, int64_t width) {
  if (part.elements == 0) return {};
  const int64_t first = part.first / width;
  return {first, (part.first + part.elements - 1) / width + 1 - first};
}

void require_finite(std::span<const float> absmax, const std::string& weight, int64_t first_row) {
  const auto bad = std::find_if_not(absmax.begin(), absmax.end(), [](float x) { return std::isfinite(x); });
  if (bad == absmax.end()) return;
  throw DamagedError(formatted(
      "{}: row {} holds a value that is not finite, or beyond the 65,504 of f16, which bitsandbytes "
      "rounds to first; it cannot be quantised to 8 bits",
      weight, first_row + (bad - absmax.begin())));
}

// Codes of whole rows, into their tensor (those that this rank has of it, where it writes any), and their scales.
void quantise_rows(const PersistentState& state, const Int8Rows& rows, Rows part, std::span<float> chunk,
                   const ReadValues& read, float* absmax, bool writes_codes = true) {
  const auto kernel = int8_kernel();
  const int64_t width = rows.weight_shape()[1];
  const int64_t step = std::ssize(chunk) / width;
  check_internal(step > 0, "int8: a row is longer than the staging");
  std::vector<int8_t> codes(static_cast<size_t>(std::min(step, part.count) * width));
  for (int64_t done = 0; done < part.count; done += step) {
    const int64_t count = std::min(step, part.count - done), first = (part.first + done) * width;
    const auto values = chunk.first(static_cast<size_t>(count * width));
    read(first, values);
    kernel({values.data(), count, width, codes.data(), absmax + done});
    if (writes_codes)
      write_codes(state, *rows.codes, first, std::as_bytes(std::span(codes)).first(values.size()));
  }
}

void store_absmax(const PersistentState& state, const Int8Rows& rows, std::span<const float> absmax) {
  require_finite(absmax, rows.codes->name, 0);
  state.write(*rows.absmax, 0, std::as_bytes(absmax));
}

// As quantise_values(), each rank its share. Shares are cut within rows: a rank reads those that it has a part of
// whole, and their scales come together in a slot for each rank.
void quantise_by_ranks(const PersistentState& state, const Int8Rows& rows, const StoredTensor& stored,
                       std::span<float> chunk, const ReadValues& read, RankReader& reader) {
  const int64_t width = rows.weight_shape()[1], count = rows.weight_shape().elements();
  const RankShare part = share_of_codes(state, *rows.codes, kCodesOfByte, reader);
  const int64_t slot = ceil_div(part.each + width - 1, width), slots = ceil_div(count, part.each);
  std::vector<float> found(static_cast<size_t>(slots * slot));
  const Rows own = rows_of(part.own, width);
  const auto work = [&] {
    if (own.count == 0) return;
    quantise_rows(state, rows, own, chunk, read, found.data() + part.own.first / part.each * slot);
  };
  make_by_ranks(state, *rows.codes, part, kCodesOfByte,
                {std::as_writable_bytes(std::span(found)), static_cast<size_t>(slot) * sizeof(float)},
                own.count * width * size_of(stored.entry->dtype), work, reader);
  std::vector<float> absmax(static_cast<size_t>(rows.weight_shape()[0]));
  for (int64_t rank = 0; rank < slots; ++rank) {
    const int64_t first = rank * part.each;
    const Rows theirs = rows_of({first, std::min(part.each, count - first)}, width);
    std::copy_n(found.begin() + rank * slot, theirs.count, absmax.begin() + theirs.first);
  }
  store_absmax(state, rows, absmax);
}

// bitsandbytes stored rows in other orders once, for kernels that are gone.
void require_rows(const ModelFolder& model, const std::string& weight) {
  const std::string name = weight.substr(0, weight.rfind('.')) + std::string(kInt8FormatSuffix);
  if (!model.contains(name)) return;
  const StoredTensor stored = model.find(name);
  uint8_t format = 0;
  expect_bytes(stored, 1);
  stored.file->read(*stored.entry, 0, std::as_writable_bytes(std::span(&format, 1)));
  expect(format == 0, name, formatted("{} is an order of rows that is not supported, only 0", int{format}));
}

StoredTensor find_codes(const ModelFolder& model, const std::string& weight, const Shape& shape) {
  require_rows(model, weight);
  const StoredTensor stored = model.find(weight);
  expect(stored.entry->dtype == DType::i8 && stored.entry->shape == shape, weight,
         formatted("is {} {}, expected i8 {}", to_string(stored.entry->dtype),
                   stored.entry->shape.to_string(), shape.to_string()));
  return stored;
}

void read_quantised(const PersistentState& state, const Int8Rows& rows, const ModelFolder& model,
                    std::span<std::byte> staging, RankReader* reader) {
  find_codes(model, rows.codes->name, rows.weight_shape());
  read_as_stored(state, *rows.codes, model, staging, reader);
  const StoredTensor absmax = model.find(rows.absmax->name);
  if (reader != nullptr)
    reader->load(state, *rows.absmax, absmax, staging);
  else
    load_row(state, *rows.absmax, absmax, staging);
}

}  // namespace

std::optional<Int8Rows> find_int8(const PersistentState& state, const TableRow& row) {
  if (row.dtype != DType::i8 || !is_weight(row)) return std::nullopt;
  return Int8Rows{&row, state.find(int8_absmax_name(row.name))};
}

void quantise_values(const PersistentState& state, const Int8Rows& rows, std::span<float> chunk,
                     const ReadValues& read) {
  // The processes of a node may have one copy of codes that are offloaded, and of scales each its own on its card.
  const bool writes_codes = state.writes(*rows.codes);
  if (!writes_codes && !state.writes(*rows.absmax)) return;
  std::vector<float> absmax(static_cast<size_t>(rows.weight_shape()[0]));
  quantise_rows(state, rows, {0, std::ssize(absmax)}, chunk, read, absmax.data(), writes_codes);
  store_absmax(state, rows, absmax);
}

void load_int8(const PersistentState& state, const Int8Rows& rows, const ModelFolder& model,
               std::span<std::byte> staging, RankReader* reader) {
  const std::string& name = rows.codes->name;
  if (stores_int8(model, name)) return read_quantised(state, rows, model, staging, reader);
  with_stored_values(model, name, rows.weight_shape(), staging,
                     [&](const StoredTensor& stored, std::span<float> chunk, const ReadValues& read) {
                       if (reader == nullptr) return quantise_values(state, rows, chunk, read);
                       quantise_by_ranks(state, rows, stored, chunk, read, *reader);
                     });
}

void visit_int8(const PersistentState& state, const Int8Rows& rows, std::span<std::byte> staging,
                const UseValues& use) {
  const int64_t width = rows.weight_shape()[1];
  const ResidentValues<float> absmax(state, *rows.absmax);
  state.visit(*rows.codes, staging, [&](int64_t start, std::span<const std::byte> piece) {
    std::array<float, 1024> values{};
    for (int64_t at = 0; at < std::ssize(piece); at += std::ssize(values)) {
      const auto part = std::span(values).first(
          static_cast<size_t>(std::min<int64_t>(std::ssize(values), std::ssize(piece) - at)));
      for (int64_t i = 0; i < std::ssize(part); ++i)
        part[static_cast<size_t>(i)] = value_of(std::to_integer<int8_t>(piece[static_cast<size_t>(at + i)]),
                                                absmax.span()[static_cast<size_t>((start + at + i) / width)]);
      use(start + at, part);
    }
  });
}

StoredInt8::StoredInt8(const ModelFolder& model, const std::string& name, const Shape& shape)
    : codes_(find_codes(model, name, shape)), width_(shape[1]), absmax_(static_cast<size_t>(shape[0])) {
  const StoredTensor absmax = model.find(int8_absmax_name(name));
  expect_bytes(absmax, std::ssize(absmax_) * int64_t{sizeof(float)});
  absmax.file->read(*absmax.entry, 0, std::as_writable_bytes(std::span(absmax_)));
}

void StoredInt8::read(int64_t first, std::span<float> to) {
  bytes_.resize(to.size());
  codes_.file->read(*codes_.entry, first, std::as_writable_bytes(std::span(bytes_)));
  for (size_t i = 0; i < to.size(); ++i)
    to[i] = value_of(bytes_[i], absmax_[static_cast<size_t>((first + static_cast<int64_t>(i)) / width_)]);
}

void Int8RoundTrip::apply(int64_t first, std::span<float> values) {
  const int64_t rows = std::ssize(values) / width_;
  check_internal(first % width_ == 0 && rows * width_ == std::ssize(values), "int8 from within a row");
  codes_.resize(values.size());
  absmax_.resize(static_cast<size_t>(rows));
  int8_kernel()({values.data(), rows, width_, codes_.data(), absmax_.data()});
  require_finite(absmax_, weight_, first / width_);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = value_of(codes_[i], absmax_[i / static_cast<size_t>(width_)]);
  round_to(compute_, values);
}

bool stores_int8(const ModelFolder& model, const std::string& weight) {
  return model.contains(int8_absmax_name(weight));
}

}  // namespace plimsoll
