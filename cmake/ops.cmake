# plimsoll_op_family(a.cc a_cpu.cc a_simd.cc a_gpu.cu a_test.cc ... [WITHOUT_BF16 b_simd.cc ...] [NVCC_ALONE d_gpu.cu ...]
#                    [TESTS c_test.cc ...])
#   The files of a family of ops, a folder of src/ops. What a file is, its suffix says:
#     _simd.cc                        a kernel, compiled for each instruction set; WITHOUT_BF16: for all but the BF16 instructions,
#                                     where a kernel neither stores much bf16 nor multiplies it
#     _cpu.cc                         bindings of kernels for CPUs
#     .cu, _gpu.cc                    kernels for GPUs, and their bindings: those of a family are one file to nvcc, but for those that
#                                     take it longest (NVCC_ALONE)
#     _kernels_test.cc, _golden_test.cc    a program of its own, of that name
#     _gpu_..._test.cc                a test on the emulated card
#     _test.cc                        cases of ops, which the harness asks (TESTS: a test beside it)
#     .cc                             rules
# src/ops/CMakeLists.txt makes libraries and programs of them (plimsoll_op_files).
function(plimsoll_op_family)
  cmake_parse_arguments(arg "" "" "WITHOUT_BF16;NVCC_ALONE;TESTS" ${ARGN})
  get_filename_component(_family "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  foreach(_file IN LISTS arg_UNPARSED_ARGUMENTS)
    if(_file MATCHES "_simd\\.cc$")
      set(_kind simd)
    elseif(_file MATCHES "\\.cu$")
      set(_kind gpu_kernels)
    elseif(_file MATCHES "_(kernels|golden)_test\\.cc$")
      set(_kind programs)
    elseif(_file MATCHES "_gpu_.*_test\\.cc$")
      set(_kind gpu_tests)
    elseif(_file MATCHES "_test\\.cc$")
      set(_kind cases)
    elseif(_file MATCHES "(^|_)cpu(_kernels)?\\.cc$")
      set(_kind cpu)
    elseif(_file MATCHES "(^|_)gpu(_kernels)?\\.cc$")
      set(_kind gpu)
    else()
      set(_kind rules)
    endif()
    plimsoll_op_file(${_kind} ${_file})
    if(_kind STREQUAL gpu_kernels)
      plimsoll_nvcc_file(${_family} ${_file})
    endif()
  endforeach()
  foreach(_file IN LISTS arg_NVCC_ALONE)
    plimsoll_op_file(gpu_kernels ${_file})
    string(REGEX REPLACE "_gpu\\.cu$" "_alone" _name ${_file})
    plimsoll_nvcc_file(${_name} ${_file})
  endforeach()
  foreach(_file IN LISTS arg_WITHOUT_BF16)
    plimsoll_op_file(simd_without_bf16 ${_file})
  endforeach()
  foreach(_file IN LISTS arg_TESTS)
    plimsoll_op_file(tests ${_file})
  endforeach()
endfunction()

function(plimsoll_op_file kind file)
  file(RELATIVE_PATH _path "${CMAKE_SOURCE_DIR}/src/ops" "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
  set_property(GLOBAL APPEND PROPERTY PLIMSOLL_OPS_${kind} ${_path})
endfunction()

function(plimsoll_nvcc_file family file)
  file(RELATIVE_PATH _path "${CMAKE_SOURCE_DIR}/src" "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
  set_property(GLOBAL APPEND PROPERTY PLIMSOLL_NVCC_FAMILIES ${family})
  set_property(GLOBAL APPEND PROPERTY PLIMSOLL_NVCC_${family} ${_path})
endfunction()

# plimsoll_op_files(VARIABLE KIND): all files of a kind, relative to src/ops, by their names, whatever family they are of.
function(plimsoll_op_files variable kind)
  get_property(_paths GLOBAL PROPERTY PLIMSOLL_OPS_${kind})
  list(TRANSFORM _paths REPLACE "^(.*/)?([^/]+)$" "\\2|\\0")
  list(SORT _paths)
  list(TRANSFORM _paths REPLACE "^[^|]+\\|" "")
  set(${variable} ${_paths} PARENT_SCOPE)
endfunction()

# plimsoll_gpu_test(NAME SOURCES ... DEPS ...): a test over the cases of all ops, in thirds.
function(plimsoll_gpu_test name)
  plimsoll_test(${name} COMPUTES IN_THIRDS ${ARGN})
  target_sources(${name} PRIVATE $<TARGET_OBJECTS:op_cases> ${CMAKE_SOURCE_DIR}/tests/harness/gpu_harness.cc)
  target_link_libraries(${name} PRIVATE plimsoll_ops_cpu plimsoll_passes)
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}/tests")
endfunction()
