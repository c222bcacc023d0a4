#include "gpu/emulator_warp.h"

#include <cstring>

namespace plimsoll::gpu::emulated {
namespace {

struct alignas(16) Line {
  uint32_t words[4];
};

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % sizeof(Line) == 0; }

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

struct Shuffled {
  std::byte value[8];
  int source;
};

struct MmaOperands {
  uint32_t a[4], b[2];
  float c[4];
};

// A: registers {row g, row g + 8} x {columns 2t.., 2t + 8..}; B: rows 2t.. and 2t + 8.., column g; C: rows g
// and g + 8, columns 2t and 2t + 1; g = lane / 4, t = lane % 4.
void multiply(Meeting& m, float (*value)(uint16_t)) {
  float left[16][16], right[16][8], sum[16][8];
  for (int lane = 0; lane < kWarp; ++lane) {
    const auto s = read<MmaOperands>(m.in[lane]);
    const int g = lane / 4;
    const int t = lane % 4;
    for (int half = 0; half < 2; ++half) {
      for (int r = 0; r < 4; ++r)
        left[g + r % 2 * 8][t * 2 + r / 2 * 8 + half] = value(static_cast<uint16_t>(s.a[r] >> 16 * half));
      for (int r = 0; r < 2; ++r)
        right[t * 2 + r * 8 + half][g] = value(static_cast<uint16_t>(s.b[r] >> 16 * half));
    }
    for (int r = 0; r < 4; ++r) sum[g + r / 2 * 8][t * 2 + r % 2] = s.c[r];
  }
  // A row at a time, in two registers.
  using Four = float __attribute__((vector_size(16)));
  Four rows[16][2];
  std::memcpy(rows, right, sizeof rows);
  for (int i = 0; i < 16; ++i) {
    Four row[2];
    std::memcpy(row, sum[i], sizeof row);
    for (int k = 0; k < 16; ++k) {
      row[0] += left[i][k] * rows[k][0];
      row[1] += left[i][k] * rows[k][1];
    }
    std::memcpy(sum[i], row, sizeof row);
  }
  for (int lane = 0; lane < kWarp; ++lane)
    for (int r = 0; r < 4; ++r)
      std::memcpy(m.out[lane] + 4 * r, &sum[lane / 4 + r / 2 * 8][lane % 4 * 2 + r % 2], sizeof(float));
}

// Lane l names row l % 8 of matrix l / 8; register i gets matrix i's row lane / 4, columns 2t and 2t + 1.
void deal_matrices(Meeting& m, bool transposed) {
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int i = 0; i < 8; ++i) {  // register i / 2, half i % 2
      const int row = lane / 4;
      const int column = lane % 4 * 2 + i % 2;
      const int matrix = i / 2 * 8;
      const std::byte* from = transposed ? m.in[matrix + column] + 2 * row : m.in[matrix + row] + 2 * column;
      std::memcpy(m.out[lane] + 2 * i, from, 2);
    }
  }
}

}  // namespace

void sync_warp(Place place, uint32_t mask) {
  const char nothing = 0;
  block->meet(mask, &nothing, sizeof nothing, place, [](Meeting&) {});
  if (mask == kAllLanes) ++current->warp_barriers;
}

int shuffle_source(Place place, Shuffle kind, uint32_t mask, int x, int width) {
  const int lane = current->lane;
  const int begin = lane / width * width;
  int wanted = x;
  if (kind == Shuffle::exchange) wanted = (lane - begin) ^ x;
  if (kind == Shuffle::down) wanted = lane - begin + x;
  const int source = wanted >= 0 && wanted < width ? begin + wanted : lane;
  if ((mask >> source & 1U) == 0) block->fail("a shuffle reads a lane outside its mask", place);
  return source;
}

const std::byte* exchange(Place place, uint32_t mask, const void* value, size_t bytes, int source) {
  Shuffled sent{{}, source};
  std::memcpy(sent.value, value, bytes);
  return block->meet(mask, &sent, sizeof sent, place, [](Meeting& m) {
    for (int lane = 0; lane < kWarp; ++lane) {
      if ((m.mask >> lane & 1U) == 0) continue;
      const auto wanted = read<Shuffled>(m.in[lane]);
      std::memcpy(m.out[lane], m.in[wanted.source], sizeof wanted.value);
    }
  });
}

uint32_t ballot(Place place, uint32_t mask, int predicate) {
  const std::byte* got = block->meet(mask, &predicate, sizeof predicate, place, [](Meeting& m) {
    uint32_t bits = 0;
    for (int lane = 0; lane < kWarp; ++lane)
      if ((m.mask >> lane & 1U) != 0 && read<int>(m.in[lane]) != 0) bits |= 1U << lane;
    for (auto& out : m.out) std::memcpy(out, &bits, sizeof bits);
  });
  return read<uint32_t>(got);
}

void mma_16816(Place place, float (*value)(uint16_t), float (&c)[4], const uint32_t (&a)[4],
               const uint32_t (&b)[2]) {
  const MmaOperands sent{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {c[0], c[1], c[2], c[3]}};
  const std::byte* got =
      block->meet(kAllLanes, &sent, sizeof sent, place, [value](Meeting& m) { multiply(m, value); });
  std::memcpy(c, got, sizeof c);
}

void load_matrix_x4(Place place, bool transposed, uint32_t (&to)[4], const void* row) {
  if (!is_aligned(row)) block->fail("ldmatrix: a row is not aligned to 16 bytes", place);
  tell(row, sizeof(Line), false);
  const Line sent = *static_cast<const Line*>(row);
  const std::byte* got = block->meet(kAllLanes, &sent, sizeof sent, place,
                                     [transposed](Meeting& m) { deal_matrices(m, transposed); });
  std::memcpy(to, got, sizeof to);
}

void copy_async(Place place, void* to, const void* from, bool live) {
  if (!is_aligned(to) || !is_aligned(from))
    block->fail("cp.async: an address is not aligned to 16 bytes", place);
  poison(to, sizeof(Line));
  current->copies.push_back({to, from, current->group, live});
}

void commit_copies() { ++current->group; }

void wait_copies(int groups_left) {
  std::vector<Copy>& copies = current->copies;
  size_t kept = 0;
  for (const Copy& copy : copies) {
    if (copy.group >= current->group - groups_left) {
      copies[kept++] = copy;
      continue;
    }
    if (copy.live) tell(copy.from, sizeof(Line), false);
    tell(copy.to, sizeof(Line), true);
    *static_cast<Line*>(copy.to) = copy.live ? *static_cast<const Line*>(copy.from) : Line{};
  }
  copies.resize(kept);
}

}  // namespace plimsoll::gpu::emulated
