#include "cpu/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/error.h"
#include "cpu/isa.h"
#include "cpu/threads.h"
#include "tensor/f16.h"

namespace plimsoll {
namespace {

float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// A row-major operand of any type. Values are multiples of 1/128 in [-1, 1], exact in halves of both kinds.
class Operand {
 public:
  Operand(DType type, int64_t count) : type_(type), bytes_(static_cast<size_t>(count * size_of(type))) {}
  Operand(DType type, int64_t count, unsigned seed) : Operand(type, count) {
    std::minstd_rand random(seed + 1);
    for (int64_t i = 0; i < count; ++i) set(i, static_cast<float>(random() % 257) / 128.0F - 1.0F);
  }
  [[nodiscard]] double at(int64_t i) const {
    if (type_ == DType::f32) return reinterpret_cast<const float*>(bytes_.data())[i];
    const uint16_t half = reinterpret_cast<const uint16_t*>(bytes_.data())[i];
    return type_ == DType::f16 ? f32_from_f16(half) : from_bf16(half);
  }
  void set(int64_t i, float x) {
    if (type_ == DType::f32)
      reinterpret_cast<float*>(bytes_.data())[i] = x;
    else if (type_ == DType::f16)
      reinterpret_cast<uint16_t*>(bytes_.data())[i] = f16_from_f32(x);
    else
      reinterpret_cast<uint16_t*>(bytes_.data())[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
  }
  void poison(int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) set(i, NAN);
  }
  [[nodiscard]] std::byte* data() { return bytes_.data(); }
  [[nodiscard]] const std::byte* data() const { return bytes_.data(); }
  [[nodiscard]] size_t size() const { return bytes_.size(); }
  friend bool operator==(const Operand& x, const Operand& y) { return x.bytes_ == y.bytes_; }

