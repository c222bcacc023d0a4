#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "fleet/queue/packing/simulation.h"

namespace plimsoll::queue {
namespace {

using nlohmann::json;

// One object of the file, and where it stands, for messages. Every key must be asked for.
class Reader {
 public:
  Reader(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("expected an object");
  }

  double number(const std::string& key, double otherwise) {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number() || value->get<double>() < 0)
      fail(formatted("'{}': expected a number from 0 on", key));
    return value->get<double>();
  }
  int count(const std::string& key, int otherwise) {
    const double value = number(key, otherwise);
    if (value > 1e6 || value != static_cast<int>(value))
      fail(formatted("'{}': expected a whole number", key));
    return static_cast<int>(value);
  }
  int64_t bytes(const std::string& key, int64_t otherwise) {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (value->is_string()) return parse_bytes(value->get<std::string>(), formatted("{}: '{}'", where_, key));
    constexpr int64_t kMost = int64_t{1} << 50;
    if (!value->is_number_integer() || *value < 0 || *value > kMost)
      fail(formatted("'{}': expected bytes, as a number or as text (\"40000MiB\")", key));
    return value->get<int64_t>();
  }
  std::string text(const std::string& key, const std::string& otherwise) {
    const json* value = find(key);
    if (value != nullptr && !value->is_string()) fail(formatted("'{}': expected a text", key));
    return value == nullptr ? otherwise : value->get<std::string>();
  }
  const json& list(const std::string& key) {
    const json* value = find(key);
    if (value == nullptr || !value->is_array()) fail(formatted("'{}': expected a list", key));
    return *value;
  }
  const json* list_or_none(const std::string& key) {
    const json* value = find(key);
    if (value != nullptr && !value->is_array()) fail(formatted("'{}': expected a list", key));
    return value;
  }
  const json& object(const std::string& key) {
    const json* value = find(key);
    if (value == nullptr) fail(formatted("'{}' is missing", key));
    return *value;
  }
  void finish() const {
    if (known_ == object_.size()) return;
    for (const auto& [key, value] : object_.items())
      if (std::find(requested_.begin(), requested_.end(), key) == requested_.end())
        fail(formatted("unknown key '{}'", key));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(formatted("{}: {}", where_, what));
  }

 private:
  const json* find(const std::string& key) {
    requested_.push_back(key);
    const auto found = object_.find(key);
    if (found == object_.end()) return nullptr;
    ++known_;
    return &*found;
  }

  const json& object_;
  std::string where_;
  std::vector<std::string> requested_;
  size_t known_ = 0;
};

std::vector<OthersUse> read_others(Reader& owner, const std::string& where) {
  std::vector<OthersUse> others;
  const json* list = owner.list_or_none("others");
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    Reader reader((*list)[i], formatted("{}: others {}", where, i + 1));
    others.push_back({reader.bytes("bytes", 0), reader.number("from", 0), reader.number("until", 0)});
    if (others.back().until > 0 && others.back().until <= others.back().from)
      reader.fail("'until': expected a time after 'from'");
    reader.finish();
  }
  return others;
}

void read_machine(const json& object, const std::string& name, Workload& workload) {
  Reader reader(object, name + ": machine");
  workload.machine.host_bytes = reader.bytes("host_bytes", int64_t{1} << 50);
  workload.machine.threads = reader.count("threads", 1'000'000);
  workload.headroom = reader.number("headroom", 0);
  workload.margin = reader.number("margin", 0);
  workload.patience_seconds = reader.number("patience", kOthersPatienceSeconds);
  if (workload.headroom >= 1) reader.fail("'headroom': expected a share below 1");
  const json& devices = reader.list("devices");
  for (size_t i = 0; i < devices.size(); ++i) {
    Reader device(devices[i], formatted("{}: device {}", name, i + 1));
    MachineCard card{device.text("name", "gpu" + std::to_string(i)), device.bytes("bytes", 0),
                     device.count("max_runs", 0), "", device.text("model", "")};
    if (card.bytes == 0) device.fail("'bytes' is missing");
    workload.others.push_back(read_others(device, formatted("{}: device {}", name, i + 1)));
    device.finish();
    workload.machine.cards.push_back(std::move(card));
  }
  workload.others.push_back(read_others(reader, name + ": machine"));
  reader.finish();
}

Job::Step read_step(const json& object, const Job& job, const std::string& where) {
  Reader reader(object, where);
  const Job::Step step{reader.bytes("peak_bytes", job.peak_bytes), reader.number("seconds", job.seconds)};
  reader.finish();
  if (step.seconds <= 0) reader.fail("'seconds': expected how long it takes so");
  return step;
}

