#include "plan/search/micro_capacities.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/units.h"
#include "plan/search/depth_model.h"

namespace plimsoll {
namespace {

constexpr size_t kMostCapacities = 10;
// Between few micro-steps a step of one more halves the capacity, so parts of it are weighed too.
constexpr double kQuartersUpTo = 2, kHalvesUpTo = 4;
constexpr int64_t kTokenUnit = 16;  // capacities are multiples of it
// Rows that an estimate is made of, and the optimizer steps that they make at least and at most.
constexpr int64_t kEstimateRows = 2048;
constexpr int64_t kFewestSteps = 4, kMostSteps = 64;
// Room for a fourth more rows than the fullest micro-step of an estimate held: those of others may be
// shorter.
constexpr int64_t kSpareRows = 4;
// So much of a micro-step more than the number asked for is as good.
constexpr double kNearlySteps = 0.05;

// A micro-step that holds every row of a step may update weights in its backward pass.
bool updates_in_backward(const Experiment& experiment) {
  return !experiment.lora && experiment.optimizer.max_grad_norm == 0;
}

// splitmix64: any number to one that is spread evenly.
uint64_t spread(uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

// For every number of micro-steps of up to `most` samples each the smallest number of samples that reaches
// it, since a larger one of the same number costs memory and saves nothing. Of many, those nearest to halving
// again and again.
std::set<int64_t> worth_weighing(int64_t most) {
  std::set<int64_t> sizes;
  for (int64_t size = 1; size <= most; ++size) sizes.insert(ceil_div(most, ceil_div(most, size)));
  if (sizes.size() <= kMostCapacities) return sizes;
  std::set<int64_t> halved = {1};
  for (int64_t size = most; size > 1; size = ceil_div(size, 2)) halved.insert(size);
  return halved;
}

// Micro-steps on average that capacities in tokens are made for, ascending: whole numbers, and between few of them
// parts. Rows of a step that mostly fit into one micro-step take two now and then: half of the capacity costs far
// less than half more time.
std::vector<double> worth_packing(const Experiment& experiment, int64_t most) {
  constexpr double kRounding = 1e-9;
  std::vector<double> numbers;
  // Shallow models are measured variant by variant, and are quick whatever their capacities are.
  const bool parts = is_deep(experiment);
  if (parts) numbers.push_back(1 - kNearlySteps + kRounding);  // one for every step, not for nearly all
  for (const int64_t whole : worth_weighing(most)) {
    numbers.push_back(static_cast<double>(whole));
    const double part = numbers.back() < kQuartersUpTo ? 0.25 : numbers.back() < kHalvesUpTo ? 0.5 : 1;
    for (double between = part; parts && between < 1 && whole < most; between += part)
      numbers.push_back(numbers.back() + part);
  }
  return numbers;
}

std::vector<MicroCapacity> capacities_in_rows(int64_t effective) {
  const std::set<int64_t> sizes = worth_weighing(effective);
  std::vector<MicroCapacity> capacities;
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) capacities.push_back({*size});
  return capacities;
}

// The least tokens with which a step needs at most so many micro-steps.
int64_t tokens_for(const Experiment& experiment, const std::vector<RowSize>& sizes, double steps) {
  const int64_t effective = experiment.samples_each(), longest = experiment.longest_row().tokens;
  const int64_t most = experiment.tokens_of(effective);
  int64_t low = 0, high = ceil_div(most - longest, kTokenUnit);  // units above the longest row
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const MicroCapacity capacity = experiment.capacity(effective, longest + middle * kTokenUnit);
    if (estimate_micro_steps(experiment, capacity, sizes).steps <= steps + kNearlySteps) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return std::min(most, longest + low * kTokenUnit);
}

bool are_alike(const Experiment& experiment, const std::vector<RowSize>& sizes) {
  const RowSize longest = experiment.capacity_of(experiment.longest_row());
  return std::all_of(sizes.begin(), sizes.end(), [&](const RowSize& row) {
    const RowSize size = experiment.capacity_of(row);
    return size.tokens >= longest.tokens && size.targets >= longest.targets;
  });
}

MicroCapacity with_room_for(const Experiment& experiment, const std::vector<RowSize>& sizes, int64_t tokens) {
  const int64_t effective = experiment.samples_each();
  const int64_t most =
      estimate_micro_steps(experiment, experiment.capacity(effective, tokens), sizes).most_rows;
  return experiment.capacity(std::min(effective, most + most / kSpareRows + 1), tokens);
}

}  // namespace

MicroEstimate estimate_micro_steps(const Experiment& experiment, const MicroCapacity& capacity,
                                   const std::vector<RowSize>& sizes) {
  const int64_t effective = experiment.samples_each();
  if (!capacity.by_tokens() || sizes.empty())
    return {static_cast<double>(accumulation_for(effective, capacity.samples)), capacity.samples};
  const int64_t steps = std::clamp(kEstimateRows / effective, kFewestSteps, kMostSteps);
  MicroPacker packer(capacity, effective);
  MicroEstimate estimate;
  for (int64_t step = 0; step < steps; ++step) {
    packer.clear();
    for (int64_t i = 0; i < effective; ++i)
      packer.add(
          experiment.capacity_of(sizes[spread(static_cast<uint64_t>(step * effective + i)) % sizes.size()]));
    estimate.steps += static_cast<double>(packer.pack()) / static_cast<double>(steps);
    estimate.most_rows = std::max(estimate.most_rows, packer.most_rows());
  }
  return estimate;
}

std::vector<MicroCapacity> micro_capacities(const PlanRequest& request) {
  const Experiment& experiment = request.workload.experiment;
  const int64_t effective = experiment.samples_each();
  const bool known =
      request.workload.run && request.workload.run->sizes && !request.workload.run->sizes->empty();
  if (request.choices.micro_batch)
    return {experiment.capacity(std::min(*request.choices.micro_batch, effective),
                                request.choices.micro_tokens.value_or(0))};
  if (!known && request.choices.micro_tokens)
    return {experiment.capacity(effective, *request.choices.micro_tokens)};
  if (!known || experiment.documents > 1 || are_alike(experiment, *request.workload.run->sizes))
    return capacities_in_rows(effective);
  const std::vector<RowSize>& sizes = *request.workload.run->sizes;
  if (request.choices.micro_tokens) return {with_room_for(experiment, sizes, *request.choices.micro_tokens)};
  const int64_t longest = experiment.longest_row().tokens;
  const MicroCapacity least = with_room_for(experiment, sizes, longest);
  const auto most_steps =
      static_cast<int64_t>(estimate_micro_steps(experiment, least, sizes).steps + 1 - kNearlySteps);
  std::vector<MicroCapacity> capacities;
  if (updates_in_backward(experiment))
    capacities.push_back(experiment.capacity(effective));  // sure to hold all rows
  // As many micro-steps as rows in rows of the same length would make.
  for (const double steps : worth_packing(experiment, most_steps)) {
    const MicroCapacity capacity =
        steps >= static_cast<double>(most_steps)
            ? least
            : with_room_for(experiment, sizes, tokens_for(experiment, sizes, steps));
    if (capacities.empty() || capacity != capacities.back()) capacities.push_back(capacity);
  }
  return capacities;
}

double shared_by(const std::vector<double>& shared, double rows) {
  if (shared.empty()) return 0;
  const double at = std::clamp(std::log2(std::max(rows, 1.0)), 0.0, static_cast<double>(shared.size() - 1));
  const auto below = static_cast<size_t>(at);
  const double above = shared[std::min(below + 1, shared.size() - 1)];
  return shared[below] + (at - static_cast<double>(below)) * (above - shared[below]);
}

namespace {

// The average of rows with a source and a target, as far as the experiment takes them.
struct MeanRow {
  double tokens = 0;  // of both, with the one that a target begins with
  double source = 0, target = 0;
  double source_squares = 0, target_squares = 0, pairs = 0;
};

MeanRow mean_row(const Experiment& experiment, const std::vector<RowSize>& sizes) {
  const RowSize longest = experiment.longest_row();
  MeanRow mean;
  for (const RowSize& size : sizes) {
    const auto source = static_cast<double>(std::min(size.tokens, longest.tokens));
    const auto target = static_cast<double>(std::min(size.targets, longest.targets));
    mean.source += source;
    mean.target += target;
    mean.source_squares += source * source;
    mean.target_squares += target * target;
    mean.pairs += source * target;
  }
  const auto rows = static_cast<double>(sizes.size());
  for (double* sum : {&mean.source, &mean.target, &mean.source_squares, &mean.target_squares, &mean.pairs})
    *sum /= rows;
  mean.tokens = mean.source + mean.target + 1;
  return mean;
}

// Fills programs whose sources and targets have axes of their own: `sources` and `targets` rows of a step.
void fill_two_axes(const Experiment& experiment, const RunSteps& run, double sources, double targets,
                   Filling& filling) {
  const MeanRow mean = mean_row(experiment, *run.sizes);
  if (mean.source <= 0 || mean.target <= 0) return;
  const double rows = run.tokens / mean.tokens / static_cast<double>(experiment.ranks);
  filling.axes[0] = {std::min(1.0, rows * mean.source / sources), mean.source_squares / mean.source, 0};
  filling.axes[1] = {std::min(1.0, rows * mean.target / targets), mean.target_squares / mean.target,
                     mean.pairs / mean.target};
}

}  // namespace

Filling filling_of(const Experiment& experiment, const std::optional<RunSteps>& run, const Variant& variant) {
  if (!run || run->tokens <= 0) return {};
  const MicroCapacity capacity = experiment.train_capacity(variant);
  const bool packs = capacity.by_tokens() && run->sizes;
  Filling filling;
  filling.micro_steps = packs ? estimate_micro_steps(experiment, capacity, *run->sizes).steps
                              : static_cast<double>(variant.accumulation);
  const BatchShape shape = experiment.batch_shape(capacity, 1);
  const bool two = experiment.has_targets();
  const double sources = filling.micro_steps * static_cast<double>(shape.tokens);
  const double targets = filling.micro_steps * static_cast<double>(two ? experiment.logit_rows(capacity) : 0);
  const double each = 1.0 / static_cast<double>(experiment.ranks);  // of a step
  const double rows = each * run->rows / filling.micro_steps;
  const double apart = experiment.shares_prefixes ? 1 - shared_by(run->shared, rows) : 1;
  filling.tokens = std::min(1.0, apart * each * run->tokens / (sources + targets));
  filling.targets = std::min(1.0, each * run->targets / (two ? targets : sources));
  // Sequences that are scored, and an encoder's text that a decoder reads again, fill as the text does.
  filling.axes.fill({filling.tokens, run->row_length, 0});
  if (two && run->sizes && !run->sizes->empty()) fill_two_axes(experiment, *run, sources, targets, filling);
  return filling;
}

}  // namespace plimsoll
