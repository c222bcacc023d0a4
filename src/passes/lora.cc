#include "passes/lora.h"

#include <cmath>
#include <set>

#include "base/error.h"
#include "base/strings.h"
#include "graph/op_kind.h"
#include "ops/rule.h"
#include "ops/step_values.h"
#include "passes/reference.h"

namespace plimsoll {
namespace {

// PEFT's rule: the module's whole name, or its end after a dot.
bool matches(const std::string& module, const std::string& target) {
  return module == target || module.ends_with("." + target);
}

// The last part of a module's name; with the one before where it is a number ("gk_proj.0").
std::string shown_name(const std::string& module) {
  const size_t last = module.rfind('.') + 1;
  const bool number =
      last < module.size() && module.find_first_not_of("0123456789", last) == std::string::npos;
  return last > 1 && number ? module.substr(module.rfind('.', last - 2) + 1) : module.substr(last);
}

class LoraPass {
 public:
  LoraPass(const Graph& graph, const LoraOptions& options) : options_(options), result_(graph) {
    const auto r = static_cast<double>(options.r);
    scale_ = options.alpha / (options.rslora ? std::sqrt(r) : r);
  }

  Graph run() {
    const std::vector<Op> ops = std::move(result_.ops());
    result_.ops().clear();
    std::set<std::string> modules;
    for (const Op& op : ops) {
      const bool linear = op.kind == OpKind::linear && !is_reference(op) &&
                          input_tensor(result_, op, 1).parameter.part == WeightPart::body;
      if (op.kind == OpKind::linear && input_tensor(result_, op, 1).parameter.origin == Origin::fresh)
        targeted(op.scope);  // PEFT's all-linear may name it: it trains in full all the same
      if (linear) modules.insert(op.scope);
      if (linear && targeted(op.scope)) {
        adapt(op);
      } else {
        result_.ops().push_back(op);
      }
    }
    refuse_unused_targets(modules);
    for (size_t i = 0; i < result_.tensors().size(); ++i) {
      const Tensor& tensor = result_.tensors()[i];
      if (tensor.role == Role::frozen_weight && tensor.parameter.origin == Origin::fresh)
        result_.set_role(static_cast<TensorId>(i), Role::trainable_weight);
    }
    return std::move(result_);
  }

 private:
  bool targeted(const std::string& module) {
    if (options_.targets.empty()) return true;
    bool any = false;
    for (const std::string& target : options_.targets) {
      if (!matches(module, target)) continue;
      used_.insert(target);
      any = true;
    }
    return any;
  }

  void refuse_unused_targets(const std::set<std::string>& modules) const {
    for (const std::string& target : options_.targets) {
      if (used_.contains(target)) continue;
      std::set<std::string> last_parts;
      for (const std::string& module : modules) last_parts.insert(shown_name(module));
      const std::vector<std::string> names(last_parts.begin(), last_parts.end());
      throw UsageError("method.targets: '" + target + "' names no linear layer; there are " +
                       join(names, ", "));
    }
  }

  TensorId adapter(const Op& op, const char* suffix, Shape shape, Initialiser init) {
    const DType dtype = input_tensor(result_, op, 1).dtype;
    const ParameterInfo facts{.origin = Origin::adapter, .init = init};
    return result_.add_tensor(
        {op.scope + suffix, std::move(shape), dtype, Role::trainable_weight, Space::device, op.block, facts});
  }

  TensorId append(OpKind kind, Operands inputs, Attrs attrs, TensorId output, const std::string& scope,
                  const std::string& name) {
    Op op;
    op.block = block_;
    op.axis = axis_;
    op.kind = kind;
    op.inputs = std::move(inputs);
    op.outputs = {output};
    op.attrs = std::move(attrs);
    op.scope = scope;
    return emit(result_, std::move(op), name)[0];
  }

  // The base product goes to a new tensor; the adapter's product, added to it, becomes what the layer's
  // readers read.
  void adapt(Op base) {
    block_ = base.block;
    axis_ = base.axis;
    const TensorId y = base.outputs[0];
    const TensorId x = base.inputs[0];
    const TensorId base_step = base.input(4);
    const TensorId a = adapter(base, ".lora_A.weight", {options_.r, result_.tensor(x).shape[1]},
                               Initialiser::kaiming_uniform);
    const TensorId b =
        adapter(base, ".lora_B.weight", {result_.tensor(y).shape[1], options_.r}, Initialiser::zeros);
    base.outputs[0] = kNewTensor;
    const std::string scope = base.scope;
    const TensorId y_base = emit(result_, std::move(base), scope + ".base")[0];
    TensorId dropped = x;
    if (options_.dropout > 0) {
      dropped = append(OpKind::dropout,
                       {x, result_.find(result_.axis_input(axis_, "samples")),
                        result_.find(result_.axis_input(axis_, "positions")), result_.find(kStepTensor)},
                       {{"p", options_.dropout}}, kNewTensor, scope + ".lora_dropout", scope + ".lora_x");
    }
    const TensorId t = append(OpKind::linear, {dropped, a, kNoTensor, kNoTensor, base_step}, {{"scale", 1.0}},
                              kNewTensor, scope + ".lora_A", scope + ".lora_A.out");
    append(OpKind::linear, {t, b, kNoTensor, y_base, base_step}, {{"scale", scale_}}, y, scope + ".lora_B",
           "");
  }

  LoraOptions options_;
  Graph result_;
  double scale_ = 1.0;
  BlockId block_ = kNoBlock;  // of the linear that is being adapted
  AxisId axis_ = kFirstAxis;  // likewise
  std::set<std::string> used_;
};

}  // namespace

Graph add_lora(const Graph& graph, const LoraOptions& options) { return LoraPass(graph, options).run(); }

std::string_view adapted_module(std::string_view scope) { return scope.substr(0, scope.find(".lora_")); }

}  // namespace plimsoll
