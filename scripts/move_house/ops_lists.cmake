# Ops: their rules, and beside them kernels for CPUs and GPUs. Each family of ops is a folder, whose CMakeLists.txt names its
# files; what a file is, its suffix says (cmake/ops.cmake). These are of no family:
@OWN@
foreach(_family IN ITEMS @FAMILIES@)
  add_subdirectory(${_family})
endforeach()
foreach(_kind IN ITEMS rules cpu simd simd_without_bf16 gpu gpu_kernels cases tests programs gpu_tests)
  plimsoll_op_files(_${_kind} ${_kind})
endforeach()

plimsoll_library(ops NO_UNITY SOURCES ${_rules} DEPS plimsoll_graph)
if(PLIMSOLL_FUZZ)  # rules alone
  return()
endif()

# Kernels for CPUs, and their bindings. Those that store much bf16, or multiply it, also use the BF16 instructions.
plimsoll_library(ops_cpu NO_UNITY SOURCES ${_cpu} DEPS plimsoll_ops plimsoll_cpu OpenMP::OpenMP_CXX)
plimsoll_simd(plimsoll_ops_cpu ISAS avx2 avx2_f16 avx512 avx512_bf16 SOURCES ${_simd})
plimsoll_simd(plimsoll_ops_cpu ${_simd_without_bf16})

# Kernels for GPUs, and their bindings: for the emulated card, and by nvcc.
plimsoll_emulated(plimsoll_ops_gpu KERNELS ${_gpu_kernels} SOURCES ${_gpu})
target_link_libraries(plimsoll_ops_gpu PUBLIC plimsoll_options plimsoll_ops plimsoll_gpu)
if(PLIMSOLL_HAS_CUDA)
  get_property(_families GLOBAL PROPERTY PLIMSOLL_NVCC_FAMILIES)
  list(REMOVE_DUPLICATES _families)
  foreach(_family IN LISTS _families)
    get_property(_${_family} GLOBAL PROPERTY PLIMSOLL_NVCC_${_family})
  endforeach()
  plimsoll_cuda(plimsoll_ops_cuda FAMILIES ${_families} SOURCES ${_gpu})
  target_link_libraries(plimsoll_ops_cuda PUBLIC plimsoll_options plimsoll_ops plimsoll_gpu)
endif()

# One harness asks every op the same questions; the cases lie beside the rules. Harness and cases serve the tests of kernels
# for CPUs and of those for GPUs.
set(_harness ${CMAKE_SOURCE_DIR}/tests/harness)
add_library(op_cases OBJECT EXCLUDE_FROM_ALL
  ${_harness}/gradient_probe.cc ${_harness}/op_harness.cc ${_harness}/reference.cc ${_harness}/reference_attention.cc
  ${_harness}/reference_linear_attention.cc
  ${_harness}/reference_optimizer.cc
  ${_cases})
target_compile_options(op_cases PRIVATE -O1)
# These name tensors and cases alike; and the last two have others in their place in tests/toys.
plimsoll_unity(op_cases 4 APART loss/linear_log_prob_test.cc norm/rms_norm_test.cc loss/sequence_loss_test.cc
               scan/short_conv_test.cc loss/word_scores_test.cc ${_harness}/reference.cc pointwise/elementwise_test.cc)
target_include_directories(op_cases PRIVATE "${CMAKE_SOURCE_DIR}/tests")
target_link_libraries(op_cases PRIVATE plimsoll_options plimsoll_ops_cpu plimsoll_passes GTest::gmock)
plimsoll_test(ops_cpu_test SOURCES ${_harness}/op_harness_test.cc ${_tests} DEPS plimsoll_ops_cpu plimsoll_passes)
target_sources(ops_cpu_test PRIVATE $<TARGET_OBJECTS:op_cases>)
target_include_directories(ops_cpu_test PRIVATE "${CMAKE_SOURCE_DIR}/tests")
# Its many short parallel regions would spin for cores that other programs hold: 0.8 s become 15 s.
set_tests_properties(ops_cpu_test PROPERTIES ENVIRONMENT OMP_WAIT_POLICY=passive)
foreach(_file IN LISTS _programs)
  get_filename_component(_name ${_file} NAME_WE)
  if(_name STREQUAL attention_kernels_test)
    # Most of it is a reference in double: not optimised at all, as tests are under sanitizers, it took four minutes there.
    plimsoll_test(${_name} OWN_FLAGS SOURCES ${_file} DEPS plimsoll_ops_cpu)
    target_compile_options(${_name} PRIVATE -O1)
  else()
    plimsoll_test(${_name} SOURCES ${_file} DEPS plimsoll_ops_cpu)
  endif()
endforeach()

# The emulated card's fibers are not told to the address sanitizer.
if(NOT PLIMSOLL_SANITIZE)
  plimsoll_gpu_test(ops_gpu_emulated_test SOURCES ${_gpu_tests} ${_harness}/gpu_op_harness_test.cc ${_harness}/gpu_library_test.cc DEPS plimsoll_ops_gpu)
  plimsoll_test(gpu_matmul_test SOURCES ${_harness}/gpu_matmul_test.cc DEPS plimsoll_ops_gpu)
  # The same kernels, with all that they touch watched.
  plimsoll_emulated(plimsoll_ops_gpu_checked KERNELS ${_gpu_kernels} SOURCES ${_gpu} OPTIONS ${PLIMSOLL_CHECKED_FLAGS})
  set_target_properties(plimsoll_ops_gpu_checked PROPERTIES EXCLUDE_FROM_ALL ON)
  target_link_libraries(plimsoll_ops_gpu_checked PUBLIC plimsoll_options plimsoll_ops plimsoll_gpu_check)
  plimsoll_gpu_test(ops_gpu_checked_test SOURCES ${_harness}/gpu_checked_test.cc DEPS plimsoll_ops_gpu_checked)
endif()

add_executable(attention_bench EXCLUDE_FROM_ALL "${CMAKE_SOURCE_DIR}/bench/attention_bench.cc")
target_link_libraries(attention_bench PRIVATE plimsoll_ops_cpu OpenMP::OpenMP_CXX)
add_executable(adamw_bench EXCLUDE_FROM_ALL "${CMAKE_SOURCE_DIR}/bench/adamw_bench.cc")
target_link_libraries(adamw_bench PRIVATE plimsoll_ops_cpu OpenMP::OpenMP_CXX)

# What `make parity` holds against PyTorch's and transformers' modules, and against their and bitsandbytes' optimizers.
add_executable(plimsoll_op_tool EXCLUDE_FROM_ALL "${CMAKE_SOURCE_DIR}/tests/parity/op_tool.cc")
target_link_libraries(plimsoll_op_tool PRIVATE plimsoll_ops_cpu plimsoll_passes)
plimsoll_precompile(plimsoll_op_tool optimised)
add_executable(plimsoll_optimizer_tool EXCLUDE_FROM_ALL "${CMAKE_SOURCE_DIR}/tests/parity/optimizer_tool.cc")
target_link_libraries(plimsoll_optimizer_tool PRIVATE plimsoll_ops_cpu plimsoll_passes)
plimsoll_precompile(plimsoll_optimizer_tool optimised)
