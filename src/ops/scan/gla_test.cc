#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

struct GlaCase {
  std::string name;
  std::vector<int> lengths;  // of the live sequences; two rows of padding follow
  int heads = 1, kv_heads = 1, keys = 4, values = 4;
  Values gates = {};  // given in turn; none: random
  double normalizer = 16, clamp_min = -1e30;
  double slack = 4;
  bool tells_slopes = true;  // by finite differences
  std::vector<DType> dtypes = {DType::f32, DType::bf16};
  Values parents = {};  // of segments of trees; none: sequences apart

  [[nodiscard]] int tokens() const {
    int total = 2;
    for (const int length : lengths) total += length;
    return total;
  }
  [[nodiscard]] std::string shape(int width) const {
    return " %[" + std::to_string(tokens()) + "," + std::to_string(width) + "]";
  }
  [[nodiscard]] std::string attributes() const {
    return "{clamp_min=" + std::to_string(clamp_min) + ", heads=" + std::to_string(heads) +
           ", kv_heads=" + std::to_string(kv_heads) + ", normalizer=" + std::to_string(normalizer) +
           ", scale=0.5}";
  }
  [[nodiscard]] std::string inputs() const {
    const auto input = [&](const char* name, int width) {
      return "tensor " + (name + shape(width)) + " input\n";
    };
    return input("q", heads * keys) + input("k", kv_heads * keys) + input("v", kv_heads * values) +
           input("gate", kv_heads * keys);
  }
  // One sequence more than there are live ones, as padding leaves it.
  [[nodiscard]] std::string starts() const {
    const std::string parent = "tensor parents i32[" + std::to_string(lengths.size() + 1) + "] input\n";
    return "tensor starts i32[" + std::to_string(lengths.size() + 2) + "] input\n" +
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
    const int64_t inputs = int64_t{tokens()} * (heads * keys + kv_heads * (2 * keys + values));
    constexpr int64_t kMostProducts = 10'000'000;
    c.differences = tells_slopes && inputs * tokens() * heads * keys * values <= kMostProducts;
    c.step = {{StepValue::live_sequences, static_cast<double>(lengths.size())},
              {StepValue::live_tokens, tokens() - 2.0}};
    if (gates.empty()) return c;
    Values& given = c.given["gate"];
    for (int i = 0; i < tokens() * kv_heads * keys; ++i)
      given.push_back(gates[static_cast<size_t>(i) % gates.size()]);
    return c;
  }
  void give_starts(OpCase& c) const {
    Values& given = c.given["starts"];
    given = {0};
    for (const int length : lengths) given.push_back(given.back() + length);
    given.push_back(given.back());
    if (parents.empty()) return;
    c.given["parents"] = parents;
    c.given["parents"].push_back(0);
  }

  [[nodiscard]] OpCase forward() const {
    OpCase c = named("gla");
    give_starts(c);
    c.body = inputs() + starts() + "o" + shape(heads * values) + " = gla(q, k, v, gate, " + sequences() +
             ") " + attributes() + " @a forward\n";
    return c;
  }
  [[nodiscard]] OpCase backward() const {
    OpCase c = named("gla_grad");
    give_starts(c);
    c.body = inputs() + "tensor d_o" + shape(heads * values) + " input\n" + starts() + "d_q" +
             shape(heads * keys) + ", d_k" + shape(kv_heads * keys) + ", d_v" + shape(kv_heads * values) +
             ", d_gate" + shape(kv_heads * keys) + " = gla_grad(q, k, v, gate, d_o, " + sequences() + ") " +
             attributes() + " @a backward\n";
    return c;
  }
  // All live tokens in one go, behind `behind` others.
  [[nodiscard]] OpCase cached(int behind) const {
    OpCase c = named("gla_cached");
    c.step[StepValue::live_sequences] = 1;
    c.step[StepValue::kv_length] = behind;
    c.body = inputs() + "tensor state f32[" + std::to_string(kv_heads * keys) + "," + std::to_string(values) +
             "] kv_cache\no" + shape(heads * values) + ", state = gla_cached(q, k, v, gate, step) " +
             attributes() + " @a forward\n";
    return c;
  }
};

const GlaCase kShort{
    .name = "short", .lengths = {1, 15, 16, 17}, .heads = 2, .kv_heads = 1, .keys = 3, .values = 5};
const GlaCase kGrouped{
    .name = "grouped", .lengths = {20, 70}, .heads = 4, .kv_heads = 2, .keys = 6, .values = 5};
const GlaCase kChunks{.name = "chunks", .lengths = {63, 64, 65}, .keys = 3, .values = 2};
const GlaCase kTwoChunks{
    .name = "more_than_two_chunks", .lengths = {130}, .heads = 2, .keys = 2, .values = 3};
// Gates that forget all at once (log decay -50), hardly anything, and in between; every key meets each.
const Values kHardGates = {-50, 30, 2, -50, -1, 30, 5, 30, 0, -20, 30};
const GlaCase kHard{
    .name = "hard_gates", .lengths = {70, 20}, .keys = 3, .values = 3, .gates = kHardGates, .normalizer = 1};
