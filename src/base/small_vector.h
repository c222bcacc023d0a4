// A vector of plain values whose first N lie in the object itself. Plans are made of programs by the hundred,
// of thousands of ops each, and nearly all shapes and lists of operands are short.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

namespace plimsoll {

template <class T, uint32_t N>
class SmallVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  using value_type = T;
  using size_type = size_t;
  using difference_type = std::ptrdiff_t;
  using reference = T&;
  using const_reference = const T&;
  using iterator = T*;
  using const_iterator = const T*;

  SmallVector() {}
  explicit SmallVector(size_t size, const T& value = T()) { assign(size, value); }
  SmallVector(std::initializer_list<T> values) { append(values.begin(), values.size()); }
  SmallVector(const std::vector<T>& values) { append(values.data(), values.size()); }
  SmallVector(const SmallVector& other) { append(other.data(), other.size_); }
  SmallVector(SmallVector&& other) noexcept { take(other); }
  SmallVector& operator=(const SmallVector& other) {
    if (this == &other) return *this;
    size_ = 0;
    append(other.data(), other.size_);
    return *this;
  }
  SmallVector& operator=(SmallVector&& other) noexcept {
    if (this == &other) return *this;
    release();
    take(other);
    return *this;
  }
  ~SmallVector() { release(); }

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] T* data() { return is_inline() ? storage_.values : storage_.heap; }
  [[nodiscard]] const T* data() const { return is_inline() ? storage_.values : storage_.heap; }
  [[nodiscard]] T* begin() { return data(); }
  [[nodiscard]] T* end() { return data() + size_; }
  [[nodiscard]] const T* begin() const { return data(); }
  [[nodiscard]] const T* end() const { return data() + size_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  [[nodiscard]] T& back() { return data()[size_ - 1]; }
  [[nodiscard]] const T& back() const { return data()[size_ - 1]; }
  [[nodiscard]] T& front() { return *data(); }
  [[nodiscard]] const T& front() const { return *data(); }

  void reserve(size_t capacity) {
    if (capacity > capacity_) grow(static_cast<uint32_t>(capacity));
  }
  void push_back(const T& value) {
    const T copy = value;  // it may lie in what grows
    if (size_ == capacity_) grow(2 * capacity_);
    data()[size_++] = copy;
  }
  void pop_back() { --size_; }
  void clear() { size_ = 0; }
  void resize(size_t size, const T& value = T()) {
    const T copy = value;
    reserve(size);
    if (size > size_) std::fill(end(), data() + size, copy);
    size_ = static_cast<uint32_t>(size);
  }
  void assign(size_t size, const T& value) {
    const T copy = value;
    size_ = 0;
    resize(size, copy);
  }

  friend bool operator==(const SmallVector& a, const SmallVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  [[nodiscard]] bool is_inline() const { return capacity_ == N; }
  void append(const T* values, size_t count) {
    reserve(size_ + count);
    std::copy_n(values, count, end());
    size_ += static_cast<uint32_t>(count);
  }
  void grow(uint32_t capacity) {
    T* const heap = new T[capacity];
    std::copy_n(data(), size_, heap);
    release();
    storage_.heap = heap;
    capacity_ = capacity;
  }
  void release() {
    if (!is_inline()) delete[] storage_.heap;
    capacity_ = N;
  }
  void take(SmallVector& other) {
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, N);
    storage_ = other.storage_;
  }

  union Storage {
    Storage() {}
    T values[N];
    T* heap;
  };
  uint32_t size_ = 0, capacity_ = N;
  Storage storage_;
};

}  // namespace plimsoll
