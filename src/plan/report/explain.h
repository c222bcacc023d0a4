// Explains why a plan takes its memory: each component with what it is and what it grows with, by layer and
// by kind of tensor. All numbers are read from layout tables; growth is seen by planning again with something
// doubled.
#pragma once

#include <string>
#include <vector>

#include "plan/search/plan.h"

namespace plimsoll {

// The same run with something twice as large.
struct Doubled {
  std::string what;  // "length"
  PlanRequest request;
  Variant variant;
};

// Length, micro-batch, rank, layers and vocabulary, as far as the experiment has them.
std::vector<Doubled> doubled_dimensions(const Plan& plan);

struct ExplainedComponent {
  Component component;
  std::string meaning;
  std::vector<double> growth;  // by Doubled: bytes then over bytes now
};

// Consecutive blocks of one kind that take the same bytes, numbered within their stack; first > last: what
// lies outside of all blocks.
struct LayerGroup {
  std::string kind;
  int32_t first = 0, last = -1;
  int64_t weights = 0;      // of one layer; with master copies
  int64_t training = 0;     // gradients and optimizer states
  int64_t activations = 0;  // alive at the peak, with working tensors and scratch
};

// Tensors of the same name but for the block, of those alive at the peak.
struct TensorKind {
  std::string name;
  int64_t count = 0;
  int64_t bytes = 0;  // of all
};

struct Explanation {
  std::vector<std::string> doubled;
  std::vector<ExplainedComponent> device, host;
  std::vector<LayerGroup> layers;  // they sum to the arena less the gaps of the layout
  std::vector<TensorKind> kinds;   // descending in bytes
  int64_t scores_bytes = 0;        // attention scores of one layer, were they stored; 0: there are none
};

Explanation explain(const Plan& plan, const std::vector<Doubled>& doubled);
std::string explain_text(const Plan& plan, const Explanation& explanation, size_t columns = 100);
std::string explain_json(const Plan& plan, const Explanation& explanation);

}  // namespace plimsoll
