# plimsoll_library(NAME [NO_UNITY] SOURCES ... DEPS ... [TESTS ...] [TEST_DEPS ...] [TESTS_COMPUTE] [PRECOMPILED <header> ...])
#   One folder of src/: a static library and, where TESTS are named, one GoogleTest program NAME_test (TESTS_COMPUTE: COMPUTES of
#   plimsoll_test). PRECOMPILED are headers of others that most of its sources read, beside those that all share. NO_UNITY: its
#   files have the same names in them by design, and are compiled one by one.
# -Wrestrict is off: g++ 12 raises it falsely inside std::string (GCC bug 105651).
set(PLIMSOLL_WARNINGS -Wall -Wextra -Wpedantic -Wconversion -Werror -Wno-restrict)

add_library(plimsoll_options INTERFACE)
target_include_directories(plimsoll_options INTERFACE "${CMAKE_SOURCE_DIR}/src")
target_compile_options(plimsoll_options INTERFACE ${PLIMSOLL_WARNINGS} -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)
# What is linked to be run once is linked by GNU gold (part of Debian's binutils), which takes half the time of ld: tests, and
# whatever has sanitizers.
find_program(PLIMSOLL_GOLD ld.gold DOC "GNU gold, which links tests; optional")
mark_as_advanced(PLIMSOLL_GOLD)
function(plimsoll_link_quickly target kind)
  if(PLIMSOLL_GOLD AND NOT PLIMSOLL_FUZZ)
    target_link_options(${target} ${kind} -fuse-ld=gold)
  endif()
endfunction()

if(PLIMSOLL_SANITIZE)
  plimsoll_link_quickly(plimsoll_options INTERFACE)
  # Most of a sanitizer build's time goes into optimising checks: hence -O1 (root CMakeLists.txt), -O0 for the tests and
  # for folders that compute little (PLIMSOLL_UNHURRIED), and no checks of every pointer (null, alignment, object-size,
  # vptr), whose faults the address sanitizer meets too.
  # -Wmaybe-uninitialized is off: GCC's manual says that it raises it falsely beside sanitizers.
  set(_sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all -fno-sanitize=null,alignment,object-size,vptr
      -fno-omit-frame-pointer -g1)
  set(_sanitized $<NOT:$<BOOL:$<TARGET_PROPERTY:PLIMSOLL_UNSANITIZED>>>)
  target_compile_options(plimsoll_options INTERFACE "$<${_sanitized}:-Wno-maybe-uninitialized;${_sanitizers}>")
  # Every program is verified between its passes.
  target_compile_definitions(plimsoll_options INTERFACE $<${_sanitized}:PLIMSOLL_VERIFY_PASSES>)
  target_link_options(plimsoll_options INTERFACE -fsanitize=address,undefined)
endif()

if(PLIMSOLL_FUZZ)
  # The warnings are GCC's affair. Checks of the standard library's own containers are on: std::span and operator[].
  set(_fuzz -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all)
  set_target_properties(plimsoll_options PROPERTIES INTERFACE_COMPILE_OPTIONS "${_fuzz};-D_GLIBCXX_ASSERTIONS")
  target_link_options(plimsoll_options INTERFACE -fsanitize=address,undefined)
endif()

# What takes long to compile with sanitizers and that they would not see run: it is compiled as in a build without them, to
# the letter, so that ccache has it.
function(plimsoll_leave_unsanitized target)
  set_target_properties(${target} PROPERTIES PLIMSOLL_UNSANITIZED ON)
