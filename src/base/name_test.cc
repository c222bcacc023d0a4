#include "base/name.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <vector>

namespace plimsoll {
namespace {

TEST(Name, equal_texts_are_one_text) {
  const Name a = "model.layers.3.mlp";
  const Name b = std::string("model.layers.") + "3.mlp";
  EXPECT_EQ(a, b);
  EXPECT_EQ(&a.text(), &b.text());
  EXPECT_NE(a, Name("model.layers.4.mlp"));
  EXPECT_EQ(a, "model.layers.3.mlp");
  EXPECT_EQ("model.layers.3.mlp", a);
  EXPECT_NE(a, std::string("model"));
  EXPECT_TRUE(Name().empty());
  EXPECT_EQ(Name(), Name(""));
}

TEST(Name, reads_like_a_text) {
  const Name name = "a.weight";
  EXPECT_EQ(name + ".fetched", "a.weight.fetched");
  EXPECT_EQ("b." + name, "b.a.weight");
  EXPECT_EQ(name + name, "a.weighta.weight");
  EXPECT_LT(name, Name("b"));
  std::map<std::string, int> by_text;
  by_text[name] = 3;
  EXPECT_EQ(by_text.at("a.weight"), 3);
}

// More than the pool begins with, from several threads at once.
TEST(Name, stays_what_it_is_while_others_are_named) {
  constexpr int kNames = 5000;
  std::vector<std::vector<Name>> named(3);
  std::vector<std::thread> threads;
  for (auto& names : named)
    threads.emplace_back([&names] {
      for (int i = 0; i < kNames; ++i) names.emplace_back("name." + std::to_string(i));
    });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kNames; ++i) {
    EXPECT_EQ(named[0][static_cast<size_t>(i)], "name." + std::to_string(i));
    EXPECT_EQ(named[0][static_cast<size_t>(i)], named[1][static_cast<size_t>(i)]);
    EXPECT_EQ(named[0][static_cast<size_t>(i)], named[2][static_cast<size_t>(i)]);
  }
}

}  // namespace
}  // namespace plimsoll
