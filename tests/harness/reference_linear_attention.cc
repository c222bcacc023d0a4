// Gated linear attention and the short convolution, token by token. Sequences may be segments of trees.
#include <algorithm>
#include <functional>

#include "graph/graph.h"
#include "harness/reference_site.h"

namespace plimsoll::harness {
namespace {

// One query head over the rows of a sequence.
struct GlaHead {
  const Site& s;
  size_t n, heads = s.attr("heads"), kv_heads = s.attr("kv_heads");
  size_t keys = s.dim(0, 1) / heads, values = s.dim(2, 1) / kv_heads;
  size_t kv = n / (heads / kv_heads);
  double scale = s.op.attr_float("scale");

  [[nodiscard]] size_t q_at(size_t t, size_t i) const { return (t * heads + n) * keys + i; }
  [[nodiscard]] size_t k_at(size_t t, size_t i) const { return (t * kv_heads + kv) * keys + i; }
  [[nodiscard]] size_t v_at(size_t t, size_t j) const { return (t * kv_heads + kv) * values + j; }
  [[nodiscard]] size_t o_at(size_t t, size_t j) const { return (t * heads + n) * values + j; }
  [[nodiscard]] double free_decay(size_t t, size_t i) const {
    return -std::log1p(std::exp(-s.in(3)[k_at(t, i)])) / s.op.attr_float("normalizer");
  }
  [[nodiscard]] double decay(size_t t, size_t i) const {
    return std::exp(std::max(free_decay(t, i), s.op.attr_float("clamp_min")));
  }
  void advance(size_t t, Values& state) const {
    const double* const v = s.in(2).data() + v_at(t, 0);
    for (size_t i = 0; i < keys; ++i) {
      const double kept = decay(t, i),
                   k = s.in(1)[k_at(t, i)];  // logarithm and exponential once for all values
      for (size_t j = 0; j < values; ++j) state[i * values + j] = kept * state[i * values + j] + k * v[j];
    }
  }
  void read(size_t t, const Values& state) const {
    for (size_t j = 0; j < values; ++j) {
      double sum = 0;
      for (size_t i = 0; i < keys; ++i) sum += s.in(0)[q_at(t, i)] * state[i * values + j];
      s.out(0)[o_at(t, j)] = scale * sum;
    }
  }
};

// visit(rows, own): of each live segment the rows that stand before it and its own, which begin at `own`.
void for_paths(const Site& s, size_t starts, size_t parents,
               const std::function<void(const std::vector<size_t>&, size_t)>& visit) {
  for (size_t q = 0; q < static_cast<size_t>(s.step(StepValue::live_sequences)); ++q) {
    std::vector<size_t> rows = s.rows_before(starts, parents, q);
    const size_t own = rows.size();
    for (size_t t = s.integer(starts, q); t < s.integer(starts, q + 1); ++t) rows.push_back(t);
    visit(rows, own);
  }
}

// The recurrence backwards: `d_state` is the gradient of the state after a row. What rows before `own` gave
// out are others' outputs.
void gla_head_grad(const GlaHead& h, const std::vector<size_t>& rows, size_t own) {
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
        const double d_o = at < own ? 0 : s.in(4)[h.o_at(t, j)] * h.scale;
        s.out(0)[h.q_at(t, i)] += d_o * states[at + 1][i * h.values + j];
        d += d_o * s.in(0)[h.q_at(t, i)];
        s.out(1)[h.k_at(t, i)] += d * s.in(2)[h.v_at(t, j)];
        s.out(2)[h.v_at(t, j)] += d * s.in(1)[h.k_at(t, i)];
        d_decay += d * states[at][i * h.values + j];
        d *= decay;
      }
      if (h.free_decay(t, i) < s.op.attr_float("clamp_min")) continue;
      s.out(3)[h.k_at(t, i)] +=
          d_decay * decay * sigmoid(-s.in(3)[h.k_at(t, i)]) / s.op.attr_float("normalizer");
    }
}

// The sum of the taps at element c of row `at`, x(i) being the element of row i; taps are of input 1.
double conv_sum(const Site& s, int64_t at, size_t c, const std::function<double(int64_t)>& x) {
  const size_t taps = s.dim(1, 2);
  double sum = 0;
  for (size_t j = 0; j < taps; ++j) sum += s.in(1)[c * taps + taps - 1 - j] * x(at - static_cast<int64_t>(j));
  return sum;
}

