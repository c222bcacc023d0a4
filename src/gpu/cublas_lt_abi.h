// The part of cuBLASLt's binary interface that is used, as NVIDIA documents it: the same in its versions 12
// and 13. A build needs none of its headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plimsoll::gpu::cublas_lt {

using Handle = void*;
using MatmulDesc = void*;
using MatrixLayout = void*;
using Preference = void*;

// cublasStatus_t
enum Status : int {
  kSuccess = 0,
  kInvalidValue = 7,
  kArchMismatch = 8,
  kNotSupported = 15,
};
// cudaDataType, cublasComputeType_t, cublasOperation_t
enum DataType : int { kR32F = 0, kR16F = 2, kR16BF = 14 };
enum ComputeType : int { kCompute32F = 68, kCompute32FFastTf32 = 77 };
enum Operation : int32_t { kNotTransposed = 0, kTransposed = 1 };

// cublasLtMatmulDescAttributes_t, cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t
enum MatmulAttribute : int {
  kTransA = 3,
  kTransB = 4,
  kEpilogue = 7,
  kBiasPointer = 8,
  kBiasDataType = 26,
};
enum LayoutAttribute : int { kRows = 2, kColumns = 3, kLeadingDimension = 4 };
enum PreferenceAttribute : int {
  kMaxWorkspaceBytes = 1,
  kReductionSchemeMask = 3,
  kMinAlignmentA = 5,
  kMinAlignmentB = 6,
  kMinAlignmentC = 7,
  kMinAlignmentD = 8,
};
// cublasLtEpilogue_t, cublasLtReductionScheme_t
enum Epilogue : int { kEpilogueBias = 4 };
enum ReductionScheme : uint32_t { kReductionOfComputeType = 2 };

struct Algo {
  uint64_t data[8];
};
struct HeuristicResult {
  Algo algo;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

struct Calls {
  size_t (*version)() = nullptr;
  int (*create)(Handle*) = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*matmul_desc_create)(MatmulDesc*, int compute_type, int scale_type) = nullptr;
  int (*matmul_desc_destroy)(MatmulDesc) = nullptr;
  int (*matmul_desc_set)(MatmulDesc, int attribute, const void*, size_t) = nullptr;
  int (*layout_create)(MatrixLayout*, int type, uint64_t rows, uint64_t columns, int64_t leading) = nullptr;
  int (*layout_destroy)(MatrixLayout) = nullptr;
  int (*layout_set)(MatrixLayout, int attribute, const void*, size_t) = nullptr;
  int (*preference_create)(Preference*) = nullptr;
  int (*preference_destroy)(Preference) = nullptr;
  int (*preference_set)(Preference, int attribute, const void*, size_t) = nullptr;
  int (*heuristic)(Handle, MatmulDesc, MatrixLayout a, MatrixLayout b, MatrixLayout c, MatrixLayout d,
                   Preference, int requested, HeuristicResult*, int* found) = nullptr;
  int (*matmul)(Handle, MatmulDesc, const void* alpha, const void* a, MatrixLayout, const void* b,
                MatrixLayout, const void* beta, const void* c, MatrixLayout, void* d, MatrixLayout,
                const Algo*, void* workspace, size_t workspace_bytes, void* stream) = nullptr;
};

}  // namespace plimsoll::gpu::cublas_lt