endfunction()
# The folders that have sanitizers in them, as SANITIZE_FOLDERS of `make sanitize` names them; none named: all. Objects with and
# without may be linked: what others allocate is watched all the same, and what others do with it is not.
set(PLIMSOLL_SANITIZE_FOLDERS "" CACHE STRING "folders that a sanitizer build puts sanitizers into; none: all")
# plimsoll_sanitizes(VARIABLE): whether the folder whose CMakeLists.txt is read is one of them.
function(plimsoll_sanitizes variable)
  get_filename_component(_folder "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  set(${variable} OFF PARENT_SCOPE)
  if(PLIMSOLL_SANITIZE AND (NOT PLIMSOLL_SANITIZE_FOLDERS OR _folder IN_LIST PLIMSOLL_SANITIZE_FOLDERS))
    set(${variable} ON PARENT_SCOPE)
  endif()
endfunction()

# Reading the same headers for each of 500 files took a third of the build. What is precompiled can be forgotten to be
# included: -DPLIMSOLL_PRECOMPILED=OFF finds that, as does the build of the fuzz targets.
option(PLIMSOLL_PRECOMPILED "Precompile the headers that most sources read" ON)
if(PLIMSOLL_FUZZ)
  set(PLIMSOLL_PRECOMPILED OFF)
endif()
# g++ first looks through its memory for what it no longer needs when that has 128 MB, most of which precompiled headers fill: up
# to a sixth of the time of large files. What it writes is the same.
set(PLIMSOLL_COMPILER_HEAP --param=ggc-min-heapsize=400000)
# plimsoll_precompile(TARGET FLAGS HEADERS...): the first target of those with the same FLAGS (a word for what changes the
# headers' meaning, beside sanitizers) compiles them for the others. The warnings that are off are raised falsely by g++ 12 inside std::string,
# and of precompiled headers it does not know any more that they are the system's.
function(plimsoll_precompile target flags)
  if(NOT PLIMSOLL_PRECOMPILED)
    return()
  endif()
  get_target_property(_unsanitized ${target} PLIMSOLL_UNSANITIZED)
  if(PLIMSOLL_SANITIZE AND NOT _unsanitized)
    set(flags sanitized_${flags})
  endif()
  target_compile_options(${target} PRIVATE -fpch-preprocess -Wno-array-bounds -Wno-stringop-overflow
                                           -Wno-stringop-overread ${PLIMSOLL_COMPILER_HEAP})
  get_property(_first GLOBAL PROPERTY PLIMSOLL_PRECOMPILED_${flags})
  if(_first)
    target_precompile_headers(${target} REUSE_FROM ${_first})
  else()
    set_property(GLOBAL PROPERTY PLIMSOLL_PRECOMPILED_${flags} ${target})
    target_precompile_headers(${target} PRIVATE ${ARGN} <base/precompiled.h>)
  endif()
endfunction()

# Several files are one to the compiler: what they include and instantiate is read and compiled once for all of them, and a
# build from nothing compiles half as often. Who edits one file compiles its neighbours again: -DPLIMSOLL_UNITY=OFF.
if(PLIMSOLL_FUZZ)  # where includes that were forgotten are found; CMAKE_FLAGS=-DPLIMSOLL_UNITY=ON takes a third of the time
  option(PLIMSOLL_UNITY "Compile sources several at a time" OFF)
else()
  option(PLIMSOLL_UNITY "Compile sources several at a time" ON)
endif()
# plimsoll_unity(TARGET FILES [APART ...]): that many files at a time; those APART, which have names that others have, alone.
function(plimsoll_unity target files)
  cmake_parse_arguments(arg "" "" "APART" ${ARGN})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${PLIMSOLL_UNITY} UNITY_BUILD_BATCH_SIZE ${files})
  set_source_files_properties(${arg_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Folders whose work is bounded by people, files or other programs.
set(PLIMSOLL_UNHURRIED files fleet formats calibrate recipe weights runs prepare train infer tools report advise cli)

# plimsoll_own_precompiled(FLAGS): the owner of these headers does nothing else. Building one test then builds no other; and in a build that has
# sanitizers in some folders the headers of the others have the names that ccache knows, whatever folder comes first.
function(plimsoll_own_precompiled flags)
  if(NOT PLIMSOLL_PRECOMPILED OR TARGET precompiled_for_${flags})
    return()
  endif()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/nothing.cc CONTENT "// Headers are precompiled for this file, and taken by others.\n")
  add_library(precompiled_for_${flags} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/nothing.cc)
  target_link_libraries(precompiled_for_${flags} PRIVATE plimsoll_options)
  set(_headers)
  if(flags MATCHES "^tests")
    set(_headers <gmock/gmock.h> <gtest/gtest.h>)
    target_link_libraries(precompiled_for_${flags} PRIVATE OpenMP::OpenMP_CXX GTest::gmock GTest::gtest_main)
    target_compile_options(precompiled_for_${flags} PRIVATE $<IF:$<STREQUAL:${flags},tests>,-O0,-O1>)
  else()
    plimsoll_leave_unsanitized(precompiled_for_${flags})
    target_link_libraries(precompiled_for_${flags} PRIVATE $<$<STREQUAL:${flags},openmp>:OpenMP::OpenMP_CXX>)
  endif()
  plimsoll_precompile(precompiled_for_${flags} ${flags} ${_headers})
endfunction()

function(plimsoll_library name)
  cmake_parse_arguments(arg "NO_UNITY;TESTS_COMPUTE" "" "SOURCES;DEPS;TESTS;TEST_DEPS;PRECOMPILED" ${ARGN})
  if(arg_SOURCES)
    add_library(plimsoll_${name} STATIC ${arg_SOURCES})
    if(NOT arg_NO_UNITY)
      plimsoll_unity(plimsoll_${name} 8)
    endif()
    set(_flags optimised)
    plimsoll_sanitizes(_sanitized)
    if(NOT _sanitized)
      plimsoll_leave_unsanitized(plimsoll_${name})
    elseif(name IN_LIST PLIMSOLL_UNHURRIED)
      set(_flags plain)
      target_compile_options(plimsoll_${name} PRIVATE -O0)
    endif()
    if(OpenMP::OpenMP_CXX IN_LIST arg_DEPS)  # to be linked by others, who do not compile with it
      set(_flags openmp)
      list(REMOVE_ITEM arg_DEPS OpenMP::OpenMP_CXX)
      target_link_libraries(plimsoll_${name} PRIVATE OpenMP::OpenMP_CXX)
    endif()
    target_link_libraries(plimsoll_${name} PUBLIC plimsoll_options ${arg_DEPS})
    if(arg_PRECOMPILED)
      set(_flags ${name})
    endif()
    plimsoll_precompile(plimsoll_${name} ${_flags} ${arg_PRECOMPILED})
  else()
    add_library(plimsoll_${name} INTERFACE)
    target_link_libraries(plimsoll_${name} INTERFACE plimsoll_options ${arg_DEPS})
  endif()
  if(arg_TESTS AND NOT PLIMSOLL_FUZZ)
    set(_computes)
    if(arg_TESTS_COMPUTE)
      set(_computes COMPUTES)
    endif()
    plimsoll_test(${name}_test ${_computes} SOURCES ${arg_TESTS} DEPS plimsoll_${name} ${arg_TEST_DEPS})
  endif()
endfunction()

# plimsoll_label(TEST LABEL TARGET ...): the label by which ctest finds the tests of a folder, and a target tests_of_LABEL that
# builds what they need: `make sanitize` and scripts/ci.py pick tests by folder.
function(plimsoll_label test label)
  set_property(TEST ${test} APPEND PROPERTY LABELS ${label})
  if(NOT TARGET tests_of_${label})
    add_custom_target(tests_of_${label})
  endif()
  add_dependencies(tests_of_${label} ${ARGN})
endfunction()

# plimsoll_test(NAME [OWN_FLAGS] [COMPUTES] [IN_THIRDS] SOURCES ... DEPS ...): one GoogleTest program, run by ctest from the source folder.
# The target unit_tests builds them all, and nothing else. OWN_FLAGS: it is compiled otherwise than the rest. COMPUTES: its own loops
# take longer than to compile them optimised. IN_THIRDS: three tests NAME_0 to NAME_2, each with a third of its cases.
add_custom_target(unit_tests)
function(plimsoll_test name)
  cmake_parse_arguments(arg "OWN_FLAGS;COMPUTES;IN_THIRDS" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE plimsoll_options ${arg_DEPS} OpenMP::OpenMP_CXX GTest::gmock GTest::gtest_main)
  plimsoll_link_quickly(${name} PRIVATE)
  add_dependencies(unit_tests ${name})
  # Most tests are run once for each time that they are compiled, and run shorter: optimising them took a fourth of that.
  set(_flags tests)
  if((arg_COMPUTES OR arg_OWN_FLAGS) AND NOT PLIMSOLL_SANITIZE)
    set(_flags tests_that_compute)
    target_compile_options(${name} PRIVATE -O1)
  else()
    target_compile_options(${name} PRIVATE -O0)
  endif()
  if(NOT arg_OWN_FLAGS)
    plimsoll_own_precompiled(${_flags})
    # An operator new of its own is not to be seen where it is used: g++ then misses its delete.
    plimsoll_unity(${name} 8 APART "${CMAKE_SOURCE_DIR}/src/files/test_allocations.cc")
    plimsoll_precompile(${name} ${_flags})
  endif()
  set(_tests ${name})
  if(arg_IN_THIRDS)
    set(_tests ${name}_0 ${name}_1 ${name}_2)
  endif()
  get_filename_component(_folder "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  foreach(_test IN LISTS _tests)
    add_test(NAME ${_test} COMMAND ${name} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
    set_property(TEST ${_test} APPEND PROPERTY ENVIRONMENT "PLIMSOLL_CACHE_DIR=${CMAKE_BINARY_DIR}/tests/cache/${_test}")
    if(arg_IN_THIRDS)
      string(REGEX REPLACE ".*_" "" _third ${_test})
      set_property(TEST ${_test} APPEND PROPERTY ENVIRONMENT GTEST_TOTAL_SHARDS=3 GTEST_SHARD_INDEX=${_third})
    endif()
    plimsoll_label(${_test} ${_folder} ${name})
  endforeach()
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
      set(_optimised -O3)
      plimsoll_sanitizes(_sanitized)
      if(_sanitized AND _isa STREQUAL avx2)
        set(_optimised -O1)
      endif()
      target_compile_options(${_objects} PRIVATE ${PLIMSOLL_ISA_FLAGS_${_isa}} ${_optimised}
                             -ffp-contract=off -fno-math-errno -Wno-uninitialized -Wno-maybe-uninitialized)
      if(NOT _sanitized OR NOT _isa STREQUAL avx2)  # the same templates, which sanitizers have seen: tests keep to AVX2 then
        plimsoll_leave_unsanitized(${_objects})
      endif()
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
