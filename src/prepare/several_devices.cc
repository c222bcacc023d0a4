#include "base/format.h"
#include "prepare/setup.h"

namespace plimsoll {
namespace {

[[noreturn]] void refuse(const Recipe& recipe, const std::string& what, const std::string& instead) {
  throw UsageError(formatted("devices: {}: {} is not supported with several devices yet; {}, or devices: 1",
                             recipe.devices, what, instead));
}

void refuse_device(const Recipe& recipe) {
  switch (recipe.device) {
    case DeviceChoice::automatic:
      if (recipe.memory.gpu) refuse(recipe, "a GPU (memory.gpu)", "use device: cpu and leave memory.gpu out");
      return;
    case DeviceChoice::cpu:
      return;
    case DeviceChoice::card:
    case DeviceChoice::cuda:
      refuse(recipe, "a GPU (device)", "use device: cpu");
    case DeviceChoice::emulated:
      refuse(recipe, "device: emulated", "use device: cpu");
  }
}

void refuse_memory(const Recipe::Memory& memory, const Recipe& recipe) {
  if (memory.disk_bytes > 0) refuse(recipe, "offloading (memory.disk)", "set it to 0");
  if (memory.tier && *memory.tier != "deepspeed")
    refuse(recipe, "memory.tier: " + *memory.tier, "set it to deepspeed");
  if (memory.keep_frozen == KeepFrozen::on) refuse(recipe, "memory.keep_frozen: on", "set it to off");
}

}  // namespace

void refuse_with_several_devices(const Recipe& recipe, const Experiment& experiment, const DataSetup* data) {
  if (recipe.devices == 1) return;
  refuse_device(recipe);
  refuse_memory(recipe.memory, recipe);
  if (experiment.precision.scales_loss()) refuse(recipe, "precision: fp16", "use fp32 or bf16");
  if (experiment.task.preference.reference == Preference::Reference::given)
    refuse(recipe, "task: dpo with full fine-tuning", "use method.type: lora, or dpo.loss: orpo");
  if (recipe.devices > recipe.batch.effective)
    throw UsageError(
        formatted("devices: {} processes share batch.effective: {} sequences, so that some would have none; "
                  "use at most {} devices",
                  recipe.devices, recipe.batch.effective, recipe.batch.effective));
  if (data != nullptr && data->summary && data->summary->scratch.bytes > 0)
    refuse(recipe, "a scratch file for data.shuffle: full", "use data.shuffle: window");
}

}  // namespace plimsoll
