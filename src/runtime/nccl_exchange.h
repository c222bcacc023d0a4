// Ranks whose cards exchange by NCCL, from card to card, and add up there. What is not on a card goes through the host.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gpu/nccl.h"
#include "ranks/ordered_sum.h"
#include "ranks/run_ranks.h"
#include "runtime/device.h"

namespace plimsoll {

class NcclExchange final : public RankExchange {
 public:
  // All ranks make theirs together: the library is looked for, the cards are connected, and code is loaded. Throws
  // UsageError where a rank has no NCCL of version 2.18 or later or another one than rank 0, DoesNotFitError, and
  // StoppedError where they do not connect. Both outlive it.
  NcclExchange(RunRanks& ranks, Device& device);
  ~NcclExchange() override;
  NcclExchange(const NcclExchange&) = delete;
  NcclExchange& operator=(const NcclExchange&) = delete;

  // The card's memory, to send from and to receive in; and the host's.
  static int64_t card_bytes(int64_t ranks);
  static int64_t host_bytes(int64_t ranks);

  // The memory that is gone since before: card_bytes() and NCCL's own.
  [[nodiscard]] int64_t taken_bytes() const override { return taken_; }
  [[nodiscard]] std::span<std::byte> bytes() override;
  void read(const RankBytes& tensor, size_t at, std::span<std::byte> to) override;
  void write(const RankBytes& tensor, size_t at, std::span<const std::byte> from) override;
  void clear(std::span<std::byte> bytes) override;
  void exchange(std::span<const std::byte> from, std::span<std::byte> to) override;
  void all_gather(std::span<std::byte> bytes) override;
  void add_up(std::span<const std::byte> pieces, DType dtype, std::byte* sums) override;
  void turn() override {}
  void done() override;
  [[nodiscard]] std::span<std::byte> staging() override;
  void settle() override { device_.finish_copies(); }

 private:
  void connect();
  void try_out();
  // From here on the others wait for this rank, until done().
  void meets();
  void finish();
  // Does it, or ends the connection first where that fails: what the card still waits for would hold it.
  template <class Work>
  void guarded(Work&& work);

  RunRanks& ranks_;
  Device& device_;
  std::unique_ptr<DeviceMemory> card_, host_;
  std::shared_ptr<gpu::NcclComm> comm_;
  int64_t taken_ = 0;
  bool meets_ = false;
};

}  // namespace plimsoll
