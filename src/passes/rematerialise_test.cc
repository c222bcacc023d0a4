#include "passes/rematerialise.h"
#include "graph/op_kind.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/rule.h"

namespace plimsoll {
namespace {

bool is_swiglu(const Op& op) { return op.kind == OpKind::swiglu; }

constexpr const char* kHead =
    "graph t\n"
    "tensor x f32[4,8] input\n"
    "tensor packed f32[4,8] frozen\n"
    "tensor scale f32[4,8] frozen\n";

std::string rematerialised(const std::string& ops) {
  const Graph graph = rematerialise(parse_graph(kHead + ops), is_swiglu);
  verify(graph);
  return print_graph(graph);
}

std::string printed(const std::string& ops) { return print_graph(parse_graph(kHead + ops)); }

TEST(Rematerialise, readers_in_a_row_share_a_copy_and_later_ones_get_their_own) {
  EXPECT_EQ(rematerialised("w f32[4,8] = swiglu(packed, scale) @a forward\n"
                           "y0 f32[4,8] = add(x, x) @b forward\n"
                           "y1 f32[4,8] = add(w, y0) @c forward\n"
                           "y2 f32[4,8] = add(y1, w) @d forward\n"
                           "y3 f32[4,8] = add(y2, x) @e forward\n"
                           "y4 f32[4,8] = add(y3, w) @f backward\n"),
            printed("y0 f32[4,8] = add(x, x) @b forward\n"
                    "w f32[4,8] = swiglu(packed, scale) @a forward\n"
                    "y1 f32[4,8] = add(w, y0) @c forward\n"
                    "y2 f32[4,8] = add(y1, w) @d forward\n"
                    "y3 f32[4,8] = add(y2, x) @e forward\n"
                    "w.re f32[4,8] = swiglu(packed, scale) @a backward\n"
                    "y4 f32[4,8] = add(y3, w.re) @f backward\n"));
}

TEST(Rematerialise, chains_are_made_anew_together) {
  EXPECT_EQ(rematerialised("s f32[4,8] = swiglu(scale, scale) @a forward\n"
                           "w f32[4,8] = swiglu(packed, s) @a forward\n"
                           "y1 f32[4,8] = add(w, x) @b forward\n"
                           "y2 f32[4,8] = add(y1, x) @b forward\n"
                           "y3 f32[4,8] = add(w, y2) @b backward\n"),
            printed("s f32[4,8] = swiglu(scale, scale) @a forward\n"
                    "w f32[4,8] = swiglu(packed, s) @a forward\n"
                    "y1 f32[4,8] = add(w, x) @b forward\n"
                    "y2 f32[4,8] = add(y1, x) @b forward\n"
                    "s.re f32[4,8] = swiglu(scale, scale) @a backward\n"
                    "w.re f32[4,8] = swiglu(packed, s.re) @a backward\n"
                    "y3 f32[4,8] = add(w.re, y2) @b backward\n"));
}

TEST(Rematerialise, an_op_over_activations_is_our_own_fault) {
  EXPECT_THROW(rematerialised("y f32[4,8] = add(x, x) @a forward\n"
                              "w f32[4,8] = swiglu(packed, y) @a forward\n"
                              "z f32[4,8] = add(w, x) @b forward\n"),
               InternalError);
}

}  // namespace
}  // namespace plimsoll
