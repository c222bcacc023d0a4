#include "plan/search/workloads.h"

#include <algorithm>

#include "base/error.h"

namespace plimsoll {
namespace {

// So many rows at a time, for evaluation and for a micro-step that is
// inspected.
Variant variant_of(const PlanRequest& request, int64_t rows) {
  const Experiment& experiment = request.workload.experiment;
  const int64_t tokens = experiment.logit_rows({rows});
  Variant variant;
  variant.micro_batch = variant.eval_micro_batch = rows;
  variant.loss_chunk = request.choices.loss_chunk ? std::min(*request.choices.loss_chunk, tokens)
                                                  : default_loss_chunk(experiment, tokens);
  if (request.workload.use == Use::inspect)
    variant.accumulation = accumulation_for(experiment.effective_batch, rows);
  return variant;
}

}  // namespace

std::vector<Graph> programs_of(const Workload& workload, const Variant& variant,
                               const DeviceDescription& device) {
  const Experiment& experiment = workload.experiment;
  switch (workload.use) {
    case Use::train:
      return build_programs(experiment, variant, device);
    case Use::evaluate:
      return build_evaluation_programs(experiment, variant, device);
    case Use::generate:
      return build_generation_programs(experiment, workload.generation, device);
    case Use::inspect:
      return build_inspection_programs(experiment, variant, device);
  }
  throw InternalError("programs_of: no such use");
}

std::vector<Variant> variants_of(const PlanRequest& request) {
  if (request.workload.use == Use::generate) return {Variant{}};
  if (request.choices.micro_batch) return {variant_of(request, *request.choices.micro_batch)};
  std::vector<Variant> variants;
  const int64_t most = std::min(kMostRowsAtATime, std::max<int64_t>(request.workload.dataset_rows, 1));
  for (int64_t rows = most; rows > 0; rows /= 2) variants.push_back(variant_of(request, rows));
  return variants;
}

std::vector<const TableRow*> written_cache(const std::vector<Graph>& programs, const ArenaLayout& layout) {
  const Graph& decode = programs.back();
  std::vector<const TableRow*> rows;
  for (const Op& op : decode.ops())
    for (const TensorId id : op.outputs)
      if (id != kNoTensor && decode.tensor(id).role == Role::kv_cache)
        rows.push_back(layout.find_persistent(decode.tensor(id).name));
  return rows;
}

int64_t spare_bytes_of(const Workload& workload, const std::vector<Graph>& programs,
                       const ArenaLayout& layout) {
  int64_t bytes = 0;
  if (workload.use == Use::generate && workload.generation.sequences > 1)
    for (const TableRow* row : written_cache(programs, layout)) bytes = std::max(bytes, row->bytes);
  return bytes;
}

}  // namespace plimsoll
