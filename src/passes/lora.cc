#include "passes/lora.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "graph/op_kind.h"
#include "ops/loss/linear_cross_entropy_layout.h"
#include "ops/operands.h"
#include "ops/rule.h"
#include "ops/step_values.h"
#include "passes/embedding_adapter.h"

namespace plimsoll {
namespace {

// The operand that is the weight, for all modules that can be adapted.
constexpr size_t kWeightOfModule = operand::linear::weight;
static_assert(size_t{operand::embedding::weight} == kWeightOfModule &&
              size_t{HeadInputs::weight} == kWeightOfModule &&
              size_t{operand::word_scores::weight} == kWeightOfModule);

constexpr const char* kHeadWeight = "lm_head.weight";
constexpr ParameterInfo kOfA{.init = Initialiser::kaiming_uniform, .adapter = AdapterPart::a};
constexpr ParameterInfo kOfB{
    .init = Initialiser::zeros, .rate = RateGroup::adapter_out, .adapter = AdapterPart::b};

class LoraPass {
 public:
  LoraPass(const Graph& graph, const LoraOptions& options, bool part)
      : options_(options), part_(part), rules_(options), result_(graph) {}

  Graph run() {
    std::vector<Op> ops = std::move(result_.ops());
    result_.ops().clear();
    has_reference_ = std::any_of(ops.begin(), ops.end(), [](const Op& op) { return op.of_reference; });
    std::set<std::string> modules;
    for (Op& op : ops) {
      if (op.of_reference) {
        read_base(op);
        result_.ops().push_back(std::move(op));
        continue;
      }
      if (can_adapt(op)) modules.insert(op.scope);
      if (op.kind == OpKind::linear &&
          input_tensor(result_, op, kWeightOfModule).parameter.origin == Origin::fresh)
        rules_.targets(op.scope);  // PEFT's all-linear may name it: it trains in full all the same
      visit(std::move(op));
    }
    if (!part_) rules_.require_targets_found(modules);
    train_whole();
    return std::move(result_);
  }

 private:
  [[nodiscard]] static bool is_fused_head(const Op& op) {
    return op.kind == OpKind::linear_cross_entropy || op.kind == OpKind::linear_log_prob;
  }

  [[nodiscard]] bool can_adapt(const Op& op) const {
    if (op.kind != OpKind::linear && op.kind != OpKind::embedding && !is_fused_head(op)) return false;
    return input_tensor(result_, op, kWeightOfModule).parameter.origin == Origin::checkpoint;
  }

  void visit(Op op) {
    const bool able = can_adapt(op);
    const bool of_body = able && op.kind == OpKind::linear &&
                         input_tensor(result_, op, kWeightOfModule).parameter.part == WeightPart::body;
    if (of_body && rules_.targets(op.scope)) return adapt(std::move(op));
    if (able && !of_body && is_named(op.scope) && rules_.targets(op.scope)) {
      require_plain(op.scope);
      if (op.kind == OpKind::linear) return adapt(std::move(op));
      return is_fused_head(op) ? adapt_fused_head(std::move(op)) : adapt_embedding(std::move(op));
    }
    repeat_before_layers(op);
    result_.ops().push_back(std::move(op));
  }

  // Embeddings and the output head are not of all linear layers: they have to be named.
  [[nodiscard]] bool is_named(const std::string& module) const {
    return std::any_of(options_.targets.begin(), options_.targets.end(), [&](const std::string& target) {
      return module == target || module.ends_with("." + target);
    });
  }

  void require_plain(const std::string& module) const {
    if (!options_.dora && options_.start == AdapterStart::lora) return;
    throw UsageError(formatted(
        "{}: applies to linear layers below the output head, but method.targets names {}; remove one of them",
        options_.dora ? "method.dora" : "method.init", module));
  }

  TensorId adapter(const Op& op, const char* suffix, Shape shape, ParameterInfo facts) {
    return adapter(op, suffix, std::move(shape), facts, input_tensor(result_, op, kWeightOfModule).dtype);
  }
  TensorId adapter(const Op& op, const char* suffix, Shape shape, ParameterInfo facts, DType dtype) {
    facts.origin = Origin::adapter;
    return result_.add_tensor({op.scope + suffix, std::move(shape), dtype, Role::trainable_weight,
                               Space::device, op.block, facts, op.scope});
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
    op.adapts = module_;
    return emit(result_, std::move(op), name).front();
  }

