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
  using at = operand::embedding;
  const size_t width = s.dim(at::weight, 1);
  const auto live = static_cast<size_t>(s.step(StepValue::live_tokens));
  for (size_t i = 0; i < s.out(at::h).size(); ++i)
    s.out(at::h)[i] =
        i / width < live ? s.in(at::weight)[s.integer(at::ids, i / width) * width + i % width] : 0.0;
}

void ref_embedding_dw(const Site& s) {
  using at = operand::embedding_dw;
  const size_t width = s.dim(at::d_h, 1);
  const auto live = static_cast<size_t>(s.step(StepValue::live_tokens));
  Values& g = s.gradient(at::d_weight);
  for (size_t i = 0; i < live * width; ++i)
    if (static_cast<int64_t>(s.integer(at::ids, i / width)) != padding_row(s.op))
      g[s.integer(at::ids, i / width) * width + i % width] += s.in(at::d_h)[i];
}

void ref_embedding_noise(const Site& s) {
  using at = operand::embedding_noise;
  const size_t width = s.dim(at::x, 1);
  const Values& step = s.in(at::step);
  s.out(at::y) = s.in(at::x);
  for (size_t token = 0; token < s.dim(at::x, 0); ++token) {
    const size_t length = s.integer(at::lengths, token);
    const double most = s.op.attr_float("alpha") / std::sqrt(static_cast<double>(length * width));
    for (size_t i = token * width; length > 0 && i < (token + 1) * width; ++i) {
      const PhiloxStream stream = philox_stream(step_seed(step.data()), name_hash(s.op.scope),
                                                static_cast<uint32_t>(s.in(at::positions)[i / width]),
                                                static_cast<uint32_t>(s.in(at::samples)[i / width]),
                                                static_cast<uint32_t>(s.step(StepValue::optimizer_step)));
      const auto bits = static_cast<int32_t>(philox_bits32(stream, static_cast<int64_t>(i % width)));
      s.out(at::y)[i] += most * bits * 0x1p-31;
    }
  }
}

void ref_dora_norm(const Site& s) {
  using at = operand::dora_norm;
  const size_t r = s.dim(at::a, 0), in = s.dim(at::a, 1);
  for (size_t o = 0; o < s.out(at::lengths).size(); ++o) {
    double squares = 0;
    for (size_t i = 0; i < in; ++i) {
      double value = 0;
      for (size_t k = 0; k < r; ++k) value += s.in(at::b)[o * r + k] * s.in(at::a)[k * in + i];
      squares += std::pow(s.in(at::weight)[o * in + i] + s.op.attr_float("scale") * value, 2);
    }
    s.out(at::lengths)[o] = std::sqrt(squares);
  }
}

void ref_dora_scale(const Site& s) {
  using at = operand::dora_scale;
  const size_t width = s.dim(at::u, 1);
  for (size_t i = 0; i < s.out(at::y).size(); ++i) {
    s.out(at::y)[i] = s.in(at::magnitude)[i % width] / s.in(at::lengths)[i % width] * s.in(at::u)[i];
    if (s.op.has_input(at::bias)) s.out(at::y)[i] += s.in(at::bias)[i % width];
    if (s.op.has_input(at::minus)) s.out(at::y)[i] -= s.in(at::minus)[i];
    if (s.op.has_input(at::addend)) s.out(at::y)[i] += s.in(at::addend)[i];
  }
}

void ref_dora_scale_grad(const Site& s) {
  using at = operand::dora_scale_grad;
  const size_t width = s.dim(at::u, 1);
  Values no_gradient(width);
  Values& d_magnitude = s.op.has_output(at::d_magnitude) ? s.gradient(at::d_magnitude) : no_gradient;
  for (size_t i = 0; i < s.in(at::u).size(); ++i) {
    d_magnitude[i % width] += s.in(at::d_y)[i] * s.in(at::u)[i] / s.in(at::lengths)[i % width];
    if (s.op.has_output(at::d_u))
      s.out(at::d_u)[i] = s.in(at::d_y)[i] * s.in(at::magnitude)[i % width] / s.in(at::lengths)[i % width];
  }
}

// The weight, or 1 more.
double norm_factor(const Site& s, double weight) {
  return s.op.attrs.contains("form") && s.op.attr_text("form") == "plus_one" ? 1 + weight : weight;
}

void ref_rms_norm(const Site& s) {
  using at = operand::rms_norm;
  const size_t width = s.dim(at::weight, 0);
  for (size_t r = 0; r < s.in(at::x).size() / width; ++r) {
    double squares = 0;
    for (size_t i = 0; i < width; ++i) squares += std::pow(s.in(at::x)[r * width + i], 2);
    s.out(at::rstd)[r] = 1 / std::sqrt(squares / static_cast<double>(width) + s.op.attr_float("eps"));
    for (size_t i = 0; i < width; ++i)
      s.out(at::y)[r * width + i] =
          s.in(at::x)[r * width + i] * s.out(at::rstd)[r] * norm_factor(s, s.in(at::weight)[i]);
  }
}

