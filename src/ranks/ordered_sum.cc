#include "ranks/ordered_sum.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "tensor/bf16.h"
#include "tensor/f16.h"

namespace plimsoll {
namespace {

// A piece stays in a core's cache: in shared memory pieces of this size move four times as fast as large
// ones (measured).
constexpr int64_t kPieceBytes = kMiB;
constexpr int64_t kUnit = 64;  // bytes; pieces hold whole elements and lie on cache lines

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
template <float (*widened)(uint16_t), uint16_t (*rounded)(float)>
void sum_halves(const std::byte* pieces, size_t ranks, size_t bytes, std::byte* sums) {
  const size_t count = bytes / sizeof(uint16_t);
  const auto* from = reinterpret_cast<const uint16_t*>(pieces);
  auto* const to = reinterpret_cast<uint16_t*>(sums);
  for (size_t i = 0; i < count; ++i) {
    float sum = widened(from[i]);
    for (size_t r = 1; r < ranks; ++r) sum += widened(from[r * count + i]);
    to[i] = rounded(sum);
  }
}

// Memory of this process.
class OwnStaging final : public RankStaging {
 public:
  explicit OwnStaging(int64_t ranks) : bytes_(static_cast<size_t>(OrderedSum::staging_bytes(ranks))) {}
  [[nodiscard]] std::span<std::byte> bytes() override { return bytes_; }
  void settle() override {}

