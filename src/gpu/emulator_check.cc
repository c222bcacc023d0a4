#include "gpu/emulator_check.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "base/format.h"
#include "gpu/emulator.h"

namespace plimsoll::gpu::emulated {
namespace {

// A thread at a moment: what has passed before decides which accesses are ordered.
struct Stamp {
  uint32_t grid = 0;  // counts from 1; 0: none
  uint32_t block = 0;
  int32_t thread = 0;
  uint32_t barriers = 0, warp_barriers = 0;
  [[nodiscard]] int32_t warp() const { return thread / kWarp; }
};
// The last accesses to a byte: a write, a read, and a read by another warp than that.
struct Cell {
  Stamp write, read, read_elsewhere;
  bool written = false;
  bool by_several = false;  // `read` stands for several lanes of its warp
};
struct Watched {
  Region region;
  uintptr_t begin = 0, end = 0;
  std::vector<Cell> cells;
};

struct Access {
  uintptr_t at = 0;
  size_t bytes = 0;
  bool write = false;
  bool vector = false;  // must be aligned to its size
  uintptr_t code = 0;
};

struct Checker {
  std::vector<Watched> watched;
  std::vector<Cell> shared;
  std::set<std::pair<std::string, uintptr_t>> seen;
  std::vector<std::string> lines;
  uint32_t grid = 0;
};
Checker& checker() {
  static Checker one;
  return one;
}

// An address that addr2line -ie understands.
std::string place_of_code(uintptr_t code) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(code), &info) == 0) return "?";
  char text[32];
  std::snprintf(text, sizeof text, "0x%zx", code - reinterpret_cast<uintptr_t>(info.dli_fbase) - 1);
  return formatted("{} {}", info.dli_fname, text);
}

void report(const std::string& what, uintptr_t code, int32_t other = -1) {
  Checker& c = checker();
  if (!c.seen.emplace(what, code).second) return;
  c.lines.push_back(formatted("{}, block {},{},{} thread {}{} (addr2line -Cie {})", what, block->index.x,
                              block->index.y, block->index.z, current->number,
                              other >= 0 ? " and thread " + std::to_string(other) : "", place_of_code(code)));
}

// Returns true if `before` is ordered before `now` for all who look.
bool is_ordered(const Stamp& before, const Stamp& now, bool shared, bool several = false) {
  if (before.grid == 0) return true;
  if (!shared) {
    if (before.grid != now.grid) return true;
    if (before.block != now.block) return false;
  }
  if (before.barriers != now.barriers) return true;
  if (before.warp() != now.warp()) return false;
  return before.warp_barriers != now.warp_barriers || (before.thread == now.thread && !several);
}

void touch_for_write(Cell& cell, const Stamp& now, bool shared, uintptr_t code, const std::string& space) {
  if (!is_ordered(cell.read, now, shared, cell.by_several) || !is_ordered(cell.read_elsewhere, now, shared))
    report("race, a write after a read, in " + space, code, cell.read.thread);
  cell.write = now;
  cell.written = true;
}

void touch_for_read(Cell& cell, const Stamp& now, bool shared, uintptr_t code, const std::string& space) {
  if (!cell.written) report("read of what nothing wrote in " + space, code);
  const bool fresh = is_ordered(cell.read, now, shared, cell.by_several);
  cell.by_several =
      !fresh && cell.read.warp() == now.warp() && (cell.by_several || cell.read.thread != now.thread);
  if (!fresh && cell.read.warp() != now.warp()) cell.read_elsewhere = cell.read;
  cell.read = now;
}

void touch(Cell& cell, const Access& access, const Stamp& now, bool shared, const std::string& space) {
  if (!is_ordered(cell.write, now, shared))
    report("race, after a write, in " + space, access.code, cell.write.thread);
  if (access.write) {
    touch_for_write(cell, now, shared, access.code, space);
  } else {
    touch_for_read(cell, now, shared, access.code, space);
  }
}

Stamp stamp_now() {
  const Extent& at = block->index;
  const Extent& grid = block->grid;
  return {checker().grid, at.x + grid.x * (at.y + grid.y * at.z), current->number, current->barriers,
          current->warp_barriers};
}

void check_alignment(const Access& access, const std::string& space) {
  if (access.vector && access.at % access.bytes != 0)
    report(formatted("misaligned access of {} bytes to {}", access.bytes, space), access.code);
}

void access_shared(const Access& access, size_t offset) {
  const auto holds = [&](const SharedPart& p) {
    return offset >= p.offset && offset + access.bytes <= p.offset + p.bytes;
  };
  if (std::none_of(block->parts().begin(), block->parts().end(), holds))
    return report("access outside the arrays of shared memory", access.code);
  static const std::string kSpace = "shared memory";
  check_alignment(access, kSpace);
  for (size_t i = 0; i < access.bytes; ++i)
    touch(checker().shared[offset + i], access, stamp_now(), true, kSpace);
}

