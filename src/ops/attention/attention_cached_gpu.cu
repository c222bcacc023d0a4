// attention_cached: queries of a few tokens over a cache of keys. A block has a tile of query rows that read
// the same head of keys (ops/attention/attention_cached_split.h), so that keys and values are read once for
// all heads of a group, and a part of the keys, of which it takes 128 at a time: a thread a key for the
// logits, then a thread eight columns of the values of some keys. What is computed:
// ops/attention/attention_kernels.h.

#include "gpu/math.h"
#include "ops/attention/attention_cached_split.h"
#include "ops/attention/gpu_attention.h"
#include "ops/cached_sequences.h"
#include "ops/pointwise/gpu_tanh.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr int kCachedThreads = static_cast<int>(kCachedKeys);
constexpr int kCachedWarps = kCachedThreads / gpu::kWarpSize;
constexpr int kCachedMostDims = 256;  // of a head
constexpr int kCombineThreads = 64;
constexpr float kCachedUnseen = -1e30F;  // the logit of a key that a query does not see

template <class T>
struct CachedAttention {
  const T* q;
  const T* k;  // the cache
  const T* v;
  T* o;
  const double* step;
  StepValue live, live_keys;  // tokens of the queries' axis, of another one's keys
  int rows, heads, kv_heads, head_dim, window, capacity;
  bool causal, apart, packed;
  float scale, softcap;  // no cap: 0
  GpuBias<T> bias;
  int queries, tile_rows, tiles, parts;
  float* part_outputs;  // [parts, rows, N, D]
  float* part_sums;     // [parts, rows, N, 2]: the largest logit, the softmax's denominator

  [[nodiscard]] PL_DEV int group() const { return heads / kv_heads; }
  [[nodiscard]] PL_DEV int live_rows() const { return static_cast<int>(step_value(step, live)); }
  // Tokens that were cached before these.
  [[nodiscard]] PL_DEV int behind() const {
    return causal ? static_cast<int>(step_value(step, StepValue::kv_length)) : 0;
  }
};

// The keys of a sequence that a query sees, of those that are live.
template <class T>
PL_DEV Columns seen_by(const CachedAttention<T>& a, int query) {
  if (!a.causal) return {0, static_cast<int>(step_value(a.step, a.live_keys))};
  const int position = a.behind() + query;
  return {a.window > 0 && position >= a.window ? position - a.window + 1 : 0, position + 1};
}

// A tile of query rows: rows of one token that has `group` heads of queries for a head of keys, of several
// tokens one after another.
template <class T>
struct CachedTile {
  const CachedAttention<T>& a;
  int sequence, tile, kv_head;

  // In the tensor of queries; -1: it is not there, or not live.
  [[nodiscard]] PL_DEV int token(int row) const {
    const int query = query_of(row);
    if (query >= a.queries) return -1;
    const int token = a.apart ? sequence : query;
    return token < a.live_rows() ? token : -1;
  }
  [[nodiscard]] PL_DEV int query_of(int row) const { return (tile * a.tile_rows + row) / a.group(); }
  [[nodiscard]] PL_DEV int head(int row) const {
    return kv_head * a.group() + (tile * a.tile_rows + row) % a.group();
  }
  // The columns that any of its live rows sees; nothing if none is live.
  [[nodiscard]] PL_DEV Columns seen() const {
    const int first = query_of(0);
    if (token(0) < 0) return {};
    int last = query_of(a.tile_rows - 1);
    const int live = a.apart ? 1 : a.live_rows();
    if (last >= live) last = live - 1;
    return {seen_by(a, first).begin, seen_by(a, last).end};
  }
  // The columns of that one part, which is empty if there are fewer; parts are whole steps.
  [[nodiscard]] PL_DEV Columns part(int number) const {
    const Columns all = seen();
    const int steps = (all.end - all.begin + kCachedThreads - 1) / kCachedThreads;
    const int keys = (steps + a.parts - 1) / a.parts * kCachedThreads;
    const int begin = all.begin + number * keys;
    return {begin < all.end ? begin : all.end, begin + keys < all.end ? begin + keys : all.end};
  }
};