 private:
  DType type_;
  std::vector<std::byte> bytes_;
};

// Memory of exactly `size` bytes, aligned to 64, between guards that check() looks at.
class Guarded {
 public:
  explicit Guarded(size_t size) : size_(size), memory_(size + 3 * kGuard, kMark) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    begin_ = kGuard + (64 - address % 64) % 64;
  }
  [[nodiscard]] std::byte* data() { return memory_.data() + begin_; }
  [[nodiscard]] bool intact() const {
    for (size_t i = 0; i < memory_.size(); ++i)
      if ((i < begin_ || i >= begin_ + size_) && memory_[i] != kMark) return false;
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr std::byte kMark{0xA5};
  size_t size_;
  size_t begin_;
  std::vector<std::byte> memory_;
};

struct Problem {
  MatmulShape shape;
  int64_t live;
  bool accumulate = false;
  bool with_bias = false;
  float alpha = 1.0F;
  float adapter_alpha = 1.0F;
};

struct Data {
  explicit Data(const Problem& p)
      : a(p.shape.a, p.shape.m * p.shape.k, 1),
        b(p.shape.b, p.shape.k * p.shape.n, 2),
        c(p.shape.c, p.shape.m * p.shape.n, 3),
        bias(p.shape.c, p.shape.n, 4),
        adapter_a(p.shape.a, p.shape.m * p.shape.adapter, 5),
        adapter_b(p.shape.b, p.shape.adapter * p.shape.n, 6) {}
  Operand a, b, c, bias, adapter_a, adapter_b;
};

std::ostream& operator<<(std::ostream& out, const Problem& p) {
  const MatmulShape& s = p.shape;
  return out << s.m << "x" << s.n << "x" << s.k << " " << to_string(s.a) << "->" << to_string(s.c)
             << (s.a_transposed ? " at" : "") << (s.b_transposed ? " bt" : "") << " live " << p.live
             << (p.accumulate ? " accumulate" : "") << (p.with_bias ? " bias" : "") << " alpha " << p.alpha
             << " fused adapter " << s.adapter << " times " << p.adapter_alpha;
}

// Runs with guards around C and the scratch.
void run(const Matmul& matmul, const Problem& p, Data& data) {
  Guarded c(data.c.size());
  std::memcpy(c.data(), data.c.data(), data.c.size());
  Guarded scratch(static_cast<size_t>(matmul.scratch_bytes()));
  matmul.run({.a = data.a.data(),
              .b = data.b.data(),
              .c = c.data(),
              .live = p.live,
              .accumulate = p.accumulate,
              .alpha = p.alpha,
              .bias = p.with_bias ? data.bias.data() : nullptr,
              .adapter_a = data.adapter_a.data(),
              .adapter_b = data.adapter_b.data(),
              .adapter_alpha = p.adapter_alpha,
              .scratch = scratch.data()});
  EXPECT_TRUE(c.intact()) << p;
  EXPECT_TRUE(scratch.intact()) << p;
  std::memcpy(data.c.data(), c.data(), data.c.size());
}

// Element (i, x) of a stored matrix, with x contiguous in the answer.
std::vector<double> rows_along_k(const Operand& stored, int64_t rows, int64_t k, bool k_outermost) {
  std::vector<double> values(static_cast<size_t>(rows * k));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t x = 0; x < k; ++x)
      values[static_cast<size_t>(i * k + x)] = stored.at(k_outermost ? x * rows + i : i * k + x);
  return values;
}

double rounding_of(DType type) {
  return type == DType::bf16 ? 1.0 / 256 : type == DType::f16 ? 1.0 / 2048 : 0;
}

// `apart`: the fused adapter is added to what was rounded before.
void expect_right(const Problem& p, const Data& before, const Data& after, bool apart) {
  const auto [m, n, k, ta, tb, tc, at, bt, r] = p.shape;
  const int64_t rows = at ? m : p.live;
  const int64_t depth = at ? p.live : k;
  const std::vector<double> a = rows_along_k(before.a, m, k, at);
  const std::vector<double> b = rows_along_k(before.b, n, k, !bt);
  const std::vector<double> adapter_a = rows_along_k(before.adapter_a, m, r, false);
  const std::vector<double> adapter_b = rows_along_k(before.adapter_b, n, r, !bt);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const double old = before.c.at(i * n + j);
      const double got = after.c.at(i * n + j);
      if (i >= rows) {
        ASSERT_EQ(got, old) << p << ": row " << i << " is not live";
        continue;
      }
      double sum = 0, adapter = 0;
      for (int64_t x = 0; x < depth; ++x)
        sum += a[static_cast<size_t>(i * k + x)] * b[static_cast<size_t>(j * k + x)];
      for (int64_t x = 0; x < r; ++x)
        adapter += adapter_a[static_cast<size_t>(i * r + x)] * adapter_b[static_cast<size_t>(j * r + x)];
      const double want = (p.accumulate ? old : 0) + p.alpha * sum + p.adapter_alpha * adapter +
                          (p.with_bias ? before.bias.at(j) : 0);
      // Products are at most 1: the rounding of f32 sums, and once more, to 8 or 11 bits, of a C of halves.
      const double bound = 1e-7 * (4 + std::sqrt(depth + r)) * (2 + std::sqrt(depth + r)) +
                           rounding_of(tc) * std::abs(want) +
                           (apart ? rounding_of(tc) * std::abs(want - p.adapter_alpha * adapter) : 0);
      ASSERT_NEAR(got, want, bound) << p << ": at " << i << ", " << j;
    }
  }
}

// Dead rows of A (and of B, when the reduction is over them) hold NaN: they must not be read.
void check(const Problem& p, const Matmul& matmul) {
  Data data(p);
  data.a.poison(p.live * (p.shape.a_transposed ? p.shape.m : p.shape.k), p.shape.m * p.shape.k);
  if (p.shape.a_transposed) data.b.poison(p.live * p.shape.n, p.shape.k * p.shape.n);
  data.adapter_a.poison(p.live * p.shape.adapter, p.shape.m * p.shape.adapter);
  const Data before = data;
  run(matmul, p, data);
  // Kernels that pack words of two bf16 take no adapter.
  const bool apart = p.shape.adapter > 0 && matmul.kernel_id().find("bf16") != std::string_view::npos;
  expect_right(p, before, data, apart);
}
void check(const Problem& p, Isa isa, int threads) {
  SCOPED_TRACE(to_string(isa));
  check(p, *Matmul::create(p.shape, isa, threads));
}

struct Form {
  bool a_transposed, b_transposed;
};
constexpr Form kForms[] = {{false, true}, {false, false}, {true, false}};

std::vector<Isa> isas() {
  std::vector<Isa> all;
  for (const Isa isa : {Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx})
    if (isa <= detect_isa()) all.push_back(isa);
  return all;
}

