// Tests of the message for each wrong recipe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "recipe/load/load.h"
#include "recipe/option.h"
#include "recipe/unsupported.h"

namespace plimsoll {
namespace {

using testing::HasSubstr;

// The error for "model: m" and `text` from line 2 on.
std::string error_of(const std::string& text) {
  try {
    (void)parse_recipe("model: m\n" + text, "q.yaml", "/r");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(RecipeErrors, unknown_keys_are_told_the_nearest_one) {
  EXPECT_EQ(error_of("optimiser: {lr: 1}"), "q.yaml:2: unknown key 'optimiser' (did you mean 'optimizer'?)");
  EXPECT_EQ(error_of("\n\nmethod:\n  alhpa: 1"),
            "q.yaml:5: unknown key 'method.alhpa' (did you mean 'method.alpha'?)");
  EXPECT_EQ(error_of("targets: 1"), "q.yaml:2: unknown key 'targets' (did you mean 'method.targets'?)");
  EXPECT_EQ(error_of("lora_rnak: 1"), "q.yaml:2: unknown key 'lora_rnak' (did you mean 'lora_rank'?)");
  EXPECT_EQ(error_of("something_else: 1"),
            "q.yaml:2: unknown key 'something_else'; `plimsoll recipe --explain` lists the keys");
}

TEST(RecipeErrors, wrong_types_say_what_is_expected_and_what_was_found) {
  EXPECT_EQ(error_of("method: {r: many}"),
            "q.yaml:2: method.r: expected a whole number from 1 to 8,192, found 'many'");
  EXPECT_EQ(error_of("method: {r: '8'}"),
            "q.yaml:2: method.r: expected a whole number from 1 to 8,192, found the quoted text '8'");
  EXPECT_EQ(error_of("method: wide"), "q.yaml:2: method: expected a map of keys, found 'wide'");
  EXPECT_EQ(
      error_of("task: [sft]"),
      "q.yaml:2: task: expected sft | pretrain | mlm | seq2seq | reward | classify | dpo, found a list");
  EXPECT_EQ(error_of("seed:"),
            "q.yaml:2: seed: expected a whole number from 0 to 9,007,199,254,740,992, found nothing");
  EXPECT_EQ(error_of("data: {shuffle: yes}"),
            "q.yaml:2: data.shuffle: expected full (or true), window or false, found 'yes'");
  EXPECT_EQ(error_of("data: {train: {a: b}}"),
            "q.yaml:2: data.train: 'a' is not known; a source has path, weight and rows");
  EXPECT_EQ(error_of("data: {columns: {promt: x}}"),
            "q.yaml:2: data.columns: 'promt' is no column; there are prompt, response, messages, tools, "
            "text, input_ids, labels, instruction, input, output, system, history, message_role, "
            "message_content, chosen, rejected, margin, sentence, sentence2, label");
  EXPECT_EQ(
      error_of("memory: {device: 8 apples}"),
      "q.yaml:2: memory.device: expected auto, a share such as 80%, a size such as 8GiB, or a size for each of several "
      "GPUs such as {0: 24GiB, 1: 12GiB}, found '8 apples'");
  for (const char* wrong : {"batch: {micro: half}",
                            "optimizer: {betas: [0.9]}",
                            "optimizer: {betas: 0.9}",
                            "precision: bf32",
                            "precision: [bf16]",
                            "schedule: {warmup: some}",
                            "schedule: {max_steps: auto}",
                            "data: {eval: [a]}",
                            "data: {columns: [a]}",
                            "data: {columns: {prompt: [a]}}",
                            "method: {targets: 'q_proj,v_proj'}",
                            "method: {targets: []}",
                            "method: {layers: []}",
                            "method: {targets: [a, a]}",
                            "data: {pin: maybe}",
                            "adapter: [a]",
                            "output: {a: b}",
                            "save: {best: speed}",
                            "memory: {disk: big}",
                            "data: {train: []}",
                            "data: {eval: \"a\\nb\"}",
                            "threads: 1.5",
                            "optimizer: {lr: .nan}",
                            "optimizer: {lr: 1e999}"})
    EXPECT_THAT(error_of(wrong), HasSubstr(": expected ")) << wrong;
}

TEST(RecipeErrors, bounds_hold_at_both_ends) {
  for (const char* wrong : {"method: {r: 0}",
                            "method: {r: 8193}",
                            "method: {dropout: 1}",
                            "method: {dropout: -0.1}",
                            "batch: {effective: 0}",
                            "batch: {micro: 0}",
                            "optimizer: {lr: -1}",
                            "optimizer: {betas: [0.9, 1.0]}",
                            "optimizer: {eps: 0}",
                            "schedule: {min_ratio: 1.1}",
                            "schedule: {epochs: 0}",
                            "schedule: {max_steps: 0}",
                            "schedule: {warmup: 101%}",
                            "memory: {headroom: -1%}",
                            "memory: {device: 0%}",
                            "data: {eval: 0%}",
                            "data: {eval: 150%}",
                            "data: {max_length: 0}",
                            "seed: -1",
                            "seed: 99999999999999999999",
                            "save: {keep: 0}",
                            "log: {every: 0}"})
    EXPECT_THAT(error_of(wrong), HasSubstr(": expected ")) << wrong;
  EXPECT_EQ(error_of("method: {r: 8192, dropout: 0}\nschedule: {min_ratio: 1, warmup: 100%}"), "no error");
}

TEST(RecipeErrors, what_evaluations_decide_needs_some) {
  for (const std::string needs : {"eval: {every: 5}", "save: {best: loss}", "stop: {patience: 2}"}) {
    EXPECT_THAT(error_of(needs), HasSubstr("give data.eval a file or a share such as 2%")) << needs;
    EXPECT_EQ(error_of(needs + "\ndata: {eval: 2%}"), "no error");
  }
  EXPECT_EQ(error_of("stop: {patience: 0}"), "no error");
}

TEST(RecipeErrors, keys_given_twice_are_errors) {
  EXPECT_EQ(error_of("seed: 1\nseed: 1"), "q.yaml:3: key 'seed' is given twice (first at line 2)");
  EXPECT_EQ(error_of("data: {shuffle: true}\ndata: {max_length: 1}"),
            "q.yaml:3: key 'data' is given twice (first at line 2)");
  EXPECT_EQ(error_of("data:\n  columns:\n    text: a\n    text: b"),
            "q.yaml:5: key 'data.columns.text' is given twice (first at line 4)");
  EXPECT_EQ(error_of("method:\n  r: 1\nmethod.r: 2"),
            "q.yaml:4: key 'method.r' is given twice (first at q.yaml:3)");
}

TEST(RecipeErrors, syntax_errors_name_the_line) {
  EXPECT_THAT(error_of("data: [a\nb: c"), testing::StartsWith("q.yaml:3: not valid YAML: "));
  EXPECT_THAT(error_of("a: b: c"), testing::StartsWith("q.yaml:2: not valid YAML: "));
  EXPECT_THAT(error_of("a: &x 1"), HasSubstr("q.yaml:2: anchors (&) and aliases (*) have no place"));
  EXPECT_THAT(error_of("seed: !!int 1"), HasSubstr("q.yaml:2: tags (!) have no place"));
  EXPECT_THAT(error_of("---\nseed: 1"), HasSubstr("q.yaml: holds more than one YAML document"));
  EXPECT_THAT(error_of("%seed: 1"), HasSubstr("q.yaml:2: directives (%) have no place"));
  EXPECT_THAT(error_of("? [a]\n: 1"), HasSubstr("q.yaml:2: a key must be a word"));
}

TEST(RecipeErrors, all_problems_are_told_at_once) {
  EXPECT_EQ(error_of("seed: x\nmodle: m\nbatch: 3"),
            "q.yaml:2: seed: expected a whole number from 0 to 9,007,199,254,740,992, found 'x'\n"
            "q.yaml:3: unknown key 'modle' (did you mean 'model'?)\n"
            "q.yaml:4: batch: expected a map of keys, found '3'");
  std::string many;
  for (int i = 0; i < 50; ++i) many += "unknown_key_" + std::to_string(i) + ": 1\n";
  const std::string error = error_of(many);
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 20);
  EXPECT_THAT(error, testing::EndsWith("\nand 30 more"));
}

TEST(RecipeErrors, keys_that_contradict_each_other_are_errors) {
  EXPECT_EQ(error_of("method:\n  r: 8\n  type: full"),
            "q.yaml:3: method.r: has no effect with method.type: full; remove it, or say method.type: lora");
  for (const char* wrong :
       {"adapter: a\nmethod: {type: full}", "task: pretrain\ndata: {format: prompt-response}",
        "batch: {effective: 4, micro: 5}", "schedule: {name: constant, min_ratio: 0.1}", "eval: {every: 5}",
        "save: {best: loss}", "precision: {weights: fp32, master: true}",
        "precision: {weights: fp32, rounding: stochastic}", "precision: {master: true, rounding: stochastic}",
        "method: {type: full}\noptimizer: {name: adamw8bit}\nprecision: {states: bf16}",
        "method: {type: full}\noptimizer: {name: adafactor}\nprecision: {states: bf16}"})
    EXPECT_THAT(error_of(wrong), testing::StartsWith("q.yaml:")) << wrong;
}

// One recipe for each line of the list, and the other way round: a line without a recipe here fails.
TEST(RecipeErrors, what_does_not_exist_yet_is_refused_by_name) {
  std::map<std::string, std::vector<std::string>> wanted = {{"data.loader_threads", {"2"}},
                                                            {"data.pin", {"true", "false"}},
                                                            {"eval.metrics", {"[accuracy]", "[]"}},
                                                            {"data.columns", {"{chosen: c}"}}};
  for (const Unsupported& entry : unsupported()) {
    const std::string key(entry.key);
    EXPECT_NE(find_option(key), nullptr) << key;
    std::vector<std::string> values = wanted[key];
    if (key != "data.columns")
      for (const std::string_view value : entry.missing) values.emplace_back(value);
    EXPECT_TRUE(!values.empty() || key == "save.format") << key << ": no value of this test is refused";
    for (const std::string& value : values) {
      const std::string error = error_of(key + ": " + value);
      EXPECT_THAT(error, testing::StartsWith("q.yaml:2: " + key + ": '")) << value;
      EXPECT_THAT(error, HasSubstr("' is not supported yet")) << value;
    }
  }
}

TEST(RecipeErrors, deep_and_huge_texts_are_refused_without_harm) {
  constexpr size_t kMany = 1'000'000;
  EXPECT_THAT(error_of("data: " + std::string(50, '[') + std::string(50, ']')),
              HasSubstr("nested more than 16 deep"));
  for (const std::string piece :
       {"[",   "{", "- ",   "? ", "a: ",    "&a ",  "!",    "\"",           "'", "]", "*", "|\n ",
        "a\n", "%", "{a: ", ", ", "a: 1\n", "[]\n", "\xff", "\xef\xbb\xbf", "\t"}) {
    std::string text;
    while (text.size() + piece.size() <= kMany / 40) text += piece;
    EXPECT_NE(error_of(text), "no error") << piece;
  }
  std::string unknown;
  while (unknown.size() < kMany / 5) unknown += "unknown_key_" + std::to_string(unknown.size()) + ":\n";
  EXPECT_THAT(error_of(unknown), HasSubstr(" more"));
}

}  // namespace
}  // namespace plimsoll
