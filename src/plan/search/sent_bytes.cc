#include "plan/search/sent_bytes.h"

#include <map>
#include <string>
#include <string_view>

#include "base/error.h"
#include "graph/op_kind.h"
#include "ops/optimizer/optimizer.h"
#include "ops/optimizer/pieces.h"
#include "passes/reduce_gradients.h"
#include "ranks/ordered_sum.h"

namespace plimsoll {
namespace {

// The program that updates weights: the optimizer's, or the training step's.
const Graph& updating(const Plan& plan) {
  const std::string_view name = plan.variant.update_in_backward ? kTrainProgram : kUpdateProgram;
  for (const Graph& program : plan.programs)
    if (program.name() == name) return program;
  throw InternalError("sent_bytes: the plan has no program that updates weights");
}

// The tensor that is gathered once it is updated: the master where all of that is at every device, else the weight.
const TableRow& gathered_of(const Plan& plan, const std::string& weight) {
  const TableRow* const master = plan.layout.find_persistent(weight + kMasterSuffix);
  return master != nullptr && !master->is_piece() ? *master : *plan.layout.find_persistent(weight);
}

}  // namespace

SentBytes sent_bytes(const Plan& plan) {
  const int64_t ranks = plan.request.workload.experiment.ranks;
  if (ranks == 1) return {};
  const Graph& update = updating(plan);
  std::map<DType, int64_t> whole;  // gradients that every device gets all of, by type
  int64_t pieces = 0, sent = 0, reduced = 0;
  for (const auto& [weight, piece] : updated_pieces(update)) {
    const Tensor& gradient = update.tensor(find_gradient(update, weight));
    if (piece > 0) {
      pieces += piece * size_of(gathered_of(plan, weight).dtype);
      (gradient.whole.rank() > 0 ? reduced : pieces) += piece * size_of(gradient.dtype);
    } else if (plan.variant.update_in_backward) {  // one by one
      sent += OrderedSum::bytes_to_add(ranks, gradient.bytes());
    } else {
      whole[gradient.dtype] += gradient.bytes();
    }
  }
  sent += (ranks - 1) * pieces;
  for (const auto& [dtype, bytes] : whole) sent += OrderedSum::bytes_to_add(ranks, bytes);
  return {sent, (ranks - 1) * reduced};
}

}  // namespace plimsoll
