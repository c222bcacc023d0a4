// Gated linear attention and the short convolution, token by token. Sequences may be segments of trees.
#include <algorithm>
#include <functional>

#include "graph/graph.h"
#include "harness/reference_site.h"

namespace plimsoll::harness {
namespace {

// One query head over the rows of a sequence.
struct GlaHead {
  using at = operand::gla;  // its gradient has q, k, v and gate in the same places

  const Site& s;
  size_t n, heads = s.attr("heads"), kv_heads = s.attr("kv_heads");
  size_t keys = s.dim(at::q, 1) / heads, values = s.dim(at::v, 1) / kv_heads;
  size_t kv = n / (heads / kv_heads);
  double scale = s.op.attr_float("scale");

  [[nodiscard]] size_t q_at(size_t t, size_t i) const { return (t * heads + n) * keys + i; }
  [[nodiscard]] size_t k_at(size_t t, size_t i) const { return (t * kv_heads + kv) * keys + i; }
  [[nodiscard]] size_t v_at(size_t t, size_t j) const { return (t * kv_heads + kv) * values + j; }
  [[nodiscard]] size_t o_at(size_t t, size_t j) const { return (t * heads + n) * values + j; }
  [[nodiscard]] double free_decay(size_t t, size_t i) const {
    return -std::log1p(std::exp(-s.in(at::gate)[k_at(t, i)])) / s.op.attr_float("normalizer");
  }
  [[nodiscard]] double decay(size_t t, size_t i) const {
    return std::exp(std::max(free_decay(t, i), s.op.attr_float("clamp_min")));
  }
  void advance(size_t t, Values& state) const {
    const double* const v = s.in(at::v).data() + v_at(t, 0);
    for (size_t i = 0; i < keys; ++i) {
      const double kept = decay(t, i),
                   k = s.in(at::k)[k_at(t, i)];  // logarithm and exponential once for all values
      for (size_t j = 0; j < values; ++j) state[i * values + j] = kept * state[i * values + j] + k * v[j];
    }
  }
  void read(size_t t, const Values& state) const {
    for (size_t j = 0; j < values; ++j) {
      double sum = 0;
      for (size_t i = 0; i < keys; ++i) sum += s.in(at::q)[q_at(t, i)] * state[i * values + j];
      s.out(at::o)[o_at(t, j)] = scale * sum;
    }
  }
};

// The recurrence backwards: `d_state` is the gradient of the state after a row. What rows before `own` gave
// out are others' outputs.
void gla_head_grad(const GlaHead& h, const std::vector<size_t>& rows, size_t own) {
  using grad = operand::gla_grad;
  const Site& s = h.s;
  std::vector<Values> states(1, Values(h.keys * h.values));
  for (const size_t t : rows) {
    states.push_back(states.back());
    h.advance(t, states.back());
  }
  Values d_state(h.keys * h.values);
  for (size_t at = rows.size(); at-- > 0;)
    for (size_t i = 0, t = rows[at]; i < h.keys; ++i) {
      double d_decay = 0;
      const double decay = h.decay(t, i);
      for (size_t j = 0; j < h.values; ++j) {
        double& d = d_state[i * h.values + j];
        const double d_o = at < own ? 0 : s.in(grad::d_o)[h.o_at(t, j)] * h.scale;
        s.out(grad::d_q)[h.q_at(t, i)] += d_o * states[at + 1][i * h.values + j];
        d += d_o * s.in(grad::q)[h.q_at(t, i)];
        s.out(grad::d_k)[h.k_at(t, i)] += d * s.in(grad::v)[h.v_at(t, j)];
        s.out(grad::d_v)[h.v_at(t, j)] += d * s.in(grad::k)[h.k_at(t, i)];
        d_decay += d * states[at][i * h.values + j];
        d *= decay;
      }
      if (h.free_decay(t, i) < s.op.attr_float("clamp_min")) continue;
      s.out(grad::d_gate)[h.k_at(t, i)] +=
          d_decay * decay * sigmoid(-s.in(grad::gate)[h.k_at(t, i)]) / s.op.attr_float("normalizer");
    }
}

// The sum of the taps at element c of row `at`, x(i) being the element of row i; taps are of input 1.
double conv_sum(const Site& s, int64_t at, size_t c, const std::function<double(int64_t)>& x) {
  const size_t taps = s.dim(operand::short_conv::weight, 2);
  double sum = 0;
  for (size_t j = 0; j < taps; ++j)
    sum += s.in(operand::short_conv::weight)[c * taps + taps - 1 - j] * x(at - static_cast<int64_t>(j));
  return sum;
}

// The same in a sequence of such rows of x, before which there are zeros.
double conv_sum(const Site& s, const std::vector<size_t>& rows, size_t at, size_t c) {
  return conv_sum(s, static_cast<int64_t>(at), c, [&](int64_t i) {
    return i < 0
               ? 0.0
               : s.in(
                     operand::short_conv::x)[rows[static_cast<size_t>(i)] * s.dim(operand::short_conv::x, 1) +
                                             c];
  });
}

}  // namespace

void for_paths(const Site& s, size_t starts, size_t parents,
               const std::function<void(const std::vector<size_t>&, size_t)>& visit) {
  for (size_t q = 0; q < static_cast<size_t>(s.step(StepValue::live_sequences)); ++q) {
    std::vector<size_t> rows = s.rows_before(starts, parents, q);
    const size_t own = rows.size();
    for (size_t t = s.integer(starts, q); t < s.integer(starts, q + 1); ++t) rows.push_back(t);
    visit(rows, own);
  }
}

void ref_gla(const Site& s) {
  using at = operand::gla;
  s.out(at::o).assign(s.out(at::o).size(), 0.0);
  for_paths(s, at::seq_starts, at::parents, [&](const std::vector<size_t>& rows, size_t own) {
    for (size_t n = 0; n < s.attr("heads"); ++n) {
      const GlaHead head{s, n};
      Values state(head.keys * head.values);
      for (size_t row = 0; row < rows.size(); ++row) {
        head.advance(rows[row], state);
        if (row >= own) head.read(rows[row], state);
      }
    }
  });
}

void ref_gla_grad(const Site& s) {
  using at = operand::gla_grad;
  for (const size_t i : {at::d_q, at::d_k, at::d_v, at::d_gate}) s.out(i).assign(s.out(i).size(), 0.0);
  for_paths(s, at::seq_starts, at::parents, [&](const std::vector<size_t>& rows, size_t own) {
    for (size_t n = 0; n < s.attr("heads"); ++n) gla_head_grad({s, n}, rows, own);
  });
}

void ref_gla_cached(const Site& s) {
  using at = operand::gla_cached;
  s.out(at::o).assign(s.out(at::o).size(), 0.0);
  const Values before =
      s.step(StepValue::kv_length) == 0 ? Values(s.out(at::state).size()) : s.out(at::state);
  for (size_t n = 0; n < s.attr("heads"); ++n) {
    const GlaHead head{s, n};
    const auto begin = static_cast<std::ptrdiff_t>(head.kv * head.keys * head.values);
    Values state(before.begin() + begin,
                 before.begin() + begin + static_cast<std::ptrdiff_t>(head.keys * head.values));
    for (size_t t = 0; t < static_cast<size_t>(s.step(StepValue::live_tokens)); ++t) {
      head.advance(t, state);
      head.read(t, state);
    }
    std::copy(state.begin(), state.end(), s.out(at::state).begin() + begin);
  }
}

void ref_short_conv(const Site& s) {
  using at = operand::short_conv;
  const size_t width = s.dim(at::x, 1);
  s.out(at::y).assign(s.out(at::y).size(), 0.0);
  for_paths(s, at::seq_starts, at::parents, [&](const std::vector<size_t>& rows, size_t own) {
    for (size_t row = own; row < rows.size(); ++row)
      for (size_t c = 0; c < width; ++c) {
        const double sum = conv_sum(s, rows, row, c);
        s.out(at::y)[rows[row] * width + c] = sum * sigmoid(sum);
      }
  });
}

void ref_short_conv_grad(const Site& s) {
  using at = operand::short_conv_grad;
  const size_t width = s.dim(at::x, 1), taps = s.dim(at::weight, 2);
  s.out(at::d_x).assign(s.out(at::d_x).size(), 0.0);
  Values& d_weight = s.gradient(at::d_weight);
  for_paths(s, at::seq_starts, at::parents, [&](const std::vector<size_t>& rows, size_t own) {
    for (size_t row = own; row < rows.size(); ++row)
      for (size_t c = 0; c < width; ++c) {
        const double sum = conv_sum(s, rows, row, c);
        const double d_sum = s.in(at::d_y)[rows[row] * width + c] * sigmoid(sum) * (1 + sum * sigmoid(-sum));
        for (size_t j = 0; j < taps && row >= j; ++j) {
          const size_t tap = c * taps + taps - 1 - j, x = rows[row - j] * width + c;
          s.out(at::d_x)[x] += d_sum * s.in(at::weight)[tap];
          d_weight[tap] += d_sum * s.in(at::x)[x];
        }
      }
  });
}

void ref_short_conv_cached(const Site& s) {
  using at = operand::short_conv_cached;
  const size_t width = s.dim(at::x, 1);
  const auto kept = static_cast<int64_t>(s.dim(at::weight, 2)) - 1;
  const auto live = static_cast<int64_t>(s.step(StepValue::live_tokens));
  const bool fresh = s.step(StepValue::kv_length) == 0;
  const Values before = fresh ? Values(s.out(at::rows).size()) : s.out(at::rows);
  s.out(at::y).assign(s.out(at::y).size(), 0.0);
  const bool apart = s.op.attrs.contains("apart");
  // Takes tokens [first, first + count) behind the rows that are kept of their sequence.
  const auto go_on = [&](int64_t sequence, int64_t first, int64_t count, size_t c) {
    const auto x = [&](int64_t t) {
      return t < 0 ? before[static_cast<size_t>((sequence + 1) * kept + t) * width + c]
                   : s.in(at::x)[static_cast<size_t>(first + t) * width + c];
    };
    for (int64_t t = 0; t < count; ++t) {
      const double sum = conv_sum(s, t, c, x);
      s.out(at::y)[static_cast<size_t>(first + t) * width + c] = sum * sigmoid(sum);
    }
    for (int64_t r = 0; r < kept; ++r)
      s.out(at::rows)[static_cast<size_t>(sequence * kept + r) * width + c] = x(count - kept + r);
  };
  for (size_t c = 0; c < width; ++c)
    if (apart)
      for (int64_t t = 0; t < live; ++t) go_on(t, t, 1, c);
    else
      go_on(0, 0, live, c);
}

}  // namespace plimsoll::harness
