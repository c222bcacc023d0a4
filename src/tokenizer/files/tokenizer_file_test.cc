// Tests of what a tokenizer file may hold: refusals and damage name the file and the key, and nothing
// crashes.
#include <gmock/gmock.h>

#include <fstream>
#include <random>

#include "base/error.h"
#include "tokenizer/files/json_part.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_fuzz.h"

namespace plimsoll {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string golden(const std::string& name) { return "tests/golden/tokenizers/" + name; }

std::string content(const std::string& name) {
  std::ifstream stream(golden(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

Tokenizer load(const Json& json) { return Tokenizer::from_json(json.dump(), "t.json"); }

template <typename Change>
void expect_refusal(const std::string& file, Change change, const std::string& place,
                    const std::string& name) {
  Json json = Json::parse(content(file));
  change(json);
  EXPECT_THAT([&] { load(json); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("t.json: " + place + ":"), HasSubstr(name))));
}

template <typename Change>
void expect_damage(const std::string& file, Change change, const std::string& place) {
  Json json = Json::parse(content(file));
  change(json);
  EXPECT_THAT([&] { load(json); }, ThrowsMessage<DamagedError>(HasSubstr("t.json: " + place + ":")));
}

void expect_damaged_text(const std::string& text, const std::string& what) {
  EXPECT_THAT([&] { Tokenizer::from_json(text, "t.json"); },
              ThrowsMessage<DamagedError>(AllOf(HasSubstr("t.json"), HasSubstr(what))));
}

TEST(TokenizerFile, what_is_not_supported_is_refused_by_file_key_and_name) {
  const auto type = [](const char* part, const char* name) {
    return [=](Json& j) { j[part] = {{"type", name}}; };
  };
  expect_refusal("qwen2.json", type("normalizer", "Nmt"), "normalizer", "Nmt");
  expect_refusal("qwen2.json", type("pre_tokenizer", "UnicodeScripts"), "pre_tokenizer", "UnicodeScripts");
  expect_refusal("qwen2.json", type("decoder", "CTC"), "decoder", "CTC");
  expect_refusal("qwen2.json", type("post_processor", "Other"), "post_processor", "Other");
  expect_refusal(
      "qwen2.json", [](Json& j) { j["model"]["type"] = "Neural"; }, "model", "Neural");
  expect_refusal(
      "qwen2.json", [](Json& j) { j["model"]["dropout"] = 0.1; }, "model.dropout", "dropout");
  expect_refusal(
      "qwen2.json", [](Json& j) { j["added_tokens"][0]["id"] = 5; }, "added_tokens[0]", "<|endoftext|>");
  expect_refusal(
      "qwen2.json",
      [](Json& j) {
        std::swap(j["pre_tokenizer"]["pretokenizers"][0], j["pre_tokenizer"]["pretokenizers"][1]);
      },
      "pre_tokenizer.pretokenizers[1]", "after ByteLevel");
  expect_refusal(
      "t5.json", [](Json& j) { j["normalizer"]["normalizers"][1]["type"] = "ByteLevel"; },
      "normalizer.normalizers[1]", "ByteLevel");
  expect_refusal(
      "t5.json", [](Json& j) { j["normalizer"]["normalizers"][2]["pattern"]["Regex"] = "a*"; },
      "normalizer.normalizers[2].pattern", "a*");
  expect_refusal(
      "t5.json",
      [](Json& j) {
        j["normalizer"]["normalizers"][2]["pattern"] = {{"String", ""}};
      },
      "normalizer.normalizers[2].pattern", "one character");
  expect_refusal(
      "t5.json", [](Json& j) { j["pre_tokenizer"]["prepend_scheme"] = "last"; },
      "pre_tokenizer.prepend_scheme", "last");
  expect_refusal(
      "bert.json", [](Json& j) { j["post_processor"]["single"][1]["Sequence"]["id"] = "B"; },
      "post_processor.single[1]", "$B");
}

TEST(TokenizerFile, wrong_types_and_missing_keys_name_file_and_key) {
  expect_damage(
      "llama2.json", [](Json& j) { j["normalizer"]["normalizers"][0].erase("prepend"); },
      "normalizer.normalizers[0]");
  expect_damage(
      "llama2.json", [](Json& j) { j["normalizer"]["normalizers"] = 7; }, "normalizer.normalizers");
  expect_damage(
      "llama2.json", [](Json& j) { j["decoder"]["decoders"][3]["start"] = -1; }, "decoder.decoders[3].start");
  expect_damage(
      "llama2.json", [](Json& j) { j["decoder"]["decoders"][3]["start"] = 1e30; },
      "decoder.decoders[3].start");
  expect_damage(
      "llama2.json", [](Json& j) { j["decoder"]["decoders"][3]["content"] = ""; },
      "decoder.decoders[3].content");
  expect_damage(
      "llama2.json", [](Json& j) { j["model"]["fuse_unk"] = "yes"; }, "model.fuse_unk");
  expect_damage(
      "llama2.json", [](Json& j) { j["model"]["unk_token"] = "<none>"; }, "model.unk_token");
  expect_damage(
      "llama2.json", [](Json& j) { j["added_tokens"][0].erase("id"); }, "added_tokens[0]");
  expect_damage(
      "llama2.json", [](Json& j) { j["added_tokens"] = "none"; }, "added_tokens");
  expect_damage(
      "llama2.json", [](Json& j) { j["model"].erase("vocab"); }, "model");
  expect_damage(
      "llama2.json",
      [](Json& j) {
        j["model"]["type"] = nullptr;
        j["model"]["vocab"] = Json::array();
      },
      "model.vocab");
  expect_damage(
      "clip.json", [](Json& j) { j["decoder"]["suffix"] = ""; }, "decoder");
  expect_damage(
      "clip.json", [](Json& j) { j["model"]["continuing_subword_prefix"] = "much too long a prefix"; },
      "model");
  expect_damage(
      "mistral.json", [](Json& j) { j["pre_tokenizer"]["replacement"] = "ab"; }, "pre_tokenizer.replacement");
  expect_damage(
      "mistral.json", [](Json& j) { j["pre_tokenizer"]["add_prefix_space"] = false; },
      "pre_tokenizer.add_prefix_space");
  expect_damage(
      "t5.json", [](Json& j) { j["model"]["unk_id"] = 1000000; }, "model.unk_id");
  expect_damage(
      "t5.json",
      [](Json& j) {
        j["model"]["vocab"] = {{"a", 0}};
      },
      "model.vocab");
  expect_damage(
      "bert.json", [](Json& j) { j["model"]["unk_token"] = "<none>"; }, "model");
  expect_damage(
      "bert.json", [](Json& j) { j["normalizer"]["lowercase"] = 1; }, "normalizer.lowercase");
  expect_damage(
      "bert_cased.json", [](Json& j) { j["post_processor"]["cls"] = {"[CLS]"}; }, "post_processor.cls");
  expect_damage(
      "bert_cased.json",
      [](Json& j) {
        j["post_processor"]["cls"] = {"[CLS]", 5000000000};
      },
      "post_processor.cls[1]");
  expect_damage(
      "word_level.json", [](Json& j) { j["model"]["vocab"] = Json::array(); }, "model.vocab");
  const auto charsmap = [](const char* text) {
    return [=](Json& j) { j["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", text}}; };
  };
  for (const char* bad : {"not base64", "AAAA", "////", "CAAAAAAAAAAA", "/////wAAAAAAAA=="})
    expect_damage("t5.json", charsmap(bad), "normalizer.precompiled_charsmap");
}

TEST(TokenizerFile, damaged_text_is_an_error_that_names_the_file) {
  expect_damaged_text("", "tokenizer.json");
  expect_damaged_text("[1]", "model");
  expect_damaged_text(std::string(100'000, '['), "nested");
  expect_damaged_text(R"({"model":)" + std::string(100'000, '['), "nested");
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += R"({"type":"Sequence","normalizers":[)";
  expect_damaged_text(R"({"normalizer":)" + deep, "nested");
  expect_damaged_text(R"({"model":{"vocab":{"a":"b"}}})", "id of the piece");
  expect_damaged_text(R"({"model":{"vocab":{"a":{}}}})", "\"a\"");
  expect_damaged_text(R"({"model":{"vocab":{"a":3000000000}}})", "3000000000");
  expect_damaged_text(R"({"model":{"vocab":{"a":1e400}}})", "t.json");
  expect_damaged_text(R"({"model":{"vocab":{"\ud800":1}}})", "t.json");
  expect_damaged_text("{\"model\":{\"vocab\":{\"\xFF\":1}}}", "t.json");
  expect_damaged_text(R"({"model":{"vocab":{},"merges":[["a"]]}})", "pair");
  expect_damaged_text(R"({"model":{"vocab":{},"merges":["abc"]}})", "abc");
  expect_damaged_text(R"({"model":{"vocab":{},"merges":[{}]}})", "pair");
  expect_damaged_text(R"({"model":{"vocab":{},"merges":[7]}})", "7");
  for (const char* entry :
       {"7", "[]", "[\"a\"]", "[\"a\",\"b\"]", "[1,\"a\"]", "[\"a\",1,2]", "{}", "[[\"a\",1]]"})
    expect_damaged_text(R"({"model":{"type":"Unigram","vocab":[)" + std::string(entry) + "]}}", "entry 0");
  expect_damaged_text(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}})", "\"b\"");
  EXPECT_THROW(Tokenizer::from_file("no/such/tokenizer.json"), UsageError);
}

// Any cut and many random changes of every kind of file: an Error or a tokenizer that encodes, never a crash.
TEST(TokenizerFile, cut_and_changed_files_never_crash) {
  std::mt19937 random(11);
  for (const char* name : {"qwen2.json", "llama2.json", "t5.json", "bert.json", "clip.json",
                           "word_level.json", "sp_unigram.model", "sp_bpe.model"}) {
    const std::string whole = content(name);
    const bool json = std::string_view(name).ends_with(".json");
    int loaded = 0;
    for (int round = 0; round < 60; ++round) {
      std::string text = whole;
      if (round % 4 == 0) text.resize(random() % whole.size());
      for (uint32_t i = random() % 4; i > 0 && !text.empty(); --i)
        text[random() % text.size()] =
            round % 2 == 0 ? static_cast<char>(random()) : "0]}\",-e\n"[random() % 8];
      loaded += json ? fuzz_tokenizer_json(text, "The ship's \u2581 load <s>  1\u0301\xFF")
                     : fuzz_sentence_piece(text, "The ship's \u2581 load <s>  1\u0301\xFF");
    }
    EXPECT_GT(loaded, 0) << name;
  }
}

TEST(TokenizerFile, a_unigram_without_an_unknown_piece_says_so_when_it_needs_one) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(R"({"model":{"type":"Unigram","unk_id":null,"vocab":[["a",-1]]}})", "t.json");
  EXPECT_EQ(tokenizer.encode("aa", false).size(), 2U);
  EXPECT_THAT([&] { (void)tokenizer.encode("ab", false); }, ThrowsMessage<UsageError>(HasSubstr("\"b\"")));
}

// Two ways to write a word whose sums differ in the last bit: the reference's answers.
TEST(TokenizerFile, scores_are_read_with_the_reference_s_rounding) {
  const auto ids = [](const std::string& scores) {
    const std::string file =
        R"({"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],)" + scores + "]}}";
    return Tokenizer::from_json(file, "t.json").encode("xaaaa", false);
  };
  EXPECT_THAT(ids(R"(["x",-8.167522699950393],["a",-9.675956862490645],["aaa",-2.032455454516584])"),
              testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(ids(R"(["x",-10.915702033726319],["a",-1.3364898133690888],["aaa",-1.2799044709280687])"),
              testing::ElementsAre(1, 3, 2));
}

TEST(TokenizerFile, a_folder_s_tokenizer_json_comes_before_its_sentence_piece_model) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "tokenizer_files";
  std::filesystem::create_directories(folder);
  EXPECT_EQ(Tokenizer::find_file(folder), std::nullopt);
  std::ofstream(folder / "tokenizer.model") << "x";
  EXPECT_EQ(Tokenizer::find_file(folder), folder / "tokenizer.model");
  std::ofstream(folder / "tokenizer.json") << "x";
  EXPECT_EQ(Tokenizer::find_file(folder), folder / "tokenizer.json");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace plimsoll
