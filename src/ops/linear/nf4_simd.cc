#include <cstring>

#include "cpu/simd.h"
#include "ops/linear/nf4_kernels.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

constexpr int64_t kBytesPerBlock = kNf4Block / 2;
// The piece that one thread takes at a time: 128 KiB of f32.
constexpr int64_t kBlocksPerPiece = 512;
// PyTorch's clamp(min = 1e-38) in bitsandbytes' quantiser, against a division by 0.
constexpr float kSmallestScale = 1e-38F;

struct Levels {
  float values[16];
  float middles[15];  // a weight above middle i has a code above i
};
Levels levels() {
  Levels result{};
  for (int i = 0; i < 16; ++i) result.values[i] = kNf4Levels[i];
  for (int i = 0; i < 15; ++i) result.middles[i] = (result.values[i] + result.values[i + 1]) / 2.0F;
  return result;
}

// NaN where a value is not finite.
float largest_magnitude(const float* block) {
  Vec largest = zero();
  Vec poison = zero();
  for (int64_t i = 0; i < kNf4Block; i += Vec::kWidth) {
    const Vec value = load(block + i);
    largest = max(largest, max(value, zero() - value));
    poison = poison + (value - value);
  }
  return reduce_max(largest) + reduce_add(poison);
}

// Fixed trip counts: the compiler keeps the 16 codes in registers.
void encode(const Levels& levels, const float* scaled, int32_t* codes) {
  for (int64_t begin = 0; begin < kNf4Block; begin += 16) {
    int32_t counts[16] = {};
    for (const float middle : levels.middles)
      for (int64_t i = 0; i < 16; ++i) counts[i] += scaled[begin + i] > middle ? 1 : 0;
    for (int64_t i = 0; i < 16; ++i) codes[begin + i] = counts[i];
  }
}

void quantize_block(const Levels& levels, const float* block, uint8_t* packed, float* absmax) {
  const float largest = largest_magnitude(block);
  *absmax = largest;
  const Vec inverse = set1(1.0F / (largest < kSmallestScale ? kSmallestScale : largest));
  float scaled[kNf4Block];
  for (int64_t i = 0; i < kNf4Block; i += Vec::kWidth)
    store(scaled + i, min(set1(1.0F), max(set1(-1.0F), load(block + i) * inverse)));
  int32_t codes[kNf4Block];
  encode(levels, scaled, codes);
  for (int64_t i = 0; i < kBytesPerBlock; ++i)
    packed[i] = static_cast<uint8_t>(codes[2 * i] << 4 | codes[2 * i + 1]);
}

// bitsandbytes divides here, and raises the scale to the smallest one.
void quantize_partial(const Levels& levels, const float* values, int64_t n, uint8_t* packed, float* absmax) {
  float padded[kNf4Block] = {};
  uint8_t bytes[kBytesPerBlock];
  std::memcpy(padded, values, static_cast<size_t>(n) * sizeof(float));
  const float largest = largest_magnitude(padded);
  const float divisor = largest < kSmallestScale ? kSmallestScale : largest;
  for (int64_t i = 0; i < n; ++i) padded[i] /= divisor;
  float of_scaled = 0;  // 1: the block is scaled already
  quantize_block(levels, padded, bytes, &of_scaled);
  std::memcpy(packed, bytes, static_cast<size_t>(n / 2));
  *absmax = divisor;
}

// The 16 nibbles of 8 bytes in the low half, as bytes: the high nibble of each byte first.
struct Nibbles {
  __m128i first, second;  // of the bytes' lower and upper half
};
Nibbles split(const uint8_t* bytes) {
  const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  const __m128i mask = _mm_set1_epi8(0x0F);
  const __m128i high = _mm_and_si128(_mm_srli_epi16(packed, 4), mask);
  const __m128i low = _mm_and_si128(packed, mask);
  return {_mm_unpacklo_epi8(high, low), _mm_unpackhi_epi8(high, low)};
}

// The block's 16 possible f32 weights in registers, looked up by code.
#if defined(PLIMSOLL_ISA_avx512)
class Table {
 public:
  explicit Table(const float* values) : values_(_mm512_loadu_ps(values)) {}
  void put(float* to, __m128i codes) const {
    _mm512_storeu_ps(to, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(codes), values_));
  }

 private:
  __m512 values_;
};
#else
class Table {
 public:
  explicit Table(const float* values) : low_(_mm256_loadu_ps(values)), high_(_mm256_loadu_ps(values + 8)) {}
  void put(float* to, __m128i codes) const {
    put_eight(to, codes);
    put_eight(to + 8, _mm_srli_si128(codes, 8));
  }

