// Sweeps, and copies of other programs' files with keys changed.
#include "fleet/queue/store/sweep.h"

#include <gmock/gmock.h>
#include <yaml-cpp/yaml.h>

#include "base/error.h"
#include "fleet/queue/store/config_copy.h"

namespace plimsoll::queue {
namespace {

using ::testing::ElementsAre;

TEST(Config, AFileWithoutEndAndKeysThatNoFileHoldsAreRefused) {
  std::vector<std::string> told;
  const auto changed = [&](const std::string& text, const std::string& key, const std::string& value) {
    return changed_config(text, "a.yaml", {{"a.yaml", key, value}}, told);
  };
  EXPECT_THROW(changed("#\n{},", "a", "1"), UsageError);  // one document after the other, for ever
  EXPECT_THROW(changed("a: 1\n", std::string(600, 'k'), "1"), UsageError);
  EXPECT_THROW(changed("a: 1\n", "k\x01", "1"), UsageError);
  EXPECT_THROW(changed("a: 1\n", "k\xff", "1"), UsageError);
  EXPECT_THROW(changed("a: 1\n", "k", std::string("1\0", 2)), UsageError);
  EXPECT_THROW(changed("a: 1\n", "k", "\xff"), UsageError);
  EXPECT_EQ(changed("a: 1\n", "null", "2"), "a: 1\n\"null\": 2\n");
}

TEST(Sweep, IsEveryCombinationUnderANameOfItsOwn) {
  const std::vector<SweepPoint> points = read_sweeps({"method.r=4,8", "optimizer.lr=1e-4,3e-4,1e-3"});
  ASSERT_EQ(points.size(), 6u);
  EXPECT_THAT(points[0].sets, ElementsAre("method.r=4", "optimizer.lr=1e-4"));
  EXPECT_THAT(points[5].sets, ElementsAre("method.r=8", "optimizer.lr=1e-3"));
  EXPECT_EQ(points[1].suffix, "r4-lr3e-4");
  EXPECT_EQ(read_sweeps({}).size(), 1u) << "no sweep is one run";
  EXPECT_EQ(read_sweeps({})[0].suffix, "");
}

TEST(Sweep, WhatGoesInStepIsNoCombinationAndPathsGoWithIt) {
  const std::vector<SweepPoint> points =
      read_sweeps({"seed=1,2"}, {"data.train=a.parquet,b.parquet,c.parquet", "optimizer.lr=1e-4,1e-4,2e-4"});
  ASSERT_EQ(points.size(), 6u);
  EXPECT_THAT(points[1].sets, ElementsAre("data.train=a.parquet", "optimizer.lr=1e-4", "seed=2"));
  EXPECT_THAT(points[5].sets, ElementsAre("data.train=c.parquet", "optimizer.lr=2e-4", "seed=2"));
  EXPECT_EQ(points[3].suffix, "trainb.parquet-seed2");
  EXPECT_THROW(read_sweeps({}, {"a=1,2", "b=1"}), UsageError);
  EXPECT_THROW(read_sweeps({}, {"a=1,2"}), UsageError);
  EXPECT_THROW(read_sweeps({"a=1,2"}, {"a=1,2", "b=1,2"}), UsageError);
  const SweepPoint point = read_sweeps({"classify.glue=qnli,rte"})[1];
  EXPECT_EQ(with_values("data.train=glue/{classify.glue}/train-{seed}.parquet", point),
            "data.train=glue/rte/train-{seed}.parquet");
}

TEST(Sweep, PartsListsAtNoCommaOfTheirOwn) {
  const std::vector<SweepPoint> points = read_sweeps({"method.targets=[q,v],[q,k,v],\"a,b\""});
  ASSERT_EQ(points.size(), 3u);
  EXPECT_THAT(points[1].sets, ElementsAre("method.targets=[q,k,v]"));
  EXPECT_THAT(points[2].sets, ElementsAre("method.targets=\"a,b\""));
  EXPECT_EQ(points[1].suffix, "targets_q_k_v_");
}

TEST(Sweep, NamesThatWouldBeTheSameOrTooLongAreNumbers) {
  const std::vector<SweepPoint> same = read_sweeps({"a.x=a/b,a:b"});
  EXPECT_EQ(same[0].suffix, "1");
  EXPECT_EQ(same[1].suffix, "2");
  EXPECT_EQ(read_sweeps({"a.x=" + std::string(90, 'y')})[0].suffix, "1");
}

TEST(Sweep, RefusesWhatIsNone) {
  for (const char* text : {"r", "=1", "r=", "r=1,,2", "r=1,1"})
    EXPECT_THROW(read_sweeps({text}), UsageError) << text;
  EXPECT_THROW(read_sweeps({"r=1", "r=2"}), UsageError);
  std::string many = "r=0";
  for (int i = 1; i < 40; ++i) many += "," + std::to_string(i);
  EXPECT_THROW(read_sweeps({many, "s" + many}), UsageError) << "1,600 runs";
}

std::string changed(const std::string& text, const std::vector<std::string>& changes,
                    const std::string& name = "x.yaml") {
  std::vector<ConfigChange> list;
  for (const std::string& one : changes) list.push_back(read_config_change(name + ":" + one));
  std::vector<std::string> told;
  return changed_config(text, name, list, told);
}

TEST(ConfigCopy, ChangesOneKeyAndKeepsHowTheOthersAreWritten) {
  EXPECT_EQ(
      changed(
          "# a comment\nmodel: {name: \"123\", on: yes}\nlr: 1e-4\nlist:\n- 1\n- [2, 3]\nempty:\nnone: {}\n",
          {"lr=2e-4", "list.1.0=7", "model.new.key=[a, b]"}),
      "model:\n  name: \"123\"\n  on: yes\n  new:\n    key:\n      - a\n      - b\nlr: 2e-4\nlist:\n  - 1\n  "
      "-\n"
      "    - 7\n    - 3\nempty: null\nnone: {}\n");
}

TEST(ConfigCopy, AnAliasIsWrittenOutAndAChangeIsOfOnePlace) {
  const YAML::Node copy =
      YAML::Load(changed("base: &b {lr: 1, wd: 2}\nfirst: *b\nsecond:\n  <<: *b\n  wd: 3\n", {"first.lr=5"}));
  EXPECT_EQ(copy["base"]["lr"].as<int>(), 1);
  EXPECT_EQ(copy["first"]["lr"].as<int>(), 5);
  EXPECT_EQ(copy["second"]["<<"]["lr"].as<int>(), 1);
}

TEST(ConfigCopy, TextOfSeveralLinesAndTagsStayWhatTheyAre) {
  const YAML::Node copy =
      YAML::Load(changed("a: |\n  one\n  two: 2\nb: !env HOME\nc: 'it''s'\nd: 1\n", {"d=null"}));
  EXPECT_EQ(copy["a"].as<std::string>(), "one\ntwo: 2\n");
  EXPECT_EQ(copy["b"].Tag(), "!env");
  EXPECT_EQ(copy["b"].as<std::string>(), "HOME");
  EXPECT_EQ(copy["c"].as<std::string>(), "it's");
  EXPECT_TRUE(copy["d"].IsNull());
}

TEST(ConfigCopy, JsonStaysJson) {
  EXPECT_EQ(changed("{\"b\": {\"x\": 1}, \"a\": [1, 2]}", {"b.x=2.5", "a.1=word", "c.d=true"}, "x.json"),
            "{\n  \"b\": {\n    \"x\": 2.5\n  },\n  \"a\": [\n    1,\n    \"word\"\n  ],\n  \"c\": {\n    "
            "\"d\": true\n  "
            "}\n}\n");
}

TEST(ConfigCopy, RefusesByFileAndKey) {
  for (const char* text : {"x.yaml", "x.yaml:=1", ":a=1", "a=1"})
    EXPECT_THROW(read_config_change(text), UsageError) << text;
  EXPECT_EQ(read_config_change("C:/x.yaml:a.b=c:d").file, "C:/x.yaml");
  EXPECT_THROW(changed("a: 1\n", {"a.b=1"}), UsageError) << "a scalar has no keys";
  EXPECT_THROW(changed("a: [1]\n", {"a.1=1"}), UsageError) << "no such place";
  EXPECT_THROW(changed("a: [1]\n", {"a.x=1"}), UsageError);
  EXPECT_THROW(changed("a: 1\n---\nb: 1\n", {"a=1"}), UsageError);
  EXPECT_THROW(changed("a: [1\n", {"a=1"}), UsageError);
  EXPECT_THROW(changed("a: 1\n", {"a=[1"}), UsageError);
  EXPECT_THROW(changed("nonsense", {"a=1"}, "x.json"), UsageError);
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int j = 0; j < 8; ++j) bomb += ", " + before;
    bomb += "]\n";
  }
  EXPECT_THROW(changed(bomb, {"b=1"}), UsageError) << "a few lines that stand for gigabytes";
}

