// The verdict on a memory snapshot, and what is in it.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/printable.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/units.h"
#include "fleet/doctor/snapshot.h"

namespace plimsoll::doctor {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kIdleShare = 10;  // of what is reserved, one part in: idle memory worth a word

const MessageRow& row_of_snapshots() {
  static const MessageRow kRow{"torch.snapshot_out_of_memory",
                               Sign::device_full,
                               {},
                               {},
                               "the snapshot's trace has a failure",
                               {},
                               false};
  return kRow;
}

// The trace's last failure as a log's message.
Message message_of(const DeviceSnapshot& device) {
  Message message;
  message.row = &row_of_snapshots();
  message.bytes = {{"tried", {device.tried, 0}},
                   {"free", {device.free_then, 0}},
                   {"allocated", {device.allocated, 0}},
                   {"unallocated", {device.idle, 0}}};
  message.counts = {{"device", device.device}};
  message.words = {{"backend", "CUDA"}};
  message.quote = formatted("a failure in the trace: {} asked for, {} free on the device",
                            format_bytes(device.tried), format_bytes(device.free_then));
  return message;
}

std::string share(int64_t part, int64_t whole) {
  return whole <= 0 ? "0 %"
                    : std::to_string(static_cast<int64_t>(
                          100.0 * static_cast<double>(part) / static_cast<double>(whole) + 0.5)) +
                          " %";
}

std::string sites_text(const char* head, const std::vector<AllocationSite>& sites, int64_t whole) {
  TextTable table({true, true, true, false});
  for (const AllocationSite& site : sites)
    table.add_row({format_bytes(site.bytes), share(site.bytes, whole), format_count(site.count) + " x",
                   site.place.empty() ? "(no frames)" : printable(site.place)});
  return formatted("\n  {}\n{}", head, table.render("    "));
}

std::string device_text(const DeviceSnapshot& device) {
  TextTable table({false, true, false});
  table.add_row({"reserved", format_bytes(device.reserved),
                 formatted("in {} segments", format_count(device.segments))});
  table.add_row({"allocated", format_bytes(device.allocated),
                 format_bytes(device.allocated - device.requested) + " of it rounding"});
  table.add_row({"idle", format_bytes(device.idle),
                 formatted("{} of what is reserved; largest piece {}", share(device.idle, device.reserved),
                           format_bytes(device.largest_idle))});
  if (device.trace_entries > 0)
    table.add_row({"peak", format_bytes(device.peak),
                   formatted("allocated, over {} entries of the trace", format_count(device.trace_entries))});
  std::string text = formatted("\n  GPU {}\n{}", device.device, table.render("    "));
  text += sites_text(device.peak > device.allocated ? "largest at the peak" : "largest", device.at_peak,
                     device.peak);
  if (device.peak > device.allocated)
    text += sites_text("largest at the end", device.at_end, device.allocated);
  return text;
}

Json sites_json(const std::vector<AllocationSite>& sites) {
  Json json = Json::array();
  for (const AllocationSite& site : sites)
    json.push_back({{"place", site.place}, {"bytes", site.bytes}, {"count", site.count}});
  return json;
}

}  // namespace

Diagnosis diagnose(const Snapshot& snapshot) {
  Diagnosis diagnosis;
  if (snapshot.devices.empty()) {
    diagnosis.headline = "the snapshot holds no memory of any device";
    return diagnosis;
  }
  const auto failed = std::find_if(snapshot.devices.begin(), snapshot.devices.end(),
                                   [](const DeviceSnapshot& device) { return device.saw_out_of_memory; });
  if (failed != snapshot.devices.end()) {
    diagnosis.out_of_memory = Verdict::yes;
    diagnosis.headline = "out of memory on GPU " + std::to_string(failed->device);
    diagnosis.message = message_of(*failed);
    diagnose_device(*diagnosis.message, diagnosis);
    add_steps(diagnosis);
    return diagnosis;
  }
  diagnosis.headline = "no failure in the snapshot's trace";
  for (const DeviceSnapshot& device : snapshot.devices)
    if (device.idle > device.reserved / kIdleShare)
      diagnosis.notes.push_back(
          formatted("GPU {}: {} are reserved and idle, {}; expandable segments would give them back",
                    device.device, format_bytes(device.idle), share(device.idle, device.reserved)));
  return diagnosis;
}

std::string snapshot_text(const Snapshot& snapshot, const Diagnosis& diagnosis, size_t columns) {
  columns = std::min(columns, kColumns);
  std::string text = diagnosis_text(diagnosis, {}, columns);
  for (const DeviceSnapshot& device : snapshot.devices) text += fitted(device_text(device), columns);
  if (!snapshot.settings.empty())
    text += formatted("\n  allocator\n    {}\n", wrap(printable(snapshot.settings), "    ", columns));
  return text;
}

std::string snapshot_json(const Snapshot& snapshot, const Diagnosis& diagnosis) {
  Json json = Json::parse(diagnosis_json(diagnosis, {}));
  json.erase("lines");
  Json devices = Json::array();
  for (const DeviceSnapshot& device : snapshot.devices)
    devices.push_back({{"device", device.device},
                       {"segments", device.segments},
                       {"blocks", device.blocks},
                       {"reserved_bytes", device.reserved},
                       {"allocated_bytes", device.allocated},
                       {"requested_bytes", device.requested},
                       {"idle_bytes", device.idle},
                       {"largest_idle_bytes", device.largest_idle},
                       {"trace_entries", device.trace_entries},
                       {"peak_allocated_bytes", device.peak},
                       {"at_peak", sites_json(device.at_peak)},
                       {"at_end", sites_json(device.at_end)}});
  json["snapshot"] = {{"settings", snapshot.settings}, {"devices", devices}};
  return json_text(json);
}

}  // namespace plimsoll::doctor
