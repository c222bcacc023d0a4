#include "harness/reference.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "base/error.h"
#include "graph/op_kind.h"
#include "harness/op_harness.h"
#include "harness/reference_site.h"
#include "ops/linear/nf4.h"
#include "ops/loss/word_scores.h"
#include "ops/name_hash.h"
#include "ops/philox.h"
#include "ops/pointwise/padding_row.h"

namespace plimsoll::harness {
namespace {

void ref_embedding(const Site& s) {
  const size_t width = s.dim(1, 1);
  const auto live = static_cast<size_t>(s.step(StepValue::live_tokens));
  for (size_t i = 0; i < s.out(0).size(); ++i)
    s.out(0)[i] = i / width < live ? s.in(1)[s.integer(0, i / width) * width + i % width] : 0.0;
}

void ref_embedding_dw(const Site& s) {
  const size_t width = s.dim(1, 1);
  const auto live = static_cast<size_t>(s.step(StepValue::live_tokens));
  Values& g = s.gradient(0);
  for (size_t i = 0; i < live * width; ++i)
    if (static_cast<int64_t>(s.integer(0, i / width)) != padding_row(s.op))
      g[s.integer(0, i / width) * width + i % width] += s.in(1)[i];
}

void ref_embedding_noise(const Site& s) {
  const size_t width = s.dim(0, 1);
  const Values& step = s.in(4);
  s.out(0) = s.in(0);
  for (size_t token = 0; token < s.dim(0, 0); ++token) {
    const size_t length = s.integer(3, token);
    const double most = s.op.attr_float("alpha") / std::sqrt(static_cast<double>(length * width));
    for (size_t i = token * width; length > 0 && i < (token + 1) * width; ++i) {
      const PhiloxStream stream =
          philox_stream(step_seed(step.data()), name_hash(s.op.scope),
                        static_cast<uint32_t>(s.in(2)[i / width]), static_cast<uint32_t>(s.in(1)[i / width]),
                        static_cast<uint32_t>(s.step(StepValue::optimizer_step)));
      const auto bits = static_cast<int32_t>(philox_bits32(stream, static_cast<int64_t>(i % width)));
      s.out(0)[i] += most * bits * 0x1p-31;
    }
  }
}

void ref_dora_norm(const Site& s) {
  const size_t r = s.dim(0, 0), in = s.dim(0, 1);
  for (size_t o = 0; o < s.out(0).size(); ++o) {
    double squares = 0;
    for (size_t i = 0; i < in; ++i) {
      double value = 0;
      for (size_t k = 0; k < r; ++k) value += s.in(2)[o * r + k] * s.in(0)[k * in + i];
      squares += std::pow(s.in(1)[o * in + i] + s.op.attr_float("scale") * value, 2);
    }
    s.out(0)[o] = std::sqrt(squares);
  }
}

void ref_dora_scale(const Site& s) {
  const size_t width = s.dim(0, 1);
  for (size_t i = 0; i < s.out(0).size(); ++i) {
    s.out(0)[i] = s.in(1)[i % width] / s.in(2)[i % width] * s.in(0)[i];
    if (s.op.has_input(4)) s.out(0)[i] += s.in(4)[i % width];
    if (s.op.has_input(5)) s.out(0)[i] -= s.in(5)[i];
    if (s.op.has_input(6)) s.out(0)[i] += s.in(6)[i];
  }
}

void ref_dora_scale_grad(const Site& s) {
  const size_t width = s.dim(0, 1);
  Values no_gradient(width);
  Values& d_magnitude = s.op.has_output(1) ? s.gradient(1) : no_gradient;
  for (size_t i = 0; i < s.in(0).size(); ++i) {
    d_magnitude[i % width] += s.in(3)[i] * s.in(0)[i] / s.in(2)[i % width];
    if (s.op.has_output(0)) s.out(0)[i] = s.in(3)[i] * s.in(1)[i % width] / s.in(2)[i % width];
  }
}

void ref_rms_norm(const Site& s) {
  const size_t width = s.dim(1, 0);
  for (size_t r = 0; r < s.in(0).size() / width; ++r) {
    double squares = 0;
    for (size_t i = 0; i < width; ++i) squares += std::pow(s.in(0)[r * width + i], 2);
    s.out(1)[r] = 1 / std::sqrt(squares / static_cast<double>(width) + s.op.attr_float("eps"));
    for (size_t i = 0; i < width; ++i)
      s.out(0)[r * width + i] = s.in(0)[r * width + i] * s.out(1)[r] * s.in(1)[i];
  }
}

void ref_rms_norm_grad(const Site& s) {
  const size_t width = s.dim(1, 0);
  Values no_gradient(width);
  Values& d_weight = s.op.has_output(1) ? s.gradient(1) : no_gradient;
  for (size_t r = 0; r < s.in(0).size() / width; ++r) {
    const double rstd = s.in(2)[r];
    double mean = 0;  // of d_y * weight * normalised x
    for (size_t i = r * width; i < (r + 1) * width; ++i)
      mean += s.in(3)[i] * s.in(1)[i % width] * s.in(0)[i] * rstd / static_cast<double>(width);
    for (size_t i = r * width; i < (r + 1) * width; ++i) {
      const double normal = s.in(0)[i] * rstd;
      d_weight[i % width] += s.in(3)[i] * normal;
      if (!s.op.has_output(0)) continue;
      s.out(0)[i] = rstd * (s.in(3)[i] * s.in(1)[i % width] - normal * mean);
      if (s.op.has_input(4)) s.out(0)[i] += s.in(4)[i];
    }
  }
}

void ref_layer_norm(const Site& s) {
  const size_t width = s.dim(1, 0);
  for (size_t r = 0; r < s.dim(0, 0); ++r) {
    double mean = 0, squares = 0;
    for (size_t i = r * width; i < (r + 1) * width; ++i) mean += s.in(0)[i] / static_cast<double>(width);
    for (size_t i = r * width; i < (r + 1) * width; ++i) squares += std::pow(s.in(0)[i] - mean, 2);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(width) + s.op.attr_float("eps"));
    for (size_t i = r * width; i < (r + 1) * width; ++i)
      s.out(0)[i] = (s.in(0)[i] - mean) * rstd * s.in(1)[i % width] + s.in(2)[i % width];
    s.out(1)[2 * r] = mean;
    s.out(1)[2 * r + 1] = rstd;
  }
}

void ref_layer_norm_grad(const Site& s) {
  const size_t width = s.dim(1, 0);
  const auto n = static_cast<double>(width);
  Values no_gradient(width);
  Values& d_weight = s.op.has_output(1) ? s.gradient(1) : no_gradient;
  for (size_t r = 0; r < s.dim(0, 0); ++r) {
    const auto normal = [&](size_t i) { return (s.in(0)[i] - s.in(2)[2 * r]) * s.in(2)[2 * r + 1]; };
    const auto weighted = [&](size_t i) { return s.in(3)[i] * s.in(1)[i % width]; };
    double mean = 0, product = 0;  // of the weighted gradient, and of that times the normalised x
    for (size_t i = r * width; i < (r + 1) * width; ++i) {
      mean += weighted(i) / n;
      product += weighted(i) * normal(i) / n;
      d_weight[i % width] += s.in(3)[i] * normal(i);
    }
    for (size_t i = r * width; s.op.has_output(0) && i < (r + 1) * width; ++i) {
      s.out(0)[i] = s.in(2)[2 * r + 1] * (weighted(i) - mean - normal(i) * product);
      if (s.op.has_input(4)) s.out(0)[i] += s.in(4)[i];
    }
  }
}

// What input `t` and the one behind it, [columns, r] or turned, add to row i / columns, column i % columns.
double rider(const Site& s, size_t t, size_t i, size_t columns, bool turned) {
  if (!s.op.has_input(t)) return 0;
  const size_t r = s.dim(t, 1);
  double sum = 0;
  for (size_t k = 0; k < r; ++k)
    sum +=
        s.in(t)[i / columns * r + k] * s.in(t + 1)[turned ? k * columns + i % columns : i % columns * r + k];
  return s.op.attr_float("rider_scale") * sum;
}

void ref_linear(const Site& s) {
  const size_t in = s.dim(1, 1);
  const size_t out = s.dim(1, 0);
  for (size_t i = 0; i < s.out(0).size(); ++i) {
    double sum = 0;
    for (size_t k = 0; k < in; ++k) sum += s.in(0)[i / out * in + k] * s.in(1)[i % out * in + k];
    sum = sum * s.op.attr_float("scale") + rider(s, 5, i, out, false);
    if (s.op.has_input(2)) sum += s.in(2)[i % out];
    if (s.op.has_input(3)) sum += s.in(3)[i];
    s.out(0)[i] = sum;
  }
}

void ref_linear_dx(const Site& s) {
  const size_t in = s.dim(1, 1);
  const size_t out = s.dim(1, 0);
  for (size_t i = 0; i < s.out(0).size(); ++i) {
    double sum = 0;
    for (size_t k = 0; k < out; ++k) sum += s.in(0)[i / in * out + k] * s.in(1)[k * in + i % in];
    s.out(0)[i] =
        sum * s.op.attr_float("scale") + rider(s, 4, i, in, true) + (s.op.has_input(2) ? s.in(2)[i] : 0.0);
  }
}

void ref_linear_dw(const Site& s) {
  const size_t in = s.dim(0, 1);
  const size_t out = s.dim(1, 1);
  Values& g = s.gradient(0);
  for (size_t t = 0; t < s.dim(0, 0); ++t)
    for (size_t i = 0; i < g.size(); ++i)
      g[i] += s.op.attr_float("scale") * s.in(1)[t * out + i / in] * s.in(0)[t * in + i % in];
}

void ref_bias_grad(const Site& s) {
  Values& g = s.gradient(0);
  for (size_t i = 0; i < s.in(0).size(); ++i) g[i % g.size()] += s.in(0)[i];
}

void ref_rope_table(const Site& s) {
  const size_t half = s.dim(2, 1) - 1;
  for (size_t t = 0; t < s.dim(0, 0); ++t)
    for (size_t i = 0; i < 2 * half; ++i) s.out(0)[t * 2 * half + i] = i < half ? 1.0 : 0.0;
  for (size_t q = 0; q < static_cast<size_t>(s.step(StepValue::live_sequences)); ++q)
    for (size_t t = s.integer(1, q); t < s.integer(1, q + 1); ++t)
      for (size_t i = 0; i < half; ++i) {
        const double* frequencies = s.in(2).data() + q * (half + 1);
        const double angle = s.in(0)[t] * frequencies[i];
        s.out(0)[t * 2 * half + i] = std::cos(angle) * frequencies[half];
        s.out(0)[t * 2 * half + half + i] = std::sin(angle) * frequencies[half];
      }
}

void ref_rope(const Site& s) {
  const size_t head = s.dim(1, 1);
  const size_t half = head / 2;
  const double sign = s.op.attr_int("inverse") == 1 ? -1 : 1;
  const Values x = s.in(0);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t token = i / s.dim(0, 1);
    const size_t pair = i % half;
    const double cosine = s.in(1)[token * head + pair];
    const double sine = sign * s.in(1)[token * head + half + pair];
    s.out(0)[i] = i % head < half ? x[i] * cosine - x[i + half] * sine : x[i] * cosine + x[i - half] * sine;
  }
}

