#include "graph/graph.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace plimsoll {
namespace {

constexpr const char* kText =
    "graph train\n"
    "tensor x f32[4,8] input\n"
    "tensor model.norm.weight f32[8] trainable\n"
    "tensor model.norm.weight.grad f32[8] gradient\n"
    "y f32[4,8], rstd f32[4] = rms_norm(x, model.norm.weight) {eps=1e-05} @model.norm forward\n"
    "-, model.norm.weight.grad = rms_norm_grad(x, model.norm.weight, rstd, y, -) {heads=3, scale=2.0} "
    "backward\n";

TEST(GraphText, survives_print_parse_print) {
  const Graph graph = parse_graph(kText);
  EXPECT_EQ(print_graph(graph), kText);
  EXPECT_EQ(graph.ops()[1].attr_int("heads"), 3);
  EXPECT_DOUBLE_EQ(graph.ops()[1].attr_float("scale"), 2.0);
  EXPECT_FALSE(graph.ops()[1].has_output(0));
}

TEST(GraphText, errors_name_the_line) {
  try {
    parse_graph("graph g\ntensor x f32[4 input\n");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("line 2"), std::string::npos) << error.what();
  }
  EXPECT_THROW(parse_graph("y f32[2] = add(a, b) forward\n"), UsageError);
  EXPECT_THROW(parse_graph("tensor a f32[2] input\ny f32[2] = nonsense(a, a) forward\n"), UsageError);
}

TEST(Graph, names_are_unique) {
  Graph graph("g");
  graph.add_tensor({"a", {1}, DType::f32, Role::input});
  EXPECT_THROW(graph.add_tensor({"a", {1}, DType::f32, Role::input}), InternalError);
  EXPECT_EQ(graph.fresh_name("a"), "a.2");
}

}  // namespace
}  // namespace plimsoll
