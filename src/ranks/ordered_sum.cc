#include "ranks/ordered_sum.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/units.h"
#include "tensor/bf16.h"

namespace plimsoll {
namespace {

// A piece stays in a core's cache: in shared memory pieces of this size move four times as fast as large
// ones (measured).
constexpr int64_t kPieceBytes = kMiB;
constexpr size_t kUnit = 64;  // bytes; pieces hold whole elements and lie on cache lines

// sums[i] = ((pieces[0][i] + pieces[1][i]) + pieces[2][i]) ...
template <class T>
void sum_in_order(const std::byte* pieces, size_t ranks, size_t bytes, std::byte* sums) {
  const size_t count = bytes / sizeof(T);
  const auto* first = reinterpret_cast<const T*>(pieces);
  auto* const to = reinterpret_cast<T*>(sums);
  const auto* second = reinterpret_cast<const T*>(pieces + bytes);
  for (size_t i = 0; i < count; ++i) to[i] = first[i] + second[i];
  for (size_t r = 2; r < ranks; ++r) {
    const auto* next = reinterpret_cast<const T*>(pieces + r * bytes);
    for (size_t i = 0; i < count; ++i) to[i] += next[i];
  }
}

// Rounded once, after the last addition.
void sum_bf16(const std::byte* pieces, size_t ranks, size_t bytes, std::byte* sums) {
  const size_t count = bytes / sizeof(uint16_t);
  const auto* from = reinterpret_cast<const uint16_t*>(pieces);
  auto* const to = reinterpret_cast<uint16_t*>(sums);
  for (size_t i = 0; i < count; ++i) {
    float sum = f32_from_bf16(from[i]);
    for (size_t r = 1; r < ranks; ++r) sum += f32_from_bf16(from[r * count + i]);
    to[i] = bf16_from_f32(sum);
  }
}

size_t ranks_of(const Group& group) { return static_cast<size_t>(group.size()); }

}  // namespace

OrderedSum::OrderedSum(Group& group) : group_(group) {
  if (group.is_alone()) return;
  slice_.resize(static_cast<size_t>(staging_bytes(group.size()) / 2));
  received_.resize(slice_.size());
}

int64_t OrderedSum::staging_bytes(int64_t ranks) { return ranks == 1 ? 0 : 2 * ranks * kPieceBytes; }

void OrderedSum::add(std::span<const std::span<std::byte>> parts, DType dtype) {
  if (group_.is_alone()) return;
  size_t part = 0, at = 0;  // of the next byte
  while (part < parts.size()) {
    const size_t first = part, first_at = at;
    size_t filled = 0;
    while (part < parts.size() && filled < slice_.size()) {
      const size_t bytes = std::min(parts[part].size() - at, slice_.size() - filled);
      std::memcpy(slice_.data() + filled, parts[part].data() + at, bytes);
      filled += bytes;
      at += bytes;
      if (at == parts[part].size()) ++part, at = 0;
    }
    add_slice(filled, dtype);
    part = first, at = first_at;
    for (size_t taken = 0; taken < filled;) {
      const size_t bytes = std::min(parts[part].size() - at, filled - taken);
      std::memcpy(parts[part].data() + at, slice_.data() + taken, bytes);
      taken += bytes;
      at += bytes;
      if (at == parts[part].size()) ++part, at = 0;
    }
    while (part < parts.size() && parts[part].empty()) ++part;
  }
}

void OrderedSum::add_slice(size_t bytes, DType dtype) {
  const size_t ranks = ranks_of(group_);
  const size_t piece = (bytes + ranks * kUnit - 1) / (ranks * kUnit) * kUnit;
  const size_t all = piece * ranks;
  std::fill(slice_.begin() + static_cast<ptrdiff_t>(bytes), slice_.begin() + static_cast<ptrdiff_t>(all),
            std::byte{0});
  group_.exchange(std::span(slice_).first(all), std::span(received_).first(all));
  std::byte* const own = slice_.data() + piece * static_cast<size_t>(group_.rank());
  switch (dtype) {
    case DType::f32:
      sum_in_order<float>(received_.data(), ranks, piece, own);
      break;
    case DType::f64:
      sum_in_order<double>(received_.data(), ranks, piece, own);
      break;
    case DType::bf16:
      sum_bf16(received_.data(), ranks, piece, own);
      break;
    default:
      throw InternalError("no sum over ranks of " + std::string(to_string(dtype)));
  }
  group_.all_gather(std::span(slice_).first(all));
  sent_bytes_ += static_cast<int64_t>(2 * piece * (ranks - 1));
}

}  // namespace plimsoll