// A block's rows: what they see, and their softmax so far.
template <int R>
struct CachedRows {
  Columns* seen;
  float* top;
  float* sum;
  float* shrink;  // what the step before's outputs are multiplied by
};

// Logits of a step: a thread a key, of all rows.
template <int R, class T>
PL_DEV void put_logits(const CachedTile<T>& tile, const CachedRows<R>& rows, const T* keys, int64_t stride,
                       int key, int end, const float* q, float* logits) {
  const CachedAttention<T>& a = tile.a;
  float products[R] = {};
  if (key < end) {
    const T* const k = keys + key * stride;
    for (int d = 0; d < a.head_dim; d += gpu::kEight) {
      float own[gpu::kEight];
      gpu::load8(own, k + d, gpu::kEight, a.packed);
      PL_UNROLL
      for (int r = 0; r < R; ++r) {
        float query[gpu::kEight];
        gpu::load8(query, q + r * kCachedMostDims + d, gpu::kEight, true);
        PL_UNROLL
        for (int i = 0; i < gpu::kEight; ++i) products[r] = gpu::fma(query[i], own[i], products[r]);
      }
    }
  }
  PL_UNROLL
  for (int r = 0; r < R; ++r) {
    float logit = kCachedUnseen;
    if (key < end && rows.seen[r].has(key)) {
      logit =
          a.softcap > 0 ? a.softcap * tanh_of(products[r] * (a.scale / a.softcap)) : products[r] * a.scale;
      if (a.bias.table != nullptr) {
        const int bucket = a.bias.bucket(key - (a.behind() + tile.query_of(r)));
        logit += gpu::to_float(a.bias.table[bucket * a.heads + tile.head(r)]);
      }
    }
    logits[threadIdx.x * R + r] = logit;
  }
}

// Logits become what values are multiplied by: a warp a row.
template <int R>
PL_DEV void put_weights(const CachedRows<R>& rows, float* logits) {
  constexpr int kOwn = kCachedThreads / gpu::kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpSize;
  for (int r = gpu::warp_of_block(); r < R; r += kCachedWarps) {
    float own[kOwn];
    float top = rows.top[r];
    const float before = top;
    PL_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      own[i] = logits[(i * gpu::kWarpSize + lane) * R + r];
      top = gpu::max(top, own[i]);
    }
    top = gpu::warp_max(top);
    float sum = 0;
    PL_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      const float weight = own[i] == kCachedUnseen ? 0.0F : gpu::exp(own[i] - top);
      logits[(i * gpu::kWarpSize + lane) * R + r] = weight;
      sum += weight;
    }
    sum = gpu::warp_sum(sum);
    __syncwarp();  // everybody has read the top before
    if (lane != 0) continue;
    const float shrink = gpu::exp(before - top);
    rows.top[r] = top;
    rows.shrink[r] = shrink;
    rows.sum[r] = gpu::fma(rows.sum[r], shrink, sum);
  }
}

// Eight columns of the outputs, over every `apart`-th key from `first` on.
template <int R>
struct CachedColumns {
  int column, first, apart;
  float o[R][gpu::kEight] = {};

  PL_DEV explicit CachedColumns(int head_dim) {
    const int packs = head_dim / gpu::kEight;
    column = static_cast<int>(threadIdx.x) % packs * gpu::kEight;
    first = static_cast<int>(threadIdx.x) / packs;
    apart = kCachedThreads / packs;
  }
  // Threads that are left over have no columns.
  [[nodiscard]] PL_DEV bool has_some() const { return first < apart; }

  template <class T>
  PL_DEV void add(const float* shrink, const float* weights, const T* values, int64_t stride, int count,
                  bool packed) {
    PL_UNROLL
    for (int r = 0; r < R; ++r) {
      PL_UNROLL
      for (int i = 0; i < gpu::kEight; ++i) o[r][i] *= shrink[r];
    }
    if (!has_some()) return;
    for (int key = first; key < count; key += apart) {
      float own[gpu::kEight];
      gpu::load8(own, values + key * stride + column, gpu::kEight, packed);
      PL_UNROLL
      for (int r = 0; r < R; ++r) {
        const float weight = weights[key * R + r];
        PL_UNROLL
        for (int i = 0; i < gpu::kEight; ++i) o[r][i] = gpu::fma(weight, own[i], o[r][i]);
      }
    }
  }

