// A workload as the planner sees it: its programs, and the variants of one that does not train.
#pragma once

#include <vector>

#include "plan/search/plan.h"

namespace plimsoll {

// Rows that go through a program at a time where no number is given.
inline constexpr int64_t kMostRowsAtATime = 16;

std::vector<Graph> programs_of(const Workload& workload, const Variant& variant,
                               const DeviceDescription& device);

// The variants of a request that does not train, the largest first.
std::vector<Variant> variants_of(const PlanRequest& request);

// The tensors of the cache that decoding extends: they have a part for each
// sequence.
std::vector<const TableRow*> written_cache(const std::vector<Graph>& programs, const ArenaLayout& layout);
// Bytes of the device outside the arena: one tensor of the cache, where several sequences change places in
// it.
int64_t spare_bytes_of(const Workload& workload, const std::vector<Graph>& programs,
                       const ArenaLayout& layout);

}  // namespace plimsoll
