#include <algorithm>
#include <cmath>

#include "harness/reference_site.h"
#include "ops/optimizer/adamw8bit_kernels.h"
#include "ops/optimizer/optimizer.h"

namespace plimsoll::harness {
namespace {

// A weight's gradient after clipping, and what is updated: the master copy where there is one.
struct Update {
  Values gradient;
  Values& weight;
  double rate, steps;
};
Update update_of(const Site& s, size_t master) {
  Update u{s.in(kGradientInput), s.out(s.op.has_output(master) ? master : size_t{kWeightOutput}),
           s.step_at(kStepInput, StepValue::learning_rate), s.step_at(kStepInput, StepValue::optimizer_step)};
  if (s.op.has_input(kNormInput))
    for (double& g : u.gradient) g *= s.in(kNormInput)[1];
  return u;
}

void encode(const DynamicMap& map, const Values& x, Values& codes, Values& scales) {
  scales.assign(scales.size(), 0.0);
  for (size_t i = 0; i < x.size(); ++i)
    scales[i / kStateBlock] = std::max(scales[i / kStateBlock], std::abs(x[i]));
  for (size_t i = 0; i < x.size(); ++i) {
    const auto distance = [&](float value) {
      return std::abs(static_cast<double>(value) - x[i] / scales[i / kStateBlock]);
    };
    const auto nearest = std::min_element(map.value.begin(), map.value.end(),
                                          [&](float a, float b) { return distance(a) < distance(b); });
    codes[i] = static_cast<double>(nearest - map.value.begin());
  }
}

}  // namespace

void ref_grad_square(const Site& s) {
  using at = operand::grad_square;
  const ElementRange range = updated_range(s.graph, s.op, at::gradient);
  const auto first = static_cast<size_t>(range_in(s.graph, s.op, s.op.inputs[at::gradient], range).first);
  const int64_t piece = piece_of(s.op);  // of ranks, each of which has a sum
  if (range.first == 0 && piece == 0) s.out(at::square)[0] = 0;
  for (size_t i = 0; i < static_cast<size_t>(range.elements); ++i) {
    const auto place = range.first + static_cast<int64_t>(i);
    double& sum = s.out(at::square)[static_cast<size_t>(piece > 0 ? place / piece : 0)];
    if (piece > 0 && (i == 0 || place % piece == 0)) sum = 0;
    sum += s.in(at::gradient)[first + i] * s.in(at::gradient)[first + i];
  }
}

// The pieces of other ranks are not there yet.
void ref_all_gather(const Site& s) {
  using at = operand::all_gather;
  const int64_t first = s.op.attr_int("first"), elements = s.op.attr_int("elements");
  for (int64_t i = 0; i < s.op.attr_int("whole"); ++i) {
    const bool own = i >= first && i < first + elements;
    s.out(at::whole)[static_cast<size_t>(i)] = own ? s.in(at::piece)[static_cast<size_t>(i - first)] : 0;
  }
}

// Elements behind the range stay.
void ref_reduce_scatter(const Site& s) {
  using at = operand::reduce_scatter;
  const ElementRange range = updated_range(s.graph, s.op, at::gradient);
  const bool first = s.step(StepValue::first_micro_step) == 1;
  for (size_t i = 0; i < static_cast<size_t>(range.elements); ++i) {
    double& sum = s.out(at::piece)[i];
    sum = (first ? 0 : sum) + s.in(at::gradient)[static_cast<size_t>(range.first) + i];
  }
}

void ref_grad_norm(const Site& s) {
  using at = operand::grad_norm;
  double squares = 0;
  for (size_t i = at::squares; i < s.op.inputs.size(); ++i)
    for (const double square : s.in(i)) squares += square;
  const double max_norm = s.op.attr_float("max_norm");
  const double scale = s.op.attrs.contains("scaled") ? s.in(at::step)[15] : 1;
  const double norm = std::sqrt(squares) / scale;
  s.out(at::norm)[0] = norm;
  s.out(at::norm)[1] = (max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0) / scale;
}

// torch.optim.AdamW's single-tensor form.
void ref_adamw(const Site& s) {
  using at = operand::adamw;
  const Update u = update_of(s, at::master);
  const double beta1 = s.op.attr_float("beta1");
  const double beta2 = s.op.attr_float("beta2");
  for (size_t i = 0; i < u.weight.size(); ++i) {
    const double g = u.gradient[i];
    double& m = s.out(at::m)[i];
    double& v = s.out(at::v)[i];
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double m_hat = m / (1 - std::pow(beta1, u.steps));
    const double v_hat = v / (1 - std::pow(beta2, u.steps));
    u.weight[i] -= u.rate * s.op.attr_float("weight_decay") * u.weight[i];
    u.weight[i] -= u.rate * m_hat / (std::sqrt(v_hat) + s.op.attr_float("eps"));
  }
  s.out(at::weight) = u.weight;
}

// AdamW on decoded states; coded again by nearest value.
void ref_adamw8bit(const Site& s) {
  using at = operand::adamw8bit;
  const Update u = update_of(s, at::master);
  const double beta1 = s.op.attr_float("beta1");
  const double beta2 = s.op.attr_float("beta2");
  Values m(u.weight.size());
  Values v(u.weight.size());
  for (size_t i = 0; i < m.size(); ++i) {
    const double g = u.gradient[i];
    const auto value = [&](const DynamicMap& map, size_t codes, size_t scales) {
      return static_cast<double>(map.value[static_cast<size_t>(s.out(codes)[i])]) *
             s.out(scales)[i / kStateBlock];
    };
    m[i] = beta1 * value(signed_dynamic_map(), at::m, at::m_scale) + (1 - beta1) * g;
    v[i] = beta2 * value(unsigned_dynamic_map(), at::v, at::v_scale) + (1 - beta2) * g * g;
    const double m_hat = m[i] / (1 - std::pow(beta1, u.steps));
    const double v_hat = v[i] / (1 - std::pow(beta2, u.steps));
    u.weight[i] -= u.rate * s.op.attr_float("weight_decay") * u.weight[i];
    u.weight[i] -= u.rate * m_hat / (std::sqrt(v_hat) + s.op.attr_float("eps"));
  }
  encode(signed_dynamic_map(), m, s.out(at::m), s.out(at::m_scale));
  encode(unsigned_dynamic_map(), v, s.out(at::v), s.out(at::v_scale));
  s.out(at::weight) = u.weight;
}

void ref_lion(const Site& s) {
  using at = operand::lion;
  const Update u = update_of(s, at::master);
  const double beta1 = s.op.attr_float("beta1");
  const double beta2 = s.op.attr_float("beta2");
  for (size_t i = 0; i < u.weight.size(); ++i) {
    double& m = s.out(at::m)[i];
    const double direction = beta1 * m + (1 - beta1) * u.gradient[i];
    u.weight[i] -= u.rate * s.op.attr_float("weight_decay") * u.weight[i];
    u.weight[i] -= u.rate * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
    m = beta2 * m + (1 - beta2) * u.gradient[i];
  }
  s.out(at::weight) = u.weight;
}

void ref_sgd(const Site& s) {
  using at = operand::sgd;
  const Update u = update_of(s, at::master);
  for (size_t i = 0; i < u.weight.size(); ++i) {
    double d = u.gradient[i] + s.op.attr_float("weight_decay") * u.weight[i];
    if (s.op.has_output(at::momentum))
      d = s.out(at::momentum)[i] = s.op.attr_float("momentum") * s.out(at::momentum)[i] + d;
    u.weight[i] -= u.rate * d;
  }
  s.out(at::weight) = u.weight;
}

// transformers' Adafactor; a vector is a matrix of one row without a row average.
void ref_adafactor(const Site& s) {
  using at = operand::adafactor;
  const Update u = update_of(s, at::master);
  const size_t columns = s.out(at::column).size();
  const size_t rows = u.weight.size() / columns;
  const double keep = 1 - std::pow(u.steps, -0.8);
  Values row(rows);
  Values column(columns);
  for (size_t i = 0; i < u.weight.size(); ++i) {
    const double square = u.gradient[i] * u.gradient[i] + 1e-30;
    row[i / columns] += square / static_cast<double>(columns);
    column[i % columns] += square / static_cast<double>(rows);
  }
  const auto average = [&](Values& state, const Values& now) {
    for (size_t i = 0; i < now.size(); ++i) state[i] = keep * state[i] + (1 - keep) * now[i];
  };
  average(s.out(at::column), column);
  double mean = 0;
  if (s.op.has_output(at::row)) {
    average(s.out(at::row), row);
    for (const double x : s.out(at::row)) mean += x / static_cast<double>(rows);
  }
  Values step(u.weight.size());
  double squares = 0;
  for (size_t i = 0; i < step.size(); ++i) {
    const double factor = s.op.has_output(at::row) ? mean / s.out(at::row)[i / columns] : 1.0;
    step[i] = u.gradient[i] * std::sqrt(factor / s.out(at::column)[i % columns]);
    squares += step[i] * step[i];
  }
  const double rms = std::sqrt(squares / static_cast<double>(step.size()));
  for (size_t i = 0; i < step.size(); ++i)
    u.weight[i] -= u.rate * (s.op.attr_float("weight_decay") * u.weight[i] + step[i] / std::max(1.0, rms));
  s.out(at::weight) = u.weight;
}

}  // namespace plimsoll::harness
