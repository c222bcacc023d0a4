// Bytes and transfers of a run's parts by layers: sums that a search leaves variants out by before
// it measures them.
#pragma once

#include <array>
#include <vector>

#include "plan/search/depth_model.h"

namespace plimsoll {

// Measured of one part at a time, in one offload target, without prefetch. Bytes and transfers of different parts add
// up exactly; the time of computing, and copies on the device, only come on top.
class OffloadCosts {
 public:
  struct Amount {
    int64_t freed = 0, taken = 0;        // bytes of the device, and of the offload target
    std::array<double, 3> io{}, disk{};  // by program, of one run: seconds of transfers, bytes of the disk

    void add(const Amount& amount, int64_t times);
  };
  using Blocks = std::vector<DepthModel::OfBlock>;
  // A model as it is, and with that part in that offload target.
  void set(Part part, Space target, const Usage& plain, const Blocks& plain_blocks, const Usage& moved,
           const Blocks& moved_blocks);

  // The sum of the first so many blocks; of all, with what is outside of them.
  [[nodiscard]] const Amount& of_first(Part part, Space target, int64_t blocks) const;
  // The share on the host, or on disk, of a part with these places.
  [[nodiscard]] Amount of(Part part, Space target, const PartTarget& where) const;
  // The share of the part's transfers that is of no block.
  [[nodiscard]] double outside(Part part, Space target) const;

 private:
  std::array<std::array<std::vector<Amount>, 3>, 4>
      sums_;  // by part, by offload target: of 0, 1, 2 ... blocks, of all
};

}  // namespace plimsoll
