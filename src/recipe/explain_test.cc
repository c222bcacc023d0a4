// The public face of the recipe: the list of keys and the manual. PLIMSOLL_GOLDEN=write rewrites both files;
// the difference is reviewed like code.
#include "recipe/explain.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/strings.h"
#include "recipe/option.h"

namespace plimsoll {
namespace {

constexpr const char* kKeysFile = "tests/golden/recipe-keys.txt";
constexpr const char* kKeysManual = "docs/reference/recipe.md";
constexpr std::string_view kBegin =
    "<!-- keys: printed by `plimsoll recipe --explain`, checked by a test -->\n```\n";
constexpr std::string_view kEnd = "```\n";

std::string read(const char* file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

bool rewrites_golden() {
  const char* wish = std::getenv("PLIMSOLL_GOLDEN");
  return wish != nullptr && std::string_view(wish) == "write";
}

void expect_same(const char* file, const std::string& text) {
  if (rewrites_golden()) std::ofstream(file, std::ios::binary) << text;
  EXPECT_EQ(read(file), text);
}

TEST(Explain, the_public_list_of_keys_is_frozen) {
  std::string keys;
  for (const Option& option : options()) keys += option.key + " = " + to_yaml(option.get(Recipe{})) + "\n";
  expect_same(kKeysFile, keys);
}

TEST(Explain, the_manual_shows_what_explain_prints) {
  const std::string manual = read(kKeysManual);
  const size_t begin = manual.find(kBegin);
  ASSERT_NE(begin, std::string::npos);
  const size_t start = begin + kBegin.size();
  const size_t end = manual.find(kEnd, start);
  ASSERT_NE(end, std::string::npos);
  expect_same(kKeysManual, manual.substr(0, start) + explain_recipe() + manual.substr(end));
}

TEST(Explain, stays_within_100_columns) {
  for (const std::string& line : split(explain_recipe(), '\n')) EXPECT_LE(line.size(), 100U) << line;
}

TEST(Explain, json_says_the_same_for_machines) {
  const Json list = explain_recipe_json();
  ASSERT_EQ(list.size(), options().size());
  EXPECT_EQ(list[0]["key"], "model");
  EXPECT_EQ(list[0]["required"], true);
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(list[i]["key"], options()[i].key);
    EXPECT_EQ(list[i]["default"], options()[i].get(Recipe{}));
    EXPECT_FALSE(list[i]["meaning"].get<std::string>().empty());
  }
}

TEST(Options, each_key_is_declared_once_and_is_no_group_but_precision) {
  for (const Option& option : options()) {
    EXPECT_EQ(find_option(option.key), &option);
    EXPECT_EQ(is_group(option.key), option.key == "precision") << option.key;
  }
}

}  // namespace
}  // namespace plimsoll
