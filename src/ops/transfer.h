// Facts about transfers that layout and runtime ask for.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/op_kind.h"
#include "ops/operands.h"

namespace plimsoll {

// The tensor off the device, of a fetch or a store.
inline TensorId offloaded_of(const Op& transfer) {
  return transfer.kind == OpKind::fetch ? transfer.inputs[operand::fetch::offloaded]
                                        : transfer.outputs[operand::store::offloaded];
}
// That on the device, of these or their waits.
inline TensorId copy_of(const Op& transfer) {
  return transfer.kind == OpKind::fetch ? transfer.outputs[operand::fetch::copy]
                                        : transfer.inputs[operand::store::copy];
}

// Returns true if a program moves bytes between the device and a disk.
bool moves_disk_bytes(const Graph& program);

// By op: for a wait, the index of the transfer of its kind that moved its copy last; -1 for other ops. Throws
// InternalError for a wait for nothing.
std::vector<int32_t> waited_transfers(const Graph& graph);

// The moved bytes' range in the offload target.
struct ByteRange {
  int64_t first = 0;
  int64_t bytes = 0;
};
ByteRange moved_bytes(const Graph& graph, const Op& transfer);

}  // namespace plimsoll
