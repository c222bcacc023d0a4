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
