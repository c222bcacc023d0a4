# Kernels for GPUs: each *_gpu.cu in src/ops is CUDA C++ of which two compilers make something. g++ makes the emulated card's;
# nvcc, where there is one, those of the CUDA backend (device: cuda).
find_program(PLIMSOLL_NVCC nvcc HINTS /usr/local/cuda/bin DOC "CUDA's compiler, 12.8 or later; optional")
if(PLIMSOLL_NVCC)
  execute_process(COMMAND ${PLIMSOLL_NVCC} --version OUTPUT_VARIABLE _nvcc_says ERROR_QUIET)
  string(REGEX MATCH "release ([0-9.]+)" _ "${_nvcc_says}")
  if(NOT CMAKE_MATCH_1 OR CMAKE_MATCH_1 VERSION_LESS 12.8)
    message(STATUS "${PLIMSOLL_NVCC} is too old for the newest cards: kernels for GPUs are compiled for the emulated card alone")
    set(PLIMSOLL_NVCC "")
  endif()
endif()
# What kernels are compiled for: the oldest and the newest card, and a form that drivers compile for those in between at
# their first start. What is given to others is built for all: -DPLIMSOLL_NVCC_ARCHITECTURES="75;80;90;120".
set(PLIMSOLL_NVCC_ARCHITECTURES 75 120 CACHE STRING "compute capabilities that nvcc compiles for")
set(PLIMSOLL_NVCC_PTX 80 CACHE STRING "the one that drivers compile for cards that are not among them; empty: none")
option(PLIMSOLL_CUDA "Build the CUDA backend where nvcc is found" ON)
# CUDA's runtime is linked whole: the program needs no file of CUDA's but the driver, which the runtime looks for.
set(PLIMSOLL_HAS_CUDA OFF)
if(PLIMSOLL_NVCC AND PLIMSOLL_CUDA AND NOT PLIMSOLL_SANITIZE AND NOT PLIMSOLL_FUZZ)
  execute_process(COMMAND ${PLIMSOLL_NVCC} --dryrun -c -x cu /dev/null ERROR_VARIABLE _nvcc_says OUTPUT_QUIET)
  string(REGEX MATCH "#\\$ TOP=([^\n]+)" _ "${_nvcc_says}")
  set(_cuda "${CMAKE_MATCH_1}")
  find_library(PLIMSOLL_CUDART libcudart_static.a HINTS ${_cuda}/lib64 ${_cuda}/lib ${_cuda}/targets/x86_64-linux/lib NO_DEFAULT_PATH)
  find_path(PLIMSOLL_CUDA_INCLUDE cuda_runtime.h HINTS ${_cuda}/include ${_cuda}/targets/x86_64-linux/include NO_DEFAULT_PATH)
  if(PLIMSOLL_CUDART AND PLIMSOLL_CUDA_INCLUDE)
    set(PLIMSOLL_HAS_CUDA ON)
    add_library(CUDA::cudart_whole STATIC IMPORTED GLOBAL)
    set_target_properties(CUDA::cudart_whole PROPERTIES IMPORTED_LOCATION "${PLIMSOLL_CUDART}"
      INTERFACE_INCLUDE_DIRECTORIES "${PLIMSOLL_CUDA_INCLUDE}"
      INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};rt")
  else()
    message(STATUS "${PLIMSOLL_NVCC} has no libcudart_static.a or headers beside it: no CUDA backend is built")
  endif()
endif()
# No contraction: the same bits here and there. The smallest form of the code takes a fifth off that of the usual one. nvcc hands g++ pointers to members with parentheses that nobody wrote.
set(PLIMSOLL_NVCC_FLAGS -std=c++20 -O2 -fmad=false --compress-mode=size --expt-relaxed-constexpr -Werror=all-warnings
    -Xcompiler=-Wall,-Wextra,-Werror,-Wno-parentheses "-I${CMAKE_SOURCE_DIR}/src")

# Every load and store becomes a call (src/gpu/emulator_check.h). Without the last two g++ takes vectors apart.
set(PLIMSOLL_CHECKED_FLAGS -O1 -fsanitize=thread --param=tsan-instrument-func-entry-exit=0 -fno-tree-vectorize -fno-tree-sra)

# plimsoll_emulated(TARGET KERNELS a_gpu.cu ... [SOURCES ...] [OPTIONS ...]): a library of kernels as C++, and of what
# finds them. The files of a family are one to g++ as they are to nvcc, which takes half the time.
function(plimsoll_emulated target)
  cmake_parse_arguments(arg "" "" "KERNELS;SOURCES;OPTIONS" ${ARGN})
  add_library(${target} STATIC ${arg_KERNELS} ${arg_SOURCES})
  set_source_files_properties(${arg_KERNELS} PROPERTIES LANGUAGE CXX)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${PLIMSOLL_UNITY} UNITY_BUILD_MODE GROUP)
  target_compile_options(${target} PRIVATE -ffp-contract=off ${PLIMSOLL_COMPILER_HEAP} ${arg_OPTIONS})
  plimsoll_leave_unsanitized(${target})  # kernels run on fibers, which the address sanitizer is not told of
endfunction()

# plimsoll_cuda(TARGET FAMILIES one two ... [SOURCES ...]): the same library for cards of NVIDIA's, kernels by nvcc. The caller's
# list _one has the files of family one, below src/. nvcc reads headers once for the host and once for each architecture, five
# seconds of a file's time before its first kernel: the files of a family are one to it. -DPLIMSOLL_UNITY=OFF compiles each alone.
function(plimsoll_cuda target)
  cmake_parse_arguments(arg "" "" "FAMILIES;SOURCES" ${ARGN})
  set(_codes)
  foreach(_arch IN LISTS PLIMSOLL_NVCC_ARCHITECTURES)
    list(APPEND _codes -gencode arch=compute_${_arch},code=sm_${_arch})
  endforeach()
  if(PLIMSOLL_NVCC_PTX)
    list(APPEND _codes -gencode arch=compute_${PLIMSOLL_NVCC_PTX},code=compute_${PLIMSOLL_NVCC_PTX})
  endif()
  set(_folder ${CMAKE_CURRENT_BINARY_DIR}/${target})
  set(_objects)
  foreach(_family IN LISTS arg_FAMILIES)
    set(_units ${_${_family}})
    if(PLIMSOLL_UNITY)
      list(TRANSFORM _units REPLACE "(.+)" "#include \"\\1\"\n" OUTPUT_VARIABLE _lines)
      list(JOIN _lines "" _text)
      set(_units ${_folder}/${_family}.cu)
      file(CONFIGURE OUTPUT ${_units} CONTENT "${_text}" @ONLY)
    endif()
    foreach(_unit IN LISTS _units)
      get_filename_component(_name ${_unit} NAME_WE)
      get_filename_component(_source ${_unit} ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR}/src)
      set(_object ${_folder}/${_name}.o)
      add_custom_command(OUTPUT ${_object}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${_folder}
        COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${PLIMSOLL_NVCC} ${PLIMSOLL_NVCC_FLAGS} ${_codes} -MD -MF ${_object}.d -c ${_source} -o ${_object}
        DEPENDS ${_source} DEPFILE ${_object}.d
        COMMENT "nvcc ${_name}" VERBATIM)
      list(APPEND _objects ${_object})
    endforeach()
  endforeach()
  add_library(${target} STATIC ${_objects} ${arg_SOURCES})
  set_source_files_properties(${_objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_compile_definitions(${target} PRIVATE PLIMSOLL_CUDA)
endfunction()
