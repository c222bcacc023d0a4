// Every target token from those before it, with one more figure of it.
#include <cmath>

#include "tasks/rules.h"

namespace plimsoll {
namespace {

Metrics metrics(const TaskSpec&, std::span<const double> sums) {
  Metrics all;
  all.add({"perplexity", std::exp(sums[0] / sums[1])});
  return all;
}

}  // namespace

const TaskRule parrot_task{
    .task = Task::parrot, .unit = "target tokens", .loss = build_next_token_loss, .metrics = {metrics}};

}  // namespace plimsoll
