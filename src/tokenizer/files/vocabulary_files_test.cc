// Folders of before tokenizer.json: the ids are those of the tokenizer.json that transformers makes of them,
// which the goldens of the reference know.
#include "tokenizer/files/vocabulary_files.h"

#include <gmock/gmock.h>

#include <fstream>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

namespace plimsoll {
namespace {

using Json = nlohmann::json;

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

Json golden_json(const std::string& name) {
  Json json;
  std::ifstream("tests/golden/tokenizers/" + name) >> json;
  return json;
}

class VocabularyFiles : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  // The pieces of a golden, a line each.
  void write_words(const std::string& name, const std::string& line_end = "\n") const {
    const Json vocab = golden_json(name).at("model").at("vocab");
    std::vector<std::string> words(vocab.size());
    for (const auto& [word, id] : vocab.items()) words[id.get<size_t>()] = word;
    std::string text;
    for (const std::string& word : words) text += word + line_end;
    write("vocab.txt", text);
  }
  [[nodiscard]] Tokenizer open() const {
    const auto file = Tokenizer::find_file(folder_);
    EXPECT_TRUE(file);
    return Tokenizer::from_file(*file);
  }
  // The number of cases of a golden_json that were tried, without those whose text holds one of `without`.
  static int expect_golden(const Tokenizer& tokenizer, const std::string& name,
                           const std::vector<std::string>& without = {}) {
    int requested = 0;
    for (const Json& c : golden_json(name + ".cases.json")) {
      if (!c.contains("text") || !c.contains("ids")) continue;
      const auto text = c.at("text").get<std::string>();
      const bool left_out = std::any_of(without.begin(), without.end(), [&](const auto& part) {
        return text.find(part) != std::string::npos;
      });
      if (left_out) continue;
      EXPECT_EQ(tokenizer.encode(text, false), c.at("ids").get<std::vector<int32_t>>()) << text;
      ++requested;
    }
    return requested;
  }

  fs::path folder_ =
      fs::path(testing::TempDir()) /
      (std::string("vocabulary_files_") + testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(VocabularyFiles, words_of_bert_are_read_in_small_letters_and_framed) {
  write_words("bert.json");
  const Tokenizer tokenizer = open();
  EXPECT_GT(expect_golden(tokenizer, "bert"), 100);
  EXPECT_THAT(tokenizer.affixes().prefix, ElementsAre(2));
  EXPECT_THAT(tokenizer.affixes().suffix, ElementsAre(3));
  ASSERT_TRUE(tokenizer.affixes().pair);
  EXPECT_EQ(tokenizer.affixes().pair->second_type, 1);
}

TEST_F(VocabularyFiles, capitals_stay_where_the_folder_says_so) {
  write_words("bert_cased.json", "\r\n");
  write(
      "tokenizer_config.json",
      R"({"do_lower_case": false, "tokenize_chinese_chars": false, "tokenizer_class": "BertTokenizerFast"})");
  EXPECT_GT(expect_golden(open(), "bert_cased"), 100);
}

TEST_F(VocabularyFiles, bytes_and_merges_are_those_of_gpt2) {
  Json model = golden_json("gpt2.json").at("model");
  model["vocab"]["<|endoftext|>"] = 700;
  write("vocab.json", model["vocab"].dump());
  EXPECT_FALSE(Tokenizer::find_file(folder_)) << "merges.txt is missing";
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : model["merges"])
    merges += merge.is_string() ? merge.get<std::string>() + "\n"
                                : merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  write("merges.txt", merges);
  write("config.json", R"({"model_type": "gpt2"})");
  EXPECT_GT(expect_golden(open(), "gpt2", {"<|im_", "word", "[MASK]"}), 90);

  for (const char* name : {"<s>", "<pad>", "</s>", "<unk>", "<mask>"})
    model["vocab"][name] = 701 + std::string_view("spu/m").find(name[1]);
  write("vocab.json", model["vocab"].dump());
  write("config.json", R"({"model_type": "roberta"})");
  const Tokenizer roberta = open();
  EXPECT_THAT(roberta.affixes().prefix, ElementsAre(701));
  EXPECT_THAT(roberta.affixes().suffix, ElementsAre(704));
  ASSERT_TRUE(roberta.affixes().pair);
  EXPECT_THAT(roberta.affixes().pair->between, ElementsAre(704, 704));
}

TEST_F(VocabularyFiles, what_is_no_such_tokenizer_is_refused_with_the_way_out) {
  write_words("bert.json");
  write("tokenizer_config.json", R"({"tokenizer_class": "FunnelTokenizer"})");
  EXPECT_THAT([&] { (void)open(); },
              ThrowsMessage<UsageError>(
                  HasSubstr("is a FunnelTokenizer; without a tokenizer.json BertTokenizer's is read")));
  write("tokenizer_config.json", R"({"cls_token": "[START]"})");
  EXPECT_THAT([&] { (void)open(); },
              ThrowsMessage<DamagedError>(HasSubstr("lacks the special token \"[START]\"")));
  fs::remove(folder_ / "vocab.txt");
  write("vocab.json", R"({"a": 0, "b": -1})");
  write("merges.txt", "a b c\n");
  write("tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");
  EXPECT_THAT([&] { (void)open(); },
              ThrowsMessage<UsageError>(HasSubstr("Load and save the tokenizer by transformers")));
  write("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
  EXPECT_THAT([&] { (void)open(); }, ThrowsMessage<DamagedError>(HasSubstr("\"b\" has no id")));
  write("vocab.json", R"({"a": 0, "b": 1})");
  EXPECT_THAT([&] { (void)open(); },
              ThrowsMessage<DamagedError>(HasSubstr("merges.txt:1: is no merge of two pieces")));
}

}  // namespace
}  // namespace plimsoll
