// For tests, by PLIMSOLL_NCCL: an NCCL that moves bytes of the host's memory between processes of one machine, through
// mailboxes in memory that they share. As NCCL does for a communicator that does not block, it works by a thread of its
// own. What FAKE_NCCL says is read at every call, words with blanks between them:
//
//   version=N    what it says it is; 22703 otherwise
//   async=N      from its group N on, counted from 1, what was sent is reported as failed
//   fails=N      group N ends with an error
//   dies=R:N     the process of rank R is killed within group N
//   log=FILE     gets a line for each communicator that begins or is ended, and for each group
//
// There is no stream: what is asked for takes place at once, which is when the emulated card's queue comes to it.
//
// Values are those of NVIDIA's header, not of the program's own: this is the other side.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kSuccess = 0, kSystemError = 2, kInternalError = 3, kInvalidArgument = 4, kInvalidUsage = 5,
              kRemoteError = 6, kInProgress = 7;
constexpr size_t kBox = 1 << 16;

struct Config {
  size_t size;
  unsigned magic, version;
  int blocking, cga, min_ctas, max_ctas;
  const char* net;
  int share;
};
struct UniqueId {
  char internal[128];
};

// A mailbox from one rank to another: read == written where it is empty.
struct Box {
  std::atomic<uint64_t> written, read;
  uint64_t bytes;
  char data[kBox];
};
struct Shared {
  std::atomic<int> attached;
  Box boxes[1];  // by sender and receiver
};

struct Message {
  bool sends = false;
  char* memory = nullptr;
  size_t bytes = 0, moved = 0;
  int peer = 0;
};

struct Comm {
  int rank = 0, ranks = 0;
  Shared* shared = nullptr;
  std::string name;
  std::vector<Message> messages;  // of the group that is open
  std::thread worker;
  std::atomic<bool> busy = false, aborted = false, linked = true;
  std::atomic<int> result = kSuccess;
  long groups = 0;
};

thread_local int depth = 0;
thread_local Comm* grouped = nullptr;

std::string word(const char* name) {
  const char* said = std::getenv("FAKE_NCCL");
  const std::string text = std::string(" ") + (said == nullptr ? "" : said) + " ";
  const std::string sought = std::string(" ") + name + "=";
  const size_t at = text.find(sought);
  if (at == std::string::npos) return "";
  const size_t begin = at + sought.size();
  return text.substr(begin, text.find(' ', begin) - begin);
}
// -1: the word is not there.
long number(const char* name) {
  const std::string text = word(name);
  return text.empty() ? -1 : std::strtol(text.c_str(), nullptr, 10);
}

void log(const Comm& comm, const std::string& what) {
  const std::string file = word("log");
  if (file.empty()) return;
  const std::string line = "rank " + std::to_string(comm.rank) + " " + what + "\n";
  const int opened = open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT, 0644);
  if (opened < 0) return;
  if (write(opened, line.data(), line.size()) < 0) std::perror("log");
  close(opened);
}

Box& box(const Comm& comm, int from, int to) { return comm.shared->boxes[from * comm.ranks + to]; }

// Returns true if something was moved.
bool move(Comm& comm, Message& message) {
  Box& through = message.sends ? box(comm, comm.rank, message.peer) : box(comm, message.peer, comm.rank);
  const bool is_empty = through.read == through.written;
  if (message.moved == message.bytes || is_empty != message.sends) return false;
  if (message.sends) {
    through.bytes = std::min(kBox, message.bytes - message.moved);
    std::memcpy(through.data, message.memory + message.moved, through.bytes);
    message.moved += through.bytes;
    ++through.written;
  } else {
    std::memcpy(message.memory + message.moved, through.data, through.bytes);
    message.moved += through.bytes;
    ++through.read;
  }
  return true;
}

