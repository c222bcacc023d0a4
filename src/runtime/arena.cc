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

// Writes one byte in each page from `begin` on; shares of threads end on huge pages, so that no two fault one in.
void touch(std::byte* data, int64_t begin, int64_t bytes, int threads) {
  const int64_t first = begin / kHugePage * kHugePage;
  const int64_t share = round_up(ceil_div(bytes - first, threads), kHugePage);
  std::vector<std::jthread> workers;
  for (int64_t start = first; start < bytes; start += share) {
    workers.emplace_back([=] {
      const int64_t end = std::min(start + share, bytes);
      for (int64_t at = std::max(start, begin); at < end; at += kPage)
        *static_cast<volatile std::byte*>(data + at) = std::byte{0};
    });
  }
}

// Address space for `size` bytes, which begins with a huge page where it has one. Up to a huge page more is reserved for
// that, never touched, and given back at both ends.
std::byte* reserve(int64_t size) {
  const int64_t all = size >= kHugePage ? size + kHugePage : size;
  void* const raw =
      mmap(nullptr, static_cast<size_t>(all), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* const start = static_cast<std::byte*>(raw);
  if (all == size) return start;
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(start));
  std::byte* const aligned = start + (round_up(address, kHugePage) - address);
  if (aligned > start) munmap(start, static_cast<size_t>(aligned - start));
  const int64_t tail = (start + all) - (aligned + size);
  if (tail > 0) munmap(aligned + size, static_cast<size_t>(tail));
  return aligned;
}

}  // namespace

Arena::Arena(int64_t bytes, int threads, NodePages* front)
    : bytes_(bytes), mapped_(round_up(std::max<int64_t>(bytes, 1), kPage)) {
  const auto refuse = [&](int reason) {
    throw DoesNotFitError(
        formatted("the system gives no {} for the arena: {}", format_bytes(bytes), std::strerror(reason)));
  };
  data_ = reserve(mapped_);
  if (data_ == nullptr) refuse(errno);
  const int64_t shared = front == nullptr ? 0 : front->bytes();
  try {
    // First: what others have too is no data of this process, at no time.
    if (front != nullptr) front->map(data_);
    if (mprotect(data_ + shared, static_cast<size_t>(mapped_ - shared), PROT_READ | PROT_WRITE) != 0)
      refuse(errno);
  } catch (...) {
    munmap(data_, static_cast<size_t>(mapped_));
    throw;
  }
  madvise(data_ + shared, static_cast<size_t>(mapped_ - shared), MADV_HUGEPAGE);
  touch(data_, shared, mapped_, std::max(threads, 1));
}

Arena::~Arena() { munmap(data_, static_cast<size_t>(mapped_)); }

}  // namespace plimsoll
