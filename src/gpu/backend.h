// Everything that is compiled once for the emulated card and once for CUDA's lies in an inline namespace of
// its own, so that one program holds both: nvcc's part, and what g++ compiles with PLIMSOLL_CUDA, in on_cuda.
#pragma once

#if defined(__CUDACC__) && !defined(PLIMSOLL_CUDA)
#define PLIMSOLL_CUDA 1
#endif

#ifdef PLIMSOLL_CUDA
#define PLIMSOLL_GPU on_cuda
#else
#define PLIMSOLL_GPU on_emulator
#endif