void ref_swiglu(const Site& s) {
  for (size_t i = 0; i < s.in(0).size(); ++i) s.out(0)[i] = s.in(0)[i] * sigmoid(s.in(0)[i]) * s.in(1)[i];
}

void ref_swiglu_grad(const Site& s) {
  for (size_t i = 0; i < s.in(0).size(); ++i) {
    const double gate = s.in(0)[i];
    const double sig = sigmoid(gate);
    s.out(0)[i] = s.in(2)[i] * s.in(1)[i] * sig * (1 + gate * (1 - sig));
    s.out(1)[i] = s.in(2)[i] * gate * sig;
  }
}

void ref_relu(const Site& s) {
  for (size_t i = 0; i < s.in(0).size(); ++i) s.out(0)[i] = std::max(s.in(0)[i], 0.0);
}

void ref_relu_grad(const Site& s) {
  for (size_t i = 0; i < s.in(0).size(); ++i) s.out(0)[i] = s.in(0)[i] > 0 ? s.in(1)[i] : 0.0;
}

// The tanh form, and its derivative.
std::pair<double, double> gelu_by_tanh(double x) {
  const double c = std::sqrt(2 / std::numbers::pi);
  const double tanh = std::tanh(c * (x + 0.044715 * x * x * x));
  return {0.5 * x * (1 + tanh),
          0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * c * (1 + 3 * 0.044715 * x * x)};
}

