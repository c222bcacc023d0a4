// Chooses the waiting recipes that take a smaller plan of the same run, so that more run at once and all are
// done sooner: a pure function of predictions. A plan counts only by its bytes, threads and seconds.
#pragma once

#include <vector>

#include "fleet/queue/packing/packing.h"

namespace plimsoll::queue {

// The time at which the last of all these runs will have ended if nothing more arrives and predictions hold.
// Runs that never fit do not count.
double predicted_end(const Machine& machine, std::vector<Waiting> waiting, std::vector<Running> running,
                     double now);

struct ChosenPlans {
  std::vector<Waiting> waiting;            // `need` and `seconds` as chosen
  double seconds_before = 0, seconds = 0;  // until all is done: with each run's own plan, and as chosen
};

// Nothing is chosen, and both times are 0, while not even the smallest plan of any run fits next to what
// runs. A run keeps its own plan where a smaller one does not end the whole at least a hundredth sooner, a
// twentieth where that has fewer threads; one whose own plan never fits `machine` has the largest that does.
// A run on cards has the largest for each kind and number of them; to end sooner it may have fewer cards, and no
// smaller plan on as many.
ChosenPlans choose_plans(const Machine& machine, std::vector<Waiting> waiting,
                         const std::vector<Running>& running, double now);

}  // namespace plimsoll::queue
