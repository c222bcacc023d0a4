// The gated delta rule and its gates, token by token. Sequences may be segments of trees.
#include <algorithm>

#include "graph/graph.h"
#include "harness/reference_site.h"

namespace plimsoll::harness {
namespace {

// One value head over the rows of a sequence.
struct DeltaHead {
  using at = operand::delta_rule;  // its gradient has q, k, v, g and beta in the same places

  const Site& s;
  size_t n, heads = s.attr("heads"), key_heads = s.attr("key_heads");
  size_t keys = s.dim(at::q, 1) / key_heads, values = s.dim(at::v, 1) / heads;
  size_t key_head = n / (heads / key_heads);

  [[nodiscard]] size_t key_at(size_t t) const { return (t * key_heads + key_head) * keys; }
  [[nodiscard]] size_t value_at(size_t t) const { return (t * heads + n) * values; }
  [[nodiscard]] size_t gate_at(size_t t) const { return t * heads + n; }
  [[nodiscard]] double decay(size_t t) const { return std::exp(s.in(at::g)[gate_at(t)]); }
  [[nodiscard]] double beta(size_t t) const { return s.in(at::beta)[gate_at(t)]; }
  [[nodiscard]] double inverse_length(const Values& of, size_t t) const {
    double squares = s.op.attr_float("eps");
    for (size_t i = 0; i < keys; ++i) squares += of[key_at(t) + i] * of[key_at(t) + i];
    return 1 / std::sqrt(squares);
  }
  [[nodiscard]] Values unit(const Values& of, size_t t) const {
    Values row;
    for (size_t i = 0; i < keys; ++i) row.push_back(of[key_at(t) + i] * inverse_length(of, t));
    return row;
  }
  [[nodiscard]] Values k(size_t t) const { return unit(s.in(at::k), t); }
  [[nodiscard]] double query_factor() const { return 1 / std::sqrt(static_cast<double>(keys)); }
  [[nodiscard]] Values q(size_t t) const {
    Values row = unit(s.in(at::q), t);
    for (double& x : row) x *= query_factor();
    return row;
  }
  // state^T x.
  [[nodiscard]] Values read(const Values& state, const Values& x) const {
    Values row(values);
    for (size_t i = 0; i < keys; ++i)
      for (size_t j = 0; j < values; ++j) row[j] += state[i * values + j] * x[i];
    return row;
  }
  // v less what the decayed state holds for k.
  [[nodiscard]] Values missed(size_t t, const Values& decayed) const {
    Values row = read(decayed, k(t));
    for (size_t j = 0; j < values; ++j) row[j] = s.in(at::v)[value_at(t) + j] - row[j];
    return row;
  }
  void advance(size_t t, Values& state) const {
    for (double& x : state) x *= decay(t);
    const Values row = k(t), m = missed(t, state);
    for (size_t i = 0; i < keys; ++i)
      for (size_t j = 0; j < values; ++j) state[i * values + j] += row[i] * beta(t) * m[j];
  }
  void write(size_t t, const Values& state) const {
    const Values row = read(state, q(t));
    std::copy(row.begin(), row.end(), s.out(at::o).begin() + static_cast<std::ptrdiff_t>(value_at(t)));
  }
};

// A token backwards: `d_state` is the gradient of the state behind it, and becomes that of the one before.
struct TokenGrad {
  using grad = operand::delta_rule_grad;

  const DeltaHead& h;
  size_t t;
  bool own;  // its output counts
  const Values& before;
  const Values& behind;
  Values& d_state;

  // Adds to the gradient of a raw row that of the unit row made of it.
  template <class Input, class Output>
  void add_unit(Input of, Output to, const Values& d, double factor) const {
    const Values unit = h.unit(h.s.in(of), t);
    double along = 0;
    for (size_t i = 0; i < h.keys; ++i) along += unit[i] * d[i];
    for (size_t i = 0; i < h.keys; ++i)
      h.s.out(to)[h.key_at(t) + i] += factor * h.inverse_length(h.s.in(of), t) * (d[i] - unit[i] * along);
  }