template <class Body>
void for_each_kind(const Body& body) {
  const auto for_each_form = [&](DType in, DType out, Isa isa) {
    for (const Form form : kForms) {
      MatmulShape shape;
      shape.a = shape.b = in;
      shape.c = out;
      shape.a_transposed = form.a_transposed;
      shape.b_transposed = form.b_transposed;
      body(shape, isa);
    }
  };
  for (const Isa isa : isas())
    for (const DType in : {DType::f32, DType::bf16})
      for (const DType out : {DType::f32, DType::bf16}) for_each_form(in, out, isa);
  // One kernel for all instruction sets.
  for (const auto& [in, out] :
       {std::pair{DType::f16, DType::f16}, {DType::f16, DType::f32}, {DType::f32, DType::f16}})
    for_each_form(in, out, isas().back());
}

TEST(Matmul, every_form_and_type_is_right_at_edge_sizes) {
  constexpr int64_t kSizes[] = {1, 7, 16, 17, 33, 64, 65, 130, 300};
  std::minstd_rand random(7);
  const auto pick = [&] { return kSizes[random() % std::size(kSizes)]; };
  for_each_kind([&](MatmulShape shape, Isa isa) {
    for (int i = 0; i < 8; ++i) {
      shape.m = i == 0 ? 1 : pick();
      shape.n = pick();
      shape.k = pick();
      shape.adapter = i % 4 < 2 && !shape.a_transposed ? pick() : 0;
      const int64_t rows = shape.a_transposed ? shape.k : shape.m;
      check({.shape = shape,
             .live = i % 2 == 0 ? rows : static_cast<int64_t>(random() % static_cast<unsigned>(rows)),
             .accumulate = i % 3 == 0,
             .with_bias = i % 4 == 1,
             .alpha = i % 3 == 1 ? -0.75F : 1.0F,
             .adapter_alpha = i % 4 == 0 ? 0.6F : 1.0F},
            isa, 1 + i % 3);
    }
  });
}

TEST(Matmul, several_blocks_of_k_of_columns_and_of_summed_rows_are_right) {
  for_each_kind([](MatmulShape shape, Isa isa) {
    for (const auto& [m, n, k] :
         {std::array<int64_t, 3>{17, 33, isa >= Isa::avx512_bf16 ? 2100 : 1100}, {3, 1100, 40}}) {
      shape.m = m;
      shape.n = n;
      shape.k = k;
      const int64_t rows = shape.a_transposed ? k : m;
      check({shape, rows, true, true, 0.5F}, isa, 2);
      check({shape, rows / 2, false, false, 2.0F}, isa, 2);
    }
  });
  for (const Isa isa : isas()) {
    const MatmulShape shape{
        .m = 520, .n = 3, .k = 2100, .a = DType::bf16, .b = DType::bf16, .c = DType::bf16};
    check({shape, 519, true, true, 0.5F}, isa, 2);
  }
}

// Lengths of k that end a block, begin one, and fill several.
TEST(Matmul, riders_are_right_wherever_blocks_of_k_end) {
  for_each_kind([](MatmulShape shape, Isa isa) {
    if (shape.a_transposed) return;
    for (const auto& [m, n, k, r] : {std::array<int64_t, 4>{17, 33, 1100, 16},
                                     {40, 70, 768, 64},
                                     {7, 40, 384, 400},
                                     {20, 33, 5, 1100},
                                     {3, 1100, 352, 8}}) {
      shape.m = m;
      shape.n = n;
      shape.k = k;
      shape.adapter = r;
      check({shape, m, true, true, 0.5F, 1.5F}, isa, 2);
      check({shape, m / 2, false, false, 1.0F, 1.0F}, isa, 2);
    }
  });
}

TEST(Matmul, a_rider_of_its_own_is_right_too) {
  for_each_kind([](MatmulShape shape, Isa isa) {
    if (shape.a_transposed) return;
    SCOPED_TRACE(to_string(isa));
    shape.m = 20;
    shape.n = 33;
    shape.k = 130;
    shape.adapter = 17;
    if (shape.c != DType::f32) return;  // of halves it is rounded twice
    check({shape, 13, true, true, 0.5F, 1.5F}, *create_adapter_apart(shape, isa, 2));
    check({shape, 20, false, false, 1.0F, 2.0F}, *create_adapter_apart(shape, isa, 2));
  });
}

