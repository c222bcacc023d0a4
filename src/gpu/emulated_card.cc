#include "gpu/emulated_card.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "base/environment.h"
#include "base/format.h"
#include "base/units.h"
#include "gpu/card_fault.h"

namespace plimsoll::gpu {
namespace {

constexpr int64_t kPage = 4096;
// More than a host has, whose memory it is.
constexpr int64_t kTotal = int64_t{1} << 40;
// As if a driver took so much for a node of a graph.
constexpr int64_t kGraphNode = 32 * kKiB;

struct EmulatedEvent : Event {
  explicit EmulatedEvent(const std::string& name) : event(name) {}
  emulated::Event event;
};

struct EmulatedGraph : CardGraph {
  explicit EmulatedGraph(emulated::Graph of) : graph(std::move(of)) {}
  [[nodiscard]] int64_t nodes() const override { return graph.nodes(); }
  emulated::Graph graph;
};

emulated::Event& of(Event& event) { return static_cast<EmulatedEvent&>(event).event; }
const emulated::Event& of(const Event& event) { return static_cast<const EmulatedEvent&>(event).event; }

// Zeros, every page of them taken.
std::span<std::byte> map(int64_t bytes) {
  const auto mapped = static_cast<size_t>(round_up(std::max<int64_t>(bytes, 1), kPage));
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw DoesNotFitError(formatted("the system refused {} of memory for the emulated GPU: {}",
                                    format_bytes(bytes), std::strerror(errno)));
  std::memset(memory, 0, mapped);
  return {static_cast<std::byte*>(memory), mapped};
}

}  // namespace

EmulatedCard::EmulatedCard(EmulatedOrder order)
    : streams_(order.when, order.seed),
      ids_{streams_.open("compute"), streams_.open("copy in"), streams_.open("copy out")},
      stream_(static_cast<LaunchTaker*>(this)) {
  stream_.limit_shared(static_cast<int64_t>(emulated::settings().shared_limit));
}

EmulatedCard::~EmulatedCard() {
  abandon();
  if (const char* folder = std::getenv("PLIMSOLL_EMULATED_MEMORY"); folder != nullptr)
    std::remove((folder + ("/" + std::to_string(getpid()))).c_str());
  for (const auto* mappings : {&mappings_, &host_mappings_})
    for (const auto mapping : *mappings) munmap(mapping.data(), mapping.size());
}

MemoryLeft EmulatedCard::memory_left() const {
  int64_t taken = 0;
  for (const auto mapping : mappings_) taken += static_cast<int64_t>(mapping.size());
  return {kTotal - taken - graph_bytes_, kTotal};
}

void EmulatedCard::tell_taken() const noexcept {
  const char* const folder = std::getenv("PLIMSOLL_EMULATED_MEMORY");
  if (folder == nullptr) return;
  const MemoryLeft left = memory_left();
  // The card that the process took by itself is not in the environment that others see of it.
  std::ofstream(folder + ("/" + std::to_string(getpid())))
      << left.total - left.free << " " << environment("CUDA_VISIBLE_DEVICES") << "\n";
}

std::byte* EmulatedCard::allocate(int64_t bytes) {
  mappings_.push_back(map(bytes));
  tell_taken();
  close();
  return mappings_.back().data();
}

std::byte* EmulatedCard::allocate_host(int64_t bytes) {
  host_mappings_.push_back(map(bytes));
  return host_mappings_.back().data();
}

// As CUDA's: what was given before is done first.
void EmulatedCard::release(std::byte* memory) noexcept {
  try {
    finish();
  } catch (...) {
    abandon();
  }
  for (auto* mappings : {&mappings_, &host_mappings_}) {
    const auto found = std::find_if(mappings->begin(), mappings->end(),
                                    [&](const auto& mapping) { return mapping.data() == memory; });
    if (found == mappings->end()) continue;
    munmap(found->data(), found->size());
    mappings->erase(found);
  }
  tell_taken();
}
void EmulatedCard::release_host(std::byte* memory) noexcept { release(memory); }

// By the system's own call: what the process has locked, the kernel counts (VmLck) and limits (ulimit -l).
std::string EmulatedCard::lock_host(std::span<std::byte> memory) {
  if (mlock(memory.data(), memory.size()) != 0) return std::strerror(errno);
  locked_.push_back(memory);
  return "";
}
void EmulatedCard::unlock_host(std::byte* memory) noexcept {
  try {
    finish();
  } catch (...) {
    abandon();
  }
  const auto found = std::ranges::find(locked_, memory, [](const auto& range) { return range.data(); });
  if (found == locked_.end()) return;
  munlock(found->data(), found->size());
  locked_.erase(found);
}

std::unique_ptr<Event> EmulatedCard::make_event(const std::string& name) {
  return std::make_unique<EmulatedEvent>(name);
}
void EmulatedCard::require_whole() const {
  if (failed_) throw CardFault("unspecified launch failure");
}
void EmulatedCard::take(std::function<void()> launch) {
  if (++launches_ != trap_at_) return submit(Queue::compute, std::move(launch));
  submit(Queue::compute, [this] {
    failed_ = true;
    require_whole();
  });
}

void EmulatedCard::record(Queue queue, Event& event) {
  require_whole();
  streams_.record(id(queue), of(event));
}
void EmulatedCard::wait(Queue queue, const Event& event) {
  require_whole();
  streams_.wait(id(queue), of(event));
}
void EmulatedCard::wait_on_host(const Event& event) {
  require_whole();
  streams_.synchronise(of(event));
}

// Nothing runs unless the host waits.
bool EmulatedCard::has_come(const Event& event) {
  wait_on_host(event);
  return true;
}

void EmulatedCard::copy(Queue queue, std::byte* to, std::span<const std::byte> from) {
  submit(queue, [to, from] { std::memcpy(to, from.data(), from.size()); });
}

void EmulatedCard::fill(Queue queue, std::span<std::byte> bytes, int value) {
  submit(queue, [bytes, value] { std::memset(bytes.data(), value, bytes.size()); });
}

// A call on the host does not reach the card's memory.
void EmulatedCard::call(Queue queue, const std::function<void()>& on_host) {
  streams_.submit(id(queue), [&on_host] { on_host(); });
}

void EmulatedCard::run(const std::function<void()>& launches) { launches(); }
void EmulatedCard::run_library(const std::function<void(void* stream)>& calls) {
  submit(Queue::compute, [calls] { calls(nullptr); });
}

void EmulatedCard::begin_capture() { streams_.begin_capture(id(Queue::compute)); }
std::unique_ptr<CardGraph> EmulatedCard::end_capture() {
  auto graph = std::make_unique<EmulatedGraph>(streams_.end_capture());
  graph_bytes_ += graph->nodes() * kGraphNode;
  return graph;
}
void EmulatedCard::launch(const CardGraph& graph) {
  streams_.launch(id(Queue::compute), static_cast<const EmulatedGraph&>(graph).graph);
}

void EmulatedCard::submit(Queue queue, std::function<void()> work) {
  require_whole();
  streams_.submit(id(queue), [this, work = std::move(work)] {
    open();
    try {
      work();
    } catch (...) {
      close();
      throw;
    }
    close();
  });
}

void EmulatedCard::finish() {
  require_whole();
  streams_.synchronise();
}
void EmulatedCard::abandon() noexcept { streams_.abandon(); }

void EmulatedCard::open() const {
  for (const auto mapping : mappings_)
    if (mprotect(mapping.data(), mapping.size(), PROT_READ | PROT_WRITE) != 0)
      throw StoppedError(std::string("the emulated card's memory is not given back: ") +
                         std::strerror(errno));
}

void EmulatedCard::close() const noexcept {
  for (const auto mapping : mappings_) mprotect(mapping.data(), mapping.size(), PROT_NONE);
}

}  // namespace plimsoll::gpu
