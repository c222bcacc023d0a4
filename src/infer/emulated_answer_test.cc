// Answers of the emulated card compared with the CPU's, and its memory compared with the plan.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "infer/generator.h"
#include "infer/sampling.h"
#include "infer/test_models.h"

namespace plimsoll::test {
namespace {

using Ids = std::vector<int32_t>;

constexpr int64_t kContext = 40, kNew = 6, kPage = 4 * kKiB;
constexpr uint64_t kSeed = 3;

InferenceDevice requested(DeviceChoice choice, UseGraphs graphs = UseGraphs::off) {
  return {cpu_settings({std::nullopt, 1}), choice, "", graphs};
}

struct AnswerCase {
  const char* name;
  ModelSpec model;
  bool lora = false, nf4 = false;
  DType dtype = DType::f32;
  int64_t beams = 1;
  UseGraphs graphs = UseGraphs::off;  // of the card
  bool int8 = false;
};

// The same model on both devices.
class Pair {
 public:
  explicit Pair(const AnswerCase& c)
      : cpu_(plan_generation(request(c), requested(DeviceChoice::cpu))),
        card_(plan_generation(request(c), requested(DeviceChoice::emulated, c.graphs))) {
    init_base_weights(cpu_.state(), c.model, kSeed);
    init_adapters(cpu_.state(), kSeed);
    // B is zero in a new adapter.
    for (const TableRow& row : cpu_.state().rows())
      if (is_adapter(row)) {
        const ResidentValues<float> values(cpu_.state(), row);
        for (size_t i = 0; i < values.span().size(); ++i)
          values.span()[i] += 0.02F * static_cast<float>(i % 7);
      }
    const PersistentState from = cpu_.state(), to = card_.state();
    for (const TableRow& row : from.rows()) {
      std::vector<std::byte> bytes(static_cast<size_t>(row.bytes));
      from.read(row, 0, bytes);
      to.write(*to.find(row.name), 0, bytes);
    }
  }

  Generator& cpu() { return cpu_; }
  Generator& card() { return card_; }

 private:
  static GenerationRequest request(const AnswerCase& c) {
    GenerationRequest request;
    request.model = c.model;
    request.compute = c.dtype;
    request.context = kContext;
    request.prefill = 8;
    request.sequences = c.beams;
    if (c.model.encoder_decoder) request.source = std::exchange(request.context, kNew);
    if (c.lora) request.lora = LoraOptions{.r = 4};
    if (c.nf4) request.quantisation = QuantiseOptions{};
    if (c.int8) request.quantisation = QuantiseOptions{.format = WeightFormat::int8};
    return request;
  }

