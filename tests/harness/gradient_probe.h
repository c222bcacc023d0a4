// Gradients of one op, two ways: the ops that its rule emits, and central differences of the reference.
#pragma once

#include <map>

#include "harness/op_case.h"
#include "harness/op_harness.h"

namespace plimsoll::harness {

struct GradientProbe {
  Graph graph;  // the case's ops, then those of the last one's gradient
  // By gradient tensor: the tensor it belongs to, and what is added to it (kNoTensor: nothing).
  struct Source {
    TensorId of;
    TensorId added;
  };
  std::map<TensorId, Source> gradients;
  TensorId d_y = kNoTensor;  // weights of the objective sum(y * d_y); kNoTensor: loss_scale * loss[0]
  std::map<TensorId, TensorId> further = {};  // of further outputs whose gradients the rule asked for
};

// Asks the last op's rule, wanting the gradient of every f32 tensor it offers.
GradientProbe probe_gradient(const Graph& forward);

// The derivative of the objective by `of`, from the forward ops in double.
Values central_differences(const Graph& forward, const GradientProbe& probe, std::vector<Values> values,
                           TensorId of);

// Fails the test for gradients of `run`, of the probe's graph in f32, that are not those differences, added
// to what was there where the op adds: in the first micro-step only what another op gives.
void expect_gradients(const Graph& forward, const GradientProbe& probe, const std::vector<Values>& values,
                      const OpRun& run, bool first_micro_step);

}  // namespace plimsoll::harness
