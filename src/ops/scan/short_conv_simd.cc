#include "ops/scan/short_conv_kernels.h"
#include "ops/segments.h"
#include "ops/simd_rows.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

constexpr int64_t kTile = 64;  // channels that a thread takes through all tokens

// A value for each channel of a tile and each tap; zeros beyond the last channel.
struct TapTable {
  alignas(64) float of[kMostConvTaps][kTile] = {};
};

// Some channels of all rows.
struct Tile {
  int64_t first, channels, width;
  int taps;

  [[nodiscard]] int64_t row(int64_t token) const { return token * width + first; }
  template <class W>
  void get_taps(const W* weight, TapTable& to) const {
    for (int64_t c = 0; c < channels; ++c)
      for (int k = 0; k < taps; ++k) to.of[k][c] = widen_value(weight[(first + c) * taps + k]);
  }
};

// visit(tile) for all channels, shared by the threads.
template <class Visit>
void for_tiles(int64_t width, int taps, int threads, Visit visit) {
  const int64_t tiles = (width + kTile - 1) / kTile;
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t first = i * kTile;
    const int64_t left = width - first;
    visit(Tile{first, left < kTile ? left : kTile, width, taps});
  }
}

// The number of taps that reach a row `behind` the first of its sequence.
int reached(int64_t behind, int taps) { return behind + 1 < taps ? static_cast<int>(behind + 1) : taps; }

// A segment, and the rows of its ancestors that taps reach, the nearest first.
struct Path {
  int64_t segment, begin, end;
  int count = 0;
  int64_t before[kMostConvTaps] = {};

  Path(const SequenceTable& sequences, int64_t number, int taps)
      : segment(number), begin(sequences.starts[number]), end(sequences.starts[number + 1]) {
    for (int64_t up = parent_of(sequences, number); up >= 0; up = parent_of(sequences, up))
      for (int64_t t = sequences.starts[up + 1]; t-- > sequences.starts[up] && count < taps - 1;)
        before[count++] = t;
  }
  // Rows that taps reach from token t of it, and the one `back` tokens before t.
  [[nodiscard]] int rows(int64_t t, int taps) const { return reached(t - begin + count, taps); }
  [[nodiscard]] int64_t row(int64_t t, int back) const {
    return back <= t - begin ? t - back : before[back - (t - begin) - 1];
  }
};

// sum_j weight[W - 1 - j] row(j): row(j) is the row of x that lies j tokens back.
template <class Lanes, class Row>
Vec convolved(const TapTable& taps, int count, int rows, int64_t i, Lanes lanes, Row row) {
  Vec sum = zero();
  for (int j = 0; j < rows; ++j) sum = fma(load(taps.of[count - 1 - j] + i), lanes.get(row(j) + i), sum);
  return sum;
}

template <class T>
void clear_rows(T* rows, const Tile& tile, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t)
    for (int64_t c = 0; c < tile.channels; ++c) rows[tile.row(t) + c] = 0;
}

// Before the first sequence and behind the last.
template <class T>
void clear_padding(T* rows, const Tile& tile, const SequenceTable& sequences, int64_t tokens) {
  clear_rows(rows, tile, 0, sequences.starts[0]);
  clear_rows(rows, tile, sequences.starts[sequences.count], tokens);
}

template <class T, class W>
void forward(const ShortConv<T, W>& a) {
  for_tiles(a.width, a.taps, a.threads, [&](const Tile& tile) {
    TapTable taps;
    tile.get_taps(a.weight, taps);
    for (int64_t q = 0; q < a.sequences.count; ++q) {
      const Path path(a.sequences, q, a.taps);
      for (int64_t t = path.begin; t < path.end; ++t)
        for_lanes(tile.channels, [&](int64_t i, auto lanes) {
          const Vec s = convolved(taps, a.taps, path.rows(t, a.taps), i, lanes,
                                  [&](int j) { return a.x + tile.row(path.row(t, j)); });
          lanes.put(a.y + tile.row(t) + i, s * sigmoid(s));
        });
    }
    clear_padding(a.y, tile, a.sequences, a.tokens);
  });
}

// Sequences backwards: `d_sums` keeps the gradients of the last W sums, those of token t at t mod W.
template <class T, class W, class G>
struct TileGrad {
  const ShortConvGrad<T, W, G>& a;
  const Tile& tile;
  TapTable taps, d_taps, d_sums;

  TileGrad(const ShortConvGrad<T, W, G>& all, const Tile& some) : a(all), tile(some) {
    tile.get_taps(a.weight, taps);
  }

  // The gradient of the sum at token t.
  template <class Lanes>
  Vec sum_gradient(int64_t t, const Path& path, int64_t i, Lanes lanes) const {
    const Vec s = convolved(taps, a.taps, path.rows(t, a.taps), i, lanes,
                            [&](int j) { return a.x + tile.row(path.row(t, j)); });
    const Vec sig = sigmoid(s);
    return lanes.get(a.d_y + tile.row(t) + i) * sig * fma(s, set1(1.0F) - sig, set1(1.0F));
  }

