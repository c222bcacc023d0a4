#include "train/run_weights.h"

#include "weights/adapter_start.h"
#include "weights/weights.h"

namespace plimsoll {

void load_start(const WeightSource& source, const Experiment& experiment, const PersistentState& state,
                RunObserver& observer, RankReader* reader) {
  init_fresh_weights(state, experiment.model, source.seed);
  if (source.init == Init::random) {
    init_base_weights(state, experiment.model, source.seed);
    return;
  }
  const auto show = [&](int64_t done, int64_t total) { observer.loading(done, total); };
  load_base_weights(state, source.model, show, FreshHead::stays, reader);
}

void begin_adapters(const WeightSource& source, const Experiment& experiment, const CpuSettings& cpu,
                    const PersistentState& state, RunRanks& ranks, RankReader* reader) {
  if (source.adapter) return load_adapters(state, *source.adapter, FreshHead::stays, reader);
  if (!experiment.lora) return;
  init_adapters(state, source.seed);
  start_adapters(state, experiment.lora_options, cpu, source.seed);
  ranks.together([] {});  // all have read the weights
  take_out_starts(state, experiment.lora_options);
}

}  // namespace plimsoll