// The same in a sequence of such rows of input 0, before which there are zeros.
double conv_sum(const Site& s, const std::vector<size_t>& rows, size_t at, size_t c) {
  return conv_sum(s, static_cast<int64_t>(at), c, [&](int64_t i) {
    return i < 0 ? 0.0 : s.in(0)[rows[static_cast<size_t>(i)] * s.dim(0, 1) + c];
  });
}

}  // namespace

void ref_gla(const Site& s) {
  s.out(0).assign(s.out(0).size(), 0.0);
  for_paths(s, 4, 6, [&](const std::vector<size_t>& rows, size_t own) {
    for (size_t n = 0; n < s.attr("heads"); ++n) {
      const GlaHead head{s, n};
      Values state(head.keys * head.values);
      for (size_t at = 0; at < rows.size(); ++at) {
        head.advance(rows[at], state);
        if (at >= own) head.read(rows[at], state);
      }
    }
  });
}

void ref_gla_grad(const Site& s) {
  for (size_t i = 0; i < 4; ++i) s.out(i).assign(s.out(i).size(), 0.0);
  for_paths(s, 5, 7, [&](const std::vector<size_t>& rows, size_t own) {
    for (size_t n = 0; n < s.attr("heads"); ++n) gla_head_grad({s, n}, rows, own);
  });
}

void ref_gla_cached(const Site& s) {
  s.out(0).assign(s.out(0).size(), 0.0);
  const Values before = s.step(StepValue::kv_length) == 0 ? Values(s.out(1).size()) : s.out(1);
  for (size_t n = 0; n < s.attr("heads"); ++n) {
    const GlaHead head{s, n};
    const auto at = static_cast<std::ptrdiff_t>(head.kv * head.keys * head.values);
    Values state(before.begin() + at,
                 before.begin() + at + static_cast<std::ptrdiff_t>(head.keys * head.values));
    for (size_t t = 0; t < static_cast<size_t>(s.step(StepValue::live_tokens)); ++t) {
      head.advance(t, state);
      head.read(t, state);
    }
    std::copy(state.begin(), state.end(), s.out(1).begin() + at);
  }
}

void ref_short_conv(const Site& s) {
  const size_t width = s.dim(0, 1);
  s.out(0).assign(s.out(0).size(), 0.0);
  for_paths(s, 2, 4, [&](const std::vector<size_t>& rows, size_t own) {
    for (size_t at = own; at < rows.size(); ++at)
      for (size_t c = 0; c < width; ++c) {
        const double sum = conv_sum(s, rows, at, c);
        s.out(0)[rows[at] * width + c] = sum * sigmoid(sum);
      }
  });
}

void ref_short_conv_grad(const Site& s) {
  const size_t width = s.dim(0, 1), taps = s.dim(1, 2);
  s.out(0).assign(s.out(0).size(), 0.0);
  Values& d_weight = s.gradient(1);
  for_paths(s, 3, 5, [&](const std::vector<size_t>& rows, size_t own) {
    for (size_t at = own; at < rows.size(); ++at)
      for (size_t c = 0; c < width; ++c) {
        const double sum = conv_sum(s, rows, at, c);
        const double d_sum = s.in(2)[rows[at] * width + c] * sigmoid(sum) * (1 + sum * sigmoid(-sum));
        for (size_t j = 0; j < taps && at >= j; ++j) {
          const size_t tap = c * taps + taps - 1 - j, x = rows[at - j] * width + c;
          s.out(0)[x] += d_sum * s.in(1)[tap];
          d_weight[tap] += d_sum * s.in(0)[x];
        }
      }
  });
}

void ref_short_conv_cached(const Site& s) {
  const size_t width = s.dim(0, 1);
  const auto kept = static_cast<int64_t>(s.dim(1, 2)) - 1;
  const auto live = static_cast<int64_t>(s.step(StepValue::live_tokens));
  const bool fresh = s.step(StepValue::kv_length) == 0;
  const Values before = fresh ? Values(s.out(1).size()) : s.out(1);
  s.out(0).assign(s.out(0).size(), 0.0);
  for (size_t c = 0; c < width; ++c) {
    const auto x = [&](int64_t t) {
      return t < 0 ? before[static_cast<size_t>(kept + t) * width + c]
                   : s.in(0)[static_cast<size_t>(t) * width + c];
    };
    for (int64_t t = 0; t < live; ++t) {
      const double sum = conv_sum(s, t, c, x);
      s.out(0)[static_cast<size_t>(t) * width + c] = sum * sigmoid(sum);
    }
    for (int64_t r = 0; r < kept; ++r) s.out(1)[static_cast<size_t>(r) * width + c] = x(live - kept + r);
  }
}

}  // namespace plimsoll::harness
