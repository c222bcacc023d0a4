// The machine's GPUs as its driver reports them, as data. Unknown values are absent, never 0.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::devices {

// The problem of a GPU that is late: it hangs, and may yet answer.
inline constexpr std::string_view kSilent = "does not answer";

struct GpuProcess {
  int64_t pid = 0;               // as the driver sees it: inside a container there may be no such process
  std::optional<int64_t> bytes;  // of the card's memory
};

struct Gpu {
  int index = -1;                     // in the driver's order, which is that of the PCI bus
  std::string uuid;                   // "GPU-...": its name for all time; empty where even that was not
                                      // reported
  std::string name;                   // of the model, foreign text
  int64_t total = 0;                  // bytes that programs may have; 0 where it does not answer
  int64_t used = 0;                   // by all that there is on it
  std::vector<GpuProcess> processes;  // that compute on it
  bool processes_known = false;       // false: the driver does not list them
  std::optional<int> busy_percent;
  std::string compute;  // "8.6"; empty: unknown
  bool mig = false;     // cut into instances: not used as a whole
  std::string problem;  // why it does not answer, in words behind its name; empty: it does
};

struct GpuReport {
  bool installed = false;  // the driver's library is there
  std::string problem;     // why no card can be asked; empty: they were
  std::string driver;      // version
  std::vector<Gpu> gpus;
};

// A line's worth of JSON, and back. A damaged text is a report with a problem.
nlohmann::ordered_json report_json(const GpuReport& report);
GpuReport read_report(const std::string& text);

// `now`, in which what could not name itself is named by `before`, and what `before` had and is gone is there
// with that as its problem.
GpuReport with_known(GpuReport now, const GpuReport& before);

// The name that plans use, "RTX 3060 12GB"; for a GPU that the catalogue lacks, the driver's name.
std::string model_of(const Gpu& gpu);

// "GPU-1a2b3c4d" of "GPU-1a2b3c4d-....": CUDA takes such a beginning as well. Other names as they are.
std::string short_name(const std::string& name);

// The members of `gpus` that a list as in CUDA_VISIBLE_DEVICES names: numbers, UUIDs and their beginnings.
struct VisibleGpus {
  std::vector<std::string> uuids;
  std::string note;  // what was not taken, and why, in words; empty: all was
};
// As CUDA reads it: what comes behind a name of no card is not seen. `by_bus`: numbers are the driver's
// (CUDA_DEVICE_ORDER=PCI_BUS_ID). Without it numbers are only sure where all cards are of one model: where
// they are not, throws UsageError.
VisibleGpus visible_gpus(const std::vector<Gpu>& gpus, const std::string& list, bool by_bus);
// The one card that `name` names; null where no card, or more than one, has that name.
const Gpu* find_gpu(const std::vector<Gpu>& gpus, const std::string& name, bool by_bus);

}  // namespace plimsoll::devices
