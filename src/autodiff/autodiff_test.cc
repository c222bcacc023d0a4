#include "autodiff/autodiff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace plimsoll
