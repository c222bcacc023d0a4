// Streams, events, copies and graphs of an emulated card: the part of CUDA's runtime that a static program
// needs. The work of a stream runs when the host waits for it, in any order that streams and events allow: a
// program that lacks a wait gives other results in another order. For tests, on one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpu/emulator.h"

namespace plimsoll::gpu::emulated {

// The times at which work runs: on submission; only when the host waits for it, and no more than that needs;
// at any time.
enum class When : uint8_t { at_once, late, shuffled };

struct StreamId {
  size_t number = 0;
};

// A place in a queue: behind its first `count` items.
struct Position {
  size_t queue = 0;
  uint64_t count = 0;
};

// A place in a stream; its name is for messages. Recorded again, it is another place: those who wait already
// wait for the former one, as CUDA has it.
class Event {
 public:
  explicit Event(std::string name) : name_(std::move(name)) {}

 private:
  friend class Streams;
  struct Place {
    Position position;            // in a capture: of a branch
    uint64_t capture = 0;         // the capture's number; 0: outside of any
    std::vector<uint64_t> known;  // in a capture: how much of each branch comes before
  };
  std::string name_;
  std::optional<Place> place_;
};

// An item of a queue: work, or without work a wait for `after`.
struct Item {
  std::function<void()> work;
  Position after;
};

// A recorded capture, to be launched any number of times on the card that captured it.
class Graph {
 public:
  // The number of items that run at a launch: waits do not count.
  [[nodiscard]] int64_t nodes() const;

 private:
  friend class Streams;
  std::vector<std::vector<Item>> branches_;  // of each captured stream; the first began the capture
  std::vector<size_t>
      queues_;  // where branches run, but the first, which runs in the stream it is launched on
};

// All streams of a GPU. Work that the host never waits for never runs. Throws Fault for what CUDA refuses,
// and for waits that it takes in silence though they order nothing.
class Streams {
 public:
  explicit Streams(When when, uint64_t seed = 1) : when_(when), random_state_(seed * 2654435761U + 1) {}

  StreamId open(std::string name);
  void submit(StreamId stream, std::function<void()> work);
  // The source is read when the copy runs: the host must not write to it before.
  void copy(StreamId stream, void* to, const void* from, size_t bytes);
  // The event is what the stream holds now.
  void record(StreamId stream, Event& event);
  // The stream's further work runs after the event.
  void wait(StreamId stream, const Event& event);

  // The host waits: for a stream, for an event, for all.
  void synchronise(StreamId stream);
  void synchronise(const Event& event);
  void synchronise();
  // Drops waiting work, as if it had run; so too a capture.
  void abandon() noexcept;

  // From here to the end nothing runs: what the stream gets, and what streams get that wait for it, makes a
  // graph.
  void begin_capture(StreamId stream);
  // Throws Fault unless the stream that began waits for all that was captured.
  Graph end_capture();
  // The graph's work comes after what the stream holds, and before what it gets next.
  void launch(StreamId stream, const Graph& graph);

 private:
  struct Queue {
    std::string name;
    std::deque<Item> items;
    uint64_t submitted = 0, done = 0;
  };
  struct Capture {
    std::vector<size_t> streams;              // of each branch
    std::vector<std::vector<Item>> branches;  // `after` counts branches instead of queues
    std::vector<std::vector<uint64_t>>
        known;  // by branch: how much of each branch comes before its next item
  };

  size_t branch_of(StreamId stream);
  void put(size_t queue, Item item);
  void put_in_capture(size_t branch, Item item);
  void wait_in_capture(StreamId stream, const Event& event);
  [[nodiscard]] const Event::Place& place_of(const Event& event, const std::string& who) const;
  void refuse_in_capture(const char* what) const;
  [[nodiscard]] bool ready(size_t queue) const;
  void run_head(size_t queue);
  bool run_any();
  void reach(Position goal);
  uint64_t random();

  When when_;
  uint64_t random_state_;
  size_t favourite_ = 0;  // of the shuffled order
  std::vector<Queue> queues_;
  std::optional<Capture> capture_;
  uint64_t captures_ = 0;
};

}  // namespace plimsoll::gpu::emulated