void ref_rms_norm_grad(const Site& s) {
  using at = operand::rms_norm_grad;
  const size_t width = s.dim(at::weight, 0);
  Values no_gradient(width);
  Values& d_weight = s.op.has_output(at::d_weight) ? s.gradient(at::d_weight) : no_gradient;
  for (size_t r = 0; r < s.in(at::x).size() / width; ++r) {
    const double rstd = s.in(at::rstd)[r];
    double mean = 0;  // of d_y * weight * normalised x
    for (size_t i = r * width; i < (r + 1) * width; ++i)
      mean += s.in(at::d_y)[i] * norm_factor(s, s.in(at::weight)[i % width]) * s.in(at::x)[i] * rstd /
              static_cast<double>(width);
    for (size_t i = r * width; i < (r + 1) * width; ++i) {
      const double normal = s.in(at::x)[i] * rstd;
      d_weight[i % width] += s.in(at::d_y)[i] * normal;
      if (!s.op.has_output(at::d_x)) continue;
      s.out(at::d_x)[i] =
          rstd * (s.in(at::d_y)[i] * norm_factor(s, s.in(at::weight)[i % width]) - normal * mean);
      if (s.op.has_input(at::d_x_in)) s.out(at::d_x)[i] += s.in(at::d_x_in)[i];
    }
  }
}

void ref_layer_norm(const Site& s) {
  using at = operand::layer_norm;
  const size_t width = s.dim(at::weight, 0);
  for (size_t r = 0; r < s.dim(at::x, 0); ++r) {
    double mean = 0, squares = 0;
    for (size_t i = r * width; i < (r + 1) * width; ++i) mean += s.in(at::x)[i] / static_cast<double>(width);
    for (size_t i = r * width; i < (r + 1) * width; ++i) squares += std::pow(s.in(at::x)[i] - mean, 2);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(width) + s.op.attr_float("eps"));
    for (size_t i = r * width; i < (r + 1) * width; ++i)
      s.out(at::y)[i] = (s.in(at::x)[i] - mean) * rstd * s.in(at::weight)[i % width] +
                        (s.op.has_input(at::bias) ? s.in(at::bias)[i % width] : 0.0);
    s.out(at::stats)[2 * r] = mean;
    s.out(at::stats)[2 * r + 1] = rstd;
  }
}

void ref_layer_norm_grad(const Site& s) {
  using at = operand::layer_norm_grad;
  const size_t width = s.dim(at::weight, 0);
  const auto n = static_cast<double>(width);
  Values no_gradient(width);
  Values& d_weight = s.op.has_output(at::d_weight) ? s.gradient(at::d_weight) : no_gradient;
  for (size_t r = 0; r < s.dim(at::x, 0); ++r) {
    const auto normal = [&](size_t i) {
      return (s.in(at::x)[i] - s.in(at::stats)[2 * r]) * s.in(at::stats)[2 * r + 1];
    };
    const auto weighted = [&](size_t i) { return s.in(at::d_y)[i] * s.in(at::weight)[i % width]; };
    double mean = 0, product = 0;  // of the weighted gradient, and of that times the normalised x
    for (size_t i = r * width; i < (r + 1) * width; ++i) {
      mean += weighted(i) / n;
      product += weighted(i) * normal(i) / n;
      d_weight[i % width] += s.in(at::d_y)[i] * normal(i);
    }
    for (size_t i = r * width; s.op.has_output(at::d_x) && i < (r + 1) * width; ++i) {
      s.out(at::d_x)[i] = s.in(at::stats)[2 * r + 1] * (weighted(i) - mean - normal(i) * product);
      if (s.op.has_input(at::d_x_in)) s.out(at::d_x)[i] += s.in(at::d_x_in)[i];
    }
  }
}

// The term that inputs `left` and `right`, [columns, r] or turned, add to row i / columns, column i %
// columns.
double adapter(const Site& s, size_t left, size_t right, size_t i, size_t columns, bool turned) {
  if (!s.op.has_input(left)) return 0;
  const size_t r = s.dim(left, 1);
  double sum = 0;
  for (size_t k = 0; k < r; ++k)
    sum += s.in(left)[i / columns * r + k] *
           s.in(right)[turned ? k * columns + i % columns : i % columns * r + k];
  return s.op.attr_float("adapter_scale") * sum;
}

