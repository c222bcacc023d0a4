#include "autodiff/autodiff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/op_kind.h"
#include "ops/rule.h"

namespace plimsoll {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two linears that share their input, a residual, and the fused loss.
constexpr const char* kForward =
    "graph g\n"
    "tensor step f64[16] input\n"
    "tensor labels i32[4] input\n"
    "tensor ids i32[4] input\n"
    "tensor table f32[8,6] ROLE\n"
    "tensor a.weight f32[6,6] trainable\n"
    "tensor b.weight f32[6,6] frozen\n"
    "tensor loss f64[2] metric\n"
    "h f32[4,6] = embedding(ids, table, step) @e forward\n"
    "ya f32[4,6] = linear(h, a.weight, -, -) {scale=1.0} @a forward\n"
    "yb f32[4,6] = linear(h, b.weight, -, ya) {scale=2.0} @b forward\n"
    "r f32[4,6] = add(h, yb) @r forward\n"
    "loss = linear_cross_entropy(r, table, labels, step) {chunk=4} @head forward\n";

Graph forward(const std::string& table_role) {
  std::string text = kForward;
  text.replace(text.find("ROLE"), 4, table_role);
  return parse_graph(text);
}

TEST(Autodiff, shared_inputs_are_summed_inside_the_matmuls) {
  const Graph graph = differentiate(forward("trainable"), {});
  verify(graph);
  const std::string text = print_graph(graph);
  EXPECT_THAT(text, HasSubstr("loss, d_r f32[4,6], table.grad = linear_cross_entropy_grad("));
  EXPECT_THAT(text, HasSubstr("d_h f32[4,6] = linear_dx(d_r, b.weight, d_r, -) {scale=2.0} @b backward"));
  EXPECT_THAT(text, HasSubstr("d_h.2 f32[4,6] = linear_dx(d_r, a.weight, d_h, -) {scale=1.0} @a backward"));
  EXPECT_THAT(text,
              HasSubstr("a.weight.grad = linear_dw(h, d_r, step) {accumulate=0, scale=1.0} @a backward"));
  EXPECT_THAT(text, Not(HasSubstr("b.weight.grad")));
}

TEST(Autodiff, the_second_writer_of_a_tied_gradient_adds) {
  const std::string text = print_graph(differentiate(forward("trainable"), {}));
  EXPECT_THAT(text,
              HasSubstr("table.grad = embedding_dw(ids, d_h.2, step) {accumulate=1, vocab=8} @e backward"));
}

TEST(Autodiff, branches_without_trainable_ancestor_get_no_backward) {
  const std::string text = print_graph(differentiate(forward("frozen"), {}));
  EXPECT_THAT(text, Not(HasSubstr("embedding_dw")));
  EXPECT_THAT(text, Not(HasSubstr("d_h ")));  // nothing below a.weight is trainable
  EXPECT_THAT(text, HasSubstr("a.weight.grad = linear_dw("));
}

TEST(Autodiff, gradients_are_on_the_axis_of_their_op) {
  Graph graph = forward("trainable");
  const AxisId axis = graph.add_axis("source");
  for (Op& op : graph.ops()) op.axis = axis;
  const size_t forward_ops = graph.ops().size();
  const Graph train = differentiate(graph, {});
  verify(train);
  EXPECT_GT(train.ops().size(), forward_ops);
  for (const Op& op : train.ops()) EXPECT_EQ(op.axis, axis) << print_op(train, op);
}

// Cross-attention whose keys are its values too, so that their gradients are summed.
std::string cross_attention(const std::string& keys_of) {
  return "graph cross\n"
         "axis 1 source\n"
         "tensor step f64[16] input\n"
         "tensor x f32[6,8] input\n"
         "tensor source.x f32[9,8] input\n"
         "tensor starts i32[3] input\n"
         "tensor source.starts i32[3] input\n"
         "tensor labels i32[6] input\n"
         "tensor q.weight f32[8,8] trainable\n"
         "tensor k.weight f32[8,8] trainable\n"
         "tensor head.weight f32[5,8] frozen\n"
         "tensor loss f64[2] metric\n"
         "q f32[6,8] = linear(x, q.weight, -, -, step) {scale=1.0} @q forward\n"
         "k f32[9,8] = linear(source.x, k.weight, -, -, step) {scale=1.0} @k forward axis=1\n"
         "o f32[6,8], lse f32[6,1] = attention(q, k, k, starts, step, source.starts) {causal=0, head_dim=8, "
         "key_length=9, keys_of=" +
         keys_of +
         ", length=6, window=0} @a forward\n"
         "loss = linear_cross_entropy(o, head.weight, labels, step) {chunk=3} @h forward\n";
}

TEST(Autodiff, gradients_of_keys_are_on_the_axis_of_the_keys) {
  const Graph train = differentiate(parse_graph(cross_attention("1")), {});
  verify(train);
  int keys = 0;
  for (const Op& op : train.ops())
    if (op.scope.starts_with("k") || op.kind == OpKind::add) {
      EXPECT_EQ(op.axis, 1) << print_op(train, op);
      ++keys;
    }
  EXPECT_EQ(keys, 3);  // forward, the sum of d_k and d_v, and the weight's gradient
  EXPECT_THROW(verify(parse_graph(cross_attention("0"))), InternalError);
}

}  // namespace
}  // namespace plimsoll
