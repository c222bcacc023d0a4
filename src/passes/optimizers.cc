#include "passes/optimizers.h"

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "graph/op_kind.h"
#include "ops/optimizer/adafactor_layout.h"
#include "ops/optimizer/adamw8bit_kernels.h"
#include "ops/optimizer/optimizer.h"
#include "ops/rule.h"
#include "ops/step_values.h"
#include "passes/train.h"

namespace plimsoll {
namespace {

// An update being written: the op, and the weight whose states it adds.
class UpdateWriter {
 public:
  UpdateWriter(Graph& update, const Tensor& weight, const TrainPrecision& precision, const Sharding& sharding)
      : update_(update),
        weight_(weight),
        precision_(precision),
        piece_(sharding.states() ? piece_elements(weight.whole_shape().elements(), sharding.ranks) : 0),
        beside_adapters_(sharding.beside_adapters) {
    op_.outputs = {update.add_tensor(weight)};
  }

  void state(const char* suffix) { state(suffix, weight_.whole_shape(), precision_.states); }
  // `block`: elements of the weight to a value of the state.
  void state(const char* suffix, const Shape& shape, DType dtype, int64_t block = 1) {
    const Tensor state = {weight_.name + suffix, shape,         dtype,
                          Role::optimizer_state, Space::device, weight_.block};
    op_.outputs.push_back(add(state, piece_ / block));
  }
  void no_state() { op_.outputs.push_back(kNoTensor); }

  void emit_as(OpKind kind, Operands inputs, Attrs attrs) {
    const bool has_piece = update_.tensor(inputs[kGradientInput]).is_piece();
    // A weight that is f32 itself needs no f32 copy.
    const bool copied = precision_.master && weight_.dtype != DType::f32;
    op_.outputs.push_back(copied ? master() : kNoTensor);
    op_.kind = kind;
    op_.inputs = std::move(inputs);
    op_.attrs = std::move(attrs);
    if (piece_ > 0) {
      check_internal(rule_of(kind).sliceable, formatted("add_update: ranks cannot divide {}", weight_.name));
      op_.attrs["piece"] = op_.attrs["elements"] = piece_;
      op_.attrs["first"] = int64_t{0};
      if (has_piece) op_.attrs["whole"] = weight_.whole_shape().elements();
    }
    op_.scope = weight_.name;
    op_.block = weight_.block;
    op_.stage = Stage::update;
    emit(update_, std::move(op_), "");
  }

 private:
  // Adapters and heads of a task are saved as their masters are: those stay whole.
  TensorId master() {
    const Tensor master = {weight_.name + kMasterSuffix,
                           weight_.whole_shape(),
                           DType::f32,
                           Role::master,
                           Space::device,
                           weight_.block,
                           weight_.parameter,
                           weight_.module};
    const bool is_saved = weight_.parameter.origin != Origin::checkpoint || beside_adapters_;
    return add(master, is_saved ? 0 : piece_);
  }
  // Adds a rank's piece of so many elements of the tensor; 0: all of it.
  TensorId add(const Tensor& tensor, int64_t piece) {
    return update_.add_tensor(piece == 0 ? tensor : rank_piece(tensor, piece));
  }

  Graph& update_;
  const Tensor& weight_;
  const TrainPrecision& precision_;
  int64_t piece_;  // of a rank; 0: the weight is not cut
  bool beside_adapters_;
  Op op_;
};

// The parts that an update is made of: its inputs, and the arguments of every optimizer.
struct Update {
  UpdateWriter& writer;
  const Tensor& weight;
  const OptimizerOptions& options;
  Operands inputs;
  Attrs attrs;

