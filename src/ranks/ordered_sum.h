// Adds up what the ranks have, in the order of ranks: the bits depend on their number alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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
};

// Bytes in memory, or in a store that outlives this.
class RankBytes {
 public:
  RankBytes(std::span<std::byte> memory)
      : memory_(memory) {}  // NOLINT(google-explicit-constructor): they are the bytes
  explicit RankBytes(const ByteStore& store) : store_(&store) {}

  [[nodiscard]] size_t size() const { return store_ != nullptr ? store_->size() : memory_.size(); }
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

// Values travel in their own type. Those of f32 and bf16 are added up in f32 and rounded once; f64 in f64.
// Allocates in its constructor alone.
class OrderedSum {
 public:
  explicit OrderedSum(Group& group);
  // With staging_bytes() of another's memory: that of the card whose tensors are exchanged.
  OrderedSum(Group& group, std::unique_ptr<RankStaging> staging);

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
  void settle() { staging_->settle(); }
  // Bytes that this rank has sent so far.
  [[nodiscard]] int64_t sent_bytes() const { return sent_bytes_; }

 private:
  void add_slice(size_t bytes, DType dtype);
  // The sums over ranks of received_, which has `bytes` of each.
  void sum_received(size_t bytes, DType dtype, std::byte* sums) const;

  Group& group_;
  std::unique_ptr<RankStaging> staging_;
  std::span<std::byte> slice_;     // a piece for each rank, first its own values and then the sums
  std::span<std::byte> received_;  // the rank's piece, from each rank
  int64_t sent_bytes_ = 0;
};

}  // namespace plimsoll
