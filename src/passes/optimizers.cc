#include "passes/optimizers.h"

#include "base/error.h"
#include "base/units.h"
#include "ops/adamw8bit_kernels.h"
#include "ops/rule.h"
#include "ops/step_values.h"
#include "passes/train.h"

namespace plimsoll {
namespace {

// An update being written: the op, and the weight whose states it adds.
class UpdateWriter {
 public:
  UpdateWriter(Graph& update, const Tensor& weight, const TrainPrecision& precision)
      : update_(update), weight_(weight), precision_(precision) {
    op_.outputs = {update.add_tensor(weight)};
  }

  void state(const char* suffix) { state(suffix, weight_.shape, precision_.states); }
  void state(const char* suffix, const Shape& shape, DType dtype) {
    op_.outputs.push_back(update_.add_tensor({weight_.name + suffix, shape, dtype, Role::optimizer_state}));
  }
  void no_state() { op_.outputs.push_back(kNoTensor); }

  void emit_as(OpKind kind, std::vector<TensorId> inputs, Attrs attrs) {
    op_.outputs.push_back(precision_.master ? update_.add_tensor({weight_.name + ".master", weight_.shape,
                                                                  DType::f32, Role::master})
                                            : kNoTensor);
    op_.kind = kind;
    op_.inputs = std::move(inputs);
    op_.attrs = std::move(attrs);
    op_.scope = weight_.name;
    op_.stage = Stage::update;
    emit(update_, std::move(op_), "");
  }

 private:
  Graph& update_;
  const Tensor& weight_;
  const TrainPrecision& precision_;
  Op op_;
};

OptimizerKind kind_for(const Tensor& weight, bool is_embedding, OptimizerKind kind) {
  const bool small = weight.shape.elements() < kMinElements8bit;
  return kind == OptimizerKind::adamw8bit && (small || is_embedding) ? OptimizerKind::adamw : kind;
}

}  // namespace

void add_update(Graph& update, const Tensor& weight, bool is_embedding, TensorId gradient, TensorId norm,
                const TrainPrecision& precision, const OptimizerOptions& options) {
  UpdateWriter writer(update, weight, precision);
  const std::vector<TensorId> inputs = {update.find(kStepTensor), norm, gradient};
  // Biases and norm weights have one dimension.
  const bool is_matrix = weight.shape.rank() > 1;
  Attrs attrs = {{"weight_decay", is_matrix ? options.weight_decay : 0.0},
                 {"stochastic", int64_t{precision.stochastic ? 1 : 0}}};
  const auto add_betas = [&] {
    attrs["beta1"] = options.beta1;
    attrs["beta2"] = options.beta2;
  };
  switch (kind_for(weight, is_embedding, options.kind)) {
    case OptimizerKind::adamw:
      writer.state(".exp_avg");
      writer.state(".exp_avg_sq");
      add_betas();
      attrs["eps"] = options.eps;
      return writer.emit_as(OpKind::adamw, inputs, attrs);
    case OptimizerKind::adamw8bit: {
      const Shape blocks = {ceil_div(weight.shape.elements(), kStateBlock)};
      writer.state(".exp_avg", weight.shape, DType::u8);
      writer.state(".exp_avg_sq", weight.shape, DType::u8);
      writer.state(".exp_avg_scale", blocks, DType::f32);
      writer.state(".exp_avg_sq_scale", blocks, DType::f32);
      add_betas();
      attrs["eps"] = options.eps;
      return writer.emit_as(OpKind::adamw8bit, inputs, attrs);
    }
    case OptimizerKind::lion:
      writer.state(".exp_avg");
      add_betas();
      return writer.emit_as(OpKind::lion, inputs, attrs);
    case OptimizerKind::sgd:
      if (options.momentum != 0.0)
        writer.state(".momentum_buffer");
      else
        writer.no_state();
      attrs["momentum"] = options.momentum;
      return writer.emit_as(OpKind::sgd, inputs, attrs);
    case OptimizerKind::adafactor:
      if (is_matrix) {
        writer.state(".exp_avg_sq_row", {weight.shape[0]}, DType::f32);
        writer.state(".exp_avg_sq_col", {weight.shape[1]}, DType::f32);
      } else {
        writer.no_state();
        writer.state(".exp_avg_sq", weight.shape, DType::f32);
      }
      return writer.emit_as(OpKind::adafactor, inputs, attrs);
  }
  throw InternalError("add_update: no such optimizer");
}

}  // namespace plimsoll
