#include "plan/program/time_model.h"
#include "graph/op_kind.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "graph/graph.h"
#include "layout/program_layout.h"
#include "layout/test_bounds.h"
#include "models/test_specs.h"
#include "ops/rule.h"

namespace plimsoll {
namespace {

constexpr int64_t kElements = 1000;
constexpr double kBytes = 4000;

// Adding two tensors takes 3 s, a transfer to or from the host 1 s, from the disk 2 s, to it 4 s.
DeviceRates slow_rates() {
  DeviceRates rates;
  rates.bandwidth = kBytes;
  rates.host_copy = kBytes;
  rates.disk_read = kBytes / 2;
  rates.disk_write = kBytes / 4;
  return rates;
}

class QueueProgram {
 public:
  TensorId target(Space space) {
    const TensorId id =
        graph_.add_tensor({graph_.fresh_name("home"), {kElements}, DType::f32, Role::frozen_weight, space});
    return id;
  }
  TensorId fetch(TensorId target) {
    return emit_op(OpKind::fetch, {target}, {{"first", int64_t{0}}, {"elements", kElements}}, kNewTensor);
  }
  void wait(TensorId copy) { emit_op(OpKind::fetch_wait, {copy}, {}, copy); }
  TensorId add(TensorId x) { return emit_op(OpKind::add, {x, x}, {}, kNewTensor); }
  void store(TensorId copy, TensorId target) {
    emit_op(OpKind::store, {copy}, {{"first", int64_t{0}}}, target);
  }
  void store_wait(TensorId copy) { emit_op(OpKind::store_wait, {copy}, {}, copy); }
  [[nodiscard]] double seconds() const { return TimeModel(rates_).program_seconds(graph_); }

 private:
  TensorId emit_op(OpKind kind, std::vector<TensorId> inputs, Attrs attrs, TensorId output) {
    Op op;
    op.kind = kind;
    op.inputs = std::move(inputs);
    op.outputs = {output};
    op.attrs = std::move(attrs);
    return emit(graph_, std::move(op), "t").front();
  }

