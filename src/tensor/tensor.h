// Element types and shapes: the vocabulary every other folder speaks.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/small_vector.h"

namespace plimsoll {

enum class DType : uint8_t { f64, f32, bf16, f16, i64, i32, i16, u8, boolean, i8 };

// Bytes of one element.
int64_t size_of(DType dtype);
// "f32", "bf16", ... as the text forms print it.
std::string_view to_string(DType dtype);
// Reads to_string's names; throws UsageError for others.
DType parse_dtype(std::string_view text);

// Dimensions, outermost first; row-major. A scalar has no dimensions and one element.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(const std::vector<int64_t>& dims) : dims_(dims) {}

  [[nodiscard]] size_t rank() const { return dims_.size(); }
  [[nodiscard]] int64_t operator[](size_t axis) const { return dims_[axis]; }
  [[nodiscard]] int64_t last() const { return dims_.back(); }
  [[nodiscard]] std::span<const int64_t> dims() const { return {dims_.data(), dims_.size()}; }
  // Product of all dimensions; throws InternalError when it does not fit into 63 bits.
  [[nodiscard]] int64_t elements() const;
  // Product of all dimensions but the last (1 for a vector).
  [[nodiscard]] int64_t rows() const;
  // "[512,896]"
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  SmallVector<int64_t, 4> dims_;
};

}  // namespace plimsoll
