// The site of the reference of one op, and the references that lie in files of their own.
#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include "harness/op_case.h"
#include "ops/operands.h"

namespace plimsoll::harness {

// An op with the values of its tensors.
struct Site {
  const Graph& graph;
  const Op& op;
  std::vector<Values>& values;

  // Operands are asked for by name (ops/operands.h).
  template <class Number>
  [[nodiscard]] Values& in(Number i) const {
    static_assert(is_input<Number>, "inputs have names: ops/operands.h");
    return values[static_cast<size_t>(op.inputs[i])];
  }
  template <class Number>
  [[nodiscard]] Values& out(Number i) const {
    static_assert(is_output<Number>, "outputs have names: ops/operands.h");
    return values[static_cast<size_t>(op.outputs[i])];
  }
  template <class Number>
  [[nodiscard]] size_t dim(Number input, size_t axis) const {
    static_assert(is_input<Number>, "inputs have names: ops/operands.h");
    return static_cast<size_t>(graph.tensor(op.inputs[input]).shape[axis]);
  }
  template <class Number>
  [[nodiscard]] size_t integer(Number input, size_t i) const {
    return static_cast<size_t>(in(input)[i]);
  }
  [[nodiscard]] double step(StepValue which) const {
    return values[static_cast<size_t>(graph.find(kStepTensor))][static_cast<size_t>(which)];
  }
  template <class Number>
  [[nodiscard]] double step_at(Number input, StepValue which) const {
    return in(input)[static_cast<size_t>(which)];
  }
  [[nodiscard]] size_t attr(const char* name) const { return static_cast<size_t>(op.attr_int(name)); }
  // The rows of a segment's ancestors, in order: what stands before it; inputs by their numbers, `parents`
  // may be absent.
  [[nodiscard]] std::vector<size_t> rows_before(size_t starts, size_t parents, size_t segment) const {
    std::vector<size_t> rows;
    if (!op.has_input(parents)) return rows;
    for (double up = in(parents)[segment]; up >= 0; up = in(parents)[static_cast<size_t>(up)])
      for (size_t t = integer(starts, static_cast<size_t>(up) + 1);
           t > integer(starts, static_cast<size_t>(up)); --t)
        rows.insert(rows.begin(), t - 1);
    return rows;
  }
  // Clears a gradient where this op is the first writer of the first micro-step.
  template <class Number>
  [[nodiscard]] Values& gradient(Number output, const char* accumulate = "accumulate") const {
    Values& g = out(output);
    if (op.attr_int(accumulate) == 0 && step(StepValue::first_micro_step) == 1) g.assign(g.size(), 0.0);
    return g;
  }
};

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// reference_attention.cc
void ref_attention(const Site& s);
void ref_attention_grad(const Site& s);
void ref_attention_cached(const Site& s);
// Logits to probabilities; returns the log of the sum of their exponentials.
double softmax(Values& p);

// reference_linear_attention.cc
void ref_gla(const Site& s);
void ref_gla_grad(const Site& s);
void ref_gla_cached(const Site& s);
void ref_short_conv(const Site& s);
void ref_short_conv_grad(const Site& s);
void ref_short_conv_cached(const Site& s);

// reference_delta_rule.cc
void ref_delta_rule(const Site& s);
void ref_delta_rule_grad(const Site& s);
void ref_delta_rule_cached(const Site& s);
void ref_delta_gate(const Site& s);
void ref_delta_gate_grad(const Site& s);
// visit(rows, own): of each live segment the rows that stand before it and its own, which begin at `own`.
void for_paths(const Site& s, size_t starts, size_t parents,
               const std::function<void(const std::vector<size_t>&, size_t)>& visit);

// reference_optimizer.cc
void ref_grad_square(const Site& s);
void ref_all_gather(const Site& s);
void ref_reduce_scatter(const Site& s);
void ref_grad_norm(const Site& s);
void ref_adamw(const Site& s);
void ref_adamw8bit(const Site& s);
void ref_lion(const Site& s);
void ref_sgd(const Site& s);
void ref_adafactor(const Site& s);

}  // namespace plimsoll::harness
