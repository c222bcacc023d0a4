// Adds up what the ranks have, in the order of ranks: the bits depend on their number alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ranks/group.h"
#include "tensor/tensor.h"

namespace plimsoll {

// The memory that a rank sends from and receives in. A card copies by itself between it and its own memory.
class RankStaging {
 public:
  virtual ~RankStaging() = default;
  [[nodiscard]] virtual std::span<std::byte> bytes() = 0;
  // Returns when no copy to it or from it is under way.
  virtual void settle() = 0;
};

// Bytes that have no address: on a disk, or a card's. Between these and RankStaging a copy may be under way when
// read() or write() returns, until that settles.
class ByteStore {
 public:
  virtual ~ByteStore() = default;
  [[nodiscard]] virtual size_t size() const = 0;
  virtual void read(size_t at, std::span<std::byte> to) const = 0;
  virtual void write(size_t at, std::span<const std::byte> from) const = 0;
  // A card's memory, which that copies by itself, to memory of its own too.
  [[nodiscard]] virtual bool is_of_card() const { return false; }
};

// Bytes in memory, or in a store that outlives this.
class RankBytes {
 public:
  RankBytes(std::span<std::byte> memory)
      : memory_(memory) {}  // NOLINT(google-explicit-constructor): they are the bytes
  explicit RankBytes(const ByteStore& store) : store_(&store) {}

  [[nodiscard]] size_t size() const { return store_ != nullptr ? store_->size() : memory_.size(); }
  [[nodiscard]] bool is_of_card() const { return store_ != nullptr && store_->is_of_card(); }
  void read(size_t at, std::span<std::byte> to) const;
  void write(size_t at, std::span<const std::byte> from) const;

 private:
  std::span<std::byte> memory_;
  const ByteStore* store_ = nullptr;
};

// Bytes of which every rank has one piece: rank r that of the r-th `piece` bytes, the last one perhaps fewer.
struct RankPieces {
  RankBytes whole;
  size_t piece = 0;
};

// It moves bytes between ranks and adds them up, in the order of its calls: the host with a group, or cards by
// themselves. Where several ranks are asked for pieces, each has one of equal size.
class RankExchange {
 public:
  virtual ~RankExchange() = default;
  // Memory that it has on a GPU, with all that a library has for it.
  [[nodiscard]] virtual int64_t taken_bytes() const { return 0; }
  // Two halves, of a piece for each rank: to send from, and to receive in.
  [[nodiscard]] virtual std::span<std::byte> bytes() = 0;
  // Between these bytes and those of a tensor; `to` and `from` are some of bytes().
  virtual void read(const RankBytes& tensor, size_t at, std::span<std::byte> to) = 0;
  virtual void write(const RankBytes& tensor, size_t at, std::span<const std::byte> from) = 0;
  virtual void clear(std::span<std::byte> bytes) = 0;
  // As Group has them.
  virtual void exchange(std::span<const std::byte> from, std::span<std::byte> to) = 0;
  virtual void all_gather(std::span<std::byte> bytes) = 0;
  // Values of each rank become their sums, of a piece's size, in the order of ranks.
  virtual void add_up(std::span<const std::byte> pieces, DType dtype, std::byte* sums) = 0;
  // bytes() are filled once more from here on.
  virtual void turn() = 0;
  // All that other ranks have a part in was called for: throws what failed of it.
  virtual void done() = 0;
  // Host memory that callers may use between two sums, once settle() has returned.
  [[nodiscard]] virtual std::span<std::byte> staging() = 0;
  virtual void settle() = 0;
};

// Values travel in their own type. Those of f32 and bf16 are added up in f32 and rounded once; f64 in f64.
// Allocates in its constructor alone.
class OrderedSum {
 public:
  explicit OrderedSum(Group& group);
  // With staging_bytes() of another's memory: that of the card whose tensors are exchanged.
  OrderedSum(Group& group, std::unique_ptr<RankStaging> staging);
  OrderedSum(Group& group, std::unique_ptr<RankExchange> exchange);

  // The staging that a group of so many has.
  static int64_t staging_bytes(int64_t ranks);
  // Bytes that a rank sends to add up so many, all of one type.
  static int64_t bytes_to_add(int64_t ranks, int64_t bytes);

  // Every part becomes the sum over ranks of that part. All parts are of one type; ranks name the same ones.
  void add(std::span<const RankBytes> parts, DType dtype);
  // This rank's piece of every part becomes the sum over ranks, with the bits of add(); the rest is left as it was.
  void add_pieces(std::span<const RankPieces> parts, DType dtype);
  // Every part becomes whole: each rank has filled its piece.
  void gather_pieces(std::span<const RankPieces> parts);
  // A buffer of the caller's between two calls; empty in a group of one process.
  [[nodiscard]] std::span<std::byte> staging();
  // Returns when no copy to staging() or from it is under way.
  void settle() { exchange_->settle(); }
  // Bytes that this rank has sent so far.
  [[nodiscard]] int64_t sent_bytes() const { return sent_bytes_; }
  // Memory that the exchange has on a GPU.
  [[nodiscard]] int64_t exchange_bytes() const { return exchange_->taken_bytes(); }

 private:
  // The next parts of a slice, from a place on.
  struct Place {
    size_t part = 0, at = 0;
  };
  void add_slice(size_t bytes, DType dtype);
  // Copies the next bytes of a rank's pieces to a buffer (zeros behind the last piece's end) or from it.
  void pack(std::span<const RankPieces> parts, Place place, size_t rank, std::byte* to);
  void unpack(std::span<const RankPieces> parts, Place place, size_t rank, const std::byte* from);
  template <class Visit>
  std::pair<Place, size_t> walk(std::span<const RankPieces> parts, Place place, Visit visit) const;
  [[nodiscard]] std::pair<Place, size_t> next(std::span<const RankPieces> parts, Place place) const;

  Group& group_;
  std::unique_ptr<RankExchange> exchange_;
  std::span<std::byte> slice_;     // a piece for each rank, first its own values and then the sums
  std::span<std::byte> received_;  // the rank's piece, from each rank
  size_t piece_ = 0;               // of these
  int64_t sent_bytes_ = 0;
};

}  // namespace plimsoll
