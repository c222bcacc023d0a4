#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

struct DeltaCase {
  std::string name;
  std::vector<int> lengths;  // of the live sequences; two rows of padding follow
  int heads = 1, key_heads = 1, keys = 4, values = 4;
  Values decays = {-0.3, -0.02, -1.1, 0, -0.7, -2.5, -0.001};  // logarithms, given in turn
  Values betas = {0.7, 0.2, 0.95, 0.5, 0, 0.4, 1, 0.85, 0.6};
  double slack = 4;
  bool tells_slopes = true;  // by finite differences
  std::vector<DType> dtypes = {DType::f32, DType::bf16};
  Values parents = {};  // of segments of trees; none: sequences apart
  int at_once = 0;  // chunks of one sequence, on a GPU; 0: as the rule has it, and a sequence more as room

  [[nodiscard]] int tokens() const {
    int total = 2;
    for (const int length : lengths) total += length;
    return total;
  }
  [[nodiscard]] std::string shape(int width) const {
    return " %[" + std::to_string(tokens()) + "," + std::to_string(width) + "]";
  }
  [[nodiscard]] std::string gates() const {
    return " f32[" + std::to_string(tokens()) + "," + std::to_string(heads) + "]";
  }
  [[nodiscard]] std::string attributes() const {
    const std::string stretches = at_once > 0 ? "chunks_at_once=" + std::to_string(at_once) + ", " : "";
    return "{" + stretches + "eps=1e-06, heads=" + std::to_string(heads) +
           ", key_heads=" + std::to_string(key_heads) + "}";
  }
  [[nodiscard]] std::string inputs() const {
    const auto input = [&](const char* name, int width) {
      return "tensor " + (name + shape(width)) + " input\n";
    };
    return input("q", key_heads * keys) + input("k", key_heads * keys) + input("v", heads * values) +
           "tensor g" + gates() + " input\ntensor beta" + gates() + " input\n";
  }
  // One sequence more than there are live ones, as padding leaves it.
  [[nodiscard]] std::string starts() const {
    const std::string parent = "tensor parents i32[" + std::to_string(lengths.size() + 1) + "] input\n";
    return "tensor starts i32[" + std::to_string(lengths.size() + (at_once > 0 ? 1 : 2)) + "] input\n" +
           (parents.empty() ? "" : parent);
  }
  [[nodiscard]] std::string sequences() const {
    return parents.empty() ? "starts, step" : "starts, step, parents";
  }
  [[nodiscard]] OpCase named(const std::string& what) const {
    OpCase c;
    c.name = what + "_" + name;
    c.slack = slack;
    c.dtypes = dtypes;
    const int64_t inputs = int64_t{tokens()} * (2 * key_heads * keys + heads * (values + 2));
    constexpr int64_t kMostProducts = 10'000'000;
    c.differences = tells_slopes && inputs * tokens() * heads * keys * values <= kMostProducts;
    c.step = {{StepValue::live_sequences, static_cast<double>(lengths.size())},
              {StepValue::live_tokens, tokens() - 2.0}};
    for (int i = 0; i < tokens() * heads; ++i) {
      c.given["g"].push_back(decays[static_cast<size_t>(i) % decays.size()]);
      c.given["beta"].push_back(betas[static_cast<size_t>(i) % betas.size()]);
    }
    return c;
  }
  void give_starts(OpCase& c) const {
    Values& given = c.given["starts"];
    given = {0};
    for (const int length : lengths) given.push_back(given.back() + length);
    if (at_once == 0) given.push_back(given.back());
    if (parents.empty()) return;
    c.given["parents"] = parents;
    c.given["parents"].push_back(0);
  }

  [[nodiscard]] OpCase forward() const {
    OpCase c = named("delta_rule");
    give_starts(c);
    c.body = inputs() + starts() + "o" + shape(heads * values) + " = delta_rule(q, k, v, g, beta, " +
             sequences() + ") " + attributes() + " @a forward\n";
    return c;
  }
  [[nodiscard]] OpCase backward() const {
    OpCase c = named("delta_rule_grad");
    give_starts(c);
    c.body = inputs() + "tensor d_o" + shape(heads * values) + " input\n" + starts() + "d_q" +
             shape(key_heads * keys) + ", d_k" + shape(key_heads * keys) + ", d_v" + shape(heads * values) +
             ", d_g" + gates() + ", d_beta" + gates() + " = delta_rule_grad(q, k, v, g, beta, d_o, " +
             sequences() + ") " + attributes() + " @a backward\n";
    return c;
  }
  // All live tokens in one go, behind `behind` others.
  [[nodiscard]] OpCase cached(int behind) const {
    OpCase c = named("delta_rule_cached_behind_" + std::to_string(behind));
    c.step[StepValue::live_sequences] = 1;
    c.step[StepValue::kv_length] = behind;
    c.body = inputs() + "tensor state f32[" + std::to_string(heads * keys) + "," + std::to_string(values) +
             "] kv_cache\no" + shape(heads * values) +
             ", state = delta_rule_cached(q, k, v, g, beta, step) " + attributes() + " @a forward\n";
    return c;
  }
  // Each live token continues a sequence of its own.
  [[nodiscard]] OpCase cached_apart(int behind) const {
    OpCase c = cached(behind);
    c.name = "delta_rule_cached_apart_behind_" + std::to_string(behind) + "_" + name;
    const std::string one = "state f32[" + std::to_string(heads * keys) + ",";
    const std::string all = "state f32[" + std::to_string((tokens()) * heads * keys) + ",";
    c.body.replace(c.body.find(one), one.size(), all);
    c.body.replace(c.body.find("{eps"), 1, "{apart=1, ");
    c.body.replace(c.body.find("key_heads=" + std::to_string(key_heads)) + 10,
                   std::to_string(key_heads).size(),
                   std::to_string(key_heads) + ", sequences=" + std::to_string(tokens()));
    return c;
  }
};

