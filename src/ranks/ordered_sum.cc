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

// Sums over `ranks` of pieces of each.
void sum_over_ranks(std::span<const std::byte> pieces, size_t ranks, DType dtype, std::byte* sums) {
  const size_t bytes = pieces.size() / ranks;
  switch (dtype) {
    case DType::f32:
      return sum_in_order<float>(pieces.data(), ranks, bytes, sums);
    case DType::f64:
      return sum_in_order<double>(pieces.data(), ranks, bytes, sums);
    case DType::bf16:
      return sum_halves<f32_from_bf16, bf16_from_f32>(pieces.data(), ranks, bytes, sums);
    case DType::f16:
      return sum_halves<f32_from_f16, f16_from_f32>(pieces.data(), ranks, bytes, sums);
    default:
      throw InternalError("no sum over ranks of " + std::string(to_string(dtype)));
  }
}

// The group moves the bytes of a staging, in which the host adds them up.
class GroupExchange final : public RankExchange {
 public:
  GroupExchange(Group& group, std::unique_ptr<RankStaging> staging)
      : group_(group), staging_(std::move(staging)) {}
  [[nodiscard]] std::span<std::byte> bytes() override { return staging_->bytes(); }
  void read(const RankBytes& tensor, size_t at, std::span<std::byte> to) override { tensor.read(at, to); }
  void write(const RankBytes& tensor, size_t at, std::span<const std::byte> from) override {
    tensor.write(at, from);
  }
  void clear(std::span<std::byte> bytes) override { std::ranges::fill(bytes, std::byte{0}); }
  void exchange(std::span<const std::byte> from, std::span<std::byte> to) override {
    settle();
    group_.exchange(from, to);
  }
  void all_gather(std::span<std::byte> bytes) override {
    settle();
    group_.all_gather(bytes);
  }
  void add_up(std::span<const std::byte> pieces, DType dtype, std::byte* sums) override {
    sum_over_ranks(pieces, ranks_of(group_), dtype, sums);
  }
  void turn() override { settle(); }
  void done() override {}
  [[nodiscard]] std::span<std::byte> staging() override { return bytes().first(bytes().size() / 2); }
  void settle() override { staging_->settle(); }

 private:
  Group& group_;
  std::unique_ptr<RankStaging> staging_;
};

