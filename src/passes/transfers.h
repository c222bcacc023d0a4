// Building blocks of offload: pairs of a transfer and its wait, and when they start.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "ops/optimizer/optimizer.h"

namespace plimsoll {

// Appends fetch and fetch_wait of a range of `offloaded`, side by side, for the op that comes next; returns the
// copy, an activation named after `copy_name`. `piece` (0: the same at all ranks): the range is of the first rank, and
// for_rank() moves it by so many elements for each.
TensorId append_fetch(Graph& graph, TensorId offloaded, ElementRange range, const Name& copy_name,
                      const Op& reader, int64_t piece = 0);
TensorId append_fetch(Graph& graph, TensorId offloaded, const Name& copy_name, const Op& reader);

// Appends store and store_wait of `copy` into `offloaded` from element `first` on, side by side, after the op
// `writer`. `piece` as above.
void append_store(Graph& graph, TensorId copy, TensorId offloaded, int64_t first, const Op& writer,
                  int64_t piece = 0);

// Numbers the stretches of a program that transfers count their distance in. Ops of the update stage are one
// stretch each (a slice); of the other stages, a block's forward or backward pass is one, and so is what lies
// between blocks. The two kinds are numbered apart, so that updates inside of a backward pass do not cut it.
class StretchCounter {
 public:
  // The number of the stretch that `op`, which must come next in program order and be no transfer, is in.
  int32_t next(const Op& op);

 private:
  int32_t blocks_ = -1;
  int32_t updates_ = -1;
  BlockId block_ = kNoBlock;
  Stage stage_ = Stage::update;  // of the stretch `blocks_`; no such stretch has this one
};

// `marked` by tensor id: in every stretch before the update, the ops that read such a tensor read a copy instead, which
// `append` makes for the op that comes next, the first of them.
using AppendCopy = std::function<TensorId(Graph&, TensorId marked, const Op& reader)>;
Graph copy_for_readers(Graph graph, const std::vector<char>& marked, const AppendCopy& append);
// The same of tensors that are not kept on the device, whose copies are fetched.
Graph fetch_for_readers(Graph graph, const std::vector<char>& offloaded);

// Fetches start `distance` stretches ahead of the one that waits for them, but not before a store that wrote
// what they fetch; stores are waited for so many stretches later. Expects every wait next to its transfer; at
// distance 0 they stay there. No value depends on it: transfers complete in the order in which they start.
Graph schedule_transfers(Graph graph, int64_t distance);

}  // namespace plimsoll