  // The sum over all threads of a column, in the first one of it: halves by halves. `space`: of half the
  // threads.
  PL_DEV void sum_up(float* space, int packs) {
    constexpr int kMost = kCachedThreads / 2;
    for (int left = apart; left > 1; left = (left + 1) / 2) {
      const int half = (left + 1) / 2;
      const int slot = (first < half ? first : first - half) * packs + column / gpu::kEight;
      if (first >= half && first < left) {
        PL_UNROLL
        for (int r = 0; r < R; ++r) {
          PL_UNROLL
          for (int i = 0; i < gpu::kEight; ++i) space[(r * gpu::kEight + i) * kMost + slot] = o[r][i];
        }
      }
      __syncthreads();
      if (first < left - half) {
        PL_UNROLL
        for (int r = 0; r < R; ++r) {
          PL_UNROLL
          for (int i = 0; i < gpu::kEight; ++i) o[r][i] += space[(r * gpu::kEight + i) * kMost + slot];
        }
      }
      __syncthreads();
    }
  }
};

// A thread's columns of all rows: the outputs, or what this part has of them.
template <int R, class T>
PL_DEV void put_outputs(const CachedTile<T>& tile, const CachedRows<R>& rows, CachedColumns<R>& columns) {
  const CachedAttention<T>& a = tile.a;
  PL_UNROLL
  for (int r = 0; r < R; ++r) {
    const int query = tile.query_of(r);
    if (query >= a.queries) continue;
    const int token = a.apart ? tile.sequence : query;
    const int64_t row = int64_t{token} * a.heads + tile.head(r);
    if (a.parts == 1) {
      const float factor = rows.sum[r] > 0 ? 1.0F / rows.sum[r] : 0.0F;  // rows that are not live: zero
      PL_UNROLL
      for (float& value : columns.o[r]) value *= factor;
      gpu::store8(a.o + row * a.head_dim + columns.column, columns.o[r], gpu::kEight, a.packed);
    } else {
      const int64_t own = int64_t{blockIdx.z} * a.rows * a.heads + row;
      gpu::store8(a.part_outputs + own * a.head_dim + columns.column, columns.o[r], gpu::kEight, true);
      if (columns.column != 0) continue;
      a.part_sums[own * 2] = rows.top[r];
      a.part_sums[own * 2 + 1] = rows.sum[r];
    }
  }
}

template <class T, int R>
__global__ void __launch_bounds__(kCachedThreads, R == 8 ? 3 : 4)
    attention_cached_tiles(CachedAttention<T> a) {
  PL_SHARED(float, q, R* kCachedMostDims);
  PL_SHARED(float, logits, kCachedThreads* R);
  PL_SHARED(float, space, kCachedThreads / 2 * R * gpu::kEight);
  PL_SHARED(Columns, seen, R);
  PL_SHARED(float, top, R);
  PL_SHARED(float, sum, R);
  PL_SHARED(float, shrink, R);
  const CachedRows<R> rows{seen, top, sum, shrink};
  const int thread = static_cast<int>(threadIdx.x);
  const CachedTile<T> tile{a, static_cast<int>(blockIdx.x) / a.tiles, static_cast<int>(blockIdx.x) % a.tiles,
                           static_cast<int>(blockIdx.y)};
  const Columns range = tile.part(static_cast<int>(blockIdx.z));
  if (a.parts > 1 && range.begin == range.end) return;
  for (int i = thread; i < R * a.head_dim; i += kCachedThreads) {
    const int r = i / a.head_dim, d = i % a.head_dim, token = tile.token(r);
    q[r * kCachedMostDims + d] =
        token < 0 ? 0.0F : gpu::to_float(a.q[(int64_t{token} * a.heads + tile.head(r)) * a.head_dim + d]);
  }
  if (thread < R) {
    seen[thread] = tile.token(thread) < 0 ? Columns{} : seen_by(a, tile.query_of(thread));
    top[thread] = kCachedUnseen;
    sum[thread] = 0;
  }
  const int64_t stride = int64_t{a.kv_heads} * a.head_dim;
  const int64_t own_keys =
      (a.apart ? int64_t{tile.sequence} * a.capacity * stride : 0) + int64_t{tile.kv_head} * a.head_dim;
  CachedColumns<R> columns(a.head_dim);
  __syncthreads();
  for (int k0 = range.begin; k0 < range.end; k0 += kCachedThreads) {
    put_logits<R>(tile, rows, a.k + own_keys, stride, k0 + thread, range.end, q, logits);
    __syncthreads();
    put_weights<R>(rows, logits);
    __syncthreads();
    const int count = range.end - k0 < kCachedThreads ? range.end - k0 : kCachedThreads;
    columns.add(shrink, logits, a.v + own_keys + k0 * stride, stride, count, a.packed);
    __syncthreads();  // everybody has read the weights
  }
  columns.sum_up(space, a.head_dim / gpu::kEight);
  if (columns.first == 0) put_outputs(tile, rows, columns);
}