void ref_geglu(const Site& s) {
  for (size_t i = 0; i < s.in(0).size(); ++i) s.out(0)[i] = gelu_by_tanh(s.in(0)[i]).first * s.in(1)[i];
}

void ref_geglu_grad(const Site& s) {
  for (size_t i = 0; i < s.in(0).size(); ++i) {
    const auto [value, derivative] = gelu_by_tanh(s.in(0)[i]);
    s.out(0)[i] = s.in(2)[i] * s.in(1)[i] * derivative;
    s.out(1)[i] = s.in(2)[i] * value;
  }
}

std::pair<double, double> gelu(const Site& s, double x) {
  if (s.op.attr_text("approximate") == "tanh") return gelu_by_tanh(x);
  const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
  return {x * below, below + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi)};
}

void ref_gelu(const Site& s) {
  for (size_t i = 0; i < s.in(0).size(); ++i) s.out(0)[i] = gelu(s, s.in(0)[i]).first;
}

void ref_gelu_grad(const Site& s) {
  for (size_t i = 0; i < s.in(0).size(); ++i) s.out(0)[i] = s.in(1)[i] * gelu(s, s.in(0)[i]).second;
}

void ref_tanh(const Site& s) {
  for (size_t i = 0; i < s.in(0).size(); ++i) s.out(0)[i] = std::tanh(s.in(0)[i]);
}

