// linear_cross_entropy, linear_log_prob and their gradients: the output head. Labels that ask for a token are
// listed on the device; all chunks that there could be are launched, and those behind the list find nothing
// to do.
#include <functional>
#include <optional>

#include "gpu/math.h"
#include "graph/op_kind.h"
#include "ops/gpu_rows.h"
#include "ops/linear/gpu_column_sums.h"
#include "ops/linear/gpu_matmul.h"
#include "ops/loss/linear_cross_entropy_layout.h"
#include "ops/loss/linear_log_prob.h"
#include "ops/pointwise/gpu_tanh.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr unsigned kCrossEntropyThreads = 256;

// Labels, the rows that they ask, and what they count; for linear_log_prob the places of their sums: of a
// sequence, of response or prompt.
struct HeadLabels {
  const int32_t* labels = nullptr;
  const int32_t* starts = nullptr;  // null: of linear_cross_entropy
  int64_t sequences = 0;
  // The rows of labels if sequences share prefixes; null: a label asks its own row, counts once and is
  // between its sequence's starts.
  const int32_t* rows = nullptr;
  const float* weights = nullptr;
  const int32_t* of_label = nullptr;

  // The token that a label asks for; negative: none.
  [[nodiscard]] PL_BOTH int32_t token(int64_t at) const {
    const int32_t label = labels[at];
    return starts != nullptr && label <= kPromptLabel ? kPromptLabel - label : label;
  }
  [[nodiscard]] PL_DEV int64_t row(int64_t at) const { return rows == nullptr ? at : rows[at]; }
  [[nodiscard]] PL_DEV double weight(int64_t at) const {
    return weights == nullptr ? 1.0 : static_cast<double>(weights[at]);
  }
  [[nodiscard]] PL_DEV int64_t place(int64_t at) const {
    int64_t sequence = of_label == nullptr ? 0 : of_label[at];
    while (of_label == nullptr && sequence < sequences && at >= starts[sequence + 1]) ++sequence;
    gpu::require(sequence >= 0 && sequence < sequences, "linear_log_prob: a label beyond the last sequence");
    const LogProbOf column = labels[at] >= 0 ? LogProbOf::answer : LogProbOf::prompt;
    return sequence * kNumLogProbs + static_cast<int64_t>(column);
  }
};

// Writes the numbers of the labels that ask for a token, in order, and how many there are. One block; a
// thread takes neighbours.
__global__ void __launch_bounds__(kCrossEntropyThreads)
    list_labelled(HeadLabels labels, int64_t tokens, int64_t vocab, int32_t* listed, int32_t* count) {
  PL_SHARED(int32_t, counts, kCrossEntropyThreads);
  const int64_t own = (tokens + kCrossEntropyThreads - 1) / kCrossEntropyThreads;
  const int64_t begin = threadIdx.x * own, end = begin + own < tokens ? begin + own : tokens;
  int32_t found = 0;
  for (int64_t t = begin; t < end; ++t) {
    gpu::require(labels.token(t) < vocab, "the output head: a label is outside the vocabulary");
    if (labels.token(t) >= 0) ++found;
  }
  counts[threadIdx.x] = found;
  __syncthreads();
  int32_t at = 0;
  for (unsigned i = 0; i < threadIdx.x; ++i) at += counts[i];
  for (int64_t t = begin; t < end; ++t)
    if (labels.token(t) >= 0) listed[at++] = static_cast<int32_t>(t);
  if (threadIdx.x == kCrossEntropyThreads - 1) *count = at;
}

// The labels of a chunk: from `begin` of the list on.
struct ChunkRows {
  const int32_t* labels = nullptr;
  const int32_t* count = nullptr;
  int64_t begin = 0;
  const int32_t* count_here = nullptr;  // on the host, where it knows the labels

