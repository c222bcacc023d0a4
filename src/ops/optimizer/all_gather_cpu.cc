#include "ops/cpu_dispatch.h"
#include "ops/parallel_memory.h"

namespace plimsoll {

BoundCall bind_all_gather(const CpuBinding& b) {
  using at = operand::all_gather;
  const Tensor& whole = b.output_tensor(at::whole);
  const int64_t size = size_of(whole.dtype);
  const int64_t first = b.op().attr_int("first") * size, bytes = b.op().attr_int("elements") * size;
  return [from = b.input<std::byte>(at::piece), to = b.output<std::byte>(at::whole), first, bytes,
          all = whole.bytes(), threads = b.settings().threads] {
    parallel_clear(to, first, threads);
    parallel_copy(to + first, from, bytes, threads);
    parallel_clear(to + first + bytes, all - first - bytes, threads);
  };
}

}  // namespace plimsoll