void ref_linear(const Site& s) {
  using at = operand::linear;
  const size_t in = s.dim(at::weight, 1);
  const size_t out = s.dim(at::weight, 0);
  for (size_t i = 0; i < s.out(at::y).size(); ++i) {
    double sum = 0;
    for (size_t k = 0; k < in; ++k) sum += s.in(at::x)[i / out * in + k] * s.in(at::weight)[i % out * in + k];
    sum = sum * s.op.attr_float("scale") + adapter(s, at::t, at::b, i, out, false);
    if (s.op.has_input(at::bias)) sum += s.in(at::bias)[i % out];
    if (s.op.has_input(at::addend)) sum += s.in(at::addend)[i];
    s.out(at::y)[i] = sum;
  }
}

void ref_linear_dx(const Site& s) {
  using at = operand::linear_dx;
  const size_t in = s.dim(at::weight, 1);
  const size_t out = s.dim(at::weight, 0);
  for (size_t i = 0; i < s.out(at::d_x).size(); ++i) {
    double sum = 0;
    for (size_t k = 0; k < out; ++k)
      sum += s.in(at::d_y)[i / in * out + k] * s.in(at::weight)[k * in + i % in];
    s.out(at::d_x)[i] = sum * s.op.attr_float("scale") + adapter(s, at::d_t, at::a, i, in, true) +
                        (s.op.has_input(at::d_x_in) ? s.in(at::d_x_in)[i] : 0.0);
  }
}

void ref_linear_dw(const Site& s) {
  using at = operand::linear_dw;
  const size_t in = s.dim(at::x, 1);
  const size_t out = s.dim(at::d_y, 1);
  Values& g = s.gradient(at::d_weight);
  for (size_t t = 0; t < s.dim(at::x, 0); ++t)
    for (size_t i = 0; i < g.size(); ++i)
      g[i] += s.op.attr_float("scale") * s.in(at::d_y)[t * out + i / in] * s.in(at::x)[t * in + i % in];
}

void ref_bias_grad(const Site& s) {
  using at = operand::bias_grad;
  Values& g = s.gradient(at::d_bias);
  for (size_t i = 0; i < s.in(at::d_y).size(); ++i) g[i % g.size()] += s.in(at::d_y)[i];
}

void ref_rope_table(const Site& s) {
  using at = operand::rope_table;
  const size_t half = s.dim(at::inv_freq, 1) - 1;
  for (size_t t = 0; t < s.dim(at::positions, 0); ++t)
    for (size_t i = 0; i < 2 * half; ++i) s.out(at::table)[t * 2 * half + i] = i < half ? 1.0 : 0.0;
  for (size_t q = 0; q < static_cast<size_t>(s.step(StepValue::live_sequences)); ++q)
    for (size_t t = s.integer(at::seq_starts, q); t < s.integer(at::seq_starts, q + 1); ++t)
      for (size_t i = 0; i < half; ++i) {
        const double* frequencies = s.in(at::inv_freq).data() + q * (half + 1);
        const double angle = s.in(at::positions)[t] * frequencies[i];
        double factor = frequencies[half];
        if (s.op.attrs.contains("position_beta"))
          factor *= 1 + s.op.attr_float("position_beta") *
                            std::log(1 + std::floor(s.in(at::positions)[t] /
                                                    static_cast<double>(s.attr("original_length"))));
        s.out(at::table)[t * 2 * half + i] = std::cos(angle) * factor;
        s.out(at::table)[t * 2 * half + half + i] = std::sin(angle) * factor;
      }
}

void ref_rope(const Site& s) {
  using at = operand::rope;
  const size_t turned = s.dim(at::table, 1), half = turned / 2;
  const size_t head = s.op.attrs.contains("head_dim") ? s.attr("head_dim") : turned;
  const double sign = s.op.attr_int("inverse") == 1 ? -1 : 1;
  const Values x = s.in(at::x);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t token = i / s.dim(at::x, 1);
    if (i % head >= turned) {
      s.out(at::y)[i] = x[i];
      continue;
    }
    const size_t pair = i % head % half;
    const double cosine = s.in(at::table)[token * turned + pair];
    const double sine = sign * s.in(at::table)[token * turned + half + pair];
    s.out(at::y)[i] =
        i % head < half ? x[i] * cosine - x[i + half] * sine : x[i] * cosine + x[i - half] * sine;
  }
}

