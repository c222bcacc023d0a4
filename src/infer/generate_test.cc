// Generation against full recomputation on a tiny random model.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/error.h"
#include "cpu/describe.h"
#include "infer/generator.h"
#include "infer/sampling.h"
#include "infer/test_models.h"
#include "models/model.h"
#include "ops/rule.h"
#include "ops/step_values.h"
#include "passes/train.h"
#include "prepare/setup.h"
#include "train/batch_writer.h"

namespace plimsoll {
namespace {

using test::tiny_delta;
using test::tiny_gla;
using test::tiny_model;
using test::tiny_t5;

using Ids = std::vector<int32_t>;
constexpr int64_t kContext = 40;
constexpr int64_t kNew = 20;
constexpr uint64_t kSeed = 3;

InferenceDevice one_thread() { return {cpu_settings({std::nullopt, 1})}; }

Ids some_prompt(int32_t length) {
  Ids ids;
  for (int32_t i = 0; i < length; ++i) ids.push_back((i * 37 + 11) % 96);
  return ids;
}

// The whole text through the model without a cache, from the start for each token.
class Recomputation {
 public:
  explicit Recomputation(const ModelSpec& model)
      : model_(model),
        programs_{assign_scratch(build_logits(model, {kContext, 1, kContext, kContext, kContext}, DType::f32),
                                 describe_cpu(one_thread().cpu.isa, 1))},
        layout_(lay_out(programs_)),
        device_(one_thread().cpu),
        memory_(device_.map(layout_.arena_bytes())),
        program_(programs_[0], layout_.programs[0], device_, *memory_) {
    init_base_weights({layout_, memory_->data()}, model, kSeed);
  }

  // Logits of what follows `text`; for an encoder's source, of what follows `text` behind the start of the
  // answer.
  std::span<const float> logits(const Ids& text, const Ids& source = {}) {
    MicroBatch batch(1, SequenceShape{kContext, 2});
    size_t last = text.size() - 1;
    if (model_.encoder_decoder) {
      Ids target = {static_cast<int32_t>(model_.encoder_decoder->start_token)};
      target.insert(target.end(), text.begin(), text.end());
      last = target.size() - 1;
      target.push_back(0);  // nobody's input
      batch.append(source, source, 0);
      batch.append(target, target, 0);
    } else {
      batch.append(text, text, 0);
    }
    BatchWriter writer(program_, model_);
    writer.write(batch);
    program_.run();
    const auto vocab = static_cast<size_t>(model_.vocab);
    return program_.result<float>("logits").subspan(last * vocab, vocab);
  }
  int32_t next(const Ids& text, const Ids& source = {}) { return argmax(logits(text, source)); }

