#include <algorithm>
#include <cstring>

#include "ops/cpu_dispatch.h"
#include "ops/parallel_memory.h"
#include "ops/pointwise/elementwise_kernels.h"
#include "ops/pointwise/padding_row.h"

namespace plimsoll {
namespace {

void check_ids(const int32_t* ids, int64_t count, int64_t vocab) {
  for (int64_t i = 0; i < count; ++i)
    if (ids[i] < 0 || ids[i] >= vocab)
      throw InternalError("embedding: token id " + std::to_string(ids[i]) + " at place " + std::to_string(i) +
                          " of the micro-batch is outside the vocabulary of " + std::to_string(vocab));
}

}  // namespace

BoundCall bind_embedding(const CpuBinding& b) {
  using at = operand::embedding;
  const Tensor& weight = b.input_tensor(at::weight);
  const int64_t row_bytes = weight.shape[1] * size_of(weight.dtype);
  return [=, ids = b.input<int32_t>(at::ids), table = b.input<std::byte>(at::weight),
          step = b.input<double>(at::step), y = b.output<std::byte>(at::h),
          tokens = b.input_tensor(at::ids).shape[0], vocab = weight.shape[0], axis = b.op().axis] {
    const int64_t live = live_tokens(step, axis);
    check_ids(ids, live, vocab);
    for (int64_t t = 0; t < live; ++t)
      std::memcpy(y + t * row_bytes, table + ids[t] * row_bytes, static_cast<size_t>(row_bytes));
    std::memset(y + live * row_bytes, 0, static_cast<size_t>((tokens - live) * row_bytes));
  };
}

BoundCall bind_embedding_dw(const CpuBinding& b) {
  using at = operand::embedding_dw;
  const Tensor& gradient = b.output_tensor(at::d_weight);
  return with_gradient_type(
      b, b.input_tensor(at::d_h).dtype, gradient.dtype, [&](auto t, auto g) -> BoundCall {
        using Args = ScatterAdd<decltype(t), decltype(g)>;
        const Args args{.ids = b.input<int32_t>(at::ids),
                        .x = b.input<decltype(t)>(at::d_h),
                        .width = gradient.shape[1],
                        .table = b.output<decltype(g)>(at::d_weight),
                        .threads = b.settings().threads};
        const auto kernel = PLIMSOLL_KERNEL(b, scatter_add, Args);
        return [=, step = b.input<double>(at::step), accumulate = b.op().attr_int("accumulate"),
                bytes = gradient.bytes(), vocab = gradient.shape[0], axis = b.op().axis,
                padding = static_cast<int32_t>(padding_row(b.op()))] {
          const int64_t live = live_tokens(step, axis);
          check_ids(args.ids, live, vocab);
          if (overwrites(accumulate, step)) parallel_clear(args.table, bytes, args.threads);
          // The stretches between tokens of the padding row, which is not trained.
          for (int64_t begin = 0, end = 0; begin < live; begin = end + 1) {
            end = std::find(args.ids + begin, args.ids + live, padding) - args.ids;
            Args now = args;
            now.ids += begin;
            now.x += begin * args.width;
            now.count = end - begin;
            if (now.count > 0) kernel(now);
          }
        };
      });
}

}  // namespace plimsoll
