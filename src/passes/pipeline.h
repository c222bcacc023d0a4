// The passes that turn a model's graph into a program: the list in the one order in which they run, and the
// reason for each one's place.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/description.h"
#include "graph/graph.h"
#include "passes/lora.h"
#include "passes/offload.h"
#include "passes/quantise.h"
#include "passes/recompute.h"
#include "passes/train.h"

namespace plimsoll {

// The purpose of a program. Outside of training nothing is dropped at random.
enum class Purpose : uint8_t { train, update, evaluate, generate };

// The inputs of one program's passes.
struct PassContext {
  Purpose purpose = Purpose::evaluate;
  double noise = 0.0;                             // NEFTune's alpha, while it trains
  bool reference = false;                         // the loss compares the model with the one that it began as
  const DeviceDescription* device = nullptr;      // only workspaces ask for it
  const LoraOptions* lora = nullptr;              // none: every weight trains
  std::vector<std::string> frozen = {};           // but for these
  const QuantiseOptions* quantisation = nullptr;  // none: weights as they are
  TrainPrecision precision;                       // of what trains
  OptimizerOptions optimizer;
  bool keep_frozen = false;  // the outputs of the blocks below everything trained are known
  RecomputeChoice recompute;
  bool update_in_backward = false;
  OffloadChoice offload;
  OffloadContext transfers;
  Sharding sharding;
  bool runs = true;  // else it is only measured, and nothing verifies it
};

// The numbers of the passes in the table.
enum class PassId : uint8_t {
  noise,
  reference,
  adapters,
  train_all,
  quantise,
  keep_frozen,
  differentiate,
  merge_adapters,
  recompute,
  reduce_gradients,
  gather_weights,
  update_in_backward,
  offload_weights,
  offload_activations,
  offload_gradients,
  offload_states,
  slice_updates,
  schedule_transfers,
  tf32,
  workspaces
};
inline constexpr PassId kFirstPass = PassId::noise;
inline constexpr PassId kLastPass = PassId::workspaces;

struct Pass {
  PassId id;
  std::string_view name;                // as `plan --dump` takes it
  bool (*applies)(const PassContext&);  // to a program of that context
  Graph (*run)(Graph program, const PassContext&);
  std::string_view place;  // why it stands where it stands
  // It moves tensors off the device: updates compute on these until slice-updates brings them.
  bool offloaded = false;
};

std::span<const Pass> passes();
// nullptr where no pass has the name.
const Pass* find_pass(std::string_view name);

// Sees a program as a pass left it.
using AfterPass = std::function<void(const Pass&, const Graph&)>;

// Runs the passes from `first` to `last` that apply. A program that is to run is verified before the last
// pass of all; with `after`, and in builds with PLIMSOLL_VERIFY_PASSES, so is the program after every pass,
// but for updates whose operands have gone: InternalError names the pass.
Graph run_passes(Graph program, const PassContext& context, PassId first = kFirstPass,
                 PassId last = kLastPass, const AfterPass& after = {});

}  // namespace plimsoll
