#include "models/builder.h"

#include "base/error.h"
#include "base/format.h"
#include "graph/op_kind.h"
#include "models/family.h"
#include "ops/operands.h"
#include "ops/pointwise/padding_row.h"
#include "ops/step_values.h"
#include "tensor/bf16.h"
#include "tensor/f16.h"

namespace plimsoll {
namespace {

// As a weight of that type would hold it.
double rounded(double factor, DType dtype) {
  const auto single = static_cast<float>(factor);
  if (dtype == DType::bf16) return static_cast<double>(f32_from_bf16(bf16_from_f32(single)));
  if (dtype == DType::f16) return static_cast<double>(f32_from_f16(f16_from_f32(single)));
  return static_cast<double>(single);
}

}  // namespace

TensorId ModelBuilder::input(const std::string& name, Shape shape, DType dtype) {
  return graph_.add_tensor({name, std::move(shape), dtype, Role::input});
}

void ModelBuilder::token_inputs(AxisId axis, int64_t tokens) {
  for (const char* name : {"input_ids", "positions", "samples"})
    input(graph_.axis_input(axis, name), {tokens}, DType::i32);
  input(graph_.axis_input(axis, "seq_starts"), {shape_.delimited() + 1}, DType::i32);
  if (shape_.shares()) input(graph_.axis_input(axis, "parents"), {shape_.segments}, DType::i32);
}

TensorId ModelBuilder::input_named(std::string_view name) const {
  const TensorId found = graph_.find(graph_.axis_input(axis_, name));
  check_internal(found != kNoTensor, "a program without input " + std::string(name));
  return found;
}

TensorId ModelBuilder::step() const { return graph_.find(kStepTensor); }

TensorId ModelBuilder::parameter(const std::string& name, Shape shape, const ParameterInfo& facts) {
  const TensorId existing = graph_.find(name);
  if (existing != kNoTensor) return existing;
  return graph_.add_tensor(
      {name, std::move(shape), dtype_, Role::frozen_weight, Space::device, block_, facts});
}

Operands ModelBuilder::op(OpKind kind, Operands inputs, Attrs attrs, Operands outputs,
                          const std::string& scope, const std::string& name) {
  Op made;
  made.kind = kind;
  made.inputs = std::move(inputs);
  made.outputs = std::move(outputs);
  made.attrs = std::move(attrs);
  made.scope = scope;
  made.block = block_;
  made.axis = axis_;
  return emit(graph_, std::move(made), name);
}

TensorId ModelBuilder::op1(OpKind kind, Operands inputs, Attrs attrs, const std::string& scope,
                           const std::string& name) {
  return op(kind, std::move(inputs), std::move(attrs), {kNewTensor}, scope, name)[0];
}

TensorId ModelBuilder::linear(TensorId x, const std::string& scope, int64_t in, int64_t out, bool bias) {
  const TensorId weight = parameter(scope + ".weight", {out, in});
  const TensorId bias_tensor = bias ? parameter(scope + ".bias", {out}, kBias) : kNoTensor;
  return op1(OpKind::linear, {x, weight, bias_tensor, kNoTensor, step()}, {{"scale", 1.0}}, scope,
             scope + ".out");
}

void ModelBuilder::linear_into(TensorId out, TensorId x, const std::string& scope, int64_t in) {
  const TensorId weight = parameter(scope + ".weight", {graph_.tensor(out).shape[1], in});
  op(OpKind::linear, {x, weight, kNoTensor, kNoTensor, step()}, {{"scale", 1.0}}, {out}, scope, "");
}

TensorId ModelBuilder::norm(TensorId x, const std::string& scope, int64_t width, NormForm form) {
  const bool at_zero = form == NormForm::plus_one;
  const TensorId weight = parameter(scope + ".weight", {width}, at_zero ? kNormAtZero : kNorm);
  Attrs attrs{{"eps", spec_.rms_norm_eps}};
  set_norm_form(attrs, form);
  return op(OpKind::rms_norm, {x, weight}, std::move(attrs), {kNewTensor, kNewTensor}, scope,
            scope + ".out")[0];
}

TensorId ModelBuilder::layer_norm(TensorId x, const std::string& scope, int64_t width, double eps,
                                  bool bias) {
  const TensorId weight = parameter(scope + ".weight", {width}, kNorm);
  const TensorId shift = bias ? parameter(scope + ".bias", {width}, kBias) : kNoTensor;
  return op(OpKind::layer_norm, {x, weight, shift}, {{"eps", eps}}, {kNewTensor, kNewTensor}, scope,
            scope + ".out")[0];
}

TensorId ModelBuilder::cache_tensor(const std::string& name, int64_t rows, int64_t width) {
  const TensorId existing = graph_.find(name);
  if (existing != kNoTensor) return existing;
  return graph_.add_tensor({name, {rows, width}, dtype_, Role::kv_cache, Space::device, block_});
}

TensorId ModelBuilder::cached_attention(TensorId q, TensorId k, TensorId v, Attrs attrs, TensorId bias_table,
                                        const std::string& scope, const std::string& name) {
  attrs["capacity"] = cache_.capacity;
  attrs["length"] = cache_.capacity;
  if (cache_.apart) attrs["apart"] = int64_t{1};
  const int64_t rows = cache_.capacity * cache_.sequences;
  const int64_t width = graph_.tensor(k).shape[1];
  const TensorId k_cache = cache_tensor(scope + ".k_cache", rows, width);
  const TensorId v_cache = cache_tensor(scope + ".v_cache", rows, width);
  Operands operands = {q, k, v, step()};
  if (bias_table != kNoTensor) operands.push_back(bias_table);
  return op(OpKind::attention_cached, std::move(operands), std::move(attrs), {kNewTensor, k_cache, v_cache},
            scope, name)[0];
}

TensorId ModelBuilder::rope_table(size_t which, Attrs attrs, const std::string& suffix) {
  return op1(OpKind::rope_table,
             {input_named("positions"), input_named("seq_starts"), input_named(rope_input(which)), step()},
             std::move(attrs), "model.rotary_emb",
             "model.rotary_emb.table" + (which == 0 ? suffix : "_" + std::to_string(which)));
}

TensorId ModelBuilder::rotated(TensorId x, TensorId table, const std::string& scope,
                               const std::string& name) {
  Attrs attrs{{"inverse", int64_t{0}}};
  if (spec_.rotary() != spec_.head_dim) attrs["head_dim"] = spec_.head_dim;
  return op1(OpKind::rope, {x, table}, std::move(attrs), scope, name);
}

TensorId ModelBuilder::causal_attention(TensorId q, TensorId k, TensorId v, Attrs attrs,
                                        const std::string& scope) {
  if (cache_.capacity > 0) return cached_attention(q, k, v, std::move(attrs), kNoTensor, scope, scope + ".o");
  attrs["length"] = shape_.length;
  Operands operands = {q, k, v, input_named("seq_starts"), step()};
  if (shape_.shares()) {
    operands.resize(operand::attention::parents, kNoTensor);
    operands.push_back(input_named("parents"));
  }
  return op(OpKind::attention, std::move(operands), std::move(attrs), {kNewTensor, kNewTensor}, scope,
            scope + ".o")[operand::attention::o];
}

TensorId ModelBuilder::gated_mlp(TensorId x, const std::string& scope) {
  const OpKind gated = spec_.gelu_gate ? OpKind::geglu : OpKind::swiglu;
  const int64_t hidden = spec_.hidden, width = spec_.mlp_width;
  const bool bias = spec_.mlp_bias;
  TensorId gate = kNoTensor, up = kNoTensor;  // both in one where one matrix makes them
  if (spec_.fused_matrices) {
    gate = linear(x, scope + ".gate_up_proj", hidden, 2 * width, bias);
  } else {
    gate = linear(x, scope + ".gate_proj", hidden, width, bias);
    up = linear(x, scope + ".up_proj", hidden, width, bias);
  }
  return linear(op1(gated, {gate, up}, {}, scope, scope + ".act"), scope + ".down_proj", width, hidden, bias);
}

TensorId ModelBuilder::dropout(TensorId x, double probability, const std::string& scope) {
  if (mode_ != Mode::train || probability == 0) return x;
  return op1(OpKind::dropout, {x, input_named("samples"), input_named("positions"), step()},
             {{"p", probability}}, scope, scope + ".out");
}

void ModelBuilder::add_sequence_axis() {
  const AxisId axis = graph_.add_axis(kSequenceAxisName);
  check_internal(axis == sequence_axis(spec_), "the axis of sequences comes behind those of tokens");
  for (const char* name : {"scored_rows", "samples", "positions"})
    input(graph_.axis_input(axis, name), {shape_.sequences}, DType::i32);
  input(graph_.axis_input(axis, "seq_starts"), {shape_.sequences + 1}, DType::i32);
}

bool ModelBuilder::decides(int64_t index, int64_t layers) const { return scores() && index + 1 == layers; }

TensorId ModelBuilder::deciding(TensorId x, const std::string& scope, const std::string& name) {
  const AxisId sequences = sequence_axis(spec_);
  set_axis(sequences);
  Attrs attrs{{"rows_of", int64_t{sequences} - 1}};
  if (shape_.shares()) attrs["repeats"] = int64_t{1};  // sequences may be the same
  return op1(OpKind::gather_rows, {x, input_named("scored_rows")}, std::move(attrs), scope, name);
}

TensorId ModelBuilder::attend_to_sequences(Attrs& attrs) const {
  attrs["causal"] = int64_t{0};
  attrs["window"] = int64_t{0};
  attrs["length"] = int64_t{1};
  attrs["keys_of"] = int64_t{kFirstAxis};
  attrs["key_length"] = shape_.length;
  return graph_.find(graph_.axis_input(kFirstAxis, "seq_starts"));
}

TensorId ModelBuilder::dense_and_tanh(TensorId x, const std::string& scope, bool fresh) {
  const int64_t hidden = spec_.hidden;
  parameter(scope + ".weight", {hidden, hidden}, fresh ? kScoreHead : kMatrix);
  parameter(scope + ".bias", {hidden}, fresh ? kScoreBias : kBias);
  return op1(OpKind::tanh, {linear(x, scope, hidden, hidden, true)}, {}, scope, scope + ".tanh");
}

TensorId ModelBuilder::embedding_table() {
  return parameter(formatted("{}{}.weight", prefix_, embedding_module(spec_)), {spec_.vocab, spec_.hidden},
                   kEmbedding);
}

TensorId ModelBuilder::embedded(TensorId ids, TensorId table, const std::string& scope) {
  const Attrs attrs = spec_.padding_row ? Attrs{{std::string(kPaddingRow), *spec_.padding_row}} : Attrs{};
  const TensorId rows = op1(OpKind::embedding, {ids, table, step()}, attrs, scope, scope + ".out");
  if (!spec_.rounds_embedding_factor) return scaled(rows, spec_.embedding_factor, "model", scope + ".scaled");
  // As a part of the module: noise on embeddings comes behind it.
  return scaled(rows, rounded(spec_.embedding_factor, dtype_), scope, scope + ".scaled");
}

TensorId ModelBuilder::scaled(TensorId x, double factor, const std::string& scope, const std::string& name) {
  if (factor == 1.0) return x;
  return op1(OpKind::scale, {x}, {{"factor", factor}}, scope, name);
}

TensorId ModelBuilder::head() {
  if (spec_.scores_sequences)
    throw UsageError(formatted(
        "the model is a {} with a head that scores sequences, not one for next tokens; use task: reward or classify",
        spec_.architecture));
  return spec_.tied_head ? embedding_table()
                         : parameter("lm_head.weight", {spec_.vocab, spec_.hidden}, kHead);
}

}  // namespace plimsoll
