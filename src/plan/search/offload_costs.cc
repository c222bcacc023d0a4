#include "plan/search/offload_costs.h"

namespace plimsoll {
namespace {

constexpr size_t kDevice = index(Space::device);

}  // namespace

void OffloadCosts::Amount::add(const Amount& amount, int64_t times) {
  freed += times * amount.freed;
  taken += times * amount.taken;
  for (size_t i = 0; i < io.size(); ++i) {
    io[i] += static_cast<double>(times) * amount.io[i];
    disk[i] += static_cast<double>(times) * amount.disk[i];
  }
}

void OffloadCosts::set(Part part, Space target, const Usage& plain, const Blocks& plain_blocks,
                       const Usage& moved, const Blocks& moved_blocks) {
  std::vector<Amount>& sums = sums_[static_cast<size_t>(part)][index(target)];
  sums.assign(1, {});
  for (size_t block = 0; block < moved_blocks.size(); ++block) {
    const DepthModel::OfBlock& with = moved_blocks[block];
    const DepthModel::OfBlock without = block < plain_blocks.size() ? plain_blocks[block] : decltype(with){};
    Amount amount = sums.back();
    amount.add({without.persistent[kDevice] - with.persistent[kDevice], with.persistent[index(target)],
                with.io, with.disk},
               1);
    sums.push_back(amount);
  }
  sums.push_back({plain.persistent[kDevice] - moved.persistent[kDevice], moved.persistent[index(target)],
                  moved.io, moved.disk});
}

const OffloadCosts::Amount& OffloadCosts::of_first(Part part, Space target, int64_t blocks) const {
  static const Amount kNothing;
  const std::vector<Amount>& sums = sums_[static_cast<size_t>(part)][index(target)];
  if (sums.empty()) return kNothing;
  return sums[std::min(static_cast<size_t>(blocks), sums.size() - 1)];
}

OffloadCosts::Amount OffloadCosts::of(Part part, Space target, const PartTarget& where) const {
  if (target == Space::disk) return of_first(part, target, where.on_disk);
  Amount amount;
  if (where.on_host == 0) return amount;
  amount = of_first(part, target, where.moved());
  if (where.on_disk > 0) amount.add(of_first(part, target, where.on_disk), -1);
  return amount;
}

double OffloadCosts::outside(Part part, Space target) const {
  const std::vector<Amount>& sums = sums_[static_cast<size_t>(part)][index(target)];
  if (sums.size() < 2) return 0;
  const auto total = static_cast<double>(sums.back().taken);
  return total <= 0 ? 0 : 1 - static_cast<double>(sums[sums.size() - 2].taken) / total;
}

}  // namespace plimsoll
