#include "runtime/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"

namespace plimsoll {
namespace {

constexpr int64_t kHugePage = 2 * kMiB;
constexpr int64_t kPage = 4096;

// Writes one byte in each page of the thread's share; shares end on huge pages, so that no two threads fault
// one in.
void touch(std::byte* data, int64_t bytes, int threads) {
  const int64_t share = round_up(ceil_div(bytes, threads), kHugePage);
  std::vector<std::jthread> workers;
  for (int64_t start = 0; start < bytes; start += share) {
    workers.emplace_back([=] {
      const int64_t end = std::min(start + share, bytes);
      for (int64_t at = start; at < end; at += kPage)
        *static_cast<volatile std::byte*>(data + at) = std::byte{0};
    });
  }
}

}  // namespace

// Address space of up to one huge page more than requested is reserved for the alignment; it is never
// touched, and given back at both ends.
Arena::Arena(int64_t bytes, int threads) : bytes_(bytes) {
  const int64_t size = round_up(std::max<int64_t>(bytes, 1), kPage);
  const int64_t reserve = size >= kHugePage ? size + kHugePage : size;
  void* raw = mmap(nullptr, static_cast<size_t>(reserve), PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED)
    throw DoesNotFitError(
        formatted("the system gives no {} for the arena: {}", format_bytes(bytes), std::strerror(errno)));
  auto* start = static_cast<std::byte*>(raw);
  std::byte* aligned = start;
  if (reserve > size) {
    const auto address = reinterpret_cast<uintptr_t>(start);
    aligned = start + (round_up(static_cast<int64_t>(address), kHugePage) - static_cast<int64_t>(address));
    if (aligned > start) munmap(start, static_cast<size_t>(aligned - start));
    const int64_t tail = (start + reserve) - (aligned + size);
    if (tail > 0) munmap(aligned + size, static_cast<size_t>(tail));
  }
  mapping_ = aligned;
  mapped_ = size;
  if (mprotect(mapping_, static_cast<size_t>(mapped_), PROT_READ | PROT_WRITE) != 0) {
    const int reason = errno;
    munmap(mapping_, static_cast<size_t>(mapped_));
    throw DoesNotFitError(
        formatted("the system gives no {} for the arena: {}", format_bytes(bytes), std::strerror(reason)));
  }
  madvise(mapping_, static_cast<size_t>(mapped_), MADV_HUGEPAGE);
  data_ = aligned;
  touch(data_, mapped_, std::max(threads, 1));
}

Arena::~Arena() { munmap(mapping_, static_cast<size_t>(mapped_)); }

}  // namespace plimsoll
