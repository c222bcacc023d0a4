// The emulated card's memory and queues. The host reaches its memory only while a kernel, a copy or a fill of
// the card runs: who uses an address of it above the device ends at once.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gpu/card.h"
#include "gpu/emulator_stream.h"

namespace plimsoll::gpu {

// The times at which queues do what they were given, as far as their waits leave it open.
struct EmulatedOrder {
  emulated::When when = emulated::When::shuffled;
  uint64_t seed = 1;
};

class EmulatedCard : public Card, private LaunchTaker {
 public:
  explicit EmulatedCard(EmulatedOrder order);
  ~EmulatedCard() override;
  EmulatedCard(const EmulatedCard&) = delete;
  EmulatedCard& operator=(const EmulatedCard&) = delete;

  [[nodiscard]] MemoryLeft memory_left() const override;
  std::byte* allocate(int64_t bytes) override;
  std::byte* allocate_host(int64_t bytes) override;
  void release(std::byte* memory) noexcept override;
  void release_host(std::byte* memory) noexcept override;
  std::string lock_host(std::span<std::byte> memory) override;
  void unlock_host(std::byte* memory) noexcept override;

  std::unique_ptr<Event> make_event(const std::string& name) override;
  void record(Queue queue, Event& event) override;
  void wait(Queue queue, const Event& event) override;
  void wait_on_host(const Event& event) override;
  bool has_come(const Event& event) override;

  void copy(Queue queue, std::byte* to, std::span<const std::byte> from) override;
  void fill(Queue queue, std::span<std::byte> bytes, int value) override;
  void call(Queue queue, const std::function<void()>& on_host) override;
  void run(const std::function<void()>& launches) override;
  [[nodiscard]] Stream& stream() override { return stream_; }
  void run_library(const std::function<void(void* stream)>& calls) override;

  void begin_capture() override;
  std::unique_ptr<CardGraph> end_capture() override;
  void launch(const CardGraph& graph) override;

  void finish() override;
  void abandon() noexcept override;

  // The launch of that number, counted from 1, fails as a trap of a kernel's does, and so do all later calls;
  // 0: none does.
  void trap_at(int64_t launch) { trap_at_ = launch; }

 private:
  void take(std::function<void()> launch) override;
  void require_whole() const;
  [[nodiscard]] emulated::StreamId id(Queue queue) const { return ids_[static_cast<size_t>(queue)]; }
  void submit(Queue queue, std::function<void()> work);
  void open() const;
  void close() const noexcept;

  emulated::Streams streams_;
  std::array<emulated::StreamId, 3> ids_;
  Stream stream_;
  int64_t graph_bytes_ = 0;
  int64_t trap_at_ = 0, launches_ = 0;
  bool failed_ = false;
  // PLIMSOLL_EMULATED_MEMORY=FOLDER: what is taken, and the cards that the process sees, stand in a file of the
  // process's number there, for a stand-in of the driver.
  void tell_taken() const noexcept;

  std::vector<std::span<std::byte>> mappings_, host_mappings_, locked_;
};

}  // namespace plimsoll::gpu
