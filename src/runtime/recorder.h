// Records a profiled run: when the ops of its programs ran, on which thread. Each track is written by one
// thread; nothing is allocated after the constructor.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace plimsoll {

enum class Track : uint8_t { steps, compute, io, loader };
inline constexpr size_t kTracks = 4;

// Nanoseconds from the recorder's start. `op` counts in the program's ops; below zero: no op, see the track's
// writer.
struct TimeSpan {
  int64_t begin = 0, end = 0;
  int32_t program = -1;
  int32_t op = -1;
};

class Recorder {
 public:
  // Room for so many spans by track; what comes when it is used up is dropped.
  explicit Recorder(const std::array<size_t, kTracks>& capacity);

  // Spans are kept while it is on. For the thread of the compute track.
  void record(bool on) { on_.store(on, std::memory_order_relaxed); }
  [[nodiscard]] bool recording() const { return on_.load(std::memory_order_relaxed); }
  [[nodiscard]] int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
  }
  void add(Track track, const TimeSpan& span) {
    auto& spans = spans_[static_cast<size_t>(track)];
    if (recording() && spans.size() < spans.capacity()) spans.push_back(span);
  }
  // For when the track's thread is at rest.
  [[nodiscard]] std::span<const TimeSpan> spans(Track track) const {
    return spans_[static_cast<size_t>(track)];
  }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point start_ = Clock::now();
  std::atomic<bool> on_ = false;
  std::array<std::vector<TimeSpan>, kTracks> spans_;
};

}  // namespace plimsoll