const DeltaCase kDeltaShort{
    .name = "short", .lengths = {1, 15, 16, 17}, .heads = 2, .key_heads = 1, .keys = 3, .values = 5};
const DeltaCase kDeltaGrouped{
    .name = "grouped", .lengths = {20, 70}, .heads = 4, .key_heads = 2, .keys = 6, .values = 5, .slack = 8};
const DeltaCase kDeltaChunks{.name = "chunks", .lengths = {63, 64, 65}, .keys = 3, .values = 2};
// More chunks than states are kept of at once, in several sequences.
const DeltaCase kDeltaMany{.name = "many_chunks", .lengths = {3, 1030}, .heads = 2, .slack = 10};
// Gates that forget all at once, hardly anything, and in between.
const DeltaCase kDeltaHard{.name = "hard_gates",
                           .lengths = {70, 20},
                           .heads = 2,
                           .keys = 3,
                           .values = 3,
                           .decays = {-1000, -1e-4, -2, -1000, -0.1, -1e-3, -60, 0, -0.02, -0.5, -1e-5},
                           .tells_slopes = false};
const DeltaCase kDeltaOnlyHard{.name = "all_forgotten",
                               .lengths = {70},
                               .keys = 2,
                               .values = 2,
                               .decays = {-1000},
                               .tells_slopes = false};
// Nothing is forgotten.
const DeltaCase kDeltaFlat{.name = "flat",
                           .lengths = {130},
                           .keys = 6,
                           .values = 2,
                           .decays = {0},
                           .slack = 10,
                           .tells_slopes = false};
// Up to e^-60 a token.
const DeltaCase kDeltaSteep{.name = "steep",
                            .lengths = {65, 130},
                            .keys = 3,
                            .values = 2,
                            .decays = {-60, -0.01, -20, -3, -0.3, -45},
                            .tells_slopes = false};
const DeltaCase kDeltaNoStrength{.name = "no_strength", .lengths = {20}, .betas = {0}, .tells_slopes = false};
// Heads as models have them.
const DeltaCase kDeltaHeads128{.name = "heads_of_128",
                               .lengths = {65, 130},
                               .heads = 2,
                               .key_heads = 1,
                               .keys = 128,
                               .values = 128,
                               .slack = 8};
const DeltaCase kDeltaWide{
    .name = "wide", .lengths = {70, 5}, .heads = 2, .key_heads = 2, .keys = 20, .values = 150, .slack = 8};
// Rows that no pack of 16 bytes divides.
const DeltaCase kDeltaOdd{
    .name = "odd", .lengths = {3, 66}, .heads = 2, .keys = 71, .values = 67, .slack = 8};
const DeltaCase kDeltaOneToken{
    .name = "one_token", .lengths = {1}, .heads = 6, .key_heads = 3, .keys = 20, .values = 150};

const DeltaCase kDeltaFive{
    .name = "five_tokens", .lengths = {5}, .heads = 4, .key_heads = 2, .keys = 20, .values = 38};

// One sequence whose stretches end where it does, and within a chunk.
const DeltaCase kDeltaStretches{.name = "in_stretches",
                                .lengths = {256},
                                .heads = 2,
                                .keys = 3,
                                .values = 2,
                                .slack = 8,
                                .tells_slopes = false,
                                .at_once = 2};
const DeltaCase kDeltaPieces{.name = "in_pieces",
                             .lengths = {215},
                             .heads = 2,
                             .key_heads = 2,
                             .keys = 3,
                             .values = 2,
                             .slack = 8,
                             .tells_slopes = false,
                             .at_once = 1};

// Two trees: the first's root has three children, the second of these two, and the first of those one; the
// other's root has one.
const Values kDeltaParents = {-1, 0, 0, 2, 3, 2, 0, -1, 7};
const DeltaCase kDeltaTree{.name = "over_trees",
                           .lengths = {5, 3, 20, 1, 17, 2, 4, 3, 6},
                           .heads = 2,
                           .key_heads = 1,
                           .keys = 3,
                           .values = 2,
                           .parents = kDeltaParents};