  [[nodiscard]] PL_BOTH LiveRows live() const { return {.listed = count, .begin = begin}; }
  [[nodiscard]] LiveRows live_here() const { return {.listed = count_here, .begin = begin}; }
  // The label of the block's row of the chunk; negative if the chunk has none there.
  [[nodiscard]] PL_DEV int64_t own_label() const {
    const int64_t at = begin + blockIdx.x;
    return at < *count ? labels[at] : -1;
  }
};

// A block for each row of the chunk, which is the row of all that its label asks.
template <class T>
__global__ void __launch_bounds__(kCrossEntropyThreads)
    gather_chunk(ChunkRows chunk, HeadLabels labels, const T* all, T* of_chunk, int64_t width) {
  const int64_t label = chunk.own_label();
  if (label < 0) return;
  const T* const from = all + labels.row(label) * width;
  for (int64_t i = threadIdx.x; i < width; i += kCrossEntropyThreads)
    of_chunk[blockIdx.x * width + i] = from[i];
}
template <class T>
__global__ void __launch_bounds__(kCrossEntropyThreads)
    scatter_chunk(ChunkRows chunk, const T* of_chunk, T* all, int64_t width) {
  const int64_t row = chunk.own_label();
  for (int64_t i = threadIdx.x; row >= 0 && i < width; i += kCrossEntropyThreads)
    all[row * width + i] = of_chunk[blockIdx.x * width + i];
}
// The same where several labels may ask the same row: what chunks before gave it is there already.
template <class T>
__global__ void __launch_bounds__(kCrossEntropyThreads)
    add_chunk(ChunkRows chunk, HeadLabels labels, int64_t planned, const T* of_chunk, T* all, int64_t width) {
  using Rows = NamedRows<kCrossEntropyThreads>;
  if (chunk.own_label() < 0) return;
  const auto own = static_cast<int>(blockIdx.x);
  const auto row = [&](int at) { return labels.rows[chunk.labels[chunk.begin + at]]; };
  if (Rows::is_repeated(own, row)) return;
  Rows::add(own, static_cast<int>(chunk.live().of(planned)), row, of_chunk, width,
            all + int64_t{row(own)} * width);
}

// The maximum of some logits, and the sum of exp(logit - maximum).
struct MaxSum {
  float max, sum;
};
PL_DEV MaxSum joined(MaxSum a, MaxSum b) {
  const float max = gpu::max(a.max, b.max);
  return {max, gpu::fma(a.sum, gpu::exp(a.max - max), b.sum * gpu::exp(b.max - max))};
}

// visit(values, i, count) for the thread's groups of eight of a row of n; what it leaves in `values` is
// stored.
template <bool kStores, class T, class Visit>
PL_DEV void for_eights(T* row, int64_t n, Visit visit) {
  const bool packed = n % gpu::kEight == 0;  // rows begin at multiples of 16 bytes then
  for (int64_t i = int64_t{threadIdx.x} * gpu::kEight; i < n; i += kCrossEntropyThreads * gpu::kEight) {
    const int count = n - i < gpu::kEight ? static_cast<int>(n - i) : gpu::kEight;
    float values[gpu::kEight];
    gpu::load8(values, row + i, count, packed);
    visit(values, i, count);
    if (kStores) gpu::store8(row + i, values, count, packed);
  }
}

// The logit of a product, of type T as the CPU's; and its slope.
template <class T>
PL_DEV float logit_of(float z, const LogitMap& map) {
  if (map.factor == 1.0F && map.cap == 0.0F) return z;
  const float y = map.cap > 0 ? tanh_of(z * (map.factor / map.cap)) * map.cap : z * map.factor;
  return gpu::to_float(gpu::rounded<T>(y));
}
PL_DEV float slope_of(float y, const LogitMap& map) {
  return map.cap > 0 ? gpu::fma(-(y * y), map.factor / (map.cap * map.cap), map.factor) : map.factor;
}

