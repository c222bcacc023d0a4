// A case of the op harness: a small graph in text, and the inputs that must not be random.
#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "ops/step_values.h"

namespace plimsoll::harness {

using Values = std::vector<double>;

struct OpCase {
  std::string name;  // a C++ identifier
  // Lines of graph text; `%` stands for the element type under test. The step tensor is declared already.
  std::string body;
  std::map<std::string, Values> given = {};  // by tensor name; other floats are random
  std::map<StepValue, double> step = {};     // beside the defaults of op_harness.cc
  std::vector<DType> dtypes = {DType::f32, DType::bf16};
  AxisId axis = kFirstAxis;  // that all ops work on
  double slack = 1.0;        // multiplies the tolerances, for ops that round in between
  // Large cases leave out finite differences, of which there is one for each input value: their gradients are
  // cases of their own.
  bool differences = true;
};

// For GoogleTest's messages.
inline void PrintTo(const OpCase& c, std::ostream* out) { *out << c.name; }

// Cases are registered by the test files of the op families, when the program starts.
bool register_cases(std::vector<OpCase> cases);
const std::vector<OpCase>& all_cases();

}  // namespace plimsoll::harness
