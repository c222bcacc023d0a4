#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

// Two live sequences of three planned ones, then two rows of padding.
const Values kStarts = {0, 5, 12, 12};
const std::map<StepValue, double> kStep = {{StepValue::live_tokens, 12}, {StepValue::live_sequences, 2}};

// The axis of the keys in cases that have one of their own.
constexpr AxisId kKeys = 3;

// A case's inputs in addition to q, k, v: attributes, and the operands behind `step`.
struct Form {
  std::string attributes;  // behind those that every attention has
  std::string operands = "";
  std::string tensors = "";
  bool biased = false;
  int64_t key_rows = 14;
};

// The table of biases, trained or frozen.
enum class Table : uint8_t { trains, frozen };

std::string operands_text(const Form& form) {
  const std::string keys = std::to_string(form.key_rows);
  return "tensor q %[14,32] input\ntensor k %[" + keys + ",16] input\ntensor v %[" + keys +
         ",16] input\ntensor starts i32[4] input\n" + form.tensors;
}
std::string forward(const Form& form) {
  return operands_text(form) + "o %[14,32], lse f32[14,4] = attention(q, k, v, starts, step" + form.operands +
         ") {head_dim=8, length=7, " + form.attributes + "} @a forward\n";
}
std::string backward(const Form& form, Table table = Table::trains) {
  const std::string keys = std::to_string(form.key_rows);
  const bool trains = form.biased && table == Table::trains;
  return "tensor d_o %[14,32] input\n" + std::string(trains ? "tensor table.grad f32[8,4] gradient\n" : "") +
         forward(form) + "d_q %[14,32], d_k %[" + keys + ",16], d_v %[" + keys + ",16]" +
         (trains        ? ", table.grad"
          : form.biased ? ", -"
                        : "") +
         " = attention_grad(q, k, v, o, lse, d_o, starts, step" + form.operands + ") {" +
         (trains ? "accumulate=0, " : "") + "head_dim=8, length=7, " + form.attributes + "} @a backward\n";
}

const Form kPlain{"window=0"};
const Form kWindow{"window=3"};
// A cap that most logits of these cases feel.
const Form kCapped{"scale=2.0, softcap=1.5, window=0"};
const Form kCappedWindow{"softcap=0.5, window=3"};
const Form kBothSides{"causal=0, window=0"};
const Form kWindowOfBothSides{"causal=0, window=3"};
// As T5's encoder and decoder have it. Distances reach past the largest that has a bucket of its own.
const Form kBiasOfBothSides{"causal=0, max_distance=5, scale=1.0, window=0", ", -, table",
                            "tensor table %[8,4] trainable\n", true};
const Form kBias{"max_distance=6, scale=0.5, window=0", ", -, table", "tensor table %[8,4] trainable\n",
                 true};
const Form kBiasInWindow{"max_distance=6, window=3", ", -, table", "tensor table %[8,4] trainable\n", true};
const Form kCross{"causal=0, key_length=4, keys_of=3, scale=1.0, window=0", ", key_starts",
                  "axis 1 b\naxis 2 c\naxis 3 source\ntensor key_starts i32[4] input\n", false, 9};

// Drawn for three samples, of which the second begins anew in the middle of a sequence.
const std::string kDrawn = "tensor samples i32[14] input\ntensor positions i32[14] input\n";
const Form kDropout{"dropout=0.3, window=0", ", -, -, samples, positions", kDrawn};
const Form kBiasAndDropout{"causal=0, dropout=0.3, max_distance=5, scale=1.0, window=0",
                           ", -, table, samples, positions", "tensor table %[8,4] trainable\n" + kDrawn,
                           true};
const Form kCrossWithDropout{"causal=0, dropout=0.5, key_length=4, keys_of=3, window=0",
                             ", key_starts, -, samples, positions", kCross.tensors + kDrawn, false, 9};
const Values kSampleNumbers = {8, 8, 8, 8, 8, 9, 9, 9, 11, 11, 11, 11, 0, 0};
const Values kPositionNumbers = {0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3, 0, 0};

