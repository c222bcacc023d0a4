// Tests of the errors that the emulated card finds, and of its instructions against the PTX manual. Kernels
// here are C++ like any other; lambdas stand for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "gpu/device.h"
#include "gpu/tensor_core.h"

namespace plimsoll::gpu {
namespace {

using emulated::Fault;
using emulated::Order;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr unsigned kThreads = 64;

class Emulator : public ::testing::Test {
 protected:
  Emulator() { emulated::settings() = {}; }
  ~Emulator() override { emulated::settings() = {}; }

  Stream stream_;
  template <class... Parameters, class... Arguments>
  std::string fault_of(void (*kernel)(Parameters...), Arguments... arguments) {
    try {
      launch(stream_, {1}, {kThreads}, kernel, arguments...);
    } catch (const Fault& fault) {
      return fault.what();
    }
    return "no fault";
  }
};

void number(int* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[block * blockDim.x + threadIdx.x] = static_cast<int>(block * 100 + threadIdx.x);
}

TEST_F(Emulator, runs_every_thread_of_every_block_once_in_any_order) {
  for (const Order order : {Order::forward, Order::reverse, Order::shuffled}) {
    emulated::settings() = {order, 5};
    std::vector<int> out(12 * kThreads, -1);
    launch(stream_, {3, 2, 2}, {kThreads}, number, out.data());
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], i / kThreads * 100 + i % kThreads);
  }
}

void sum_of_threads(const float* in, float* out) {
  PL_SHARED(float, parts, kThreads / kWarpSize);
  const float sum = block_sum<kThreads>(in[threadIdx.x], parts);
  out[threadIdx.x] = sum;
}

TEST_F(Emulator, a_sum_of_a_block_has_the_same_bits_in_every_thread_and_order) {
  std::vector<float> in(kThreads);
  for (size_t i = 0; i < in.size(); ++i) in[i] = 1.0F / static_cast<float>(i + 1);
  std::vector<float> first;
  for (const Order order : {Order::forward, Order::reverse, Order::shuffled}) {
    emulated::settings() = {order, 3};
    std::vector<float> out(kThreads);
    launch(stream_, {1}, {kThreads}, sum_of_threads, in.data(), out.data());
    EXPECT_NEAR(out[0], std::accumulate(in.begin(), in.end(), 0.0), 1e-5);
    EXPECT_EQ(out, std::vector<float>(kThreads, out[0]));
    if (first.empty()) first = out;
    EXPECT_EQ(out, first);
  }
}

void forgets_the_barrier(int* out) {
  PL_SHARED(int, values, kThreads);
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = values[kThreads - 1 - threadIdx.x];
}

TEST_F(Emulator, another_order_shows_that_a_barrier_is_missing) {
  std::vector<std::vector<int>> results;
  for (const Order order : {Order::forward, Order::reverse}) {
    emulated::settings() = {order};
    results.emplace_back(kThreads);
    launch(stream_, {1}, {kThreads}, forgets_the_barrier, results.back().data());
  }
  EXPECT_NE(results[0], results[1]);
}

void half_reach_the_barrier() {
  if (threadIdx.x < 32) __syncthreads();
}
void different_barriers() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
void half_a_warp_shuffles() {
  if (threadIdx.x % 32 < 16) __shfl_xor_sync(kAll, 1.0F, 1);
}
void reads_outside_the_mask() {
  if (threadIdx.x % 32 < 16) __shfl_sync(0xFFFFU, 1.0F, 20);
}
void writes_behind_an_array() {
  PL_SHARED(float, values, 8);
  values[8] = 1;
}
void asks_for_too_much() {
  PL_SHARED(char, values, 100 * 1024);
  values[0] = 1;
}
void uses_more_than_its_launch_gave() {
  PL_LAUNCHED_SHARED(float, values, 8);
  values[0] = 1;
}
void ends_with_a_copy(const float* from) {
  PL_SHARED(Pack<float>, to, 1);
  if (threadIdx.x == 0) copy_async(to, from, true);
}
void misses_what_it_needs() { require(threadIdx.x != 5, "a row is out of range"); }

TEST_F(Emulator, names_what_a_kernel_does_wrong_and_where) {
  EXPECT_THAT(fault_of(half_reach_the_barrier), HasSubstr("others wait at a barrier"));
  EXPECT_THAT(fault_of(different_barriers), HasSubstr("different barriers"));
  EXPECT_THAT(fault_of(half_a_warp_shuffles),
              AllOf(HasSubstr("no thread can go on"), HasSubstr("emulator_test.cc:")));
  EXPECT_THAT(fault_of(reads_outside_the_mask), HasSubstr("a shuffle reads a lane outside its mask"));
  EXPECT_THAT(fault_of(writes_behind_an_array), HasSubstr("shared memory was written"));
  EXPECT_THAT(fault_of(asks_for_too_much), HasSubstr("more shared memory than a block has: 102400 bytes"));
  EXPECT_THAT(fault_of(uses_more_than_its_launch_gave),
              HasSubstr("a kernel uses 32 bytes of shared memory of its launch, which gave 0"));
  alignas(16) const std::array<float, 4> values = {1, 2, 3, 4};
  EXPECT_THAT(fault_of(ends_with_a_copy, values.data()), HasSubstr("copies that nobody waited for"));
  EXPECT_THAT(fault_of(misses_what_it_needs),
              AllOf(HasSubstr("a row is out of range"), HasSubstr("thread 5")));
  // The card continues with the next kernel.
  std::vector<int> out(kThreads, -1);
  launch(stream_, {1}, {kThreads}, number, out.data());
  EXPECT_EQ(out.back(), kThreads - 1);
}