template <class T>
PL_DEV MaxSum row_statistics(T* row, int64_t vocab, const LogitMap& map, MaxSum* parts) {
  constexpr int kWarps = kCrossEntropyThreads / gpu::kWarpSize;
  MaxSum own{-3.0e38F, 0.0F};
  for_eights<false>(row, vocab, [&](float(&x)[gpu::kEight], int64_t, int count) {
    float top = own.max;
    PL_UNROLL
    for (int k = 0; k < gpu::kEight; ++k) {
      x[k] = logit_of<T>(x[k], map);
      if (k < count) top = gpu::max(top, x[k]);
    }
    if (top > own.max) own = {top, own.sum * gpu::exp(own.max - top)};
    PL_UNROLL
    for (int k = 0; k < gpu::kEight; ++k)
      if (k < count) own.sum += gpu::exp(x[k] - own.max);
  });
  PL_UNROLL
  for (int d = gpu::kWarpSize / 2; d > 0; d /= 2)
    own = joined(own, {__shfl_xor_sync(gpu::kAll, own.max, d), __shfl_xor_sync(gpu::kAll, own.sum, d)});
  if (threadIdx.x % gpu::kWarpSize == 0) parts[threadIdx.x / gpu::kWarpSize] = own;
  __syncthreads();
  MaxSum all = parts[0];
  for (int w = 1; w < kWarps; ++w) all = joined(all, parts[w]);
  return all;
}

// A block for each row of the chunk: its loss, and with `gradient` its logits become
// (softmax - onehot(label)) * loss_scale * the label's weight; with `d_sums` times less its own. What stands there
// are products, of which `map` makes logits: the gradient is theirs.
template <class T>
__global__ void __launch_bounds__(kCrossEntropyThreads)
    cross_entropy_rows(ChunkRows chunk, HeadLabels labels, T* logits, int64_t vocab, LogitMap map,
                       bool gradient, const double* step, const float* d_sums, double* losses) {
  PL_SHARED(MaxSum, parts, kCrossEntropyThreads / gpu::kWarpSize);
  const int64_t own = chunk.own_label();
  if (own < 0) return;
  T* const row = logits + blockIdx.x * vocab;
  const int64_t label = labels.token(own);
  // Before anybody stores: all pass a barrier first.
  const float at_label = logit_of<T>(gpu::to_float(row[label]), map);
  const MaxSum all = row_statistics(row, vocab, map, parts);
  if (threadIdx.x == 0)
    losses[blockIdx.x] =
        static_cast<double>(gpu::log(all.sum)) + static_cast<double>(all.max) - static_cast<double>(at_label);
  if (!gradient) return;
  float scale = 0;
  if (d_sums != nullptr)
    scale = -d_sums[labels.place(own)];
  else
    scale =
        static_cast<float>(step_value(step, StepValue::loss_scale)) * static_cast<float>(labels.weight(own));
  const float factor = scale / all.sum;
  for_eights<true>(row, vocab, [&](float(&x)[gpu::kEight], int64_t i, int) {
    PL_UNROLL
    for (int k = 0; k < gpu::kEight; ++k) {
      const float y = logit_of<T>(x[k], map);
      x[k] = gpu::fma(gpu::exp(y - all.max), factor, i + k == label ? -scale : 0.0F) * slope_of(y, map);
    }
  });
}

// Adds the chunk's losses to loss[0], and the number of its targets to loss[1].
__global__ void __launch_bounds__(kCrossEntropyThreads)
    add_losses(ChunkRows chunk, HeadLabels labels, int64_t planned, const double* losses, const double* step,
               double* loss) {
  PL_SHARED(double, parts, 2 * kCrossEntropyThreads / gpu::kWarpSize);
  const int64_t live = chunk.live().of(planned);
  double sum = 0, targets = 0;
  for (int64_t i = threadIdx.x; i < live; i += kCrossEntropyThreads) {
    const double weight = labels.weight(chunk.labels[chunk.begin + i]);
    sum += weight * losses[i];
    targets += weight;
  }
  sum = gpu::block_sum<kCrossEntropyThreads>(sum, parts);
  targets = gpu::block_sum<kCrossEntropyThreads>(targets, parts + kCrossEntropyThreads / gpu::kWarpSize);
  if (threadIdx.x != 0) return;
  const bool overwrites = chunk.begin == 0 && step_value(step, StepValue::first_micro_step) == 1.0;
  loss[0] = (overwrites ? 0.0 : loss[0]) + sum;
  loss[1] = (overwrites ? 0.0 : loss[1]) + targets;
}

