#include "formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "files/test_folder.h"

namespace plimsoll {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

// Written by the Hugging Face library: every element type, an empty tensor, a scalar, metadata.
constexpr const char* kGolden = "tests/golden/io/every_type.safetensors";

std::string header_bytes(std::string_view json) {
  std::string text;
  for (unsigned shift = 0; shift < 64; shift += 8) text += static_cast<char>(json.size() >> shift & 0xFFU);
  return text + std::string(json);
}

std::string open_error(const std::string& content) {
  const TestFolder folder;
  const auto path = folder.write("m.safetensors", content);
  std::string message = message_of<DamagedError>([&] { SafetensorsFile::open(path); });
  EXPECT_THAT(message, HasSubstr(path.string() + ": "));
  return message.substr(std::min(message.size(), path.string().size() + 2));
}

TEST(Safetensors, reads_what_the_library_wrote) {
  const SafetensorsFile file = SafetensorsFile::open(kGolden);
  EXPECT_EQ(file.tensors().size(), 10U);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  const TensorEntry* embed = file.find("model.embed_tokens.weight");
  ASSERT_NE(embed, nullptr);
  EXPECT_EQ(embed->dtype, DType::f32);
  EXPECT_EQ(embed->shape, (Shape{3, 4}));
  std::array<float, 2> values{};
  file.read(*embed, 4 * sizeof(float), std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values[0], 0.5F);
  EXPECT_EQ(values[1], 0.625F);
  EXPECT_EQ(file.find("step")->shape, Shape{});
  EXPECT_EQ(file.find("empty")->bytes, 0);
  EXPECT_EQ(file.find("absent"), nullptr);
}

TEST(Safetensors, writes_the_same_bytes_as_the_library) {
  const TestFolder folder;
  const SafetensorsFile golden = SafetensorsFile::open(kGolden);
  std::vector<TensorSpec> specs;
  for (const TensorEntry& tensor : golden.tensors())
    specs.insert(specs.begin(), {tensor.name, tensor.dtype, tensor.shape});  // another order than the file's
  EXPECT_EQ(SafetensorsWriter::file_bytes(specs, golden.metadata()), File::open(kGolden).size());
  SafetensorsWriter writer(folder.path() / "copy.safetensors", specs, golden.metadata());
  std::array<std::byte, 7> chunk{};
  for (const TensorEntry& tensor : golden.tensors()) {
    for (int64_t start = 0; start < tensor.bytes; start += 7) {
      const auto piece =
          std::span(chunk).first(static_cast<size_t>(std::min<int64_t>(7, tensor.bytes - start)));
      golden.read(tensor, start, piece);
      writer.write(tensor.name, piece);
    }
  }
  writer.finish();
  EXPECT_EQ(read_text(folder.path() / "copy.safetensors", 1 << 20), read_text(kGolden, 1 << 20));
}

TEST(Safetensors, an_unfinished_or_overfull_tensor_is_our_own_bug) {
  const TestFolder folder;
  SafetensorsWriter writer(folder.path() / "m.safetensors", {{"w", DType::f32, Shape{2}}});
  const std::array<std::byte, 12> bytes{};
  EXPECT_THROW(writer.write("w", bytes), InternalError);
  EXPECT_THROW(writer.write("v", std::span(bytes).first(4)), InternalError);
  writer.write("w", std::span(bytes).first(4));
  EXPECT_EQ(message_of<InternalError>([&] { writer.finish(); }), "tensor 'w' lacks 4 bytes");
  EXPECT_THROW(SafetensorsWriter(folder.path() / "n", {{"w", DType::f32, {}}, {"w", DType::f32, {}}}),
               InternalError);
}

TEST(Safetensors, a_file_cut_anywhere_is_refused) {
  const std::string whole = read_text(kGolden, 1 << 20);
  for (size_t length = 0; length < whole.size(); length += 5)
    EXPECT_THAT(open_error(whole.substr(0, length)), HasSubstr("The file is cut off: fetch it again."))
        << length;
  EXPECT_THAT(open_error(whole.substr(0, whole.size() - 1)),
              testing::StartsWith("ends at byte " + std::to_string(whole.size() - 1) + ", header promises " +
                                  std::to_string(whole.size()) + "."));
}

TEST(Safetensors, a_header_of_absurd_length_is_refused_unread) {
  EXPECT_THAT(open_error(std::string(8, '\xFF') + "{}"),
              HasSubstr("claims a header of 18446744073709551615 bytes"));
  EXPECT_THAT(open_error(std::string("\0\0\0\1\0\0\0\0", 8) + "{}"),
              HasSubstr("ends at byte 10, header promises 16,777,224."));
}

TEST(Safetensors, a_header_that_lies_is_refused) {
  const auto with = [](std::string_view json, size_t data = 8) {
    return open_error(header_bytes(json) + std::string(data, 'x'));
  };
  EXPECT_THAT(with(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})"),
              HasSubstr("tensor 'a' f32[3] takes 12 bytes, the header gives it 0 to 8."));
  EXPECT_THAT(with(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9),
              HasSubstr("has 1 bytes after the last tensor"));
  EXPECT_THAT(with(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                   R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})"),
              HasSubstr("tensors 'a' and 'b' overlap."));
  EXPECT_THAT(with(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"),
              HasSubstr("4 bytes before tensor 'a' belong to no tensor."));
  EXPECT_THAT(with(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})"),
              HasSubstr("impossible shape"));
  EXPECT_THAT(with(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})"), HasSubstr("has -1 where"));
  EXPECT_THAT(with(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                   R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
              EndsWith("header: names 'a' twice."));
  EXPECT_THAT(with(R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})"),
              HasSubstr("nested deeper"));
  EXPECT_THAT(with(R"({"a":[1]})"), HasSubstr("is not dtype, shape, data_offsets"));
  EXPECT_THAT(with("[]"), HasSubstr("is an array, not an object"));
  EXPECT_THAT(with("{\"a\": \xFF}"), HasSubstr("is not valid JSON"));
}

// Whatever a header says, the answer is a file whose tensors lie inside it, or an error of ours.
TEST(Safetensors, a_header_with_any_byte_changed_is_read_or_refused) {
  const TestFolder folder;
  const std::string whole = read_text(kGolden, 1 << 20);
  const size_t header_end = whole.size() - 112;
  int refused = 0;
  for (size_t i = 0; i < header_end; i += 23) {  // a step that meets every part of an entry
    for (const char byte : {'\0', '9', '"', '{', ']', '\xFF'}) {
      std::string changed = whole;
      changed[i] = byte;
      try {
        const SafetensorsFile file = SafetensorsFile::open(folder.write("m.safetensors", changed));
        for (const TensorEntry& tensor : file.tensors())
          EXPECT_LE(tensor.offset + tensor.bytes, static_cast<int64_t>(whole.size()));
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 60);
}

TEST(Safetensors, an_element_type_we_lack_is_refused_by_name) {
  const TestFolder folder;
  const auto path = folder.write(
      "m.safetensors", header_bytes(R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})") + "x");
  EXPECT_THAT(message_of<UsageError>([&] { SafetensorsFile::open(path); }),
              HasSubstr("tensor 'a' has the element type F8_E4M3, which is not supported"));
}

}  // namespace
}  // namespace plimsoll