TEST(ConfigCopy, deep_files_and_those_with_nul_are_refused) {
  std::vector<std::string> told;
  const auto change = [&](const std::string& text, const std::string& name, const std::string& value) {
    return changed_config(text, name, {{name, "b", value}}, told);
  };
  const std::string deep = R"({"a":)" + std::string(50'000, '[') + std::string(50'000, ']') + "}";
  EXPECT_THROW(change(deep, "d.json", "1"), UsageError);
  EXPECT_THROW(change("{}", "d.json", std::string(50'000, '[') + std::string(50'000, ']')), UsageError);
  EXPECT_THROW(change(std::string(": \0000\n", 5), "c.yaml", "1"), UsageError);
  EXPECT_THROW(change(std::string("{\"a\0\":1}", 8), "d.json", "1"), UsageError);
  std::string wide = "{\"k\":0";
  for (int i = 0; i < 5000; ++i) wide += ",\"k" + std::to_string(i) + "\":0";
  EXPECT_THROW(change(wide + "}", "d.json", "1"), UsageError);
  EXPECT_EQ(change(R"({"a":[{}]})", "d.json", "[1]"),
            "{\n  \"a\": [\n    {}\n  ],\n  \"b\": [\n    1\n  ]\n}\n");
}

}  // namespace
}  // namespace plimsoll::queue
