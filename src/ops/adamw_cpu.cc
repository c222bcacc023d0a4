#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/adamw_kernels.h"
#include "ops/cpu_dispatch.h"
#include "ops/name_hash.h"

namespace plimsoll {
namespace {

template <class T>
double squares_of(const CpuBinding& b, size_t i, SumOfSquares<T> args);

// One gradient's sum of squares, ready to run.
struct Squares {
  double (*kernel)(const void* args) = nullptr;
};

}  // namespace

}  // namespace plimsoll