  void begin(const Op& base, AxisId axis) {
    module_ = base.scope;
    block_ = base.block;
    axis_ = axis;
  }

  // The base product goes to a new tensor; the adapter's product, added to it, becomes what the layer's
  // readers read.
  void adapt(Op base) {
    begin(base, base.axis);
    const AdapterRules::Size size = rules_.size_of(base.scope);
    using at = operand::linear;
    const int64_t in = result_.tensor(base.inputs[at::x]).shape[1],
                  out = result_.tensor(base.outputs[at::y]).shape[1];
    const TensorId a = adapter(base, ".lora_A.weight", {size.r, in}, kOfA);
    const TensorId b = adapter(base, ".lora_B.weight", {out, size.r}, kOfB);
    if (options_.start != AdapterStart::lora) keep_start(base, size.r, in, out);
    if (options_.dora) {
      adapt_by_dora(std::move(base), a, b, size.scale);
      return;
    }
    const TensorId y = base.outputs[at::y], x = base.inputs[at::x], base_step = base.input(at::step);
    base.outputs[at::y] = kNewTensor;
    const std::string scope = base.scope;
    const TensorId y_base = emit(result_, std::move(base), scope + ".base").front();
    low_rank(scope, dropped(x, scope), a, b, y_base, base_step, size.scale, y);
  }

  // The logits exist a few rows at a time only: what A gives is made ahead, and B's product is added there.
  void adapt_fused_head(Op head) {
    if (head.has_input(head_operands(head).bias))
      throw UsageError(formatted(
          "method.targets: {} is the output layer of the masked language modelling head; adapters on it are not supported: leave it out",
          head.scope.text()));
    begin(head, head.attrs.contains("rows_of") ? static_cast<AxisId>(head.attr_int("rows_of")) : head.axis);
    const AdapterRules::Size size = rules_.size_of(head.scope);
    const Shape weight = input_tensor(result_, head, kWeightOfModule).shape;
    const TensorId a = adapter(head, ".lora_A.weight", {size.r, weight[1]}, kOfA);
    const TensorId b = adapter(head, ".lora_B.weight", {weight[0], size.r}, kOfB);
    const std::string scope = head.scope;
    const HeadOperands at = head_operands(head);
    if (head.inputs.size() <= at.b) head.inputs.resize(at.b + 1, kNoTensor);
    head.inputs[at.t] = append(
        OpKind::linear,
        {dropped(head.inputs[HeadInputs::x], scope), a, kNoTensor, kNoTensor, result_.find(kStepTensor)},
        {{"scale", 1.0}}, kNewTensor, scope + ".lora_A", scope + ".lora_A.out");
    head.inputs[at.b] = b;
    head.attrs["scale"] = size.scale;
    result_.ops().push_back(std::move(head));
  }

  // Nothing is dropped: what comes in are numbers of tokens.
  void adapt_embedding(Op base) {
    if (input_tensor(result_, base, kWeightOfModule).name.text() != base.scope.text() + ".weight")
      throw UsageError(formatted(
          "method.targets: {} reads {}, which encoder and decoder share; an adapter on it is not supported",
          base.scope.text(), input_tensor(result_, base, kWeightOfModule).name.text()));
    begin(base, base.axis);
    const AdapterRules::Size size = rules_.size_of(base.scope);
    const Shape table = input_tensor(result_, base, kWeightOfModule).shape;
    const TensorId a = adapter(base, kEmbeddingA, {table[0], size.r},
                               {.init = Initialiser::zeros, .adapter = AdapterPart::embedding_a});
    const TensorId b = adapter(base, kEmbeddingB, {table[1], size.r}, {.adapter = AdapterPart::embedding_b});
    using at = operand::embedding;
    const TensorId h = base.outputs[at::h], ids = base.inputs[at::ids], step = base.inputs[at::step];
    const std::string scope = base.scope;
    base.outputs[at::h] = kNewTensor;
    const Attrs attrs = base.attrs;  // the padding row's, as PEFT has it
    const TensorId h_base = emit(result_, std::move(base), scope + ".base").front();
    const TensorId t = append(OpKind::embedding, {ids, a, step}, attrs, kNewTensor, scope + kEmbeddingA,
                              formatted("{}{}.out", scope, kEmbeddingA));
    append(OpKind::linear, {t, b, kNoTensor, h_base, step}, {{"scale", size.scale}}, h, scope + kEmbeddingB,
           "");
    base_of_[h] = h_base;
  }

