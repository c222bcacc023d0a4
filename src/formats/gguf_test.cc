#include "formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "base/error.h"
#include "files/test_folder.h"
#include "formats/gguf_checkpoint.h"
#include "formats/gguf_file.h"

namespace plimsoll {
namespace {

std::vector<float> normal_values(size_t count, float deviation = 1) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<float> stored_and_read(const std::vector<float>& values, GgufType type) {
  std::vector<std::byte> stored(static_cast<size_t>(gguf_bytes(type, {static_cast<int64_t>(values.size())})));
  to_gguf(values, type, stored);
  std::vector<float> read(values.size());
  from_gguf(stored, type, read);
  return read;
}

// The root of the mean square of the difference, as a part of that of the values.
double error_of(const std::vector<float>& values, const std::vector<float>& read) {
  double squares = 0, all = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    squares += std::pow(static_cast<double>(values[i]) - read[i], 2);
    all += std::pow(static_cast<double>(values[i]), 2);
  }
  return std::sqrt(squares / all);
}

TEST(gguf, blocks_round_as_well_as_their_bits_allow) {
  const auto values = normal_values(256 * 40);
  // A normal distribution in uniform steps over 32 of its values has these errors, about.
  for (const auto& [type, most] : {std::pair{GgufType::q8_0, 0.006},
                                   {GgufType::q6_k, 0.02},
                                   {GgufType::q5_k, 0.04},
                                   {GgufType::q4_k, 0.08},
                                   {GgufType::q4_0, 0.1}}) {
    const double error = error_of(values, stored_and_read(values, type));
    EXPECT_LT(error, most) << to_string(type);
    EXPECT_GT(error, most / 4) << to_string(type);
  }
}

TEST(gguf, blocks_of_one_value_and_of_values_far_from_zero_are_kept) {
  for (const GgufType type :
       {GgufType::q8_0, GgufType::q6_k, GgufType::q5_k, GgufType::q4_k, GgufType::q4_0}) {
    for (const float value : {0.0F, 0.25F, -3.0F, 1e-3F}) {
      const std::vector<float> values(256, value);
      for (const float read : stored_and_read(values, type))
        EXPECT_NEAR(read, value, std::abs(value) * 0.04F + 1e-7F) << to_string(type);
    }
  }
  // Codes of parts that are nearly alike say almost nothing of a scale and a least value at once.
  std::vector<float> alike = normal_values(256 * 300);
  for (size_t i = 0; i < alike.size(); ++i)
    alike[i] = (0.05F + 0.001F * static_cast<float>(i / 256)) * (1 + 1e-3F * alike[i]);
  for (const GgufType type : {GgufType::q5_k, GgufType::q4_k}) {
    const auto read = stored_and_read(alike, type);
    for (size_t i = 0; i < alike.size(); ++i)
      ASSERT_NEAR(read[i], alike[i], std::abs(alike[i]) * 0.04F) << to_string(type) << " " << i;
  }
  auto values = normal_values(256, 0.1F);
  for (float& value : values) value += 4;  // a least value of its own would lie above 0
  EXPECT_LT(error_of(values, stored_and_read(values, GgufType::q5_k)), 0.02);
}

// By the published layout: a block of Q4_K whose parts have these scales and least values.
TEST(gguf, parts_of_a_wide_block_have_their_scales_in_six_bits) {
  std::vector<std::byte> stored(144);
  const auto half = [&](size_t at, uint16_t bits) { std::memcpy(stored.data() + at, &bits, 2); };
  half(0, 0x3C00);  // 1
  half(2, 0x3800);  // 0.5
  const uint8_t packed[12] = {1 | 2 << 6, 2, 3, 4, 5 | 1 << 6, 6, 7, 8, 5 | 12 << 4, 0, 0, 0};
  std::memcpy(stored.data() + 4, packed, 12);
  stored[16] = std::byte{0x3 | 0xA << 4};           // the first values of parts 0 and 1
  stored[16 + 2 * 32] = std::byte{0x7 | 0x1 << 4};  // and of 4 and 5
  std::vector<float> read(256);
  from_gguf(stored, GgufType::q4_k, read);
  EXPECT_EQ(read[0], 1.0F * 3 - 0.5F * 5);
  EXPECT_EQ(read[32], 2.0F * 10 - 0.5F * 6);
  EXPECT_EQ(read[128], static_cast<float>(5 | 2 << 4) * 7 - 0.5F * static_cast<float>(12 | 1 << 4));
  EXPECT_EQ(read[160], 0.0F);
}

class GgufOnDisk : public ::testing::Test {
 protected:
  GgufOnDisk() {
    head_.add("general.architecture", "llama");
    head_.add("a.number", uint32_t{7});
    head_.add("a.real", 0.5F);
    head_.add("a.flag", true);
    const std::vector<std::string> words = {"one", "two"};
    head_.add("a.list", std::span<const std::string>(words));
    head_.add_tensor("blk.0.attn_q.weight", GgufType::q4_k, {8, 256});
    head_.add_tensor("output_norm.weight", GgufType::f32, {3});
    write();
  }
  void write() {
    GgufWriter writer(path(), head_);
    std::vector<std::byte> stored(static_cast<size_t>(gguf_bytes(GgufType::q4_k, {8, 256})));
    to_gguf(values_, GgufType::q4_k, stored);
    writer.write(stored);
    writer.end_tensor();
    writer.write(std::as_bytes(std::span(norm_)));
    writer.end_tensor();
    writer.finish();
  }
  [[nodiscard]] std::filesystem::path path() const { return folder_.path() / "model.gguf"; }

