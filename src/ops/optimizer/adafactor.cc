// adafactor: a second moment in one row and one column (ops/optimizer/adafactor_kernels.h), updated whole:
// the row and column averages need all of the gradient.
#include "graph/op_kind.h"
#include "ops/optimizer/adafactor_layout.h"
#include "ops/optimizer/optimizer.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// -> weight, row average f32 [R] (absent for vectors), column average f32 [C], master?. Attributes:
// weight_decay (decoupled, f64), stochastic (int).
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::adafactor;
  const Shape& shape = input_tensor(g, op, at::gradient).shape;
  require(!op.attrs.contains("elements"), g, op, "adafactor: updates no slices");
  require(op.has_output(at::row) == is_factored(shape), g, op, "adafactor: a matrix has a row average");
  require_precision(g, op, {}, at::master);
  for (const size_t i : {at::row, at::column})
    require(!op.has_output(i) || op.outputs[i] < 0 || g.tensor(op.outputs[i]).dtype == DType::f32, g, op,
            "adafactor: averages are f32");
  return {updated_output(g, op, at::weight, ""),
          {".row", {adafactor_layout(shape).rows}, DType::f32},
          {".column", {adafactor_layout(shape).columns}, DType::f32},
          updated_output(g, op, at::master, kMasterSuffix)};
}

// Four reads of the gradient; the averages are small.
Cost cost(const Graph& g, const Op& op) {
  Cost total{0, 4.0 * static_cast<double>(input_tensor(g, op, kGradientInput).bytes())};
  for (const size_t i : {operand::adafactor::weight, operand::adafactor::master})
    if (op.has_output(i)) total.bytes += 2.0 * static_cast<double>(g.tensor(op.outputs[i]).bytes());
  return total;
}

int64_t scratch(const Graph& g, const Op& op, const DeviceDescription&) {
  return adafactor_layout(input_tensor(g, op, kGradientInput).shape).bytes;
}

// On a GPU: sums and factors of rows and columns, the update's size, and the update.
int64_t launches(const Graph&, const Op& op, bool) { return op.has_output(operand::adafactor::row) ? 6 : 5; }

}  // namespace

const OpRule adafactor_rule{.kind = OpKind::adafactor,
                            .infer = infer,
                            .cost = cost,
                            .scratch_bytes = scratch,
                            .gpu_scratch_bytes = scratch,
                            .launches = launches,
                            .updates = true,
                            .may_skip = is_scaled};

}  // namespace plimsoll