  // The reference begins with the embeddings as they are, with the same factor and the same noise.
  void repeat_before_layers(const Op& op) {
    using at = operand::embedding_noise;
    static_assert(size_t{operand::scale::x} == at::x && size_t{operand::scale::y} == at::y);
    const bool scales = op.kind == OpKind::scale;
    if (!has_reference_ || (!scales && op.kind != OpKind::embedding_noise) ||
        !base_of_.contains(op.inputs[at::x]))
      return;
    Op again = op;
    again.inputs[at::x] = base_of_.at(op.inputs[at::x]);
    again.outputs[at::y] = kNewTensor;
    const std::string name = op.scope + (scales ? ".scaled.base" : ".base");
    base_of_[op.outputs[at::y]] = emit(result_, std::move(again), name).front();
  }
  void read_base(Op& op) const {
    for (TensorId& id : op.inputs)
      if (const auto found = base_of_.find(id); found != base_of_.end()) id = found->second;
  }

  // Keeps the part of the weight that the adapter began with, which no op reads: it is out of the weight as
  // long as the run lasts, and is saved.
  void keep_start(const Op& base, int64_t r, int64_t in, int64_t out) {
    if (r > std::min(in, out))
      throw UsageError(formatted("method.r: {} has no rank {} for method.init; its weight is {}", base.scope,
                                 r, Shape{out, in}.to_string()));
    const auto keep = [&](const char* suffix, Shape shape, AdapterPart part) {
      result_.add_tensor({base.scope + suffix,
                          std::move(shape),
                          DType::f32,
                          Role::frozen_weight,
                          Space::device,
                          base.block,
                          {.origin = Origin::derived, .decays = false, .adapter = part},
                          base.scope});
    };
    keep(kStartOfA, {r, in}, AdapterPart::a);
    keep(kStartOfB, {out, r}, AdapterPart::b);
  }

  // y = magnitude / lengths * (W x + scale B A x) + bias. Where x is dropped at random for the adapter, its
  // sum is that of the dropped x and W x + bias - W dropped(x) is added, as PEFT has it.
  void adapt_by_dora(Op base, TensorId a, TensorId b, double scale) {
    using at = operand::linear;
    check_internal(!base.has_input(at::addend) && base.attr_float("scale") == 1.0,
                   "a linear layer that adds or scales");
    const std::string scope = base.scope;
    const TensorId y = base.outputs[at::y], x = base.inputs[at::x], w = base.inputs[at::weight],
                   base_step = base.input(at::step);
    const TensorId magnitude = adapter(
        base, ".lora_magnitude_vector", {result_.tensor(y).shape[1]},
        {.init = Initialiser::row_norms, .rate = RateGroup::adapter_out, .adapter = AdapterPart::magnitude},
        DType::f32);
    const TensorId seen = dropped(x, scope);
    TensorId bias = kNoTensor, minus = kNoTensor, addend = kNoTensor;
    if (seen == x && base.has_input(at::bias)) std::swap(bias, base.inputs[at::bias]);
    base.outputs[at::y] = kNewTensor;
    TensorId product = emit(result_, std::move(base), scope + ".base").front();
    if (seen != x) {
      addend = product;
      minus = product = append(OpKind::linear, {seen, w, kNoTensor, kNoTensor, base_step}, {{"scale", 1.0}},
                               kNewTensor, scope + ".lora_base", scope + ".lora_base.out");
    }
    const TensorId u = low_rank(scope, seen, a, b, product, base_step, scale, kNewTensor);
    const TensorId lengths = append(OpKind::dora_norm, {a, w, b}, {{"scale", scale}}, kNewTensor,
                                    scope + ".lora_norm", scope + ".lora_norm.out");
    append(OpKind::dora_scale, {u, magnitude, lengths, base_step, bias, minus, addend}, {}, y,
           scope + ".lora_magnitude", "");
  }

