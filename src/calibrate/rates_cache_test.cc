#include "calibrate/rates_cache.h"
#include "calibrate/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sched.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "calibrate/probe.h"
#include "calibrate/rates_json.h"
#include "files/test_folder.h"

namespace plimsoll {
namespace {

using ::testing::HasSubstr;

const Machine kMachine{"Some CPU (R) 9000", "avx2", 2, "own-avx2-f32 own-avx2-f32"};

DeviceRates measured() {
  DeviceRates rates;
  rates.bandwidth = 12345.5;
  rates.vector_bf16 = 6e10;
  rates.op_overhead = 1e-6;
  rates.matmuls = {{{.a = DType::bf16, .b = DType::bf16, .c = DType::f32, .a_transposed = true},
                    {1, 64},
                    {16},
                    {256, 512},
                    {1e9, 2e9, 3e9, 4e9}}};
  rates.ops = {{"attention", DType::bf16, 64, {{128, 1e10}, {256, 2e10}}}};
  rates.calibrated = true;
  return rates;
}

std::string text_of(const DeviceRates& rates) { return rates_to_json(rates).dump(); }

int first_cpu() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof mask, &mask);
  int cpu = 0;
  while (CPU_ISSET(cpu, &mask) == 0) ++cpu;
  return cpu;
}

class RatesCache : public ::testing::Test {
 protected:
  void write(const std::string& text) {
    std::ofstream(rates_file(folder_.path(), kMachine), std::ios::trunc) << text;
  }
  // Loads, expects shipped rates, and gives the note.
  std::string note() {
    DeviceRates shipped;
    shipped.bandwidth = 777;
    const DeviceRates rates = load_rates(folder_.path(), kMachine, shipped);
    EXPECT_FALSE(rates.calibrated);
    EXPECT_EQ(rates.bandwidth, 777);
    return rates.note;
  }

  TestFolder folder_;
};

TEST_F(RatesCache, gives_back_what_was_measured) {
  save_rates(folder_.path() / "made" / "when needed", kMachine, measured());
  const DeviceRates rates = load_rates(folder_.path() / "made" / "when needed", kMachine, {});
  EXPECT_TRUE(rates.calibrated);
  EXPECT_EQ(rates.note, "");
  EXPECT_EQ(text_of(rates), text_of(measured()));
}

TEST_F(RatesCache, without_a_file_shipped_rates_are_used_and_the_note_says_what_to_do) {
  EXPECT_THAT(note(), HasSubstr("plimsoll calibrate"));
}

TEST_F(RatesCache, a_probe_counts_until_somebody_calibrates) {
  EXPECT_FALSE(knows_rates(folder_.path(), kMachine));
  DeviceRates probed = measured();
  probed.calibrated = false;
  probed.bandwidth = 99;
  save_rates(folder_.path(), kMachine, probed);
  EXPECT_TRUE(knows_rates(folder_.path(), kMachine));
  const DeviceRates first = load_rates(folder_.path(), kMachine, {});
  EXPECT_FALSE(first.calibrated);
  EXPECT_EQ(first.bandwidth, 99);
  EXPECT_THAT(first.note, HasSubstr("half a second"));
  write("damaged");
  EXPECT_EQ(load_rates(folder_.path(), kMachine, {}).bandwidth, 99);
  EXPECT_THAT(load_rates(folder_.path(), kMachine, {}).note, HasSubstr("not valid JSON"));
  save_rates(folder_.path(), kMachine, measured());
  EXPECT_EQ(load_rates(folder_.path(), kMachine, {}).bandwidth, measured().bandwidth);
}

// Two threads that both want one CPU.
TEST(TimeLost, waiting_for_a_cpu_is_noticed) {
  if (!std::ifstream("/proc/self/schedstat")) GTEST_SKIP() << "this kernel does not count";
  const TimeLost lost;
  std::atomic<bool> measured = false;
  std::atomic<int> spinning = 0;
  const auto spin = [&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first_cpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    ++spinning;
    while (!measured) {
    }
  };
  std::jthread a(spin);
  std::jthread b(spin);
  double share = 0;
  for (int i = 0; i < 600 && share < 0.3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (spinning == 2) share = lost.share();
  }
  measured = true;
  EXPECT_GE(share, 0.3);
}

