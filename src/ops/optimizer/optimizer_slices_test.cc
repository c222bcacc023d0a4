// Updates in slices, as offload has them, against the update of the whole weight: the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "harness/op_harness.h"
#include "harness/optimizer_cases.h"
#include "ops/optimizer/optimizer.h"

namespace plimsoll::harness {
namespace {

using ::testing::IsEmpty;

constexpr int64_t kElements = 300 * 250;  // a slice and a rest

const std::string kShape = "300,250";

OpCase adamw_case(const std::string& weight, const std::string& gradient, const std::string& state,
                  bool master) {
  return update_case({.name = "adamw",
                      .op = "adamw",
                      .attributes = "beta1=0.9, beta2=0.99, eps=1e-08, stochastic=1, weight_decay=0.1",
                      .shape = kShape,
                      .weight = weight,
                      .gradient = gradient,
                      .master = master,
                      .states = {"m " + state + "[" + kShape + "]", "v " + state + "[" + kShape + "]"},
                      .given = {{"v", Values(kElements, 0.25)}}});
}

OpCase adamw8bit_case(const std::string& weight) {
  return update_case({.name = "adamw8bit",
                      .op = "adamw8bit",
                      .attributes = "beta1=0.9, beta2=0.99, eps=1e-08, stochastic=1, weight_decay=0.1",
                      .shape = kShape,
                      .weight = weight,
                      .states = {"m u8[300,250]", "v u8[300,250]", "m_scale f32[293]", "v_scale f32[293]"},
                      .given = {{"m", every_code(kElements)},
                                {"v", every_code(kElements)},
                                {"m_scale", Values(293, 0.5)},
                                {"v_scale", Values(293, 0.25)}}});
}

OpCase one_state_case(const std::string& op, const std::string& attributes) {
  return update_case({.name = op,
                      .op = op,
                      .attributes = attributes + ", stochastic=1, weight_decay=0.1",
                      .shape = kShape,
                      .weight = "bf16",
                      .states = {"m bf16[300,250]"}});
}

// The same update as one op a slice. The weight stays whole; what else the op reads and writes is in slices.
struct Sliced {
  Graph graph{"sliced"};
  std::vector<Values> values;
  // By whole tensor: its slices in order, or its one whole self.
  std::vector<std::vector<TensorId>> parts;
};

Sliced slice(const Graph& whole, const std::vector<Values>& values) {
  Sliced result;
  result.parts.resize(whole.tensors().size());
  const Op& op = whole.ops().back();
  const auto stays = [&](TensorId id) {
    return id == op.input(kStepInput) || id == op.input(kNormInput) || id == op.output(kWeightOutput);
  };
  const auto add = [&](TensorId of, const std::string& suffix, int64_t first, int64_t count) {
    Tensor tensor = whole.tensor(of);
    tensor.name = tensor.name + suffix;
    if (!suffix.empty()) tensor.shape = Shape{count};
    const auto begin = values[static_cast<size_t>(of)].begin() + first;
    result.values.emplace_back(begin, begin + count);
    result.parts[static_cast<size_t>(of)].push_back(result.graph.add_tensor(tensor));
  };
  for (size_t i = 0; i < whole.tensors().size(); ++i) {
    const auto id = static_cast<TensorId>(i);
    if (stays(id)) add(id, "", 0, whole.tensor(id).shape.elements());
  }
  for (int64_t first = 0; first < kElements; first += kSliceUnit) {
    const int64_t elements = std::min(kSliceUnit, kElements - first);
    const auto operand = [&](TensorId id) {
      if (id == kNoTensor) return kNoTensor;
      if (!stays(id)) {
        const int64_t block = ceil_div(kElements, whole.tensor(id).shape.elements());
        add(id, "." + std::to_string(first), first / block, ceil_div(elements, block));
      }
      return result.parts[static_cast<size_t>(id)].back();
    };
    Op part = op;
    std::transform(op.inputs.begin(), op.inputs.end(), part.inputs.begin(), operand);
    std::transform(op.outputs.begin(), op.outputs.end(), part.outputs.begin(), operand);
    part.attrs["first"] = first;
    part.attrs["elements"] = elements;
    emit(result.graph, part, "");
  }
  verify(result.graph);
  return result;
}

class Slices : public ::testing::TestWithParam<OpCase> {};

TEST_P(Slices, give_the_bits_of_the_whole) {
  const Graph whole = make_graph(GetParam(), DType::f32);
  const std::vector<Values> values = make_values(whole, GetParam());
  const Sliced sliced = slice(whole, values);
  for (const Isa isa : isas_here()) {
    const OpRun want = run_cpu(whole, values, {isa, 2});
    const OpRun got = run_cpu(sliced.graph, sliced.values, {isa, 2});
    EXPECT_THAT(got.faults, IsEmpty());
    for (const TensorId id : whole.ops().back().outputs) {
      if (id == kNoTensor) continue;
      std::vector<std::byte> joined;
      for (const TensorId part : sliced.parts[static_cast<size_t>(id)])
        joined.insert(joined.end(), got.bytes[static_cast<size_t>(part)].begin(),
                      got.bytes[static_cast<size_t>(part)].end());
      EXPECT_TRUE(joined == want.bytes[static_cast<size_t>(id)]) << whole.tensor(id).name;
    }
  }
}

std::vector<OpCase> cases() {
  return {adamw_case("f32", "f32", "f32", false),
          adamw_case("bf16", "bf16", "bf16", false),
          adamw_case("bf16", "f32", "f32", true),
          adamw8bit_case("f32"),
          adamw8bit_case("bf16"),
          one_state_case("lion", "beta1=0.9, beta2=0.99"),
          one_state_case("sgd", "momentum=0.9")};
}

INSTANTIATE_TEST_SUITE_P(All, Slices, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name + std::to_string(info.index); });

TEST(GradSquare, adds_up_over_slices_to_the_bits_of_the_whole) {
  for (const char* type : {"f32", "bf16"}) {
    OpCase c;
    c.name = "grad_square";
    c.body = "tensor g " + std::string(type) +
             "[300,250] gradient\n"
             "tensor whole f64[1] metric\n"
             "tensor parts f64[1] metric\n"
             "whole = grad_square(g) @g update\n"
             "parts = grad_square(g) {elements=65536, first=0} @g update\n"
             "parts = grad_square(g) {elements=9464, first=65536} @g update\n";
    const Graph graph = make_graph(c, DType::f32);
    for (const Isa isa : isas_here()) {
      const OpRun run = run_cpu(graph, make_values(graph, c), {isa, 2});
      EXPECT_TRUE(run.bytes[2] == run.bytes[3]) << run.values[2][0] << " and " << run.values[3][0];
    }
  }
}

TEST(Pieces, are_one_for_each_rank_and_none_is_empty) {
  for (const int64_t ranks : {2, 3, 4, 7, 64})
    for (const int64_t more : {0, 1, 255, 256, 1000, 12345}) {
      EXPECT_EQ(piece_elements(kPieceUnit * ranks * ranks - 1, ranks), 0);
      const int64_t elements = kPieceUnit * ranks * ranks + more;
      const int64_t piece = piece_elements(elements, ranks);
      EXPECT_EQ(piece % kPieceUnit, 0);
      EXPECT_GE(piece * ranks, elements);
      EXPECT_LT(piece * (ranks - 1), elements);
    }
  EXPECT_EQ(piece_elements(1 << 20, 1), 0) << "alone";
}

TEST(Pieces, of_squares_have_the_same_bits_from_one_rank_as_from_each) {
  for (const char* type : {"f32", "bf16"}) {
    OpCase c;
    c.name = "grad_square";
    c.body = "tensor g " + std::string(type) +
             "[300,750] gradient\n"
             "tensor all f64[3] metric\n"
             "tensor own f64[3] metric\n"
             "all = grad_square(g) {piece=75008} @g update\n"
             "own = grad_square(g) {elements=75008, first=0, piece=75008} @g update\n";
    const Graph graph = make_graph(c, DType::f32);
    const std::vector<Values> values = make_values(graph, c);
    for (const Isa isa : isas_here()) {
      for (const int64_t rank : {0, 1, 2}) {
        const OpRun run = run_cpu(for_rank(graph, rank), values, {isa, 2});
        const auto at = static_cast<size_t>(rank);
        EXPECT_EQ(run.values[3][at], run.values[2][at]) << rank;
        EXPECT_GT(run.values[3][at], 0) << rank;
      }
    }
  }
}

// The last rank's piece is shorter than the tensor that holds it.
TEST(Pieces, of_states_give_the_bits_of_the_whole_update) {
  OpCase c = adamw_case("bf16", "f32", "f32", true);
  const Graph whole = make_graph(c, DType::f32);
  const std::vector<Values> values = make_values(whole, c);
  const Op& op = whole.ops().back();
  const int64_t piece = piece_elements(kElements, 3);
  for (const int64_t rank : {0, 2}) {
    const int64_t first = rank * piece, elements = std::min(piece, kElements - first);
    Graph cut("cut");
    std::vector<Values> own;
    for (size_t i = 0; i < whole.tensors().size(); ++i) {
      Tensor tensor = whole.tensors()[i];
      own.push_back(values[i]);
      const bool is_state = tensor.role == Role::optimizer_state || tensor.role == Role::master;
      if (is_state) {
        tensor.shape = {piece};
        own.back() = Values(values[i].begin() + first, values[i].begin() + first + elements);
        own.back().resize(static_cast<size_t>(piece));
      }
      cut.add_tensor(tensor);
    }
    Op part = op;
    part.attrs["piece"] = part.attrs["elements"] = piece;
    part.attrs["first"] = int64_t{0};
    emit(cut, part, "");
    verify(cut);
    const OpRun want = run_cpu(whole, values, {Isa::avx2, 2});
    const OpRun got = run_cpu(for_rank(cut, rank), own, {Isa::avx2, 2});
    EXPECT_THAT(got.faults, IsEmpty());
    for (const TensorId id : op.outputs) {
      const auto at = static_cast<size_t>(id);
      const bool is_whole = got.values[at].size() == want.values[at].size();
      for (int64_t i = 0; i < elements; ++i)
        ASSERT_EQ(got.values[at][static_cast<size_t>(is_whole ? first + i : i)],
                  want.values[at][static_cast<size_t>(first + i)])
            << whole.tensor(id).name << " " << i;
    }
  }
}

TEST(AdamW, without_a_norm_is_not_clipped) {
  OpCase c = adamw_case("f32", "f32", "f32", false);
  c.given["norm"] = {2, 1.0};
  const Graph clipped = make_graph(c, DType::f32);
  c.body.replace(c.body.find("(step, norm, w.grad)"), 20, "(step, -, w.grad)");
  const Graph free = make_graph(c, DType::f32);
  const std::vector<Values> values = make_values(clipped, c);
  EXPECT_TRUE(run_cpu(free, values, {Isa::avx2, 1}).bytes == run_cpu(clipped, values, {Isa::avx2, 1}).bytes);
}

TEST(Slices, that_are_not_in_their_operands_are_refused) {
  const auto with_attrs = [](const char* attrs) {
    return make_graph({.name = "bad",
                       .body = "tensor g f32[300,250] gradient\n"
                               "tensor s f64[1] metric\n"
                               "s = grad_square(g) {" +
                               std::string(attrs) + "} @g update\n"},
                      DType::f32);
  };
  EXPECT_THROW(with_attrs("elements=65536, first=65536"), InternalError);
  EXPECT_THROW(with_attrs("elements=16, first=16"), InternalError);
  EXPECT_THROW(with_attrs("elements=0, first=0"), InternalError);
}

}  // namespace
}  // namespace plimsoll::harness