// gate * up, `curve` giving the gate's value and its derivative; both are halves of one tensor where `up` is absent.
template <class at>
size_t gate_of(const Site& s, size_t i, size_t width) {
  return s.op.has_input(at::up) ? i : i / width * 2 * width + i % width;
}
template <class Curve>
void gated(const Site& s, Curve curve) {
  using at = operand::swiglu;
  static_assert(size_t{operand::geglu::gate} == at::gate && size_t{operand::geglu::up} == at::up);
  const size_t width = s.dim(at::gate, 1) / (s.op.has_input(at::up) ? 1 : 2);
  for (size_t i = 0; i < s.out(at::s).size(); ++i) {
    const size_t g = gate_of<at>(s, i, width);
    const double up = s.op.has_input(at::up) ? s.in(at::up)[i] : s.in(at::gate)[g + width];
    s.out(at::s)[i] = curve(s.in(at::gate)[g]).first * up;
  }
}
template <class Curve>
void gated_grad(const Site& s, Curve curve) {
  using at = operand::swiglu_grad;
  static_assert(size_t{operand::geglu_grad::d_s} == at::d_s && size_t{operand::geglu_grad::d_up} == at::d_up);
  const bool halves = !s.op.has_input(at::up);
  const size_t width = s.dim(at::gate, 1) / (halves ? 2 : 1);
  for (size_t i = 0; i < s.in(at::d_s).size(); ++i) {
    const size_t g = gate_of<at>(s, i, width);
    const auto [value, derivative] = curve(s.in(at::gate)[g]);
    const double up = halves ? s.in(at::gate)[g + width] : s.in(at::up)[i], d_s = s.in(at::d_s)[i];
    s.out(at::d_gate)[g] = d_s * up * derivative;
    (halves ? s.out(at::d_gate)[g + width] : s.out(at::d_up)[i]) = d_s * value;
  }
}

std::pair<double, double> swish(double x) {
  const double sig = sigmoid(x);
  return {x * sig, sig * (1 + x * (1 - sig))};
}
void ref_swiglu(const Site& s) { gated(s, swish); }
void ref_swiglu_grad(const Site& s) { gated_grad(s, swish); }

// A sigmoid gate is by element or by row.
void ref_sigmoid_gate(const Site& s) {
  using at = operand::sigmoid_gate;
  for (size_t i = 0; i < s.in(at::x).size(); ++i)
    s.out(at::y)[i] = s.in(at::x)[i] * sigmoid(s.in(at::gate)[i]);
}

void ref_sigmoid_gate_grad(const Site& s) {
  using at = operand::sigmoid_gate_grad;
  Values d_x(s.in(at::x).size()), d_gate(s.in(at::gate).size());
  for (size_t i = 0; i < d_x.size(); ++i) {
    const double sigma = sigmoid(s.in(at::gate)[i]);
    d_x[i] = s.in(at::d_y)[i] * sigma;
    d_gate[i] = s.in(at::d_y)[i] * s.in(at::x)[i] * sigma * (1 - sigma);
  }
  if (s.op.has_output(at::d_x)) s.out(at::d_x) = d_x;
  if (s.op.has_output(at::d_gate)) s.out(at::d_gate) = d_gate;
}

void ref_relu(const Site& s) {
  using at = operand::relu;
  for (size_t i = 0; i < s.in(at::x).size(); ++i) s.out(at::s)[i] = std::max(s.in(at::x)[i], 0.0);
}

void ref_relu_grad(const Site& s) {
  using at = operand::relu_grad;
  for (size_t i = 0; i < s.in(at::s).size(); ++i)
    s.out(at::d_x)[i] = s.in(at::s)[i] > 0 ? s.in(at::d_s)[i] : 0.0;
}

// The tanh form, and its derivative.
std::pair<double, double> gelu_by_tanh(double x) {
  const double c = std::sqrt(2 / std::numbers::pi);
  const double tanh = std::tanh(c * (x + 0.044715 * x * x * x));
  return {0.5 * x * (1 + tanh),
          0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * c * (1 + 3 * 0.044715 * x * x)};
}

std::pair<double, double> gelu(const Site& s, double x) {
  if (!s.op.attrs.contains("approximate") || s.op.attr_text("approximate") == "tanh") return gelu_by_tanh(x);
  const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
  return {x * below, below + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi)};
}

void ref_geglu(const Site& s) {
  gated(s, [&](double x) { return gelu(s, x); });
}
void ref_geglu_grad(const Site& s) {
  gated_grad(s, [&](double x) { return gelu(s, x); });
}

void ref_gelu(const Site& s) {
  using at = operand::gelu;
  for (size_t i = 0; i < s.in(at::x).size(); ++i) s.out(at::s)[i] = gelu(s, s.in(at::x)[i]).first;
}

void ref_gelu_grad(const Site& s) {
  using at = operand::gelu_grad;
  for (size_t i = 0; i < s.in(at::x).size(); ++i)
    s.out(at::d_x)[i] = s.in(at::d_s)[i] * gelu(s, s.in(at::x)[i]).second;
}

void ref_tanh(const Site& s) {
  using at = operand::tanh;
  for (size_t i = 0; i < s.in(at::x).size(); ++i) s.out(at::y)[i] = std::tanh(s.in(at::x)[i]);
}