 private:
  const ModelSpec& model_;
  std::vector<Graph> programs_;
  ArenaLayout layout_;
  CpuDevice device_;
  std::unique_ptr<DeviceMemory> memory_;
  Executor program_;
};

Ids answer(Generator& generator, const Ids& prompt, Sampler& sampler, int64_t max_new = kNew,
           bool go_on = false) {
  Ids ids;
  generator.generate(
      prompt, max_new,
      [&](std::span<const float> logits, int64_t number) { return sampler.choose(logits, 0, number); },
      [&](int32_t id) {
        ids.push_back(id);
        return true;
      },
      go_on);
  return ids;
}

void expect_same_as_recomputed(const ModelSpec& model, int64_t prefill) {
  Generator generator(plan_generation({model, std::nullopt, DType::f32, kContext, prefill}, one_thread()));
  init_base_weights(generator.state(), model, kSeed);
  Recomputation recomputation(model);
  Sampler greedy({});
  // The second prompt finds the first one's cache.
  for (const int32_t length : {19, 6}) {
    Ids text = some_prompt(length);
    const Ids cached = answer(generator, text, greedy);
    ASSERT_EQ(static_cast<int64_t>(cached.size()), kNew);
    for (const int32_t id : cached) {
      ASSERT_EQ(id, recomputation.next(text)) << "after " << text.size() << " tokens";
      text.push_back(id);
    }
    EXPECT_GT(std::set<int32_t>(cached.begin(), cached.end()).size(), 3U) << "the answer is no test";
  }
}

TEST(Generate, an_answer_that_goes_past_longropes_limit_is_as_though_it_was_recomputed) {
  for (const int64_t prefill : {64, 5}) expect_same_as_recomputed(test::tiny_phi(), prefill);
}

TEST(Generate, beams_that_would_go_past_longropes_limit_are_refused) {
  GenerationRequest request{test::tiny_phi(), std::nullopt, DType::f32, kContext, 8};
  request.sequences = 2;
  Generator generator(plan_generation(request, one_thread()));
  init_base_weights(generator.state(), request.model, kSeed);
  const BeamOptions options{.beams = 2, .best = 1};
  EXPECT_THROW(generator.search(some_prompt(19), 7, options, {}), UsageError);
  EXPECT_NO_THROW(generator.search(some_prompt(19), 6, options, {}));
}

TEST(Generate, a_cache_answers_as_full_recomputation_does) { expect_same_as_recomputed(tiny_model(0), 64); }

TEST(Generate, prompts_longer_than_a_chunk_are_read_in_parts) { expect_same_as_recomputed(tiny_model(0), 8); }

TEST(Generate, a_sliding_window_is_seen_in_the_cache) { expect_same_as_recomputed(tiny_model(5), 8); }

// The state of the first answer is not the second one's.
TEST(Generate, a_carried_state_answers_as_full_recomputation_does) {
  expect_same_as_recomputed(tiny_gla(), 64);
  expect_same_as_recomputed(tiny_gla(), 8);
  expect_same_as_recomputed(tiny_gla(true), 64);
  expect_same_as_recomputed(tiny_gla(true), 8);
  expect_same_as_recomputed(tiny_gla(true), 2);
  expect_same_as_recomputed(tiny_delta(), 8);
}

TEST(Generate, an_encoder_and_a_decoder_answer_as_full_recomputation_does) {
  const ModelSpec model = tiny_t5();
  Generator generator(
      plan_generation({model, std::nullopt, DType::f32, kNew, 8, std::nullopt, 1, kContext}, one_thread()));
  init_base_weights(generator.state(), model, kSeed);
  Recomputation recomputation(model);
  // The second source is shorter than what the first one left.
  for (const int32_t length : {19, 6}) {
    const Ids source = some_prompt(length);
    Ids text;
    const auto check = [&](std::span<const float> logits, int64_t number) {
      const auto expected = recomputation.logits(text, source);
      for (size_t i = 0; i < logits.size(); ++i)
        EXPECT_NEAR(logits[i], expected[i], 1e-4) << "after " << number << " tokens";
      return static_cast<int32_t>(number * 31 + 7) % 96;
    };
    generator.generate(source, kNew, check, [&](int32_t id) {
      text.push_back(id);
      return true;
    });
    EXPECT_EQ(text.size(), static_cast<size_t>(kNew));
  }
  Sampler greedy({});
  EXPECT_THROW(answer(generator, some_prompt(kContext + 1), greedy), UsageError);
}

// The same search without a cache.
std::vector<Hypothesis> recomputed_search(Recomputation& model, const Ids& prompt, bool encodes,
                                          const BeamOptions& options, int64_t vocab, const Ids& ends,
                                          int64_t longest) {
  BeamSearch beams(options, vocab, ends, longest);
  std::vector<Ids> texts(static_cast<size_t>(options.beams), encodes ? Ids{} : prompt);
  for (;;) {
    std::vector<float> logits;
    for (const Ids& text : texts) {
      const auto row = model.logits(text, prompt);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    if (!beams.step(logits)) return beams.best();
    std::vector<Ids> next;
    for (size_t i = 0; i < texts.size(); ++i) {
      next.push_back(texts[static_cast<size_t>(beams.parents()[i])]);
      next.back().push_back(beams.tokens()[i]);
    }
    texts = std::move(next);
  }
}

TEST(Generate, beams_over_a_cache_find_what_full_recomputation_finds) {
  const Ids ends = {7, 11, 13};
  for (const ModelSpec& model : {tiny_model(0), tiny_model(5), tiny_t5(), tiny_delta()}) {
    const bool encodes = model.encoder_decoder.has_value();
    const BeamOptions options{.beams = 5, .length_penalty = 0.5, .best = 5};
    Generator generator(plan_generation({model, std::nullopt, DType::f32, encodes ? kNew : kContext, 8,
                                         std::nullopt, options.beams, encodes ? kContext : 0},
                                        one_thread()));
    init_base_weights(generator.state(), model, kSeed);
    Recomputation recomputation(model);
    for (const int32_t length : {19, 6}) {
      const Ids prompt = some_prompt(length);
      const auto found = generator.search(prompt, 12, options, ends);
      const auto expected = recomputed_search(recomputation, prompt, encodes, options, model.vocab, ends, 12);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].ids, expected[i].ids) << model.family << " " << i;
        EXPECT_NEAR(found[i].score, expected[i].score, 1e-4);
      }
    }
  }
}

