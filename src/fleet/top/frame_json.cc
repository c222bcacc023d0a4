#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "fleet/top/frame.h"

namespace plimsoll::top {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

template <class Value>
ordered_json or_null(const std::optional<Value>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

// A number that no frame has.
struct OddNumber {};

// Bytes, numbers of processes and steps, and what is made of times and rates, stay far within 64 bits.
constexpr int64_t kMostWhole = int64_t{1} << 60;
constexpr double kMostReal = 1e15;

template <class Value>
Value checked(const json& value) {
  if constexpr (std::is_same_v<Value, double>) {
    if (const auto found = bounded_number(value, kMostReal)) return *found;
  } else {
    const auto found = whole_number<Value>(value);
    if (found && std::cmp_less_equal(*found, kMostWhole) && std::cmp_greater_equal(*found, -kMostWhole))
      return *found;
  }
  throw OddNumber();
}

template <class Value>
Value checked(const json& object, const char* key) {
  return checked<Value>(object.at(key));
}

template <class Value>
std::optional<Value> maybe(const json& object, const char* key) {
  const json& value = object.at(key);
  if (value.is_null()) return std::nullopt;
  return checked<Value>(value);
}

ordered_json device_json(const DeviceStatus& one) {
  ordered_json processes = ordered_json::array();
  for (const CardProcess& process : one.processes)
    processes.push_back({{"pid", process.pid}, {"name", process.name}, {"bytes", or_null(process.bytes)}});
  return {{"name", one.name},
          {"capacity_bytes", one.capacity},
          {"reserved_bytes", one.reserved},
          {"used_bytes", or_null(one.used)},
          {"runs", one.runs},
          {"threads", one.threads},
          {"threads_reserved", one.threads_reserved},
          {"model", one.model},
          {"memory_bytes", or_null(one.memory)},
          {"memory_used_bytes", or_null(one.memory_used)},
          {"others_bytes", or_null(one.others)},
          {"free_bytes", or_null(free_bytes(one))},
          {"busy_percent", or_null(one.busy_percent)},
          {"problem", one.problem},
          {"processes", std::move(processes)}};
}

// Reads the fields that frames of earlier versions lack.
void read_gpu(const json& object, DeviceStatus& device) {
  if (!object.contains("model")) return;
  device.model = object.at("model");
  device.memory = maybe<int64_t>(object, "memory_bytes");
  device.memory_used = maybe<int64_t>(object, "memory_used_bytes");
  device.others = maybe<int64_t>(object, "others_bytes");
  device.busy_percent = maybe<int>(object, "busy_percent");
  device.problem = object.at("problem");
  for (const json& one : object.at("processes"))
    device.processes.push_back({checked<int64_t>(one, "pid"), one.at("name"), maybe<int64_t>(one, "bytes")});
}

DeviceStatus read_device(const json& object) {
  DeviceStatus device{object.at("name"),
                      checked<int64_t>(object, "capacity_bytes"),
                      checked<int64_t>(object, "reserved_bytes"),
                      maybe<int64_t>(object, "used_bytes"),
                      checked<int>(object, "runs"),
                      checked<int>(object, "threads"),
                      checked<int>(object, "threads_reserved")};
  read_gpu(object, device);
  return device;
}

ordered_json progress_json(const std::optional<Progress>& progress) {
  if (!progress) return nullptr;
  return {{"step", progress->step},
          {"steps", progress->steps},
          {"step_seconds", or_null(progress->step_seconds)},
          {"planned_step_seconds", or_null(progress->planned_seconds)},
          {"planned_bytes", or_null(progress->planned_bytes)},
          {"loss", or_null(progress->loss)},
          {"eval_loss", or_null(progress->eval_loss)},
          {"best_loss", or_null(progress->best_loss)},
          {"ranks", progress->ranks},
          {"waiting_share", or_null(progress->waiting_share)},
          {"slowest_rank", or_null(progress->slowest)},
          {"slower", or_null(progress->slower)}};
}

std::optional<Progress> read_progress_of(const json& object) {
  if (object.is_null()) return std::nullopt;
  Progress progress{checked<int64_t>(object, "step"),        checked<int64_t>(object, "steps"),
                    maybe<double>(object, "step_seconds"),   maybe<double>(object, "planned_step_seconds"),
                    maybe<int64_t>(object, "planned_bytes"), maybe<double>(object, "loss"),
                    maybe<double>(object, "eval_loss"),      maybe<double>(object, "best_loss")};
  if (!object.contains("ranks")) return progress;  // of an earlier version
  progress.ranks = checked<int64_t>(object, "ranks");
  progress.waiting_share = maybe<double>(object, "waiting_share");
  progress.slowest = maybe<int64_t>(object, "slowest_rank");
  progress.slower = maybe<double>(object, "slower");
  return progress;
}

ordered_json run_json(const RunStatus& one) {
  return {{"id", one.id},
          {"name", one.name},
          {"state", one.state},
          {"note", one.note},
          {"devices", one.devices},
          {"reserved_host_bytes", one.reserved},
          {"reserved_device_bytes", one.device_bytes},
          {"device_count", one.device_count},
          {"threads", one.threads},
          {"attempts", one.attempts},
          {"started", or_null(one.started)},
          {"ended", or_null(one.ended)},
          {"used_host_bytes", or_null(one.used)},
          {"peak_host_bytes", or_null(one.peak)},
          {"used_device_bytes", or_null(one.used_on_card)},
          {"peak_device_bytes", or_null(one.peak_on_card)},
          {"cores", or_null(one.cores)},
          {"growth_bytes_per_second", or_null(one.growth)},
          {"processes", one.processes.count},
          {"largest_process_bytes", or_null(one.processes.largest)},
          {"seconds_left", or_null(seconds_left(one))},
          {"progress", progress_json(one.progress)}};
}

RunStatus read_run(const json& object) {
  RunStatus run;
  run.id = checked<int64_t>(object, "id");
  run.name = object.at("name");
  run.state = object.at("state");
  run.note = object.at("note");
  run.devices = object.at("devices").get<std::vector<std::string>>();
  run.reserved = checked<int64_t>(object, "reserved_host_bytes");
  run.device_bytes = checked<int64_t>(object, "reserved_device_bytes");
  run.device_count = object.contains("device_count") ? checked<int>(object, "device_count")
                                                     : static_cast<int>(run.devices.size());
  run.threads = checked<int>(object, "threads");
  run.attempts = checked<int>(object, "attempts");
  run.started = maybe<double>(object, "started");
  run.ended = maybe<double>(object, "ended");
  run.used = maybe<int64_t>(object, "used_host_bytes");
  run.peak = maybe<int64_t>(object, "peak_host_bytes");
  run.cores = maybe<double>(object, "cores");
  if (object.contains("growth_bytes_per_second"))
    run.growth = maybe<double>(object, "growth_bytes_per_second");
  if (object.contains("used_device_bytes")) {
    run.used_on_card = maybe<int64_t>(object, "used_device_bytes");
    run.peak_on_card = maybe<int64_t>(object, "peak_device_bytes");
  }
  run.processes.count = checked<int>(object, "processes");
  if (object.contains("largest_process_bytes"))
    run.processes.largest = maybe<int64_t>(object, "largest_process_bytes");
  run.progress = read_progress_of(object.at("progress"));
  return run;
}

}  // namespace

ordered_json frame_json(const Frame& frame) {
  ordered_json root = {{"time", frame.time},
                       {"worker", frame.worker},
                       {"paused", frame.paused},
                       {"draining", frame.draining},
                       {"memory_bytes", frame.memory},
                       {"available_bytes", frame.available},
                       {"swap_total_bytes", frame.swap.total},
                       {"swap_used_bytes", frame.swap.used},
                       {"load", frame.load}};
  root["pressure"] = ordered_json::object();
  for (const char* kind : {"cpu", "memory", "io"}) {
    const auto found = frame.pressure.find(kind);
    root["pressure"][kind] =
        found == frame.pressure.end() ? ordered_json(nullptr) : ordered_json(found->second);
  }
  for (const char* list : {"devices", "runs", "foreign"}) root[list] = ordered_json::array();
  for (const DeviceStatus& one : frame.devices) root["devices"].push_back(device_json(one));
  for (const RunStatus& one : frame.runs) root["runs"].push_back(run_json(one));
  for (const Foreign& one : frame.foreign)
    root["foreign"].push_back(
        {{"pid", one.pid}, {"name", one.name}, {"resident_bytes", one.bytes}, {"cores", or_null(one.cores)}});
  return root;
}

Frame read_frame(std::string_view text, const std::string& where) {
  const std::string no_frame = where + ": is no frame of plimsoll top --record";
  const json root = read_json_text(text);
  try {
    Frame frame;
    frame.time = checked<double>(root, "time");
    frame.worker = root.at("worker");
    frame.paused = root.at("paused");
    frame.draining = root.at("draining");
    frame.memory = checked<int64_t>(root, "memory_bytes");
    frame.available = checked<int64_t>(root, "available_bytes");
    if (root.contains("swap_total_bytes")) {  // not in records of earlier versions
      frame.swap.total = checked<int64_t>(root, "swap_total_bytes");
      frame.swap.used = checked<int64_t>(root, "swap_used_bytes");
    }
    frame.load = checked<double>(root, "load");
    for (const auto& [kind, value] : root.at("pressure").items())
      if (!value.is_null()) frame.pressure[kind] = checked<double>(value);
    for (const json& one : root.at("devices")) frame.devices.push_back(read_device(one));
    for (const json& one : root.at("runs")) frame.runs.push_back(read_run(one));
    for (const json& one : root.at("foreign"))
      frame.foreign.push_back({checked<int64_t>(one, "pid"), one.at("name"),
                               checked<int64_t>(one, "resident_bytes"), maybe<double>(one, "cores")});
    return frame;
  } catch (const json::exception&) {
    throw DamagedError(no_frame);
  } catch (const OddNumber&) {
    throw DamagedError(no_frame + ": a number is not whole, or beyond all bounds");
  }
}

}  // namespace plimsoll::top