void ref_tanh_grad(const Site& s) {
  using at = operand::tanh_grad;
  for (size_t i = 0; i < s.in(at::y).size(); ++i)
    s.out(at::d_x)[i] = s.in(at::d_y)[i] * (1 - s.in(at::y)[i] * s.in(at::y)[i]);
}

void ref_scale(const Site& s) {
  using at = operand::scale;
  for (size_t i = 0; i < s.in(at::x).size(); ++i)
    s.out(at::y)[i] = s.op.attr_float("factor") * s.in(at::x)[i];
}

void ref_add(const Site& s) {
  using at = operand::add;
  for (size_t i = 0; i < s.in(at::a).size(); ++i) s.out(at::y)[i] = s.in(at::a)[i] + s.in(at::b)[i];
}

void ref_dropout(const Site& s) {
  using at = operand::dropout;
  const size_t width = s.dim(at::x, 1);
  const double p = s.op.attr_float("p");
  const Values& step = s.in(at::step);
  for (size_t i = 0; i < s.in(at::x).size(); ++i) {
    const PhiloxStream stream = philox_stream(step_seed(step.data()), name_hash(s.op.scope),
                                              static_cast<uint32_t>(s.in(at::positions)[i / width]),
                                              static_cast<uint32_t>(s.in(at::samples)[i / width]),
                                              static_cast<uint32_t>(s.step(StepValue::optimizer_step)));
    const double uniform = philox_bits32(stream, static_cast<int64_t>(i % width)) * 0x1p-32;
    s.out(at::y)[i] = uniform < p ? 0.0 : s.in(at::x)[i] / (1 - p);
  }
}

void ref_gather_rows(const Site& s) {
  using at = operand::gather_rows;
  const size_t width = s.dim(at::x, 1);
  for (size_t i = 0; i < s.out(at::y).size(); ++i)
    s.out(at::y)[i] = s.in(at::x)[s.integer(at::rows, i / width) * width + i % width];
}

// Visits each value of whole rows: take(part, place within it, place within the whole).
template <class Take>
void visit_columns(const Site& s, const Operands& parts, Take take) {
  const auto groups = static_cast<size_t>(s.op.attr_int("groups"));
  std::vector<size_t> widths;
  size_t whole = 0;
  for (const TensorId part : parts) {
    widths.push_back(part == kNoTensor ? 0 : static_cast<size_t>(s.graph.tensor(part).shape[1]) / groups);
    whole += widths.back();
  }
  const auto rows = static_cast<size_t>(s.graph.tensor(parts[0]).shape[0]) * groups;
  for (size_t row = 0; row < rows; ++row)
    for (size_t part = 0, first = 0; part < parts.size(); first += widths[part++])
      for (size_t i = 0; i < widths[part]; ++i) take(part, row * widths[part] + i, row * whole + first + i);
}

void ref_split_columns(const Site& s) {
  visit_columns(s, s.op.outputs, [&](size_t part, size_t to, size_t from) {
    s.out(part)[to] = s.in(operand::split_columns::x)[from];
  });
}

void ref_join_columns(const Site& s) {
  visit_columns(s, s.op.inputs, [&](size_t part, size_t from, size_t to) {
    s.out(operand::join_columns::x)[to] = s.in(part)[from];
  });
}

void ref_scatter_rows(const Site& s) {
  using at = operand::scatter_rows;
  const size_t width = s.dim(at::y, 1);
  s.out(at::x).assign(s.out(at::x).size(), 0.0);
  const auto live = static_cast<size_t>(s.step(StepValue::live_tokens));
  for (size_t i = 0; i < live * width; ++i)
    s.out(at::x)[s.integer(at::rows, i / width) * width + i % width] += s.in(at::y)[i];
}

void ref_mean_rows(const Site& s) {
  using at = operand::mean_rows;
  const size_t width = s.dim(at::x, 1);
  s.out(at::y).assign(s.out(at::y).size(), 0.0);
  for (size_t q = 0; q < static_cast<size_t>(s.step(StepValue::live_sequences)); ++q) {
    const size_t begin = s.integer(at::seq_starts, q), end = s.integer(at::seq_starts, q + 1);
    for (size_t i = begin * width; i < end * width; ++i)
      s.out(at::y)[q * width + i % width] += s.in(at::x)[i] / static_cast<double>(end - begin);
  }
}
void ref_mean_rows_grad(const Site& s) {
  using at = operand::mean_rows_grad;
  const size_t width = s.dim(at::d_y, 1);
  s.out(at::d_x).assign(s.out(at::d_x).size(), 0.0);
  for (size_t q = 0; q < static_cast<size_t>(s.step(StepValue::live_sequences)); ++q) {
    const size_t begin = s.integer(at::seq_starts, q), end = s.integer(at::seq_starts, q + 1);
    for (size_t i = begin * width; i < end * width; ++i)
      s.out(at::d_x)[i] = s.in(at::d_y)[q * width + i % width] / static_cast<double>(end - begin);
  }
}

