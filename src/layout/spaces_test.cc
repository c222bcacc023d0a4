// Layouts of programs with tensors off the device, and the discipline of transfers.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/format.h"
#include "layout/program_layout.h"
#include "layout/test_bounds.h"

namespace plimsoll {
namespace {

constexpr int64_t kKiB = 1024;

// A weight and an activation kept on `space`, and the activation's way there and back.
std::string offloaded(const std::string& space) {
  return "graph g\n"
         "tensor x f32[1024] input\n"
         "tensor w f32[1024] trainable\n"
         "tensor w.m f32[2048] state " +
         space +
         "\n"
         "tensor a.home f32[1024] activation " +
         space +
         "\n"
         "a f32[1024] = add(x, x) forward\n"
         "a.home = store(a) {first=0} forward\n"
         "b f32[1024] = add(x, w) forward\n"
         "a = store_wait(a) forward\n"
         "c f32[1024] = add(x, b) forward\n"
         "back f32[1024] = fetch(a.home) {elements=1024, first=0} forward\n"
         "d f32[1024] = add(x, c) forward\n"
         "back = fetch_wait(back) forward\n"
         "e f32[1024] = add(d, back) forward\n";
}

const TableRow& row_named(const ArenaLayout& layout, const Graph& graph, const char* name) {
  return layout.programs[0].rows[static_cast<size_t>(graph.find(name))];
}

TEST(Spaces, each_has_a_persistent_and_a_transient_region_of_its_own) {
  for (const Space space : {Space::host, Space::disk}) {
    const std::vector<Graph> programs = {parse_graph(offloaded(std::string(to_string(space))))};
    const ArenaLayout layout = lay_out(programs);
    validate(programs, layout);
    EXPECT_EQ(layout.persistent_bytes, 4 * kKiB);
    EXPECT_EQ(layout.sizes(space).persistent_bytes, 8 * kKiB);
    EXPECT_EQ(layout.sizes(space).transient_bytes, 4 * kKiB);
    EXPECT_EQ(layout.arena_bytes(space == Space::host ? Space::disk : Space::host), 0);
    EXPECT_EQ(row_named(layout, programs[0], "w.m").offset, 0);
    EXPECT_EQ(row_named(layout, programs[0], "a.home").offset, 8 * kKiB);
    for (const Space each : kSpaces) EXPECT_EQ(layout.arena_bytes(each), arena_lower_bound(programs, each));
  }
}

TEST(Spaces, a_copy_is_alive_from_its_fetch_and_until_its_store_is_complete) {
  const std::vector<Graph> programs = {parse_graph(offloaded("disk"))};
  const ArenaLayout layout = lay_out(programs);
  EXPECT_EQ(row_named(layout, programs[0], "a").last, 3);
  EXPECT_EQ(row_named(layout, programs[0], "back").first, 5);
  EXPECT_EQ(row_named(layout, programs[0], "a.home").first, 1);
  EXPECT_EQ(row_named(layout, programs[0], "a.home").last, 7) << "the fetch may still read it";
}

TEST(Spaces, homes_that_are_not_alive_together_share_bytes) {
  std::string text = "graph g\ntensor x f32[1024] input\n";
  for (const std::string i : {"1", "2"}) {
    text += "tensor h" + i + " f32[1024] activation disk\n";
  }
  for (const std::string i : {"1", "2"}) {
    text += "a" + i + " f32[1024] = add(x, x) forward\nh" + i + " = store(a" + i + ") {first=0} forward\na" +
            i + " = store_wait(a" + i + ") forward\nb" + i + " f32[1024] = fetch(h" + i +
            ") {elements=1024, first=0} forward\nb" + i + " = fetch_wait(b" + i + ") forward\n";
  }
  const std::vector<Graph> programs = {parse_graph(text)};
  const ArenaLayout layout = lay_out(programs);
  validate(programs, layout);
  EXPECT_EQ(layout.arena_bytes(Space::disk), 4 * kKiB);
}

TEST(Spaces, an_output_does_not_take_over_storage_of_another_space) {
  const std::vector<Graph> programs = {parse_graph(
      "graph g\ntensor x f32[1024] input\ntensor b f32[1024] activation host\n"
      "a f32[1024] = add(x, x) forward\nb = add(a, x) forward\nc f32[1024] = add(b, x) forward\n")};
  const ArenaLayout layout = lay_out(programs);
  validate(programs, layout);
  EXPECT_EQ(row_named(layout, programs[0], "b").shares, "");
  EXPECT_EQ(row_named(layout, programs[0], "c").shares, "");
  EXPECT_EQ(layout.arena_bytes(Space::host), 4 * kKiB);
}

TEST(Spaces, programs_that_keep_a_tensor_in_different_places_are_refused) {
  const std::vector<Graph> programs = {parse_graph("graph a\ntensor w f32[4] frozen\n"),
                                       parse_graph("graph b\ntensor w f32[4] frozen disk\n")};
  EXPECT_THROW(lay_out(programs), InternalError);
}

// The validator's verdict on a program that is laid out without reuse, so that only its transfers can be at
// fault.
std::string verdict(const std::string& text) {
  const std::vector<Graph> programs = {parse_graph(text)};
  try {
    validate(programs, lay_out(programs, {.reuse = false}));
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

std::string without(std::string text, const std::string& line) {
  const size_t at = text.find(line + "\n");
  EXPECT_NE(at, std::string::npos) << line;
  return text.erase(at, line.size() + 1);
}

std::string moved_before(const std::string& text, const std::string& line, const std::string& before) {
  std::string moved = without(text, line);
  return moved.insert(moved.find(before), line + "\n");
}

TEST(TransferDiscipline, a_program_that_keeps_it_is_valid) { EXPECT_EQ(verdict(offloaded("disk")), ""); }

TEST(TransferDiscipline, a_copy_read_before_its_wait_is_found) {
  const std::string text =
      moved_before(offloaded("disk"), "e f32[1024] = add(d, back) forward", "back = fetch_wait");
  EXPECT_NE(verdict(text).find("back is read before its transfer is waited for"), std::string::npos)
      << verdict(text);
}

TEST(TransferDiscipline, a_copy_written_before_its_store_is_waited_for_is_found) {
  const std::string persistent =
      "graph g\ntensor x f32[64] input\ntensor w f32[64] trainable\ntensor h f32[64] activation disk\n"
      "h = store(w) {first=0} forward\nw = add(x, x) forward\nw = store_wait(w) forward\n";
  EXPECT_NE(verdict(persistent).find("w is written before its transfer is waited for"), std::string::npos)
      << verdict(persistent);
}

TEST(TransferDiscipline, a_wait_of_the_other_kind_is_no_wait) {
  std::string text = offloaded("disk");
  text.replace(text.find("a = store_wait(a)"), 17, "a = fetch_wait(a)");
  EXPECT_THROW(lay_out(std::vector<Graph>{parse_graph(text)}), InternalError);
}

TEST(TransferDiscipline, a_fetch_without_a_wait_is_found) {
  std::string text = without(offloaded("disk"), "e f32[1024] = add(d, back) forward");
  text = without(text, "back = fetch_wait(back) forward");
  EXPECT_NE(verdict(text).find("a transfer has no wait"), std::string::npos) << verdict(text);
}

TEST(TransferDiscipline, a_store_without_a_wait_is_found) {
  const std::string text = without(offloaded("disk"), "a = store_wait(a) forward");
  EXPECT_NE(verdict(text).find("a transfer has no wait"), std::string::npos) << verdict(text);
}

TEST(TransferDiscipline, a_copy_that_is_moved_twice_at_a_time_is_found) {
  std::string text = offloaded("disk");
  text.insert(text.find("b f32[1024] = add(x, w)"), "w.m = store(a) {first=1024} forward\n");
  EXPECT_NE(verdict(text).find("a is still being moved"), std::string::npos) << verdict(text);
}

TEST(TransferDiscipline, a_home_that_is_computed_on_during_its_transfer_is_found) {
  const std::string text =
      "graph g\ntensor x f32[64] input\ntensor h f32[64] state host\n"
      "c f32[64] = fetch(h) {elements=64, first=0} forward\nh = add(x, x) forward\nc = fetch_wait(c) "
      "forward\n";
  EXPECT_NE(verdict(text).find("h is written before its transfer is waited for"), std::string::npos)
      << verdict(text);
}

TEST(TransferDiscipline, bytes_taken_from_a_copy_under_way_are_found) {
  const std::vector<Graph> programs = {parse_graph(offloaded("disk"))};
  ArenaLayout layout = lay_out(programs, {.reuse = false});
  auto& rows = layout.programs[0].rows;
  const auto at = [&](const char* name) { return static_cast<size_t>(programs[0].find(name)); };
  rows[at("b")].offset = rows[at("a")].offset;  // written while a is being stored
  EXPECT_THROW(validate(programs, layout), InternalError);
}

TEST(TransferDiscipline, a_home_outside_of_its_arena_is_found) {
  const std::vector<Graph> programs = {parse_graph(offloaded("disk"))};
  ArenaLayout layout = lay_out(programs);
  layout.programs[0].rows[static_cast<size_t>(programs[0].find("a.home"))].offset = 0;  // the state's bytes
  EXPECT_THROW(validate(programs, layout), InternalError);
}

TEST(TransferDiscipline, stores_of_slices_into_one_home_are_valid) {
  EXPECT_EQ(verdict("graph g\ntensor x f32[64] input\ntensor h f32[128] activation disk\n"
                    "a f32[64] = add(x, x) forward\nb f32[64] = add(x, a) forward\n"
                    "h = store(a) {first=0} forward\nh = store(b) {first=64} forward\n"
                    "c f32[128] = fetch(h) {elements=128, first=0} forward\n"
                    "a = store_wait(a) forward\nb = store_wait(b) forward\nc = fetch_wait(c) forward\n"
                    "d f32[128] = add(c, c) forward\n"),
            "");
}

// Two frozen weights, one that trains and that an evaluation sees as frozen, and one frozen weight on disk.
TEST(NodeCopies, what_is_frozen_lies_at_the_front_in_whole_pages_and_counts_by_shares) {
  const auto program = [](const char* name, const char* role) {
    return parse_graph(
        formatted("graph {}\n"
                  "tensor x f32[1024] input\n"
                  "tensor t f32[1024] {}\n"
                  "tensor f f32[300] frozen\n"
                  "tensor g f32[1024] frozen\n"
                  "tensor d f32[1024] frozen disk\n"
                  "a f32[1024] = add(x, t) forward\n"
                  "b f32[1024] = add(a, g) forward\n",
                  name, role));
  };
  const std::vector<Graph> programs = {program("evaluation", "frozen"), program("train", "trainable")};
  const ArenaLayout apart = lay_out(programs);
  EXPECT_EQ(apart.shared.bytes, 0);
  const ArenaLayout layout = lay_out(programs, {.node_copy = {3}});
  validate(programs, layout);
  const auto row = [&](const char* name) { return *layout.find_persistent(name); };
  EXPECT_EQ(row("f").offset, 0);
  EXPECT_EQ(row("g").offset, 1536);
  EXPECT_EQ(layout.shared.bytes, 8 * kKiB);
  EXPECT_EQ(layout.shared.share, 512 + (4096 + 2) / 3 + (4096 + 2) / 3);
  EXPECT_GE(3 * layout.shared.share, layout.shared.bytes);
  for (const char* name : {"f", "g"}) EXPECT_TRUE(layout.is_shared(row(name))) << name;
  for (const char* name : {"t", "d"}) EXPECT_FALSE(layout.is_shared(row(name))) << name;
  EXPECT_EQ(layout.persistent_bytes, 8 * kKiB + 4 * kKiB);
  EXPECT_EQ(layout.arena_bytes() - apart.arena_bytes(), 8 * kKiB - 4 * kKiB - 1536);
  EXPECT_EQ(layout.arena_bytes(Space::disk), apart.arena_bytes(Space::disk));
}

// With cards: what is frozen on the host lies at the front of its arena, and what each card holds is its own.
TEST(NodeCopies, what_is_frozen_on_the_host_lies_at_the_front_of_its_arena) {
  const std::vector<Graph> programs = {
      parse_graph("graph train\n"
                  "tensor x f32[1024] input\n"
                  "tensor s f32[1024] state host\n"
                  "tensor g f32[1024] frozen\n"
                  "tensor f f32[300] frozen host\n"
                  "tensor h f32[1024] frozen host\n"
                  "b f32[1024] = add(x, g) forward\n")};
  const ArenaLayout apart = lay_out(programs), layout = lay_out(programs, {.node_copy = {3, Space::host}});
  validate(programs, layout);
  const auto row = [&](const char* name) { return *layout.find_persistent(name); };
  EXPECT_EQ(row("f").offset, 0);
  EXPECT_EQ(row("h").offset, 1536);
  EXPECT_EQ(row("s").offset, 8 * kKiB);
  for (const char* name : {"f", "h"}) EXPECT_TRUE(layout.is_shared(row(name))) << name;
  for (const char* name : {"g", "s"}) EXPECT_FALSE(layout.is_shared(row(name))) << name;
  EXPECT_EQ(layout.shared.bytes_in(Space::host), 8 * kKiB);
  EXPECT_EQ(layout.shared.bytes_in(Space::device), 0);
  EXPECT_EQ(layout.shared.of_others(Space::device), 0);
  EXPECT_EQ(layout.arena_bytes(Space::host), 12 * kKiB);
  EXPECT_EQ(layout.arena_bytes(), apart.arena_bytes());
}

}  // namespace
}  // namespace plimsoll
