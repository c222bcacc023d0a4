#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace plimsoll {
namespace {

TEST(Shape, counts_rows_and_elements) {
  const Shape shape{4, 8, 16};
  EXPECT_EQ(shape.elements(), 512);
  EXPECT_EQ(shape.rows(), 32);
  EXPECT_EQ(shape.to_string(), "[4,8,16]");
  EXPECT_EQ(Shape{}.elements(), 1);
}

TEST(Shape, refuses_sizes_beyond_63_bits) {
  EXPECT_THROW((void)(Shape{int64_t{1} << 40, int64_t{1} << 40}.elements()), InternalError);
}

TEST(DType, names_survive_print_and_parse) {
  for (const DType dtype :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::i8, DType::u8})
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
  EXPECT_THROW(parse_dtype("float"), UsageError);
}

}  // namespace
}  // namespace plimsoll
