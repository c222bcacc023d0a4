// fetch and store move bytes between the device and an offloaded tensor on the host or on disk. Each starts on
// the I/O queue; its wait is the point from which the copy may be read (fetch) or written again (store).
// Transfers of one program complete in the order in which they start, so that a fetch sees what an earlier
// store wrote.
#include "ops/transfer.h"

#include <algorithm>

#include "graph/op_kind.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// offloaded -> copy: the whole tensor, or `elements` of it from `first` on (both counted in elements).
std::vector<OutputSpec> infer_fetch(const Graph& g, const Op& op) {
  const Tensor& offloaded = input_tensor(g, op, operand::fetch::offloaded);
  const int64_t first = op.attr_int("first");
  const int64_t elements = op.attr_int("elements");
  require(first >= 0 && elements > 0 && first + elements <= offloaded.shape.elements(), g, op,
          "fetch: range");
  require(offloaded.space != Space::device, g, op, "fetch: the home is on the device");
  return {{"", elements == offloaded.shape.elements() ? offloaded.shape : Shape{elements}, offloaded.dtype}};
}

// copy -> offloaded: the whole tensor, or its elements from `first` on. A rank's part of a tensor has `elements` too, as
// many as the copy or, of the last rank, fewer; attributes `piece` and `whole` of either transfer are for_rank()'s
// (ops/optimizer/optimizer.h).
std::vector<OutputSpec> infer_store(const Graph& g, const Op& op) {
  const Tensor& copy = input_tensor(g, op, operand::store::copy);
  if (op.outputs[operand::store::offloaded] < 0) return {{"", copy.shape, copy.dtype}};
  const Tensor& offloaded = g.tensor(op.outputs[operand::store::offloaded]);
  const int64_t first = op.attr_int("first");
  require(offloaded.dtype == copy.dtype, g, op, "store: types differ");
  require(first >= 0 && first + copy.shape.elements() <= offloaded.shape.elements(), g, op, "store: range");
  return {{"", offloaded.shape, offloaded.dtype}};
}

std::vector<OutputSpec> infer_wait(const Graph& g, const Op& op) {
  const Tensor& copy = g.tensor(copy_of(op));
  require(op.outputs[operand::fetch_wait::done] == copy_of(op), g, op, "a wait names its copy twice");
  return {{"", copy.shape, copy.dtype}};
}

Cost cost_of_copy(const Graph& g, TensorId copy) { return {0, static_cast<double>(g.tensor(copy).bytes())}; }
Cost cost_fetch(const Graph& g, const Op& op) { return cost_of_copy(g, copy_of(op)); }
Cost cost_store(const Graph& g, const Op& op) { return cost_of_copy(g, copy_of(op)); }
int64_t no_launches(const Graph&, const Op&, bool) { return 0; }
Cost cost_wait(const Graph&, const Op&) { return {}; }

}  // namespace

const OpRule fetch_rule{
    .kind = OpKind::fetch, .infer = infer_fetch, .cost = cost_fetch, .queue = Queue::copy_in};
const OpRule store_rule{.kind = OpKind::store,
                        .infer = infer_store,
                        .cost = cost_store,
                        .updates = true,
                        .queue = Queue::copy_out};
const OpRule fetch_wait_rule{.kind = OpKind::fetch_wait,
                             .infer = infer_wait,
                             .cost = cost_wait,
                             .launches = no_launches,
                             .updates = true};
const OpRule store_wait_rule{.kind = OpKind::store_wait,
                             .infer = infer_wait,
                             .cost = cost_wait,
                             .launches = no_launches,
                             .updates = true};

bool moves_disk_bytes(const Graph& program) {
  return std::ranges::any_of(program.ops(), [&](const Op& op) {
    return is_queued(op) && program.tensor(offloaded_of(op)).space == Space::disk;
  });
}

std::vector<int32_t> waited_transfers(const Graph& graph) {
  std::vector<int32_t> waited(graph.ops().size(), -1);
  std::vector<int32_t> fetched(graph.tensors().size(), -1);
  std::vector<int32_t> stored(graph.tensors().size(), -1);
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.ops()[i];
    if (op.kind == OpKind::fetch) fetched[static_cast<size_t>(copy_of(op))] = static_cast<int32_t>(i);
    if (op.kind == OpKind::store) stored[static_cast<size_t>(copy_of(op))] = static_cast<int32_t>(i);
    if (op.kind != OpKind::fetch_wait && op.kind != OpKind::store_wait) continue;
    waited[i] = (op.kind == OpKind::fetch_wait ? fetched : stored)[static_cast<size_t>(copy_of(op))];
    require(waited[i] >= 0, graph, op, "a wait for a transfer that nothing started");
  }
  return waited;
}

ByteRange moved_bytes(const Graph& graph, const Op& transfer) {
  const Tensor& copy = graph.tensor(copy_of(transfer));
  const int64_t size = size_of(copy.dtype);
  const int64_t bytes =
      transfer.attrs.contains("elements") ? transfer.attr_int("elements") * size : copy.bytes();
  return {transfer.attr_int("first") * size, bytes};
}

}  // namespace plimsoll