// The sums of linear_log_prob: sums [B, 2] and counts of tokens, a thread for each. `exact`: the sums so far
// in f64.
struct LogProbSums {
  float* sums = nullptr;
  float* tokens = nullptr;
  double* exact = nullptr;
};
__global__ void __launch_bounds__(kCrossEntropyThreads)
    add_log_probs(ChunkRows chunk, int64_t planned, HeadLabels labels, const double* losses, LogProbSums to) {
  const int64_t place = int64_t{blockIdx.x} * kCrossEntropyThreads + threadIdx.x;
  if (place >= labels.sequences * kNumLogProbs) return;
  double sum = chunk.begin == 0 ? 0.0 : to.exact[place];
  float tokens = chunk.begin == 0 ? 0.0F : to.tokens[place];
  const int64_t live = chunk.live().of(planned);
  for (int64_t i = 0; i < live; ++i) {
    if (labels.place(chunk.labels[chunk.begin + i]) != place) continue;
    sum -= losses[i];
    tokens += 1;
  }
  to.exact[place] = sum;
  to.sums[place] = static_cast<float>(sum);
  to.tokens[place] = tokens;
}

// Rows that are gathered to a chunk, and rows that a chunk is scattered to.
template <class T>
struct Gathered {
  const T* all = nullptr;  // null: there are none
  T* chunk = nullptr;
  int64_t width = 0;
};
template <class T>
struct Scattered {
  T* all = nullptr;  // null: they are not wanted
  T* chunk = nullptr;
  int64_t width = 0;
};

// As the host has them.
int32_t count_labelled(const HeadLabels& labels, int64_t tokens) {
  int32_t count = 0;
  for (int64_t t = 0; t < tokens; ++t)
    if (labels.token(t) >= 0) ++count;
  return count;
}

// One call of the op for element type T.
template <class T>
class HeadLossOnGpu {
 public:
  explicit HeadLossOnGpu(const GpuBinding& b);
  void operator()() const;

 private:
  void place_parts(const GpuBinding& b);
  void place_log_probs(const GpuBinding& b);
  void add_up(const ChunkRows& chunk) const;
  void run_chunk(const ChunkRows& chunk) const;
  void gather(const ChunkRows& chunk, const Gathered<T>& rows) const;
  void scatter(const ChunkRows& chunk, const Scattered<T>& rows) const;
  void clear(const Scattered<T>& rows) const;
  // The product of a chunk, where the op has it.
  void multiply(const std::optional<GpuMatmul>& product, const ChunkRows& chunk) const;
  // The same, summed over all chunks into a weight's gradient.
  void add_product(const std::optional<GpuMatmul>& product, const ChunkRows& chunk) const;
  // Sums the columns of a chunk into the bias's gradient.
  void bind_bias(const GpuBinding& b, size_t output);
  template <class G>
  void bind_bias_as(const GpuBinding& b, size_t output);

  gpu::Stream& stream_;
  HeadLabels labels_;
  HeadLabels sent_labels_;  // as the host has them; none: it does not
  const double* step_ = nullptr;
  size_t step_input_ = 0;
  double* loss_ = nullptr;         // of linear_cross_entropy
  LogProbSums log_probs_;          // of linear_log_prob
  const float* d_sums_ = nullptr;  // of its gradient
  int64_t tokens_, vocab_, chunk_ = 0;
  LogitMap map_;
  bool gradient_;
  Gathered<T> x_, t_;
  Scattered<T> d_x_, d_t_;
  T* logits_ = nullptr;
  int32_t* listed_ = nullptr;
  int32_t* count_ = nullptr;
  double* losses_ = nullptr;
  std::span<std::byte> workspace_;  // of a library
  std::optional<GpuMatmul> logits_product_, low_rank_, d_x_product_, d_w_, d_t_product_, d_b_;
  float* column_sums_ = nullptr;
  std::function<void(const ChunkRows&)> add_bias_;  // empty: its gradient is not wanted
};