  Generator cpu_, card_;
};

Ids some_prompt(int32_t length) {
  Ids ids;
  for (int32_t i = 0; i < length; ++i) ids.push_back((i * 37 + 11) % 96);
  return ids;
}

// The likeliest tokens, with the logits that they were chosen by.
struct Answered {
  Ids ids;
  std::vector<float> logits;
};
Answered answer(Generator& generator, const Ids& prompt, bool go_on) {
  Answered result;
  generator.generate(
      prompt, kNew,
      [&](std::span<const float> logits, int64_t) {
        result.logits.insert(result.logits.end(), logits.begin(), logits.end());
        return argmax(logits);
      },
      [&](int32_t id) {
        result.ids.push_back(id);
        return true;
      },
      go_on);
  return result;
}

class EmulatedAnswers : public ::testing::TestWithParam<AnswerCase> {};

TEST_P(EmulatedAnswers, are_the_cpus_with_a_cache_that_goes_on) {
  Pair pair(GetParam());
  const double near = GetParam().dtype == DType::f32 ? 1e-4 : 0.1;
  for (const int32_t length : {19, 23, 5}) {
    const Ids prompt = some_prompt(length);
    const Answered expected = answer(pair.cpu(), prompt, true), found = answer(pair.card(), prompt, true);
    if (GetParam().dtype == DType::f32) {
      EXPECT_EQ(found.ids, expected.ids) << "after " << length;
    }
    // If the answers differ, only the prompt's logits are compared: those behind other tokens are of another
    // answer.
    const auto vocab = static_cast<size_t>(GetParam().model.vocab);
    for (size_t i = 0; i < (found.ids == expected.ids ? expected.logits.size() : vocab); ++i)
      ASSERT_NEAR(found.logits[i], expected.logits[i], near) << "after " << length << ", logit " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, EmulatedAnswers,
    ::testing::Values(AnswerCase{"llama", tiny_model(0)}, AnswerCase{"window", tiny_model(5)},
                      AnswerCase{"phi", tiny_phi()}, AnswerCase{"t5", tiny_t5(1.0)},
                      AnswerCase{"gla", tiny_gla(true)}, AnswerCase{"delta", tiny_delta()},
                      AnswerCase{"lora", tiny_model(0), true}, AnswerCase{"qlora", tiny_model(0), true, true},
                      AnswerCase{.name = "qlora_int8", .model = tiny_model(0), .lora = true, .int8 = true},
                      AnswerCase{"bf16", tiny_model(0), false, false, DType::bf16},
                      AnswerCase{"f16", tiny_gla(), false, false, DType::f16}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(EmulatedAnswers, of_beams_are_the_cpus) {
  const BeamOptions options{.beams = 3, .length_penalty = 0.5, .best = 3};
  for (const ModelSpec& model : {tiny_model(0), tiny_t5(1.0), tiny_delta()}) {
    Pair pair({.name = "", .model = model, .beams = options.beams});
    const auto expected = pair.cpu().search(some_prompt(9), kNew, options, {7, 11, 13});
    const auto found = pair.card().search(some_prompt(9), kNew, options, {7, 11, 13});
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].ids, expected[i].ids) << i;
      EXPECT_NEAR(found[i].score, expected[i].score, 1e-4) << i;
    }
  }
}

TEST(EmulatedAnswers, of_captured_graphs_have_the_same_bits_and_as_many_nodes_as_planned) {
  for (const ModelSpec& model : {tiny_model(0), tiny_gla(true), tiny_t5(1.0)}) {
    AnswerCase c{"", model};
    Pair plain(c);
    c.graphs = UseGraphs::on;
    Pair captured(c);
    for (const int32_t length : {19, 23, 5}) {
      const Answered expected = answer(plain.card(), some_prompt(length), true);
      const Answered found = answer(captured.card(), some_prompt(length), true);
      EXPECT_EQ(found.ids, expected.ids);
      EXPECT_EQ(found.logits, expected.logits);
    }
    EXPECT_EQ(plain.card().device().graph_use().graphs, 0);
    const GenerationPlan& plan = captured.card().plan();
    const Device::GraphUse used = captured.card().device().graph_use();
    EXPECT_EQ(used.graphs, 2);
    EXPECT_EQ(used.nodes, plan.plan.graphs[0].nodes + plan.plan.graphs[1].nodes);
    EXPECT_EQ(plan.graphs().bytes, used.bytes);
    EXPECT_EQ(plan.plan.device_bytes(), plain.card().plan().plan.device_bytes() + plan.graphs().counted());
  }
}

TEST(EmulatedAnswers, of_beams_are_those_of_captured_graphs) {
  const BeamOptions options{.beams = 3, .length_penalty = 0.5, .best = 3};
  AnswerCase c{.name = "", .model = tiny_model(0), .beams = options.beams};
  Pair plain(c);
  c.graphs = UseGraphs::on;
  Pair captured(c);
  const auto expected = plain.card().search(some_prompt(9), kNew, options, {7, 11, 13});
  const auto found = captured.card().search(some_prompt(9), kNew, options, {7, 11, 13});
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].ids, expected[i].ids);
    EXPECT_EQ(found[i].score, expected[i].score);
  }
  EXPECT_GE(captured.card().device().graph_use().graphs, 1);
}

TEST(EmulatedAnswers, take_what_was_planned_of_the_card) {
  for (const int64_t beams : {1, 3}) {
    Pair pair({.name = "", .model = tiny_model(0), .beams = beams});
    const GenerationPlan& plan = pair.card().plan();
    const auto left = pair.card().device().memory_left();
    ASSERT_TRUE(left.has_value());
    EXPECT_EQ(left->total - left->free,
              round_up(plan.plan.arena_bytes(), kPage) + round_up(plan.plan.spare_bytes, kPage));
    EXPECT_EQ(plan.plan.spare_bytes > 0, beams > 1);
  }
}

}  // namespace
}  // namespace plimsoll::test