  // addend + scale B A x, into `y`, which may be new.
  TensorId low_rank(const std::string& scope, TensorId x, TensorId a, TensorId b, TensorId addend,
                    TensorId step, double scale, TensorId y) {
    const TensorId t = append(OpKind::linear, {x, a, kNoTensor, kNoTensor, step}, {{"scale", 1.0}},
                              kNewTensor, scope + ".lora_A", scope + ".lora_A.out");
    return append(OpKind::linear, {t, b, kNoTensor, addend, step}, {{"scale", scale}}, y, scope + ".lora_B",
                  scope + ".lora_B.out");
  }

  // x itself where nothing is dropped.
  TensorId dropped(TensorId x, const std::string& scope) {
    if (options_.dropout == 0) return x;
    return append(OpKind::dropout,
                  {x, result_.find(result_.axis_input(axis_, "samples")),
                   result_.find(result_.axis_input(axis_, "positions")), result_.find(kStepTensor)},
                  {{"p", options_.dropout}}, kNewTensor, scope + ".lora_dropout", scope + ".lora_x");
  }

  // Trains what the task made new, and what is to be saved whole with the adapters.
  void train_whole() {
    if (!options_.modules_to_save.empty()) part_tied_head();
    std::set<std::string> modules;
    for (size_t i = 0; i < result_.tensors().size(); ++i) {
      const Tensor& tensor = result_.tensors()[i];
      if (tensor.role != Role::frozen_weight) continue;
      const std::string& name = tensor.name.text();
      modules.insert(name.substr(0, name.rfind('.')));
      if (rules_.saves(name) || tensor.parameter.origin == Origin::fresh)
        result_.set_role(static_cast<TensorId>(i), Role::trainable_weight);
    }
    if (!part_) rules_.require_saved_found(modules);
  }

  // Parts a tied head from its embedding when one of the two is saved: PEFT trains a copy of it.
  void part_tied_head() {
    TensorId table = kNoTensor;
    std::vector<Op*> heads;
    for (Op& op : result_.ops()) {
      if (op.kind == OpKind::embedding) continue;
      const TensorId read = op.input(kWeightOfModule);
      if (read == kNoTensor || result_.tensor(read).parameter.part != WeightPart::embedding) continue;
      table = read;
      heads.push_back(&op);
    }
    if (table == kNoTensor) return;
    const bool saves_head = rules_.saves(kHeadWeight), saves_table = rules_.saves(result_.tensor(table).name);
    if (!saves_head && !saves_table) return;
    const auto tables = std::count_if(result_.ops().begin(), result_.ops().end(), [&](const Op& op) {
      return op.kind == OpKind::embedding && op.input(kWeightOfModule) == table;
    });
    if (saves_table && tables > 1)
      throw UsageError(
          formatted("method.modules_to_save: {} is the embedding of encoder and decoder, which PEFT does not "
                    "save as one",
                    result_.tensor(table).name));
    Tensor head = result_.tensor(table);
    head.name = kHeadWeight;
    head.parameter.part = WeightPart::head;
    const TensorId own = result_.add_tensor(std::move(head));
    for (Op* op : heads) op->inputs[kWeightOfModule] = own;
  }

  LoraOptions options_;
  bool part_;
  bool has_reference_ = false;
  std::map<TensorId, TensorId> base_of_;  // of adapted embeddings: those without the adapter
  AdapterRules rules_;
  Graph result_;
  Name module_;               // what is being adapted
  BlockId block_ = kNoBlock;  // its block and axis
  AxisId axis_ = kFirstAxis;
};

}  // namespace

Graph add_lora(const Graph& graph, const LoraOptions& options, bool part) {
  return LoraPass(graph, options, part).run();
}

}  // namespace plimsoll
