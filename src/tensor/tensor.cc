#include "tensor/tensor.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 10> kNames = {{{DType::f64, "f64"},
                                                                        {DType::f32, "f32"},
                                                                        {DType::bf16, "bf16"},
                                                                        {DType::f16, "f16"},
                                                                        {DType::i64, "i64"},
                                                                        {DType::i32, "i32"},
                                                                        {DType::i16, "i16"},
                                                                        {DType::i8, "i8"},
                                                                        {DType::u8, "u8"},
                                                                        {DType::boolean, "bool"}}};

}  // namespace

int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
    case DType::i16:
      return 2;
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      return 1;
  }
  throw InternalError("size_of: no such dtype");
}

std::string_view to_string(DType dtype) {
  for (const auto& [value, name] : kNames)
    if (value == dtype) return name;
  throw InternalError("to_string: no such dtype");
}

DType parse_dtype(std::string_view text) {
  for (const auto& [value, name] : kNames)
    if (name == text) return value;
  throw UsageError(formatted("'{}' is not an element type", text));
}

int64_t Shape::elements() const {
  int64_t product = 1;
  for (const int64_t dim : dims_)
    if (dim < 0 || __builtin_mul_overflow(product, dim, &product))
      throw InternalError(formatted("shape {} has no countable size", to_string()));
  return product;
}

int64_t Shape::rows() const {
  int64_t product = 1;
  for (size_t axis = 0; axis + 1 < dims_.size(); ++axis) product *= dims_[axis];
  return product;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (size_t axis = 0; axis < dims_.size(); ++axis) {
    if (axis > 0) text += ',';
    text += std::to_string(dims_[axis]);
  }
  return text + "]";
}

}  // namespace plimsoll
