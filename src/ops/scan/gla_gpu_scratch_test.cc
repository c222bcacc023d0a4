// Tests of the bytes that a plan counts for gated linear attention on a GPU.
#include "ops/scan/gla_gpu_scratch.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

// GLA-1.3B, 4,096 tokens.
GlaShape shape_of(int64_t sequences) {
  return {
      .tokens = 4096, .sequences = sequences, .heads = 4, .kv_heads = 4, .key_dim = 256, .value_dim = 512};
}

// Packing plans a document for each eight tokens of a sample: neither states nor scores follow
// how many there may be.
TEST(GlaGpuScratch, of_packed_rows_is_about_that_of_the_same_tokens_apart) {
  const GlaGpuScratch apart = gla_gpu_scratch(shape_of(4), 2), packed = gla_gpu_scratch(shape_of(512), 2);
  EXPECT_LT(static_cast<double>(packed.forward_bytes), 1.05 * static_cast<double>(apart.forward_bytes));
  EXPECT_LT(static_cast<double>(packed.backward_bytes), 1.05 * static_cast<double>(apart.backward_bytes));
  EXPECT_EQ(gla_gpu_places(shape_of(512)), 64);
}

TEST(GlaGpuScratch, of_trees_has_a_state_for_each_chunk) {
  GlaShape trees = shape_of(16);
  trees.trees = true;
  EXPECT_EQ(gla_gpu_places(trees), 64 + 16);
}

// No two chunks of any sequences have one place, and none lies behind the last.
TEST(GlaGpuScratch, has_a_place_for_each_state_wherever_sequences_begin) {
  for (int64_t first = 1; first < 200; ++first)
    for (int64_t second = 1; second < 200; second += 7) {
      const GlaShape shape = {.tokens = first + second + 64, .sequences = 3};
      int64_t free = 0, token = 0;
      for (const int64_t length : {first, second, int64_t{64}}) {
        const int64_t chunks = (length + kGlaChunk - 1) / kGlaChunk;
        for (int64_t index = 1; index < chunks; ++index) {
          const int64_t place = token / kGlaChunk + index - 1;
          ASSERT_GE(place, free) << first << " " << second;
          free = place + 1;
        }
        token += length;
      }
      ASSERT_LE(free, gla_gpu_places(shape)) << first << " " << second;
    }
}

}  // namespace
}  // namespace plimsoll
