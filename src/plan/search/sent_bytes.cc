#include "plan/search/sent_bytes.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/format.h"
#include "graph/op_kind.h"
#include "ops/optimizer/optimizer.h"
#include "ops/optimizer/pieces.h"
#include "passes/reduce_gradients.h"
#include "ranks/ordered_sum.h"

namespace plimsoll {
namespace {

const Graph& program_of(const Plan& plan, std::string_view name) {
  for (const Graph& program : plan.programs)
    if (program.name() == name) return program;
  throw InternalError(formatted("sent_bytes: the plan has no program {}", name));
}

// The pieces that a run of the program makes whole.
int64_t gathered_pieces(const Graph& program) {
  int64_t pieces = 0;
  for (const Op& op : program.ops())
    if (op.kind == OpKind::all_gather)
      pieces += piece_of(op) * size_of(program.tensor(op.output(operand::all_gather::whole)).dtype);
  return pieces;
}

// The type of what is gathered once it is updated: the master where all of that is at every device, else the weight;
// nullopt where each device keeps its piece of the weight.
std::optional<DType> gathered_type(const Plan& plan, const std::string& name) {
  const TableRow& weight = *plan.layout.find_persistent(name);
  if (weight.is_piece()) return std::nullopt;
  const TableRow* const master = plan.layout.find_persistent(name + kMasterSuffix);
  return master != nullptr && !master->is_piece() ? master->dtype : weight.dtype;
}

}  // namespace

SentBytes sent_bytes(const Plan& plan) {
  const int64_t ranks = plan.request.workload.experiment.ranks;
  if (ranks == 1) return {};
  const Graph& update = program_of(plan, plan.variant.update_in_backward ? kTrainProgram : kUpdateProgram);
  std::map<DType, int64_t> whole;  // gradients that every device gets all of, by type
  int64_t pieces = 0, sent = 0, reduced = 0;
  for (const auto& [weight, piece] : updated_pieces(update)) {
    const Tensor& gradient = update.tensor(find_gradient(update, weight));
    if (piece > 0) {
      if (const auto gathered = gathered_type(plan, weight)) pieces += piece * size_of(*gathered);
      (gradient.is_piece() ? reduced : pieces) += piece * size_of(gradient.dtype);
    } else if (plan.variant.update_in_backward) {  // one by one
      sent += OrderedSum::bytes_to_add(ranks, gradient.bytes());
    } else {
      whole[gradient.dtype] += gradient.bytes();
    }
  }
  sent += (ranks - 1) * pieces;
  for (const auto& [dtype, bytes] : whole) sent += OrderedSum::bytes_to_add(ranks, bytes);
  const int64_t in_micro_step = reduced + gathered_pieces(program_of(plan, kTrainProgram));
  return {sent, (ranks - 1) * in_micro_step, reduced > 0};
}

}  // namespace plimsoll
