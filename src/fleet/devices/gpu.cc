#include "fleet/devices/gpu.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "base/strings.h"
#include "device/catalogue.h"

namespace plimsoll::devices {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kShortName = 12;  // "GPU-" and eight digits
constexpr size_t kWholeName = 40;

template <class Value>
ordered_json or_null(const std::optional<Value>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json gpu_json(const Gpu& gpu) {
  ordered_json processes = nullptr;
  if (gpu.processes_known) processes = ordered_json::array();
  for (const GpuProcess& one : gpu.processes)
    processes.push_back({{"pid", one.pid}, {"bytes", or_null(one.bytes)}});
  const bool answers = gpu.problem.empty();
  return {{"index", gpu.index},
          {"uuid", gpu.uuid},
          {"name", gpu.name},
          {"compute", gpu.compute},
          {"memory_bytes", gpu.total > 0 ? ordered_json(gpu.total) : ordered_json(nullptr)},
          {"used_bytes", answers ? ordered_json(gpu.used) : ordered_json(nullptr)},
          {"free_bytes",
           answers ? ordered_json(std::max<int64_t>(0, gpu.total - gpu.used)) : ordered_json(nullptr)},
          {"busy_percent", or_null(gpu.busy_percent)},
          {"mig", gpu.mig},
          {"problem", gpu.problem},
          {"processes", std::move(processes)}};
}

Gpu read_gpu(const json& object) {
  Gpu gpu;
  gpu.index = get_whole<int>(object, "index");
  gpu.uuid = object.at("uuid");
  gpu.name = object.at("name");
  gpu.compute = object.at("compute");
  gpu.mig = object.at("mig");
  gpu.problem = object.at("problem");
  const auto number = [](const json& value) { return value.is_null() ? 0 : get_whole<int64_t>(value); };
  gpu.total = number(object.at("memory_bytes"));
  gpu.used = number(object.at("used_bytes"));
  if (const json& busy = object.at("busy_percent"); !busy.is_null()) gpu.busy_percent = get_whole<int>(busy);
  gpu.processes_known = !object.at("processes").is_null();
  for (const json& one : object.at("processes")) {
    gpu.processes.push_back({get_whole<int64_t>(one, "pid"), std::nullopt});
    if (!one.at("bytes").is_null()) gpu.processes.back().bytes = get_whole<int64_t>(one, "bytes");
  }
  return gpu;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 6 && text.find_first_not_of("0123456789") == std::string::npos;
}

// Returns true if all GPUs are of one model; those that do not report theirs are left out.
bool all_of_one_model(const std::vector<Gpu>& gpus) {
  std::string name;
  for (const Gpu& one : gpus) {
    if (!name.empty() && !one.name.empty() && one.name != name) return false;
    if (!one.name.empty()) name = one.name;
  }
  return true;
}

}  // namespace

ordered_json report_json(const GpuReport& report) {
  ordered_json root = {{"installed", report.installed},
                       {"problem", report.problem},
                       {"driver", report.driver},
                       {"gpus", ordered_json::array()}};
  for (const Gpu& gpu : report.gpus) root["gpus"].push_back(gpu_json(gpu));
  return root;
}

GpuReport read_report(const std::string& text) {
  GpuReport report;
  const json root = read_json_text(text);
  try {
    report.installed = root.at("installed");
    report.problem = root.at("problem");
    report.driver = root.at("driver");
    for (const json& one : root.at("gpus")) report.gpus.push_back(read_gpu(one));
  } catch (const json::exception&) {
    report = {true, "what was asked of the driver came back damaged", "", {}};
  }
  return report;
}

GpuReport with_known(GpuReport now, const GpuReport& before) {
  for (const Gpu& known : before.gpus) {
    if (known.uuid.empty()) continue;
    const auto find = [&](auto&& is_it) { return std::find_if(now.gpus.begin(), now.gpus.end(), is_it); };
    auto found = find([&](const Gpu& one) { return one.uuid == known.uuid; });
    if (found == now.gpus.end())
      found = find([&](const Gpu& one) { return one.uuid.empty() && one.index == known.index; });
    if (found == now.gpus.end()) {
      found = now.gpus.insert(found, Gpu{});
      found->index = known.index;
      found->problem = now.problem.empty() ? "is gone" : "does not answer: " + now.problem;
    }
    if (found->problem.empty()) continue;
    found->uuid = known.uuid;
    found->name = known.name;
    found->total = known.total;
    found->compute = known.compute;
  }
  std::stable_sort(now.gpus.begin(), now.gpus.end(),
                   [](const Gpu& a, const Gpu& b) { return a.index < b.index; });
  return now;
}

std::string model_of(const Gpu& gpu) try {
  return full_name(find_card_of(gpu.name, gpu.total, "a card"));
} catch (const UsageError&) {
  return gpu.name;
}

std::string short_name(const std::string& name) {
  return name.size() == kWholeName && name.starts_with("GPU-") ? name.substr(0, kShortName) : name;
}

const Gpu* find_gpu(const std::vector<Gpu>& gpus, const std::string& name, bool by_bus) {
  const Gpu* found = nullptr;
  const bool number = is_number(name);
  if (number && !by_bus && !all_of_one_model(gpus)) return nullptr;
  for (const Gpu& gpu : gpus) {
    if (gpu.uuid.empty()) continue;
    const bool named =
        number ? std::to_string(gpu.index) == name : name.starts_with("GPU-") && gpu.uuid.starts_with(name);
    if (!named) continue;
    if (found != nullptr) return nullptr;
    found = &gpu;
  }
  return found;
}

VisibleGpus visible_gpus(const std::vector<Gpu>& gpus, const std::string& list, bool by_bus) {
  VisibleGpus visible;
  if (trim(list).empty()) return visible;
  for (const std::string& part : split(list, ',')) {
    const std::string name(trim(part));
    if (name == "-1") break;  // by which all are hidden on purpose
    if (is_number(name) && !by_bus && !all_of_one_model(gpus))
      throw UsageError(formatted(
          "CUDA_VISIBLE_DEVICES: which card is '{}' depends on CUDA_DEVICE_ORDER, as the cards differ: set "
          "that to PCI_BUS_ID, or name cards by UUID (plimsoll devices)",
          name));
    const Gpu* gpu = find_gpu(gpus, name, by_bus);
    if (gpu == nullptr) {
      visible.note =
          formatted("CUDA_VISIBLE_DEVICES: '{}' is no card here; it and what follows is not used", name);
      break;
    }
    if (std::find(visible.uuids.begin(), visible.uuids.end(), gpu->uuid) != visible.uuids.end())
      return {{}, "CUDA_VISIBLE_DEVICES names a card twice, so CUDA shows none"};
    visible.uuids.push_back(gpu->uuid);
  }
  return visible;
}

}  // namespace plimsoll::devices
