// The memory that a piece of work takes at most: counted, so that it can be planned for where the work is done again.
#pragma once

#include <cstdint>

namespace plimsoll {

// Counts what this thread takes by operator new from here on. One at a time in a thread.
class HeapPeak {
 public:
  HeapPeak();
  ~HeapPeak();
  HeapPeak(const HeapPeak&) = delete;
  HeapPeak& operator=(const HeapPeak&) = delete;

  // The most bytes at once so far, with what the allocator adds to them.
  [[nodiscard]] int64_t bytes() const { return counts_.most; }

  // False where something else answers for operator new, as sanitizers do: nothing is counted there.
  static bool counts();

  struct Counts {
    int64_t held = 0, most = 0;
  };

 private:
  Counts counts_;
};

// For who answers for operator new: memory that it gave, and memory that it takes back.
void note_allocated(void* memory);
void note_freed(void* memory);

}  // namespace plimsoll