  TestFolder folder_;
  GgufHead head_;
  std::vector<float> values_ = normal_values(8 * 256);
  std::vector<float> norm_ = {1.5F, 2.5F, 3.5F};
};

TEST_F(GgufOnDisk, is_read_as_it_was_written) {
  const GgufFile file = GgufFile::open(path());
  EXPECT_EQ(*file.value("general.architecture"), "llama");
  EXPECT_EQ(*file.value("a.number"), 7);
  EXPECT_EQ(*file.value("a.real"), 0.5);
  EXPECT_EQ(*file.value("a.flag"), true);
  EXPECT_EQ(*file.value("a.list"), (nlohmann::json{"one", "two"}));
  EXPECT_EQ(file.value("a.word"), nullptr);
  const GgufTensor& tensor = file.tensors().at("blk.0.attn_q.weight");
  EXPECT_EQ(tensor.shape, (Shape{8, 256}));
  std::vector<float> whole(values_.size()), part(700);
  file.read(tensor, 0, whole);
  EXPECT_LT(error_of(values_, whole), 0.1);
  file.read(tensor, 333, part);  // within blocks
  EXPECT_EQ(part, std::vector<float>(whole.begin() + 333, whole.begin() + 1033));
}

TEST_F(GgufOnDisk, is_a_checkpoint_in_the_checkpoints_order) {
  const GgufCheckpoint checkpoint(
      path(), {{"q", "blk.0.attn_q.weight", {.head_rows = 4}}, {"norm", "output_norm.weight", {.added = 1}}});
  std::vector<float> stored(values_.size()), read(values_.size());
  checkpoint.file().read(checkpoint.file().tensors().at("blk.0.attn_q.weight"), 0, stored);
  checkpoint.read(checkpoint.tensors()[0], 0, std::as_writable_bytes(std::span(read)));
  for (const auto& [row, from] : {std::pair{0, 0}, {1, 2}, {2, 1}, {3, 3}, {4, 4}, {5, 6}, {6, 5}, {7, 7}})
    for (int i = 0; i < 256; ++i)
      ASSERT_EQ(read[static_cast<size_t>(row * 256 + i)], stored[static_cast<size_t>(from * 256 + i)]) << row;
  std::vector<float> norm(2);
  checkpoint.read(checkpoint.tensors()[1], 4, std::as_writable_bytes(std::span(norm)));
  EXPECT_EQ(norm, (std::vector<float>{1.5F, 2.5F}));
  EXPECT_THROW(GgufCheckpoint(path(), {{"k", "blk.0.attn_k.weight"}}), UsageError);
}

// A list of bytes takes 16 times as much as JSON, and the rest of a sparse file costs nothing.
TEST_F(GgufOnDisk, a_head_of_more_values_than_any_tokenizer_has_is_refused) {
  std::string head = head_.text();
  const uint64_t keys = 1, tensors = 0, name = 1, items = 100'000'000;
  const uint32_t list = 9, bytes = 0;
  head.resize(8);
  const auto add = [&](const auto& value) {
    head.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  add(tensors), add(keys), add(name);
  head += 'a';
  add(list), add(bytes), add(items);
  std::ofstream(path(), std::ios::binary) << head;
  std::filesystem::resize_file(path(), head.size() + items);
  try {
    GgufFile::open(path());
    FAIL() << "was read";
  } catch (const DamagedError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("lists of too many items"));
  }
}

TEST_F(GgufOnDisk, cut_at_any_byte_is_refused) {
  std::ifstream stream(path(), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(stream)), {});
  for (size_t size = 0; size < whole.size() - 21; size += size < head_.text().size() ? 3 : 97) {
    std::ofstream(path(), std::ios::binary) << whole.substr(0, size);
    EXPECT_THROW(GgufFile::open(path()), Error) << size;
  }
}

TEST_F(GgufOnDisk, with_a_byte_of_its_head_changed_is_read_or_refused) {
  std::ifstream stream(path(), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(stream)), {});
  int refused = 0;
  for (size_t at = 0; at < head_.text().size(); at += 2) {
    std::string changed = whole;
    changed[at] = static_cast<char>(0xFF);
    std::ofstream(path(), std::ios::binary) << changed;
    try {
      GgufFile::open(path());
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ExitCode::internal) << at;
      ++refused;
    }
  }
  EXPECT_GT(refused, 30);
}

}  // namespace
}  // namespace plimsoll