TEST_F(RatesCache, a_damaged_file_is_named_and_not_used) {
  save_rates(folder_.path(), kMachine, measured());
  std::ifstream file(rates_file(folder_.path(), kMachine));
  const std::string whole(std::istreambuf_iterator<char>(file), {});
  for (const size_t length : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 3}) {
    write(whole.substr(0, length));
    EXPECT_THAT(note(), HasSubstr(rates_file(folder_.path(), kMachine).string())) << length;
  }
  for (const char* text : {"[]", "null", "{}", R"({"format": 1})", R"({"format": "1"})", "\xFF\xFE"}) {
    write(text);
    EXPECT_THAT(note(), HasSubstr("measure again")) << text;
  }
}

TEST_F(RatesCache, every_number_is_checked) {
  for (const char* key : {"bandwidth", "vector_bf16", "matmuls", "ops", "host_copy", "op_overhead"}) {
    for (const nlohmann::json& bad :
         {nlohmann::json("fast"), nlohmann::json(nullptr), nlohmann::json(-1), nlohmann::json::array({1})}) {
      nlohmann::json rates = nlohmann::json::parse(text_of(measured()));
      rates[key] = bad;
      EXPECT_THROW(rates_from_json(rates, "f"), DamagedError) << key << " " << bad;
    }
  }
  nlohmann::json rates = nlohmann::json::parse(text_of(measured()));
  ASSERT_NO_THROW(rates_from_json(rates, "f"));
  auto& size = rates["matmuls"].at(0)["m"].at(0);
  size = size.get<double>() + 0.5;
  EXPECT_THROW(rates_from_json(rates, "f"), DamagedError);
}

TEST(Rates, a_file_of_before_the_vector_rate_takes_what_vectors_can_do_at_most) {
  nlohmann::json rates = nlohmann::json::parse(text_of(measured()));
  EXPECT_EQ(rates_from_json(rates, "f").vector_bf16, 6e10);
  rates.erase("vector_bf16");
  rates["matmul_f32"] = 1e11;
  rates["matmul_bf16"] = 1.5e11;
  EXPECT_EQ(rates_from_json(rates, "f").vector_bf16, 1.5e11);
  rates["matmul_bf16"] = 16e11;  // in tiles
  EXPECT_EQ(rates_from_json(rates, "f").vector_bf16, 2e11);
}

TEST_F(RatesCache, rates_of_another_machine_are_not_used) {
  Machine other = kMachine;
  other.kernels = "another";
  save_rates(folder_.path(), other, measured());
  EXPECT_THAT(note(), HasSubstr("other kernels"));
}

TEST_F(RatesCache, threads_and_instruction_sets_have_files_of_their_own) {
  Machine other = kMachine;
  other.threads = 1;
  EXPECT_NE(rates_file("f", other), rates_file("f", kMachine));
  other = kMachine;
  other.isa = "avx512";
  EXPECT_NE(rates_file("f", other), rates_file("f", kMachine));
  EXPECT_EQ(rates_file("f", kMachine), "f/rates-some-cpu-r-9000-avx2-2-threads.json");
}

TEST(CrowdedNote, is_for_several_threads_that_lose_half_of_their_time) {
  EXPECT_EQ(crowded_note(0.9, 1), "");
  EXPECT_EQ(crowded_note(0.3, 2), "");
  EXPECT_THAT(crowded_note(0.92, 2), testing::HasSubstr("took 92 % of the time of the 2 threads"));
  EXPECT_THAT(crowded_note(0.92, 2), testing::HasSubstr("--threads 1"));
}

}  // namespace
}  // namespace plimsoll