void ref_tanh_grad(const Site& s) {
  for (size_t i = 0; i < s.in(0).size(); ++i) s.out(0)[i] = s.in(1)[i] * (1 - s.in(0)[i] * s.in(0)[i]);
}

void ref_scale(const Site& s) {
  for (size_t i = 0; i < s.in(0).size(); ++i) s.out(0)[i] = s.op.attr_float("factor") * s.in(0)[i];
}

void ref_add(const Site& s) {
  for (size_t i = 0; i < s.in(0).size(); ++i) s.out(0)[i] = s.in(0)[i] + s.in(1)[i];
}

void ref_dropout(const Site& s) {
  const size_t width = s.dim(0, 1);
  const double p = s.op.attr_float("p");
  const Values& step = s.in(3);
  for (size_t i = 0; i < s.in(0).size(); ++i) {
    const PhiloxStream stream = philox_stream(
        step_seed(step.data()), name_hash(s.op.scope), static_cast<uint32_t>(s.in(2)[i / width]),
        static_cast<uint32_t>(s.in(1)[i / width]), static_cast<uint32_t>(s.step(StepValue::optimizer_step)));
    const double uniform = philox_bits32(stream, static_cast<int64_t>(i % width)) * 0x1p-32;
    s.out(0)[i] = uniform < p ? 0.0 : s.in(0)[i] / (1 - p);
  }
}

void ref_gather_rows(const Site& s) {
  const size_t width = s.dim(0, 1);
  for (size_t i = 0; i < s.out(0).size(); ++i)
    s.out(0)[i] = s.in(0)[s.integer(1, i / width) * width + i % width];
}

void ref_scatter_rows(const Site& s) {
  const size_t width = s.dim(0, 1);
  s.out(0).assign(s.out(0).size(), 0.0);
  const auto live = static_cast<size_t>(s.step(StepValue::live_tokens));
  for (size_t i = 0; i < live * width; ++i)
    s.out(0)[s.integer(1, i / width) * width + i % width] += s.in(0)[i];
}

