#include "layout/validator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.h"

namespace plimsoll::layout {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::ThrowsMessage;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// A layout that is right: norm, gate and up meet at op 2; grad takes norm's place afterwards.
struct Case {
  Problem problem{
      .buffers = {{"norm", 500, 0, 2}, {"gate", 1024, 1, 4}, {"up", 512, 2, 5}, {"grad", 512, 3, 6}},
      .alignment = 512};
  Placement placement{.offsets = {0, 512, 1536, 0}, .top = 2048, .lower_bound = 2048, .tie_break = "bytes"};

  [[nodiscard]] std::vector<Verdict> verdicts() const { return validate(problem, placement); }
};

auto is(Fault fault, const std::string& buffer, const std::string& other = "") {
  return AllOf(Field(&Verdict::fault, fault), Field(&Verdict::buffer, buffer), Field(&Verdict::other, other));
}

TEST(Validator, accepts_a_right_placement) { EXPECT_THAT(Case().verdicts(), IsEmpty()); }

TEST(Validator, accepts_a_neighbour_that_begins_inside_the_padding) {
  Case c;
  c.problem = {.buffers = {{"a", 500, 0, 1}, {"b", 4, 0, 1}}, .alignment = 4};
  c.placement = {.offsets = {0, 500}, .top = 504, .lower_bound = 504, .tie_break = "bytes"};
  EXPECT_THAT(c.verdicts(), IsEmpty());
}

TEST(Validator, names_both_buffers_of_an_overlap) {
  Case c;
  c.placement.offsets[2] = 1024;  // up slides into the upper half of gate
  EXPECT_THAT(c.verdicts(), ElementsAre(is(Fault::overlap, "gate", "up")));
  EXPECT_THAT(c.verdicts()[0].text, AllOf(HasSubstr("gate (1024 B at offset 512, ops 1..4)"),
                                          HasSubstr("up (512 B at offset 1024, ops 2..5)")));
}

TEST(Validator, sees_an_overlap_from_below_and_at_the_same_offset) {
  Case below;
  below.placement.offsets[1] = 0;  // gate begins where norm lies; grad comes later and lies there too
  EXPECT_THAT(below.verdicts(), ElementsAre(is(Fault::overlap, "norm", "gate")));

  Case around;
  around.problem = {.buffers = {{"small", 16, 0, 3}, {"large", 4096, 1, 2}}, .alignment = 16};
  around.placement = {.offsets = {1024, 0}, .top = 4096, .lower_bound = 4112, .tie_break = "bytes"};
  EXPECT_THAT(around.verdicts(), ElementsAre(is(Fault::overlap, "small", "large")));
}

TEST(Validator, the_last_op_is_inclusive) {
  Case c;
  c.problem.buffers[0].last = 3;  // norm now dies during the op that writes grad
  EXPECT_THAT(c.verdicts(), ElementsAre(is(Fault::overlap, "norm", "grad")));
}

TEST(Validator, goes_on_after_an_overlap) {
  Case c;
  c.placement.offsets = {0, 0, 0, 1536};
  c.problem.buffers[3].first = 5;
  c.placement.offsets[2] = 1536;
  EXPECT_THAT(c.verdicts(),
              ElementsAre(is(Fault::overlap, "norm", "gate"), is(Fault::overlap, "up", "grad")));
}

TEST(Validator, rejects_each_damage_to_one_buffer) {
  struct Damage {
    Fault fault;
    std::string buffer;
    std::function<void(Case&)> inflict;
  };
  const std::vector<Damage> damages = {
      {Fault::misaligned, "up", [](Case& c) { c.placement.offsets[2] = 1537, c.placement.top = 4096; }},
      {Fault::negative_offset, "norm", [](Case& c) { c.placement.offsets[0] = -512; }},
      {Fault::out_of_arena, "up", [](Case& c) { c.placement.offsets[2] = 2048; }},
      {Fault::out_of_arena, "up", [](Case& c) { c.placement.offsets[2] = kMax - 511; }},
      {Fault::out_of_arena, "up", [](Case& c) { c.placement.top = 2047; }},
      {Fault::out_of_arena, "gate", [](Case& c) { c.problem.buffers[1].bytes = kMax; }},
      {Fault::bad_size, "gate", [](Case& c) { c.problem.buffers[1].bytes = -1; }},
      {Fault::bad_lifetime, "grad", [](Case& c) { c.problem.buffers[3].last = 2; }},
      {Fault::wrong_lower_bound, "", [](Case& c) { c.placement.lower_bound = 1536; }},
      {Fault::wrong_lower_bound, "", [](Case& c) { c.placement.lower_bound = 2047; }},
      {Fault::wrong_count, "", [](Case& c) { c.placement.offsets.pop_back(); }},
      {Fault::wrong_count, "", [](Case& c) { c.placement.offsets.push_back(0); }},
      {Fault::bad_alignment, "", [](Case& c) { c.problem.alignment = 0; }},
      {Fault::bad_alignment, "", [](Case& c) { c.problem.alignment = 384; }},
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    Case c;
    damages[i].inflict(c);
    EXPECT_THAT(c.verdicts(), ElementsAre(is(damages[i].fault, damages[i].buffer)))
        << "damage " << i << ", " << to_string(damages[i].fault);
  }
}

TEST(Validator, every_shift_into_a_live_neighbour_is_an_overlap) {
  // 20 buffers of one block each, all alive at op 0: moving any one by one block meets exactly its neighbour.
  Problem problem{.buffers = {}, .alignment = 64};
  Placement placement{.offsets = {}, .top = 20 * 64, .lower_bound = 20 * 64, .tie_break = "bytes"};
  for (int32_t i = 0; i < 20; ++i) {
    problem.buffers.push_back({"b" + std::to_string(i), 64, 0, i});
    placement.offsets.push_back(int64_t{64} * i);
  }
  ASSERT_THAT(validate(problem, placement), IsEmpty());
  for (size_t i = 0; i + 1 < 20; ++i) {
    Placement damaged = placement;
    damaged.offsets[i] += 64;
    EXPECT_THAT(validate(problem, damaged),
                ElementsAre(is(Fault::overlap, "b" + std::to_string(i), "b" + std::to_string(i + 1))));
  }
}

TEST(Validator, require_valid_throws_the_first_faults) {
  Case c;
  EXPECT_NO_THROW(require_valid(c.problem, c.placement));
  c.placement.offsets[2] = 1024;
  EXPECT_THAT([&] { require_valid(c.problem, c.placement); },
              ThrowsMessage<InternalError>(AllOf(HasSubstr("\"bytes\""), HasSubstr("1 fault"),
                                                 HasSubstr("overlap: gate (1024 B at offset 512"))));
}

}  // namespace
}  // namespace plimsoll::layout