TEST(Generate, a_state_of_gated_linear_attention_has_one_sequence) {
  EXPECT_THROW(plan_generation({tiny_gla(), std::nullopt, DType::f32, 8, 8, std::nullopt, 2}, one_thread()),
               UsageError);
}

TEST(Generate, a_state_is_as_large_for_any_context) {
  const auto state_bytes = [](int64_t context) {
    const GenerationPlan plan =
        plan_generation({tiny_gla(), std::nullopt, DType::f32, context}, one_thread());
    int64_t bytes = 0;
    for (const TableRow& row : plan.plan.layout.persistent)
      if (row.role == Role::kv_cache) bytes += row.bytes;
    return std::pair(bytes, plan.plan.device_bytes());
  };
  EXPECT_EQ(state_bytes(256), state_bytes(100'000));
  EXPECT_EQ(state_bytes(256).first, 2 * 2 * 4 * 8 * 4);  // layers, heads, keys, values, f32
}

TEST(Generate, a_prompt_that_begins_as_the_last_one_goes_on_from_the_cache) {
  for (const ModelSpec& model : {tiny_model(0), tiny_model(5), tiny_gla(), tiny_gla(true)}) {
    Generator generator(plan_generation({model, std::nullopt, DType::f32, kContext, 8}, one_thread()));
    init_base_weights(generator.state(), model, kSeed);
    Recomputation recomputation(model);
    Sampler greedy({});
    Ids text = some_prompt(11);
    // Longer by the answer, the same again, shorter, and another one behind a common beginning.
    for (const int step : {0, 1, 2, 3}) {
      if (step == 1) text.insert(text.end(), {5, 6, 7});
      if (step == 2) text.resize(9);
      if (step == 3) text[4] = 90;
      for (const int32_t id : answer(generator, text, greedy, 6, true)) {
        ASSERT_EQ(id, recomputation.next(text)) << "step " << step << ", after " << text.size() << " tokens";
        text.push_back(id);
      }
    }
  }
}

// Many questions to one document.
TEST(Generate, chunks_that_prompts_begin_with_alike_are_computed_once_with_the_same_bits) {
  const auto logits_after = [](Generator& generator, const Ids& prompt) {
    std::vector<std::vector<float>> all;
    generator.generate(
        prompt, 3,
        [&](std::span<const float> logits, int64_t) {
          all.emplace_back(logits.begin(), logits.end());
          return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
        },
        [](int32_t) { return true; });
    return all;
  };
  for (const bool carries_a_state : {false, true}) {
    const ModelSpec model = carries_a_state ? tiny_gla() : tiny_model(0);
    const auto opened = [&] {
      auto generator = std::make_unique<Generator>(
          plan_generation({model, std::nullopt, DType::f32, kContext, 8}, one_thread()));
      init_base_weights(generator->state(), model, kSeed);
      return generator;
    };
    const auto generator = opened();
    int64_t computed = 0;
    const auto expect_computed = [&](const Ids& prompt, int64_t tokens) {
      EXPECT_EQ(logits_after(*generator, prompt), logits_after(*opened(), prompt));
      computed += carries_a_state ? static_cast<int64_t>(prompt.size()) : tokens;
      EXPECT_EQ(generator->prompt_tokens_computed(), computed) << prompt.size() << " tokens";
    };
    Ids prompt = some_prompt(27);
    expect_computed(prompt, 27);
    prompt[21] = 90;
    expect_computed(prompt, 27 - 16);
    expect_computed(prompt, 27 - 24);
    prompt.resize(24);
    expect_computed(prompt, 24 - 16);  // the last token's logits are asked for
    prompt[3] = 91;
    expect_computed(prompt, 24);
    // A cache that was continued is not cut at chunks.
    prompt.resize(12);
    Sampler greedy({});
    answer(*generator, prompt, greedy, 2, true);
    computed = generator->prompt_tokens_computed();
    expect_computed(prompt, 12 - 8);
  }
}

TEST(Generate, an_answer_ends_where_the_context_is_full) {
  const ModelSpec model = tiny_model(0);
  Generator generator(plan_generation({model, std::nullopt, DType::f32, 10, 8}, one_thread()));
  init_base_weights(generator.state(), model, kSeed);
  Sampler greedy({});
  // Nine places for the prompt and its first answers, the last token is chosen but never cached.
  EXPECT_EQ(answer(generator, some_prompt(8), greedy).size(), 3U);
  EXPECT_THROW(answer(generator, some_prompt(11), greedy), UsageError);
  EXPECT_THROW(answer(generator, {}, greedy), UsageError);
  EXPECT_THROW(answer(generator, {96}, greedy), UsageError);
}

TEST(Sampling, narrow_choices_are_greedy) {
  const std::vector<float> logits{1.0F, 3.0F, 3.0F, -2.0F};
  EXPECT_EQ(argmax(logits), 1);
  for (const SamplingOptions& options :
       {SamplingOptions{0.0, 0, 1.0, 1}, SamplingOptions{1.0, 1, 1.0, 1}, SamplingOptions{1.0, 0, 0.0, 1}}) {
    Sampler sampler(options);
    for (int64_t number = 0; number < 20; ++number) EXPECT_EQ(sampler.choose(logits, 0, number), 1);
  }
}

TEST(Sampling, tokens_come_as_often_as_their_probability) {
  // Probabilities 8/11, 2/11, 1/11; the last one lies outside the nucleus of 0.9.
  const std::vector<float> logits{0.0F, std::log(8.0F), std::log(2.0F)};
  std::array<int, 3> all{}, nucleus{};
  Sampler open({1.0, 0, 1.0, 7});
  Sampler narrow({1.0, 0, 0.9, 7});
  constexpr int kDraws = 11000;
  for (int i = 0; i < kDraws; ++i) {
    all[static_cast<size_t>(open.choose(logits, i, 0))] += 1;
    nucleus[static_cast<size_t>(narrow.choose(logits, i, 0))] += 1;
  }
  // Standard deviations are below 50.
  EXPECT_NEAR(all[1], 8000, 250);
  EXPECT_NEAR(all[2], 2000, 250);
  EXPECT_EQ(nucleus[0], 0);
  EXPECT_NEAR(nucleus[1], kDraws * 8 / 10, 250);
  EXPECT_EQ(open.choose(logits, 5, 9), Sampler({1.0, 0, 1.0, 7}).choose(logits, 5, 9));
}

}  // namespace
}  // namespace plimsoll