// A row's parts, put together in order: a block a row of a head.
template <class T>
__global__ void __launch_bounds__(kCombineThreads) attention_cached_combine(CachedAttention<T> a) {
  const int64_t row = blockIdx.x;
  const int token = static_cast<int>(row / a.heads), head = static_cast<int>(row % a.heads);
  const int in_group = (a.apart ? 0 : token) * a.group() + head % a.group();
  const CachedTile<T> tile{a, a.apart ? token : 0, in_group / a.tile_rows, head / a.group()};
  const bool live = token < a.live_rows();
  const int64_t of_part = int64_t{a.rows} * a.heads;
  int parts = 0;
  float top = kCachedUnseen;
  if (live) {
    for (; parts < a.parts; ++parts) {
      const Columns range = tile.part(parts);
      if (range.begin == range.end) break;
      top = gpu::max(top, a.part_sums[(parts * of_part + row) * 2]);
    }
  }
  for (int d = static_cast<int>(threadIdx.x); d < a.head_dim; d += kCombineThreads) {
    float sum = 0, o = 0;
    for (int p = 0; p < parts; ++p) {
      const int64_t own = p * of_part + row;
      const float weight = gpu::exp(a.part_sums[own * 2] - top);
      sum = gpu::fma(a.part_sums[own * 2 + 1], weight, sum);
      o = gpu::fma(a.part_outputs[own * a.head_dim + d], weight, o);
    }
    a.o[row * a.head_dim + d] = gpu::rounded<T>(sum > 0 ? o / sum : 0.0F);
  }
}

// Keys and values of the live tokens go behind those that are cached.
template <class T>
struct CachedRowsToAppend {
  const T* k;
  const T* v;
  T* k_cache;
  T* v_cache;
  int64_t width, capacity;
  bool apart;
  const double* step;
  StepValue live;
};
template <class T>
__global__ void __launch_bounds__(kCachedThreads) append_to_cache(CachedRowsToAppend<T> a) {
  const int64_t row = blockIdx.x;
  const auto live = static_cast<int64_t>(step_value(a.step, a.live));
  if (row >= live) return;
  const auto behind = static_cast<int64_t>(step_value(a.step, StepValue::kv_length));
  gpu::require(behind + (a.apart ? 1 : live) <= a.capacity, "more tokens than the cache holds");
  const int64_t to = a.apart ? row * a.capacity + behind : behind + row;
  for (int64_t i = threadIdx.x; i < a.width; i += kCachedThreads) {
    a.k_cache[to * a.width + i] = a.k[row * a.width + i];
    a.v_cache[to * a.width + i] = a.v[row * a.width + i];
  }
}

bool begins_a_pack(const void* values) { return reinterpret_cast<uintptr_t>(values) % 16 == 0; }

