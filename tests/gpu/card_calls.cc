#include "card_calls.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/units.h"

namespace plimsoll::gpu_check {
namespace {

using gpu::Card;
using gpu::Queue;

constexpr std::array kQueues = {Queue::compute, Queue::in, Queue::out};
constexpr std::array<const char*, 3> kQueueNames = {"compute", "in", "out"};
// Sizes of whole pages, of odd ends, and of more than one piece of staging.
constexpr std::array<int64_t, 6> kSizes = {1, 255, 4096, 65'537, 1 << 20, (5 << 20) + 3};
// Long enough that work which does not wait is there first.
constexpr auto kSlow = std::chrono::milliseconds(15);

std::string where(int64_t size, size_t at) {
  return "byte " + std::to_string(at) + " of " + std::to_string(size);
}

// Memory of the card's or of the host's, given back at the end.
class Bytes {
 public:
  Bytes(Card& card, int64_t size, bool on_host)
      : card_(card),
        data_(on_host ? card.allocate_host(size) : card.allocate(size)),
        size_(size),
        on_host_(on_host) {}
  ~Bytes() { on_host_ ? card_.release_host(data_) : card_.release(data_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  [[nodiscard]] std::span<std::byte> all() const { return {data_, static_cast<size_t>(size_)}; }
  // Writes the pattern into memory of the host.
  void write_pattern(int64_t seed) const {
    for (int64_t i = 0; i < size_; ++i) data_[i] = pattern(seed, i);
  }
  [[nodiscard]] std::string fault_of_pattern(int64_t seed) const {
    for (int64_t i = 0; i < size_; ++i)
      if (data_[i] != pattern(seed, i)) return where(size_, static_cast<size_t>(i)) + " is another one";
    return "";
  }

 private:
  static std::byte pattern(int64_t seed, int64_t i) {
    return static_cast<std::byte>((i * 7 + i / 251 + seed * 31) & 0xFF);
  }

  Card& card_;
  std::byte* data_;
  int64_t size_;
  bool on_host_;
};

std::string zeros(Card& card) {
  for (const int64_t size : kSizes) {
    const Bytes there(card, size, false), here(card, size, true);
    for (const std::byte byte : here.all())
      if (byte != std::byte{}) return "pinned memory is not zeros";
    here.write_pattern(1);
    card.copy(Queue::out, here.all().data(), there.all());
    card.finish();
    for (size_t i = 0; i < here.all().size(); ++i)
      if (here.all()[i] != std::byte{}) return where(size, i) + " of fresh memory is not zero";
  }
  return "";
}

// To the card, within it, and back, by every queue.
std::string copies(Card& card) {
  for (const Queue queue : kQueues)
    for (const int64_t size : kSizes) {
      const Bytes from(card, size, true), to(card, size, true), one(card, size + 64, false),
          other(card, size, false);
      from.write_pattern(size);
      card.copy(queue, one.all().data() + 32, from.all());
      card.copy(queue, other.all().data(), one.all().subspan(32, from.all().size()));
      card.copy(queue, to.all().data(), other.all());
      card.finish();
      if (const std::string fault = to.fault_of_pattern(size); !fault.empty())
        return std::string("queue ") + kQueueNames[static_cast<size_t>(queue)] + ": " + fault;
    }
  return "";
}

std::string fills(Card& card) {
  constexpr int64_t kSize = 70'001, kFrom = 13, kCount = 65'536;
  for (const int value : {0, 0x5A, 0xFF}) {
    const Bytes there(card, kSize, false), here(card, kSize, true);
    card.fill(Queue::compute, there.all(), 0x11);
    card.fill(Queue::compute, there.all().subspan(kFrom, kCount), value);
    card.copy(Queue::compute, here.all().data(), there.all());
    card.finish();
    for (int64_t i = 0; i < kSize; ++i) {
      const int want = i >= kFrom && i < kFrom + kCount ? value : 0x11;
      if (here.all()[static_cast<size_t>(i)] != static_cast<std::byte>(want))
        return where(kSize, static_cast<size_t>(i)) + " should be " + std::to_string(want);
    }
  }
  return "";
}

// A queue does slow work and then writes; another one that waits for its event reads what was written, and
// overwrites it for the first one to read after its own wait.
std::string order_of(Card& card, Queue first, Queue second) {
  constexpr int64_t kSize = 1 << 20;
  const std::function<void()> slow = [] { std::this_thread::sleep_for(kSlow); };
  const auto written = card.make_event("written"), overwritten = card.make_event("overwritten");
  const Bytes shared(card, kSize, false), source(card, kSize, true), other(card, kSize, true),
      seen(card, kSize, true), later(card, kSize, true);
  source.write_pattern(3);
  other.write_pattern(4);
  card.call(first, slow);
  card.copy(first, shared.all().data(), source.all());
  card.record(first, *written);
  card.wait(second, *written);
  card.copy(second, seen.all().data(), shared.all());
  card.call(second, slow);
  card.copy(second, shared.all().data(), other.all());
  card.record(second, *overwritten);
  card.wait(first, *overwritten);
  card.copy(first, later.all().data(), shared.all());
  card.finish();
  if (const std::string fault = seen.fault_of_pattern(3); !fault.empty()) return "before the event: " + fault;
  if (const std::string fault = later.fault_of_pattern(4); !fault.empty())
    return "behind the event: " + fault;
  return "";
}

std::string orders(Card& card) {
  for (const Queue first : kQueues)
    for (const Queue second : kQueues)
      for (int turn = 0; turn < 3; ++turn)
        if (const std::string fault = order_of(card, first, second); !fault.empty())
          return std::string(kQueueNames[static_cast<size_t>(second)]) + " waits for " +
                 kQueueNames[static_cast<size_t>(first)] + ", " + fault;
  return "";
}

std::string waits_of_the_host(Card& card) {
  constexpr int64_t kSize = 3 << 20;
  const std::function<void()> slow = [] { std::this_thread::sleep_for(kSlow); };
  for (const Queue queue : kQueues) {
    const Bytes from(card, kSize, true), there(card, kSize, false), to(card, kSize, true);
    const auto done = card.make_event("done");
    from.write_pattern(5);
    card.call(queue, slow);
    card.copy(queue, there.all().data(), from.all());
    card.copy(queue, to.all().data(), there.all());
    card.record(queue, *done);
    card.wait_on_host(*done);
    if (const std::string fault = to.fault_of_pattern(5); !fault.empty()) return fault;
  }
  return "";
}

// A call on the host lies between what its queue was given before and after it.
std::string calls(Card& card) {
  constexpr int64_t kSize = 65'536;
  const Bytes staged(card, kSize, true), there(card, kSize, false), back(card, kSize, true);
  for (int64_t round = 0; round < 8; ++round) {
    std::string fault;
    const std::function<void()> write = [&] {
      std::this_thread::sleep_for(kSlow / 5);
      staged.write_pattern(round);
    };
    const std::function<void()> read = [&] { fault = back.fault_of_pattern(round); };
    card.call(Queue::in, write);
    card.copy(Queue::in, there.all().data(), staged.all());
    card.copy(Queue::in, back.all().data(), there.all());
    card.call(Queue::in, read);
    card.finish();
    if (!fault.empty()) return fault;
  }
  return "";
}

// A copy of another queue between two of the computing one, captured once and launched behind and before what
// is not: each launch finds what the host wrote before it.
std::string graphs(Card& card) {
  constexpr int64_t kSize = 65'000;
  const Bytes source(card, kSize, true), there(card, kSize, false), other(card, kSize, false),
      back(card, kSize, true);
  const auto began = card.make_event("began"), done = card.make_event("done");
  card.begin_capture();
  card.fill(Queue::compute, there.all(), 0);
  card.record(Queue::compute, *began);
  card.wait(Queue::in, *began);
  card.copy(Queue::in, there.all().data(), source.all());
  card.record(Queue::in, *done);
  card.wait(Queue::compute, *done);
  card.copy(Queue::compute, other.all().data(), there.all());
  const auto graph = card.end_capture();
  if (graph->nodes() != 3) return std::to_string(graph->nodes()) + " nodes, and 3 were captured";
  for (int64_t round = 0; round < 3; ++round) {
    source.write_pattern(round);
    card.fill(Queue::compute, other.all(), 0x77);
    card.launch(*graph);
    card.copy(Queue::compute, back.all().data(), other.all());
    card.fill(Queue::compute, other.all(), 0);
    card.finish();
    if (const std::string fault = back.fault_of_pattern(round); !fault.empty()) return fault;
  }
  return "";
}

// Measures the host's time for a call, and for a node of a graph; plans guess it (DeviceDescription).
Outcome launches(Card& card) {
  constexpr int kCalls = 1000;
  const auto seconds = [&](const std::function<void()>& work) {
    card.finish();
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kCalls;
  };
  const Bytes there(card, 4000, false);
  const auto work = [&] {
    for (int i = 0; i < kCalls; ++i) card.fill(Queue::compute, there.all(), i & 0xFF);
  };
  seconds(work);
  const double call = seconds(work);
  const int64_t free = card.memory_left().free;
  card.begin_capture();
  work();
  const auto graph = card.end_capture();
  const int64_t taken = free - card.memory_left().free;
  card.launch(*graph);
  const double node = seconds([&] { card.launch(*graph); });
  const double both = seconds([&] {
    card.launch(*graph);
    card.finish();
  });
  return {"card/launches by the host",
          "",
          {{"call_seconds", call},
           {"node_seconds", node},
           {"node_seconds_with_its_work", both},
           {"node_bytes", taken / kCalls}}};
}

std::string given_up(Card& card) {
  std::atomic<int> begun = 0, ended = 0;
  const std::function<void()> slow = [&] {
    ++begun;
    std::this_thread::sleep_for(kSlow);
    ++ended;
  };
  for (const Queue queue : kQueues) card.call(queue, slow);
  card.abandon();
  return begun == ended ? "" : "a call still runs behind abandon()";
}

// More than there is, of either memory; the card is usable behind that.
std::string refusals(Card& card) {
  for (const bool on_host : {false, true}) {
    try {
      const Bytes all(card, int64_t{1} << 50, on_host);
      return "2^50 bytes were given";
    } catch (const DoesNotFitError& error) {
      if (std::string(error.what()).find("1,024 TiB") == std::string::npos &&
          std::string(error.what()).find("1024 TiB") == std::string::npos)
        return std::string("the refusal does not say how much was asked for: ") + error.what();
    }
  }
  return copies(card);
}

// Memory that is taken is no longer free, and is free again when it was given back.
std::string accounts(Card& card) {
  constexpr int64_t kSize = 256 * kMiB, kAround = 2 * kMiB;  // drivers give whole pieces
  const int64_t before = card.memory_left().free;
  {
    const Bytes taken(card, kSize, false);
    const int64_t missing = before - card.memory_left().free;
    if (missing < kSize || missing > kSize + kAround)
      return format_bytes(kSize) + " were taken, and " + format_bytes(missing) + " are missing";
  }
  const int64_t lost = before - card.memory_left().free;
  return lost == 0 ? "" : format_bytes(lost) + " are not free again";
}

struct Check {
  const char* name;
  std::string (*ask)(Card&);
};
constexpr std::array kChecks = {
    Check{"memory is zeros", zeros},
    Check{"copies of every size by every queue", copies},
    Check{"fills stay within their bytes", fills},
    Check{"queues wait for each other's events", orders},
    Check{"the host waits for events", waits_of_the_host},
    Check{"calls on the host keep their place", calls},
    Check{"a captured graph does what was captured", graphs},
    Check{"what is given up has ended", given_up},
    Check{"memory that is taken is counted and comes back", accounts},
    Check{"more memory than there is is refused", refusals},
};

}  // namespace

void check_calls(const OpenCard& open, const Tell& tell) {
  for (const Check& check : kChecks) {
    Outcome outcome{std::string("card/") + check.name, "", {}};
    const auto start = std::chrono::steady_clock::now();
    try {
      const auto card = open();
      outcome.detail = check.ask(*card);
    } catch (const std::exception& error) {
      outcome.detail = error.what();
    }
    outcome.figures["seconds"] =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    tell(outcome);
  }
  const auto card = open();
  tell(launches(*card));
}

}  // namespace plimsoll::gpu_check
