#include <cstring>

#include "ops/cpu_dispatch.h"
#include "ops/cpu_elements.h"
#include "ops/parallel_memory.h"
#include "ops/pointwise/elementwise_kernels.h"

namespace plimsoll {

BoundCall bind_add(const CpuBinding& b) {
  using at = operand::add;
  return with_element_type(b, b.output_tensor(at::y).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Add<T> args{.a = b.input<T>(at::a),
                      .b = b.input<T>(at::b),
                      .y = b.output<T>(at::y),
                      .count = b.output_tensor(at::y).shape.elements(),
                      .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, add, Add<T>);
    return [=] { kernel(args); };
  });
}

namespace {

// Copies rows of `bytes` between tensors whose rows are as far apart as each says.
void copy_columns(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride, int64_t bytes,
                  int64_t rows, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(to + row * to_stride, from + row * from_stride, static_cast<size_t>(bytes));
}

int64_t row_bytes(const Tensor& tensor) { return tensor.shape[1] * size_of(tensor.dtype); }

}  // namespace

BoundCall bind_split_qkv(const CpuBinding& b) {
  using at = operand::split_qkv;
  const int64_t rows = b.input_tensor(at::qkv).shape[0], whole = row_bytes(b.input_tensor(at::qkv)),
                wide = row_bytes(b.output_tensor(at::q)), narrow = row_bytes(b.output_tensor(at::k));
  return [=, from = b.input<std::byte>(at::qkv), q = b.output<std::byte>(at::q),
          k = b.output<std::byte>(at::k), v = b.output<std::byte>(at::v), threads = b.settings().threads] {
    copy_columns(from, whole, q, wide, wide, rows, threads);
    copy_columns(from + wide, whole, k, narrow, narrow, rows, threads);
    copy_columns(from + wide + narrow, whole, v, narrow, narrow, rows, threads);
  };
}

BoundCall bind_join_qkv(const CpuBinding& b) {
  using at = operand::join_qkv;
  const int64_t rows = b.input_tensor(at::d_q).shape[0], whole = row_bytes(b.output_tensor(at::d_qkv)),
                wide = row_bytes(b.input_tensor(at::d_q)), narrow = row_bytes(b.input_tensor(at::d_k));
  return [=, to = b.output<std::byte>(at::d_qkv), q = b.input<std::byte>(at::d_q),
          k = b.input<std::byte>(at::d_k), v = b.input<std::byte>(at::d_v), threads = b.settings().threads] {
    copy_columns(q, wide, to, whole, wide, rows, threads);
    copy_columns(k, narrow, to + wide, whole, narrow, rows, threads);
    copy_columns(v, narrow, to + wide + narrow, whole, narrow, rows, threads);
  };
}

BoundCall bind_gather_rows(const CpuBinding& b) {
  using at = operand::gather_rows;
  const Tensor& x = b.input_tensor(at::x);
  const int64_t row_bytes = x.shape[1] * size_of(x.dtype);
  const int64_t rows = x.shape[0];
  const int64_t count = b.input_tensor(at::rows).shape[0];
  return [=, from = b.input<std::byte>(at::x), ids = b.input<int32_t>(at::rows),
          to = b.output<std::byte>(at::y)] {
    for (int64_t i = 0; i < count; ++i) {
      check_internal(ids[i] >= 0 && ids[i] < rows, "gather_rows: a row number is out of range");
      std::memcpy(to + i * row_bytes, from + ids[i] * row_bytes, static_cast<size_t>(row_bytes));
    }
  };
}

namespace {

// For rows that may be named several times.
template <class T>
BoundCall bind_scatter_sums(const CpuBinding& b) {
  using at = operand::scatter_rows;
  const Tensor& x = b.output_tensor(at::x);
  return [=, from = b.input<T>(at::y), ids = b.input<int32_t>(at::rows), step = b.input<double>(at::step),
          to = b.output<T>(at::x), rows = x.shape[0], width = x.shape[1], axis = b.op().axis,
          threads = b.settings().threads] {
    parallel_clear(to, rows * width * int64_t{sizeof(T)}, threads);
    for (int64_t i = 0; i < live_tokens(step, axis); ++i) {
      check_internal(ids[i] >= 0 && ids[i] < rows, "scatter_rows: a row number is out of range");
      T* const row = to + ids[i] * width;
      for (int64_t c = 0; c < width; ++c) set_rounded(row[c], as_f64(row[c]) + as_f64(from[i * width + c]));
    }
  };
}

}  // namespace

BoundCall bind_scatter_rows(const CpuBinding& b) {
  using at = operand::scatter_rows;
  if (b.op().attrs.contains("repeats"))
    return with_number_type(b, b.input_tensor(at::y).dtype,
                            [&](auto zero) -> BoundCall { return bind_scatter_sums<decltype(zero)>(b); });
  const Tensor& x = b.output_tensor(at::x);
  const int64_t row_bytes = x.shape[1] * size_of(x.dtype);
  return [=, from = b.input<std::byte>(at::y), ids = b.input<int32_t>(at::rows),
          step = b.input<double>(at::step), to = b.output<std::byte>(at::x), rows = x.shape[0],
          axis = b.op().axis, threads = b.settings().threads] {
    parallel_clear(to, rows * row_bytes, threads);
    for (int64_t i = 0; i < live_tokens(step, axis); ++i) {
      check_internal(ids[i] >= 0 && ids[i] < rows, "scatter_rows: a row number is out of range");
      std::memcpy(to + ids[i] * row_bytes, from + i * row_bytes, static_cast<size_t>(row_bytes));
    }
  };
}

}  // namespace plimsoll