template <class T>
CachedAttention<T> operands_of(const GpuBinding& b) {
  using at = operand::attention_cached;
  const Op& op = b.op();
  const AttentionShape shape = attention_shape(b.graph(), op);
  if (shape.head_dim > kCachedMostDims || shape.head_dim % gpu::kEight != 0)
    refuse_on_gpu(b, "heads of " + std::to_string(shape.head_dim) + " values, which are eights, of up to " +
                         std::to_string(kCachedMostDims));
  const bool ready = op.attrs.contains("keys_of");
  const CachedSplit split = cached_split(b.graph(), op);
  const int64_t rows = b.input_tensor(at::q).shape[0];
  const StepValue live = live_tokens_of(op.axis);
  auto* const parts = reinterpret_cast<float*>(b.scratch());
  CachedAttention<T> a{
      .q = b.input<T>(at::q),
      .k = ready ? b.input<T>(at::k) : b.output<T>(at::k_cache),
      .v = ready ? b.input<T>(at::v) : b.output<T>(at::v_cache),
      .o = b.output<T>(at::o),
      .step = b.input<double>(at::step),
      .live = live,
      .live_keys = ready ? live_tokens_of(static_cast<AxisId>(op.attr_int("keys_of"))) : live,
      .rows = static_cast<int>(rows),
      .heads = static_cast<int>(shape.heads),
      .kv_heads = static_cast<int>(shape.kv_heads),
      .head_dim = static_cast<int>(shape.head_dim),
      .window = static_cast<int>(op.attr_int("window")),
      .capacity = static_cast<int>(ready ? 0 : op.attr_int("capacity")),
      .causal = shape.causal,
      .apart = continues_apart(op),
      .packed = false,
      .scale = attention_scale(op),
      .softcap = attention_softcap(op),
      .bias = gpu_bias_of<T>(b, shape, at::bias_table),
      .queries = static_cast<int>(split.queries),
      .tile_rows = static_cast<int>(split.tile_rows),
      .tiles = static_cast<int>(split.tiles),
      .parts = static_cast<int>(split.parts),
      .part_outputs = parts,
      .part_sums = split.parts == 1 ? nullptr : parts + split.parts * rows * shape.heads * shape.head_dim};
  a.packed = begins_a_pack(a.k) && begins_a_pack(a.v) && begins_a_pack(a.o);
  return a;
}

template <class T>
void launch_tiles(gpu::Stream& stream, const CachedAttention<T>& a, unsigned sequences) {
  const gpu::Dim3 grid{sequences * static_cast<unsigned>(a.tiles), static_cast<unsigned>(a.kv_heads),
                       static_cast<unsigned>(a.parts)};
  auto* const kernel = a.tile_rows == 1   ? attention_cached_tiles<T, 1>
                       : a.tile_rows == 4 ? attention_cached_tiles<T, 4>
                                          : attention_cached_tiles<T, 8>;
  gpu::launch(stream, grid, {kCachedThreads}, kernel, a);
  if (a.parts > 1)
    gpu::launch(stream, {static_cast<unsigned>(a.rows) * static_cast<unsigned>(a.heads)}, {kCombineThreads},
                attention_cached_combine<T>, a);
}

}  // namespace

BoundCall bind_gpu_attention_cached(const GpuBinding& b) {
  using at = operand::attention_cached;
  return with_gpu_type(b, b.input_tensor(at::q).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const auto a = operands_of<T>(b);
    const auto sequences = static_cast<unsigned>(cached_split(b.graph(), b.op()).sequences);
    if (b.op().attrs.contains("keys_of"))
      return [a, sequences, &stream = b.stream()] { launch_tiles(stream, a, sequences); };
    const CachedRowsToAppend<T> added{.k = b.input<T>(at::k),
                                      .v = b.input<T>(at::v),
                                      .k_cache = b.output<T>(at::k_cache),
                                      .v_cache = b.output<T>(at::v_cache),
                                      .width = b.input_tensor(at::k).shape[1],
                                      .capacity = a.capacity,
                                      .apart = a.apart,
                                      .step = a.step,
                                      .live = a.live};
    return [a, added, sequences, &stream = b.stream()] {
      gpu::launch(stream, {static_cast<unsigned>(a.rows)}, {kCachedThreads}, append_to_cache<T>, added);
      launch_tiles(stream, a, sequences);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
