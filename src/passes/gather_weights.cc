#include "passes/gather_weights.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/op_kind.h"
#include "ops/rule.h"
#include "passes/transfers.h"

namespace plimsoll {
namespace {

TensorId append_gather(Graph& graph, TensorId weight, const Op& reader) {
  const Tensor piece = graph.tensor(weight);
  const int64_t elements = piece.shape.elements();
  Op gather;
  gather.kind = OpKind::all_gather;
  gather.scope = piece.name;
  gather.stage = reader.stage;
  gather.block = reader.block;
  gather.axis = reader.axis;
  gather.inputs = {weight};
  gather.outputs = {kNewTensor};
  gather.attrs = {
      {"elements", elements}, {"first", int64_t{0}}, {"piece", elements}, {"whole", piece.whole.elements()}};
  const TensorId whole = emit(graph, std::move(gather), piece.name + ".gathered").front();
  graph.set_block(whole, piece.block);
  return whole;
}

}  // namespace

Graph gather_weights(Graph program, const Sharding& sharding) {
  Graph divided(program.name());
  divided.set_blocks(program.blocks());
  divided.set_axes(program.axes());
  std::vector<char> is_divided;
  for (const Tensor& tensor : program.tensors()) {  // they keep their numbers
    divided.add_tensor(divided_weight(tensor, sharding));
    is_divided.push_back(divided.tensors().back().is_piece() && !tensor.is_piece() ? 1 : 0);
  }
  if (std::ranges::find(is_divided, 1) == is_divided.end()) return program;
  divided.ops() = std::move(program.ops());
  return copy_for_readers(std::move(divided), is_divided, append_gather);
}

}  // namespace plimsoll
