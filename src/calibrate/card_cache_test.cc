#include "calibrate/card_cache.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/units.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CardCache : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  static MeasuredCard card(const std::string& uuid) {
    return {.name = "H100 SXM 80GB",
            .uuid = uuid,
            .driver = 13000,
            .kernels = "kernels 1",
            .memory_bytes = 80000 * kMiB,
            .process_bytes = 500 * kMiB,
            .host_bytes = std::nullopt,
            .rates = std::nullopt};
  }
  [[nodiscard]] std::optional<MeasuredCard> found(const std::string& uuid = "") {
    note_.clear();
    return find_measured_card(folder_, "H100 SXM 80GB", uuid, note_);
  }
  [[nodiscard]] fs::path file(const std::string& uuid) const { return folder_ / ("card-" + uuid + ".json"); }

  fs::path folder_ = fs::path(testing::TempDir()) / "card_cache_test";
  std::string note_;
};

TEST_F(CardCache, what_is_kept_of_a_card_is_found_by_its_uuid_and_by_its_name) {
  EXPECT_FALSE(found());
  save_card(folder_, card("GPU-1"));
  for (const char* uuid : {"", "GPU-1"}) {
    const auto one = found(uuid);
    ASSERT_TRUE(one) << uuid;
    EXPECT_EQ(one->memory_bytes, 80000 * kMiB);
    EXPECT_EQ(one->process_bytes, 500 * kMiB);
    EXPECT_FALSE(one->rates);
  }
  EXPECT_FALSE(found("GPU-2"));
  EXPECT_FALSE(find_measured_card(folder_, "RTX 3060 12GB", "", note_));
  EXPECT_EQ(note_, "");
}

TEST_F(CardCache, measurements_of_one_card_add_up_and_the_least_bytes_stay) {
  save_card(folder_, card("GPU-1"));
  MeasuredCard rates = card("GPU-1");
  rates.memory_bytes = rates.process_bytes = std::nullopt;
  rates.rates = DeviceRates{};
  rates.rates->matmul_bf16 = 6e14;
  save_card(folder_, rates);
  MeasuredCard later = card("GPU-1");
  later.process_bytes = 900 * kMiB;  // of others, too
  later.host_bytes = 210 * kMiB;
  later.launch_seconds = 2.5e-6;
  save_card(folder_, later);
  save_card(folder_, card("GPU-1"));
  const auto all = found("GPU-1");
  ASSERT_TRUE(all && all->rates);
  EXPECT_EQ(all->process_bytes, 500 * kMiB);
  EXPECT_EQ(all->host_bytes, 210 * kMiB);
  EXPECT_EQ(all->launch_seconds, 2.5e-6);
  EXPECT_EQ(all->rates->matmul_bf16, 6e14);
  EXPECT_TRUE(all->rates->of_card);
  EXPECT_THAT(all->rates->note, HasSubstr("measured on the H100 SXM 80GB"));
}

TEST_F(CardCache, another_driver_or_other_kernels_begin_anew) {
  for (const bool driver : {true, false}) {
    save_card(folder_, card("GPU-1"));
    MeasuredCard other = card("GPU-1");
    if (driver)
      other.driver += 10;
    else
      other.kernels = "kernels 2";
    other.process_bytes = 700 * kMiB;
    save_card(folder_, other);
    EXPECT_EQ(found("GPU-1")->process_bytes, 700 * kMiB);
    fs::remove_all(folder_);
  }
}

TEST_F(CardCache, a_file_of_no_use_is_passed_over_with_its_reason) {
  fs::create_directories(folder_);
  const std::string whole =
      R"({"format":1,"card":"H100 SXM 80GB","uuid":"GPU-1","driver":13000,"kernels":"k",)";
  const std::pair<std::string, const char*> texts[] = {
      {"{", "card-GPU-1.json"},
      {R"({"format":2})", "not of format 1"},
      {whole + R"("memory_bytes":-5,"process_bytes":null,"host_bytes":null,"rates":null})",
       "memory_bytes is -5"},
      {whole + R"("memory_bytes":5.5,"process_bytes":null,"host_bytes":null,"rates":null})",
       "must be a whole number, but is 5.5"},
      {whole + R"("memory_bytes":"much","process_bytes":null,"host_bytes":null,"rates":null})",
       "card-GPU-1.json"},
      {whole +
           R"("memory_bytes":null,"process_bytes":null,"host_bytes":null,"launch_seconds":0,"rates":null})",
       "launch_seconds is 0"},
      {whole + R"("memory_bytes":null,"process_bytes":null,"host_bytes":null,"rates":{}})",
       "card-GPU-1.json"}};
  for (const auto& [text, why] : texts) {
    std::ofstream(file("GPU-1")) << text;
    EXPECT_FALSE(found("GPU-1")) << text;
    EXPECT_THAT(note_, HasSubstr(why));
    EXPECT_THAT(note_, HasSubstr("make gpu-check"));
  }
  save_card(folder_, card("GPU-1"));  // takes its place
  EXPECT_TRUE(found("GPU-1"));
}

}  // namespace
}  // namespace plimsoll