// `bytes` from `at` on of a rank's piece, as their begin and number in the whole; fewer where the last piece ends.
std::pair<size_t, size_t> range_of(const RankPieces& part, size_t rank, size_t at, size_t bytes) {
  const size_t begin = std::min(rank * part.piece + at, part.whole.size());
  return {begin, std::min(bytes, part.whole.size() - begin)};
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
    : OrderedSum(group, std::make_unique<GroupExchange>(group, std::move(staging))) {}

OrderedSum::OrderedSum(Group& group, std::unique_ptr<RankExchange> exchange)
    : group_(group), exchange_(std::move(exchange)) {
  const std::span<std::byte> bytes = exchange_->bytes();
  piece_ = bytes.size() / 2 / ranks_of(group);
  check_internal(piece_ % kUnit == 0 && (piece_ > 0 || group.is_alone()),
                 "a staging of ranks that is too small");
  slice_ = bytes.first(piece_ * ranks_of(group));
  received_ = bytes.subspan(slice_.size(), slice_.size());
}

std::span<std::byte> OrderedSum::staging() {
  settle();
  return exchange_->staging();
}

int64_t OrderedSum::staging_bytes(int64_t ranks) { return ranks == 1 ? 0 : 2 * ranks * kPieceBytes; }

int64_t OrderedSum::bytes_to_add(int64_t ranks, int64_t bytes) {
  const auto of_slice = [&](int64_t slice) {
    return 2 * (ranks - 1) * ((slice + ranks * kUnit - 1) / (ranks * kUnit) * kUnit);
  };
  const int64_t slice = ranks * kPieceBytes;
  return bytes / slice * of_slice(slice) + of_slice(bytes % slice);
}

// The pieces of all parts are one behind the other. Visits what comes next, at most a piece of the slice: visit(part, at,
// bytes, bytes before). Returns the place behind it, and how many bytes that were.
template <class Visit>
std::pair<OrderedSum::Place, size_t> OrderedSum::walk(std::span<const RankPieces> parts, Place place,
                                                      Visit visit) const {
  size_t done = 0;
  while (place.part < parts.size() && done < piece_) {
    const RankPieces& part = parts[place.part];
    const size_t bytes = std::min(part.piece - place.at, piece_ - done);
    visit(part, place.at, bytes, done);
    done += bytes;
    place.at += bytes;
    if (place.at == part.piece) place = {place.part + 1, 0};
  }
  return {place, done};
}

std::pair<OrderedSum::Place, size_t> OrderedSum::next(std::span<const RankPieces> parts, Place place) const {
  return walk(parts, place, [](const RankPieces&, size_t, size_t, size_t) {});
}

void OrderedSum::pack(std::span<const RankPieces> parts, Place place, size_t rank, std::byte* to) {
  walk(parts, place, [&](const RankPieces& part, size_t at, size_t bytes, size_t before) {
    const auto [begin, count] = range_of(part, rank, at, bytes);
    exchange_->read(part.whole, begin, {to + before, count});
    exchange_->clear({to + before + count, bytes - count});
  });
}

void OrderedSum::unpack(std::span<const RankPieces> parts, Place place, size_t rank, const std::byte* from) {
  walk(parts, place, [&](const RankPieces& part, size_t at, size_t bytes, size_t before) {
    const auto [begin, count] = range_of(part, rank, at, bytes);
    exchange_->write(part.whole, begin, {from + before, count});
  });
}

void OrderedSum::add(std::span<const RankBytes> parts, DType dtype) {
  if (group_.is_alone()) return;
  size_t part = 0, at = 0;  // of the next byte
  while (part < parts.size()) {
    const size_t first = part, first_at = at;
    size_t filled = 0;
    exchange_->turn();
    while (part < parts.size() && filled < slice_.size()) {
      const size_t bytes = std::min(parts[part].size() - at, slice_.size() - filled);
      exchange_->read(parts[part], at, {slice_.data() + filled, bytes});
      filled += bytes;
      at += bytes;
      if (at == parts[part].size()) ++part, at = 0;
    }
    add_slice(filled, dtype);
    part = first, at = first_at;
    for (size_t taken = 0; taken < filled;) {
      const size_t bytes = std::min(parts[part].size() - at, filled - taken);
      exchange_->write(parts[part], at, {slice_.data() + taken, bytes});
      taken += bytes;
      at += bytes;
      if (at == parts[part].size()) ++part, at = 0;
    }
    while (part < parts.size() && parts[part].size() == 0) ++part;
  }
  exchange_->done();
}

void OrderedSum::add_slice(size_t bytes, DType dtype) {
  const size_t ranks = ranks_of(group_);
  const size_t unit = ranks * size_t{kUnit};
  const size_t piece = (bytes + unit - 1) / unit * size_t{kUnit};
  const size_t all = piece * ranks;
  exchange_->clear(slice_.subspan(bytes, all - bytes));
  exchange_->exchange(slice_.first(all), received_.first(all));
  exchange_->add_up(received_.first(all), dtype, slice_.data() + piece * static_cast<size_t>(group_.rank()));
  exchange_->all_gather(slice_.first(all));
  sent_bytes_ += static_cast<int64_t>(2 * piece * (ranks - 1));
}

void OrderedSum::add_pieces(std::span<const RankPieces> parts, DType dtype) {
  if (group_.is_alone()) return;
  const size_t ranks = ranks_of(group_);
  const auto own = static_cast<size_t>(group_.rank());
  for (Place place; place.part < parts.size();) {
    const auto [end, bytes] = next(parts, place);
    exchange_->turn();
    for (size_t rank = 0; rank < ranks; ++rank) pack(parts, place, rank, slice_.data() + rank * bytes);
    exchange_->exchange(slice_.first(ranks * bytes), received_.first(ranks * bytes));
    exchange_->add_up(received_.first(ranks * bytes), dtype, slice_.data());
    unpack(parts, place, own, slice_.data());
    sent_bytes_ += static_cast<int64_t>(bytes * (ranks - 1));
    place = end;
  }
  exchange_->done();
}

void OrderedSum::gather_pieces(std::span<const RankPieces> parts) {
  if (group_.is_alone()) return;
  const size_t ranks = ranks_of(group_);
  const auto own = static_cast<size_t>(group_.rank());
  for (Place place; place.part < parts.size();) {
    const auto [end, bytes] = next(parts, place);
    exchange_->turn();
    pack(parts, place, own, slice_.data() + own * bytes);
    exchange_->all_gather(slice_.first(ranks * bytes));
    for (size_t rank = 0; rank < ranks; ++rank)
      if (rank != own) unpack(parts, place, rank, slice_.data() + rank * bytes);
    sent_bytes_ += static_cast<int64_t>(bytes * (ranks - 1));
    place = end;
  }
  exchange_->done();
}

}  // namespace plimsoll
