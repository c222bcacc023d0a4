// For tests, by PLIMSOLL_CUBLASLT: a cuBLASLt whose products are plain loops over the host's memory. What
// FAKE_CUBLASLT says is read at every call, words with blanks between them:
//
//   version=N    what it says it is; 130100 otherwise
//   create=N     how cublasLtCreate ends
//   knows=none   there is an algorithm for nothing
//   knows=N      only for C of N columns
//   rows=N       the algorithm chosen is refused for another number of rows than N
//   fails=N      how each product ends, computed or not
//
// A stream is the emulated card's, which takes the product to compute it later; without one it is computed at
// once.
//
// Values are those of NVIDIA's headers, not of the program's own: this is the other side.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gpu/stream_handle.h"

namespace {

constexpr int kInvalid = 7, kNotSupported = 15;
constexpr int kF32 = 0, kF16 = 2, kBf16 = 14;

struct MatmulDesc {
  int compute = 0, trans_a = 0, trans_b = 0, epilogue = 1, bias_type = -1;
  const void* bias = nullptr;
};
struct Layout {
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t leading = 0;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reduction = 7, alignments[4] = {256, 256, 256, 256};
};
struct Result {
  uint64_t algo[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

long products = 0;

// -1: the word is not there, -2: it is no number.
long word(const char* name) {
  const char* said = std::getenv("FAKE_CUBLASLT");
  const std::string text = std::string(" ") + (said == nullptr ? "" : said) + " ";
  const size_t at = text.find(std::string(" ") + name + "=");
  if (at == std::string::npos) return -1;
  const char* const value = text.c_str() + at + std::strlen(name) + 2;
  char* end = nullptr;
  const long number = std::strtol(value, &end, 10);
  return end == value ? -2 : number;
}

float value(const void* of, int type, int64_t i) {
  if (type == kF32) return static_cast<const float*>(of)[i];
  if (type == kF16) return static_cast<float>(static_cast<const _Float16*>(of)[i]);
  const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(of)[i]) << 16U;
  float x = 0;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
void put(void* to, int type, int64_t i, float x) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof x);
  if (type == kF32)
    static_cast<float*>(to)[i] = x;
  else if (type == kF16)
    static_cast<_Float16*>(to)[i] = static_cast<_Float16>(x);
  else  // to nearest, ties to even; a NaN stays one
    static_cast<uint16_t*>(to)[i] =
        static_cast<uint16_t>(x != x ? 0x7FC0U : (bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U);
}
float tf32(float x) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof x);
  bits = (bits + 0x1000U) & ~0x1FFFU;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

template <class T>
int take(T& to, const void* from, size_t size) {
  if (size != sizeof(T)) return kInvalid;
  std::memcpy(&to, from, size);
  return 0;
}

// An element of op(M), columns side by side.
float element(const void* m, const Layout& l, int transposed, int64_t row, int64_t column) {
  return value(m, l.type, transposed != 0 ? row * l.leading + column : column * l.leading + row);
}

bool fits(const Layout& l) { return l.leading >= static_cast<int64_t>(l.rows); }

bool is_aligned(const void* address, uint64_t to) { return reinterpret_cast<uintptr_t>(address) % to == 0; }

}  // namespace

extern "C" {

// The number of products that were computed.
long fake_cublas_lt_products() { return products; }

size_t cublasLtGetVersion() {
  const long version = word("version");
  return version < 0 ? 130100 : static_cast<size_t>(version);
}
int cublasLtCreate(void** handle) {
  *handle = &products;
  const long status = word("create");
  return status < 0 ? 0 : static_cast<int>(status);
}
int cublasLtDestroy(void* handle) { return handle == &products ? 0 : kInvalid; }

int cublasLtMatmulDescCreate(MatmulDesc** desc, int compute, int scale) {
  *desc = new MatmulDesc;
  (*desc)->compute = compute;
  return (compute == 68 || compute == 77) && scale == kF32 ? 0 : kInvalid;
}
int cublasLtMatmulDescDestroy(MatmulDesc* desc) {
  delete desc;
  return 0;
}
int cublasLtMatmulDescSetAttribute(MatmulDesc* desc, int name, const void* from, size_t size) {
  switch (name) {
    case 3:
      return take(desc->trans_a, from, size);
    case 4:
      return take(desc->trans_b, from, size);
    case 7:
      return take(desc->epilogue, from, size);
    case 8:
      return take(desc->bias, from, size);
    case 26:
      return take(desc->bias_type, from, size);
    default:
      return kInvalid;
  }
}

int cublasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  *layout = new Layout{type, rows, columns, leading};
  return type == kF32 || type == kF16 || type == kBf16 ? 0 : kInvalid;
}
int cublasLtMatrixLayoutDestroy(Layout* layout) {
  delete layout;
  return 0;
}
int cublasLtMatrixLayoutSetAttribute(Layout* layout, int name, const void* from, size_t size) {
  switch (name) {
    case 2:
      return take(layout->rows, from, size);
    case 3:
      return take(layout->columns, from, size);
    case 4:
      return take(layout->leading, from, size);
    default:
      return kInvalid;
  }
}

