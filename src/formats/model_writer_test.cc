#include "formats/model_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "files/file.h"
#include "files/test_folder.h"
#include "formats/convert.h"

namespace plimsoll {
namespace {

using ::testing::HasSubstr;

void write_values(SafetensorsWriter& writer, const std::string& name, const std::vector<float>& values) {
  writer.write(name, std::as_bytes(std::span(values)));
}

// a: f32 [3], b: f32 [5], mask: u8 [2]
ModelFolder small_model(const TestFolder& folder, float largest = 2.5F) {
  SafetensorsWriter writer(folder.path() / "model.safetensors",
                           {{"a", DType::f32, {3}}, {"b", DType::f32, {5}}, {"mask", DType::u8, {2}}});
  write_values(writer, "a", {1.0F, -0.5F, largest});
  write_values(writer, "b", {1.0F, 2.0F, 3.0F, 4.0F, 5.0F});
  const std::vector<std::byte> mask(2, std::byte{7});
  writer.write("mask", mask);
  writer.finish();
  return ModelFolder::open(folder.path());
}

TEST(ModelWriter, shards_hold_at_most_the_bytes_asked_for_but_for_single_tensors) {
  const TestFolder folder;
  const ModelFolder model = small_model(folder);
  const auto shards = cut_into_shards(stored_shards(model, DType::bf16), 6, "model");
  ASSERT_EQ(shards.size(), 3U);
  EXPECT_EQ(shards[0].file, "model-00001-of-00003.safetensors");
  EXPECT_EQ(shards[0].tensors.size(), 1U);    // a: 6 bytes
  EXPECT_EQ(shards[1].tensors[0].name, "b");  // 10 bytes
  EXPECT_EQ(shards[2].tensors[0].dtype, DType::u8);
  EXPECT_EQ(shards_bytes(shards), 18);
  EXPECT_EQ(cut_into_shards(shards, 18, "model").front().file, "model.safetensors");
}

TEST(ModelWriter, an_index_of_the_shards_is_read_back) {
  const TestFolder from, to;
  const ModelFolder model = small_model(from);
  const auto shards = cut_into_shards(stored_shards(model, std::nullopt), 20, "model");
  std::vector<std::byte> staging(24);
  for (const Shard& shard : shards) {
    SafetensorsWriter writer(to.path() / shard.file, shard.tensors);
    for (const TensorSpec& spec : writer.tensors())
      copy_tensor(model.find(spec.name), spec.dtype, writer, staging);
    writer.finish();
  }
  write_shard_index(shards, to.path(), "model");
  const ModelFolder written = ModelFolder::open(to.path());
  EXPECT_EQ(written.names(), model.names());
  for (const std::string& name : model.names()) {
    std::vector<std::byte> a(static_cast<size_t>(model.find(name).entry->bytes)), b(a.size());
    model.find(name).file->read(*model.find(name).entry, 0, a);
    written.find(name).file->read(*written.find(name).entry, 0, b);
    EXPECT_EQ(a, b) << name;
  }
}

TEST(ModelWriter, values_are_rounded_and_those_beyond_the_range_refused) {
  const TestFolder from, to;
  const ModelFolder model = small_model(from, 70000.0F);
  std::vector<std::byte> staging(24);  // two elements at a time
  SafetensorsWriter narrow(to.path() / "bf16", {{"a", DType::bf16, {3}}});
  copy_tensor(model.find("a"), DType::bf16, narrow, staging);
  narrow.finish();
  const SafetensorsFile file = SafetensorsFile::open(to.path() / "bf16");
  std::vector<std::byte> bytes(6);
  file.read(file.tensors()[0], 0, bytes);
  uint16_t bits[3];
  std::memcpy(bits, bytes.data(), sizeof bits);
  EXPECT_EQ(bits[1], bf16_from_f32(-0.5F));
  EXPECT_EQ(bits[2], bf16_from_f32(70000.0F));
  SafetensorsWriter half(to.path() / "f16", {{"a", DType::f16, {3}}});
  EXPECT_THAT(message_of<UsageError>([&] { copy_tensor(model.find("a"), DType::f16, half, staging); }),
              HasSubstr("beyond f16's range"));
}

TEST(ModelWriter, files_of_a_run_and_old_indices_stay_behind) {
  const TestFolder from, to;
  for (const char* name : {"config.json", "tokenizer.json", "run.json", "model.safetensors.index.json",
                           "x.bin", "chat_template.jinja"})
    from.write(name, "{}");
  copy_model_files(from.path(), to.path());
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(to.path()))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("config.json", "tokenizer.json", "chat_template.jinja"));
}

}  // namespace
}  // namespace plimsoll
