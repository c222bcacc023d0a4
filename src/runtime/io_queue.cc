#include "runtime/io_queue.h"

#include <pthread.h>

#include <chrono>
#include <csignal>
#include <utility>

namespace plimsoll {

// Signals are for the main thread, whose system calls they are to interrupt.
IoQueue::IoQueue() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { work(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

IoQueue::~IoQueue() {
  abandon();
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  submitted_something_.notify_one();
  thread_.join();
}

int64_t IoQueue::submit(const BoundCall& job) {
  std::unique_lock lock(mutex_);
  wait_for(lock, submitted_ - static_cast<int64_t>(kCapacity) + 1);
  const int64_t number = submitted_++;
  ring_[static_cast<size_t>(number) % kCapacity] = &job;
  lock.unlock();
  submitted_something_.notify_one();
  return number;
}

void IoQueue::wait(int64_t number) {
  std::unique_lock lock(mutex_);
  wait_for(lock, number + 1);
  if (failure_) std::rethrow_exception(failure_);
}

void IoQueue::drain() {
  std::unique_lock lock(mutex_);
  wait_for(lock, submitted_);
  passes_over_ = false;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void IoQueue::abandon() noexcept {
  std::unique_lock lock(mutex_);
  passes_over_ = true;
  wait_for(lock, submitted_);
  passes_over_ = false;
  failure_ = nullptr;
}

void IoQueue::wait_for(std::unique_lock<std::mutex>& lock, int64_t completed) {
  if (completed_ >= completed) return;
  const auto start = std::chrono::steady_clock::now();
  completed_something_.wait(lock, [&] { return completed_ >= completed; });
  seconds_waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void IoQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    submitted_something_.wait(lock, [&] { return completed_ < submitted_ || stops_; });
    if (completed_ == submitted_) return;
    const BoundCall* job = ring_[static_cast<size_t>(completed_) % kCapacity];
    if (!passes_over_) {
      lock.unlock();
      std::exception_ptr thrown;
      try {
        (*job)();
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      if (thrown) {
        failure_ = thrown;
        passes_over_ = true;
      }
    }
    ++completed_;
    completed_something_.notify_one();
  }
}

}  // namespace plimsoll
