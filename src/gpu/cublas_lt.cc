#include "gpu/cublas_lt.h"

#include <algorithm>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/shared_library.h"
#include "gpu/cublas_lt_abi.h"

namespace plimsoll::gpu {
namespace {

namespace fs = std::filesystem;
using namespace cublas_lt;

constexpr const char* kVariable = "PLIMSOLL_CUBLASLT";
constexpr int kVersions[] = {13, 12};

SoughtLibrary sought() {
  SoughtLibrary library{.variable = kVariable, .names = {}, .packages = {"cu13", "cublas"}};
  for (const int version : kVersions) library.names.push_back(formatted("libcublasLt.so.{}", version));
  return library;
}

// The functions of an opened library; in `missing` the first that it lacks.
Calls find_calls(void* opened, std::string& missing) {
  Calls calls;
  const auto find = [&](auto& function, const char* name) {
    if (!find_function(opened, name, function) && missing.empty()) missing = name;
  };
  find(calls.version, "cublasLtGetVersion");
  find(calls.create, "cublasLtCreate");
  find(calls.destroy, "cublasLtDestroy");
  find(calls.matmul_desc_create, "cublasLtMatmulDescCreate");
  find(calls.matmul_desc_destroy, "cublasLtMatmulDescDestroy");
  find(calls.matmul_desc_set, "cublasLtMatmulDescSetAttribute");
  find(calls.layout_create, "cublasLtMatrixLayoutCreate");
  find(calls.layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(calls.layout_set, "cublasLtMatrixLayoutSetAttribute");
  find(calls.preference_create, "cublasLtMatmulPreferenceCreate");
  find(calls.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(calls.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(calls.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(calls.matmul, "cublasLtMatmul");
  return calls;
}

int type_of(DType dtype) { return dtype == DType::f32 ? kR32F : dtype == DType::f16 ? kR16F : kR16BF; }

// The status means that the library does not compute such a product.
bool is_refusal(int status) {
  return status == kInvalidValue || status == kNotSupported || status == kArchMismatch;
}

[[noreturn]] void fail(const char* call, int status) {
  throw StoppedError(
      formatted("cuBLASLt: {} ended with status {}\n  PLIMSOLL_CUBLASLT=none runs without it", call, status));
}

// Objects of the library's that end with this one. Its matrices are columns side by side: what is a row here
// is a column there, and C^T = B^T A^T.
class Product : public LibraryProduct {
 public:
  // `workspace_bytes` of the algorithm are found by choose().
  Product(const Calls& calls, Handle handle, ProductUse& use, const LibraryMatmul& matmul)
      : calls_(calls), handle_(handle), use_(use), matmul_(matmul), live_(planned_rows()) {
    const MatmulShape& s = matmul.shape;
    need(calls.matmul_desc_create(&product_, matmul.tf32 ? kCompute32FFastTf32 : kCompute32F, kR32F),
         "cublasLtMatmulDescCreate");
    set_product(kTransA, int32_t{s.b_transposed ? kTransposed : kNotTransposed});
    set_product(kTransB, int32_t{s.a_transposed ? kTransposed : kNotTransposed});
    if (matmul.bias != nullptr) {
      set_product(kEpilogue, int32_t{kEpilogueBias});
      set_product(kBiasPointer, matmul.bias);
      set_product(kBiasDataType, int32_t{type_of(s.c)});
    }
    a_ = layout(s.a, s.a_transposed ? s.k : s.m, s.a_transposed ? s.m : s.k);
    b_ = layout(s.b, s.b_transposed ? s.n : s.k, s.b_transposed ? s.k : s.n);
    c_ = layout(s.c, s.m, s.n);
  }
  ~Product() override {
    for (MatrixLayout one : {a_, b_, c_})
      if (one != nullptr) calls_.layout_destroy(one);
    if (product_ != nullptr) calls_.matmul_desc_destroy(product_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  // False: the library has no algorithm for it.
  bool choose() {
    Preference preference = nullptr;
    need(calls_.preference_create(&preference), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](PreferenceAttribute name, auto value) {
      need(calls_.preference_set(preference, name, &value, sizeof value),
           "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(kMaxWorkspaceBytes, uint64_t{matmul_.workspace.size()});
    // Parts of a sum meet in the workspace, in order: never in C, where the first to come would be the first.
    prefer(kReductionSchemeMask, uint32_t{kReductionOfComputeType});
    prefer(kMinAlignmentA, alignment(matmul_.b));
    prefer(kMinAlignmentB, alignment(matmul_.a));
    prefer(kMinAlignmentC, alignment(matmul_.c));
    prefer(kMinAlignmentD, alignment(matmul_.c));
    int found = 0;
    const int status = calls_.heuristic(handle_, product_, b_, a_, c_, c_, preference, 1, &chosen_, &found);
    calls_.preference_destroy(preference);
    if (status != kSuccess && !is_refusal(status)) fail("cublasLtMatmulAlgoGetHeuristic", status);
    return status == kSuccess && found > 0 && chosen_.state == kSuccess;
  }

  [[nodiscard]] bool run(void* stream, int64_t live, bool adds) const override {
    if (live != live_) set_live(live);
    const bool done = multiply(stream, matmul_.c, adds, matmul_.workspace.size());
    if (!done) ++use_.refused_runs;
    return done;
  }

  void load(void* stream) const override {
    constexpr int64_t kRowsAtMost = 64, kAligned = 256;
    const MatmulShape& s = matmul_.shape;
    const auto size = static_cast<int64_t>(matmul_.workspace.size());
    const auto own = static_cast<int64_t>(chosen_.workspace_bytes + kAligned - 1) / kAligned * kAligned;
    const int64_t rows = std::min({kRowsAtMost, s.m, (size - own) / (s.n * size_of(s.c))});
    if (size < own || rows < 1) return;
    set_rows(rows);
    // A refusal of so few rows leaves its code to the first run.
    (void)multiply(stream, matmul_.workspace.data() + own, false, static_cast<size_t>(own));
    set_rows(s.m);
  }

 private:
  // The rows that LibraryProduct::run counts.
  [[nodiscard]] int64_t planned_rows() const {
    return matmul_.shape.a_transposed ? matmul_.shape.k : matmul_.shape.m;
  }

  bool multiply(void* stream, void* c, bool adds, size_t workspace_bytes) const {
    const float alpha = matmul_.alpha, beta = adds ? 1.0F : 0.0F;
    const int status = calls_.matmul(handle_, product_, &alpha, matmul_.b, b_, matmul_.a, a_, &beta, c, c_, c,
                                     c_, &chosen_.algo, matmul_.workspace.data(), workspace_bytes, stream);
    if (status != kSuccess && !is_refusal(status)) fail("cublasLtMatmul", status);
    return status == kSuccess;
  }

  static void need(int status, const char* call) {
    if (status != kSuccess) fail(call, status);
  }
  template <class T>
  void set_product(MatmulAttribute name, const T& value) {
    need(calls_.matmul_desc_set(product_, name, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }
  [[nodiscard]] MatrixLayout layout(DType dtype, int64_t rows, int64_t columns) const {
    MatrixLayout made = nullptr;
    need(calls_.layout_create(&made, type_of(dtype), static_cast<uint64_t>(columns),
                              static_cast<uint64_t>(rows), columns),
         "cublasLtMatrixLayoutCreate");
    return made;
  }
  void set_layout(MatrixLayout of, LayoutAttribute name, int64_t value) const {
    const auto unsigned_value = static_cast<uint64_t>(value);
    need(calls_.layout_set(of, name, &unsigned_value, sizeof unsigned_value),
         "cublasLtMatrixLayoutSetAttribute");
  }
  // Sets the live number of rows of A, and of B or C, as they are stored.
  void set_live(int64_t live) const {
    set_layout(a_, kColumns, live);
    set_layout(matmul_.shape.a_transposed ? b_ : c_, kColumns, live);
    live_ = live;
  }
  // Sets the rows of C.
  void set_rows(int64_t rows) const {
    set_layout(a_, matmul_.shape.a_transposed ? kRows : kColumns, rows);
    set_layout(c_, kColumns, rows);
  }
  // The alignment of an address in an arena; no more than is promised of all of them, so that the choice is
  // the same wherever a plan puts the product.
  static uint32_t alignment(const void* address) {
    constexpr uint32_t kPromised = 64;
    const auto bits = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(address) % kPromised);
    return bits == 0 ? kPromised : bits & (~bits + 1);
  }

  const Calls& calls_;
  Handle handle_;
  ProductUse& use_;
  LibraryMatmul matmul_;
  MatmulDesc product_ = nullptr;
  MatrixLayout a_ = nullptr, b_ = nullptr, c_ = nullptr;
  HeuristicResult chosen_{};
  mutable int64_t live_;  // as the layouts have it
};

// It stays loaded: what it registered with CUDA ends with the process.
class CublasLt : public ProductLibrary {
 public:
  CublasLt(const Calls& calls, Handle handle) : calls_(calls), handle_(handle) {}
  ~CublasLt() override { calls_.destroy(handle_); }
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  [[nodiscard]] std::string name() const override {
    const size_t version = calls_.version();
    return formatted("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }
  [[nodiscard]] std::unique_ptr<LibraryProduct> find(const LibraryMatmul& matmul) override {
    auto product = std::make_unique<Product>(calls_, handle_, use, matmul);
    if (!product->choose()) return nullptr;
    return product;
  }

 private:
  Calls calls_;
  Handle handle_;
};

// One file; nullptr, with the reason.
std::unique_ptr<ProductLibrary> open_file(const fs::path& file, std::string& reason) {
  void* const opened = open_library(file.string(), reason);
  if (opened == nullptr) return nullptr;
  std::string missing;
  const Calls calls = find_calls(opened, missing);
  if (!missing.empty()) {
    reason = formatted("{}: has no {}", file.string(), missing);
    return nullptr;
  }
  constexpr size_t kOldest = 120000, kNewest = 140000;  // 12.0.0, and before 14
  if (const size_t version = calls.version(); version < kOldest || version >= kNewest) {
    reason = formatted("{}: is of version {}; versions 12 and 13 are supported", file.string(), version);
    return nullptr;
  }
  Handle handle = nullptr;
  if (const int status = calls.create(&handle); status != kSuccess) {
    reason = formatted("{}: cublasLtCreate ended with status {}", file.string(), status);
    return nullptr;
  }
  return std::make_unique<CublasLt>(calls, handle);
}

}  // namespace

std::vector<fs::path> cublas_lt_places(const ReadVariable& variable) {
  return library_places(sought(), variable);
}

OpenedLibrary open_cublas_lt(const ReadVariable& variable) {
  OpenedLibrary opened;
  opened.library = open_first(sought(), variable, open_file, opened.reason);
  const bool is_off = cublas_lt_places(variable).empty();
  if (opened.library != nullptr || is_off) return opened;
  if (variable(kVariable) != nullptr)
    throw UsageError(
        formatted("{}: {}; name libcublasLt.so.13 or .12, or set none to use this program's own kernels",
                  kVariable, opened.reason));
  return opened;
}

}  // namespace plimsoll::gpu