  // The part of token t in the sums of segments that continue its own, which are recomputed.
  template <class Lanes>
  Vec from_behind(int64_t t, const Path& path, int64_t i, Lanes lanes) const {
    Vec d_x = zero();
    for (int64_t s = path.segment + 1, end = subtree_end(a.sequences, path.segment); s < end; ++s) {
      int64_t distance = path.end - t;
      for (int64_t up = parent_of(a.sequences, s); up != path.segment; up = parent_of(a.sequences, up))
        distance += length_of(a.sequences, up);
      if (distance >= a.taps) continue;
      const Path of(a.sequences, s, a.taps);
      for (int64_t u = of.begin; u < of.end && distance < a.taps; ++u, ++distance)
        d_x = fma(load(taps.of[a.taps - 1 - distance] + i), sum_gradient(u, of, i, lanes), d_x);
    }
    return d_x;
  }

  void token(int64_t t, const Path& path) {
    const int rows = path.rows(t, a.taps);
    const int ahead = reached(path.end - 1 - t, a.taps);
    for_lanes(tile.channels, [&](int64_t i, auto lanes) {
      const Vec d_s = sum_gradient(t, path, i, lanes);
      store(d_sums.of[t % a.taps] + i, d_s);
      for (int j = 0; j < rows; ++j) {
        float* const d_tap = d_taps.of[a.taps - 1 - j] + i;
        store(d_tap, fma(d_s, lanes.get(a.x + tile.row(path.row(t, j)) + i), load(d_tap)));
      }
      if (a.d_x == nullptr) return;
      Vec d_x = ahead == a.taps ? zero() : from_behind(t, path, i, lanes);
      for (int j = 0; j < ahead; ++j)
        d_x = fma(load(taps.of[a.taps - 1 - j] + i), load(d_sums.of[(t + j) % a.taps] + i), d_x);
      lanes.put(a.d_x + tile.row(t) + i, d_x);
    });
  }
  void put_weight_gradient() const {
    for (int64_t c = 0; c < tile.channels; ++c)
      for (int k = 0; k < a.taps; ++k) {
        G* const to = a.d_weight + (tile.first + c) * a.taps + k;
        const float before = a.accumulate ? widen_value(*to) : 0.0F;
        store(to, set1(before + d_taps.of[k][c]), first(1));
      }
  }
};

template <class T, class W, class G>
void backward(const ShortConvGrad<T, W, G>& a) {
  for_tiles(a.width, a.taps, a.threads, [&](const Tile& tile) {
    TileGrad<T, W, G> grad(a, tile);
    for (int64_t q = 0; q < a.sequences.count; ++q) {
      const Path path(a.sequences, q, a.taps);
      for (int64_t t = path.end; t-- > path.begin;) grad.token(t, path);
    }
    if (a.d_x != nullptr) clear_padding(a.d_x, tile, a.sequences, a.tokens);
    if (a.d_weight != nullptr) grad.put_weight_gradient();
  });
}

template <class T, class W>
void cached(const ShortConvCached<T, W>& a) {
  const int kept = a.taps - 1;
  for_tiles(a.width, a.taps, a.threads, [&](const Tile& tile) {
    TapTable taps;
    tile.get_taps(a.weight, taps);
    for (int64_t t = 0; t < a.live; ++t)
      for_lanes(tile.channels, [&](int64_t i, auto lanes) {
        const Vec s =
            convolved(taps, a.taps, a.fresh ? reached(t, a.taps) : a.taps, i, lanes, [&](int j) -> const T* {
              return t >= j ? a.x + tile.row(t - j) : a.rows + tile.row(kept + t - j);
            });
        lanes.put(a.y + tile.row(t) + i, s * sigmoid(s));
      });
    for (int64_t r = 0; r < kept; ++r) {
      const int64_t t = a.live - kept + r;
      for (int64_t c = 0; c < tile.channels; ++c) {
        T& to = a.rows[tile.row(r) + c];
        if (t >= 0) {
          to = a.x[tile.row(t) + c];
        } else {
          to = a.fresh ? T{} : a.rows[tile.row(r + a.live) + c];
        }
      }
    }
  });
}

}  // namespace

void short_conv(const ShortConv<float, float>& a) { forward(a); }
void short_conv(const ShortConv<uint16_t, float>& a) { forward(a); }
void short_conv(const ShortConv<uint16_t, uint16_t>& a) { forward(a); }
void short_conv_grad(const ShortConvGrad<float, float, float>& a) { backward(a); }
void short_conv_grad(const ShortConvGrad<uint16_t, float, float>& a) { backward(a); }
void short_conv_grad(const ShortConvGrad<uint16_t, uint16_t, float>& a) { backward(a); }
void short_conv_grad(const ShortConvGrad<uint16_t, uint16_t, uint16_t>& a) { backward(a); }
void short_conv_cached(const ShortConvCached<float, float>& a) { cached(a); }
void short_conv_cached(const ShortConvCached<uint16_t, float>& a) { cached(a); }
void short_conv_cached(const ShortConvCached<uint16_t, uint16_t>& a) { cached(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
