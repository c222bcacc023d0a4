#include "formats/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "files/test_folder.h"
#include "formats/load.h"

namespace plimsoll {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void write_shard(const std::filesystem::path& path, const std::string& tensor,
                 std::span<const float> values) {
  SafetensorsWriter writer(path, {{tensor, DType::f32, Shape{static_cast<int64_t>(values.size())}}});
  writer.write(tensor, std::as_bytes(values));
  writer.finish();
}

// Two shards, each with one tensor, and their index.
void write_two_shards(const TestFolder& folder) {
  write_shard(folder.path() / "s1.safetensors", "a.weight", std::vector<float>{1, 2, 3});
  write_shard(folder.path() / "s2.safetensors", "b.weight", std::vector<float>{4});
  folder.write("model.safetensors.index.json",
               R"({"weight_map": {"a.weight": "s1.safetensors", "b.weight": "s2.safetensors"}})");
}

TEST(ModelFolder, finds_tensors_across_shards) {
  const TestFolder folder;
  write_two_shards(folder);
  const ModelFolder model = ModelFolder::open(folder.path());
  EXPECT_THAT(model.names(), ElementsAre("a.weight", "b.weight"));
  EXPECT_EQ(model.bytes(), 16);
  EXPECT_EQ(model.find("b.weight").file->path().filename(), "s2.safetensors");
  EXPECT_THAT(message_of<UsageError>([&] { return model.find("b.weigth"); }),
              HasSubstr("has no tensor 'b.weigth' (it has 'b.weight')."));
}

TEST(ModelFolder, stays_valid_when_moved) {
  const TestFolder folder;
  write_two_shards(folder);
  ModelFolder first = ModelFolder::open(folder.path());
  const ModelFolder second = std::move(first);
  std::array<float, 1> value{};
  load_tensor(second.find("b.weight"), Shape{1}, std::as_writable_bytes(std::span(value)), DType::f32, {});
  EXPECT_EQ(value[0], 4.0F);
}

TEST(ModelFolder, tensors_of_an_encoder_have_the_names_that_they_have_below_a_head) {
  const TestFolder folder;
  const auto names = [&](const std::string& type, const std::string& before) {
    std::filesystem::remove(folder.path() / "model.safetensors");
    folder.write("config.json", R"({"model_type": ")" + type + R"("})");
    SafetensorsWriter writer(folder.path() / "model.safetensors",
                             {{before + "embeddings.LayerNorm.beta", DType::f32, Shape{1}},
                              {before + "embeddings.word_embeddings.weight", DType::f32, Shape{1}}});
    for (const TensorSpec& spec : writer.tensors())
      writer.write(spec.name, std::as_bytes(std::span<const float>(std::vector<float>{1})));
    writer.finish();
    return ModelFolder::open(folder.path()).names();
  };
  for (const std::string before : {"", "bert."})
    EXPECT_THAT(names("bert", before),
                ElementsAre("bert.embeddings.LayerNorm.bias", "bert.embeddings.word_embeddings.weight"));
  EXPECT_THAT(names("xlm-roberta", ""),
              ElementsAre("roberta.embeddings.LayerNorm.bias", "roberta.embeddings.word_embeddings.weight"));
  EXPECT_THAT(names("mpnet", ""),
              ElementsAre("embeddings.LayerNorm.bias", "embeddings.word_embeddings.weight"))
      << "a family that is not known keeps its prefix";
}

TEST(ModelFolder, tensors_of_a_model_of_images_and_texts_have_the_names_of_modules_in_memory) {
  const TestFolder folder;
  const std::vector<std::string> stored = {"language_model.lm_head.weight",
                                           "language_model.model.norm.weight", "mtp.norm.weight",
                                           "vision_tower.patch_conv.weight"};
  std::vector<TensorSpec> specs;
  for (const std::string& name : stored) specs.push_back({name, DType::f32, Shape{1}});
  SafetensorsWriter writer(folder.path() / "model.safetensors", specs);
  for (const std::string& name : stored)
    writer.write(name, std::as_bytes(std::span<const float>(std::vector<float>{1})));
  writer.finish();
  const ModelFolder model = ModelFolder::open(folder.path());
  EXPECT_THAT(model.names(), ElementsAre("lm_head.weight", "model.language_model.norm.weight",
                                         "model.vision_tower.patch_conv.weight", "mtp.norm.weight"));
  std::vector<std::string> in_files;
  for (const std::string& name : model.names()) in_files.push_back(model.name_in_files(name));
  EXPECT_THAT(in_files, testing::UnorderedElementsAreArray(stored));
}

TEST(ModelFolder, fused_gates_of_old_gla_checkpoints_are_two_tensors) {
  const TestFolder folder;
  const std::string gate = "model.layers.0.mlp.gate_proj.weight", up = "model.layers.0.mlp.up_proj.weight";
  const std::vector<float> rows{1, 2, 3, 4, 5, 6, 7, 8};
  const auto write = [&](const std::string& embedding) {
    std::filesystem::remove(folder.path() / "model.safetensors");
    SafetensorsWriter writer(folder.path() / "model.safetensors",
                             {{embedding, DType::f32, Shape{1, 2}}, {gate, DType::f32, Shape{4, 2}}});
    writer.write(embedding, std::as_bytes(std::span(rows).first(2)));
    writer.write(gate, std::as_bytes(std::span(rows)));
    writer.finish();
  };
  write("model.embeddings.weight");
  const ModelFolder model = ModelFolder::open(folder.path());
  std::array<float, 4> values{};
  const auto load = [&](const std::string& name) {
    load_tensor(model.find(name), Shape{2, 2}, std::as_writable_bytes(std::span(values)), DType::f32, {});
    return values;
  };
  EXPECT_THAT(load(gate), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(load(up), ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(model.bytes(), 40);
  write("model.embed_tokens.weight");
  EXPECT_FALSE(ModelFolder::open(folder.path()).contains(up)) << "of another family";
}

TEST(ModelFolder, absent_shards_are_named_together) {
  const TestFolder folder;
  write_two_shards(folder);
  std::filesystem::remove(folder.path() / "s1.safetensors");
  std::filesystem::remove(folder.path() / "s2.safetensors");
  EXPECT_THAT(message_of<DamagedError>([&] { ModelFolder::open(folder.path()); }),
              HasSubstr("names files that are not there: s1.safetensors, s2.safetensors."));
}

TEST(ModelFolder, an_index_that_disagrees_with_its_shards_is_refused) {
  const TestFolder folder;
  write_two_shards(folder);
  folder.write("model.safetensors.index.json", R"({"weight_map": {"b.weight": "s1.safetensors"}})");
  EXPECT_THAT(message_of<DamagedError>([&] { ModelFolder::open(folder.path()); }),
              HasSubstr("places tensor 'b.weight' in s1.safetensors, which does not hold it"));
  folder.write("model.safetensors.index.json", R"({"weight_map": {"b.weight": "../s1.safetensors"}})");
  EXPECT_THAT(message_of<DamagedError>([&] { ModelFolder::open(folder.path()); }),
              HasSubstr("a file name in the same folder is expected"));
  folder.write("model.safetensors.index.json", R"({"metadata": {}})");
  EXPECT_THAT(message_of<DamagedError>([&] { ModelFolder::open(folder.path()); }),
              HasSubstr("has no weight_map"));
}

TEST(ModelFolder, a_folder_of_pickles_says_what_to_do) {
  const TestFolder folder;
  folder.write("pytorch_model.bin", "x");
  EXPECT_THAT(message_of<UsageError>([&] { ModelFolder::open(folder.path()); }),
              HasSubstr("save it as safetensors"));
  EXPECT_THAT(message_of<UsageError>([&] { ModelFolder::open(folder.path() / "nowhere"); }),
              HasSubstr("no such folder"));
}

TEST(ModelFolder, config_must_be_there_and_an_object) {
  const TestFolder folder;
  EXPECT_THAT(message_of<UsageError>([&] { read_config(folder.path()); }), HasSubstr("has no config.json"));
  folder.write("config.json", "[1]");
  EXPECT_THAT(message_of<DamagedError>([&] { read_config(folder.path()); }), HasSubstr("is an array"));
  folder.write("config.json", R"({"hidden_size": 64})");
  EXPECT_EQ(read_config(folder.path())["hidden_size"], 64);
}

// Three elements through a staging buffer of two: the chunk's border falls inside the tensor.
TEST(Load, converts_through_a_small_staging_buffer) {
  const TestFolder folder;
  write_two_shards(folder);
  const ModelFolder model = ModelFolder::open(folder.path());
  std::array<uint16_t, 3> values{};
  std::array<std::byte, 8> staging{};
  load_tensor(model.find("a.weight"), Shape{3}, std::as_writable_bytes(std::span(values)), DType::bf16,
              staging);
  EXPECT_THAT(values, ElementsAre(0x3F80, 0x4000, 0x4040));
  load_elements(model.find("a.weight"), 1, std::as_writable_bytes(std::span(values)).first(4), DType::f16,
                staging);
  EXPECT_THAT(values, ElementsAre(0x4000, 0x4200, 0x4040));
}

TEST(Load, a_shape_the_model_does_not_have_is_refused_by_name) {
  const TestFolder folder;
  write_two_shards(folder);
  const ModelFolder model = ModelFolder::open(folder.path());
  std::array<float, 4> values{};
  EXPECT_THAT(message_of<UsageError>([&] {
                load_tensor(model.find("a.weight"), Shape{2, 2}, std::as_writable_bytes(std::span(values)),
                            DType::f32, {});
              }),
              HasSubstr("tensor 'a.weight' has shape [3], the model needs [2,2]."));
}

}  // namespace
}  // namespace plimsoll