template <class T>
HeadLossOnGpu<T>::HeadLossOnGpu(const GpuBinding& b)
    : stream_(b.stream()),
      labels_{.labels = b.input<int32_t>(HeadInputs::labels),
              .rows = b.input<int32_t>(head_operands(b.op()).label_rows)},
      tokens_(b.input_tensor(HeadInputs::x).shape[0]),
      vocab_(b.input_tensor(HeadInputs::weight).shape[0]),
      map_(logit_map(b.op())) {
  place_parts(b);
  place_log_probs(b);
  const HeadOperands at = head_operands(b.op());
  const CrossEntropyProducts products = cross_entropy_products(b.graph(), b.op());
  const bool biases = b.op().has_output(at.d_bias);
  gradient_ = products.d_x || products.d_w || products.d_t || products.d_b || biases;
  const float scale = has_adapter(b.op()) ? static_cast<float>(b.op().attr_float("scale")) : 1.0F;
  sent_labels_.labels =
      b.sent<int32_t>(HeadInputs::labels, [labels = sent_labels_, tokens = tokens_](const int32_t* sent) {
        HeadLabels there = labels;
        there.labels = sent;
        return count_labelled(there, tokens);
      });
  const int64_t accumulate = products.d_w || products.d_b || biases ? b.op().attr_int("accumulate") : 1;
  const auto* const sent_step =
      step_ == nullptr ? nullptr : b.sent<double>(step_input_, [accumulate](const double* sent) {
        return Accumulation{accumulate, sent}.adds() ? 1 : 0;
      });
  const bool knows = sent_labels_.labels != nullptr && (step_ == nullptr || sent_step != nullptr);
  const auto set = [&](std::optional<GpuMatmul>& to, const std::optional<MatmulShape>& shape,
                       GpuMatmul product) {
    if (!shape) return;
    require_matmul(b, *shape);
    product.shape = *shape;
    product.tf32 = by_tf32(b);
    ask_library(b, product, knows, workspace_);
    to = product;
  };
  const auto of_weight = [&](std::optional<GpuMatmul>& to, const std::optional<MatmulShape>& shape,
                             const void* x, size_t output, float alpha) {
    if (!shape) return;
    set(to, shape,
        {.a = logits_,
         .b = x,
         .c = b.output(output),
         .addend = b.output(output),
         .alpha = alpha,
         .accumulation = Accumulation{accumulate, step_},
         .accumulation_here = Accumulation{accumulate, sent_step}});
  };
  set(logits_product_, products.logits,
      {.a = x_.chunk, .b = b.input(HeadInputs::weight), .c = logits_, .bias = b.input(at.bias)});
  set(low_rank_, products.low_rank,
      {.a = t_.chunk, .b = b.input(at.b), .c = logits_, .addend = logits_, .alpha = scale});
  set(d_x_product_, products.d_x, {.a = logits_, .b = b.input(HeadInputs::weight), .c = d_x_.chunk});
  set(d_t_product_, products.d_t, {.a = logits_, .b = b.input(at.b), .c = d_t_.chunk, .alpha = scale});
  of_weight(d_w_, products.d_w, x_.chunk, at.d_weight, 1.0F);
  of_weight(d_b_, products.d_b, t_.chunk, at.d_b, scale);
  if (biases) bind_bias(b, at.d_bias);
}

template <class T>
void HeadLossOnGpu<T>::bind_bias(const GpuBinding& b, size_t output) {
  if (b.output_tensor(output).dtype == DType::f32)
    bind_bias_as<float>(b, output);
  else
    bind_bias_as<T>(b, output);
}

