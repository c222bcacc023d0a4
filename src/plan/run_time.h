// How long a run takes with its rows as they are. A program is bound for full sequences, but its matrix
// products, attention and loss stop at the tokens that are there (ops/step_values.h); what is added, scaled
// or moved walks the whole capacity.
#pragma once

#include <string>
#include <vector>

#include "device/rates.h"
#include "graph/graph.h"
#include "plan/experiment.h"
#include "plan/plan.h"

namespace plimsoll {

// What a step's rows fill of its programs.
struct Filling {
  double tokens = 1;      // share of the positions
  double targets = 1;     // share of them whose logits are computed
  double row_length = 0;  // of the row that a token is in, on average: what attention meets; 0: full rows
};
Filling filling_of(const Experiment& experiment, const RunSteps& run);

// Seconds of a program filled so far.
double filled_seconds(const Graph& graph, const DeviceRates& rates, const Filling& filling);

// "3 h 20 min", "2 days 4 h", "42 s", "213 days": two units at most, as people say it.
std::string duration_words(double seconds);
// "1,560 tokens/s", "4.3 tokens/s"; where they are slow "12.8 s a token".
std::string speed_words(double tokens_per_second);
// "938 steps in about 3 h 20 min (3 epochs of 5,000 rows)"; of a run without rows or stated steps, a
// thousand.
std::string run_words(const Plan& plan);

}  // namespace plimsoll