  Graph graph_;
  DeviceRates rates_ = slow_rates();
};

// A curve of the smallest weights would otherwise stand for all bf16 optimizers.
TEST(TimeModel, an_op_on_a_small_weight_is_of_the_weights_type_not_of_the_step_values) {
  for (const DType type : {DType::f32, DType::bf16}) {
    Graph graph("g");
    Op op;
    op.kind = OpKind::bias_grad;
    op.inputs = {graph.add_tensor({"x", {2, 2}, type, Role::activation}),
                 graph.add_tensor({"step", {16}, DType::f64, Role::input})};
    op.outputs = {graph.add_tensor({"gradient", {2}, type, Role::gradient})};
    EXPECT_EQ(work_of(graph, op, slow_rates()).dtype, type);
  }
}

TEST(TimeModel, gated_linear_attention_takes_its_curve_instead_of_its_products) {
  const Graph graph = parse_graph(
      "graph g\ntensor step f64[16] input\ntensor q f32[64,16] input\ntensor k f32[64,16] input\n"
      "tensor v f32[64,32] input\ntensor gate f32[64,16] input\ntensor starts i32[2] input\n"
      "o f32[64,32] = gla(q, k, v, gate, starts, step) {clamp_min=-1e30, heads=1, kv_heads=1, "
      "normalizer=16.0, scale=1.0} @a forward\n");
  const Op& op = graph.ops().front();
  const double flops = cost_of(graph, op).flops;
  DeviceRates rates = slow_rates();
  rates.matmul_f32 = flops;
  const double by_products = op_seconds(graph, op, rates);
  EXPECT_GT(by_products, 1);
  EXPECT_EQ(work_of(graph, op, rates).work, 0);
  rates.ops = {{"gla", DType::f32, 0, {{1, flops / 7}}}};
  EXPECT_NEAR(op_seconds(graph, op, rates), 7, 1e-9);
}

// A curve of its own counts if a device has one.
TEST(TimeModel, attention_in_16_bits_takes_the_curve_of_the_kernel_that_does_it) {
  const auto seconds = [](const std::string& type, int head_dim, bool drops) {
    const std::string row = type + "[64," + std::to_string(head_dim) + "]";
    const Graph graph = parse_graph(
        "graph g\ntensor step f64[16] input\ntensor q " + row + " input\ntensor starts i32[2] input\n" +
        "tensor samples i32[64] input\ntensor positions i32[64] input\no " + row +
        ", lse f32[64,1] = attention(q, q, q, starts, step" + (drops ? ", -, -, samples, positions" : "") +
        ") {" + (drops ? "dropout=0.1, " : "") + "head_dim=" + std::to_string(head_dim) +
        ", length=64, window=0} @a forward\n");
    const Op& op = graph.ops().front();
    const double flops = cost_of(graph, op).flops;
    DeviceRates rates = slow_rates();
    rates.ops = {{"attention", DType::bf16, 0, {{1, flops}}},
                 {"attention", DType::f32, 0, {{1, flops / 2}}},
                 {"attention_plain", DType::bf16, 0, {{1, flops / 3}}},
                 {"attention_with_dropout", DType::bf16, 0, {{1, flops / 4}}}};
    const double with_all = op_seconds(graph, op, rates);
    rates.ops.resize(2);
    EXPECT_NEAR(op_seconds(graph, op, rates), type == "f32" ? 2 : 1, 1e-9);
    return with_all;
  };
  EXPECT_NEAR(seconds("bf16", 64, false), 1, 1e-9);
  EXPECT_NEAR(seconds("f32", 64, true), 2, 1e-9);
  EXPECT_NEAR(seconds("bf16", 136, true), 3, 1e-9);
  EXPECT_NEAR(seconds("bf16", 64, true), 4, 1e-9);
}

TEST(TimeModel, without_transfers_ops_add_up) {
  QueueProgram p;
  const TensorId x = p.target(Space::device);
  p.add(p.add(x));
  EXPECT_DOUBLE_EQ(p.seconds(), 6);
}

TEST(TimeModel, an_op_waits_for_what_it_needs) {
  QueueProgram p;
  const TensorId copy = p.fetch(p.target(Space::disk));
  p.wait(copy);
  p.add(copy);
  EXPECT_DOUBLE_EQ(p.seconds(), 2 + 3);
}

// It takes a second from the computation, as its bytes pass the memory.
TEST(TimeModel, a_transfer_started_ahead_hides_behind_compute) {
  QueueProgram p;
  const TensorId x = p.target(Space::device);
  const TensorId copy = p.fetch(p.target(Space::disk));
  p.add(x);
  p.wait(copy);
  p.add(copy);
  EXPECT_DOUBLE_EQ(p.seconds(), 1 + 3 + 3);
}

TEST(TimeModel, transfers_run_one_after_the_other) {
  QueueProgram p;
  const TensorId x = p.target(Space::device);
  const TensorId a = p.fetch(p.target(Space::disk));
  const TensorId b = p.fetch(p.target(Space::disk));
  const TensorId c = p.fetch(p.target(Space::host));
  p.add(x);
  p.wait(a);
  p.wait(b);
  p.wait(c);
  p.add(c);
  EXPECT_DOUBLE_EQ(p.seconds(), 3 * 1 + 3 + 3);
}

TEST(TimeModel, a_transfer_starts_no_earlier_than_it_is_issued) {
  QueueProgram p;
  const TensorId y = p.add(p.target(Space::device));
  p.store(y, p.target(Space::disk));
  p.store_wait(y);
  EXPECT_DOUBLE_EQ(p.seconds(), 3 + 4);
}

TEST(TimeModel, a_program_ends_when_its_last_store_has) {
  QueueProgram p;
  const TensorId x = p.target(Space::device);
  p.store(x, p.target(Space::disk));
  p.add(x);
  EXPECT_DOUBLE_EQ(p.seconds(), 4);
}

Experiment llama(int64_t layers) {
  Experiment experiment;
  experiment.model = test_spec({.hidden = 896, .mlp = 4864, .layers = layers, .heads = 14, .vocab = 32000});
  experiment.lora = true;
  return experiment;
}

TEST(TimeModel, the_calibrated_curve_of_an_op_is_used) {
  const Experiment experiment = llama(1);
  const auto programs = build_programs(experiment, {}, reference_description());
  DeviceRates rates;
  const double before = predict_step_seconds(programs, {}, rates);
  rates.ops = {{"swiglu", DType::f32, 0, {{1, 1e6}}}};
  double bytes = 0;
  for (const Op& op : programs[0].ops())
    if (op.kind == OpKind::swiglu) bytes += cost_of(programs[0], op).bytes;
  EXPECT_NEAR(predict_step_seconds(programs, {}, rates) - before, bytes / 1e6 - bytes / rates.bandwidth,
              1e-6 * bytes / 1e6);
}

// On a machine whose products run in tiles, attention and the products of adapters' gradients do not.
TEST(TimeModel, what_no_tiles_run_takes_its_time_at_the_rate_of_vectors) {
  Experiment experiment = llama(1);
  experiment.lora_options.r = 16;
  experiment.precision = {DType::bf16, DType::f32, DType::f32, false, true};
  const auto programs = build_programs(experiment, {}, reference_description());
  DeviceRates rates;
  rates.matmul_bf16 = 16 * rates.vector_bf16;
  DeviceRates slower = rates;
  slower.vector_bf16 /= 2;
  std::set<OpKind> slowed;
  for (const Op& op : programs[0].ops())
    if (op_seconds(programs[0], op, slower) > op_seconds(programs[0], op, rates)) slowed.insert(op.kind);
  EXPECT_EQ(slowed, (std::set{OpKind::attention, OpKind::attention_grad, OpKind::linear_dw}));
}

TEST(TimeModel, what_is_remembered_is_what_each_op_costs) {
  const auto programs = build_programs(llama(2), {}, reference_description());
  DeviceRates rates;
  rates.op_overhead = 1e-5;
  TimeModel model(rates);
  for (const Graph& graph : programs)
    for (const Op& op : graph.ops())
      EXPECT_EQ(model.seconds_of(graph, op), op_seconds(graph, op, rates)) << print_op(graph, op);
}

// Shows why the distance is no choice of the search (docs/explanation/recompute-and-offload.md). Two products
// of the same shape, one on each axis, and attention of the second to the keys of the first.
Graph of_two_axes() {
  return parse_graph(
      "graph two\n"
      "axis 1 decoder\n"
      "tensor step f64[16] input\n"
      "tensor starts i32[2] input\n"
      "tensor x f32[512,256] input\n"
      "tensor decoder.x f32[512,256] input\n"
      "tensor w f32[256,256] frozen\n"
      "a f32[512,256] = linear(x, w, -, -, step) {scale=1.0} @a forward\n"
      "b f32[512,256] = linear(decoder.x, w, -, -, step) {scale=1.0} @b forward axis=1\n"
      "o f32[512,256], lse f32[512,4] = attention(b, a, a, starts, step, starts) {causal=0, head_dim=64, "
      "key_length=512, keys_of=0, length=512, window=0} @o forward axis=1\n");
}

TEST(TimeModel, an_op_is_as_short_as_the_rows_of_its_own_axis) {
  const DeviceRates rates = reference_description().rates;
  const Graph graph = of_two_axes();
  verify(graph);
  const auto seconds = [&](size_t op, const Filling& filling) {
    TimeModel model(rates, filling);
    for (size_t before = 0; before < op; ++before) model.seconds_of(graph, graph.ops()[before]);
    return model.seconds_of(graph, graph.ops()[op]);
  };
  Filling half_sources;
  half_sources.axes[0].rows = 0.5;
  EXPECT_LT(seconds(0, half_sources), 0.6 * seconds(0, {}));
  EXPECT_EQ(seconds(1, half_sources), seconds(1, {})) << "a product of the same shape on the other axis";
  EXPECT_EQ(seconds(2, half_sources), seconds(2, {}));
  Filling half_targets;
  half_targets.axes[1].rows = 0.5;
  EXPECT_EQ(seconds(0, half_targets), seconds(0, {}));
  EXPECT_NEAR(seconds(2, half_targets), 0.5 * seconds(2, {}), 1e-9);
  half_targets.axes[1].keys = 128;
  EXPECT_NEAR(seconds(2, half_targets), 0.125 * seconds(2, {}), 1e-9) << "a fourth of the keys";
}

TEST(TimeModel, a_second_stretch_of_prefetch_gains_a_layer_at_most_and_costs_one) {
  constexpr int64_t kLayers = 12;
  const Experiment experiment = llama(kLayers);
  Variant variant;
  variant.offload.weights = Space::disk;
  const auto one = build_programs(experiment, variant, reference_description());
  variant.offload.prefetch = 2;
  const auto two = build_programs(experiment, variant, reference_description());
  int64_t layer_bytes = 0;
  for (const Tensor& tensor : one[0].tensors())
    if (tensor.space == Space::disk) layer_bytes += tensor.bytes() / kLayers;
  EXPECT_GT(arena_lower_bound(two), arena_lower_bound(one) + layer_bytes * 9 / 10);
  double largest_share = 0;
  DeviceRates rates;
  for (rates.disk_read = 1e7; rates.disk_read < 1e13; rates.disk_read *= 1.3) {
    const double near = predict_step_seconds(one, variant, rates);
    const double far = predict_step_seconds(two, variant, rates);
    EXPECT_LE(far, near * (1 + 1e-9)) << rates.disk_read;
    EXPECT_LE(near - far, 1.01 * static_cast<double>(layer_bytes) / rates.disk_read) << rates.disk_read;
    largest_share = std::max(largest_share, (near - far) / near);
  }
  EXPECT_LT(largest_share, 1.0 / (2 * kLayers));
  RecordProperty("largest_share", std::to_string(largest_share));
}

}  // namespace
}  // namespace plimsoll