void pair_loss(const Site& s, Values* d_scores) {
  Values& sums = s.out(0);
  if (s.step(StepValue::first_micro_step) == 1) sums = {0, 0, 0, 0, 0, INFINITY, -INFINITY};
  const double c = s.op.attr_float("centering");
  for (size_t i = 0; i < static_cast<size_t>(s.step(StepValue::live_tokens)); i += 2) {
    const double a = s.in(0)[i];
    const double b = s.in(0)[i + 1];
    const double p = 1 / (1 + std::exp(-(a - b - s.in(1)[i])));
    sums[0] += -std::log(p) + c * (a + b) * (a + b);
    sums[1] += 1;
    sums[2] += a > b ? 1 : 0;
    sums[3] += a;
    sums[4] += b;
    sums[5] = std::min({sums[5], a, b});
    sums[6] = std::max({sums[6], a, b});
    if (d_scores == nullptr) continue;
    (*d_scores)[i] = s.step(StepValue::loss_scale) * (p - 1 + 2 * c * (a + b));
    (*d_scores)[i + 1] = s.step(StepValue::loss_scale) * (1 - p + 2 * c * (a + b));
  }
}
void ref_pair_loss(const Site& s) { pair_loss(s, nullptr); }
void ref_pair_loss_grad(const Site& s) {
  s.out(1).assign(s.out(1).size(), 0.0);
  pair_loss(s, &s.out(1));
}

void class_loss(const Site& s, Values* d_scores) {
  Values& sums = s.out(0);
  if (s.step(StepValue::first_micro_step) == 1) sums.assign(3, 0.0);
  const size_t width = s.dim(0, 1);
  const size_t problem = s.attr("problem");
  for (size_t r = 0; r < static_cast<size_t>(s.step(StepValue::live_tokens)); ++r) {
    const auto first = s.in(0).begin() + static_cast<std::ptrdiff_t>(r * width);
    const Values scores(first, first + static_cast<std::ptrdiff_t>(width));
    double total = 0;
    for (const double x : scores) total += std::exp(x);
    sums[1] += 1;
    for (size_t k = 0; k < width; ++k) {
      const double x = scores[k];
      const double target = problem == 0 ? (s.integer(1, r) == k ? 1.0 : 0.0) : s.in(1)[r * width + k];
      const double p = problem == 0 ? std::exp(x) / total : 1 / (1 + std::exp(-x));
      const double n = problem == 0 ? 1.0 : static_cast<double>(width);
      if (problem == 0) sums[0] -= target * std::log(p);
      if (problem == 1) sums[0] -= (target * std::log(p) + (1 - target) * std::log(1 - p)) / n;
      if (problem == 2) sums[0] += (x - target) * (x - target) / n;
      if (problem == 0 && target == 1 && x == *std::max_element(scores.begin(), scores.end())) sums[2] += 1;
      const double d = problem == 2 ? 2 * (x - target) / n : (p - target) / n;
      if (d_scores != nullptr) (*d_scores)[r * width + k] = d * s.step(StepValue::loss_scale);
    }
  }
}
void ref_class_loss(const Site& s) { class_loss(s, nullptr); }
void ref_class_loss_grad(const Site& s) {
  s.out(1).assign(s.out(1).size(), 0.0);
  class_loss(s, &s.out(1));
}

void ref_word_scores(const Site& s) {
  const size_t width = s.dim(0, 1);
  const std::vector<int32_t> words = words_of(s.op);
  s.out(0).assign(s.out(0).size(), 0.0);
  for (size_t i = 0; i < static_cast<size_t>(s.step(StepValue::live_tokens)) * words.size(); ++i)
    for (size_t h = 0; h < width; ++h)
      s.out(0)[i] += s.in(0)[i / words.size() * width + h] *
                     s.in(1)[static_cast<size_t>(words[i % words.size()]) * width + h];
}
void ref_word_scores_grad(const Site& s) {
  const size_t width = s.dim(0, 1);
  const std::vector<int32_t> words = words_of(s.op);
  s.out(0).assign(s.out(0).size(), 0.0);
  Values* const g = s.op.has_output(1) ? &s.gradient(1) : nullptr;
  for (size_t i = 0; i < static_cast<size_t>(s.step(StepValue::live_tokens)) * words.size(); ++i)
    for (size_t h = 0; h < width; ++h) {
      const size_t at = i / words.size() * width + h;
      const size_t row = static_cast<size_t>(words[i % words.size()]) * width + h;
      s.out(0)[at] += s.in(2)[i] * s.in(1)[row];
      if (g != nullptr) (*g)[row] += s.in(2)[i] * s.in(0)[at];
    }
}