void access_device(const Access& access) {
  bool inside = false;  // of memory that some op may not touch
  auto& watched = checker().watched;
  for (auto w = watched.rbegin(); w != watched.rend(); ++w) {
    if (access.at < w->begin || access.at >= w->end) continue;
    const Region& region = w->region;
    if (!region.allowed) {
      inside = true;
      continue;
    }
    if (access.at + access.bytes > w->end)
      return report("access beyond the end of " + region.name, access.code);
    if (access.write && !region.writable) report("write to input " + region.name, access.code);
    check_alignment(access, region.name);
    for (size_t i = 0; i < access.bytes; ++i)
      touch(w->cells[access.at - w->begin + i], access, stamp_now(), false, region.name);
    return;
  }
  if (inside) report("access outside the op's operands", access.code);
}

void watch_access(const Access& access) {
  if (current == nullptr) return;
  const auto shared = reinterpret_cast<uintptr_t>(block->shared());
  if (access.at >= shared && access.at < shared + block->shared_size())
    return access_shared(access, access.at - shared);
  access_device(access);
}

void grid_begins() {
  Checker& c = checker();
  ++c.grid;
  c.shared.assign(block->shared_size(), {});
}
void block_ends(const Block&) {
  Checker& c = checker();
  std::fill(c.shared.begin(), c.shared.end(), Cell{});
}
// Accesses of the emulator itself on a kernel's behalf: instructions on a GPU that no compiler sees.
void instruction(const void* at, size_t bytes, bool write) {
  watch_access({reinterpret_cast<uintptr_t>(at), bytes, write, true,
                reinterpret_cast<uintptr_t>(__builtin_return_address(0))});
}

}  // namespace

void watch(const std::vector<Region>& regions) {
  Checker& c = checker();
  c = {};
  listener() = {grid_begins, block_ends, instruction};
  for (const Region& region : regions) {
    const auto begin = reinterpret_cast<uintptr_t>(region.begin);
    Watched w{region, begin, begin + region.bytes, {}};
    if (region.allowed) w.cells.resize(region.bytes);
    for (Cell& cell : w.cells) cell.written = region.initial;
    c.watched.push_back(std::move(w));
  }
}

std::vector<std::string> findings() { return checker().lines; }

}  // namespace plimsoll::gpu::emulated

// The functions that the compiler calls.
#define PL_ACCESS(size, write, vector)                                                           \
  ::plimsoll::gpu::emulated::watch_access({reinterpret_cast<uintptr_t>(at), size, write, vector, \
                                           reinterpret_cast<uintptr_t>(__builtin_return_address(0))})
#define PL_HOOKS(size)                                                          \
  void __tsan_read##size(void* at) { PL_ACCESS(size, false, true); }            \
  void __tsan_write##size(void* at) { PL_ACCESS(size, true, true); }            \
  void __tsan_unaligned_read##size(void* at) { PL_ACCESS(size, false, false); } \
  void __tsan_unaligned_write##size(void* at) { PL_ACCESS(size, true, false); } \
  void __tsan_volatile_read##size(void* at) { PL_ACCESS(size, false, true); }   \
  void __tsan_volatile_write##size(void* at) { PL_ACCESS(size, true, true); }
// Host code between the kernels counts references; kernels have no atomics.
#define PL_ATOMICS(bits, T)                                                       \
  T __tsan_atomic##bits##_load(const volatile void* at, int) {                    \
    return __atomic_load_n(static_cast<const volatile T*>(at), __ATOMIC_SEQ_CST); \
  }                                                                               \
  void __tsan_atomic##bits##_store(volatile void* at, T x, int) {                 \
    __atomic_store_n(static_cast<volatile T*>(at), x, __ATOMIC_SEQ_CST);          \
  }                                                                               \
  T __tsan_atomic##bits##_fetch_add(volatile void* at, T x, int) {                \
    return __atomic_fetch_add(static_cast<volatile T*>(at), x, __ATOMIC_SEQ_CST); \
  }                                                                               \
  T __tsan_atomic##bits##_fetch_sub(volatile void* at, T x, int) {                \
    return __atomic_fetch_sub(static_cast<volatile T*>(at), x, __ATOMIC_SEQ_CST); \
  }
extern "C" {
PL_ATOMICS(8, unsigned char)
PL_ATOMICS(32, unsigned)
PL_ATOMICS(64, unsigned long)
PL_HOOKS(1) PL_HOOKS(2) PL_HOOKS(4) PL_HOOKS(8) PL_HOOKS(16) void __tsan_read_range(void* at, size_t bytes) {
  PL_ACCESS(bytes, false, false);
}
void __tsan_write_range(void* at, size_t bytes) { PL_ACCESS(bytes, true, false); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