void pair_loss(const Site& s, Values* d_scores) {
  using at = operand::pair_loss_grad;
  Values& sums = s.out(at::sums);
  if (s.step(StepValue::first_micro_step) == 1) sums = {0, 0, 0, 0, 0, INFINITY, -INFINITY};
  const double c = s.op.attr_float("centering");
  for (size_t i = 0; i < static_cast<size_t>(s.step(StepValue::live_tokens)); i += 2) {
    const double a = s.in(at::scores)[i];
    const double b = s.in(at::scores)[i + 1];
    const double p = 1 / (1 + std::exp(-(a - b - s.in(at::margins)[i])));
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
  using at = operand::pair_loss_grad;
  s.out(at::d_scores).assign(s.out(at::d_scores).size(), 0.0);
  pair_loss(s, &s.out(at::d_scores));
}

void class_loss(const Site& s, Values* d_scores) {
  using at = operand::class_loss_grad;
  Values& sums = s.out(at::sums);
  if (s.step(StepValue::first_micro_step) == 1) sums.assign(3, 0.0);
  const size_t width = s.dim(at::scores, 1);
  const size_t problem = s.attr("problem");
  for (size_t r = 0; r < static_cast<size_t>(s.step(StepValue::live_tokens)); ++r) {
    const auto first = s.in(at::scores).begin() + static_cast<std::ptrdiff_t>(r * width);
    const Values scores(first, first + static_cast<std::ptrdiff_t>(width));
    double total = 0;
    for (const double x : scores) total += std::exp(x);
    sums[1] += 1;
    for (size_t k = 0; k < width; ++k) {
      const double x = scores[k];
      const double target =
          problem == 0 ? (s.integer(at::targets, r) == k ? 1.0 : 0.0) : s.in(at::targets)[r * width + k];
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
  using at = operand::class_loss_grad;
  s.out(at::d_scores).assign(s.out(at::d_scores).size(), 0.0);
  class_loss(s, &s.out(at::d_scores));
}

void ref_word_scores(const Site& s) {
  using at = operand::word_scores;
  const size_t width = s.dim(at::x, 1);
  const std::vector<int32_t> words = words_of(s.op);
  s.out(at::scores).assign(s.out(at::scores).size(), 0.0);
  for (size_t i = 0; i < static_cast<size_t>(s.step(StepValue::live_tokens)) * words.size(); ++i)
    for (size_t h = 0; h < width; ++h)
      s.out(at::scores)[i] += s.in(at::x)[i / words.size() * width + h] *
                              s.in(at::weight)[static_cast<size_t>(words[i % words.size()]) * width + h];
}
void ref_word_scores_grad(const Site& s) {
  using at = operand::word_scores_grad;
  const size_t width = s.dim(at::x, 1);
  const std::vector<int32_t> words = words_of(s.op);
  s.out(at::d_x).assign(s.out(at::d_x).size(), 0.0);
  Values* const g = s.op.has_output(at::d_weight) ? &s.gradient(at::d_weight) : nullptr;
  for (size_t i = 0; i < static_cast<size_t>(s.step(StepValue::live_tokens)) * words.size(); ++i)
    for (size_t h = 0; h < width; ++h) {
      const size_t place = i / words.size() * width + h;
      const size_t row = static_cast<size_t>(words[i % words.size()]) * width + h;
      s.out(at::d_x)[place] += s.in(at::d_scores)[i] * s.in(at::weight)[row];
      if (g != nullptr) (*g)[row] += s.in(at::d_scores)[i] * s.in(at::x)[place];
    }
}

// The operands of a head's adapter: t [T, r] and b [V, r], and their gradients.
struct HeadAdapter {
  size_t t, b, d_t, d_b;
};
template <class at>
HeadAdapter adapter_of() {
  return {at::t, at::b, at::d_t, at::d_b};
}
HeadAdapter head_adapter(const Op& op) {
  if (op.kind == OpKind::linear_log_prob_grad) return adapter_of<operand::linear_log_prob_grad>();
  return adapter_of<operand::linear_cross_entropy_grad>();
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

// Products to logits, below their cap; returns the slope of each.
Values map_logits(const Site& s, Values& products) {
  const double factor = s.op.attrs.contains("factor") ? s.op.attr_float("factor") : 1.0;
  Values slopes;
  for (double& x : products) {
    x *= factor;
    slopes.push_back(factor);
    if (!s.op.attrs.contains("softcap")) continue;
    const double cap = s.op.attr_float("softcap");
    const double bent = std::tanh(x / cap);
    x = cap * bent;
    slopes.back() *= 1 - bent * bent;
  }
  return slopes;
}

// The row of x that label `t` asks; `rows`: the input that names it.
size_t asked_row(const Site& s, size_t rows, size_t t) {
  return s.op.has_input(rows) ? s.integer(rows, t) : t;
}

// Adds to the loss; visit(row, label, probabilities, weight, slopes) for every label with a target.
template <class Visit>
void head_loss(const Site& s, Visit visit) {
  using at = operand::linear_cross_entropy;
  const size_t hidden = s.dim(at::x, 1);
  Values& loss = s.out(at::loss);
  if (s.step(StepValue::first_micro_step) == 1) loss.assign(2, 0.0);
  for (size_t t = 0; t < s.dim(at::x, 0); ++t) {
    if (s.in(at::labels)[t] < 0) continue;
    Values p(s.dim(at::weight, 0));
    const size_t row = asked_row(s, at::label_rows, t);
    const double weight = s.op.has_input(at::label_weights) ? s.in(at::label_weights)[t] : 1.0;
    for (size_t v = 0; v < p.size(); ++v)
      for (size_t i = 0; i < hidden; ++i)
        p[v] += s.in(at::x)[row * hidden + i] * s.in(at::weight)[v * hidden + i];
    add_low_rank(s, row, p);
    for (size_t v = 0; s.op.has_input(at::bias) && v < p.size(); ++v) p[v] += s.in(at::bias)[v];
    const Values slopes = map_logits(s, p);
    const double logit = p[s.integer(at::labels, t)];
    loss[0] += weight * (softmax(p) - logit);
    loss[1] += weight;
    visit(row, s.integer(at::labels, t), p, weight, slopes);
  }
}

void ref_linear_cross_entropy(const Site& s) {
  head_loss(s, [](size_t, size_t, const Values&, double, const Values&) {});
}

void ref_linear_cross_entropy_grad(const Site& s) {
  using at = operand::linear_cross_entropy_grad;
  const size_t hidden = s.dim(at::x, 1);
  Values no_d_x(s.in(at::x).size());
  Values no_gradient(s.in(at::weight).size()), no_d_bias(s.dim(at::weight, 0));
  Values& d_x = s.op.has_output(at::d_x) ? s.out(at::d_x) : no_d_x;
  Values& g = s.op.has_output(at::d_weight) ? s.gradient(at::d_weight) : no_gradient;
  const char* const of_bias = s.op.attrs.contains("accumulate_bias") ? "accumulate_bias" : "accumulate";
  Values& d_bias = s.op.has_output(at::d_bias) ? s.gradient(at::d_bias, of_bias) : no_d_bias;
  d_x.assign(d_x.size(), 0.0);
  begin_low_rank_gradient(s);
  head_loss(s, [&](size_t t, size_t label, const Values& p, double weight, const Values& slopes) {
    for (size_t v = 0; v < p.size(); ++v) {
      const double d_logit =
          weight * (p[v] - (v == label ? 1.0 : 0.0)) * s.step(StepValue::loss_scale) * slopes[v];
      for (size_t i = 0; i < hidden; ++i) {
        d_x[t * hidden + i] += d_logit * s.in(at::weight)[v * hidden + i];
        g[v * hidden + i] += d_logit * s.in(at::x)[t * hidden + i];
      }
      d_bias[v] += d_logit;
      add_low_rank_gradient(s, t, v, d_logit);
    }
  });
}

// visit(row, sequence * 2 + column, token, probabilities, slopes) for every row with a label.
template <class Visit>
void labelled_rows(const Site& s, Visit visit) {
  using at = operand::linear_log_prob;
  using grad = operand::linear_log_prob_grad;
  const bool backward = s.op.kind == OpKind::linear_log_prob_grad;
  const size_t rows = backward ? size_t{grad::label_rows} : size_t{at::label_rows};
  const size_t sequences = backward ? size_t{grad::label_sequences} : size_t{at::label_sequences};
  for (size_t t = 0; t < s.dim(at::x, 0); ++t) {
    const double label = s.in(at::labels)[t];
    if (label < 0 && label > -101) continue;
    const size_t row = asked_row(s, rows, t);
    const auto token = static_cast<size_t>(label >= 0 ? label : -101 - label);
    size_t sequence = 0;
    while (!s.op.has_input(rows) && s.in(at::seq_starts)[sequence + 1] <= static_cast<double>(t)) ++sequence;
    if (s.op.has_input(rows)) sequence = s.integer(sequences, t);
    Values p(s.dim(at::weight, 0));
    for (size_t v = 0; v < p.size(); ++v)
      for (size_t i = 0; i < s.dim(at::x, 1); ++i)
        p[v] += s.in(at::x)[row * s.dim(at::x, 1) + i] * s.in(at::weight)[v * s.dim(at::x, 1) + i];
    add_low_rank(s, row, p);
    const Values slopes = map_logits(s, p);
    softmax(p);
    visit(row, sequence * 2 + (label < 0 ? 1 : 0), token, p, slopes);
  }
}

void ref_linear_log_prob(const Site& s) {
  using at = operand::linear_log_prob;
  for (const size_t output : {operand::linear_log_prob::logps, operand::linear_log_prob::tokens})
    s.out(output).assign(s.out(output).size(), 0.0);
  labelled_rows(s, [&](size_t, size_t place, size_t token, const Values& p, const Values&) {
    s.out(at::logps)[place] += std::log(p[token]);
    s.out(at::tokens)[place] += 1;
  });
}

void ref_linear_log_prob_grad(const Site& s) {
  using at = operand::linear_log_prob_grad;
  const size_t hidden = s.dim(at::x, 1);
  Values no_gradient(s.in(at::weight).size());
  Values& g = s.op.has_output(at::d_weight) ? s.gradient(at::d_weight) : no_gradient;
  s.out(at::d_x).assign(s.out(at::d_x).size(), 0.0);
  begin_low_rank_gradient(s);
  labelled_rows(s, [&](size_t t, size_t place, size_t token, const Values& p, const Values& slopes) {
    for (size_t v = 0; v < p.size(); ++v) {
      const double d_logit = ((v == token ? 1.0 : 0.0) - p[v]) * s.in(at::d_logps)[place] * slopes[v];
      for (size_t i = 0; i < hidden; ++i) {
        s.out(at::d_x)[t * hidden + i] += d_logit * s.in(at::weight)[v * hidden + i];
        g[v * hidden + i] += d_logit * s.in(at::x)[t * hidden + i];
      }
      add_low_rank_gradient(s, t, v, d_logit);
    }
  });
}

// As the formulas have it, without care for large numbers.
void preference_loss(const Site& s, Values* d_logps) {
  using at = operand::preference_loss_grad;
  Values& sums = s.out(at::sums);
  if (s.step(StepValue::first_micro_step) == 1) sums.assign(sums.size(), 0.0);
  const double beta = s.op.attr_float("beta");
  const double smoothing = s.op.attr_float("label_smoothing");
  const double weight = s.op.attr_float("nll");
  const size_t kind = s.attr("loss");
  const auto p_of = [](double x) { return 1 / (1 + std::exp(-x)); };
  const size_t width = s.op.has_input(at::reference) ? s.dim(at::reference, 1) : 0;
  for (size_t row = 0; row < static_cast<size_t>(s.step(StepValue::live_tokens)); row += 2) {
    const Values& logps = s.in(at::logps);
    const Values& tokens = s.in(at::tokens);
    const double c = logps[row * 2], r = logps[row * 2 + 2];
    const double n_c = tokens[row * 2], n_r = tokens[row * 2 + 2];
    const double c_apart = c - (width == 0 ? 0 : s.in(at::reference)[row * width]);
    const double r_apart = r - (width == 0 ? 0 : s.in(at::reference)[(row + 1) * width]);
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
  using at = operand::preference_loss_grad;
  s.out(at::d_logps).assign(s.out(at::d_logps).size(), 0.0);
  preference_loss(s, &s.out(at::d_logps));
}

void ref_nf4_dequantize(const Site& s) {
  using at = operand::nf4_dequantize;
  for (size_t i = 0; i < s.out(at::weight).size(); ++i) {
    const size_t byte = s.integer(at::codes, i / 2);
    const size_t block = i / static_cast<size_t>(kNf4Block);
    double scale = s.in(at::absmax)[block];
    if (s.op.has_input(at::nested_absmax))
      scale = s.in(at::nested_quant_map)[s.integer(at::absmax, block)] *
                  s.in(at::nested_absmax)[block / static_cast<size_t>(kNf4NestedBlock)] +
              s.in(at::nested_offset)[0];
    s.out(at::weight)[i] = static_cast<double>(kNf4Levels[i % 2 == 0 ? byte >> 4 : byte & 15]) * scale;
  }
}

void ref_int8_dequantize(const Site& s) {
  using at = operand::int8_dequantize;
  const size_t width = s.dim(at::codes, 1);
  for (size_t i = 0; i < s.out(at::weight).size(); ++i)
    s.out(at::weight)[i] = s.in(at::codes)[i] * s.in(at::absmax)[i / width] / 127.0;
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
#define OP(name, ...) \
  case OpKind::name:  \
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