// The operands of a head's adapter: t [T, r] and b [V, r]; their gradients behind those of x and the weight.
struct HeadAdapter {
  size_t t, b, d_t, d_b;
};
HeadAdapter head_adapter(const Op& op) {
  if (op.kind == OpKind::linear_log_prob_grad) return {6, 7, 2, 3};
  return {4, 5, 3, 4};
}

// Adds to the logits of a row what the adapter gives.
void add_low_rank(const Site& s, size_t row, Values& logits) {
  const HeadAdapter at = head_adapter(s.op);
  if (!s.op.has_input(at.t)) return;
  const size_t rank = s.dim(at.t, 1);
  for (size_t v = 0; v < logits.size(); ++v)
    for (size_t k = 0; k < rank; ++k)
      logits[v] += s.op.attr_float("scale") * s.in(at.t)[row * rank + k] * s.in(at.b)[v * rank + k];
}

// Adds to the gradients of the adapter what that of a logit gives.
void add_low_rank_gradient(const Site& s, size_t row, size_t v, double d_logit) {
  const HeadAdapter at = head_adapter(s.op);
  if (!s.op.has_input(at.t)) return;
  const size_t rank = s.dim(at.t, 1);
  for (size_t k = 0; k < rank; ++k) {
    const double d = s.op.attr_float("scale") * d_logit;
    if (s.op.has_output(at.d_t)) s.out(at.d_t)[row * rank + k] += d * s.in(at.b)[v * rank + k];
    s.out(at.d_b)[v * rank + k] += d * s.in(at.t)[row * rank + k];
  }
}

// Before them.
void begin_low_rank_gradient(const Site& s) {
  const HeadAdapter at = head_adapter(s.op);
  if (!s.op.has_input(at.t)) return;
  if (s.op.has_output(at.d_t)) s.out(at.d_t).assign(s.out(at.d_t).size(), 0.0);
  static_cast<void>(s.gradient(at.d_b));
}

// The row of x that label `t` asks, and what is said of the label (what it counts, whose it is); `rows`: the
// input that says so.
size_t asked_row(const Site& s, size_t rows, size_t t) {
  return s.op.has_input(rows) ? s.integer(rows, t) : t;
}
double label_fact(const Site& s, size_t rows, size_t t, double otherwise) {
  return s.op.has_input(rows) ? s.in(rows + 1)[t] : otherwise;
}

// Adds to the loss; visit(row, label, probabilities, weight) for every label with a target.
template <class Visit>
void head_loss(const Site& s, Visit visit) {
  const size_t hidden = s.dim(0, 1);
  Values& loss = s.out(0);
  if (s.step(StepValue::first_micro_step) == 1) loss.assign(2, 0.0);
  for (size_t t = 0; t < s.dim(0, 0); ++t) {
    if (s.in(2)[t] < 0) continue;
    Values p(s.dim(1, 0));
    const size_t row = asked_row(s, 6, t);
    const double weight = label_fact(s, 6, t, 1.0);
    for (size_t v = 0; v < p.size(); ++v)
      for (size_t i = 0; i < hidden; ++i) p[v] += s.in(0)[row * hidden + i] * s.in(1)[v * hidden + i];
    add_low_rank(s, row, p);
    const double logit = p[s.integer(2, t)];
    loss[0] += weight * (softmax(p) - logit);
    loss[1] += weight;
    visit(row, s.integer(2, t), p, weight);
  }
}

void ref_linear_cross_entropy(const Site& s) {
  head_loss(s, [](size_t, size_t, const Values&, double) {});
}

