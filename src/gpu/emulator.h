// A GPU's blocks, warps and shared memory on one CPU thread, so that kernels written in CUDA C++ compile with
// any C++20 compiler and run anywhere. Every GPU thread is a fiber that runs until it has to wait. Order is a
// parameter: code that lacks a barrier gives other results under another order. For tests, not for speed.
//
// It finds by itself: barriers that some threads do not reach, warp operations that not all lanes of their
// mask reach, shared memory written past its arrays or beyond a block's limit, copies that no thread waited
// for. Shared memory is NaN until it is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace plimsoll::gpu::emulated {

// The size of a grid or a block, or a place in one.
struct Extent {
  unsigned x = 1, y = 1, z = 1;
};

// The order in which threads that may run do run, and blocks.
enum class Order : uint8_t { forward, reverse, shuffled };
struct Settings {
  Order order = Order::forward;
  uint64_t seed = 1;  // of the shuffled order
  size_t shared_limit =
      99 * 1024;  // bytes a block may have: 64 KiB sm_75, 163 sm_80, 99 sm_86/89/120, 227 sm_90
};
// The settings of all grids that run from now on.
Settings& settings();

// An error of a kernel; its message names block, thread and line.
class Fault : public InternalError {
 public:
  using InternalError::InternalError;
};

// A line of a kernel.
struct Place {
  const char* file = nullptr;
  int line = 0;
  friend bool operator==(const Place& a, const Place& b) { return a.line == b.line && a.file == b.file; }
};

inline constexpr int kWarp = 32;
inline constexpr uint32_t kAllLanes = 0xFFFFFFFFU;

struct Context {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t context;
#endif
};

// An operation that the lanes of a mask do together: each deposits up to 64 bytes, the last one computes for
// all.
struct Meeting {
  uint32_t mask = 0, arrived = 0, unread = 0;
  Place place;
  alignas(16) std::byte in[kWarp][64];
  alignas(16) std::byte out[kWarp][64];
};

// cp.async of 16 bytes: what lands only when it is waited for.
struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  int group = 0;
  bool live = true;  // otherwise zeros
};

struct Thread {
  enum class State : uint8_t { ready, at_barrier, at_meeting, done };

  Context context;
  Extent index;
  int number = 0, lane = 0, warp = 0;
  int group = 0;                             // of copies: how many were committed
  uint32_t barriers = 0, warp_barriers = 0;  // passed so far: what orders memory, for the checker
  State state = State::ready;
  Place place;  // where it waits
  std::vector<Copy> copies;
  std::unique_ptr<std::byte[]> stack;
};

// An array of shared memory; `tag` is its declaration.
struct SharedPart {
  const void* tag = nullptr;
  size_t offset = 0, bytes = 0;
};

// The block that runs on this CPU thread; its memory and stacks serve all blocks in turn.
class Block {
 public:
  Extent grid, size, index;
  size_t launched_shared = 0;  // bytes that the launch gave

  void resize(const Extent& block);
  // Runs `body` as every thread of the block at `at`. Throws Fault.
  void run(const Extent& at, const std::function<void()>& body);

  // The functions that running threads call.
  void barrier(Place place);
  // Calls compute(meeting) once when all lanes of `mask` are there; returns this lane's result, valid until
  // the thread waits again.
  const std::byte* meet(uint32_t mask, const void* in, size_t bytes, Place place,
                        const std::function<void(Meeting&)>& compute);
  // The array of shared memory that `tag` declares.
  void* shared_part(const void* tag, size_t bytes, size_t alignment);
  // Fails where the launch gave less shared memory than that.
  void require_launched(size_t bytes);
  // Ends the block: run() throws.
  [[noreturn]] void fail(const std::string& what, Place place = {});

  [[nodiscard]] const std::vector<SharedPart>& parts() const { return parts_; }
  [[nodiscard]] const std::byte* shared() const { return shared_; }
  [[nodiscard]] size_t shared_size() const { return shared_size_; }
  [[nodiscard]] const std::vector<Thread>& threads() const { return threads_; }

 private:
  static void fiber_main();
  void reset();
  void finish();
  void open_barrier();
  Meeting& meeting_of(const Thread& thread, uint32_t mask, Place place);
  void release_lanes(const Meeting& meeting, const Thread& last);
  void next_fiber(Context& from);
  void release(std::vector<int>& which);
  void describe_deadlock();
  void check_guards();
  uint64_t random();

  std::vector<Thread> threads_;
  std::vector<std::byte> storage_;
  std::byte* shared_ = nullptr;  // in storage_, aligned as the hardware's is
  size_t shared_size_ = 0;
  std::vector<SharedPart> parts_;
  size_t shared_used_ = 0, shared_requested_ = 0;
  const std::function<void()>* body_ = nullptr;
  Context main_;
  std::vector<int> ready_, released_;
  size_t next_ready_ = 0;
  int live_ = 0, at_barrier_ = 0;
  uint64_t random_state_ = 0x853C49E6748FEA9BULL;
  std::vector<std::vector<std::unique_ptr<Meeting>>> meetings_;  // by warp
  std::string fault_;
};

// The block and thread that this CPU thread runs; nullptr outside kernels.
extern constinit thread_local Block* block;
extern constinit thread_local Thread* current;

// Runs `body` as every thread of every block. Throws Fault.
void run_grid(const Extent& grid, const Extent& size, size_t launched_shared,
              const std::function<void()>& body);

// The checker's: what it hears where it is linked (emulator_check.cc).
struct Listener {
  void (*grid_begins)() = nullptr;
  void (*block_ends)(const Block&) = nullptr;
  // Called with the bytes that an instruction of the card touches.
  void (*touches)(const void* at, size_t bytes, bool write) = nullptr;
};
Listener& listener();

// Called for what the emulator reads or writes in a kernel's stead.
inline void tell(const void* at, size_t bytes, bool write) {
  if (listener().touches != nullptr) listener().touches(at, bytes, write);
}
// Fills with NaN, as memory that was never written.
void poison(void* at, size_t bytes);

}  // namespace plimsoll::gpu::emulated