  void add_betas() {
    attrs["beta1"] = options.beta1;
    attrs["beta2"] = options.beta2;
  }
  void emit_as(OpKind kind) { writer.emit_as(kind, std::move(inputs), std::move(attrs)); }
};

void add_adamw(Update update) {
  update.writer.state(".exp_avg");
  update.writer.state(".exp_avg_sq");
  update.add_betas();
  update.attrs["eps"] = update.options.eps;
  update.emit_as(OpKind::adamw);
}

void add_adamw8bit(Update update) {
  const Shape blocks = {ceil_div(update.weight.whole_shape().elements(), kStateBlock)};
  update.writer.state(".exp_avg", update.weight.whole_shape(), DType::u8);
  update.writer.state(".exp_avg_sq", update.weight.whole_shape(), DType::u8);
  update.writer.state(".exp_avg_scale", blocks, DType::f32, kStateBlock);
  update.writer.state(".exp_avg_sq_scale", blocks, DType::f32, kStateBlock);
  update.add_betas();
  update.attrs["eps"] = update.options.eps;
  update.emit_as(OpKind::adamw8bit);
}

void add_lion(Update update) {
  update.writer.state(".exp_avg");
  update.add_betas();
  update.emit_as(OpKind::lion);
}

void add_sgd(Update update) {
  if (update.options.momentum != 0.0)
    update.writer.state(".momentum_buffer");
  else
    update.writer.no_state();
  update.attrs["momentum"] = update.options.momentum;
  update.emit_as(OpKind::sgd);
}

void add_adafactor(Update update) {
  const Shape& shape = update.weight.shape;
  if (is_factored(shape)) {
    update.writer.state(".exp_avg_sq_row", {shape[0]}, DType::f32);
    update.writer.state(".exp_avg_sq_col", {shape[1]}, DType::f32);
  } else {
    update.writer.no_state();
    update.writer.state(".exp_avg_sq", {shape.elements()}, DType::f32);
  }
  update.emit_as(OpKind::adafactor);
}

OptimizerKind kind_for(const Tensor& weight, OptimizerKind kind) {
  const bool small = weight.whole_shape().elements() < kMinElements8bit;
  const bool is_embedding = weight.parameter.part == WeightPart::embedding;
  return kind == OptimizerKind::adamw8bit && (small || is_embedding) ? OptimizerKind::adamw : kind;
}

}  // namespace

std::string_view to_string(ShardStage stage) {
  switch (stage) {
    case ShardStage::automatic:
      return "auto";
    case ShardStage::none:
      return "none";
    case ShardStage::states:
      return "states";
    case ShardStage::gradients:
      return "gradients";
    case ShardStage::weights:
      return "weights";
  }
  throw InternalError("to_string: no such stage");
}

Tensor rank_piece(const Tensor& tensor, int64_t elements) {
  Tensor piece = tensor;
  piece.whole = tensor.shape;
  piece.shape = {elements};
  return piece;
}

Tensor divided_weight(const Tensor& weight, const Sharding& sharding) {
  const bool is_weight = weight.role == Role::frozen_weight || weight.role == Role::trainable_weight;
  const bool is_saved_whole = sharding.beside_adapters && weight.role == Role::trainable_weight;
  const ParameterInfo& facts = weight.parameter;
  const bool is_of_layer =
      weight.block != kNoBlock && facts.origin == Origin::checkpoint && facts.part == WeightPart::body;
  if (!sharding.weights() || !is_weight || !is_of_layer || is_saved_whole || weight.shape.rank() < 2)
    return weight;
  const int64_t piece = piece_elements(weight.shape.elements(), sharding.ranks);
  return piece > 0 ? rank_piece(weight, piece) : weight;
}

void add_update(Graph& update, const Tensor& weight, TensorId gradient, TensorId norm,
                const TrainPrecision& precision, const OptimizerOptions& options, const Sharding& sharding) {
  UpdateWriter writer(update, weight, precision, sharding);
  Update made{writer, weight, options, {update.find(kStepTensor), norm, gradient}, {}};
  made.attrs = {{"weight_decay", weight.parameter.decays ? options.weight_decay : 0.0},
                {"stochastic", int64_t{precision.stochastic ? 1 : 0}}};
  if (precision.scales_loss()) made.attrs["scaled"] = int64_t{1};
  // LoRA+ as PEFT has it: B and every vector, of modules that are saved whole too.
  const bool is_out = weight.parameter.rate == RateGroup::adapter_out || weight.whole_shape().rank() == 1;
  if (is_out && options.adapter_out_ratio != 1.0) made.attrs["rate"] = options.adapter_out_ratio;
  switch (kind_for(weight, options.kind)) {
#define OPTIMIZER(name, betas, eps, momentum, own_types) \
  case OptimizerKind::name:                              \
    return add_##name(std::move(made));
#include "ops/optimizers.def"
#undef OPTIMIZER
  }
  throw InternalError("add_update: no such optimizer");
}

}  // namespace plimsoll
