#include "prepare/inference_device.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/system_memory.h"
#include "base/units.h"
#include "cpu/describe.h"
#include "ops/gpu_kernel.h"
#include "prepare/memory_budget.h"
#include "prepare/planned_card.h"
#include "recipe/load/load.h"
#include "runtime/cuda_device.h"
#include "runtime/emulated_device.h"

namespace plimsoll {

std::unique_ptr<Device> open_device(DeviceChoice device, const std::string& cuda_card, const CpuSettings& cpu,
                                    const CardFacts& planned, const std::vector<Graph>& programs,
                                    RunObserver& observer) {
  if (device != DeviceChoice::emulated && device != DeviceChoice::cuda)
    return std::make_unique<CpuDevice>(cpu);
  for (const Graph& program : programs) require_gpu_kernels(program);
  std::unique_ptr<Device> opened;
  if (device == DeviceChoice::emulated)
    opened = std::make_unique<EmulatedDevice>(emulated_order());
  else if (card_here(cuda_card).facts.emulated)
    opened = std::make_unique<EmulatedDevice>(emulated_order(), planned);
  else
    opened = open_cuda_device(planned, cuda_card);
  if (const std::string note = opened->loading_note(); !note.empty()) observer.event(note);
  return opened;
}

namespace {

constexpr const char* kInferenceDevices =
    "use cpu, cuda (of several cuda:1, or cuda: and the beginning of a UUID) or emulated";

// Only the device is of interest.
Recipe device_named(const std::string& text) {
  try {
    return recipe_from_overrides({.sets = {"model=.", "device=" + text}, .environment = ""}).recipe;
  } catch (const UsageError&) {
    throw UsageError(
        formatted("--device: '{}' is not a device for inference; {}", printable(text), kInferenceDevices));
  }
}

InferenceDevice on(const CpuSettings& cpu, const Recipe& recipe) {
  InferenceDevice device{cpu, recipe.device, recipe.cuda_card};
  if (device.device == DeviceChoice::cuda) card_here(device.cuda_card);
  return device;
}

InferenceDevice stated_device(const MachineOptions& options, const std::optional<std::string>& named,
                              const Recipe* run, RunObserver& observer) {
  const CpuSettings cpu = cpu_settings(options);
  const auto computes = [](const Recipe& recipe) {
    return recipe.device == DeviceChoice::cuda || recipe.device == DeviceChoice::emulated;
  };
  if (named) {
    const Recipe recipe = device_named(*named);
    if (recipe.device == DeviceChoice::card)
      throw UsageError(std::string("--device card describes a card for plan; ") + kInferenceDevices);
    if (computes(recipe)) return on(cpu, recipe);
    if (recipe.device != DeviceChoice::automatic) return {cpu};
  }
  if (run == nullptr || !computes(*run)) return {cpu};
  try {
    return on(cpu, *run);
  } catch (const UsageError& error) {
    // Logged as a warning: answers of another device are not quite the run's.
    observer.event(
        formatted("note    the run's device is not in this machine ({}); using the CPU, as --device cpu "
                  "does without this note",
                  error.what()),
        LogLevel::error);
    return {cpu};
  }
}

// As recipes have it.
Recipe own_card(const InferenceDevice& device) {
  Recipe recipe;
  recipe.device = DeviceChoice::cuda;
  recipe.cuda_card = device.cuda_card;
  return with_own_card(std::move(recipe));
}

}  // namespace

InferenceDevice inference_device(const MachineOptions& options, const std::optional<std::string>& named,
                                 const ModelPaths& paths, std::optional<UseGraphs> graphs,
                                 const SharedSources& sources, RunObserver& observer) {
  const std::optional<Recipe> run = recipe_of_run(paths.adapter.value_or(paths.base), sources);
  InferenceDevice device = stated_device(options, named, run ? &*run : nullptr, observer);
  device.graphs = graphs.value_or(run ? run->memory.graphs : UseGraphs::automatic);
  return device;
}

PlannedCard card_of(const InferenceDevice& device) { return planned_card(own_card(device)); }

DeviceDescription describe(const InferenceDevice& device, DType compute) {
  if (device.device == DeviceChoice::cuda) {
    const Recipe own = own_card(device);
    return device_of(own, planned_card(own), compute, {device.cpu});
  }
  DeviceDescription here = describe_cpu(device.cpu.isa, device.cpu.threads);
  return device.device == DeviceChoice::emulated ? as_emulated(std::move(here)) : here;
}

std::string name_of(const InferenceDevice& device) {
  if (device.device == DeviceChoice::cuda) return card_words(known_card_here()->facts);
  return device.device == DeviceChoice::emulated ? "the emulated card" : "the CPU";
}

InferenceMemory::InferenceMemory(const InferenceDevice& device) {
  const FreeMemory free = free_memory();
  of_process_.push_back({free.bytes, "free by " + free.source});
  if (const auto limit = data_limit())
    of_process_.push_back(
        {std::max<int64_t>(0, *limit - process_memory().data), "left of RLIMIT_DATA, ulimit -d"});
  if (device.device != DeviceChoice::cuda) return;
  const Recipe own = own_card(device);
  const Budget budget = read_budget(own, planned_card(own));
  of_card_ = Limit{*budget.device_bytes, budget.device_source};
}

Budget InferenceMemory::budget() const {
  Budget budget;
  if (of_card_) budget.device_bytes = of_card_->bytes;
  for (const Limit& limit : of_process_)
    budget.process_bytes = std::min(budget.process_bytes.value_or(limit.bytes), limit.bytes);
  return budget;
}

std::optional<std::string> InferenceMemory::refusal(const std::string& what, const NeededBytes& bytes) const {
  const auto text = [&](int64_t need, const std::string& of, const Limit& limit) {
    return formatted("does not fit   {} needs {}{}, {} may be used ({})\n  short by {}", what,
                     format_bytes(need), of, format_bytes(limit.bytes), limit.source,
                     format_bytes(need - limit.bytes));
  };
  if (of_card_ && bytes.device > of_card_->bytes) return text(bytes.device, " of the card", *of_card_);
  const int64_t need = bytes.host + (of_card_ ? 0 : bytes.device);
  for (const Limit& limit : of_process_)
    if (need > limit.bytes)
      return text(need, of_card_ ? " beside the card" : formatted(" (device {})", format_bytes(bytes.device)),
                  limit);
  return std::nullopt;
}

}  // namespace plimsoll
