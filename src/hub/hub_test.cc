#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "files/test_folder.h"
#include "hub/client.h"
#include "hub/digest.h"
#include "hub/listing.h"

namespace plimsoll::hub {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kCommit(40, 'a');
const std::string kBlob(40, 'b');

std::string file(const std::string& name, int64_t bytes = 5) {
  return R"({"rfilename": ")" + name + R"(", "size": )" + std::to_string(bytes) + R"(, "blobId": ")" + kBlob +
         "\"}";
}
std::string listing_of(const std::vector<std::string>& names) {
  std::string files;
  for (const std::string& name : names) files += (files.empty() ? "" : ",") + file(name);
  return R"({"sha": ")" + kCommit + R"(", "siblings": [)" + files + "]}";
}
std::vector<std::string> wanted(const std::vector<std::string>& names, Wanted which,
                                HubKind kind = HubKind::model) {
  std::vector<std::string> chosen;
  for (const HubFile& found : wanted_files(read_listing(listing_of(names), "hub"), kind, which, "Org/M"))
    chosen.push_back(found.name);
  return chosen;
}

TEST(Digest, is_what_sha256sum_and_git_say) {
  Digest sha256(Digest::Kind::sha256, 3);
  sha256.add("a");
  sha256.add("bc");
  EXPECT_EQ(sha256.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Digest blob(Digest::Kind::git_blob, 6);  // echo hello | git hash-object --stdin
  blob.add("hello\n");
  EXPECT_EQ(blob.hex(), "ce013625030ba8dba906f756967f9e9ca394464a");
}

TEST(Listing, sizes_and_checksums_of_large_files_are_their_own_not_their_pointers) {
  const std::string digest(64, 'c');
  const Listing listing = read_listing(
      R"({"sha": ")" + kCommit +
          R"(", "siblings": [{"rfilename": "model.safetensors", "size": 134, "blobId": ")" + kBlob +
          R"(", "lfs": {"sha256": ")" + digest + R"(", "size": 7000000000, "pointerSize": 134}}]})",
      "hub");
  ASSERT_EQ(listing.files.size(), 1U);
  EXPECT_EQ(listing.files[0].bytes, 7'000'000'000);
  EXPECT_EQ(listing.files[0].digest, digest);
  EXPECT_EQ(listing.files[0].kind, Digest::Kind::sha256);
}

TEST(Listing, names_that_lead_out_of_the_repository_are_left_out) {
  const Listing listing = read_listing(listing_of({"../x.json", "/etc/passwd", "a//b.json", "a/../b.json",
                                                   "a\\\\b.json", "\\u001b[2J.json", "ok/b.json"}),
                                       "hub");
  ASSERT_EQ(listing.files.size(), 1U);
  EXPECT_EQ(listing.files[0].name, "ok/b.json");
}

TEST(Listing, what_no_hub_answers_is_refused) {
  for (
      const char* text :
      {"[]", "{}", R"({"sha": "main", "siblings": []})", "<html>",
       R"({"sha": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "siblings": [{"rfilename": "a.json"}]})",
       R"({"sha": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "siblings": [{"rfilename": "a.json", "size": -1}]})",
       R"({"sha": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "siblings": [{"rfilename": "a.json", "size": 1, "blobId": "../x"}]})"})
    EXPECT_THAT(message_of<DamagedError>([&] { (void)read_listing(text, "http://h/api"); }),
                HasSubstr("http://h/api"))
        << text;
}

TEST(Wanted, weights_once_and_in_safetensors) {
  EXPECT_THAT(
      wanted({"config.json", "consolidated.safetensors", "model-00001-of-00002.safetensors",
              "model-00002-of-00002.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
              "pytorch_model.bin.index.json", "README.md", "original/params.json", "chat_template.jinja",
              "tokenizer.model"},
             Wanted::all),
      ElementsAre("config.json", "model.safetensors.index.json", "chat_template.jinja", "tokenizer.model",
                  "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
  EXPECT_THAT(wanted({"config.json", "model.safetensors", "model.fp16.safetensors"}, Wanted::all),
              ElementsAre("config.json", "model.safetensors"));
  EXPECT_THAT(wanted({"adapter_config.json", "adapter_model.safetensors"}, Wanted::all),
              ElementsAre("adapter_config.json", "adapter_model.safetensors"));
  EXPECT_THAT(wanted({"config.json", "model.safetensors", "vocab.txt"}, Wanted::config_only),
              ElementsAre("config.json", "vocab.txt"));
  EXPECT_THAT(wanted({"data/train-00000-of-00001.parquet", "README.md"}, Wanted::all, HubKind::dataset),
              ElementsAre("data/train-00000-of-00001.parquet"));
  EXPECT_THAT(wanted({"train.jsonl.gz", "code.tar.gz"}, Wanted::all, HubKind::dataset),
              ElementsAre("train.jsonl.gz"));
}

TEST(Wanted, pickles_are_refused_by_name) {
  EXPECT_THAT(
      message_of<UsageError>([] {
        (void)wanted({"config.json", "pytorch_model.bin"}, Wanted::all);
      }),
      AllOf(HasSubstr("pickles alone (pytorch_model.bin)"), HasSubstr("plimsoll fetch Org/M --config-only")));
  EXPECT_THAT(wanted({"config.json", "pytorch_model.bin"}, Wanted::config_only), ElementsAre("config.json"));
}

TEST(UrlPath, encodes_all_but_what_stands_for_itself) {
  EXPECT_EQ(url_path("a b/ü#1.json"), "a%20b/%C3%BC%231.json");
}

}  // namespace
}  // namespace plimsoll::hub