void ref_linear_cross_entropy_grad(const Site& s) {
  const size_t hidden = s.dim(0, 1);
  Values no_d_x(s.in(0).size());
  Values no_gradient(s.in(1).size());
  Values& d_x = s.op.has_output(1) ? s.out(1) : no_d_x;
  Values& g = s.op.has_output(2) ? s.gradient(2) : no_gradient;
  d_x.assign(d_x.size(), 0.0);
  begin_low_rank_gradient(s);
  head_loss(s, [&](size_t t, size_t label, const Values& p, double weight) {
    for (size_t v = 0; v < p.size(); ++v) {
      const double d_logit = weight * (p[v] - (v == label ? 1.0 : 0.0)) * s.step(StepValue::loss_scale);
      for (size_t i = 0; i < hidden; ++i) {
        d_x[t * hidden + i] += d_logit * s.in(1)[v * hidden + i];
        g[v * hidden + i] += d_logit * s.in(0)[t * hidden + i];
      }
      add_low_rank_gradient(s, t, v, d_logit);
    }
  });
}

// visit(row, sequence * 2 + column, token, probabilities) for every row with a label.
template <class Visit>
void labelled_rows(const Site& s, Visit visit) {
  const size_t rows = s.op.kind == OpKind::linear_log_prob_grad ? 8 : 6;
  for (size_t t = 0; t < s.dim(0, 0); ++t) {
    const double label = s.in(2)[t];
    if (label < 0 && label > -101) continue;
    const size_t row = asked_row(s, rows, t);
    const auto token = static_cast<size_t>(label >= 0 ? label : -101 - label);
    size_t sequence = 0;
    while (!s.op.has_input(rows) && s.in(3)[sequence + 1] <= static_cast<double>(t)) ++sequence;
    if (s.op.has_input(rows)) sequence = s.integer(rows + 1, t);
    Values p(s.dim(1, 0));
    for (size_t v = 0; v < p.size(); ++v)
      for (size_t i = 0; i < s.dim(0, 1); ++i)
        p[v] += s.in(0)[row * s.dim(0, 1) + i] * s.in(1)[v * s.dim(0, 1) + i];
    add_low_rank(s, row, p);
    softmax(p);
    visit(row, sequence * 2 + (label < 0 ? 1 : 0), token, p);
  }
}

void ref_linear_log_prob(const Site& s) {
  for (const size_t output : {0, 1}) s.out(output).assign(s.out(output).size(), 0.0);
  labelled_rows(s, [&](size_t, size_t place, size_t token, const Values& p) {
    s.out(0)[place] += std::log(p[token]);
    s.out(1)[place] += 1;
  });
}

void ref_linear_log_prob_grad(const Site& s) {
  const size_t hidden = s.dim(0, 1);
  Values no_gradient(s.in(1).size());
  Values& g = s.op.has_output(1) ? s.gradient(1) : no_gradient;
  s.out(0).assign(s.out(0).size(), 0.0);
  begin_low_rank_gradient(s);
  labelled_rows(s, [&](size_t t, size_t place, size_t token, const Values& p) {
    for (size_t v = 0; v < p.size(); ++v) {
      const double d_logit = ((v == token ? 1.0 : 0.0) - p[v]) * s.in(4)[place];
      for (size_t i = 0; i < hidden; ++i) {
        s.out(0)[t * hidden + i] += d_logit * s.in(1)[v * hidden + i];
        g[v * hidden + i] += d_logit * s.in(0)[t * hidden + i];
      }
      add_low_rank_gradient(s, t, v, d_logit);
    }
  });
}

