// The reason why a plan does not fit, as data: what is short and by how much, where, the smallest plan that there is, and
// which keys of the recipe hold the planner back. Texts are made of it where they are printed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/format.h"
#include "plan/search/plan.h"

namespace plimsoll {

// A choice that a key of the recipe makes instead of the planner.
enum class Held : uint8_t { micro_batch, recompute, offload, prefetch, loss_chunk, graphs };

// A key that is held fast, and the value that lets it go.
struct HoldingKey {
  Held what = Held::micro_batch;
  std::string key;    // "memory.offload"
  std::string value;  // "auto"
  [[nodiscard]] std::string assignment() const { return formatted("{}={}", key, value); }
};

// The three that let such keys go. Each has an order of its own, a column of the table in refusal.cc.
enum class ReleasedBy : uint8_t { refusal, suggestions, doctor };

// The keys that hold the planner back, in the order in which a refusal lets them go.
std::vector<HoldingKey> holding_keys(const PlanRequest& request);
// Those of them that one lets go, in its order; of a choice that two keys hold the first.
std::vector<HoldingKey> in_order_of(ReleasedBy who, const std::vector<HoldingKey>& holding);
// The same request with that choice left to the planner.
void let_go(PlanRequest& request, Held what);

// A memory of which a plan takes more than it may.
struct Shortage {
  enum class Of : uint8_t { device, process, host, disk };
  Of of = Of::process;
  int64_t needed = 0;
  int64_t allowed = 0;
  std::string source;      // of the limit: "memory: 5.1GiB"
  bool of_free = false;    // it was made of what is free now, not stated
  int64_t free_bytes = 0;  // with of_free
};

// A variant and what it takes of each memory.
struct RefusedVariant {
  Variant variant;
  std::string words;         // variant_words()
  int64_t memory_bytes = 0;  // of what the budget bounds
  int64_t host_bytes = 0;    // with all that the process needs there
  int64_t disk_bytes = 0;
};

struct Refusal {
  std::vector<Shortage> shortages;  // the memory that the plan is made for first; never empty
  bool own_memory = false;          // the device's memory is not the host's
  std::optional<int64_t> host_limit, disk_limit;
  int64_t sharing = 1;             // processes that divide memory.disk
  RefusedVariant planned;          // the plan that does not fit
  RefusedVariant smallest;         // the least memory of any variant within the other budgets
  bool search_ended = false;       // at its limit of work: less than the smallest may do
  std::string place;               // of the peak: "layers.27 backward, mlp"
  std::vector<Component> largest;  // the three largest there
  std::vector<Component> host;     // all that is in the host's memory
  // Weights, masters and states, which are somewhere however long rows are.
  int64_t persistent_bytes = 0;
  std::vector<HoldingKey> holding;

  [[nodiscard]] const Shortage* shortage(Shortage::Of of) const;
  // Short of the memory that a plan is made for: the device's, or the whole process's.
  [[nodiscard]] const Shortage* of_memory() const;
  [[nodiscard]] bool lacks_host() const { return shortage(Shortage::Of::host) != nullptr; }
  [[nodiscard]] bool lacks_disk() const { return shortage(Shortage::Of::disk) != nullptr; }
};

// `plan` does not fit.
Refusal refusal_of(const Plan& plan);

// A plan that fits with some of the holding keys let go, as few as will do.
struct ReleasedPlan {
  std::vector<HoldingKey> released;
  std::string words;         // of its variant
  int64_t memory_bytes = 0;  // of what the budget bounds
};
std::optional<ReleasedPlan> released_plan(const PlanRequest& request);

// plan/report/refusal_text.cc: by how much, where, and what would fit. `released` is what released_plan() found.
std::string refusal_text(const Refusal& refusal, const std::optional<ReleasedPlan>& released);
// Both of a plan that does not fit.
std::string refusal_text(const Plan& plan);

}  // namespace plimsoll
