// Tests the bytes that a part takes and frees if its layers have several offload targets.
#include "plan/search/offload_costs.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

// Each layer has twice the bytes and the transfers of the one before it, so that every sum names its layers.
constexpr int64_t kLayers = 4, kOutside = 16;
constexpr int64_t bytes_of(int64_t layer) { return int64_t{1} << layer; }

OffloadCosts costs_of(Part part) {
  OffloadCosts costs;
  for (const Space target : {Space::host, Space::disk}) {
    Usage plain, moved;
    OffloadCosts::Blocks plain_blocks, moved_blocks;
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      DepthModel::OfBlock stays, moves;
      stays.persistent[index(Space::device)] = moves.persistent[index(target)] = bytes_of(layer);
      moves.io[0] = moves.disk[0] = static_cast<double>(bytes_of(layer));
      plain_blocks.push_back(stays);
      moved_blocks.push_back(moves);
    }
    const int64_t all = bytes_of(kLayers) - 1 + kOutside;
    plain.persistent[index(Space::device)] = moved.persistent[index(target)] = all;
    moved.io[0] = moved.disk[0] = static_cast<double>(all);
    costs.set(part, target, plain, plain_blocks, moved, moved_blocks);
  }
  return costs;
}

// The offload target's amount of a part: its bytes, its seconds and what it frees are of the same layers.
int64_t amount_of(const OffloadCosts& costs, Space target, const PartTarget& where) {
  const OffloadCosts::Amount amount = costs.of(Part::states, target, where);
  EXPECT_EQ(amount.freed, amount.taken);
  EXPECT_EQ(amount.io[0], static_cast<double>(amount.taken));
  EXPECT_EQ(amount.disk[0], static_cast<double>(amount.taken));
  return amount.taken;
}

TEST(OffloadCosts, are_of_the_layers_that_each_offload_target_has) {
  const OffloadCosts costs = costs_of(Part::states);
  for (int64_t on_disk = 0; on_disk <= kLayers; ++on_disk)
    for (int64_t on_host = 0; on_disk + on_host <= kLayers; ++on_host) {
      const PartTarget where{on_disk, on_host};
      EXPECT_EQ(amount_of(costs, Space::disk, where), bytes_of(on_disk) - 1) << on_disk << ' ' << on_host;
      EXPECT_EQ(amount_of(costs, Space::host, where), bytes_of(on_disk + on_host) - bytes_of(on_disk))
          << on_disk << ' ' << on_host;
    }
}

// Tensors of no layer are where the last layers are.
TEST(OffloadCosts, have_what_is_outside_of_layers_once) {
  const OffloadCosts costs = costs_of(Part::states);
  const int64_t all = bytes_of(kLayers) - 1 + kOutside;
  EXPECT_EQ(amount_of(costs, Space::host, Space::host), all);
  EXPECT_EQ(amount_of(costs, Space::disk, Space::disk), all);
  for (int64_t on_disk = 1; on_disk < kLayers; ++on_disk) {
    const PartTarget where{on_disk, PartTarget::kEveryBlock};
    EXPECT_EQ(amount_of(costs, Space::disk, where) + amount_of(costs, Space::host, where), all) << on_disk;
  }
  const PartTarget rest{2, PartTarget::kEveryBlock};
  EXPECT_EQ(amount_of(costs, Space::host, rest), bytes_of(2) + bytes_of(3) + kOutside);
  EXPECT_EQ(costs.outside(Part::states, Space::host),
            static_cast<double>(kOutside) / static_cast<double>(all));
  EXPECT_EQ(costs.outside(Part::weights, Space::host), 0) << "of a part that was not measured";
}

}  // namespace
}  // namespace plimsoll