// Sequences of 5 and 7 queries that meet one key and four.
const Values kKeyStarts = {0, 1, 5, 5};
std::map<StepValue, double> cross_step(double sequences) {
  auto step = kStep;
  step[StepValue::live_sequences] = sequences;
  step[live_sequences_of(kKeys)] = sequences;
  step[live_tokens_of(kKeys)] = 5;
  return step;
}

// `slack` of the gradient; it is lost where few keys have all the weight, or values grow by what was dropped.
std::vector<OpCase> both_ways(const std::string& name, const Form& form, double slack = 6) {
  std::map<std::string, Values> given{{"starts", kStarts}};
  if (form.tensors.find("samples") != std::string::npos) {
    given["samples"] = kSampleNumbers;
    given["positions"] = kPositionNumbers;
  }
  return {{.name = "attention" + name, .body = forward(form), .given = given, .step = kStep, .slack = 2},
          {.name = "attention_grad" + name,
           .body = backward(form),
           .given = given,
           .step = kStep,
           .slack = slack}};  // o is rounded before sum(d_o * o) is taken
}
std::vector<OpCase> over_other_keys(const std::string& name, const Form& form, const Values& starts,
                                    const Values& key_starts, double sequences) {
  auto cases = both_ways(name, form, 12);
  for (OpCase& c : cases) {
    c.given["starts"] = starts;
    c.given["key_starts"] = key_starts;
    c.step = cross_step(sequences);
  }
  return cases;
}

// 4 tokens planned, 3 live, behind 5 cached ones; a cache of so many sequences.
std::string cached(const std::string& attributes, const std::string& operands = "",
                   const std::string& tensors = "", int sequences = 1) {
  const std::string cache = " %[" + std::to_string(10 * sequences) + ",16] kv_cache\n";
  return "tensor q %[4,32] input\n"
         "tensor k %[4,16] input\n"
         "tensor v %[4,16] input\n"
         "tensor k_cache" +
         cache + "tensor v_cache" + cache + tensors +
         "o %[4,32], k_cache, v_cache = attention_cached(q, k, v, step" + operands +
         ") {capacity=10, head_dim=8, length=10, " + attributes + "} @a forward\n";
}
// Caches that kernels for GPUs split: `live` of `rows` tokens behind `behind` others.
OpCase cached_parts(const std::string& name, int rows, int live, int behind, int heads, int kv_heads,
                    int head_dim, const std::string& attributes = "window=0", int capacity = 400) {
  const auto shape = [](int of, int width) {
    return " %[" + std::to_string(of) + "," + std::to_string(width) + "]";
  };
  const int q = heads * head_dim, k = kv_heads * head_dim;
  const int sequences = attributes.starts_with("apart") ? rows : 1;
  return {.name = "attention_cached_" + name,
          .body = "tensor q" + shape(rows, q) + " input\ntensor k" + shape(rows, k) + " input\ntensor v" +
                  shape(rows, k) + " input\ntensor k_cache" + shape(capacity * sequences, k) +
                  " kv_cache\ntensor v_cache" + shape(capacity * sequences, k) + " kv_cache\no" +
                  shape(rows, q) + ", k_cache, v_cache = attention_cached(q, k, v, step) {capacity=" +
                  std::to_string(capacity) + ", head_dim=" + std::to_string(head_dim) +
                  ", length=" + std::to_string(capacity) + ", " + attributes + "} @a forward\n",
          .step = {{StepValue::live_tokens, live}, {StepValue::kv_length, behind}},
          .slack = 4};
}
// So many that a part of the keys is more than a block takes at a time.
OpCase many_heads_of_keys() {
  OpCase c = cached_parts("of_many_heads_of_keys", 1, 1, 980, 80, 80, 16, "window=0", 1000);
  c.dtypes = {DType::f32};
  return c;
}
const std::map<StepValue, double> kCachedStep = {{StepValue::live_tokens, 3}, {StepValue::kv_length, 5}};

// A tensor of the type under test.
std::string rows_text(int64_t rows, int64_t width) {
  return "%[" + std::to_string(rows) + "," + std::to_string(width) + "]";
}