// Messages to one rank are moved in their order.
void move_all(Comm& comm) {
  const std::string dies = word("dies");
  const bool dies_here = dies == std::to_string(comm.rank) + ":" + std::to_string(comm.groups);
  for (bool left = true; left && !comm.aborted;) {
    left = false;
    bool moved = false;
    for (size_t i = 0; i < comm.messages.size(); ++i) {
      Message& message = comm.messages[i];
      const auto is_before = [&](const Message& other) {
        return other.sends == message.sends && other.peer == message.peer && other.moved < other.bytes;
      };
      if (message.moved == message.bytes ||
          std::any_of(comm.messages.begin(), comm.messages.begin() + static_cast<long>(i), is_before))
        continue;
      moved = move(comm, message) || moved;
      left = left || message.moved < message.bytes;
    }
    if (dies_here) raise(SIGKILL);
    if (!moved) std::this_thread::yield();
  }
  const long fails = number("async");
  if (fails > 0 && comm.groups >= fails) comm.result = kRemoteError;
  comm.messages.clear();
  comm.busy = false;
}

// All ranks are there: none needs its name any more.
void unlink_once(Comm& comm) {
  if (comm.linked.exchange(false)) shm_unlink(comm.name.c_str());
}

int add(void* memory, size_t bytes, int type, int peer, Comm* comm, void* stream, bool sends) {
  if (depth == 0 || type != 1 || stream != nullptr || peer < 0 || peer >= comm->ranks)
    return kInvalidArgument;
  if (comm->busy || comm->aborted) return kInvalidUsage;
  grouped = comm;
  comm->messages.push_back({sends, static_cast<char*>(memory), bytes, 0, peer});
  return kSuccess;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  const long said = number("version");
  *version = said < 0 ? 22703 : static_cast<int>(said);
  return kSuccess;
}

int ncclGetUniqueId(UniqueId* id) {
  static int made = 0;
  std::memset(id->internal, 0, sizeof id->internal);
  std::snprintf(id->internal, sizeof id->internal, "/plimsoll-fake-nccl-%d-%d", static_cast<int>(getpid()),
                made++);
  return kSuccess;
}

int ncclCommInitRankConfig(Comm** made, int ranks, UniqueId id, int rank, Config* config) {
  *made = nullptr;
  if (config->magic != 0xcafebeef || config->size < 48 || config->version < 21800 || config->blocking != 0)
    return kInvalidArgument;
  auto comm = std::make_unique<Comm>();
  comm->rank = rank;
  comm->ranks = ranks;
  comm->name = id.internal;
  const size_t bytes = sizeof(Shared) + sizeof(Box) * static_cast<size_t>(ranks * ranks);
  const int file = shm_open(comm->name.c_str(), O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return kSystemError;
  void* const page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (page == MAP_FAILED) return kSystemError;
  comm->shared = static_cast<Shared*>(page);
  ++comm->shared->attached;
  *made = comm.release();
  log(**made, "begins with at most " + std::to_string(config->max_ctas) + " channels");
  return kInProgress;
}

int ncclCommGetAsyncError(Comm* comm, int* result) {
  if (comm->shared->attached < comm->ranks || comm->busy) {
    *result = kInProgress;
    return kSuccess;
  }
  unlink_once(*comm);
  *result = comm->result;
  return kSuccess;
}

int ncclCommAbort(Comm* comm) {
  comm->aborted = true;
  if (comm->worker.joinable()) comm->worker.join();
  log(*comm, "is ended");
  delete comm;
  return kSuccess;
}

const char* ncclGetErrorString(int result) {
  return result == kRemoteError       ? "remote process exited or there was a network error"
         : result == kInternalError   ? "internal error"
         : result == kInvalidUsage    ? "invalid usage"
         : result == kInvalidArgument ? "invalid argument"
                                      : "unhandled system error";
}
const char* ncclGetLastError(Comm*) { return "said by a stand-in"; }

int ncclGroupStart() {
  ++depth;
  return kSuccess;
}

int ncclSend(const void* memory, size_t count, int type, int peer, Comm* comm, void* stream) {
  return add(const_cast<void*>(memory), count, type, peer, comm, stream, true);
}

int ncclRecv(void* memory, size_t count, int type, int peer, Comm* comm, void* stream) {
  return add(memory, count, type, peer, comm, stream, false);
}

int ncclGroupEnd() {
  if (--depth > 0 || grouped == nullptr) return kSuccess;
  Comm& comm = *grouped;
  grouped = nullptr;
  ++comm.groups;
  if (number("fails") == comm.groups) return kInternalError;
  if (comm.worker.joinable()) comm.worker.join();
  comm.busy = true;
  comm.worker = std::thread([&comm] { move_all(comm); });
  return kInProgress;
}
}