const GlaCase kOnlyHard{
    .name = "all_forgotten", .lengths = {70}, .keys = 2, .values = 2, .gates = {-50}, .normalizer = 1};
// Half of the decays are clamped.
const GlaCase kClamped{.name = "clamped",
                       .lengths = {40},
                       .keys = 3,
                       .values = 3,
                       .gates = {-1.3, 0.4, 2.1, -3, 1.9},
                       .normalizer = 2,
                       .clamp_min = -0.3};
const GlaCase kWide{.name = "wide", .lengths = {70, 5}, .heads = 2, .kv_heads = 2, .keys = 20, .values = 150};
// More chunks than states are kept of at once, in several sequences.
const GlaCase kMany{.name = "many_chunks", .lengths = {600, 3, 700, 64}, .heads = 2, .slack = 10};
// Each length around a sub-chunk's and a chunk's end; most sequences begin within what would be a chunk of
// the whole axis.
const GlaCase kEdges{.name = "edges",
                     .lengths = {1, 15, 16, 17, 63, 64, 65, 130},
                     .heads = 2,
                     .kv_heads = 1,
                     .keys = 8,
                     .values = 8};
// Log decays of -20 a token, but for one key in 17; hardly any at all. Differences cannot tell such slopes.
const GlaCase kSteep{
    .name = "steep",
    .lengths = {65, 130},
    .keys = 3,
    .values = 2,
    .gates = {-20, -20, -20, -20, -20, -20, -20, -20, 0, -20, -20, -20, -20, -20, -20, -20, -20},
    .normalizer = 1,
    .tells_slopes = false};
const GlaCase kFlat{.name = "flat",
                    .lengths = {130},
                    .keys = 3,
                    .values = 2,
                    .gates = {30},
                    .normalizer = 1,
                    .slack = 10,
                    .tells_slopes = false};
const GlaCase kSteepAndFlat{.name = "steep_and_flat",
                            .lengths = {17, 130},
                            .keys = 3,
                            .values = 2,
                            .gates = {-20, 30, 30, 30, 30, 3, 30},
                            .normalizer = 1,
                            .slack = 10};
// Heads as models have them.
const GlaCase kHeads64{
    .name = "heads_of_64", .lengths = {65, 17}, .heads = 2, .kv_heads = 1, .keys = 64, .values = 64};
const GlaCase kHeads128{.name = "heads_of_128_and_64", .lengths = {130}, .keys = 128, .values = 64};
const GlaCase kHeads256{
    .name = "heads_of_256_and_512", .lengths = {66}, .keys = 256, .values = 512, .dtypes = {DType::bf16}};
// Rows that no pack of 16 bytes divides, over several blocks of keys and of values.
const GlaCase kOdd{.name = "odd", .lengths = {3, 66}, .heads = 4, .kv_heads = 2, .keys = 71, .values = 131};
const GlaCase kManyKeys{.name = "more_than_256_keys", .lengths = {5, 66}, .keys = 300, .values = 8};
const GlaCase kOneToken{
    .name = "one_token", .lengths = {1}, .heads = 6, .kv_heads = 3, .keys = 20, .values = 150};

// Two trees: the first's root has three children, the second of these two, and the first of those one; the
// other's root has one.
const Values kGlaParents = {-1, 0, 0, 2, 3, 2, 0, -1, 7};
const GlaCase kGlaTree{.name = "over_trees",
                       .lengths = {5, 3, 20, 1, 17, 2, 4, 3, 6},
                       .heads = 2,
                       .kv_heads = 1,
                       .keys = 3,
                       .values = 2,
                       .parents = kGlaParents};
// Forks on both sides of a chunk's end, and farther apart than states are kept at once.
const GlaCase kLargeGlaTree{.name = "over_large_trees",
                            .lengths = {64, 65, 130, 63, 330, 1, 300, 70, 128},
                            .heads = 2,
                            .keys = 8,
                            .values = 8,
                            .slack = 10,
                            .parents = kGlaParents};

[[maybe_unused]] const bool kGlaCases = register_cases(
    {kGlaTree.forward(),  kGlaTree.backward(),     kLargeGlaTree.forward(),  kLargeGlaTree.backward(),
     kShort.forward(),    kChunks.forward(),       kTwoChunks.forward(),     kHard.forward(),
     kClamped.forward(),  kShort.backward(),       kChunks.backward(),       kHard.backward(),
     kClamped.backward(), kWide.backward(),        kMany.backward(),         kWide.cached(9),
     kMany.cached(9),     kOneToken.cached(9),     kHard.cached(0),          kOnlyHard.cached(2),
     kGrouped.backward(), kGrouped.cached(2),      kManyKeys.cached(3),      kEdges.forward(),
     kEdges.backward(),   kSteep.forward(),        kSteep.backward(),        kFlat.forward(),
     kFlat.backward(),    kSteepAndFlat.forward(), kSteepAndFlat.backward(), kHeads64.forward(),
     kHeads64.backward(), kHeads128.backward(),    kHeads256.backward(),     kOdd.forward(),
     kOdd.backward()});

}  // namespace
}  // namespace plimsoll::harness