TEST(Matmul, thin_gradients_are_right_on_both_sides_and_at_their_edges) {
  if (detect_isa() < Isa::avx512_bf16) GTEST_SKIP() << "no BF16 instructions";
  for (const DType c : {DType::f32, DType::bf16})
    for (const int64_t thin : {1, 8, 15, 16})
      for (const int64_t wide : {17, 128, 300})
        for (const int64_t k : {1, 64, 131}) {
          MatmulShape shape{
              .m = thin, .n = wide, .k = k, .a = DType::bf16, .b = DType::bf16, .c = c, .a_transposed = true};
          EXPECT_EQ(Matmul::create(shape, Isa::avx512_bf16, 2)->kernel_id(), "own-avx512-bf16-thin");
          check({shape, k, true, false, 0.5F}, Isa::avx512_bf16, 2);
          std::swap(shape.m, shape.n);
          check({shape, k, true, false, 0.5F}, Isa::avx512_bf16, 2);
          check({shape, k / 2, false, true, 2.0F}, Isa::avx512_bf16, 2);
        }
}

TEST(Matmul, no_live_reduction_rows_leave_bias_or_old_values) {
  MatmulShape shape{.m = 5, .n = 20, .k = 9, .a_transposed = true};
  check({shape, 0, false, true}, Isa::avx2, 1);
  check({shape, 0, true, false}, Isa::avx2, 1);
}

TEST(Matmul, a_row_has_the_same_bits_at_any_place_and_live_count) {
  for_each_kind([](MatmulShape shape, Isa isa) {
    if (shape.a_transposed) return;
    shape.m = 29;
    shape.n = 47;
    shape.k = 2100;
    shape.adapter = 20;
    const Problem whole{shape, shape.m, false, true, 0.3F};
    Data data(whole);
    const auto row_bytes = static_cast<size_t>(shape.k * size_of(shape.a));
    const auto adapter_bytes = static_cast<size_t>(shape.adapter * size_of(shape.a));
    for (size_t i = 1; i < static_cast<size_t>(shape.m); ++i) {
      std::memcpy(data.a.data() + i * row_bytes, data.a.data(), row_bytes);
      std::memcpy(data.adapter_a.data() + i * adapter_bytes, data.adapter_a.data(), adapter_bytes);
    }
    const auto matmul = Matmul::create(shape, isa, 2);
    run(*matmul, whole, data);
    const auto c_bytes = static_cast<size_t>(shape.n * size_of(shape.c));
    for (size_t i = 1; i < static_cast<size_t>(shape.m); ++i)
      ASSERT_EQ(std::memcmp(data.c.data(), data.c.data() + i * c_bytes, c_bytes), 0) << whole << " row " << i;
    Data few = data;
    run(*matmul, {shape, 3, false, true, 0.3F}, few);
    EXPECT_EQ(few.c, data.c) << whole;
    shape.m = 1;
    run(*Matmul::create(shape, isa, 1), {shape, 1, false, true, 0.3F}, few);
    EXPECT_EQ(few.c, data.c) << whole << ": alone";
  });
}

// `rows` x `columns` of an operand whose rows are `stride` elements apart.
Operand corner(const Operand& whole, DType type, int64_t rows, int64_t columns, int64_t stride) {
  Operand part(type, rows * columns);
  for (int64_t i = 0; i < rows; ++i)
    std::memcpy(part.data() + i * columns * size_of(type), whole.data() + i * stride * size_of(type),
                static_cast<size_t>(columns * size_of(type)));
  return part;
}

