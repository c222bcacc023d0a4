// The questions every op is asked, over all registered cases.
#include "harness/op_harness.h"
#include "graph/op_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "harness/gradient_probe.h"
#include "harness/reference.h"
#include "ops/operands.h"

namespace plimsoll::harness {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kThreads = 2;

class OpHarness : public ::testing::TestWithParam<OpCase> {};

// The subject of a failure, and how to see it again.
std::string describe(DType dtype, Isa isa, const std::string& more = "") {
  return std::string(to_string(dtype)) + ", " + std::string(to_string(isa)) + more +
         "; rerun: build/src/ops/ops_cpu_test --gtest_filter=" +
         ::testing::UnitTest::GetInstance()->current_test_info()->test_suite_name() + "." +
         ::testing::UnitTest::GetInstance()->current_test_info()->name();
}

TEST_P(OpHarness, kernels_agree_with_the_reference) {
  for (const DType dtype : GetParam().dtypes) {
    const Graph graph = make_graph(GetParam(), dtype);
    const std::vector<Values> values = make_values(graph, GetParam());
    std::vector<Values> want = values;
    run_reference(graph, want, true);
    for (const Isa isa : isas_here()) {
      SCOPED_TRACE(describe(dtype, isa));
      const OpRun run = run_cpu(graph, values, {isa, kThreads});
      EXPECT_THAT(run.faults, IsEmpty());
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_EQ(
            compare(graph.tensors()[i].name, run.values[i], want[i], tolerance_of(dtype, GetParam().slack)),
            "");
    }
  }
}

// One family of kernels computes in f16 on every machine.
TEST_P(OpHarness, f16_agrees_with_the_reference_and_does_not_depend_on_threads) {
  const std::vector<DType>& dtypes = GetParam().dtypes;
  if (std::ranges::find(dtypes, DType::f32) == dtypes.end() || dtypes.size() < 2) return;
  const Graph graph = make_graph(GetParam(), DType::f16);
  const std::vector<Values> values = make_values(graph, GetParam());
  std::vector<Values> want = values;
  run_reference(graph, want, true);
  SCOPED_TRACE(describe(DType::f16, isas_here().back()));
  const OpRun run = run_cpu(graph, values, {isas_here().back(), kThreads});
  EXPECT_THAT(run.faults, IsEmpty());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(
        compare(graph.tensors()[i].name, run.values[i], want[i], tolerance_of(DType::f16, GetParam().slack)),
        "");
  if (graph.ops().back().kind == OpKind::attention_grad) return;
  expect_same_bits(graph, graph.ops().back(), run, run_cpu(graph, values, {isas_here().back(), 1}));
}

TEST_P(OpHarness, the_gradient_is_that_of_finite_differences) {
  OpCase c = GetParam();
  const Graph forward = make_graph(c, DType::f32);
  if (!c.differences || rule_of(forward.ops().back().kind).gradient == nullptr) return;
  const GradientProbe probe = probe_gradient(forward);
  for (const double first_micro_step : {1.0, 0.0}) {
    c.step[StepValue::first_micro_step] = first_micro_step;
    const std::vector<Values> values = make_values(probe.graph, c);
    for (const Isa isa : isas_here()) {
      SCOPED_TRACE(describe(DType::f32, isa));
      const OpRun run = run_cpu(probe.graph, values, {isa, kThreads});
      EXPECT_THAT(run.faults, IsEmpty());
      expect_gradients(forward, probe, values, run, first_micro_step == 1.0);
    }
  }
}

TEST_P(OpHarness, in_place_gives_the_bits_of_apart) {
  for (const DType dtype : GetParam().dtypes) {
    const Graph graph = make_graph(GetParam(), dtype);
    const std::vector<Values> values = make_values(graph, GetParam());
    for (const Sharing& sharing : sharings(graph)) {
      for (const Isa isa : isas_here()) {
        SCOPED_TRACE(describe(dtype, isa, ", in place of input " + std::to_string(sharing.reuse.input)));
        const OpRun apart = run_cpu(graph, values, {isa, kThreads});
        const OpRun shared = run_cpu(graph, values, {isa, kThreads}, sharing);
        EXPECT_THAT(shared.faults, IsEmpty());
        expect_same_bits(graph, graph.ops()[sharing.op], apart, shared);
      }
    }
  }
}

// A factor that is no number stands for gradients that overflowed.
TEST_P(OpHarness, an_update_by_gradients_that_overflowed_changes_nothing) {
  OpCase c = GetParam();
  if (!c.given.contains("norm")) return;
  c.given["norm"] = {INFINITY, NAN};
  const Graph graph = make_graph(c, c.dtypes.front());
  const std::vector<Values> values = make_values(graph, c);
  for (const Isa isa : isas_here()) {
    SCOPED_TRACE(describe(c.dtypes.front(), isa));
    expect_nothing_changed(graph, values, run_cpu(graph, values, {isa, kThreads}));
  }
}

TEST_P(OpHarness, the_op_and_its_gradient_have_a_cost_and_a_number_of_launches) {
  const OpCase c = GetParam();
  Graph graph = make_graph(c, DType::f32);
  if (rule_of(graph.ops().back().kind).gradient != nullptr) graph = probe_gradient(graph).graph;
  for (const Op& op : graph.ops()) {
    const Cost cost = cost_of(graph, op);
    EXPECT_TRUE(std::isfinite(cost.flops) && cost.flops >= 0) << to_string(op.kind);
    EXPECT_TRUE(std::isfinite(cost.bytes) && cost.bytes > 0) << to_string(op.kind);
    const Work work = work_of(graph, op);
    EXPECT_TRUE(std::isfinite(work.amount) && work.amount >= 0) << to_string(op.kind);
    for (const bool library : {false, true})
      EXPECT_GT(gpu_launches(graph, op, library), 0) << to_string(op.kind);
  }
}

TEST_P(OpHarness, another_axis_gives_the_same_bits) {
  OpCase c = GetParam();
  const bool differentiable = rule_of(make_graph(c, DType::f32).ops().back().kind).gradient != nullptr;
  for (const DType dtype : c.dtypes) {
    const auto run = [&](AxisId axis, Isa isa) {
      c.axis = axis;
      Graph graph = make_graph(c, dtype);
      if (differentiable && dtype == DType::f32) graph = probe_gradient(graph).graph;
      verify(graph);
      OpRun done = run_cpu(graph, make_values(graph, c), {isa, kThreads});
      return std::pair(std::move(graph), std::move(done));
    };
    for (const Isa isa : isas_here()) {
      const auto [graph, here] = run(kFirstAxis, isa);
      for (AxisId axis = 1; axis < kMostAxes; ++axis) {
        const Attrs& attrs = graph.ops().front().attrs;
        if (attrs.contains("keys_of") && graph.ops().front().attr_int("keys_of") == axis) continue;
        SCOPED_TRACE(describe(dtype, isa, ", axis " + std::to_string(axis)));
        const auto there = run(axis, isa).second;
        for (const Op& op : graph.ops()) expect_same_bits(graph, op, here, there);
      }
    }
  }
}

// Neither the backward of attention, which sums d_q once per thread, nor oneDNN's products promise this.
TEST_P(OpHarness, the_number_of_threads_does_not_change_the_bits) {
  for (const DType dtype : GetParam().dtypes) {
    const Graph graph = make_graph(GetParam(), dtype);
    const std::vector<Values> values = make_values(graph, GetParam());
    const Op& op = graph.ops().back();
    if (op.kind == OpKind::attention_grad) return;
    for (const Isa isa : isas_here()) {
      if (isa == Isa::amx) continue;
      SCOPED_TRACE(describe(dtype, isa));
      expect_same_bits(graph, op, run_cpu(graph, values, {isa, 1}), run_cpu(graph, values, {isa, 3}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OpHarness, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(OpHarnessCoverage, every_op_has_a_case) {
  std::set<OpKind> seen;
  for (const OpCase& c : all_cases()) seen.insert(make_graph(c, c.dtypes.front()).ops().back().kind);
#define OP(name, ...) \
  EXPECT_TRUE(is_transfer(OpKind::name) || seen.contains(OpKind::name)) << "no case for " #name;
#include "ops/ops.def"
#undef OP
}

TEST(OpOperands, the_table_says_their_numbers_and_what_may_be_absent_or_come_several_times) {
  using grad = operand::rms_norm_grad;
  const std::vector<OperandName>& inputs = operand_names(OpKind::rms_norm_grad).inputs;
  ASSERT_EQ(inputs.size(), 6U);
  EXPECT_EQ(inputs[grad::d_x_in].name, "d_x_in");
  EXPECT_TRUE(inputs[grad::d_x_in].optional);
  EXPECT_EQ(inputs[grad::step].name, "step");
  EXPECT_FALSE(inputs[grad::step].optional);
  const OperandName squares = operand_names(OpKind::grad_norm).inputs[operand::grad_norm::squares];
  EXPECT_EQ(squares.name, "squares");
  EXPECT_TRUE(squares.many);
}

// The refusal of verify() for an op over x [4, 8] and w [8].
std::string refusal_of(const std::string& op) {
  try {
    verify(parse_graph(
        "graph g\ntensor x f32[4,8] input\ntensor w f32[8] trainable\ntensor step f64[16] input\n" + op +
        "\n"));
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

TEST(OpOperands, what_is_missing_or_too_much_is_named) {
  EXPECT_EQ(refusal_of("y f32[4,8], r f32[4,1] = rms_norm(x, w) {eps=1e-05} @n forward"), "");
  EXPECT_THAT(refusal_of("y f32[4,8], r f32[4,1] = rms_norm(x, -) {eps=1e-05} @n forward"),
              HasSubstr("rms_norm: input 'weight' is missing: "));
  EXPECT_THAT(refusal_of("y f32[4,8], r f32[4,1] = rms_norm(x) {eps=1e-05} @n forward"),
              HasSubstr("rms_norm: input 'weight' is missing: "));
  EXPECT_THAT(refusal_of("y f32[4,8], r f32[4,1] = rms_norm(x, w, step) {eps=1e-05} @n forward"),
              HasSubstr("rms_norm: there is no input behind 'weight': "));
  EXPECT_THAT(refusal_of("y f32[4,8], - = rms_norm(x, w) {eps=1e-05} @n forward"),
              HasSubstr("rms_norm: output 'rstd' is missing: "));
}

}  // namespace
}  // namespace plimsoll::harness
