// For tests, by PLIMSOLL_NVML: a management library of cards that are not there. What it tells stands in the
// file that FAKE_NVML names, read at every call, a fact a line:
//
//   driver 535.1          version of the driver
//   init CODE             what starting answers, an error of nvml.h; 0 is none
//   sleep SECONDS         how long starting takes
//   emulated BYTES        emulated cards compute instead of these (PLIMSOLL_EMULATED_MEMORY): what their
//                         processes say that they hold, and BYTES beside it, is in use on the card that each
//                         says that it sees first
//   card UUID TOTAL USED  a card; lines below are of it, up to the next card
//   name TEXT             of its model, with \xNN for any byte
//   process PID BYTES     that computes on it; BYTES - where that is not known
//   reserved BYTES        that the driver keeps for itself, as newer drivers tell it beside TOTAL and USED
//   error CODE            what asking it for its memory answers
//   hang SECONDS          how long asking it for its memory takes
//   mig                   it is cut into instances
//   no-processes          the driver does not list them
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct FakeProcess {
  unsigned pid = 0;
  unsigned long long bytes = ~0ULL;
};

struct FakeCard {
  std::string uuid, name = "Fake Card";
  unsigned long long total = 0, used = 0, reserved = 0;
  std::vector<FakeProcess> processes;
  int error = 0;
  double hang = 0;
  bool mig = false, lists = true;
};

struct FakeMachine {
  std::string driver = "535.1";
  int init = 0;
  double sleep = 0;
  std::vector<FakeCard> cards;
};

std::string unescaped(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text.compare(i, 2, "\\x") == 0 && i + 3 < text.size();
    plain += escape ? static_cast<char>(std::stoi(text.substr(i + 2, 2), nullptr, 16)) : text[i];
    if (escape) i += 3;
  }
  return plain;
}

void read_card_line(const std::string& word, std::istringstream& line, FakeCard& card) {
  if (word == "name") {
    std::getline(line >> std::ws, card.name);
    card.name = unescaped(card.name);
  } else if (word == "process") {
    FakeProcess process;
    std::string bytes;
    line >> process.pid >> bytes;
    if (bytes != "-") process.bytes = std::stoull(bytes);
    card.processes.push_back(process);
  } else if (word == "reserved") {
    line >> card.reserved;
  } else if (word == "error") {
    line >> card.error;
  } else if (word == "hang") {
    line >> card.hang;
  } else if (word == "mig") {
    card.mig = true;
  } else if (word == "no-processes") {
    card.lists = false;
  }
}

void add_emulated(unsigned long long beside, FakeMachine& found) {
  const char* folder = std::getenv("PLIMSOLL_EMULATED_MEMORY");
  if (folder == nullptr) return;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string pid = entry.path().filename().string();
    if (std::ifstream("/proc/" + pid + "/environ").get() == EOF) continue;  // it was killed
    std::string visible;
    unsigned long long bytes = 0;
    if (!(std::ifstream(entry.path()) >> bytes >> visible)) continue;
    const std::string uuid = visible.substr(0, visible.find(','));
    for (FakeCard& card : found.cards) {
      if (card.uuid != uuid) continue;
      card.used += bytes + beside;
      card.processes.push_back({static_cast<unsigned>(std::stoul(pid)), bytes + beside});
    }
  }
}

FakeMachine machine() {
  FakeMachine found;
  unsigned long long beside = 0;
  bool emulated = false;
  const char* path = std::getenv("FAKE_NVML");
  std::ifstream file(path == nullptr ? "" : path);
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string word;
    line >> word;
    if (word == "driver") line >> found.driver;
    if (word == "init") line >> found.init;
    if (word == "sleep") line >> found.sleep;
    if (word == "emulated") emulated = static_cast<bool>(line >> beside);
    if (word == "card") {
      FakeCard& card = found.cards.emplace_back();
      line >> card.uuid >> card.total >> card.used;
    } else if (!found.cards.empty()) {
      read_card_line(word, line, found.cards.back());
    }
  }
  if (emulated) add_emulated(beside, found);
  return found;
}

void wait_seconds(double seconds) { usleep(static_cast<useconds_t>(seconds * 1e6)); }

// A handle is the index and one, so that it is not null.
FakeCard card_of(void* device) {
  const FakeMachine found = machine();
  const size_t index = reinterpret_cast<size_t>(device) - 1;
  return index < found.cards.size() ? found.cards[index] : FakeCard{};
}

int give(const std::string& text, char* to, unsigned size) {
  if (text.size() + 1 > size) return 7;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return 0;
}

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
struct Utilization {
  unsigned gpu, memory;
};

}  // namespace

extern "C" {

int nvmlInit_v2() {
  const FakeMachine found = machine();
  wait_seconds(found.sleep);
  return found.init;
}
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int code) { return code == 999 ? "Unknown Error" : "Fake Error"; }
int nvmlSystemGetDriverVersion(char* to, unsigned size) { return give(machine().driver, to, size); }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(machine().cards.size());
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(size_t{index} + 1);
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* to, unsigned size) { return give(card_of(device).uuid, to, size); }
int nvmlDeviceGetName(void* device, char* to, unsigned size) { return give(card_of(device).name, to, size); }
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  const FakeCard card = card_of(device);
  wait_seconds(card.hang);
  *memory = {card.total, card.total - card.used, card.used};
  return card.error;
}
int nvmlDeviceGetMemoryInfo_v2(void* device, MemoryV2* memory) {
  const FakeCard card = card_of(device);
  if (card.reserved == 0) return 3;
  if (memory->version != 0x02000028) return 25;  // of 40 bytes, the second
  *memory = {memory->version, card.total, card.reserved, card.total - card.reserved - card.used, card.used};
  return card.error;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* list) {
  const FakeCard card = card_of(device);
  if (!card.lists) return 3;
  const unsigned room = *count;
  *count = static_cast<unsigned>(card.processes.size());
  if (room < *count) return 7;
  for (const FakeProcess& one : card.processes) *list++ = {one.pid, one.bytes, ~0U, ~0U};
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 8;
  *minor = 9;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void*, Utilization* busy) {
  *busy = {37, 5};
  return 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  *current = *pending = card_of(device).mig ? 1 : 0;
  return 0;
}

}  // extern "C"
