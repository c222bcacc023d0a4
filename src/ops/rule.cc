#include "ops/rule.h"

#include <algorithm>

#include "base/error.h"
#include "graph/op_kind.h"
#include "ops/operands.h"
#include "ops/rules.h"

namespace plimsoll {

const OpRule& rule_of(OpKind kind) {
  static const std::array<const OpRule*, kNumOpKinds> kRules = {
#define OP(name, ...) &name##_rule,
#include "ops/ops.def"
#undef OP
  };
  return *kRules[static_cast<size_t>(kind)];
}

const Tensor& input_tensor(const Graph& graph, const Op& op, size_t i) {
  if (!op.has_input(i)) require_operands(graph, op);  // names it, where it may not be absent
  require(op.has_input(i), graph, op, "an input is missing");
  return graph.tensor(op.inputs[i]);
}

DType gradient_dtype(const Graph& graph, const Op& op, size_t i) {
  return op.output(i) >= 0 ? graph.tensor(op.outputs[i]).dtype : DType::f32;
}

void require(bool condition, const Graph& graph, const Op& op, const char* why) {
  if (!condition) throw InternalError(std::string(why) + ": " + print_op(graph, op));
}

Cost cost_of(const Graph& graph, const Op& op) {
  const OpRule& rule = rule_of(op.kind);
  if (rule.cost != nullptr) return rule.cost(graph, op);
  Cost cost;
  for (const TensorId id : op.inputs)
    if (id != kNoTensor) cost.bytes += static_cast<double>(graph.tensor(id).bytes());
  for (const TensorId id : op.outputs)
    if (id != kNoTensor) cost.bytes += static_cast<double>(graph.tensor(id).bytes());
  return cost;
}

namespace {

// The type of most of the bytes that an op touches: what its kernel is chosen by. Step values and sums, which
// are f64, say nothing of it, large as they are next to the smallest weights.
DType main_type(const Graph& graph, const Op& op) {
  const Tensor* largest = nullptr;
  const auto size = [&](const Tensor& tensor) { return tensor.dtype == DType::f64 ? 0 : tensor.bytes(); };
  for (const auto* ids : {&op.inputs, &op.outputs})
    for (const TensorId id : *ids)
      if (id != kNoTensor && (largest == nullptr || size(graph.tensor(id)) > size(*largest)))
        largest = &graph.tensor(id);
  return largest == nullptr ? DType::f32 : largest->dtype;
}

}  // namespace

Work work_of(const Graph& graph, const Op& op) {
  const OpRule& rule = rule_of(op.kind);
  if (rule.work != nullptr) return rule.work(graph, op);
  const double bytes = cost_of(graph, op).bytes;
  return {.products = {}, .amount = bytes, .at = bytes, .dtype = main_type(graph, op)};
}

bool is_transfer(OpKind kind) {
  return kind == OpKind::fetch || kind == OpKind::fetch_wait || kind == OpKind::store ||
         kind == OpKind::store_wait;
}

int64_t scratch_bytes_of(const Graph& graph, const Op& op, const DeviceDescription& device) {
  const OpRule& rule = rule_of(op.kind);
  const auto bytes = device.backend == Backend::gpu ? rule.gpu_scratch_bytes : rule.scratch_bytes;
  return bytes == nullptr ? 0 : bytes(graph, op, device);
}

int64_t gpu_launches(const Graph& graph, const Op& op, bool library) {
  const auto launches = rule_of(op.kind).launches;
  return launches == nullptr ? 1 : launches(graph, op, library);
}

int64_t gpu_launches(const Graph& program, bool library) {
  int64_t launches = 0;
  for (const Op& op : program.ops()) launches += gpu_launches(program, op, library);
  return launches;
}

Operands emit(Graph& graph, Op op, const std::string& base_name) {
  require_operands(graph, op);
  const std::vector<OutputSpec> specs = rule_of(op.kind).infer(graph, op);
  require(specs.size() == op.outputs.size(), graph, op, "wrong number of outputs");
  for (size_t i = 0; i < specs.size(); ++i) {
    TensorId& output = op.outputs[i];
    if (output == kNewTensor) {
      output = graph.add_tensor({graph.fresh_name(base_name + specs[i].suffix), specs[i].shape,
                                 specs[i].dtype, Role::activation, Space::device, op.block});
    } else if (output != kNoTensor) {
      require(graph.tensor(output).shape == specs[i].shape, graph, op, "an output has another shape");
    }
  }
  graph.ops().push_back(std::move(op));
  return graph.ops().back().outputs;
}

namespace {

// The axis of weights that are made or fetched for an op, which have none. Activations have the axis whose
// rows they hold.
constexpr AxisId kNoAxis = -1;

// The axis of the rows of one of an op's inputs, or outputs, of which `others` are of another axis than the
// op's own.
AxisId axis_of(const Op& op, size_t i, const std::vector<size_t>& others) {
  const char* const attribute = rule_of(op.kind).other_axis.attribute;
  if (attribute == nullptr || std::ranges::find(others, i) == others.end() || !op.attrs.contains(attribute))
    return op.axis;
  return static_cast<AxisId>(op.attr_int(attribute));
}

// Works on weights and their gradients, whose values are no rows, wherever they were summed over rows; or
// moves bytes.
bool takes_any_rows(const Op& op) {
  return rule_of(op.kind).sliceable || op.kind == OpKind::adafactor || is_transfer(op.kind);
}

// `axes`: of each tensor so far.
void require_own_rows(const Graph& graph, const Op& op, std::vector<AxisId>& axes) {
  const OtherAxis& other = rule_of(op.kind).other_axis;
  const auto require_axis = [&](int64_t axis) {
    require(axis >= 0 && axis < static_cast<int64_t>(graph.axes().size()), graph, op,
            "there is no such axis");
  };
  require_axis(op.axis);
  if (other.attribute != nullptr && op.attrs.contains(other.attribute))
    require_axis(op.attr_int(other.attribute));
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.has_input(i)) continue;
    const AxisId axis = axes[static_cast<size_t>(op.inputs[i])];
    require(axis == kNoAxis || axis == axis_of(op, i, other.inputs) || takes_any_rows(op), graph, op,
            "an input has rows of another axis");
  }
  const bool makes_weights = rule_of(op.kind).rematerialise || op.kind == OpKind::all_gather;
  if (is_transfer(op.kind) || makes_weights) return;
  for (size_t i = 0; i < op.outputs.size(); ++i)
    if (op.has_output(i) && graph.tensor(op.outputs[i]).role == Role::activation)
      axes[static_cast<size_t>(op.outputs[i])] = axis_of(op, i, other.outputs);
}

}  // namespace

