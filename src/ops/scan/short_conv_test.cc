#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

struct ConvCase {
  std::string name;
  std::vector<int> lengths;  // of the live sequences; two rows of padding follow
  int width = 5, taps = 4;
  const char* weights = "%";  // type of weights
  Values parents = {};        // of segments of trees; none: sequences apart

  [[nodiscard]] int tokens() const {
    int total = 2;
    for (const int length : lengths) total += length;
    return total;
  }
  [[nodiscard]] std::string rows() const {
    return " %[" + std::to_string(tokens()) + "," + std::to_string(width) + "]";
  }
  [[nodiscard]] std::string weight_shape() const {
    return "[" + std::to_string(width) + ",1," + std::to_string(taps) + "]";
  }
  [[nodiscard]] std::string inputs() const {
    return "tensor x" + rows() + " input\ntensor w " + weights + weight_shape() + " trainable\n";
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
    c.step = {{StepValue::live_sequences, static_cast<double>(lengths.size())},
              {StepValue::live_tokens, tokens() - 2.0}};
    return c;
  }
  [[nodiscard]] OpCase with_starts(const std::string& what) const {
    OpCase c = named(what);
    Values& given = c.given["starts"];
    given = {0};
    for (const int length : lengths) given.push_back(given.back() + length);
    given.push_back(given.back());
    if (!parents.empty()) {
      c.given["parents"] = parents;
      c.given["parents"].push_back(0);
    }
    return c;
  }
  [[nodiscard]] OpCase forward() const {
    OpCase c = with_starts("short_conv");
    c.body = inputs() + starts() + "y" + rows() + " = short_conv(x, w, " + sequences() + ") @a forward\n";
    return c;
  }
  [[nodiscard]] OpCase backward(const char* gradient, int accumulate) const {
    OpCase c = with_starts("short_conv_grad");
    c.body = inputs() + "tensor d_y" + rows() + " input\n" + starts() + "tensor g " + gradient +
             weight_shape() + " gradient\nd_x" + rows() + ", g = short_conv_grad(x, w, d_y, " + sequences() +
             ") {accumulate=" + std::to_string(accumulate) + "} @a backward\n";
    return c;
  }
  // All live tokens in one go, behind `behind` others.
  [[nodiscard]] OpCase cached(int behind) const {
    OpCase c = named("short_conv_cached_behind_" + std::to_string(behind));
    c.step[StepValue::live_sequences] = 1;
    c.step[StepValue::kv_length] = behind;
    c.body = inputs() + "tensor kept %[" + std::to_string(taps - 1) + "," + std::to_string(width) +
             "] kv_cache\ny" + rows() + ", kept = short_conv_cached(x, w, step) @a forward\n";
    return c;
  }
  // Each live token continues a sequence of its own.
  [[nodiscard]] OpCase cached_apart(int behind) const {
    OpCase c = cached(behind);
    c.name = "short_conv_cached_apart_behind_" + std::to_string(behind) + "_" + name;
    const int sequences = tokens();
    const std::string one = "kept %[" + std::to_string(taps - 1) + ",", step = "step)";
    c.body.replace(c.body.find(one), one.size(), "kept %[" + std::to_string(sequences * (taps - 1)) + ",");
    c.body.replace(c.body.find(step), step.size(),
                   "step) {apart=1, sequences=" + std::to_string(sequences) + "}");
    return c;
  }
};

const ConvCase kShort{.name = "short", .lengths = {1, 2, 3, 9}};
// Finite differences cost the square of what is differentiated: long and broad apart, where `kWide` is both.
const ConvCase kLong{.name = "long", .lengths = {70, 5}, .width = 8, .taps = 3};
const ConvCase kBroad{.name = "broad", .lengths = {3, 2}, .width = 150, .taps = 3};
const ConvCase kWide{.name = "wide", .lengths = {70, 5}, .width = 150, .taps = 3};
const ConvCase kManyTaps{.name = "many_taps", .lengths = {3, 40}, .width = 16, .taps = 16};
const ConvCase kWideWeights{.name = "f32_weights", .lengths = {7, 5}, .width = 20, .weights = "f32"};
const ConvCase kOneToken{.name = "one_token", .lengths = {1}, .width = 70};
const ConvCase kFiveTokens{.name = "five_tokens", .lengths = {5}, .width = 70};
const ConvCase kTwoTaps{.name = "two_taps", .lengths = {5}, .width = 33, .taps = 2};

// Segments shorter than the taps reach.
const ConvCase kConvTree{
    .name = "over_trees", .lengths = {2, 1, 5, 1, 3, 2, 4, 3, 6}, .parents = {-1, 0, 0, 2, 3, 2, 0, -1, 7}};
const ConvCase kConvTreeOfManyTaps{.name = "over_trees_of_many_taps",
                                   .lengths = {3, 1, 5, 2, 9, 3, 2, 5, 4},
                                   .width = 20,
                                   .taps = 9,
                                   .parents = {-1, 0, 1, 2, 1, 0, 5, 5, -1}};

[[maybe_unused]] const bool kShortConvCases = register_cases({kConvTree.forward(),
                                                              kConvTree.backward("f32", 0),
                                                              kConvTreeOfManyTaps.forward(),
                                                              kConvTreeOfManyTaps.backward("%", 1),
                                                              kShort.forward(),
                                                              kLong.forward(),
                                                              kBroad.forward(),
                                                              kManyTaps.forward(),
                                                              kWideWeights.forward(),
                                                              kShort.backward("f32", 0),
                                                              kWide.backward("%", 1),
                                                              kManyTaps.backward("f32", 1),
                                                              kWideWeights.backward("f32", 0),
                                                              kWide.cached(9),
                                                              kManyTaps.cached(0),
                                                              kOneToken.cached(9),
                                                              kOneToken.cached(0),
                                                              kTwoTaps.cached(1),
                                                              kFiveTokens.cached_apart(9),
                                                              kFiveTokens.cached_apart(0)});

}  // namespace
}  // namespace plimsoll::harness
