#include "weights/low_rank_start.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numbers>

#include "base/error.h"
#include "cpu/matmul.h"
#include "ops/philox.h"

namespace plimsoll {
namespace {

constexpr int64_t kMostIterations = 200;
constexpr double kSteady = 1e-7;  // change of the values' squares, relative to their sum

// More vectors than are kept: the part converges as the first of those left out is smaller than the last
// kept.
int64_t vectors_of(int64_t out, int64_t in, int64_t r) { return std::min({out, in, 2 * r + 8}); }

// Columns [count, length], one after the other.
struct Vectors {
  int64_t length = 0, count = 0;
  std::vector<double> values;
  Vectors(int64_t length_, int64_t count_)
      : length(length_), count(count_), values(static_cast<size_t>(length_ * count_)) {}
  double* at(int64_t i) { return values.data() + i * length; }
  [[nodiscard]] const double* at(int64_t i) const { return values.data() + i * length; }
};

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Gram and Schmidt, twice: the second pass takes out what rounding left. A vector that is nothing compared
// with the others becomes zero.
void orthonormalise(Vectors& v) {
  for (int64_t i = 0; i < v.count; ++i) {
    const double before = std::sqrt(dot(v.at(i), v.at(i), v.length));
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t j = 0; j < i; ++j) {
        const double along = dot(v.at(i), v.at(j), v.length);
        for (int64_t k = 0; k < v.length; ++k) v.at(i)[k] -= along * v.at(j)[k];
      }
    const double length = std::sqrt(dot(v.at(i), v.at(i), v.length));
    const double factor = length > 1e-12 * before ? 1 / length : 0;
    for (int64_t k = 0; k < v.length; ++k) v.at(i)[k] *= factor;
  }
}

// MatrixProducts of the weight with vectors, or of its transpose, in f32: what is kept of a part is f32 as
// well, and is taken out of the weight as it is.
class MatrixProducts {
 public:
  MatrixProducts(const WeightView& w, int64_t count, Isa isa, int threads)
      : weight_(w),
        count_(count),
        forward_(Matmul::create({.m = w.out, .n = count, .k = w.in}, isa, threads)),
        backward_(Matmul::create({.m = w.in, .n = count, .k = w.out, .a_transposed = true}, isa, threads)),
        from_(static_cast<size_t>(std::max(w.out, w.in) * count)),
        to_(from_.size()),
        scratch_(
            static_cast<size_t>(std::max(forward_->scratch_bytes(), backward_->scratch_bytes()) / 64 + 1)) {}

  // to = W from
  void multiply(const Vectors& from, Vectors& to) { run(*forward_, from, to, weight_.out); }
  // to = Wᵀ from
  void multiply_transposed(const Vectors& from, Vectors& to) { run(*backward_, from, to, weight_.out); }

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };

  void run(const Matmul& matmul, const Vectors& from, Vectors& to, int64_t live) {
    for (int64_t v = 0; v < count_; ++v)
      for (int64_t i = 0; i < from.length; ++i)
        from_[static_cast<size_t>(i * count_ + v)] = static_cast<float>(from.at(v)[i]);
    matmul.run({.a = weight_.values.data(),
                .b = from_.data(),
                .c = to_.data(),
                .live = live,
                .scratch = scratch_.data()});
    for (int64_t v = 0; v < count_; ++v)
      for (int64_t i = 0; i < to.length; ++i) to.at(v)[i] = to_[static_cast<size_t>(i * count_ + v)];
  }

  WeightView weight_;
  int64_t count_;
  std::unique_ptr<Matmul> forward_, backward_;
  std::vector<float> from_, to_;
  std::vector<Line> scratch_;
};

// Eigenvalues and vectors of a small symmetric matrix, by Jacobi's rotations. `vectors` row by row.
void diagonalise(std::vector<double>& matrix, std::vector<double>& vectors, int64_t n) {
  const auto m = [&](int64_t i, int64_t j) -> double& { return matrix[static_cast<size_t>(i * n + j)]; };
  const auto e = [&](int64_t i, int64_t j) -> double& { return vectors[static_cast<size_t>(i * n + j)]; };
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) e(i, j) = i == j ? 1 : 0;
  for (int sweep = 0; sweep < 60; ++sweep) {
    double off = 0, all = 0;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) (i == j ? all : off) += m(i, j) * m(i, j);
    if (off <= 1e-28 * all) return;
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) {
        if (m(p, q) == 0) continue;
        const double theta = (m(q, q) - m(p, p)) / (2 * m(p, q));
        const double t = (theta >= 0 ? 1.0 : -1.0) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (int64_t k = 0; k < n; ++k) {
          const double kp = m(k, p), kq = m(k, q);
          m(k, p) = c * kp - s * kq;
          m(k, q) = s * kp + c * kq;
        }
        for (int64_t k = 0; k < n; ++k) {
          const double pk = m(p, k), qk = m(q, k), ep = e(p, k), eq = e(q, k);
          m(p, k) = c * pk - s * qk;
          m(q, k) = s * pk + c * qk;
          e(p, k) = c * ep - s * eq;
          e(q, k) = s * ep + c * eq;
        }
      }
  }
}

