#include "layout/program_layout.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "layout/test_bounds.h"

namespace plimsoll {
namespace {

constexpr const char* kProgram =
    "graph g\n"
    "tensor a f32[4,256] input\n"
    "tensor w f32[256,256] frozen\n"
    "b f32[4,256] = linear(a, w, -, -) {scale=1.0} forward\n"
    "c f32[4,256] = linear(b, w, -, -) {scale=1.0} forward\n"
    "d f32[4,256] = add(b, c) forward\n"
    "e f32[4,256] = add(d, d) forward\n"
    "f f32[4,256] = linear(e, w, -, e) {scale=1.0} forward\n";

const TableRow& row(const ArenaLayout& layout, const Graph& graph, const char* name) {
  return layout.programs[0].rows[static_cast<size_t>(graph.find(name))];
}

TEST(ProgramLayout, an_output_takes_over_an_input_that_dies) {
  const std::vector<Graph> programs = {parse_graph(kProgram)};
  const ArenaLayout layout = lay_out(programs);
  validate(programs, layout);
  EXPECT_EQ(row(layout, programs[0], "d").shares, "b");
  EXPECT_EQ(layout.persistent_bytes, 256 * 256 * 4);
  // At any op at most two tensors of 4 KiB are alive: c needs b, and d lies where b was.
  EXPECT_EQ(layout.transient_bytes, 2 * 4096);
  EXPECT_EQ(layout.arena_bytes(), arena_lower_bound(programs));
}

TEST(ProgramLayout, an_input_read_in_two_places_is_not_taken_over) {
  const std::vector<Graph> programs = {parse_graph(kProgram)};
  const ArenaLayout layout = lay_out(programs);
  EXPECT_EQ(row(layout, programs[0], "e").shares, "");  // add(d, d)
  EXPECT_EQ(row(layout, programs[0], "f").shares, "");  // e is the product's input too
}

TEST(ProgramLayout, without_reuse_everything_has_its_own_bytes) {
  const std::vector<Graph> programs = {parse_graph(kProgram)};
  const ArenaLayout layout = lay_out(programs, {.reuse = false});
  validate(programs, layout);
  EXPECT_EQ(layout.transient_bytes, 6 * 4096);
}

TEST(Ownership, a_value_that_was_overwritten_before_its_read_is_found) {
  const std::vector<Graph> programs = {parse_graph(kProgram)};
  ArenaLayout layout = lay_out(programs, {.reuse = false});
  auto& rows = layout.programs[0].rows;
  const auto at = [&](const char* name) { return static_cast<size_t>(programs[0].find(name)); };
  rows[at("c")].offset = rows[at("b")].offset;  // c is written where b is still to be read
  EXPECT_THROW(validate(programs, layout), InternalError);
}

TEST(Ownership, an_in_place_result_the_rule_does_not_allow_is_found) {
  const std::vector<Graph> programs = {parse_graph(kProgram)};
  ArenaLayout layout = lay_out(programs, {.reuse = false});
  auto& rows = layout.programs[0].rows;
  const auto at = [&](const char* name) { return static_cast<size_t>(programs[0].find(name)); };
  rows[at("b")].offset = rows[at("a")].offset;  // a matrix product in place
  EXPECT_THROW(validate(programs, layout), InternalError);
}

TEST(Ownership, tensors_outside_their_region_are_found) {
  const std::vector<Graph> programs = {parse_graph(kProgram)};
  ArenaLayout layout = lay_out(programs);
  layout.programs[0].rows[static_cast<size_t>(programs[0].find("b"))].offset = 0;  // among the weights
  EXPECT_THROW(validate(programs, layout), InternalError);
}

TEST(ProgramLayout, programs_that_disagree_about_a_weight_are_refused) {
  const std::vector<Graph> programs = {parse_graph("graph a\ntensor w f32[4] frozen\n"),
                                       parse_graph("graph b\ntensor w bf16[4] frozen\n")};
  EXPECT_THROW(lay_out(programs), InternalError);
}

}  // namespace
}  // namespace plimsoll
