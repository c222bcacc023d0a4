#include "large_cases.h"

#include <algorithm>
#include <cmath>
#include <exception>

#include "base/error.h"
#include "base/strings.h"
#include "op_cases.h"

namespace plimsoll::gpu_check {
namespace {

using harness::OpCase;
using harness::OpRun;
using harness::Values;

// `count` sequences of `length` tokens.
struct Rows {
  int count, length;

  [[nodiscard]] int tokens() const { return count * length; }
  [[nodiscard]] Values starts() const {
    Values starts;
    for (int s = 0; s <= count; ++s) starts.push_back(s * length);
    return starts;
  }
  // The sample of each token, and its place in it.
  [[nodiscard]] Values samples() const {
    Values samples;
    for (int token = 0; token < tokens(); ++token) samples.push_back(token / length);
    return samples;
  }
  [[nodiscard]] Values positions() const {
    Values positions;
    for (int token = 0; token < tokens(); ++token) positions.push_back(token % length);
    return positions;
  }
  [[nodiscard]] std::string input(const std::string& name, int width) const {
    return "tensor " + name + of(width) + " input\n";
  }
  [[nodiscard]] std::string of(int width) const {
    return " %[" + std::to_string(tokens()) + "," + std::to_string(width) + "]";
  }
  [[nodiscard]] std::string starts_text() const {
    return "tensor starts i32[" + std::to_string(count + 1) + "] input\n";
  }
  [[nodiscard]] OpCase named(const std::string& name) const {
    OpCase c;
    c.name = name;
    c.given["starts"] = starts();
    c.step = {{StepValue::live_tokens, tokens()}, {StepValue::live_sequences, count}};
    c.slack = 24;
    return c;
  }
};

struct Heads {
  int queries, keys, dim;
};

// Both ways, in one graph. `operands`: those behind the step values, which `tensors` declares.
OpCase attention(const std::string& name, const Rows& rows, const Heads& heads, const std::string& attributes,
                 const std::string& operands = "", const std::string& tensors = "",
                 const std::string& table_gradient = "") {
  const int q = heads.queries * heads.dim, k = heads.keys * heads.dim;
  const std::string form = "{" + std::string(table_gradient.empty() ? "" : "accumulate=0, ");
  const std::string rest = "head_dim=" + std::to_string(heads.dim) +
                           ", length=" + std::to_string(rows.length) + ", " + attributes + "} @a ";
  OpCase c = rows.named(name);
  c.body = rows.input("q", q) + rows.input("k", k) + rows.input("v", k) + rows.input("d_o", q) +
           rows.starts_text() + tensors + "o" + rows.of(q) + ", lse f32[" + std::to_string(rows.tokens()) +
           "," + std::to_string(heads.queries) + "] = attention(q, k, v, starts, step" + operands + ") {" +
           rest + "forward\nd_q" + rows.of(q) + ", d_k" + rows.of(k) + ", d_v" + rows.of(k) + table_gradient +
           " = attention_grad(q, k, v, o, lse, d_o, starts, step" + operands + ") " + form + rest +
           "backward\n";
  return c;
}

// As T5's layers have it: a bias over distances that trains, and dropout.
OpCase attention_with_extras(const Rows& rows, const Heads& heads) {
  const std::string ids = " i32[" + std::to_string(rows.tokens()) + "] input\n";
  const std::string table = "[32," + std::to_string(heads.queries) + "] ";
  OpCase c = attention("attention with a bias and dropout", rows, heads,
                       "causal=0, dropout=0.1, max_distance=128, scale=0.125, window=0",
                       ", -, table, samples, positions",
                       "tensor table %" + table + "trainable\ntensor samples" + ids + "tensor positions" +
                           ids + "tensor table.grad f32" + table + "gradient\n",
                       ", table.grad");
  c.given["samples"] = rows.samples();
  c.given["positions"] = rows.positions();
  return c;
}

OpCase gla(const Rows& rows, int heads, int keys, int values) {
  const int k = heads * keys, v = heads * values;
  const std::string form = "{clamp_min=-1e30, heads=" + std::to_string(heads) +
                           ", kv_heads=" + std::to_string(heads) + ", normalizer=16.0, scale=0.0625} @a ";
  OpCase c = rows.named("gla");
  c.body = rows.input("q", k) + rows.input("k", k) + rows.input("v", v) + rows.input("gate", k) +
           rows.input("d_o", v) + rows.starts_text() + "o" + rows.of(v) +
           " = gla(q, k, v, gate, starts, step) " + form + "forward\nd_q" + rows.of(k) + ", d_k" +
           rows.of(k) + ", d_v" + rows.of(v) + ", d_gate" + rows.of(k) +
           " = gla_grad(q, k, v, gate, d_o, starts, step) " + form + "backward\n";
  return c;
}

// Cases of Qwen3-0.6B, of a packed row, of T5 and of GLA-1.3B.
std::vector<OpCase> cases_of(bool small) {
  if (small)
    return {attention("attention", {2, 130}, {2, 1, 64}, "window=0"),
            attention("attention of packed documents", {20, 13}, {2, 1, 64}, "window=0"),
            attention_with_extras({2, 70}, {2, 2, 64}), gla({2, 130}, 1, 32, 64)};
  return {attention("attention", {2, 2048}, {16, 8, 128}, "window=0"),
          attention("attention of packed documents", {300, 27}, {16, 8, 64}, "window=0"),
          attention_with_extras({32, 256}, {8, 8, 64}), gla({4, 1024}, 4, 256, 512)};
}

// "" or what is off, of all that the case's ops write but metrics.
std::string fault_of(const Graph& graph, const OpRun& narrow, const OpRun& wide, double slack, double& most) {
  const harness::Tolerance tolerance = harness::tolerance_of(DType::bf16, slack);
  for (const Op& op : graph.ops())
    for (const TensorId id : op.outputs) {
      if (id == kNoTensor) continue;
      const auto at = static_cast<size_t>(id);
      most = std::max(most, farthest(narrow.values[at], wide.values[at], tolerance));
      if (std::string fault =
              harness::compare(graph.tensor(id).name, narrow.values[at], wide.values[at], tolerance);
          !fault.empty())
        return fault;
    }
  return "";
}

std::string ask(Device& device, const CardFacts& card, const OpCase& c, bool wrong,
                nlohmann::ordered_json& figures) {
  const DType type = card.compute_capability < 80 ? DType::f16 : DType::bf16;
  const Graph graph = harness::make_graph(c, type), plain = harness::make_graph(c, DType::f32);
  const std::vector<Values> values = harness::make_values(graph, c);
  OpRun narrow = run_on(device, card, graph, values);
  const OpRun wide = run_on(device, card, plain, values);
  if (!narrow.faults.empty() || !wide.faults.empty())
    return join(narrow.faults.empty() ? wide.faults : narrow.faults, "; ");
  if (wrong) {
    double& value = narrow.values[static_cast<size_t>(graph.ops().back().outputs.front())].back();
    value += 1.0 + std::abs(value);
  }
  double most = 0;
  std::string fault = fault_of(graph, narrow, wide, c.slack, most);
  figures["off"] = most;
  return fault;
}

}  // namespace

bool check_large_cases(Device& device, const CardFacts& card, bool small, const std::string& wrong,
                       const Tell& tell) {
  for (const OpCase& c : cases_of(small)) {
    Outcome outcome{"large/" + c.name, "", {}};
    try {
      outcome.detail = ask(device, card, c, wrong == c.name, outcome.figures);
    } catch (const std::exception& error) {
      outcome.detail = error.what();
      outcome.figures["fatal"] = true;
    }
    tell(outcome);
    if (outcome.figures.contains("fatal")) return false;
  }
  return true;
}

}  // namespace plimsoll::gpu_check
