#include "gpu/emulator.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/format.h"

namespace plimsoll::gpu::emulated {

constinit thread_local Block* block = nullptr;
constinit thread_local Thread* current = nullptr;

namespace {

constexpr size_t kStack = size_t{64} * 1024;
constexpr size_t kGuard = 64;
constexpr size_t kSharedAlignment = 1024;
constexpr int kFill = 0xFF;  // NaN in f32, bf16, f16 and f64, -1 in integers

#if defined(__x86_64__)
// Keeps what the System V ABI wants kept; swapcontext would make two system calls.
__attribute__((naked, noinline)) void switch_stack(void** /*save*/, void* /*load*/) {
  asm volatile(
      "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
      "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
      "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}
void switch_to(Context& from, Context& to) { switch_stack(&from.stack_pointer, to.stack_pointer); }
void make_context(Context& c, std::byte* stack, void (*entry)()) {
  // Some room above, as a function without a caller may look there for its caller's frame.
  constexpr size_t kRoom = 256;
  auto** top = reinterpret_cast<void**>(stack + kStack - kRoom);
  *--top = nullptr;  // the address that entry would return to
  *--top = reinterpret_cast<void*>(entry);
  for (int kept = 0; kept < 6; ++kept) *--top = nullptr;  // the registers that switch_stack takes back
  c.stack_pointer = top;
}
#else
void switch_to(Context& from, Context& to) { swapcontext(&from.context, &to.context); }
void make_context(Context& c, std::byte* stack, void (*entry)()) {
  getcontext(&c.context);
  c.context.uc_stack.ss_sp = stack;
  c.context.uc_stack.ss_size = kStack;
  c.context.uc_link = nullptr;
  ::makecontext(&c.context, entry, 0);
}
#endif

std::string text_of(Place place) {
  if (place.file == nullptr) return "";
  return formatted(" at {}:{}", place.file, place.line);
}

Extent place_of(unsigned number, const Extent& size) {
  return {number % size.x, number / size.x % size.y, number / size.x / size.y};
}

uint64_t count_of(const Extent& extent) { return uint64_t{extent.x} * extent.y * extent.z; }

}  // namespace

Settings& settings() {
  static Settings all;
  return all;
}

Listener& listener() {
  static Listener one;
  return one;
}

void poison(void* at, size_t bytes) {
  std::memset(at, kFill, bytes);
  tell(at, bytes, true);
}

void Block::resize(const Extent& block_size) {
  size = block_size;
  // Guards, and room for alignment.
  storage_.resize(settings().shared_limit + 64 * kGuard + 2 * kSharedAlignment);
  const auto begin = reinterpret_cast<uintptr_t>(storage_.data());
  const size_t skipped = kSharedAlignment - begin % kSharedAlignment;
  shared_ = storage_.data() + skipped;
  shared_size_ = storage_.size() - skipped;
  threads_.resize(count_of(block_size));
  meetings_.resize(threads_.size() / kWarp + 1);
  for (size_t i = 0; i < threads_.size(); ++i) {
    Thread& t = threads_[i];
    t.number = static_cast<int>(i);
    t.lane = t.number % kWarp;
    t.warp = t.number / kWarp;
    t.index = place_of(static_cast<unsigned>(i), block_size);
    constexpr size_t kShift = 4096;
    if (t.stack == nullptr) t.stack = std::make_unique_for_overwrite<std::byte[]>(kStack + kShift);
    // Stacks that begin at different cache sets.
    make_context(t.context, t.stack.get() + i * 320 % kShift / 16 * 16, &Block::fiber_main);
  }
}

void Block::reset() {
  shared_used_ = shared_requested_ = 0;
  parts_.clear();
  fault_.clear();
  live_ = static_cast<int>(threads_.size());
  at_barrier_ = 0;
  for (Thread& t : threads_) {
    t.state = Thread::State::ready;
    t.group = 0;
    t.barriers = t.warp_barriers = 0;
    t.copies.clear();
  }
  for (auto& warp : meetings_)
    for (auto& meeting : warp) meeting->mask = 0;
  ready_.clear();
  next_ready_ = 0;
}

void Block::run(const Extent& at, const std::function<void()>& body) {
  index = at;
  body_ = &body;
  reset();
  released_.resize(threads_.size());
  for (size_t i = 0; i < released_.size(); ++i) released_[i] = static_cast<int>(i);
  release(released_);
  next_fiber(main_);
  if (!fault_.empty()) {
    // Stacks of threads that did not end are begun anew.
    const std::string what = std::exchange(fault_, "");
    resize(size);
    throw Fault(what);
  }
  check_guards();
}

void Block::fiber_main() {
  Block& here = *block;
  while (true) {
    (*here.body_)();
    here.finish();
  }
}

void Block::finish() {
  Thread& me = *current;
  if (!me.copies.empty()) fail("a thread ends with copies that nobody waited for");
  me.state = Thread::State::done;
  --live_;
  if (at_barrier_ > 0 && at_barrier_ == live_) fail("a thread ends while all others wait at a barrier");
  next_fiber(me.context);
}

void Block::barrier(Place place) {
  Thread& me = *current;
  ++me.barriers;
  me.place = place;
  if (++at_barrier_ == live_) return open_barrier();
  me.state = Thread::State::at_barrier;
  next_fiber(me.context);
}

void Block::open_barrier() {
  at_barrier_ = 0;
  released_.clear();
  for (Thread& t : threads_) {
    if (t.state != Thread::State::at_barrier) continue;
    if (!(t.place == current->place)) fail("threads of a block wait at different barriers", current->place);
    t.state = Thread::State::ready;
    released_.push_back(t.number);
  }
  release(released_);
}

// The one that lanes of this mask gather for, else a free one.
Meeting& Block::meeting_of(const Thread& thread, uint32_t mask, Place place) {
  auto& warp = meetings_[static_cast<size_t>(thread.warp)];
  Meeting* gathering = nullptr;
  Meeting* free = nullptr;
  for (auto& open : warp) {
    if (open->mask == 0) free = open.get();
    if (open->arrived == open->mask) continue;
    if (open->mask == mask) gathering = open.get();
    if (open->mask != mask && (open->mask & mask) != 0)
      fail("lanes of one warp wait with different masks", place);
  }
  if (gathering != nullptr) {
    if (!(gathering->place == place)) fail("lanes of one warp meet in different operations", place);
    return *gathering;
  }
  if (free == nullptr) free = warp.emplace_back(std::make_unique<Meeting>()).get();
  free->mask = mask;
  free->arrived = 0;
  free->place = place;
  return *free;
}

void Block::release_lanes(const Meeting& meeting, const Thread& last) {
  released_.clear();
  for (int lane = 0; lane < kWarp; ++lane) {
    if ((meeting.mask >> lane & 1U) == 0 || lane == last.lane) continue;
    const int number = last.warp * kWarp + lane;
    threads_[static_cast<size_t>(number)].state = Thread::State::ready;
    released_.push_back(number);
  }
  release(released_);
}

const std::byte* Block::meet(uint32_t mask, const void* in, size_t bytes, Place place,
                             const std::function<void(Meeting&)>& compute) {
  Thread& me = *current;
  if ((mask >> me.lane & 1U) == 0) fail("a lane outside the mask of a warp operation", place);
  Meeting& m = meeting_of(me, mask, place);
  std::memcpy(m.in[me.lane], in, bytes);
  m.arrived |= 1U << me.lane;
  if (m.arrived == mask) {
    compute(m);
    m.unread = mask;
    release_lanes(m, me);
  } else {
    me.state = Thread::State::at_meeting;
    me.place = place;
    next_fiber(me.context);
  }
  m.unread &= ~(1U << me.lane);
  if (m.unread == 0) m.mask = 0;
  return m.out[me.lane];
}

void* Block::shared_part(const void* tag, size_t bytes, size_t alignment) {
  for (const SharedPart& p : parts_)
    if (p.tag == tag) return shared_ + p.offset;
  const size_t offset = (shared_used_ + kGuard + alignment - 1) / alignment * alignment;
  shared_requested_ += bytes;
  if (shared_requested_ > settings().shared_limit || offset + bytes + kGuard > shared_size_)
    fail(formatted("more shared memory than a block has: {} bytes", shared_requested_));
  // The guard behind the last array is filled already, and may hold what was written there.
  const size_t filled = parts_.empty() ? 0 : shared_used_ + kGuard;
  shared_used_ = offset + bytes;
  std::memset(shared_ + filled, kFill, shared_used_ + kGuard - filled);
  parts_.push_back({tag, offset, bytes});
  return shared_ + offset;
}

void Block::require_launched(size_t bytes) {
  if (bytes > launched_shared)
    fail(formatted("a kernel uses {} bytes of shared memory of its launch, which gave {}", bytes,
                   launched_shared));
}

void Block::check_guards() {
  const auto written = [](std::byte b) { return b != std::byte{kFill}; };
  for (const SharedPart& p : parts_) {
    const std::byte* const begin = shared_ + p.offset;
    const std::byte* const end = begin + p.bytes;
    if (std::any_of(begin - kGuard, begin, written) || std::any_of(end, end + kGuard, written))
      throw Fault(formatted("shared memory was written before or behind an array of {} bytes", p.bytes));
  }
}

void Block::fail(const std::string& what, Place place) {
  fault_ = formatted("{}{}, block {},{},{} thread {}", what,
                     text_of(place.file != nullptr ? place : current->place), index.x, index.y, index.z,
                     current->number);
  Context ignored;
  current = nullptr;
  switch_to(ignored, main_);
  std::abort();  // never comes back
}

void Block::next_fiber(Context& from) {
  if (next_ready_ == ready_.size()) {
    if (live_ > 0 && current != nullptr && fault_.empty()) describe_deadlock();
    current = nullptr;
    if (&from != &main_) switch_to(from, main_);
    return;
  }
  current = &threads_[static_cast<size_t>(ready_[next_ready_++])];
  if (next_ready_ == ready_.size()) {
    ready_.clear();
    next_ready_ = 0;
  }
  if (&current->context != &from) switch_to(from, current->context);
}

void Block::release(std::vector<int>& which) {
  if (settings().order == Order::reverse) std::reverse(which.begin(), which.end());
  if (settings().order == Order::shuffled)
    for (size_t i = which.size(); i > 1; --i) std::swap(which[i - 1], which[random() % i]);
  ready_.insert(ready_.end(), which.begin(), which.end());
}

uint64_t Block::random() {
  random_state_ = random_state_ * 6364136223846793005ULL + settings().seed * 2 + 1;
  return random_state_ >> 33;
}

void Block::describe_deadlock() {
  constexpr size_t kEnough = 300;
  fault_ = formatted("no thread can go on, block {},{},{}:", index.x, index.y, index.z);
  for (const Thread& t : threads_) {
    if (t.state == Thread::State::done) continue;
    if (fault_.size() > kEnough) break;
    fault_ += formatted(" thread {}{}{};", t.number,
                        t.state == Thread::State::at_barrier ? " waits at a barrier" : " waits for its warp",
                        text_of(t.place));
  }
}

void run_grid(const Extent& grid, const Extent& size, size_t launched_shared,
              const std::function<void()>& body) {
  static thread_local Block here;  // stacks are used again
  block = &here;
  here.resize(size);
  here.grid = grid;
  here.launched_shared = launched_shared;
  if (listener().grid_begins != nullptr) listener().grid_begins();
  const auto count = static_cast<unsigned>(count_of(grid));
  for (unsigned i = 0; i < count; ++i) {
    unsigned at = i;
    if (settings().order == Order::reverse) at = count - 1 - i;
    // A multiplier that shares no factor with the count reaches every block once.
    if (settings().order == Order::shuffled && count % 1000003U != 0)
      at = static_cast<unsigned>((uint64_t{i} * 1000003U + settings().seed) % count);
    here.run(place_of(at, grid), body);
    if (listener().block_ends != nullptr) listener().block_ends(here);
  }
}

}  // namespace plimsoll::gpu::emulated
