#include "data/files/memory_pool.h"

#include <arrow/status.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace plimsoll {
namespace {

// Sizes on both sides of where buffers become maps of their own, and on both sides of the next larger ones.
TEST(CappedMemoryPool, content_survives_every_change_of_size) {
  constexpr std::array<int64_t, 7> kSizes = {1000, 200'000, 400'000, 3'000'000, 300'000, 100, 500'000};
  CappedMemoryPool pool(4'000'000);
  uint8_t* buffer = nullptr;
  ASSERT_TRUE(pool.Allocate(100, 64, &buffer).ok());
  std::fill_n(buffer, 100, uint8_t{7});
  int64_t size = 100;
  for (const int64_t next : kSizes) {
    ASSERT_TRUE(pool.Reallocate(size, next, 64, &buffer).ok());
    EXPECT_TRUE(std::all_of(buffer, buffer + 100, [](uint8_t byte) { return byte == 7; })) << next;
    std::fill(buffer + 100, buffer + next, uint8_t{9});
    EXPECT_EQ(pool.bytes_allocated(), next);
    size = next;
  }
  pool.Free(buffer, size, 64);
  EXPECT_EQ(pool.bytes_allocated(), 0);
  EXPECT_EQ(pool.max_memory(), 3'000'000);
}

TEST(CappedMemoryPool, beyond_the_cap_nothing_changes) {
  CappedMemoryPool pool(1000);
  uint8_t* buffer = nullptr;
  ASSERT_TRUE(pool.Allocate(900, 64, &buffer).ok());
  uint8_t* other = nullptr;
  EXPECT_TRUE(pool.Allocate(101, 64, &other).IsOutOfMemory());
  uint8_t* const before = buffer;
  EXPECT_TRUE(pool.Reallocate(900, 1'000'000, 64, &buffer).IsOutOfMemory());
  EXPECT_EQ(buffer, before);
  EXPECT_EQ(pool.bytes_allocated(), 900);
  pool.Free(buffer, 900, 64);
}

}  // namespace
}  // namespace plimsoll
