// Adds up what the ranks have, in the order of ranks: the bits depend on their number alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ranks/group.h"
#include "tensor/tensor.h"

namespace plimsoll {

// Bytes of which every rank has one piece: rank r that of the r-th `piece` bytes, the last one perhaps fewer.
struct RankPieces {
  std::span<std::byte> whole;
  size_t piece = 0;
};

// Values travel in their own type. Those of f32 and bf16 are added up in f32 and rounded once; f64 in f64.
// Allocates in its constructor alone.
class OrderedSum {
 public:
  explicit OrderedSum(Group& group);

  // The staging that a group of so many has.
  static int64_t staging_bytes(int64_t ranks);
  // Bytes that a rank sends to add up so many, all of one type.
  static int64_t bytes_to_add(int64_t ranks, int64_t bytes);

  // Every part becomes the sum over ranks of that part. All parts are of one type; ranks name the same ones.
  void add(std::span<const std::span<std::byte>> parts, DType dtype);
  // This rank's piece of every part becomes the sum over ranks, with the bits of add(); the rest is left as it was.
  void add_pieces(std::span<const RankPieces> parts, DType dtype);
  // Every part becomes whole: each rank has filled its piece.
  void gather_pieces(std::span<const RankPieces> parts);
  // Bytes that this rank has sent so far.
  [[nodiscard]] int64_t sent_bytes() const { return sent_bytes_; }

 private:
  void add_slice(size_t bytes, DType dtype);
  // The sums over ranks of received_, which has `bytes` of each.
  void sum_received(size_t bytes, DType dtype, std::byte* sums) const;

  Group& group_;
  std::vector<std::byte> slice_;     // a piece for each rank, first its own values and then the sums
  std::vector<std::byte> received_;  // the rank's piece, from each rank
  int64_t sent_bytes_ = 0;
};

}  // namespace plimsoll
