#include "ops/dynamic_map.h"

#include <gtest/gtest.h>
namespace plimsoll {
namespace {
TEST(DynamicMap, dump) {
  for (const auto* m : {&signed_dynamic_map(), &unsigned_dynamic_map()})
    for (float v : m->value) printf("%a\n", static_cast<double>(v));
}
}  // namespace
}  // namespace plimsoll