 private:
  std::vector<std::byte> bytes_;
};

size_t ranks_of(const Group& group) { return static_cast<size_t>(group.size()); }

// The pieces of all parts, one behind the other: the place of the next byte.
struct Place {
  size_t part = 0, at = 0;
};

// Visits what comes next, at most kPieceBytes: visit(part, at, bytes, bytes before). Returns the place behind it, and
// how many bytes that were.
template <class Visit>
std::pair<Place, size_t> walk(std::span<const RankPieces> parts, Place place, Visit visit) {
  size_t done = 0;
  while (place.part < parts.size() && done < size_t{kPieceBytes}) {
    const RankPieces& part = parts[place.part];
    const size_t bytes = std::min(part.piece - place.at, size_t{kPieceBytes} - done);
    visit(part, place.at, bytes, done);
    done += bytes;
    place.at += bytes;
    if (place.at == part.piece) place = {place.part + 1, 0};
  }
  return {place, done};
}

// `bytes` from `at` on of a rank's piece, as their begin and number in the whole; fewer where the last piece ends.
std::pair<size_t, size_t> range_of(const RankPieces& part, size_t rank, size_t at, size_t bytes) {
  const size_t begin = std::min(rank * part.piece + at, part.whole.size());
  return {begin, std::min(bytes, part.whole.size() - begin)};
}

// Copies the next bytes of a rank's pieces to a buffer (zeros behind the last piece's end) or from it.
void pack(std::span<const RankPieces> parts, Place place, size_t rank, std::byte* to) {
  walk(parts, place, [&](const RankPieces& part, size_t at, size_t bytes, size_t before) {
    const auto [begin, count] = range_of(part, rank, at, bytes);
    part.whole.read(begin, {to + before, count});
    std::fill_n(to + before + count, bytes - count, std::byte{0});
  });
}
void unpack(std::span<const RankPieces> parts, Place place, size_t rank, const std::byte* from) {
  walk(parts, place, [&](const RankPieces& part, size_t at, size_t bytes, size_t before) {
    const auto [begin, count] = range_of(part, rank, at, bytes);
    part.whole.write(begin, {from + before, count});
  });
}
std::pair<Place, size_t> next(std::span<const RankPieces> parts, Place place) {
  return walk(parts, place, [](const RankPieces&, size_t, size_t, size_t) {});
}

}  // namespace

void RankBytes::read(size_t at, std::span<std::byte> to) const {
  if (store_ != nullptr) return store_->read(at, to);
  std::ranges::copy(memory_.subspan(at, to.size()), to.begin());
}

void RankBytes::write(size_t at, std::span<const std::byte> from) const {
  if (store_ != nullptr) return store_->write(at, from);
  std::ranges::copy(from, memory_.begin() + static_cast<ptrdiff_t>(at));
}

OrderedSum::OrderedSum(Group& group) : OrderedSum(group, std::make_unique<OwnStaging>(group.size())) {}

OrderedSum::OrderedSum(Group& group, std::unique_ptr<RankStaging> staging)
    : group_(group), staging_(std::move(staging)) {
  const auto half = static_cast<size_t>(staging_bytes(group.size()) / 2);
  check_internal(staging_->bytes().size() >= 2 * half, "a staging of ranks that is too small");
  slice_ = staging_->bytes().first(half);
  received_ = staging_->bytes().subspan(half, half);
}

std::span<std::byte> OrderedSum::staging() {
  settle();
  return slice_;
}

int64_t OrderedSum::staging_bytes(int64_t ranks) { return ranks == 1 ? 0 : 2 * ranks * kPieceBytes; }

int64_t OrderedSum::bytes_to_add(int64_t ranks, int64_t bytes) {
  const auto of_slice = [&](int64_t slice) {
    return 2 * (ranks - 1) * ((slice + ranks * kUnit - 1) / (ranks * kUnit) * kUnit);
  };
  const int64_t slice = ranks * kPieceBytes;
  return bytes / slice * of_slice(slice) + of_slice(bytes % slice);
}

void OrderedSum::add(std::span<const RankBytes> parts, DType dtype) {
  if (group_.is_alone()) return;
  size_t part = 0, at = 0;  // of the next byte
  while (part < parts.size()) {
    const size_t first = part, first_at = at;
    size_t filled = 0;
    settle();
    while (part < parts.size() && filled < slice_.size()) {
      const size_t bytes = std::min(parts[part].size() - at, slice_.size() - filled);
      parts[part].read(at, {slice_.data() + filled, bytes});
      filled += bytes;
      at += bytes;
      if (at == parts[part].size()) ++part, at = 0;
    }
    add_slice(filled, dtype);
    part = first, at = first_at;
    for (size_t taken = 0; taken < filled;) {
      const size_t bytes = std::min(parts[part].size() - at, filled - taken);
      parts[part].write(at, {slice_.data() + taken, bytes});
      taken += bytes;
      at += bytes;
      if (at == parts[part].size()) ++part, at = 0;
    }
    while (part < parts.size() && parts[part].size() == 0) ++part;
  }
}

void OrderedSum::add_slice(size_t bytes, DType dtype) {
  const size_t ranks = ranks_of(group_);
  const size_t unit = ranks * size_t{kUnit};
  const size_t piece = (bytes + unit - 1) / unit * size_t{kUnit};
  const size_t all = piece * ranks;
  settle();
  std::fill(slice_.begin() + static_cast<ptrdiff_t>(bytes), slice_.begin() + static_cast<ptrdiff_t>(all),
            std::byte{0});
  group_.exchange(slice_.first(all), received_.first(all));
  sum_received(piece, dtype, slice_.data() + piece * static_cast<size_t>(group_.rank()));
  group_.all_gather(slice_.first(all));
  sent_bytes_ += static_cast<int64_t>(2 * piece * (ranks - 1));
}

void OrderedSum::sum_received(size_t bytes, DType dtype, std::byte* sums) const {
  const size_t ranks = ranks_of(group_);
  switch (dtype) {
    case DType::f32:
      return sum_in_order<float>(received_.data(), ranks, bytes, sums);
    case DType::f64:
      return sum_in_order<double>(received_.data(), ranks, bytes, sums);
    case DType::bf16:
      return sum_halves<f32_from_bf16, bf16_from_f32>(received_.data(), ranks, bytes, sums);
    case DType::f16:
      return sum_halves<f32_from_f16, f16_from_f32>(received_.data(), ranks, bytes, sums);
    default:
      throw InternalError("no sum over ranks of " + std::string(to_string(dtype)));
  }
}

void OrderedSum::add_pieces(std::span<const RankPieces> parts, DType dtype) {
  if (group_.is_alone()) return;
  const size_t ranks = ranks_of(group_);
  const auto own = static_cast<size_t>(group_.rank());
  for (Place place; place.part < parts.size();) {
    const auto [end, bytes] = next(parts, place);
    settle();
    for (size_t rank = 0; rank < ranks; ++rank) pack(parts, place, rank, slice_.data() + rank * bytes);
    settle();
    group_.exchange(slice_.first(ranks * bytes), received_.first(ranks * bytes));
    sum_received(bytes, dtype, slice_.data());
    unpack(parts, place, own, slice_.data());
    sent_bytes_ += static_cast<int64_t>(bytes * (ranks - 1));
    place = end;
  }
}

void OrderedSum::gather_pieces(std::span<const RankPieces> parts) {
  if (group_.is_alone()) return;
  const size_t ranks = ranks_of(group_);
  const auto own = static_cast<size_t>(group_.rank());
  for (Place place; place.part < parts.size();) {
    const auto [end, bytes] = next(parts, place);
    settle();
    pack(parts, place, own, slice_.data() + own * bytes);
    settle();
    group_.all_gather(slice_.first(ranks * bytes));
    for (size_t rank = 0; rank < ranks; ++rank)
      if (rank != own) unpack(parts, place, rank, slice_.data() + rank * bytes);
    sent_bytes_ += static_cast<int64_t>(bytes * (ranks - 1));
    place = end;
  }
}

}  // namespace plimsoll