SmallerPlan read_plan(const json& object, const Job& job, const std::string& where) {
  Reader reader(object, where);
  SmallerPlan plan;
  if (job.need.devices > 0) {
    plan.device_bytes = reader.bytes("bytes", job.need.device_bytes);
    plan.host_bytes = reader.bytes("host_bytes", job.need.host_bytes);
    plan.card = reader.text("card", job.need.card);
    if (plan.device_bytes == 0) reader.fail("'bytes': expected what it takes on each device");
    plan.processes = reader.count("devices", job.need.devices);
    if (plan.processes == 0) reader.fail("'devices': expected how many it takes");
  } else {
    plan.host_bytes = reader.bytes("bytes", job.need.host_bytes);
  }
  plan.seconds = reader.number("seconds", 0);
  plan.threads = reader.count("threads", job.need.threads);
  reader.finish();
  if (plan.seconds <= 0) reader.fail("'seconds': expected how long it takes so");
  return plan;
}

Job read_job(const json& object, size_t number, const std::string& name) {
  Reader reader(object, formatted("{}: job {}", name, number));
  Job job;
  job.name = reader.text("name", "job " + std::to_string(number));
  job.priority = reader.count("priority", 0);
  job.arrives = reader.number("arrives", 0);
  job.seconds = reader.number("seconds", 0);
  job.predicted_seconds = reader.number("predicted_seconds", job.seconds);
  job.need.devices = reader.count("devices", 1);
  job.need.processes = std::max(1, job.need.devices);
  job.need.host_bytes = reader.bytes("host_bytes", 0);
  job.need.threads = reader.count("threads", 0);
  job.need.card = reader.text("card", "");
  const int64_t bytes = reader.bytes("bytes", 0);
  (job.need.devices == 0 ? job.need.host_bytes : job.need.device_bytes) += bytes;
  job.peak_bytes = reader.bytes("peak_bytes", bytes);
  job.ramp_seconds = reader.number("ramp_seconds", 0);
  job.leak_bytes_per_second = reader.number("leak_bytes_per_second", 0);
  if (const json* plans = reader.list_or_none("plans"))
    for (const json& plan : *plans)
      job.smaller.push_back(read_plan(plan, job, formatted("{}: job {}: plan", name, number)));
  if (const json* steps = reader.list_or_none("steps"))
    for (const json& step : *steps)
      job.steps.push_back(read_step(step, job, formatted("{}: job {}: step", name, number)));
  std::stable_sort(job.smaller.begin(), job.smaller.end(),
                   [](const SmallerPlan& a, const SmallerPlan& b) { return a.seconds < b.seconds; });
  reader.finish();
  if (job.seconds <= 0) reader.fail("'seconds': expected how long it takes");
  return job;
}

}  // namespace

Machine less_headroom(const Workload& workload) {
  Machine offered = workload.machine;
  const auto less = [&](int64_t& bytes) {
    bytes = static_cast<int64_t>(static_cast<double>(bytes) * (1 - workload.headroom));
  };
  less(offered.host_bytes);
  for (MachineCard& card : offered.cards) less(card.bytes);
  return offered;
}

Machine beside_others(const Workload& workload, Machine machine, double now) {
  const auto less = [&](size_t place, int64_t& bytes) {
    if (place >= workload.others.size()) return;
    for (const OthersUse& one : workload.others[place])
      if (one.from <= now && (one.until == 0 || now < one.until))
        bytes = std::max<int64_t>(0, bytes - one.bytes);
  };
  for (size_t i = 0; i < machine.cards.size(); ++i) less(i, machine.cards[i].bytes);
  less(machine.cards.size(), machine.host_bytes);
  return machine;
}

Workload read_workload(std::string_view text, const std::string& name) {
  json file;
  try {
    file = json::parse(text);
  } catch (const json::exception& error) {  // also of a number that no double holds
    throw UsageError(formatted("{}: no JSON: {}", name, error.what()));
  }
  Workload workload;
  Reader reader(file, name);
  read_machine(reader.object("machine"), name, workload);
  const json& jobs = reader.list("jobs");
  const Machine offered = less_headroom(workload);
  for (size_t i = 0; i < jobs.size(); ++i) {
    workload.jobs.push_back(read_job(jobs[i], i + 1, name));
    const std::string never = never_fits(offered, workload.jobs.back().need);
    if (!never.empty()) throw UsageError(formatted("{}: job {} fits never: it needs {}", name, i + 1, never));
  }
  reader.finish();
  return workload;
}

}  // namespace plimsoll::queue
