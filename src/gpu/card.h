// A card as a static program needs it: memory, three queues, events, and copies between the host and itself.
// One thread calls it. The work of a queue takes place in its order, sooner or later; queues wait for each
// other by events alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "gpu/stream_handle.h"

namespace plimsoll::gpu {

// The queues: computation, copies from the host, copies to it.
enum class Queue : uint8_t { compute, in, out };

// A place in a queue.
class Event {
 public:
  virtual ~Event() = default;
};

// The work that the queues got between begin_capture() and end_capture(), to be launched as a whole. On the
// card a graph takes memory of the driver's, by its nodes: kernels, copies and fills.
class CardGraph {
 public:
  virtual ~CardGraph() = default;
  [[nodiscard]] virtual int64_t nodes() const = 0;
};

// Free and total memory of a GPU, as its driver reports it, all processes included.
struct MemoryLeft {
  int64_t free = 0, total = 0;
};

class Card {
 public:
  virtual ~Card() = default;

  [[nodiscard]] virtual MemoryLeft memory_left() const = 0;

  // Memory of the card, and memory of the host for copies that run concurrently with the queue's thread;
  // zeros. Throws DoesNotFitError.
  virtual std::byte* allocate(int64_t bytes) = 0;
  virtual std::byte* allocate_host(int64_t bytes) = 0;
  virtual void release(std::byte* memory) noexcept = 0;
  virtual void release_host(std::byte* memory) noexcept = 0;
  // Locks memory that the process has by itself, in whole pages, so that it is as that of allocate_host() for copies.
  // Returns why it cannot, or an empty text. It is unlocked by its address before it is given back.
  virtual std::string lock_host(std::span<std::byte> memory) = 0;
  virtual void unlock_host(std::byte* memory) noexcept = 0;

  // The name is for messages.
  virtual std::unique_ptr<Event> make_event(const std::string& name) = 0;
  // The event is what the queue holds now.
  virtual void record(Queue queue, Event& event) = 0;
  // The queue's further work comes after the event, which was recorded.
  virtual void wait(Queue queue, const Event& event) = 0;
  virtual void wait_on_host(const Event& event) = 0;
  // True once what came before it has taken place. Throws what failed of that.
  virtual bool has_come(const Event& event) = 0;

  // Between memory of the card and of allocate_host() or lock_host(), or within the card's.
  virtual void copy(Queue queue, std::byte* to, std::span<const std::byte> from) = 0;
  virtual void fill(Queue queue, std::span<std::byte> bytes, int value) = 0;
  // A call on the host, from a thread of the card's; it throws nothing, must not use the card, and outlives
  // its run.
  virtual void call(Queue queue, const std::function<void()>& on_host) = 0;
  // Kernels that `launches` launches on stream() go to the compute queue.
  virtual void run(const std::function<void()>& launches) = 0;
  [[nodiscard]] virtual Stream& stream() = 0;
  // Calls of a library that puts its own work into the compute queue: with its cudaStream_t, at once. The emulated card
  // calls it without one when the queue comes to it: the work has taken place when it returns.
  virtual void run_library(const std::function<void(void* stream)>& calls) = 0;

  // From here to the end nothing takes place: a graph is made of what the compute queue gets, and of what
  // those get that wait for an event of it. Events that are recorded on one side of the capture are waited
  // for on that side, and the host waits for nothing. abandon() ends a capture too.
  virtual void begin_capture() = 0;
  // Throws where the compute queue does not wait for all that was captured, and where the card has no room.
  virtual std::unique_ptr<CardGraph> end_capture() = 0;
  // Its work comes after what the compute queue holds, and before what it gets next. The graph outlives it.
  virtual void launch(const CardGraph& graph) = 0;

  // Returns when all queues are empty. Throws what failed.
  virtual void finish() = 0;
  // The same for a caller that gives up: what has not begun may be left out. Throws nothing.
  virtual void abandon() noexcept = 0;
};

}  // namespace plimsoll::gpu
