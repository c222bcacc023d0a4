#include "graph/graph.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/name_ending.h"

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
  EXPECT_EQ(graph.ops()[1].outputs.front(), kNoTensor);
}

TEST(GraphText, keeps_blocks_and_the_facts_of_weights) {
  const std::string text =
      "graph g\n"
      "block 0 encoder.block.0 encoder\n"
      "block 1 decoder.block.0 decoder\n"
      "block 2 decoder.block.1 decoder\n"
      "tensor x f32[4,8] input\n"
      "tensor n f32[8] trainable disk block=1 init=ones decays=no\n"
      "tensor a f32[2,8] trainable block=2 origin=adapter init=kaiming_uniform part=head rate=adapter_out\n"
      "y f32[4,8], rstd f32[4] block=0 = rms_norm(x, n) {eps=1e-05} @d forward block=1\n"
      "z f32[4,8] block=-1 = add(y, x) forward block=2\n"
      "w f32[4,8] = add(z, x) forward\n";
  const Graph graph = parse_graph(text);
  EXPECT_EQ(print_graph(graph), text);
  ASSERT_EQ(graph.stacks().size(), 2U);
  EXPECT_EQ(graph.stacks()[1].first, 1);
  EXPECT_EQ(graph.stacks()[1].count, 2);
  const auto block_of = [&](const char* name) { return graph.tensor(graph.find(name)).block; };
  EXPECT_EQ(block_of("y"), 1);
  EXPECT_EQ(block_of("rstd"), 0);
  EXPECT_EQ(block_of("z"), kNoBlock);
  EXPECT_EQ(graph.ops()[1].block, 2);
  const ParameterInfo& facts = graph.tensor(graph.find("a")).parameter;
  EXPECT_EQ(facts.origin, Origin::adapter);
  EXPECT_EQ(facts.init, Initialiser::kaiming_uniform);
  EXPECT_EQ(facts.part, WeightPart::head);
  EXPECT_EQ(facts.rate, RateGroup::adapter_out);
  EXPECT_TRUE(facts.decays);
  EXPECT_FALSE(graph.tensor(graph.find("n")).parameter.decays);
  const std::string piece = "graph g\ntensor s f32[8] state whole[4,3]\n";
  EXPECT_EQ(print_graph(parse_graph(piece)), piece);
  EXPECT_THROW(parse_graph("tensor x f32[4] input block=0\n"), UsageError);
  EXPECT_THROW(parse_graph("block 1 a b\n"), UsageError);
  EXPECT_THROW(parse_graph("tensor x f32[4] trainable init=twos\n"), UsageError);
  EXPECT_THROW(parse_graph("tensor x f32[4] trainable colour=red\n"), UsageError);
}

TEST(GraphText, keeps_axes) {
  const std::string text =
      "graph g\n"
      "axis 1 source\n"
      "block 0 encoder.block.0 encoder\n"
      "tensor x f32[4,8] input\n"
      "y f32[4,8] = add(x, x) forward block=0 axis=1\n"
      "z f32[4,8] = add(x, x) forward\n";
  const Graph graph = parse_graph(text);
  EXPECT_EQ(print_graph(graph), text);
  EXPECT_EQ(graph.ops()[0].axis, 1);
  EXPECT_EQ(graph.ops()[1].axis, kFirstAxis);
  EXPECT_EQ(graph.axis_input(kFirstAxis, "positions"), "positions");
  EXPECT_EQ(graph.axis_input(1, "positions"), "source.positions");
  EXPECT_THROW(parse_graph("axis 2 source\n"), UsageError);
  EXPECT_THROW(parse_graph("axis 1 a\naxis 2 b\naxis 3 c\naxis 4 d\n"), UsageError);
  EXPECT_THROW(parse_graph("tensor x f32[4] input\ny f32[4] = add(x, x) forward axis=1\n"), UsageError);
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

TEST(Graph, a_copy_of_attributes_is_changed_alone) {
  Attrs original = {{"first", int64_t{1}}};
  Attrs copy = original;
  EXPECT_EQ(copy, original);
  copy["first"] = int64_t{2};
  EXPECT_EQ(original.find("first")->second, AttrValue(int64_t{1}));
  EXPECT_NE(copy, original);
  Attrs emplaced = original;
  EXPECT_FALSE(emplaced.emplace("first", int64_t{3}));
  EXPECT_TRUE(emplaced.emplace("elements", int64_t{3}));
  EXPECT_FALSE(original.contains("elements"));
  EXPECT_EQ(emplaced.begin()->first, "elements") << "in the order of their names";
  EXPECT_TRUE(Attrs().empty());
  EXPECT_EQ(Attrs(), Attrs());
}

TEST(Graph, finds_every_tensor_and_those_of_a_copy_in_the_copy_only) {
  Graph graph("g");
  EXPECT_EQ(graph.find("t0"), kNoTensor);
  for (int i = 0; i < 500; ++i) graph.add_tensor({"t" + std::to_string(i), {1}});
  Graph copy = graph;
  copy.add_tensor({"more", {1}});
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(graph.find("t" + std::to_string(i)), i);
    EXPECT_EQ(copy.find("t" + std::to_string(i)), i);
  }
  EXPECT_EQ(copy.find("more"), 500);
  EXPECT_EQ(graph.find("more"), kNoTensor);
  EXPECT_EQ(graph.fresh_name("t7"), "t7.2");
  EXPECT_THROW(graph.add_tensor({"t7", {1}}), InternalError);
}

TEST(NameEnding, makes_the_name_that_a_text_makes) {
  constexpr int kNames = 2000;  // more than it begins with room for
  NameEnding ending(".re"), other(".home");
  for (const int round : {0, 1})
    for (int i = 0; i < kNames; ++i) {
      const Name base = "tensor." + std::to_string(i);
      ASSERT_EQ(ending.behind(base), Name("tensor." + std::to_string(i) + ".re")) << round;
      ASSERT_EQ(other.behind(base), Name("tensor." + std::to_string(i) + ".home")) << round;
    }
  EXPECT_EQ(ending.behind(ending.behind(Name("a"))), "a.re.re");
  EXPECT_EQ(ending.behind(Name()), ".re");
}

}  // namespace
}  // namespace plimsoll
