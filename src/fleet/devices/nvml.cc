#include "fleet/devices/nvml.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/format.h"
#include "base/shared_library.h"
#include "base/units.h"

namespace plimsoll::devices {

// The ABI, as NVIDIA documents it. A card is a pointer to what only the library knows.
using NvmlDevice = void*;

struct NvmlMemory {
  unsigned long long total, free, used;  // used: with what the driver keeps for itself
};
struct NvmlMemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct NvmlProcess {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
struct NvmlUtilization {
  unsigned gpu, memory;
};

struct NvmlCalls {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, NvmlDevice*) = nullptr;
  int (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  // Not in all versions of the driver.
  int (*memory_v2)(NvmlDevice, NvmlMemoryV2*) = nullptr;
  int (*processes)(NvmlDevice, unsigned*, NvmlProcess*) = nullptr;
  int (*compute)(NvmlDevice, int*, int*) = nullptr;
  int (*busy)(NvmlDevice, NvmlUtilization*) = nullptr;
  int (*mig)(NvmlDevice, unsigned*, unsigned*) = nullptr;
};

// The place in which the threads that ask leave their answers. It lives as long as the last of them.
struct NvmlAnswers {
  struct CardAnswers {
    Gpu gpu;
    bool requested = false;  // a thread is at it; where it hangs, for good
    int64_t round = 0;       // in which that began
  };
  std::mutex mutex;
  std::condition_variable more;
  std::vector<CardAnswers> cards;
  int64_t round = 0;
};

namespace {

enum NvmlCode : int {
  kSuccess = 0,
  kNoPermission = 4,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kLost = 15,
  kResetRequired = 16,
  kVersionMismatch = 18,
};
constexpr unsigned kTextBytes = 96;  // of the longest text, its end included
constexpr unsigned kMostCards = 1024;
constexpr unsigned kMostProcesses = 65536;
constexpr unsigned long long kNotAvailable = ~0ULL;
constexpr unsigned long long kMost = 1ULL << 50;  // of memory that any card is believed to have
constexpr unsigned kMemoryV2 = sizeof(NvmlMemoryV2) | 2U << 24;

template <class Function>
void find(void* library, Function*& function, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (function == nullptr) (void)find_function(library, name, function);
}

NvmlCalls find_calls(void* library) {
  NvmlCalls calls;
  find(library, calls.init, {"nvmlInit_v2"});
  find(library, calls.shutdown, {"nvmlShutdown"});
  find(library, calls.error_string, {"nvmlErrorString"});
  find(library, calls.driver_version, {"nvmlSystemGetDriverVersion"});
  find(library, calls.count, {"nvmlDeviceGetCount_v2"});
  find(library, calls.handle, {"nvmlDeviceGetHandleByIndex_v2"});
  find(library, calls.uuid, {"nvmlDeviceGetUUID"});
  find(library, calls.name, {"nvmlDeviceGetName"});
  find(library, calls.memory, {"nvmlDeviceGetMemoryInfo"});
  find(library, calls.memory_v2, {"nvmlDeviceGetMemoryInfo_v2"});
  // Both fill the same structure; the first version fills another and is not called.
  find(library, calls.processes,
       {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"});
  find(library, calls.compute, {"nvmlDeviceGetCudaComputeCapability"});
  find(library, calls.busy, {"nvmlDeviceGetUtilizationRates"});
  find(library, calls.mig, {"nvmlDeviceGetMigMode"});
  return calls;
}

bool has_all(const NvmlCalls& calls) {
  return calls.init != nullptr && calls.shutdown != nullptr && calls.driver_version != nullptr &&
         calls.count != nullptr && calls.handle != nullptr && calls.uuid != nullptr &&
         calls.name != nullptr && calls.memory != nullptr;
}

// A call's error, in words behind the name of a GPU.
std::string in_words(const NvmlCalls& calls, int code) {
  switch (code) {
    case kNoPermission:
      return "may not be asked by this user";
    case kTimeout:
      return "does not answer: the driver gave up";
    case kLost:
      return "is lost: it fell off the bus, or is off";
    case kResetRequired:
      return "does not answer until it is reset";
    default:
      break;
  }
  const char* text = calls.error_string == nullptr ? nullptr : calls.error_string(code);
  return "does not answer: " + (text == nullptr ? "error " + std::to_string(code) : std::string(text));
}

std::string why_not_started(const NvmlCalls& calls, int code) {
  if (code == kDriverNotLoaded)
    return "the NVIDIA driver is installed, and its kernel module is not loaded (modprobe nvidia)";
  if (code == kVersionMismatch)
    return "the NVIDIA driver was updated, and its kernel module is still the old one: restart the machine";
  return "the NVIDIA driver " + in_words(calls, code);
}

// A text of the library, whatever it has written.
template <class Call>
int read_text(Call&& call, std::string& text) {
  std::array<char, kTextBytes> bytes{};
  const int code = call(bytes.data(), kTextBytes);
  bytes.back() = '\0';
  if (code == kSuccess) text = bytes.data();
  return code;
}

int64_t as_bytes(unsigned long long bytes) { return static_cast<int64_t>(std::min(bytes, kMost)); }

// Reads the processes on a GPU. Their number may grow between two calls.
void read_processes(const NvmlCalls& calls, NvmlDevice device, Gpu& gpu) {
  if (calls.processes == nullptr) return;
  std::vector<NvmlProcess> found(64);
  for (;;) {
    auto count = static_cast<unsigned>(found.size());
    const int code = calls.processes(device, &count, found.data());
    if (code == kSuccess && count <= found.size()) {
      found.resize(count);
      break;
    }
    if (code != kInsufficientSize || found.size() >= kMostProcesses) return;
    found.resize(std::min<size_t>(kMostProcesses, 2 * std::max<size_t>(count, found.size())));
  }
  gpu.processes_known = true;
  for (const NvmlProcess& one : found)
    gpu.processes.push_back(
        {one.pid, one.used == kNotAvailable ? std::nullopt : std::optional(as_bytes(one.used))});
}

int read_memory(const NvmlCalls& calls, NvmlDevice device, Gpu& gpu) {
  if (NvmlMemoryV2 memory{kMemoryV2, 0, 0, 0, 0};
      calls.memory_v2 != nullptr && calls.memory_v2(device, &memory) == kSuccess) {
    gpu.total = as_bytes(memory.total) - std::min(as_bytes(memory.total), as_bytes(memory.reserved));
    // Versions of the header differ on whether `used` holds what is reserved; `free` is free in all of them.
    gpu.used = gpu.total - std::min(gpu.total, as_bytes(memory.free));
    return kSuccess;
  }
  NvmlMemory memory{};
  if (const int code = calls.memory(device, &memory); code != kSuccess) return code;
  gpu.total = as_bytes(memory.total);
  gpu.used = as_bytes(memory.used);
  return kSuccess;
}

// Reads a card's identity, which is kept for when it hangs later.
int read_identity(const NvmlCalls& calls, NvmlDevice device, Gpu& gpu) {
  int code = read_text([&](char* to, unsigned size) { return calls.uuid(device, to, size); }, gpu.uuid);
  if (code == kSuccess)
    code = read_text([&](char* to, unsigned size) { return calls.name(device, to, size); }, gpu.name);
  return code;
}

// Processes before memory: what one takes in between then counts as memory of others, and is never lost.
int read_state(const NvmlCalls& calls, NvmlDevice device, Gpu& gpu) {
  unsigned current = 0, pending = 0;
  gpu.mig = calls.mig != nullptr && calls.mig(device, &current, &pending) == kSuccess && current == 1;
  int major = 0, minor = 0;
  if (calls.compute != nullptr && calls.compute(device, &major, &minor) == kSuccess)
    gpu.compute = formatted("{}.{}", major, minor);
  NvmlUtilization busy{};
  if (calls.busy != nullptr && calls.busy(device, &busy) == kSuccess)
    gpu.busy_percent = static_cast<int>(std::min(busy.gpu, 100U));
  read_processes(calls, device, gpu);
  return read_memory(calls, device, gpu);
}

// The rest of a GPU whose query failed half way: its name.
Gpu silent(const Gpu& gpu, std::string problem) {
  Gpu left;
  left.index = gpu.index;
  left.uuid = gpu.uuid;
  left.name = gpu.name;
  left.problem = std::move(problem);
  return left;
}

void ask_one(const std::shared_ptr<const NvmlCalls>& calls, const std::shared_ptr<NvmlAnswers>& answers,
             unsigned i) {
  Gpu gpu;
  gpu.index = static_cast<int>(i);
  NvmlDevice device = nullptr;
  int code = calls->handle(i, &device);
  if (code == kSuccess) code = read_identity(*calls, device, gpu);
  {
    const std::lock_guard alone(answers->mutex);
    answers->cards[i].gpu.uuid = gpu.uuid;
    answers->cards[i].gpu.name = gpu.name;
  }
  if (code == kSuccess) code = read_state(*calls, device, gpu);
  if (code != kSuccess) gpu = silent(gpu, in_words(*calls, code));
  const std::lock_guard alone(answers->mutex);
  NvmlAnswers::CardAnswers& card = answers->cards[i];
  // An answer after its own round is too late: it may be as old as its question.
  card.gpu = card.round == answers->round ? std::move(gpu) : silent(gpu, std::string(kSilent));
  card.requested = false;
  answers->more.notify_one();
}

// Starts to ask each of the first `count` cards but those that still hang.
void ask_all(const std::shared_ptr<const NvmlCalls>& calls, const std::shared_ptr<NvmlAnswers>& answers,
             unsigned count) {
  const std::lock_guard alone(answers->mutex);
  ++answers->round;
  if (answers->cards.size() < count) answers->cards.resize(count);
  for (unsigned i = 0; i < count; ++i) {
    NvmlAnswers::CardAnswers& card = answers->cards[i];
    if (card.requested) continue;
    card.gpu.index = static_cast<int>(i);
    card.gpu = silent(card.gpu, std::string(kSilent));
    card.round = answers->round;
    try {
      std::thread(ask_one, calls, answers, i).detach();
      card.requested = true;
    } catch (const std::system_error&) {
      card.gpu.problem = "cannot be asked: the system starts no more threads";
    }
  }
}

}  // namespace

std::string nvml_library() {
  const char* named = std::getenv("PLIMSOLL_NVML");
  return named != nullptr && *named != '\0' ? named : "libnvidia-ml.so.1";
}

Nvml::Nvml(const std::string& library) : answers_(std::make_shared<NvmlAnswers>()) {
  std::string why;
  void* const opened = open_library(library, why);
  if (opened == nullptr) {
    start_.problem = "there is no NVIDIA driver: " + why;
    return;
  }
  start_.installed = true;
  calls_ = std::make_shared<const NvmlCalls>(find_calls(opened));
  if (!has_all(*calls_)) {
    start_.problem = library + " lacks functions that every NVIDIA driver since 2013 has";
    return;
  }
  if (const int code = calls_->init(); code != kSuccess) {
    start_.problem = why_not_started(*calls_, code);
    return;
  }
  (void)read_text([&](char* to, unsigned size) { return calls_->driver_version(to, size); }, start_.driver);
}

GpuReport Nvml::ask(double seconds) {
  GpuReport report = start_;
  if (!report.problem.empty()) return report;
  unsigned count = 0;
  if (const int code = calls_->count(&count); code != kSuccess) {
    report.problem = "the NVIDIA driver " + in_words(*calls_, code);
    return report;
  }
  count = std::min(count, kMostCards);
  ask_all(calls_, answers_, count);
  const auto all_have_answered = [&] {
    return std::none_of(answers_->cards.begin(), answers_->cards.end(),
                        [&](const NvmlAnswers::CardAnswers& card) {
                          return card.requested && card.round == answers_->round;
                        });
  };
  std::unique_lock alone(answers_->mutex);
  (void)answers_->more.wait_for(alone, std::chrono::duration<double>(seconds), all_have_answered);
  for (unsigned i = 0; i < count; ++i) report.gpus.push_back(answers_->cards[i].gpu);
  return report;
}

void Nvml::shut_down() {
  if (!calls_ || !start_.problem.empty()) return;
  const std::lock_guard alone(answers_->mutex);
  const bool hangs = std::any_of(answers_->cards.begin(), answers_->cards.end(),
                                 [](const NvmlAnswers::CardAnswers& card) { return card.requested; });
  if (!hangs) (void)calls_->shutdown();
}

}  // namespace plimsoll::devices