void verify(const Graph& graph) {
  std::vector<AxisId> axes(graph.tensors().size(), kNoAxis);
  std::vector<bool> written(graph.tensors().size()), perhaps(graph.tensors().size());
  for (size_t i = 0; i < written.size(); ++i) {
    const Role role = graph.tensors()[i].role;
    written[i] = is_persistent(role) || role == Role::input;
  }
  for (const Op& op : graph.ops()) {
    require_operands(graph, op);
    require_own_rows(graph, op, axes);
    for (const TensorId id : op.inputs) {
      if (id == kNoTensor) continue;
      require(written[static_cast<size_t>(id)] || !perhaps[static_cast<size_t>(id)], graph, op,
              "an input is read that a skipped step leaves unwritten: it has to be fetched first");
      require(written[static_cast<size_t>(id)], graph, op, "an input is read before it is written");
      require(graph.tensor(id).space != Space::disk || is_queued(op), graph, op,
              "an op computes on the disk");
    }
    const std::vector<OutputSpec> specs = rule_of(op.kind).infer(graph, op);
    require(specs.size() == op.outputs.size(), graph, op, "wrong number of outputs");
    for (size_t i = 0; i < specs.size(); ++i) {
      const TensorId id = op.outputs[i];
      if (id == kNoTensor) continue;
      const Tensor& tensor = graph.tensor(id);
      require(tensor.shape == specs[i].shape, graph, op, "an output has another shape than its rule says");
      require(tensor.space != Space::disk || is_queued(op), graph, op, "an op computes on the disk");
      // Micro-steps add to it, on the device as anywhere.
      require(tensor.role != Role::gradient || rule_of(op.kind).updates, graph, op,
              "a gradient is written by an op that does not add to what is there");
      if (tensor.role == Role::activation) {
        require(!written[static_cast<size_t>(id)] || rule_of(op.kind).updates, graph, op,
                "an activation is written twice");
        require(tensor.dtype == specs[i].dtype, graph, op, "an output has another type than its rule says");
      }
      (may_skip(op) ? perhaps : written)[static_cast<size_t>(id)] = true;
    }
  }
}

}  // namespace plimsoll
