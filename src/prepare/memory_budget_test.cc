// Budgets of unlike devices.
#include "prepare/memory_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/units.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A card with 24 GiB, and one with 12.
Recipe unlike(DeviceChoice device, int64_t devices = 2) {
  Recipe recipe;
  recipe.device = device;
  recipe.devices = devices;
  recipe.memory.device = {MemoryLimit::Kind::bytes, 0.0, 12 * kGiB, {{0, 24 * kGiB}, {1, 12 * kGiB}}};
  return recipe;
}

std::string refusal_of_budget(const Recipe& recipe) {
  try {
    read_budget(recipe, std::nullopt);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(MemoryBudget, of_unlike_cards_is_that_of_the_least) {
  const Budget budget = read_budget(unlike(DeviceChoice::card), std::nullopt);
  EXPECT_EQ(budget.device_bytes, 12 * kGiB);
  EXPECT_EQ(budget.device_source, "memory.device: 12.0 GiB, the least of 2 devices");
  EXPECT_EQ(read_budget(unlike(DeviceChoice::emulated), std::nullopt).process_bytes, 12 * kGiB)
      << "each has its own";
  EXPECT_THAT(unused_memory_notes(unlike(DeviceChoice::card)),
              ElementsAre("device 0: 12.0 GiB of 24.0 GiB stay unused, since all ranks have one layout"));
  Recipe alike = unlike(DeviceChoice::card);
  alike.memory.device.each[0] = 12 * kGiB;
  EXPECT_THAT(unused_memory_notes(alike), IsEmpty());
  alike.memory.device = {MemoryLimit::Kind::bytes, 0.0, 12 * kGiB};
  EXPECT_THAT(unused_memory_notes(alike), IsEmpty());
  EXPECT_EQ(read_budget(alike, std::nullopt).device_source, "memory.device: 12.0 GiB");
}

TEST(MemoryBudget, is_stated_for_each_rank_and_for_no_other) {
  EXPECT_THAT(refusal_of_budget(unlike(DeviceChoice::card, 1)),
              HasSubstr("there is no device 1, as devices is 1 (0); state devices: 2 (--devices 2)"));
  EXPECT_THAT(refusal_of_budget(unlike(DeviceChoice::card, 3)),
              HasSubstr("device 2 of 3 has no size: state one for each (devices 0 to 2)"));
  EXPECT_THAT(refusal_of_budget(unlike(DeviceChoice::cpu)), HasSubstr("share one memory"));
  EXPECT_THAT(refusal_of_budget(unlike(DeviceChoice::automatic)), HasSubstr("share one memory"));
}

}  // namespace
}  // namespace plimsoll