  void run() const {
    const Values k = h.k(t), q = h.q(t);
    Values decayed = before;
    for (double& x : decayed) x *= h.decay(t);
    const Values missed = h.missed(t, decayed);
    Values d_q(h.keys), d_k(h.keys), d_u(h.values);
    for (size_t i = 0; i < h.keys; ++i)
      for (size_t j = 0; j < h.values; ++j) {
        const double d_o = own ? h.s.in(grad::d_o)[h.value_at(t) + j] : 0;
        double& d = d_state[i * h.values + j];
        d_q[i] += d_o * behind[i * h.values + j];
        d += d_o * q[i];
        d_u[j] += d * k[i];
        d_k[i] += d * h.beta(t) * missed[j];
      }
    double d_beta = 0, d_decay = 0;
    for (size_t j = 0; j < h.values; ++j) {
      d_beta += d_u[j] * missed[j];
      h.s.out(grad::d_v)[h.value_at(t) + j] += h.beta(t) * d_u[j];
    }
    for (size_t i = 0; i < h.keys; ++i)
      for (size_t j = 0; j < h.values; ++j) {
        double& d = d_state[i * h.values + j];
        d_k[i] -= decayed[i * h.values + j] * h.beta(t) * d_u[j];
        d -= k[i] * h.beta(t) * d_u[j];
        d_decay += d * before[i * h.values + j];
        d *= h.decay(t);
      }
    h.s.out(grad::d_g)[h.gate_at(t)] += d_decay * h.decay(t);
    h.s.out(grad::d_beta)[h.gate_at(t)] += d_beta;
    add_unit(grad::q, grad::d_q, d_q, h.query_factor());
    add_unit(grad::k, grad::d_k, d_k, 1);
  }
};

// Rows before `own` have their outputs elsewhere.
void delta_head_grad(const DeltaHead& h, const std::vector<size_t>& rows, size_t own) {
  std::vector<Values> states(1, Values(h.keys * h.values));
  for (const size_t t : rows) {
    states.push_back(states.back());
    h.advance(t, states.back());
  }
  Values d_state(h.keys * h.values);
  for (size_t at = rows.size(); at-- > 0;)
    TokenGrad{h, rows[at], at >= own, states[at], states[at + 1], d_state}.run();
}

double softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

}  // namespace

void ref_delta_rule(const Site& s) {
  using at = operand::delta_rule;
  s.out(at::o).assign(s.out(at::o).size(), 0.0);
  for_paths(s, at::seq_starts, at::parents, [&](const std::vector<size_t>& rows, size_t own) {
    for (size_t n = 0; n < s.attr("heads"); ++n) {
      const DeltaHead head{s, n};
      Values state(head.keys * head.values);
      for (size_t row = 0; row < rows.size(); ++row) {
        head.advance(rows[row], state);
        if (row >= own) head.write(rows[row], state);
      }
    }
  });
}

void ref_delta_rule_grad(const Site& s) {
  using at = operand::delta_rule_grad;
  for (const size_t i : {at::d_q, at::d_k, at::d_v, at::d_g, at::d_beta})
    s.out(i).assign(s.out(i).size(), 0.0);
  for_paths(s, at::seq_starts, at::parents, [&](const std::vector<size_t>& rows, size_t own) {
    for (size_t n = 0; n < s.attr("heads"); ++n) delta_head_grad({s, n}, rows, own);
  });
}

void ref_delta_rule_cached(const Site& s) {
  using at = operand::delta_rule_cached;
  s.out(at::o).assign(s.out(at::o).size(), 0.0);
  const auto live = static_cast<size_t>(s.step(StepValue::live_tokens));
  const bool fresh = s.step(StepValue::kv_length) == 0;
  const bool apart = s.op.attrs.contains("apart");
  for (size_t first = 0; first < (apart ? live : 1); ++first)
    for (size_t n = 0; n < s.attr("heads"); ++n) {
      const DeltaHead head{s, n};
      const size_t size = head.keys * head.values, place = (first * s.attr("heads") + n) * size;
      const auto begin = s.out(at::state).begin() + static_cast<std::ptrdiff_t>(place);
      Values state(begin, begin + static_cast<std::ptrdiff_t>(size));
      if (fresh) state.assign(size, 0.0);
      for (size_t t = first; t < (apart ? first + 1 : live); ++t) {
        head.advance(t, state);
        head.write(t, state);
      }
      std::copy(state.begin(), state.end(), begin);
    }
}

void ref_delta_gate(const Site& s) {
  using at = operand::delta_gate;
  const size_t heads = s.dim(at::a, 1);
  for (size_t i = 0; i < s.in(at::a).size(); ++i) {
    const double x = s.in(at::a)[i] + s.in(at::dt_bias)[i % heads];
    s.out(at::g)[i] = -std::exp(s.in(at::a_log)[i % heads]) * softplus(x);
    s.out(at::beta)[i] = sigmoid(s.in(at::b)[i]);
  }
}

void ref_delta_gate_grad(const Site& s) {
  using at = operand::delta_gate_grad;
  const size_t heads = s.dim(at::a, 1), live = static_cast<size_t>(s.step(StepValue::live_tokens)) * heads;
  Values d_a(s.in(at::a).size()), d_b(d_a.size()), d_a_log(heads), d_dt_bias(heads);
  for (size_t i = 0; i < d_a.size(); ++i) {
    const double x = s.in(at::a)[i] + s.in(at::dt_bias)[i % heads];
    const double rate = -std::exp(s.in(at::a_log)[i % heads]), beta = sigmoid(s.in(at::b)[i]);
    d_a[i] = s.in(at::d_g)[i] * rate * sigmoid(x);
    d_b[i] = s.in(at::d_beta)[i] * beta * (1 - beta);
    if (i >= live) continue;
    d_a_log[i % heads] += s.in(at::d_g)[i] * rate * softplus(x);
    d_dt_bias[i % heads] += d_a[i];
  }
  const bool first = s.step(StepValue::first_micro_step) == 1;
  const auto put = [&](const Values& made, Values& to, const char* accumulate) {
    if (s.op.attr_int(accumulate) == 0 && first) to.assign(to.size(), 0.0);
    for (size_t i = 0; i < heads; ++i) to[i] += made[i];
  };
  if (s.op.has_output(at::d_a)) s.out(at::d_a) = d_a;
  if (s.op.has_output(at::d_b)) s.out(at::d_b) = d_b;
  if (s.op.has_output(at::d_a_log)) put(d_a_log, s.out(at::d_a_log), "accumulate");
  if (s.op.has_output(at::d_dt_bias)) put(d_dt_bias, s.out(at::d_dt_bias), "accumulate_bias");
}

}  // namespace plimsoll::harness
