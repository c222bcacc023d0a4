// The references of attention.
#include <algorithm>
#include <cmath>

#include "harness/reference_site.h"
#include "ops/name_hash.h"
#include "ops/philox.h"

namespace plimsoll::harness {

// Logits to probabilities; returns the log of the sum of their exponentials.
double softmax(Values& p) {
  const double top = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (const double x : p) sum += std::exp(x - top);
  const double lse = top + std::log(sum);
  for (double& x : p) x = std::exp(x - lse);
  return lse;
}

namespace {

// q, k and v, which all attentions have in these places.
using qkv = operand::attention;

// Operands that not every attention has, or that others have elsewhere.
struct Extras {
  const Site& s;
  size_t step, table;
  size_t starts = 0, key_starts = 0, samples = 0, positions = 0, parents = 0;

  [[nodiscard]] bool causal() const { return !s.op.attrs.contains("causal") || s.attr("causal") == 1; }
  [[nodiscard]] double scale() const {
    return s.op.attrs.contains("scale") ? s.op.attr_float("scale")
                                        : 1 / std::sqrt(static_cast<double>(s.attr("head_dim")));
  }
  [[nodiscard]] double cap() const {
    return s.op.attrs.contains("softcap") ? s.op.attr_float("softcap") : 0.0;
  }
  // T5's bucket of a key that lies `distance` behind the query.
  [[nodiscard]] size_t bucket(double distance) const {
    const double all = static_cast<double>(s.dim(table, 0));
    const double buckets = causal() ? all : all / 2;
    const double side = !causal() && distance > 0 ? buckets : 0;
    const double away = causal() ? std::max(-distance, 0.0) : std::abs(distance);
    const double exact = std::floor(buckets / 2);
    if (away < exact) return static_cast<size_t>(side + away);
    const double grown =
        std::log(away / exact) / std::log(static_cast<double>(s.attr("max_distance")) / exact);
    // A border that is meant to be whole is a little more or less than that.
    return static_cast<size_t>(side +
                               std::min(exact + std::floor(grown * (buckets - exact) + 1e-6), buckets - 1));
  }
  [[nodiscard]] double bias(double distance, size_t head) const {
    return s.op.has_input(table) ? s.in(table)[bucket(distance) * s.dim(table, 1) + head] : 0.0;
  }
  // 0, or 1 / (1 - p), for the probability of a query's key.
  [[nodiscard]] double kept(size_t query, size_t head, size_t key) const {
    if (!s.op.attrs.contains("dropout")) return 1.0;
    const double p = s.op.attr_float("dropout");
    const Values& now = s.in(step);
    const PhiloxStream stream = philox_stream(
        step_seed(now.data()), name_hash(".probabilities", name_hash(s.op.scope)),
        static_cast<uint32_t>(s.integer(positions, query)), static_cast<uint32_t>(s.integer(samples, query)),
        static_cast<uint32_t>(s.step_at(step, StepValue::optimizer_step)));
    const auto element = static_cast<int64_t>((head << 23U) + key);
    return philox_bits32(stream, element) * 0x1p-32 < p ? 0.0 : 1 / (1 - p);
  }
};

template <class at>
Extras extras_of(const Site& s) {
  return {s,           at::step,      at::bias_table, at::seq_starts, at::key_starts,
          at::samples, at::positions, at::parents};
}

// The place where one query and head look: rows of q and k, offsets within them. Query `number` of its
// sequence, as counted from the first key.
struct View {
  size_t query, key_begin, key_end, sequence_begin;  // rows
  size_t number;
  size_t head, q_head, k_head;
  const std::vector<size_t>* path = nullptr;  // of a tree: the rows of the keys, in place of neighbours

