#include "plan/search/sent_bytes.h"

#include <map>
#include <string>

#include "graph/op_kind.h"
#include "ops/optimizer/optimizer.h"
#include "ranks/ordered_sum.h"

namespace plimsoll {
namespace {

const Graph* update_of(const Plan& plan) {
  for (const Graph& program : plan.programs)
    if (program.name() == kUpdateProgram) return &program;
  return nullptr;
}

// Bytes of one device's pieces of the gradient and of what is gathered once it is updated: the master where all of that
// is at every device, else the weight.
int64_t bytes_of_pieces(const Plan& plan, const Graph& update, const Op& op) {
  const std::string& weight = update.tensor(op.output(kWeightOutput)).name;
  const TableRow* const master = plan.layout.find_persistent(weight + kMasterSuffix);
  const TableRow& gathered =
      master != nullptr && !master->is_piece() ? *master : *plan.layout.find_persistent(weight);
  return piece_of(op) * (size_of(update.tensor(op.input(kGradientInput)).dtype) + size_of(gathered.dtype));
}

}  // namespace

int64_t sent_bytes(const Plan& plan) {
  const int64_t ranks = plan.request.workload.experiment.ranks;
  const Graph* const update = update_of(plan);
  if (ranks == 1 || update == nullptr) return 0;
  std::map<DType, int64_t> whole;  // gradients that every device gets all of, by type
  int64_t pieces = 0;
  for (const Op& op : update->ops()) {
    if (op.kind == OpKind::grad_square || op.kind == OpKind::grad_norm) continue;
    const Tensor& gradient = update->tensor(op.input(kGradientInput));
    if (piece_of(op) > 0)
      pieces += bytes_of_pieces(plan, *update, op);
    else
      whole[gradient.dtype] += gradient.bytes();
  }
  int64_t sent = (ranks - 1) * pieces;
  for (const auto& [dtype, bytes] : whole) sent += OrderedSum::bytes_to_add(ranks, bytes);
  return sent;
}

}  // namespace plimsoll