template <class T>
template <class G>
void HeadLossOnGpu<T>::bind_bias_as(const GpuBinding& b, size_t output) {
  const GpuColumnSums<T, G> sums{
      .x = logits_, .rows = chunk_, .columns = vocab_, .partials = column_sums_, .sums = b.output<G>(output)};
  const Accumulation first{bias_accumulation(b.op()), step_};
  add_bias_ = [sums, first, &stream = stream_](const ChunkRows& chunk) {
    launch_column_sums(stream, sums, chunk.live(), chunk.begin > 0 ? Accumulation{} : first);
  };
}

template <class T>
void HeadLossOnGpu<T>::place_parts(const GpuBinding& b) {
  const CrossEntropyLayout layout = cross_entropy_layout(b.graph(), b.op());
  const HeadOperands at = head_operands(b.op());
  std::byte* const base = b.scratch();
  chunk_ = layout.chunk;
  listed_ = reinterpret_cast<int32_t*>(base + layout.rows);
  losses_ = reinterpret_cast<double*>(base + layout.losses);
  logits_ = reinterpret_cast<T*>(base + layout.logits);
  column_sums_ = reinterpret_cast<float*>(base + layout.columns);
  count_ = reinterpret_cast<int32_t*>(base + layout.matmul);
  workspace_ = library_workspace(b, head_library_workspace(b.graph(), b.op()));
  const auto part = [&](int64_t offset) { return reinterpret_cast<T*>(base + offset); };
  const int64_t width = b.input_tensor(HeadInputs::x).shape[1];
  x_ = {b.input<T>(HeadInputs::x), part(layout.x), width};
  d_x_ = {b.output<T>(at.d_x), part(layout.d_x), width};
  if (!has_adapter(b.op())) return;
  const int64_t rank = b.input_tensor(at.t).shape[1];
  t_ = {b.input<T>(at.t), part(layout.t), rank};
  d_t_ = {b.output<T>(at.d_t), part(layout.d_t), rank};
}

template <class T>
void HeadLossOnGpu<T>::place_log_probs(const GpuBinding& b) {
  const OpKind kind = b.op().kind;
  if (kind != OpKind::linear_log_prob && kind != OpKind::linear_log_prob_grad) {
    using at = operand::linear_cross_entropy;  // and those of its gradient
    step_input_ = at::step;
    step_ = b.input<double>(at::step);
    loss_ = b.output<double>(at::loss);
    labels_.weights = b.input<float>(at::label_weights);
    return;
  }
  labels_.starts = b.input<int32_t>(operand::linear_log_prob::seq_starts);  // and of its gradient
  sent_labels_.starts = labels_.starts;
  labels_.sequences = log_prob_sequences(b.graph(), b.op());
  labels_.of_label = b.input<int32_t>(head_operands(b.op()).label_facts);
  if (kind == OpKind::linear_log_prob) {
    using at = operand::linear_log_prob;
    log_probs_ = {b.output<float>(at::logps), b.output<float>(at::tokens),
                  reinterpret_cast<double*>(count_ + kHeadGpuCounts)};
  } else {
    using at = operand::linear_log_prob_grad;
    d_sums_ = b.input<float>(at::d_logps);
    step_input_ = at::step;
    step_ = b.input<double>(at::step);
  }
}

template <class T>
void HeadLossOnGpu<T>::add_up(const ChunkRows& chunk) const {
  if (loss_ != nullptr)
    gpu::launch(stream_, {1}, {kCrossEntropyThreads}, add_losses, chunk, labels_, chunk_, losses_, step_,
                loss_);
  if (log_probs_.sums != nullptr)
    gpu::launch(stream_, {gpu::blocks_of(labels_.sequences * kNumLogProbs, kCrossEntropyThreads)},
                {kCrossEntropyThreads}, add_log_probs, chunk, chunk_, labels_, losses_, log_probs_);
}

