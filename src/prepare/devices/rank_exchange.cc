// Several cards exchange through memory of the host or by NCCL, which takes memory of theirs.
#include <cstdlib>

#include "base/environment.h"
#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "gpu/nccl.h"
#include "prepare/setup.h"
#include "runtime/nccl_exchange.h"

namespace plimsoll {
namespace {

// NCCL's buffers of a channel, as its sources have them: 4 MiB, 0.5 and 4.7 of its three protocols. Versions before 2.22
// make them for a ring too, whether that is used or not. Nothing was measured: there may be none, or twice as much.
constexpr int64_t kChannelBytes = 4 * kMiB + kMiB / 2 + 48 * kMiB / 10;
// Its heap, threads and pages that it shares with the card: a guess.
constexpr int64_t kHostBytes = 64 * kMiB;

}  // namespace

ExchangeWay exchange_way(const Recipe& recipe) {
  if (recipe.devices == 1 || recipe.memory.exchange != ExchangeWay::nccl) return ExchangeWay::staged;
  return ExchangeWay::nccl;
}

void refuse_exchange(const Recipe& recipe) {
  const bool emulated = recipe.device == DeviceChoice::emulated;
  if (recipe.memory.exchange == ExchangeWay::automatic || recipe.is_of_card()) return;
  if (!emulated)
    throw UsageError(formatted(
        "memory.exchange: {}: says how GPUs exchange, and the processes compute on CPUs, which exchange through "
        "memory that they share; leave it out (--set memory.exchange=auto), or choose GPUs (--device cuda)",
        recipe.memory.exchange == ExchangeWay::nccl ? "nccl" : "staged"));
  if (recipe.memory.exchange == ExchangeWay::nccl && environment("PLIMSOLL_NCCL").empty())
    throw UsageError(
        "memory.exchange: nccl: NCCL moves bytes between real GPUs, and the device is emulated; leave it out (--set "
        "memory.exchange=auto)");
}

std::vector<OutsidePart> exchange_parts(const Recipe& recipe) {
  if (exchange_way(recipe) != ExchangeWay::nccl) return {};
  const int64_t nccl = gpu::kNcclChannels * recipe.devices * kChannelBytes / 2;
  return {{"sums of ranks", NcclExchange::card_bytes(recipe.devices), 0}, {"NCCL", nccl, nccl}};
}

std::vector<Component> exchange_on_host(const Recipe& recipe) {
  if (exchange_way(recipe) != ExchangeWay::nccl) return {};
  if (!recipe.is_of_card()) return {{"sums of ranks", NcclExchange::card_bytes(recipe.devices)}};
  // Cards that do not reach each other send through memory of the host.
  const int64_t shared = gpu::kNcclChannels * (recipe.devices - 1) * kChannelBytes;
  return {{formatted("NCCL ({} +- {})", format_bytes(kHostBytes + shared / 2), format_bytes(shared / 2)),
           kHostBytes + shared}};
}

}  // namespace plimsoll
