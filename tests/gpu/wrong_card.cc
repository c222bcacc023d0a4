#include "wrong_card.h"

#include "base/error.h"
#include "runtime/emulated_device.h"

namespace plimsoll::gpu_check {
namespace {

using gpu::Queue;

struct Forgetful : gpu::EmulatedCard {
  using EmulatedCard::EmulatedCard;
  void wait(Queue, const gpu::Event&) override {}
};
struct Hasty : gpu::EmulatedCard {
  using EmulatedCard::EmulatedCard;
  void wait_on_host(const gpu::Event&) override {}
};
struct ShortCopies : gpu::EmulatedCard {
  using EmulatedCard::EmulatedCard;
  void copy(Queue queue, std::byte* to, std::span<const std::byte> from) override {
    EmulatedCard::copy(queue, to, from.first(from.size() - (from.size() > 4096 ? 1 : 0)));
  }
};
struct WideFills : gpu::EmulatedCard {
  using EmulatedCard::EmulatedCard;
  void fill(Queue queue, std::span<std::byte> bytes, int value) override {
    EmulatedCard::fill(queue, {bytes.data(), bytes.size() + 1}, value);
  }
};
// A driver that takes more than it is asked for.
struct Greedy : gpu::EmulatedCard {
  using EmulatedCard::EmulatedCard;
  std::byte* allocate(int64_t bytes) override { return EmulatedCard::allocate(bytes + (16 << 20)); }
};

}  // namespace

std::unique_ptr<gpu::EmulatedCard> open_wrong_card(const std::string& wrong) {
  const gpu::EmulatedOrder order = emulated_order();
  if (wrong.empty()) return std::make_unique<gpu::EmulatedCard>(order);
  if (wrong == "waits") return std::make_unique<Forgetful>(order);
  if (wrong == "host-waits") return std::make_unique<Hasty>(order);
  if (wrong == "copies") return std::make_unique<ShortCopies>(order);
  if (wrong == "fills") return std::make_unique<WideFills>(order);
  if (wrong == "memory") return std::make_unique<Greedy>(order);
  if (wrong == "trap") {
    auto card = std::make_unique<gpu::EmulatedCard>(order);
    card->trap_at(1);
    return card;
  }
  throw UsageError("--wrong: '" + wrong +
                   "' is no fault; say waits, host-waits, copies, fills, memory, trap or op:CASE");
}

}  // namespace plimsoll::gpu_check