template <class T>
void HeadLossOnGpu<T>::operator()() const {
  gpu::launch(stream_, {1}, {kCrossEntropyThreads}, list_labelled, labels_, tokens_, vocab_, listed_, count_);
  clear(d_x_);
  clear(d_t_);
  const bool knows = sent_labels_.labels != nullptr;
  const int32_t count = knows ? count_labelled(sent_labels_, tokens_) : 0;
  for (int64_t begin = 0; begin < tokens_; begin += chunk_)
    run_chunk({listed_, count_, begin, knows ? &count : nullptr});
}

template <class T>
void HeadLossOnGpu<T>::run_chunk(const ChunkRows& chunk) const {
  gather(chunk, x_);
  gather(chunk, t_);
  multiply(logits_product_, chunk);
  multiply(low_rank_, chunk);
  gpu::launch(stream_, {static_cast<unsigned>(chunk_)}, {kCrossEntropyThreads}, cross_entropy_rows<T>, chunk,
              labels_, logits_, vocab_, map_, gradient_, step_, d_sums_, losses_);
  add_up(chunk);
  multiply(d_x_product_, chunk);
  multiply(d_t_product_, chunk);
  scatter(chunk, d_x_);
  scatter(chunk, d_t_);
  add_product(d_w_, chunk);
  add_product(d_b_, chunk);
  if (add_bias_) add_bias_(chunk);
}

template <class T>
void HeadLossOnGpu<T>::gather(const ChunkRows& chunk, const Gathered<T>& rows) const {
  if (rows.all == nullptr) return;
  gpu::launch(stream_, {static_cast<unsigned>(chunk_)}, {kCrossEntropyThreads}, gather_chunk<T>, chunk,
              labels_, rows.all, rows.chunk, rows.width);
}

template <class T>
void HeadLossOnGpu<T>::scatter(const ChunkRows& chunk, const Scattered<T>& rows) const {
  if (rows.all == nullptr) return;
  const gpu::Dim3 grid{static_cast<unsigned>(chunk_)};
  if (labels_.rows != nullptr)
    gpu::launch(stream_, grid, {kCrossEntropyThreads}, add_chunk<T>, chunk, labels_, chunk_, rows.chunk,
                rows.all, rows.width);
  else
    gpu::launch(stream_, grid, {kCrossEntropyThreads}, scatter_chunk<T>, chunk, rows.chunk, rows.all,
                rows.width);
}

template <class T>
void HeadLossOnGpu<T>::clear(const Scattered<T>& rows) const {
  if (rows.all != nullptr) launch_clear(stream_, rows.all, tokens_ * rows.width);
}

template <class T>
void HeadLossOnGpu<T>::multiply(const std::optional<GpuMatmul>& product, const ChunkRows& chunk) const {
  if (!product) return;
  GpuMatmul now = *product;
  now.live = chunk.live();
  now.live_here = chunk.live_here();
  launch_matmul(stream_, now);
}

template <class T>
void HeadLossOnGpu<T>::add_product(const std::optional<GpuMatmul>& product, const ChunkRows& chunk) const {
  if (!product) return;
  GpuMatmul now = *product;
  now.live = chunk.live();
  now.live_here = chunk.live_here();
  if (chunk.begin > 0) now.accumulation = now.accumulation_here = {};
  launch_matmul(stream_, now);
}

BoundCall bind_either(const GpuBinding& b) {
  return with_gpu_type(b, b.input_tensor(HeadInputs::x).dtype,
                       [&](auto zero) -> BoundCall { return HeadLossOnGpu<decltype(zero)>(b); });
}

}  // namespace

BoundCall bind_gpu_linear_cross_entropy(const GpuBinding& b) { return bind_either(b); }
BoundCall bind_gpu_linear_cross_entropy_grad(const GpuBinding& b) { return bind_either(b); }
BoundCall bind_gpu_linear_log_prob(const GpuBinding& b) { return bind_either(b); }
BoundCall bind_gpu_linear_log_prob_grad(const GpuBinding& b) { return bind_either(b); }

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
