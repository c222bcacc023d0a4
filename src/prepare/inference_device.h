// The device on which `generate`, `chat`, `eval`, `score` and `classify` run a model: the CPU, or a GPU as
// training has it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/search/plan.h"
#include "prepare/setup.h"
#include "recipe/recipe.h"
#include "runs/observer.h"
#include "runtime/device.h"

namespace plimsoll {

// Opens what programs are planned for. Throws UsageError, before any memory is asked for, where it has no
// kernel for what they compute. Binding ops may wait for others, which is reported.
std::unique_ptr<Device> open_device(DeviceChoice device, const std::string& cuda_card, const CpuSettings& cpu,
                                    const CardFacts& planned, const std::vector<Graph>& programs,
                                    RunObserver& observer);

struct InferenceDevice {
  CpuSettings cpu;                          // of this process
  DeviceChoice device = DeviceChoice::cpu;  // or emulated, or cuda
  std::string cuda_card = {};               // as in Recipe
  UseGraphs graphs = UseGraphs::automatic;  // of what is asked again and again

  [[nodiscard]] bool is_card() const { return device != DeviceChoice::cpu; }
};

// The one that `named` says (the value of --device); else that of the run which made the adapter or the
// model, where one did. Throws UsageError for a named card that is missing; a run's card that is missing is
// said, and the CPU answers. Before any thread is started. `graphs`: none: as the run says.
InferenceDevice inference_device(const MachineOptions& options, const std::optional<std::string>& named,
                                 const ModelPaths& paths, std::optional<UseGraphs> graphs,
                                 const SharedSources& sources, RunObserver& observer);

// The card of this machine that it is.
PlannedCard card_of(const InferenceDevice& device);
// Describes the device that programs are planned for. Throws UsageError for a card that does not compute in
// such values.
DeviceDescription describe(const InferenceDevice& device, DType compute);
// "the CPU", "the emulated card", "NVIDIA H200".
std::string name_of(const InferenceDevice& device);

// Bytes of an arena with all that is outside it on the device, and of the rest of the process.
struct NeededBytes {
  int64_t device = 0, host = 0;
};

// The memory that is free now, for one process.
class InferenceMemory {
 public:
  explicit InferenceMemory(const InferenceDevice& device);
  // The budget of a plan.
  [[nodiscard]] Budget budget() const;
  // The reason why it does not fit: "does not fit   `what` needs 3 GiB (device 2.9 GiB), ..."; none: it does.
  [[nodiscard]] std::optional<std::string> refusal(const std::string& what, const NeededBytes& bytes) const;

 private:
  struct Limit {
    int64_t bytes = 0;
    std::string source;
  };
  std::vector<Limit> of_process_;  // on a card: beside its memory
  std::optional<Limit> of_card_;
};

}  // namespace plimsoll