 private:
  void put_eight(float* to, __m128i codes) const {
    const __m256i index = _mm256_cvtepu8_epi32(codes);
    // The permutations look at three bits; the fourth, moved to the sign, chooses between them.
    const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28));
    _mm256_storeu_ps(to, _mm256_blendv_ps(_mm256_permutevar8x32_ps(low_, index),
                                          _mm256_permutevar8x32_ps(high_, index), upper));
  }

  __m256 low_, high_;
};
#endif

// The same in bf16: two byte tables, as a byte shuffle is the only lookup of 16 entries that both
// instruction sets have.
class HalfTable {
 public:
  explicit HalfTable(const float* values) {
    uint16_t rounded[16];
    for (int i = 0; i < 16; i += Vec::kWidth) store(rounded + i, load(values + i));
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rounded));
    const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rounded + 8));
    const __m128i mask = _mm_set1_epi16(0xFF);
    low_ = _mm_packus_epi16(_mm_and_si128(first, mask), _mm_and_si128(second, mask));
    high_ = _mm_packus_epi16(_mm_srli_epi16(first, 8), _mm_srli_epi16(second, 8));
  }
  void put(uint16_t* to, __m128i codes) const {
    const __m128i low = _mm_shuffle_epi8(low_, codes);
    const __m128i high = _mm_shuffle_epi8(high_, codes);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi8(low, high));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8), _mm_unpackhi_epi8(low, high));
  }

 private:
  __m128i low_, high_;
};

template <class T>
struct TableOf {
  using Type = Table;
};
template <>
struct TableOf<uint16_t> {
  using Type = HalfTable;
};

template <class T>
float scale_of(const Nf4Dequantize<T>& a, int64_t block) {
  if (a.absmax != nullptr) return a.absmax[block];
  const float scaled = a.nested_map[a.absmax_codes[block]] * a.nested_absmax[block / kNf4NestedBlock];
  return scaled + *a.nested_offset;
}

template <class T>
void dequantize_block(const Levels& levels, float scale, const uint8_t* codes, T* weight) {
  float values[16];
  for (int i = 0; i < 16; i += Vec::kWidth) store(values + i, load(levels.values + i) * set1(scale));
  const typename TableOf<T>::Type table(values);
  for (int64_t byte = 0; byte < kBytesPerBlock; byte += 16) {
    const Nibbles nibbles = split(codes + byte);
    table.put(weight + 2 * byte, nibbles.first);
    table.put(weight + 2 * byte + 16, nibbles.second);
  }
}

// The last block where it is not full, through a copy: neither codes nor weights may be touched behind their
// ends.
template <class T>
void dequantize_partial(const Levels& levels, float scale, const uint8_t* codes, T* weight, int64_t n) {
  uint8_t padded[kBytesPerBlock] = {};
  T whole[kNf4Block];
  std::memcpy(padded, codes, static_cast<size_t>(n / 2));
  dequantize_block(levels, scale, padded, whole);
  std::memcpy(weight, whole, static_cast<size_t>(n) * sizeof(T));
}

template <class T>
void dequantize_all(const Nf4Dequantize<T>& a) {
  const Levels table = levels();
  const int64_t full = a.count / kNf4Block;
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t piece = 0; piece < (full + kBlocksPerPiece - 1) / kBlocksPerPiece; ++piece) {
    const int64_t begin = piece * kBlocksPerPiece;
    const int64_t end = begin + kBlocksPerPiece < full ? begin + kBlocksPerPiece : full;
    for (int64_t b = begin; b < end; ++b)
      dequantize_block(table, scale_of(a, b), a.codes + b * kBytesPerBlock, a.weight + b * kNf4Block);
  }
  const int64_t rest = a.count - full * kNf4Block;
  if (rest > 0)
    dequantize_partial(table, scale_of(a, full), a.codes + full * kBytesPerBlock, a.weight + full * kNf4Block,
                       rest);
}

}  // namespace

void nf4_quantize(const Nf4Quantize& a) {
  const Levels table = levels();
  const int64_t full = a.count / kNf4Block;
  for (int64_t b = 0; b < full; ++b)
    quantize_block(table, a.values + b * kNf4Block, a.codes + b * kBytesPerBlock, a.absmax + b);
  const int64_t done = full * kNf4Block;
  if (done < a.count)
    quantize_partial(table, a.values + done, a.count - done, a.codes + done / 2, a.absmax + full);
}

void nf4_dequantize(const Nf4Dequantize<float>& a) { dequantize_all(a); }
void nf4_dequantize(const Nf4Dequantize<uint16_t>& a) { dequantize_all(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
