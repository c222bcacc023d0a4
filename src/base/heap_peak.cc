#include "base/heap_peak.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "base/error.h"

namespace plimsoll {
namespace {

thread_local HeapPeak::Counts* counting = nullptr;

// The allocator keeps so much with a piece, at most.
constexpr int64_t kBeside = 16;

int64_t bytes_of(void* memory) { return static_cast<int64_t>(malloc_usable_size(memory)) + kBeside; }

}  // namespace

HeapPeak::HeapPeak() {
  check_internal(counting == nullptr, "memory of a thread is counted twice");
  counting = &counts_;
}

HeapPeak::~HeapPeak() { counting = nullptr; }

bool HeapPeak::counts() {
  static const bool answers = [] {
    HeapPeak peak;
    ::operator delete(::operator new(1));  // no expression with `new`, which a compiler may leave out
    return peak.bytes() > 0;
  }();
  return answers;
}

void note_allocated(void* memory) {
  if (counting == nullptr || memory == nullptr) return;
  counting->held += bytes_of(memory);
  counting->most = std::max(counting->most, counting->held);
}

void note_freed(void* memory) {
  if (counting != nullptr && memory != nullptr) counting->held -= bytes_of(memory);
}

}  // namespace plimsoll

#ifndef __SANITIZE_ADDRESS__
// Weak, as those of the standard library are: tests have some of their own (files/test_allocations.cc).
#define PLIMSOLL_REPLACED [[gnu::weak, gnu::noinline]]

PLIMSOLL_REPLACED void* operator new(size_t bytes) {
  while (true) {
    if (void* const memory = std::malloc(std::max<size_t>(bytes, 1))) {
      plimsoll::note_allocated(memory);
      return memory;
    }
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

PLIMSOLL_REPLACED void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  void* const memory = std::malloc(std::max<size_t>(bytes, 1));
  plimsoll::note_allocated(memory);
  return memory;
}

PLIMSOLL_REPLACED void operator delete(void* memory) noexcept {
  plimsoll::note_freed(memory);
  std::free(memory);
}

PLIMSOLL_REPLACED void operator delete(void* memory, size_t) noexcept {
  plimsoll::note_freed(memory);
  std::free(memory);
}
#endif
