#include "train/card_use.h"

#include <algorithm>

#include "base/system_memory.h"
#include "prepare/planned_card.h"
#include "runtime/cuda_device.h"

namespace plimsoll {

CardUse::CardUse(const Device& device, int64_t resident_before)
    : open_(device.memory_left()), on_host_(std::max<int64_t>(0, resident_bytes() - resident_before)) {}

void CardUse::mapped(const Device& device, int64_t exchange) {
  mapped_ = device.memory_left();
  exchange_ = exchange;
}
void CardUse::bound(const Device& device) { bound_ = device.memory_left(); }

std::optional<CardBytes> CardUse::now(const Device& device) const {
  const auto left = device.memory_left();
  if (!left || !open_ || !mapped_ || !bound_) return std::nullopt;
  const int64_t arena = open_->free - mapped_->free - exchange_;
  const Device::GraphUse graphs = device.graph_use();
  return CardBytes{.total = left->total,
                   .arena = arena,
                   .beside = left->total - left->free - arena - graphs.bytes,
                   .grown = bound_->free - left->free - graphs.bytes,
                   .on_host = on_host_,
                   .exchange = exchange_,
                   .graphs = graphs};
}

MeasuredCard CardUse::measured(const CardBytes& bytes) {
  const gpu::CudaFacts& facts = known_card_here()->facts;
  return {.name = full_name(find_card_of(facts.name, facts.memory_bytes, "the card")),
          .uuid = facts.uuid,
          .driver = facts.driver,
          .kernels = cuda_code_text(facts),
          .memory_bytes = bytes.total,
          .process_bytes = bytes.beside - bytes.exchange,
          .host_bytes = bytes.on_host,
          .graph_node_bytes =
              bytes.graphs.nodes > 0 ? std::optional(bytes.graphs.bytes / bytes.graphs.nodes) : std::nullopt,
          .rates = std::nullopt};
}

}  // namespace plimsoll