// Forks on both sides of a chunk's end, and farther apart than states are kept at once.
const DeltaCase kDeltaLargeTree{.name = "over_large_trees",
                                .lengths = {64, 65, 130, 63, 330, 1, 300, 70, 128},
                                .heads = 2,
                                .keys = 8,
                                .values = 8,
                                .slack = 10,
                                .parents = kDeltaParents};

[[maybe_unused]] const bool kDeltaCases =
    register_cases({kDeltaTree.forward(),       kDeltaTree.backward(),      kDeltaLargeTree.forward(),
                    kDeltaLargeTree.backward(), kDeltaShort.forward(),      kDeltaShort.backward(),
                    kDeltaGrouped.forward(),    kDeltaGrouped.backward(),   kDeltaGrouped.cached(2),
                    kDeltaChunks.forward(),     kDeltaChunks.backward(),    kDeltaMany.backward(),
                    kDeltaHard.forward(),       kDeltaHard.backward(),      kDeltaHard.cached(0),
                    kDeltaOnlyHard.forward(),   kDeltaOnlyHard.backward(),  kDeltaOnlyHard.cached(2),
                    kDeltaFlat.forward(),       kDeltaFlat.backward(),      kDeltaSteep.forward(),
                    kDeltaSteep.backward(),     kDeltaNoStrength.forward(), kDeltaNoStrength.backward(),
                    kDeltaHeads128.forward(),   kDeltaHeads128.backward(),  kDeltaWide.backward(),
                    kDeltaWide.cached(9),       kDeltaOdd.forward(),        kDeltaOdd.backward(),
                    kDeltaOneToken.cached(9),   kDeltaOneToken.cached(0),   kDeltaFive.cached_apart(9),
                    kDeltaFive.cached_apart(0), kDeltaStretches.forward(),  kDeltaStretches.backward(),
                    kDeltaPieces.forward(),     kDeltaPieces.backward()});

// Logits and weights of the gates.
OpCase delta_gate(const std::string& name, int tokens, int heads, const std::string& weights, int live) {
  const std::string rows = "[" + std::to_string(tokens) + "," + std::to_string(heads) + "]";
  const std::string weight = weights + "[" + std::to_string(heads) + "] trainable\n";
  return {.name = "delta_gate_" + name,
          .body = "tensor a %" + rows + " input\ntensor b %" + rows + " input\ntensor a_log " + weight +
                  "tensor dt_bias " + weight + "g f32" + rows + ", beta f32" + rows +
                  " = delta_gate(a, b, a_log, dt_bias) @a forward\n",
          .step = {{StepValue::live_tokens, live}},
          .slack = 4};
}
OpCase delta_gate_grad(const std::string& name, int tokens, int heads, const std::string& weights,
                       const std::string& gradients, int live, int accumulate) {
  const std::string rows = "[" + std::to_string(tokens) + "," + std::to_string(heads) + "]";
  const std::string width = "[" + std::to_string(heads) + "]", weight = weights + width + " trainable\n";
  const std::string gradient = gradients + width + " gradient\n", input = rows + " input\n";
  return {.name = "delta_gate_grad_" + name,
          .body = "tensor a %" + input + "tensor b %" + input + "tensor a_log " + weight + "tensor dt_bias " +
                  weight + "tensor d_g f32" + input + "tensor d_beta f32" + input + "tensor of_a_log " +
                  gradient + "tensor of_bias " + gradient + "d_a %" + rows + ", d_b %" + rows +
                  ", of_a_log, of_bias = delta_gate_grad(a, b, a_log, dt_bias, d_g, d_beta, step) "
                  "{accumulate=" +
                  std::to_string(accumulate) + ", accumulate_bias=" + std::to_string(1 - accumulate) +
                  "} @a backward\n",
          .step = {{StepValue::live_tokens, live}},
          .slack = 10};
}

[[maybe_unused]] const bool kDeltaGateCases = register_cases(
    {delta_gate("short", 5, 3, "%", 5),
     delta_gate("of_f32_weights", 9, 33, "f32", 9),
     delta_gate_grad("short", 5, 3, "%", "f32", 4, 0),
     delta_gate_grad("long", 700, 18, "f32", "f32", 650, 1),
     delta_gate_grad("of_own_type", 300, 8, "%", "%", 300, 0),
     {.name = "delta_gate_grad_of_frozen_weights",
      .body =
          "tensor a %[4,3] input\ntensor b %[4,3] input\ntensor a_log %[3] frozen\ntensor dt_bias %[3] frozen\n"
          "tensor d_g f32[4,3] input\ntensor d_beta f32[4,3] input\n"
          "d_a %[4,3], d_b %[4,3], -, - = delta_gate_grad(a, b, a_log, dt_bias, d_g, d_beta, step) "
          "{accumulate=0, accumulate_bias=0} @a backward\n"}});

}  // namespace
}  // namespace plimsoll::harness