  [[nodiscard]] size_t key_row(size_t j) const {
    return path == nullptr ? key_begin + j : (*path)[key_begin + j];
  }
  [[nodiscard]] double distance(size_t j) const {
    return static_cast<double>(key_begin + j - sequence_begin) - static_cast<double>(number);
  }
  [[nodiscard]] size_t key_number(size_t j) const { return key_begin + j - sequence_begin; }
};

struct Rows {
  size_t begin, end;
};

Values logits_of(const Site& s, const Extras& extras, const Values& k, const View& view) {
  // Names are looked up outside of loops: inside, it was a quarter of what cases of attention took.
  const size_t head = s.attr("head_dim"), k_row = s.dim(qkv::k, 1);
  const double scale = extras.scale(), cap = extras.cap();
  const double* const q = s.in(qkv::q).data() + view.query * s.dim(qkv::q, 1) + view.q_head;
  Values p;
  for (size_t j = 0; j < view.key_end - view.key_begin; ++j) {
    const double* const key = k.data() + view.key_row(j) * k_row + view.k_head;
    double dot = 0;
    for (size_t d = 0; d < head; ++d) dot += q[d] * key[d];
    const double logit = dot * scale + extras.bias(view.distance(j), view.head);
    p.push_back(cap == 0 ? logit : cap * std::tanh(logit / cap));
  }
  return p;
}

// Calls visit(view, logits) for every query and head of `queries`, which are a sequence with the keys `keys`;
// `cached` keys lie before the first query's own.
template <class Visit>
void for_queries(const Site& s, const Extras& extras, const Values& k, Rows queries, Rows keys, size_t cached,
                 Visit visit) {
  const size_t head = s.attr("head_dim");
  const size_t q_row = s.dim(qkv::q, 1);
  const size_t k_row = s.dim(qkv::k, 1);
  for (size_t t = queries.begin; t < queries.end; ++t)
    for (size_t n = 0; n < q_row / head; ++n) {
      const size_t number = t - queries.begin + cached;
      View view{t, keys.begin, keys.end, keys.begin, number, n, n * head, n / (q_row / k_row) * head};
      if (extras.causal()) view.key_end = keys.begin + number + 1;
      if (const size_t window = s.attr("window"); window > 0) {
        const size_t own = keys.begin + number;
        view.key_begin = std::max(view.key_begin, own + 1 - std::min(own + 1, window));
        view.key_end = std::min(view.key_end, own + window);
      }
      Values p = logits_of(s, extras, k, view);
      if (!p.empty()) visit(view, p);
    }
}

// The same for all segments of trees: a query sees the rows of its segment's ancestors, then those of its own
// up to itself.
template <class Visit>
void for_segments(const Site& s, const Extras& extras, Visit visit) {
  const size_t starts = extras.starts, head = s.attr("head_dim"), group = s.dim(qkv::q, 1) / s.dim(qkv::k, 1);
  const double count = s.step_at(extras.step, live_sequences_of(s.op.axis));
  for (size_t segment = 0; segment < static_cast<size_t>(count); ++segment) {
    std::vector<size_t> path = s.rows_before(starts, extras.parents, segment);
    for (size_t t = s.integer(starts, segment); t < s.integer(starts, segment + 1); ++t) {
      path.push_back(t);
      for (size_t n = 0; n < s.dim(qkv::q, 1) / head; ++n) {
        const size_t window = s.attr("window");
        const size_t first = window > 0 && path.size() > window ? path.size() - window : 0;
        const View view{t, first, path.size(), 0, path.size() - 1, n, n * head, n / group * head, &path};
        Values p = logits_of(s, extras, s.in(qkv::k), view);
        visit(view, p);
      }
    }
  }
}

// The same for all sequences of a batch.
template <class Visit>
void for_sequences(const Site& s, const Extras& extras, Visit visit) {
  if (s.op.has_input(extras.parents)) return for_segments(s, extras, visit);
  const size_t starts = extras.starts;
  const size_t key_starts = s.op.has_input(extras.key_starts) ? extras.key_starts : starts;
  const double count = s.step_at(extras.step, live_sequences_of(s.op.axis));
  for (size_t i = 0; i < static_cast<size_t>(count); ++i)
    for_queries(s, extras, s.in(qkv::k), {s.integer(starts, i), s.integer(starts, i + 1)},
                {s.integer(key_starts, i), s.integer(key_starts, i + 1)}, 0, visit);
}

void weigh_values(const Site& s, const Extras& extras, const View& view, const Values& p, const Values& v) {
  const size_t head = s.attr("head_dim"), k_row = s.dim(qkv::k, 1);
  double* const o = s.out(qkv::o).data() + view.query * s.dim(qkv::q, 1) + view.q_head;
  for (size_t j = 0; j < p.size(); ++j) {
    const double weight = p[j] * extras.kept(view.query, view.head, view.key_number(j));
    const double* const value = v.data() + view.key_row(j) * k_row + view.k_head;
    for (size_t d = 0; d < head; ++d) o[d] += weight * value[d];
  }
}

}  // namespace

void ref_attention(const Site& s) {
  using at = operand::attention;
  s.out(at::o).assign(s.out(at::o).size(), 0.0);
  s.out(at::lse).assign(s.out(at::lse).size(), 0.0);
  const Extras extras = extras_of<at>(s);
  for_sequences(s, extras, [&](const View& view, Values& p) {
    s.out(at::lse)[(view.query * s.dim(at::q, 1) + view.q_head) / s.attr("head_dim")] = softmax(p);
    weigh_values(s, extras, view, p, s.in(at::v));
  });
}

void ref_attention_grad(const Site& s) {
  using at = operand::attention_grad;
  const size_t head = s.attr("head_dim");
  const size_t q_row = s.dim(at::q, 1);
  const size_t k_row = s.dim(at::k, 1);
  const Extras extras = extras_of<at>(s);
  const double scale = extras.scale();
  for (const size_t i : {at::d_q, at::d_k, at::d_v}) s.out(i).assign(s.out(i).size(), 0.0);
  if (s.op.has_output(at::d_bias_table) && s.attr("accumulate") == 0 &&
      s.step_at(at::step, StepValue::first_micro_step) == 1)
    s.out(at::d_bias_table).assign(s.out(at::d_bias_table).size(), 0.0);
  for_sequences(s, extras, [&](const View& view, Values& p) {
    Values slopes(p.size(), 1.0);
    for (size_t j = 0; extras.cap() > 0 && j < p.size(); ++j) slopes[j] -= std::pow(p[j] / extras.cap(), 2);
    softmax(p);
    const size_t at_q = view.query * q_row + view.q_head;
    const auto at_k = [&](size_t j) { return view.key_row(j) * k_row + view.k_head; };
    const double *const q = s.in(at::q).data() + at_q, *const d_o = s.in(at::d_o).data() + at_q;
    double* const d_q = s.out(at::d_q).data() + at_q;
    Values d_p(p.size()), kept(p.size());
    double mean = 0;
    for (size_t j = 0; j < p.size(); ++j) {
      kept[j] = extras.kept(view.query, view.head, view.key_number(j));
      const double* const value = s.in(at::v).data() + at_k(j);
      for (size_t d = 0; d < head; ++d) d_p[j] += kept[j] * d_o[d] * value[d];
      mean += p[j] * d_p[j];
    }
    for (size_t j = 0; j < p.size(); ++j) {
      const double d_logit = p[j] * (d_p[j] - mean) * slopes[j];
      if (s.op.has_output(at::d_bias_table))
        s.out(at::d_bias_table)[extras.bucket(view.distance(j)) * s.dim(at::bias_table, 1) + view.head] +=
            d_logit;
      const double* const key = s.in(at::k).data() + at_k(j);
      double *const d_key = s.out(at::d_k).data() + at_k(j), *const d_value = s.out(at::d_v).data() + at_k(j);
      for (size_t d = 0; d < head; ++d) {
        d_q[d] += d_logit * scale * key[d];
        d_key[d] += d_logit * scale * q[d];
        d_value[d] += p[j] * kept[j] * d_o[d];
      }
    }
  });
}

void ref_attention_cached(const Site& s) {
  using at = operand::attention_cached;
  const auto live = static_cast<size_t>(s.step_at(at::step, live_tokens_of(s.op.axis)));
  const Extras extras{.s = s, .step = at::step, .table = at::bias_table};
  s.out(at::o).assign(s.out(at::o).size(), 0.0);
  const auto attend = [&](const Values& k, const Values& v, Rows queries, Rows keys, size_t cached) {
    for_queries(s, extras, k, queries, keys, cached, [&](const View& view, Values& p) {
      softmax(p);
      weigh_values(s, extras, view, p, v);
    });
  };
  if (s.op.attrs.contains("keys_of")) {
    const auto axis = static_cast<AxisId>(s.attr("keys_of"));
    return attend(s.in(at::k), s.in(at::v), {0, live},
                  {0, static_cast<size_t>(s.step_at(at::step, live_tokens_of(axis)))}, 0);
  }
  const auto cached = static_cast<size_t>(s.step_at(at::step, StepValue::kv_length));
  const size_t k_row = s.dim(at::k, 1);
  // The sequences of the cache: that of all queries, or one of each.
  const bool apart = s.op.attrs.contains("apart");
  const size_t rows = apart ? 1 : live;
  for (size_t r = 0; r < live; r += rows) {
    const size_t begin = apart ? r * s.attr("capacity") : 0;
    for (size_t i = 0; i < rows * k_row; ++i) {
      s.out(at::k_cache)[(begin + cached) * k_row + i] = s.in(at::k)[r * k_row + i];
      s.out(at::v_cache)[(begin + cached) * k_row + i] = s.in(at::v)[r * k_row + i];
    }
    attend(s.out(at::k_cache), s.out(at::v_cache), {r, r + rows}, {begin, begin + cached + rows}, cached);
  }
}

}  // namespace plimsoll::harness