// As the formulas have it, without care for large numbers.
void preference_loss(const Site& s, Values* d_logps) {
  Values& sums = s.out(0);
  if (s.step(StepValue::first_micro_step) == 1) sums.assign(sums.size(), 0.0);
  const double beta = s.op.attr_float("beta");
  const double smoothing = s.op.attr_float("label_smoothing");
  const double weight = s.op.attr_float("nll");
  const size_t kind = s.attr("loss");
  const auto p_of = [](double x) { return 1 / (1 + std::exp(-x)); };
  const size_t width = s.op.has_input(2) ? s.dim(2, 1) : 0;
  for (size_t row = 0; row < static_cast<size_t>(s.step(StepValue::live_tokens)); row += 2) {
    const Values& logps = s.in(0);
    const Values& tokens = s.in(1);
    const double c = logps[row * 2], r = logps[row * 2 + 2];
    const double n_c = tokens[row * 2], n_r = tokens[row * 2 + 2];
    const double c_apart = c - (width == 0 ? 0 : s.in(2)[row * width]);
    const double r_apart = r - (width == 0 ? 0 : s.in(2)[(row + 1) * width]);
    const double ahead = kind == 0 ? c_apart - r_apart : c_apart / n_c - r_apart / n_r;
    const double p = p_of(beta * ahead);
    const double a = std::exp(c / n_c), b = std::exp(r / n_r);
    const double odds = std::log(a / (1 - a)) - std::log(b / (1 - b));
    const double nll = -(c + logps[row * 2 + 1]) / (n_c + tokens[row * 2 + 1]);
    double loss = -(1 - smoothing) * std::log(p) - smoothing * std::log(1 - p);
    double slope = beta * (p - 1 + smoothing);
    double d_c = slope / (kind == 0 ? 1 : n_c), d_r = -slope / (kind == 0 ? 1 : n_r);
    if (kind == 2) {
      const double off = ahead - 1 / (2 * beta);
      loss = off * off;
      d_c = 2 * off / n_c;
      d_r = -2 * off / n_r;
    }
    if (kind == 3) {
      loss = -beta * std::log(p_of(odds));
      slope = -beta * (1 - p_of(odds));
      d_c = slope / (1 - a) / n_c;
      d_r = -slope / (1 - b) / n_r;
    }
    const double reward_c = beta * (kind == 3 ? c / n_c : c_apart);
    const double reward_r = beta * (kind == 3 ? r / n_r : r_apart);
    const Values added = {loss + weight * nll,
                          1,
                          reward_c > reward_r ? 1.0 : 0.0,
                          reward_c,
                          reward_r,
                          kind == 3 ? c / n_c : c,
                          kind == 3 ? r / n_r : r,
                          nll,
                          kind == 3 ? odds : 0,
                          kind == 3 ? std::log(p_of(odds)) : 0};
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += added[i];
    if (d_logps == nullptr) continue;
    const double d_nll = -weight / (n_c + tokens[row * 2 + 1]);
    const double scale = s.step(StepValue::loss_scale);
    (*d_logps)[row * 2] = (d_c + d_nll) * scale;
    (*d_logps)[row * 2 + 1] = d_nll * scale;
    (*d_logps)[row * 2 + 2] = d_r * scale;
  }
}
void ref_preference_loss(const Site& s) { preference_loss(s, nullptr); }
void ref_preference_loss_grad(const Site& s) {
  s.out(1).assign(s.out(1).size(), 0.0);
  preference_loss(s, &s.out(1));
}

void ref_nf4_dequantize(const Site& s) {
  for (size_t i = 0; i < s.out(0).size(); ++i) {
    const size_t byte = s.integer(0, i / 2);
    const size_t block = i / static_cast<size_t>(kNf4Block);
    double scale = s.in(1)[block];
    if (s.op.has_input(2))
      scale =
          s.in(3)[s.integer(1, block)] * s.in(2)[block / static_cast<size_t>(kNf4NestedBlock)] + s.in(4)[0];
    s.out(0)[i] = static_cast<double>(kNf4Levels[i % 2 == 0 ? byte >> 4 : byte & 15]) * scale;
  }
}

[[noreturn]] void refuse_transfer(const Site& s) {
  throw InternalError("a transfer has no reference: " + print_op(s.graph, s.op));
}
void ref_fetch(const Site& s) { refuse_transfer(s); }
void ref_fetch_wait(const Site& s) { refuse_transfer(s); }
void ref_store(const Site& s) { refuse_transfer(s); }
void ref_store_wait(const Site& s) { refuse_transfer(s); }

void run_op(const Site& site) {
  switch (site.op.kind) {
#define OP(name)     \
  case OpKind::name: \
    return ref_##name(site);
#include "ops/ops.def"
#undef OP
  }
}

}  // namespace

void run_reference(const Graph& graph, std::vector<Values>& values, bool round_outputs) {
  for (const Op& op : graph.ops()) {
    run_op({graph, op, values});
    if (!round_outputs) continue;
    for (const TensorId id : op.outputs)
      if (id != kNoTensor)
        for (double& x : values[static_cast<size_t>(id)]) x = rounded(x, graph.tensor(id).dtype);
  }
}

}  // namespace plimsoll::harness
