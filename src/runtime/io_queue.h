// The I/O thread of a run: transfers run one after the other, concurrently with the computation.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>

#include "ops/cpu_kernel.h"

namespace plimsoll {

// Jobs complete in the order in which they were submitted. After a failure the rest is passed over until
// drain(). For one thread that submits and waits; nothing is allocated.
class IoQueue {
 public:
  IoQueue();
  ~IoQueue();
  IoQueue(const IoQueue&) = delete;
  IoQueue& operator=(const IoQueue&) = delete;

  // The job must outlive its run. Returns its number; numbers are consecutive. Blocks while the queue is
  // full.
  int64_t submit(const BoundCall& job);
  // The number that the next job gets.
  [[nodiscard]] int64_t next() const { return submitted_; }
  // Returns when job `number` is complete. Throws what a job threw.
  void wait(int64_t number);
  // Returns when all are complete; then throws what a job threw, and forgets it.
  void drain();
  // Passes over what has not begun, returns when nothing runs, and forgets any failure.
  void abandon() noexcept;

  // Time that submit, wait and drain have blocked.
  [[nodiscard]] double seconds_waited() const { return seconds_waited_; }

 private:
  // More than the transfers of the layers or slices that are under way at a time.
  static constexpr size_t kCapacity = 256;

  void work();
  void wait_for(std::unique_lock<std::mutex>& lock, int64_t completed);

  std::mutex mutex_;
  std::condition_variable submitted_something_, completed_something_;
  std::array<const BoundCall*, kCapacity> ring_{};
  int64_t submitted_ = 0;  // written by the submitter, under the mutex
  int64_t completed_ = 0;
  bool passes_over_ = false;
  bool stops_ = false;
  std::exception_ptr failure_;
  double seconds_waited_ = 0;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace plimsoll
