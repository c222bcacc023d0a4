#include "passes/fold_halves.h"

#include <algorithm>

#include "graph/op_kind.h"
#include "ops/rule.h"

namespace plimsoll {
namespace {

int64_t readers(const Graph& graph, TensorId id) {
  int64_t count = 0;
  for (const Op& op : graph.ops()) count += std::count(op.inputs.begin(), op.inputs.end(), id);
  return count;
}

}  // namespace

Graph fold_halves(const Graph& graph) {
  Graph folded = graph;
  folded.ops().clear();
  for (Op op : graph.ops()) {
    const bool follows = op.kind == OpKind::halve && !folded.ops().empty() &&
                         folded.ops().back().kind == OpKind::halve &&
                         folded.ops().back().outputs == op.inputs && readers(graph, op.inputs.front()) == 1;
    if (follows) {
      op.kind = OpKind::scale;
      op.inputs = folded.ops().back().inputs;
      op.attrs = {{"factor", 0.25}};
      folded.ops().pop_back();
    }
    emit(folded, std::move(op), "");
  }
  return folded;
}

}  // namespace plimsoll