int cublasLtMatmulPreferenceCreate(Preference** preference) {
  *preference = new Preference;
  return 0;
}
int cublasLtMatmulPreferenceDestroy(Preference* preference) {
  delete preference;
  return 0;
}
int cublasLtMatmulPreferenceSetAttribute(Preference* preference, int name, const void* from, size_t size) {
  if (name == 1) return take(preference->workspace, from, size);
  if (name == 3) return take(preference->reduction, from, size);
  if (name >= 5 && name <= 8) return take(preference->alignments[name - 5], from, size);
  return kInvalid;
}

// The algorithm remembers what it was chosen for. It takes half of the workspace that it may have.
int cublasLtMatmulAlgoGetHeuristic(void* handle, const MatmulDesc* desc, const Layout* a, const Layout* b,
                                   const Layout* c, const Layout* d, const Preference* preference,
                                   int requested, Result* result, int* found) {
  *found = 0;
  if (handle != &products || requested < 1 || c != d || preference->reduction != 2) return kInvalid;
  const long knows = word("knows");
  // A column here is a row there.
  if (knows == -2 || (knows >= 0 && c->rows != static_cast<uint64_t>(knows))) return kNotSupported;
  *found = 1;
  *result = {};
  result->algo[0] = static_cast<uint64_t>(desc->compute) << 32U | static_cast<uint64_t>(a->type) << 16U |
                    static_cast<uint64_t>(b->type) << 8U | static_cast<uint64_t>(c->type);
  result->workspace = preference->workspace / 2;
  for (int i = 0; i < 4; ++i) result->algo[1 + i] = preference->alignments[i];
  result->algo[5] = result->workspace;
  return 0;
}

int cublasLtMatmul(void* handle, const MatmulDesc* desc, const float* alpha, const void* a,
                   const Layout* a_of, const void* b, const Layout* b_of, const float* beta, const void* c,
                   const Layout* c_of, void* d, const Layout* d_of, const uint64_t* algo, void* workspace,
                   size_t workspace_bytes, void* stream) {
  const auto m = static_cast<int64_t>(d_of->rows), n = static_cast<int64_t>(d_of->columns);
  const auto k = static_cast<int64_t>(desc->trans_a != 0 ? a_of->rows : a_of->columns);
  const bool shapes = static_cast<int64_t>(desc->trans_a != 0 ? a_of->columns : a_of->rows) == m &&
                      static_cast<int64_t>(desc->trans_b != 0 ? b_of->columns : b_of->rows) == k &&
                      static_cast<int64_t>(desc->trans_b != 0 ? b_of->rows : b_of->columns) == n &&
                      fits(*a_of) && fits(*b_of) && fits(*c_of) && c_of->rows == d_of->rows &&
                      c_of->columns == d_of->columns;
  const uint64_t types = static_cast<uint64_t>(desc->compute) << 32U |
                         static_cast<uint64_t>(a_of->type) << 16U | static_cast<uint64_t>(b_of->type) << 8U |
                         static_cast<uint64_t>(c_of->type);
  if (handle != &products || !shapes || m < 1 || n < 1 || k < 1 || types != algo[0]) return kInvalid;
  if (!is_aligned(a, algo[1]) || !is_aligned(b, algo[2]) || !is_aligned(c, algo[3]) ||
      !is_aligned(d, algo[4]))
    return kInvalid;
  if (workspace_bytes < algo[5] || !is_aligned(workspace, 256)) return kInvalid;
  const long rows = word("rows");
  if (rows >= 0 && n != rows) return kNotSupported;
  if (const long status = word("fails"); status >= 0) return static_cast<int>(status);
  // The host's part of it is read now.
  const auto compute = [=, desc = *desc, alpha = *alpha, beta = *beta, a_of = *a_of, b_of = *b_of,
                        c_of = *c_of, d_of = *d_of, used = algo[5]] {
    std::memset(workspace, 0xFF, used);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < m; ++i) {
        float sum = 0;
        for (int64_t l = 0; l < k; ++l) {
          const float x = element(a, a_of, desc.trans_a, i, l), y = element(b, b_of, desc.trans_b, l, j);
          sum += desc.compute == 77 ? tf32(x) * tf32(y) : x * y;
        }
        float result = sum * alpha;
        if (beta != 0) result += beta * value(c, c_of.type, j * c_of.leading + i);
        if (desc.epilogue == 4) result += value(desc.bias, desc.bias_type, i);
        put(d, d_of.type, j * d_of.leading + i, result);
      }
    ++products;
  };
  if (stream == nullptr) {
    compute();
  } else {
    static_cast<plimsoll::gpu::LaunchTaker*>(stream)->take(compute);
  }
  return 0;
}

}  // extern "C"
