#include "harness/gradient_probe.h"

#include <gtest/gtest.h>

#include "harness/reference.h"
#include "ops/rule.h"

namespace plimsoll::harness {
namespace {

class Probe : public GradientContext {
 public:
  Probe(const Graph& forward, GradientProbe& result) : result_(result) {
    result_.graph = forward;
    const Op loss = forward.ops().back();
    axis_ = loss.axis;
    loss_output_ = loss.outputs.front();
    if (rule_of(loss.kind).gradient_replaces) {
      result_.graph.ops().pop_back();
    } else {
      result_.d_y = add_like("d_y", loss.outputs.front());
    }
    rule_of(loss.kind).gradient(*this, loss);
  }

  const Graph& graph() const override { return result_.graph; }
  TensorId gradient_of(TensorId output) const override {
    if (result_.d_y == kNoTensor || output == loss_output_) return result_.d_y;
    if (!result_.further.contains(output))
      result_.further[output] = add_like("d_" + result_.graph.tensor(output).name, output);
    return result_.further[output];
  }
  bool wants(TensorId input) const override {
    return input != kNoTensor && result_.graph.tensor(input).dtype == DType::f32;
  }
  // Always a tensor of random values, which has to appear in the sum.
  TensorId partial(TensorId input) const override {
    auto& made = partials_[input];
    if (made == 0) made = add_like("partial_" + result_.graph.tensor(input).name, input);
    return made;
  }
  void set_gradient(TensorId input, TensorId gradient) override {
    const auto added = partials_.find(input);
    result_.gradients[gradient] = {input, added == partials_.end() ? kNoTensor : added->second};
  }
  void add_gradient(TensorId input, TensorId gradient) override {
    if (gradient != result_.d_y) result_.gradients[gradient] = {input, kNoTensor};
  }
  WeightGradient weight_gradient(TensorId weight) override {
    const Tensor tensor = result_.graph.tensor(weight);
    const TensorId id =
        result_.graph.add_tensor({tensor.name + ".grad", tensor.shape, DType::f32, Role::gradient});
    result_.gradients[id] = {weight, id};
    return {id, 0};
  }
  TensorId step() const override { return result_.graph.find(kStepTensor); }
  Operands emit(OpKind kind, Operands inputs, Attrs attrs, Operands outputs,
                const std::string& base_name) override {
    Op op;
    op.kind = kind;
    op.inputs = std::move(inputs);
    op.outputs = std::move(outputs);
    op.attrs = std::move(attrs);
    op.scope = result_.graph.ops().empty() ? Name() : result_.graph.ops().back().scope;
    op.stage = Stage::backward;
    op.axis = axis_;
    return plimsoll::emit(result_.graph, std::move(op), base_name);
  }

 private:
  TensorId add_like(const std::string& name, TensorId like) const {
    const Tensor tensor = result_.graph.tensor(like);
    return result_.graph.add_tensor({name, tensor.shape, tensor.dtype, Role::input});
  }

  GradientProbe& result_;
  AxisId axis_ = kFirstAxis;
  TensorId loss_output_ = kNoTensor;
  mutable std::map<TensorId, TensorId> partials_;  // tensor 0 is the step tensor, so 0 means none
};

double objective(const Graph& forward, const GradientProbe& probe, std::vector<Values> values) {
  const TensorId y = forward.ops().back().outputs.front();
  run_reference(forward, values, false);
  if (probe.d_y == kNoTensor)
    return values[0][static_cast<size_t>(StepValue::loss_scale)] * values[static_cast<size_t>(y)][0];
  double sum = 0;
  const auto add = [&](TensorId output, TensorId weights) {
    for (size_t i = 0; i < values[static_cast<size_t>(output)].size(); ++i)
      sum += values[static_cast<size_t>(output)][i] * values[static_cast<size_t>(weights)][i];
  };
  add(y, probe.d_y);
  for (const auto& [output, weights] : probe.further) add(output, weights);
  return sum;
}

}  // namespace

GradientProbe probe_gradient(const Graph& forward) {
  GradientProbe result;
  Probe(forward, result);
  return result;
}

Values central_differences(const Graph& forward, const GradientProbe& probe, std::vector<Values> values,
                           TensorId of) {
  constexpr double kStep = 1e-4;  // error of the difference ~1e-8, of its rounding ~1e-11
  Values result;
  for (double& x : values[static_cast<size_t>(of)]) {
    const double kept = x;
    x = kept + kStep;
    const double above = objective(forward, probe, values);
    x = kept - kStep;
    result.push_back((above - objective(forward, probe, values)) / (2 * kStep));
    x = kept;
  }
  return result;
}

void expect_gradients(const Graph& forward, const GradientProbe& probe, const std::vector<Values>& values,
                      const OpRun& run, bool first_micro_step) {
  for (const auto& [gradient, source] : probe.gradients) {
    Values want = central_differences(forward, probe, values, source.of);
    const bool adds = source.added != kNoTensor && (source.added != gradient || !first_micro_step);
    for (size_t i = 0; adds && i < want.size(); ++i) want[i] += values[static_cast<size_t>(source.added)][i];
    EXPECT_EQ(compare(probe.graph.tensor(gradient).name, run.values[static_cast<size_t>(gradient)], want,
                      tolerance_of(DType::f32, 10)),
              "");
  }
}

}  // namespace plimsoll::harness