TEST_F(Emulator, refuses_grids_that_no_card_takes) {
  EXPECT_THROW(launch(stream_, {0}, {kThreads}, number, nullptr), InternalError);
  EXPECT_THROW(launch(stream_, {1, 65536}, {kThreads}, number, nullptr), LaunchRefused);
  EXPECT_THROW(launch(stream_, {1}, {2048}, number, nullptr), InternalError);
}

void copies_late(const float* from, float* early, float* late) {
  PL_SHARED(Pack<float>, to, 1);
  if (threadIdx.x == 0) copy_async(to, from, true);
  commit_copies();
  if (threadIdx.x == 0) *early = to[0].v[2];
  wait_copies<0>();
  __syncthreads();
  late[threadIdx.x] = to[0].v[2];
}

TEST_F(Emulator, a_copy_lands_when_it_is_waited_for_and_is_nan_before) {
  alignas(16) const std::array<float, 4> values = {1, 2, 3, 4};
  float early = 0;
  std::vector<float> late(kThreads);
  launch(stream_, {1}, {kThreads}, copies_late, values.data(), &early, late.data());
  EXPECT_TRUE(std::isnan(early));
  EXPECT_EQ(late, std::vector<float>(kThreads, 3.0F));
}

// One 16x8x16 product of a warp, its operands loaded by ldmatrix: a [16, 16], b [8, 16] row by row, c [16,
// 8].
void multiply(const bf16* a, const bf16* b, float* c) {
  PL_SHARED(Pack<bf16>, left, 16 * 2);
  PL_SHARED(Pack<bf16>, right, 8 * 2);
  const int lane = static_cast<int>(threadIdx.x);
  left[lane] = load_pack(a + lane * 8);
  if (lane < 16) right[lane] = load_pack(b + lane * 8);
  __syncthreads();
  uint32_t fa[4], fb[4];
  load_matrix(fa, left + lane % 16 * 2 + lane / 16);
  load_matrix(fb, right + lane % 8 * 2 + lane / 8 % 2);
  float sum[4] = {};
  const uint32_t own[2] = {fb[0], fb[1]};
  mma<bf16>(sum, fa, own);
  for (int i = 0; i < 4; ++i) c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sum[i];
}

TEST_F(Emulator, multiplies_as_tensor_cores_do) {
  alignas(16) std::array<bf16, 256> a{};
  alignas(16) std::array<bf16, 128> b{};
  for (size_t i = 0; i < a.size(); ++i) a[i] = rounded<bf16>(static_cast<float>(i % 7) - 3);
  for (size_t i = 0; i < b.size(); ++i) b[i] = rounded<bf16>(static_cast<float>(i % 5) - 2);
  std::array<float, 128> c{};
  launch(stream_, {1}, {32}, multiply, a.data(), b.data(), c.data());
  for (size_t row = 0; row < 16; ++row)
    for (size_t column = 0; column < 8; ++column) {
      float want = 0;
      for (size_t k = 0; k < 16; ++k) want += to_float(a[row * 16 + k]) * to_float(b[column * 16 + k]);
      EXPECT_EQ(c[row * 8 + column], want) << row << " " << column;
    }
}

TEST(Dialect, rounds_to_nearest_even_and_keeps_what_is_no_number) {
  EXPECT_EQ(rounded<bf16>(1.0F + 0x1p-8F).bits, 0x3F80);
  EXPECT_EQ(rounded<bf16>(1.0F + 0x1p-8F + 0x1p-20F).bits, 0x3F81);
  EXPECT_EQ(rounded<bf16>(1.0F + 0x1p-7F + 0x1p-8F).bits, 0x3F82);
  EXPECT_TRUE(std::isnan(to_float(rounded<bf16>(std::nanf("")))));
  EXPECT_TRUE(std::isnan(to_float(rounded_by(std::nanf(""), 0xFFFF))));
  EXPECT_EQ(to_float(rounded<f16>(65504.0F)), 65504.0F);
  EXPECT_EQ(rounded_by(1.0F + 0x1p-8F, 0x7FFF).bits, 0x3F80);
  EXPECT_EQ(rounded_by(1.0F + 0x1p-8F, 0x8000).bits, 0x3F81);
}

TEST(Dialect, exponentials_are_right_to_a_few_bits) {
  for (float x = -86; x < 88; x += 0.37F)
    EXPECT_NEAR(exp(x) / std::exp(static_cast<double>(x)), 1.0, 3e-7) << x;
  EXPECT_TRUE(std::isnan(exp(std::nanf(""))));
  EXPECT_TRUE(std::isinf(exp(1000.0F)));
  EXPECT_GT(exp(-1000.0F), 0.0F);
}

}  // namespace
}  // namespace plimsoll::gpu