// Operands of few rows or columns are read where they lie, those of many are packed.
TEST(Matmul, an_element_has_the_same_bits_whatever_the_number_of_rows_and_columns) {
  for_each_kind([](MatmulShape shape, Isa isa) {
    if (shape.a != DType::f32 || shape.c != DType::f32) return;
    shape.m = 150;
    shape.n = 200;
    shape.k = 1100;
    const auto product = [&](const MatmulShape& of, Data& data) {
      const Problem p{of, of.a_transposed ? of.k : of.m, false, true, 0.3F};
      run(*Matmul::create(of, isa, 1), p, data);
    };
    const Problem whole{shape, shape.a_transposed ? shape.k : shape.m};
    Data all(whole);
    const Data given = all;
    product(shape, all);
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{150, 16}, {150, 40}, {16, 200}, {9, 33}}) {
      MatmulShape few = shape;
      few.m = m;
      few.n = n;
      Data data({few, 0});
      data.a = shape.a_transposed ? corner(given.a, shape.a, shape.k, m, shape.m)
                                  : corner(given.a, shape.a, m, shape.k, shape.k);
      data.b = shape.b_transposed ? corner(given.b, shape.b, n, shape.k, shape.k)
                                  : corner(given.b, shape.b, shape.k, n, shape.n);
      data.bias = corner(given.bias, shape.c, 1, n, n);
      product(few, data);
      EXPECT_EQ(data.c, corner(all.c, shape.c, m, n, shape.n)) << Problem{few, 0};
    }
  });
}

TEST(Matmul, repeating_a_call_repeats_its_bits) {
  for_each_kind([](MatmulShape shape, Isa isa) {
    shape.m = 40;
    shape.n = 50;
    shape.k = 1100;
    const Problem p{shape, shape.a_transposed ? shape.k : shape.m, true};
    const Data before(p);
    const auto matmul = Matmul::create(shape, isa, 2);
    Data once = before;
    Data twice = before;
    run(*matmul, p, once);
    run(*matmul, p, twice);
    EXPECT_EQ(once.c, twice.c) << p;
  });
}

TEST(Matmul, zeros_beyond_live_give_the_bits_of_a_shorter_reduction) {
  for_each_kind([](MatmulShape shape, Isa isa) {
    if (!shape.a_transposed) return;
    shape.m = 20;
    shape.n = 40;
    shape.k = 2500;
    const Problem p{shape, 1777};
    Data data(p);
    for (int64_t i = p.live * shape.m; i < shape.k * shape.m; ++i) data.a.set(i, 0);
    Data whole = data;
    const auto matmul = Matmul::create(shape, isa, 2);
    run(*matmul, p, data);
    run(*matmul, {shape, shape.k}, whole);
    EXPECT_EQ(data.c, whole.c) << p;
  });
}

TEST(Matmul, kernels_follow_the_instruction_set_and_the_types) {
  const MatmulShape f32{.m = 2, .n = 2, .k = 2};
  MatmulShape bf16 = f32;
  bf16.a = bf16.b = DType::bf16;
  EXPECT_EQ(Matmul::create(bf16, Isa::avx2, 1)->kernel_id(), "own-avx2-f32");
  EXPECT_EQ(Matmul::create(bf16, Isa::avx512, 1)->kernel_id(), "own-avx512-f32");
  EXPECT_EQ(Matmul::create(f32, Isa::avx512_bf16, 1)->kernel_id(), "own-avx512-f32");
  EXPECT_EQ(Matmul::create(bf16, Isa::avx512_bf16, 1)->kernel_id(), "own-avx512-bf16");
  EXPECT_EQ(Matmul::create(f32, Isa::amx, 1)->kernel_id(), "own-avx512-f32");
  EXPECT_EQ(Matmul::create(bf16, Isa::amx, 1)->kernel_id(), "own-amx-bf16");
  MatmulShape f16 = f32;
  f16.a = f16.b = DType::f16;
  EXPECT_EQ(Matmul::create(f16, Isa::amx, 1)->kernel_id(), "own-avx2-f16");
  MatmulShape mixed = f32;
  mixed.a = DType::bf16;
  MatmulShape over_rows = f32;
  over_rows.a_transposed = true;
  over_rows.adapter = 1;
  EXPECT_THROW(Matmul::create(over_rows, Isa::avx2, 1), InternalError);
  EXPECT_THROW(Matmul::create(mixed, Isa::avx2, 1), InternalError);
  f16.c = DType::bf16;
  EXPECT_THROW(Matmul::create(f16, Isa::avx2, 1), InternalError);
}

// Unpinned threads may share a CPU, and then each barrier takes milliseconds.
class PinnedThreads : public testing::Environment {
  void SetUp() override { start_threads(std::min(2, available_cpus())); }
};
const auto* const pinned = testing::AddGlobalTestEnvironment(new PinnedThreads);

}  // namespace
}  // namespace plimsoll