// Sequences longer than the tiles that kernels for GPUs take at a time, with heads that fill no tile; forward
// and backward. `longest`: the first one.
OpCase of_several_tiles(const std::string& name, int64_t head_dim, const std::string& attributes,
                        int64_t longest = 140) {
  const int64_t rows = longest + 10;
  const std::string q = rows_text(rows, 2 * head_dim), k = rows_text(rows, head_dim);
  const std::string form = "{head_dim=" + std::to_string(head_dim) + ", length=" + std::to_string(longest) +
                           ", " + attributes + "} @a ";
  const auto end = static_cast<double>(longest);
  return {.name = "attention_grad_of_several_tiles" + name,
          .body = "tensor q " + q + " input\ntensor k " + k + " input\ntensor v " + k +
                  " input\ntensor d_o " + q + " input\ntensor starts i32[4] input\n" + "o " + q +
                  ", lse f32[" + std::to_string(rows) + ",2] = attention(q, k, v, starts, step) " + form +
                  "forward\n" + "d_q " + q + ", d_k " + k + ", d_v " + k +
                  " = attention_grad(q, k, v, o, lse, d_o, starts, step) " + form + "backward\n",
          .given = {{"starts", {0, end, end + 7, end + 7}}},
          .step = kStep,
          .slack = 12};
}

// More sequences than a block looks at at once for its tile, most of one row, and among them one of several
// tiles.
OpCase of_many_sequences() {
  const std::string rows = rows_text(299, 16);
  const std::string form = "{head_dim=16, length=150, window=0} @a ";
  Values starts{0};
  for (int s = 0; s < 140; ++s) starts.push_back(starts.back() + (s == 131 ? 150 : 1));
  for (int dead = 0; dead < 3; ++dead) starts.push_back(starts.back());
  return {.name = "attention_grad_of_many_sequences",
          .body = "tensor q " + rows + " input\ntensor k " + rows + " input\ntensor v " + rows +
                  " input\ntensor d_o " + rows + " input\ntensor starts i32[144] input\no " + rows +
                  ", lse f32[299,1] = attention(q, k, v, starts, step) " + form + "forward\nd_q " + rows +
                  ", d_k " + rows + ", d_v " + rows +
                  " = attention_grad(q, k, v, o, lse, d_o, starts, step) " + form + "backward\n",
          .given = {{"starts", starts}},
          .step = {{StepValue::live_tokens, 289}, {StepValue::live_sequences, 140}},
          .dtypes = {DType::bf16},
          .slack = 12};
}

// The same with keys of another axis, fewer than queries.
OpCase of_several_tiles_over_other_keys() {
  const std::string form = "{causal=0, head_dim=64, key_length=90, keys_of=3, length=140, window=0} @a ";
  OpCase c{.name = "attention_grad_of_several_tiles_over_other_keys",
           .body =
               "axis 1 b\naxis 2 c\naxis 3 source\ntensor key_starts i32[4] input\ntensor q %[150,128] "
               "input\ntensor k %[100,64] input\ntensor v %[100,64] input\ntensor d_o %[150,128] "
               "input\ntensor starts i32[4] input\no %[150,128], lse f32[150,2] = attention(q, k, v, "
               "starts, step, key_starts) " +
               form +
               "forward\nd_q %[150,128], d_k %[100,64], d_v %[100,64] = attention_grad(q, k, v, o, lse, "
               "d_o, starts, step, key_starts) " +
               form + "backward\n",
           .given = {{"starts", {0, 7, 147, 147}}, {"key_starts", {0, 90, 97, 97}}},
           .step = cross_step(2),
           .slack = 12};
  c.step[live_tokens_of(kKeys)] = 97;
  c.step[StepValue::live_tokens] = 147;
  return c;
}