// Vectors of the weight's inputs that are normally distributed.
Vectors random_vectors(int64_t length, int64_t count, uint64_t seed) {
  Vectors v(length, count);
  const PhiloxStream first = philox_stream(seed, 0x50695353ULL, 0, 0, 0);
  const PhiloxStream second = philox_stream(seed, 0x50695353ULL, 0, 0, 1);
  for (int64_t i = 0; i < length * count; ++i) {
    const double u = (static_cast<double>(philox_bits32(first, i)) + 0.5) * 0x1p-32;
    const double angle = (static_cast<double>(philox_bits32(second, i)) + 0.5) * 0x1p-32;
    v.values[static_cast<size_t>(i)] = std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * angle);
  }
  return v;
}

double sum_of_squares(const Vectors& v) { return dot(v.values.data(), v.values.data(), v.length * v.count); }

}  // namespace

LowRank principal_part(const WeightView& w, int64_t r, double scale, int64_t iterations, uint64_t seed,
                       Isa isa, int threads) {
  const int64_t k = vectors_of(w.out, w.in, r);
  check_internal(r <= k, "principal_part: a rank above the weight's");
  MatrixProducts products(w, k, isa, threads);
  Vectors left(w.out, k), right = random_vectors(w.in, k, seed);
  const int64_t most = iterations > 0 ? iterations : kMostIterations;
  double before = 0;
  for (int64_t i = 0; i <= most; ++i) {
    products.multiply(right, left);
    orthonormalise(left);
    products.multiply_transposed(left, right);
    const double now = sum_of_squares(right);  // of the values, as far as they are found
    if (i == most || (iterations == 0 && std::fabs(now - before) <= kSteady * now)) break;
    before = now;
    orthonormalise(right);
  }
  // W ≈ left rightᵀ: the small problem right rightᵀ has the values' squares.
  std::vector<double> gram(static_cast<size_t>(k * k)), vectors(gram.size());
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < k; ++j)
      gram[static_cast<size_t>(i * k + j)] = dot(right.at(i), right.at(j), w.in);
  diagonalise(gram, vectors, k);
  std::vector<int64_t> order(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; ++i) order[static_cast<size_t>(i)] = i;
  const auto square = [&](int64_t i) { return gram[static_cast<size_t>(i * k + i)]; };
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return square(a) > square(b); });
  LowRank part{std::vector<float>(static_cast<size_t>(r * w.in)),
               std::vector<float>(static_cast<size_t>(w.out * r))};
  for (int64_t n = 0; n < r; ++n) {
    const int64_t at = order[static_cast<size_t>(n)];
    const double value = std::sqrt(std::max(0.0, square(at)));
    const double root = std::sqrt(value / scale);
    const double* mix = vectors.data() + at * k;
    for (int64_t i = 0; i < w.in; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) sum += mix[j] * right.at(j)[i];
      part.a[static_cast<size_t>(n * w.in + i)] = static_cast<float>(value > 0 ? root * sum / value : 0.0);
    }
    for (int64_t o = 0; o < w.out; ++o) {
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) sum += mix[j] * left.at(j)[o];
      part.b[static_cast<size_t>(o * r + n)] = static_cast<float>(root * sum);
    }
  }
  return part;
}

LowRank leading_part(const WeightView& w, int64_t r, Isa isa, int threads) {
  check_internal(r <= std::min(w.out, w.in), "leading_part: a rank above the weight's");
  Vectors q(w.out, r), rows(w.in, r);
  for (int64_t n = 0; n < r; ++n)
    for (int64_t o = 0; o < w.out; ++o) q.at(n)[o] = w.values[static_cast<size_t>(o * w.in + n)];
  orthonormalise(q);
  MatrixProducts(w, r, isa, threads).multiply_transposed(q, rows);
  LowRank part{std::vector<float>(rows.values.begin(), rows.values.end()),
               std::vector<float>(static_cast<size_t>(w.out * r))};
  for (int64_t n = 0; n < r; ++n)
    for (int64_t o = 0; o < w.out; ++o)
      part.b[static_cast<size_t>(o * r + n)] = static_cast<float>(q.at(n)[o]);
  return part;
}

int64_t low_rank_bytes(int64_t out, int64_t in, int64_t r) {
  const int64_t k = vectors_of(out, in, r);
  return (out + in) * (k * int64_t{sizeof(double)} + r * int64_t{sizeof(float)}) +
         2 * std::max(out, in) * k * int64_t{sizeof(float)} + 2 * k * k * int64_t{sizeof(double)};
}

}  // namespace plimsoll
