#include "prepare/own_cards.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

#include "base/environment.h"
#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "fleet/devices/nvml.h"
#include "fleet/devices/watch.h"

namespace plimsoll {
namespace {

// Looks for the file alone where there is none, which is all that a machine without a driver pays.
bool is_installed(const std::string& library) {
  void* const opened = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (opened != nullptr) dlclose(opened);
  return opened != nullptr;
}

std::vector<devices::Gpu> visible(const std::vector<devices::Gpu>& all) {
  if (std::getenv("CUDA_VISIBLE_DEVICES") == nullptr) return all;
  const devices::VisibleGpus named = devices::visible_gpus(all, environment("CUDA_VISIBLE_DEVICES"),
                                                           environment("CUDA_DEVICE_ORDER") == "PCI_BUS_ID");
  std::vector<devices::Gpu> seen;
  for (const std::string& uuid : named.uuids)
    for (const devices::Gpu& gpu : all)
      if (gpu.uuid == uuid) seen.push_back(gpu);
  return seen;
}

OwnCards ask() {
  const bool hidden =
      std::getenv("CUDA_VISIBLE_DEVICES") != nullptr && trim(environment("CUDA_VISIBLE_DEVICES")).empty();
  if (hidden) return {};
  const std::string library = devices::nvml_library();
  if (!is_installed(library)) {
    if (!is_installed("libcuda.so.1")) return {};
    return {{},
            false,
            formatted("the driver is installed (libcuda.so.1), and the library that lists its cards is not "
                      "({}); --device cuda takes the first card",
                      library)};
  }
  devices::GpuWatch watch(library, devices::watch_times());
  const devices::GpuReport report = watch.first();
  try {
    return {visible(report.gpus), false, report.problem};
  } catch (const UsageError& error) {  // what CUDA_VISIBLE_DEVICES says is not clear
    return {{}, false, error.what()};
  }
}

}  // namespace

const devices::Gpu* OwnCards::find(const std::string& uuid) const {
  const auto found =
      std::find_if(gpus.begin(), gpus.end(), [&](const devices::Gpu& gpu) { return gpu.uuid == uuid; });
  return found == gpus.end() ? nullptr : &*found;
}

namespace {

OwnCards& remembered() {
  static OwnCards cards = ask();
  return cards;
}

}  // namespace

const OwnCards& own_cards() { return remembered(); }

void keep_only_card(const std::string& uuid) {
  remembered().is_of_rank = true;
  setenv("CUDA_VISIBLE_DEVICES", uuid.c_str(), 1);
  std::erase_if(remembered().gpus, [&](const devices::Gpu& gpu) { return gpu.uuid != uuid; });
}

int64_t free_bytes(const devices::Gpu& gpu) { return std::max<int64_t>(0, gpu.total - gpu.used); }

bool emulates_cards() { return environment("PLIMSOLL_EMULATED_CARDS") == "1"; }

}  // namespace plimsoll