// The same with a bias of 16 buckets that trains, and dropout: keys nearer than any tile is wide and farther
// than several.
OpCase of_several_tiles_with_extras(const std::string& name, int64_t head_dim, const std::string& attributes,
                                    int64_t longest = 136) {
  const int64_t rows = longest + 14;
  const std::string q = rows_text(rows, 2 * head_dim), k = rows_text(rows, head_dim);
  const std::string form = "head_dim=" + std::to_string(head_dim) + ", length=" + std::to_string(longest) +
                           ", scale=0.5, " + attributes + "} @a ";
  const std::string operands = "starts, step, -, table, samples, positions) {";
  const std::string ids = " i32[" + std::to_string(rows) + "] input\n";
  Values samples, positions;
  for (int64_t i = 0; i < rows; ++i) {
    samples.push_back(i < longest / 2 ? 3 : 4);
    positions.push_back(static_cast<double>(i % (longest / 2)));
  }
  const auto end = static_cast<double>(longest);
  return {.name = "attention_grad_of_several_tiles" + name,
          .body = "tensor q " + q + " input\ntensor k " + k + " input\ntensor v " + k +
                  " input\ntensor d_o " + q +
                  " input\ntensor starts i32[5] input\ntensor table %[16,2] trainable\ntensor samples" + ids +
                  "tensor positions" + ids + "tensor table.grad f32[16,2] gradient\no " + q + ", lse f32[" +
                  std::to_string(rows) + ",2] = attention(q, k, v, " + operands + form + "forward\nd_q " + q +
                  ", d_k " + k + ", d_v " + k + ", table.grad = attention_grad(q, k, v, o, lse, d_o, " +
                  operands + "accumulate=0, " + form + "backward\n",
          .given = {{"starts", {0, end, end + 4, end + 11, end + 11}},
                    {"samples", samples},
                    {"positions", positions}},
          .step = {{StepValue::live_tokens, end + 11}, {StepValue::live_sequences, 3}},
          .slack = 24};
}

// Two trees: a root of three rows with two branches, of which the second forks again; a root with one branch,
// its end too. Padding, and two segments that are not live.
const Form kTree{"window=0", ", -, -, -, -, parents", "tensor parents i32[9] input\n"};
const Values kTreeStarts = {0, 3, 5, 6, 8, 9, 11, 12, 12, 12};
const Values kParents = {-1, 0, 0, 2, 2, -1, 5, 0, 0};

// The same of segments longer than the kernels' tiles and blocks of keys, with one that no block ends at.
OpCase of_large_trees(const std::string& name, int64_t window) {
  const std::string form = "{head_dim=16, length=390, window=" + std::to_string(window) + "} @a ";
  const std::string operands = "starts, step, -, -, -, -, parents";
  return {.name = "attention_grad_of_large_trees" + name,
          .body =
              "tensor q %[700,32] input\ntensor k %[700,16] input\ntensor v %[700,16] input\n"
              "tensor d_o %[700,32] input\ntensor starts i32[8] input\ntensor parents i32[7] input\n"
              "o %[700,32], lse f32[700,2] = attention(q, k, v, " +
              operands + ") " + form + "forward\n" +
              "d_q %[700,32], d_k %[700,16], d_v %[700,16] = attention_grad(q, k, v, o, lse, d_o, " +
              operands + ") " + form + "backward\n",
          .given = {{"starts", {0, 290, 300, 330, 400, 470, 620, 690}}, {"parents", {-1, 0, 1, 1, 0, -1, 5}}},
          .step = {{StepValue::live_tokens, 690}, {StepValue::live_sequences, 7}},
          .slack = 24};
}

// Trees with heads for which kernels have other tiles: a segment of several, with a branch that ends within
// the next one, and a branch behind it that forks.
OpCase of_trees(const std::string& name, int64_t head, int64_t window) {
  const std::string rows = " %[140," + std::to_string(head) + "]";
  const std::string form =
      "{head_dim=" + std::to_string(head) + ", length=120, window=" + std::to_string(window) + "} @a ";
  const std::string operands = "starts, step, -, -, -, -, parents";
  return {.name = "attention_grad_of_trees" + name,
          .body = "tensor q" + rows + " input\ntensor k" + rows + " input\ntensor v" + rows +
                  " input\ntensor d_o" + rows + " input\ntensor starts i32[6] input\n" +
                  "tensor parents i32[5] input\no" + rows + ", lse f32[140,1] = attention(q, k, v, " +
                  operands + ") " + form + "forward\nd_q" + rows + ", d_k" + rows + ", d_v" + rows +
                  " = attention_grad(q, k, v, o, lse, d_o, " + operands + ") " + form + "backward\n",
          .given = {{"starts", {0, 75, 90, 110, 113, 137}}, {"parents", {-1, 0, 0, 2, 2}}},
          .step = {{StepValue::live_tokens, 137}, {StepValue::live_sequences, 5}},
          .slack = 24};
}

