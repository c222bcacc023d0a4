# plimsoll_library(NAME SOURCES ... DEPS ... [TESTS ...] [TEST_DEPS ...])
#   One folder of src/: a static library and, where TESTS are named, one GoogleTest program NAME_test.
# -Wrestrict is off: g++ 12 raises it falsely inside std::string (GCC bug 105651).
set(PLIMSOLL_WARNINGS -Wall -Wextra -Wpedantic -Wconversion -Werror -Wno-restrict)

add_library(plimsoll_options INTERFACE)
target_include_directories(plimsoll_options INTERFACE "${CMAKE_SOURCE_DIR}/src")
target_compile_options(plimsoll_options INTERFACE ${PLIMSOLL_WARNINGS})
if(PLIMSOLL_SANITIZE)
  # Most of a sanitizer build's time goes into optimising checks: hence -O1, and -O0 for the tests themselves, and
  # no checks of every pointer (null, alignment, object-size, vptr), whose faults the address sanitizer meets too.
  # -Wmaybe-uninitialized is off: GCC's manual says that it raises it falsely beside sanitizers.
  target_compile_options(plimsoll_options INTERFACE -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
                         -fno-sanitize=null,alignment,object-size,vptr -fno-omit-frame-pointer -g1
                         -Wno-maybe-uninitialized)
  target_compile_definitions(plimsoll_options INTERFACE PLIMSOLL_VERIFY_PASSES)  # every program between its passes
  target_link_options(plimsoll_options INTERFACE -fsanitize=address,undefined)
endif()

if(PLIMSOLL_FUZZ)
  # The warnings are GCC's affair. Checks of the standard library's own containers are on: std::span and operator[].
  set(_fuzz -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all)
  set_target_properties(plimsoll_options PROPERTIES INTERFACE_COMPILE_OPTIONS "${_fuzz};-D_GLIBCXX_ASSERTIONS")
  target_link_options(plimsoll_options INTERFACE -fsanitize=address,undefined)
endif()

function(plimsoll_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS;TESTS;TEST_DEPS" ${ARGN})
  if(arg_SOURCES)
    add_library(plimsoll_${name} STATIC ${arg_SOURCES})
    target_link_libraries(plimsoll_${name} PUBLIC plimsoll_options ${arg_DEPS})
  else()
    add_library(plimsoll_${name} INTERFACE)
    target_link_libraries(plimsoll_${name} INTERFACE plimsoll_options ${arg_DEPS})
  endif()
  if(arg_TESTS AND NOT PLIMSOLL_FUZZ)
    plimsoll_test(${name}_test SOURCES ${arg_TESTS} DEPS plimsoll_${name} ${arg_TEST_DEPS})
  endif()
endfunction()

# plimsoll_test(NAME [OWN_FLAGS] SOURCES ... DEPS ...): one GoogleTest program, run by ctest from the source folder. The
# target unit_tests builds them all, and nothing else. OWN_FLAGS: it is compiled otherwise than the rest.
add_custom_target(unit_tests)
function(plimsoll_test name)
  cmake_parse_arguments(arg "OWN_FLAGS" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE plimsoll_options ${arg_DEPS} OpenMP::OpenMP_CXX GTest::gmock GTest::gtest_main)
  add_dependencies(unit_tests ${name})
  # Tests are not where time goes once they are built: optimising them took a third of their compilation, and
  # reading GoogleMock's headers again for each file another. -Warray-bounds and -Wstringop-overflow are off: g++ 12
  # raises them falsely inside std::string, and does not know any more that a precompiled header is the system's.
  target_compile_options(${name} PRIVATE $<IF:$<BOOL:${PLIMSOLL_SANITIZE}>,-O0,-O1> -Wno-array-bounds
                                         -Wno-stringop-overflow)
  if(name STREQUAL base_test)
    target_precompile_headers(${name} PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
  elseif(NOT arg_OWN_FLAGS)
    target_precompile_headers(${name} REUSE_FROM base_test)
  endif()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
endfunction()

# Kernels that exist once per instruction set: each *_simd.cc is compiled for AVX2 and for AVX-512 into the
# namespace plimsoll::PLIMSOLL_ISA. Such files include no standard library templates: a comdat function compiled
# with AVX-512 could otherwise be the one the linker keeps for everybody.
# -Wuninitialized is off there: g++ 12 raises it falsely inside its own intrinsics (GCC bug 105593).
#   plimsoll_simd(TARGET a_simd.cc ...)                      for AVX2, that with f16, and AVX-512
#   plimsoll_simd(TARGET ISAS avx2 ... SOURCES a_simd.cc)     for the sets named; avx512_bf16 is AVX-512 with
# the BF16 instructions, and defines PLIMSOLL_ISA_avx512 too, as it has the same registers; amx has tiles beside those;
# avx2_f16 is AVX2 whose halves are f16 (cpu/simd.h).
set(PLIMSOLL_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(PLIMSOLL_ISA_FLAGS_avx2_f16 ${PLIMSOLL_ISA_FLAGS_avx2} -DPLIMSOLL_ISA_avx2=1)
set(PLIMSOLL_ISA_FLAGS_avx512 -mavx2 -mfma -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd
    -mprefer-vector-width=512)
set(PLIMSOLL_ISA_FLAGS_avx512_bf16 ${PLIMSOLL_ISA_FLAGS_avx512} -mavx512bf16 -DPLIMSOLL_ISA_avx512=1)
set(PLIMSOLL_ISA_FLAGS_amx ${PLIMSOLL_ISA_FLAGS_avx512_bf16} -mamx-tile -mamx-bf16 -DPLIMSOLL_ISA_avx512_bf16=1)
function(plimsoll_simd target)
  cmake_parse_arguments(arg "" "" "ISAS;SOURCES" ${ARGN})
  if(NOT arg_ISAS)
    set(arg_ISAS avx2 avx2_f16 avx512)
  endif()
  foreach(_isa IN LISTS arg_ISAS)
    set(_objects ${target}_${_isa})
    if(NOT TARGET ${_objects})
      add_library(${_objects} OBJECT EXCLUDE_FROM_ALL)
      target_link_libraries(${_objects} PRIVATE plimsoll_options OpenMP::OpenMP_CXX)
      target_compile_options(${_objects} PRIVATE ${PLIMSOLL_ISA_FLAGS_${_isa}} -O3 -ffp-contract=off
                             -fno-math-errno -Wno-uninitialized -Wno-maybe-uninitialized)
      target_compile_definitions(${_objects} PRIVATE PLIMSOLL_ISA=${_isa} PLIMSOLL_ISA_${_isa}=1)
      target_link_libraries(${target} PRIVATE ${_objects})
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:${_objects}>)
    endif()
    target_sources(${_objects} PRIVATE ${arg_SOURCES} ${arg_UNPARSED_ARGUMENTS})
  endforeach()
endfunction()

function(plimsoll_summary)
  message(STATUS "plimsoll ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE}, sanitizers ${PLIMSOLL_SANITIZE}")
  message(STATUS "  Arrow    ${PLIMSOLL_PYARROW_DIR}")
endfunction()
