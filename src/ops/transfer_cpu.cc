// Transfers are not compute: the runtime runs them on its I/O queue.
#include "ops/cpu_dispatch.h"

namespace plimsoll {
namespace {

[[noreturn]] void refuse(const CpuBinding& b) {
  throw InternalError("a transfer has no compute kernel: " + print_op(b.graph(), b.op()));
}

}  // namespace

BoundCall bind_fetch(const CpuBinding& b) { refuse(b); }
BoundCall bind_fetch_wait(const CpuBinding& b) { refuse(b); }
BoundCall bind_store(const CpuBinding& b) { refuse(b); }
BoundCall bind_store_wait(const CpuBinding& b) { refuse(b); }

}  // namespace plimsoll
