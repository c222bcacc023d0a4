// The questions that every op is asked, of its kernel for GPUs, on the emulated card: in three orders of
// threads and blocks, all of which must give the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "graph/op_kind.h"
#include "harness/gpu_harness.h"
#include "harness/gradient_probe.h"
#include "harness/optimizer_cases.h"
#include "harness/reference.h"

namespace plimsoll::harness {
namespace {

using gpu::emulated::Order;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr std::array kOtherOrders = {Order::reverse, Order::shuffled};

class GpuOpHarness : public ::testing::TestWithParam<OpCase> {};

std::string describe(DType dtype, const std::string& more = "") {
  return std::string(to_string(dtype)) + more +
         "; rerun: build/src/ops/ops_gpu_emulated_test --gtest_filter=" +
         ::testing::UnitTest::GetInstance()->current_test_info()->test_suite_name() + "." +
         ::testing::UnitTest::GetInstance()->current_test_info()->name();
}

TEST_P(GpuOpHarness, kernels_agree_with_the_reference_and_no_order_changes_the_bits) {
  for (const DType dtype : GetParam().dtypes) {
    SCOPED_TRACE(describe(dtype));
    const Graph graph = make_graph(GetParam(), dtype);
    const std::vector<Values> values = make_values(graph, GetParam());
    std::vector<Values> want = values;
    run_reference(graph, want, true);
    for (const CardFacts& card : cards_for(graph)) {
      const OpRun run = run_emulated(graph, values, Order::forward, std::nullopt, {}, card);
      EXPECT_THAT(run.faults, IsEmpty());
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_EQ(
            compare(graph.tensors()[i].name, run.values[i], want[i], tolerance_of(dtype, GetParam().slack)),
            "");
      for (const Order order : kOtherOrders) {
        const OpRun other = run_emulated(graph, values, order, std::nullopt, {}, card);
        for (const Op& op : graph.ops()) expect_same_bits(graph, op, run, other);
      }
    }
  }
}

// The kernels of bf16 in f16, on a card that has no bf16.
TEST_P(GpuOpHarness, f16_agrees_with_the_reference) {
  if (gpu_dtypes(GetParam()).back() != DType::f16) return;
  SCOPED_TRACE(describe(DType::f16));
  CardFacts card;
  card.compute_capability = 75;
  const Graph graph = make_graph(GetParam(), DType::f16);
  const std::vector<Values> values = make_values(graph, GetParam());
  std::vector<Values> want = values;
  run_reference(graph, want, true);
  const OpRun run = run_emulated(graph, values, Order::shuffled, std::nullopt, {}, card);
  EXPECT_THAT(run.faults, IsEmpty());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(
        compare(graph.tensors()[i].name, run.values[i], want[i], tolerance_of(DType::f16, GetParam().slack)),
        "");
}

TEST_P(GpuOpHarness, the_gradient_is_that_of_finite_differences) {
  OpCase c = GetParam();
  const Graph forward = make_graph(c, DType::f32);
  if (!c.differences || rule_of(forward.ops().back().kind).gradient == nullptr) return;
  const GradientProbe probe = probe_gradient(forward);
  if (!has_gpu_kernels(probe.graph)) return;
  for (const double first_micro_step : {1.0, 0.0}) {
    c.step[StepValue::first_micro_step] = first_micro_step;
    const std::vector<Values> values = make_values(probe.graph, c);
    SCOPED_TRACE(describe(DType::f32));
    const OpRun run = run_emulated(probe.graph, values, Order::shuffled);
    EXPECT_THAT(run.faults, IsEmpty());
    expect_gradients(forward, probe, values, run, first_micro_step == 1.0);
  }
}

TEST_P(GpuOpHarness, in_place_gives_the_bits_of_apart) {
  for (const DType dtype : GetParam().dtypes) {
    const Graph graph = make_graph(GetParam(), dtype);
    const std::vector<Values> values = make_values(graph, GetParam());
    for (const Sharing& sharing : sharings(graph)) {
      SCOPED_TRACE(describe(dtype, ", in place of input " + std::to_string(sharing.reuse.input)));
      const OpRun apart = run_emulated(graph, values, Order::forward);
      const OpRun shared = run_emulated(graph, values, Order::shuffled, sharing);
      EXPECT_THAT(shared.faults, IsEmpty());
      expect_same_bits(graph, graph.ops()[sharing.op], apart, shared);
    }
  }
}

TEST_P(GpuOpHarness, an_update_by_gradients_that_overflowed_changes_nothing) {
  OpCase c = GetParam();
  if (!c.given.contains("norm")) return;
  c.given["norm"] = {INFINITY, NAN};
  const Graph graph = make_graph(c, c.dtypes.front());
  const std::vector<Values> values = make_values(graph, c);
  SCOPED_TRACE(describe(c.dtypes.front()));
  expect_nothing_changed(graph, values, run_emulated(graph, values, Order::forward));
}

TEST_P(GpuOpHarness, another_axis_gives_the_same_bits) {
  OpCase c = GetParam();
  if (runs_code_of_others(c)) return;
  for (const DType dtype : c.dtypes) {
    const auto run = [&](AxisId axis) {
      c.axis = axis;
      const Graph graph = make_graph(c, dtype);
      return run_emulated(graph, make_values(graph, c), Order::forward);
    };
    const OpRun here = run(kFirstAxis);
    const Graph graph = make_graph(c, dtype);
    const Attrs& attrs = graph.ops().front().attrs;
    constexpr AxisId kAnother = 2;
    if (attrs.contains("keys_of") && graph.ops().front().attr_int("keys_of") == kAnother) continue;
    SCOPED_TRACE(describe(dtype));
    const OpRun there = run(kAnother);
    for (const Op& op : graph.ops()) expect_same_bits(graph, op, here, there);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuOpHarness, ::testing::ValuesIn(gpu_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(GpuOpHarnessCoverage, every_kernel_has_a_case) {
  std::set<OpKind> seen;
  for (const OpCase& c : gpu_cases()) seen.insert(make_graph(c, c.dtypes.front()).ops().back().kind);
#define GPU_OP(name) EXPECT_TRUE(seen.contains(OpKind::name)) << "no case for " #name;
#include "ops/gpu_kernels.def"
#undef GPU_OP
}

// Kernels that do what the CPU's do, operation by operation, give their bits.
TEST(GpuOpHarnessBits, kernels_without_sums_give_the_bits_of_the_cpu) {
  static const std::set<OpKind> kSame = {OpKind::add,
                                         OpKind::scale,
                                         OpKind::gather_rows,
                                         OpKind::split_columns,
                                         OpKind::join_columns,
                                         OpKind::scatter_rows,
                                         OpKind::embedding,
                                         OpKind::embedding_dw,
                                         OpKind::swiglu,
                                         OpKind::swiglu_grad,
                                         OpKind::rope_table,
                                         OpKind::rope,
                                         OpKind::mean_rows,
                                         OpKind::mean_rows_grad,
                                         OpKind::dropout,
                                         OpKind::adamw,
                                         OpKind::adamw8bit,
                                         OpKind::lion,
                                         OpKind::sgd,
                                         OpKind::nf4_dequantize,
                                         OpKind::int8_dequantize,
                                         OpKind::relu,
                                         OpKind::relu_grad,
                                         OpKind::geglu,
                                         OpKind::geglu_grad,
                                         OpKind::gelu,
                                         OpKind::gelu_grad,
                                         OpKind::tanh,
                                         OpKind::tanh_grad,
                                         OpKind::pair_loss,
                                         OpKind::pair_loss_grad,
                                         OpKind::class_loss,
                                         OpKind::class_loss_grad,
                                         OpKind::preference_loss,
                                         OpKind::preference_loss_grad,
                                         OpKind::word_scores,
                                         OpKind::word_scores_grad,
                                         OpKind::embedding_noise,
                                         OpKind::reduce_scatter,
                                         OpKind::all_gather,
                                         OpKind::dora_scale};
  std::set<OpKind> compared;
  for (const OpCase& c : gpu_cases()) {
    for (const DType dtype : c.dtypes) {
      const Graph graph = make_graph(c, dtype);
      if (graph.ops().size() > 1 || !kSame.contains(graph.ops().back().kind)) continue;
      SCOPED_TRACE(c.name + ", " + std::string(to_string(dtype)));
      const std::vector<Values> values = make_values(graph, c);
      const OpRun cpu = run_cpu(graph, values, {Isa::avx2, 1});
      expect_same_bits(graph, graph.ops().back(), cpu, run_emulated(graph, values, Order::forward));
      compared.insert(graph.ops().back().kind);
    }
  }
  EXPECT_EQ(compared, kSame);
}

// Random bits are keyed by an element's place in the whole weight.
TEST(GpuOpHarnessBits, slices_of_a_weight_give_the_bits_of_the_cpu) {
  const auto slice = [](const std::string& op, const std::string& attributes,
                        const std::vector<std::string>& states, const std::map<std::string, Values>& given) {
    return update_case(
        {.name = op,
         .op = op,
         .attributes = attributes + ", elements=9464, first=65536, stochastic=1, weight_decay=0.1",
         .shape = "300,250",
         .weight = "bf16",
         .gradient = "bf16",
         .states = states,
         .given = given});
  };
  const Values scales(293, 0.25);
  const std::vector<OpCase> cases = {
      slice("adamw", "beta1=0.9, beta2=0.99, eps=1e-08", {"m bf16[300,250]", "v bf16[300,250]"},
            {{"v", Values(75000, 0.25)}}),
      slice("adamw8bit", "beta1=0.9, beta2=0.99, eps=1e-08",
            {"m u8[300,250]", "v u8[300,250]", "m_scale f32[293]", "v_scale f32[293]"},
            {{"m", every_code(75000)}, {"v", every_code(75000)}, {"m_scale", scales}, {"v_scale", scales}}),
      slice("lion", "beta1=0.9, beta2=0.99", {"m bf16[300,250]"}, {}),
      slice("sgd", "momentum=0.9", {"m bf16[300,250]"}, {})};
  for (const OpCase& c : cases) {
    SCOPED_TRACE(c.name);
    const Graph graph = make_graph(c, DType::bf16);
    const std::vector<Values> values = make_values(graph, c);
    const OpRun cpu = run_cpu(graph, values, {Isa::avx2, 1});
    const OpRun gpu = run_emulated(graph, values, Order::shuffled);
    EXPECT_THAT(gpu.faults, IsEmpty());
    expect_same_bits(graph, graph.ops().back(), cpu, gpu);
  }
}

// Chunks of a sequence that follow one another, of which the workspace has places for some, give the bits of all at
// once.
TEST(GpuOpHarnessBits, stretches_of_a_sequence_give_the_bits_of_all_of_it) {
  constexpr std::string_view kFew = "chunks_at_once=";
  int compared = 0;
  for (const OpCase& c : gpu_cases()) {
    const size_t at = c.body.find(kFew);
    if (at == std::string::npos) continue;
    OpCase whole = c;
    whole.body.replace(at, kFew.size() + 1, "chunks_at_once=99");
    for (const DType dtype : c.dtypes) {
      SCOPED_TRACE(c.name + ", " + std::string(to_string(dtype)));
      const Graph graph = make_graph(c, dtype), at_once = make_graph(whole, dtype);
      const std::vector<Values> values = make_values(graph, c);
      const Op& op = graph.ops().back();
      const DeviceDescription card;
      EXPECT_LT(rule_of(op.kind).gpu_scratch_bytes(graph, op, card),
                rule_of(op.kind).gpu_scratch_bytes(at_once, at_once.ops().back(), card));
      expect_same_bits(graph, op, run_emulated(graph, values, Order::forward),
                       run_emulated(at_once, values, Order::forward));
    }
    ++compared;
  }
  EXPECT_EQ(compared, 4);
}

// Takes launches, and leaves them.
class DroppedLaunches : public gpu::LaunchTaker {
 public:
  void take(std::function<void()>) override {}
};

// 2,048 tokens x 4 rows that are packed with up to 1,024 documents, as a plan has them, and what came: of
// each group of documents lengths from 8 tokens to some hundred.
struct PackedAttention {
  static constexpr int kTokens = 8192, kDocuments = 1024, kHeads = 16, kKvHeads = 4;

  Graph graph = parse_graph(
      "graph packed\ntensor q bf16[8192,1024] input\ntensor k bf16[8192,256] input\n"
      "tensor v bf16[8192,256] input\ntensor d_o bf16[8192,1024] input\ntensor starts i32[1025] input\n"
      "tensor step f64[16] input\no bf16[8192,1024], lse f32[8192,16] = attention(q, k, v, starts, step) "
      "{head_dim=64, length=2048, window=0} @a forward\n"
      "d_q bf16[8192,1024], d_k bf16[8192,256], d_v bf16[8192,256] = attention_grad(q, k, v, o, lse, d_o, "
      "starts, step) {head_dim=64, length=2048, window=0} @a backward\n");
  std::vector<int32_t> starts = std::vector<int32_t>(kDocuments + 1);
  std::vector<double> step = std::vector<double>(kNumStepValues);
  int live = 0;

  explicit PackedAttention(int shortest) {
    for (int length = shortest; starts[static_cast<size_t>(live)] + length <= kTokens; ++live) {
      starts[static_cast<size_t>(live) + 1] = starts[static_cast<size_t>(live)] + length;
      length = length * 5 / 4 > 800 ? shortest : length * 5 / 4;
    }
    step[static_cast<size_t>(StepValue::live_sequences)] = live;
  }
  // The first row of each tile is a block's work.
  [[nodiscard]] uint64_t tiles(int rows) const {
    uint64_t count = 0;
    for (int s = 0; s < live; ++s)
      for (int at = starts[static_cast<size_t>(s)]; at < starts[static_cast<size_t>(s) + 1]; at += rows)
        ++count;
    return count;
  }
  // Blocks that a call of an op launches; `captured` to be launched again.
  [[nodiscard]] uint64_t blocks(const Op& op, bool captured) const {
    DroppedLaunches dropped;
    gpu::Stream stream(static_cast<gpu::LaunchTaker*>(&dropped));
    CardFacts card;
    card.multiprocessors = 132;
    card.shared_bytes_per_block = int64_t{227} * 1024;
    static std::array<std::byte, 64> elsewhere;
    const auto address = [&](TensorId id) -> std::byte* {
      const std::string& name = graph.tensor(id).name;
      if (name == "starts") return reinterpret_cast<std::byte*>(const_cast<int32_t*>(starts.data()));
      if (name == "step") return reinterpret_cast<std::byte*>(const_cast<double*>(step.data()));
      return elsewhere.data();
    };
    const BoundCall call = bind_gpu(GpuBinding(graph, op, card, stream, address, {nullptr, address}));
    stream.capture(captured);
    call();
    return stream.blocks();
  }
};

TEST(GpuAttentionGrid, has_a_block_for_each_tile_of_packed_documents_and_none_besides) {
  for (const int shortest : {8, 40, 300}) {
    SCOPED_TRACE(shortest);
    const PackedAttention packed(shortest);
    constexpr uint64_t kRows = PackedAttention::kTokens, kHeads = PackedAttention::kHeads;
    // Kernels in addition to the tiles: what clears padding, of o and lse; of d_q, d_k and d_v, and four sums
    // of d_o * o each.
    const uint64_t forward = packed.blocks(packed.graph.ops()[0], false) - 2 * kRows;
    const uint64_t backward = packed.blocks(packed.graph.ops()[1], false) - 3 * kRows - kRows * kHeads / 4;
    EXPECT_EQ(forward, packed.tiles(128) * kHeads);
    EXPECT_EQ(backward, packed.tiles(64) * (kHeads + PackedAttention::kKvHeads));
    // A graph is launched with other documents, too: as many as planned have a block, if each is short.
    const uint64_t captured = packed.blocks(packed.graph.ops()[0], true) - 2 * kRows;
    EXPECT_EQ(captured, (kRows + 127 * PackedAttention::kDocuments) / 128 * kHeads);
  }
}

TEST(GpuRefusals, products_of_bf16_are_refused_by_name_where_tensor_cores_do_not_take_them) {
  CardFacts turing;
  turing.compute_capability = 75;
  gpu::Stream stream;
  std::set<OpKind> refused;
  for (const OpCase& c : gpu_cases()) {
    if (std::find(c.dtypes.begin(), c.dtypes.end(), DType::bf16) == c.dtypes.end()) continue;
    const Graph graph = make_graph(c, DType::bf16);
    const Op& op = graph.ops().back();
    try {
      bind_gpu(GpuBinding(graph, op, turing, stream, [](TensorId) { return nullptr; }));
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("products of bf16 on a card of compute capability 7.5"));
      EXPECT_THAT(error.what(), HasSubstr(to_string(op.kind)));
      refused.insert(op.kind);
    }
  }
  EXPECT_THAT(refused,
              UnorderedElementsAre(OpKind::linear, OpKind::linear_dx, OpKind::linear_dw, OpKind::attention,
                                   OpKind::attention_grad, OpKind::gla, OpKind::gla_grad,
                                   OpKind::linear_cross_entropy, OpKind::linear_cross_entropy_grad,
                                   OpKind::linear_log_prob, OpKind::linear_log_prob_grad));
}

}  // namespace
}  // namespace plimsoll::harness
