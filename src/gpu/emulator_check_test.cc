// Faults planted in kernels that are compiled as checked ones are, each of which the checker must name.
#include "gpu/emulator_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "gpu/device.h"
#include "gpu/tensor_core.h"

namespace plimsoll::gpu {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr unsigned kThreads = 64;

class Checker : public ::testing::Test {
 protected:
  Checker() { emulated::settings() = {}; }

  alignas(16) std::array<float, 3 * kThreads> memory_{};
  float* const in_ = memory_.data();
  float* const out_ = memory_.data() + kThreads;

  std::vector<std::string> findings_of(void (*kernel)(const float*, float*), unsigned blocks = 1) {
    emulated::watch({{memory_.data(), sizeof memory_, false, false, false, "the arena"},
                     {in_, kThreads * sizeof(float), true, false, true, "in"},
                     {out_, kThreads * sizeof(float), true, true, false, "out"}});
    Stream stream;
    launch(stream, {blocks}, {kThreads}, kernel, in_, out_);
    return emulated::findings();
  }
};

void reverses(const float* in, float* out) {
  PL_SHARED(float, values, kThreads);
  values[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = values[kThreads - 1 - threadIdx.x];
}
void forgets_a_barrier(const float* in, float* out) {
  PL_SHARED(float, values, kThreads);
  values[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  const float next = values[(threadIdx.x + 1) % kThreads];
  values[threadIdx.x] = next;  // another thread may not have read it yet
  out[threadIdx.x] = next;
}
void reads_behind(const float* in, float* out) { out[threadIdx.x] = in[2 * kThreads + threadIdx.x]; }
void writes_its_input(const float* in, float*) { const_cast<float*>(in)[threadIdx.x] = 1; }
void adds_to_nothing(const float* in, float* out) { out[threadIdx.x] += in[threadIdx.x]; }
void sums_blocks(const float* in, float* out) {
  if (blockIdx.x == 0) out[threadIdx.x] = 0;
  out[threadIdx.x] += in[threadIdx.x];
}
void reads_nothing(const float*, float* out) {
  PL_SHARED(float, values, kThreads);
  out[threadIdx.x] = values[threadIdx.x];
}
void is_misaligned(const float* in, float* out) {
  const Pack<float> pack = load_pack(in + 1);
  if (threadIdx.x == 0) out[0] = pack.v[0];
}
void forgets_to_meet_after_a_copy(const float* in, float* out) {
  PL_SHARED(Pack<float>, values, kThreads / 4);
  if (threadIdx.x < kThreads / 4) copy_async(values + threadIdx.x, in + threadIdx.x * 4, true);
  commit_copies();
  wait_copies<0>();
  out[threadIdx.x] = values[threadIdx.x / 4].v[threadIdx.x % 4];
}

TEST_F(Checker, finds_nothing_in_a_right_kernel) { EXPECT_THAT(findings_of(reverses), IsEmpty()); }

TEST_F(Checker, names_every_planted_fault) {
  EXPECT_THAT(findings_of(forgets_a_barrier), Contains(HasSubstr("race")));
  EXPECT_THAT(findings_of(reads_behind), Contains(HasSubstr("outside the op's operands")));
  EXPECT_THAT(findings_of(writes_its_input), Contains(HasSubstr("write to input in")));
  EXPECT_THAT(findings_of(adds_to_nothing), Contains(HasSubstr("read of what nothing wrote in out")));
  EXPECT_THAT(findings_of(sums_blocks, 2), Contains(HasSubstr("race, after a write, in out")));
  EXPECT_THAT(findings_of(reads_nothing), Contains(HasSubstr("read of what nothing wrote in shared memory")));
  EXPECT_THAT(findings_of(is_misaligned), Contains(HasSubstr("misaligned access of 16 bytes to in")));
  EXPECT_THAT(findings_of(forgets_to_meet_after_a_copy), Contains(HasSubstr("in shared memory")));
}

}  // namespace
}  // namespace plimsoll::gpu
