# Kernels for GPUs: src/ops/*_gpu.cu is CUDA C++ of which two compilers make something. g++ makes the emulated card's;
# nvcc, where there is one, shows that a card's can be made, for the oldest and the newest architecture.
find_program(PLIMSOLL_NVCC nvcc HINTS /usr/local/cuda/bin DOC "CUDA's compiler, 12.8 or later; optional")
if(PLIMSOLL_NVCC)
  execute_process(COMMAND ${PLIMSOLL_NVCC} --version OUTPUT_VARIABLE _nvcc_says ERROR_QUIET)
  string(REGEX MATCH "release ([0-9.]+)" _ "${_nvcc_says}")
  if(NOT CMAKE_MATCH_1 OR CMAKE_MATCH_1 VERSION_LESS 12.8)
    message(STATUS "${PLIMSOLL_NVCC} is too old for the newest cards: kernels for GPUs are compiled for the emulated card alone")
    set(PLIMSOLL_NVCC "")
  endif()
endif()
set(PLIMSOLL_NVCC_ARCHITECTURES 75 120 CACHE STRING "compute capabilities that nvcc compiles for")
# No contraction: the same bits here and there.
set(PLIMSOLL_NVCC_FLAGS -std=c++20 -O2 -fmad=false --expt-relaxed-constexpr -Werror=all-warnings
    -Xcompiler=-Wall,-Wextra,-Werror "-I${CMAKE_SOURCE_DIR}/src")

# Every load and store becomes a call (src/gpu/emulator_check.h). Without the last two g++ takes vectors apart.
set(PLIMSOLL_CHECKED_FLAGS -O1 -fsanitize=thread --param=tsan-instrument-func-entry-exit=0 -fno-tree-vectorize -fno-tree-sra)

# plimsoll_emulated(TARGET KERNELS a_gpu.cu ... [SOURCES ...] [OPTIONS ...]): a library of kernels as C++, and of what
# finds them.
function(plimsoll_emulated target)
  cmake_parse_arguments(arg "" "" "KERNELS;SOURCES;OPTIONS" ${ARGN})
  add_library(${target} STATIC ${arg_KERNELS} ${arg_SOURCES})
  set_source_files_properties(${arg_KERNELS} PROPERTIES LANGUAGE CXX)
  target_compile_options(${target} PRIVATE -ffp-contract=off ${arg_OPTIONS})
endfunction()

# plimsoll_nvcc(TARGET a_gpu.cu ...): objects for each architecture, which nothing links yet.
function(plimsoll_nvcc target)
  if(NOT PLIMSOLL_NVCC OR PLIMSOLL_SANITIZE)
    return()
  endif()
  set(_objects)
  foreach(_source IN LISTS ARGN)
    get_filename_component(_name ${_source} NAME_WE)
    foreach(_arch IN LISTS PLIMSOLL_NVCC_ARCHITECTURES)
      set(_object ${CMAKE_CURRENT_BINARY_DIR}/sm_${_arch}/${_name}.o)
      add_custom_command(OUTPUT ${_object}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/sm_${_arch}
        COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${PLIMSOLL_NVCC} ${PLIMSOLL_NVCC_FLAGS} -arch=sm_${_arch}
                -MD -MF ${_object}.d -c ${CMAKE_CURRENT_SOURCE_DIR}/${_source} -o ${_object}
        DEPENDS ${_source} DEPFILE ${_object}.d
        COMMENT "nvcc sm_${_arch} ${_source}" VERBATIM)
      list(APPEND _objects ${_object})
    endforeach()
  endforeach()
  add_custom_target(${target} ALL DEPENDS ${_objects})
endfunction()