std::vector<OpCase> over_trees(const std::string& name, int64_t window) {
  Form form = kTree;
  form.attributes = "window=" + std::to_string(window);
  std::vector<OpCase> cases = both_ways("_over_trees" + name, form, 12);
  for (OpCase& c : cases) {
    for (std::string from = "i32[4]"; c.body.find(from) != std::string::npos;)
      c.body.replace(c.body.find(from), from.size(), "i32[10]");
    c.given["starts"] = kTreeStarts;
    c.given["parents"] = kParents;
    c.step[StepValue::live_sequences] = 7;
  }
  return cases;
}

[[maybe_unused]] const bool kAttentionCases = [] {
  register_cases(both_ways("", kPlain));
  register_cases(both_ways("_with_window", kWindow));
  register_cases(both_ways("_with_a_cap", kCapped));
  register_cases(both_ways("_with_a_cap_in_a_window", kCappedWindow));
  register_cases(over_trees("", 0));
  register_cases(over_trees("_in_a_window", 3));
  register_cases(over_trees("_in_a_window_of_two", 2));
  register_cases({of_large_trees("", 0), of_large_trees("_in_a_window", 75),
                  of_trees("_of_72_values_in_a_window", 72, 60), of_trees("_of_160_values", 160, 0)});
  register_cases(both_ways("_of_both_sides", kBothSides));
  register_cases(both_ways("_in_a_window_of_both_sides", kWindowOfBothSides, 12));
  register_cases(both_ways("_with_bias_of_both_sides", kBiasOfBothSides));
  register_cases(both_ways("_with_bias", kBias));
  register_cases(both_ways("_with_bias_in_a_window", kBiasInWindow));
  register_cases(over_other_keys("_over_other_keys", kCross, kStarts, kKeyStarts, 2));
  register_cases(both_ways("_with_dropout", kDropout, 12));
  register_cases(both_ways("_with_bias_and_dropout", kBiasAndDropout, 12));
  register_cases(over_other_keys("_over_other_keys_with_dropout", kCrossWithDropout, kStarts, kKeyStarts, 2));
  // No query for the second sequence's keys, no key for the third's queries.
  register_cases(over_other_keys("_over_keys_without_queries_and_the_other_way_round", kCross, {0, 4, 4, 12},
                                 {0, 3, 7, 7}, 3));
  register_cases(
      {of_several_tiles("", 72, "window=0"), of_several_tiles("_in_a_window", 48, "window=40"),
       of_several_tiles("_of_both_sides", 72, "causal=0, window=0"),
       of_several_tiles("_in_a_window_of_both_sides", 72, "causal=0, window=33"),
       of_several_tiles("_of_160_values_in_a_window_of_both_sides", 160, "causal=0, window=20", 70),
       of_several_tiles("_with_a_cap", 72, "scale=0.5, softcap=2.0, window=0"),
       of_several_tiles("_of_256_values_with_a_cap", 256, "softcap=1.0, window=50", 70),
       of_several_tiles("_of_200_values_in_a_window_of_both_sides_with_a_cap", 200,
                        "causal=0, softcap=2.0, window=24", 70),
       of_several_tiles("_of_40_values", 40, "window=0"),
       of_several_tiles("_of_96_values_in_a_window", 96, "window=70"),
       of_several_tiles("_of_160_values_of_both_sides", 160, "causal=0, window=0", 70),
       of_several_tiles("_of_256_values", 256, "window=0", 70), of_several_tiles_over_other_keys(),
       of_many_sequences()});
  register_cases(
      {of_several_tiles_with_extras("_with_bias_and_dropout_of_both_sides", 64,
                                    "causal=0, dropout=0.2, max_distance=50, window=0"),
       of_several_tiles_with_extras("_with_bias_and_dropout", 72, "dropout=0.1, max_distance=20, window=0"),
       // These sums and tiles take more of a block's memory than it has unasked.
       of_several_tiles_with_extras("_with_far_bias", 128, "dropout=0.1, max_distance=540, window=0"),
       // These biases fit no tile of tensor cores, and these heads are too large for them.
       of_several_tiles_with_extras("_with_farther_bias", 64,
                                    "causal=0, dropout=0.1, max_distance=600, window=0"),
       of_several_tiles_with_extras("_of_160_values_with_bias_and_dropout", 160,
                                    "causal=0, dropout=0.1, max_distance=50, window=0", 66),
       of_several_tiles_with_extras("_with_bias_and_dropout_in_a_window", 24,
                                    "dropout=0.1, max_distance=30, window=40")});
  return register_cases({
      {.name = "attention_grad_with_frozen_bias",
       .body = backward(kBias, Table::frozen),
       .given = {{"starts", kStarts}},
       .step = kStep,
       .slack = 6},
      {.name = "attention_cached_appends", .body = cached("window=0"), .step = kCachedStep, .slack = 2},
      {.name = "attention_cached_with_window", .body = cached("window=4"), .step = kCachedStep, .slack = 2},
      {.name = "attention_cached_with_a_cap",
       .body = cached("scale=2.0, softcap=1.5, window=4"),
       .step = kCachedStep,
       .slack = 2},
      {.name = "attention_cached_with_bias",
       .body = cached("max_distance=6, scale=1.0, window=0", ", table", "tensor table %[8,4] trainable\n"),
       .step = kCachedStep,
       .slack = 2},
      {.name = "attention_cached_of_sequences_apart",
       .body = cached("apart=1, window=0", "", "", 4),
       .step = kCachedStep,
       .slack = 2},
      {.name = "attention_cached_of_the_first_of_several_sequences",
       .body = cached("window=0", "", "", 4),
       .step = kCachedStep,
       .slack = 2},
      {.name = "attention_cached_of_sequences_apart_with_bias",
       .body = cached("apart=1, max_distance=6, scale=1.0, window=0", ", table",
                      "tensor table %[8,4] trainable\n", 4),
       .step = kCachedStep,
       .slack = 2},
      {.name = "attention_cached_over_ready_keys",
       .body = "axis 1 b\naxis 2 c\naxis 3 source\n"
               "tensor q %[4,32] input\ntensor k_cache %[9,16] kv_cache\ntensor v_cache %[9,16] kv_cache\n"
               "o %[4,32] = attention_cached(q, k_cache, v_cache, step) {causal=0, head_dim=8, keys_of=3, "
               "length=9, scale=1.0, window=0} @a forward\n",
       .step = {{StepValue::live_tokens, 3}, {StepValue::kv_length, 5}, {live_tokens_of(kKeys), 7}},
       .slack = 2},
      {.name = "attention_cached_over_many_ready_keys",
       .body =
           "axis 1 b\naxis 2 c\naxis 3 source\n"
           "tensor q %[2,32] input\ntensor k_cache %[300,16] kv_cache\ntensor v_cache %[300,16] kv_cache\n"
           "o %[2,32] = attention_cached(q, k_cache, v_cache, step) {causal=0, head_dim=16, keys_of=3, "
           "length=300, window=0} @a forward\n",
       .step = {{StepValue::live_tokens, 1}, {live_tokens_of(kKeys), 270}},
       .slack = 4},
      cached_parts("of_one_token", 1, 1, 390, 2, 2, 64),
      cached_parts("of_a_token_of_grouped_heads", 1, 1, 260, 8, 1, 80),
      cached_parts("of_a_token_with_a_window_of_several_parts", 1, 1, 300, 4, 2, 24, "window=200"),
      cached_parts("of_several_parts_apart", 3, 2, 290, 6, 2, 16, "apart=1, window=0"),
      cached_parts("of_a_chunk_behind_many", 20, 17, 300, 4, 2, 16),
      many_heads_of_keys(),
      cached_parts("of_a_chunk_with_a_window", 20, 20, 140, 2, 1, 256, "window=150"),
  });
}();

}  // namespace
}  // namespace plimsoll::harness
