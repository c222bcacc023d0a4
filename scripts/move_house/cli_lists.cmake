# All but main is a library, so that tests can ask what commands compute.
plimsoll_library(cli
@SOURCES@
  DEPS plimsoll_fleet plimsoll_hub plimsoll_report plimsoll_tools CLI11::CLI11 ${NCURSESW_LINK_LIBRARIES} Event::http
  PRECOMPILED <CLI/App.hpp>
  TESTS @TESTS@)
add_executable(plimsoll main.cc older_glibc.cc)
set_target_properties(plimsoll PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
target_link_libraries(plimsoll PRIVATE plimsoll_cli)
# Command lines are read once: -O3 took a third of this folder's compilation, most of it in CLI11's templates.
foreach(_target plimsoll plimsoll_cli)
  target_compile_definitions(${_target} PRIVATE PLIMSOLL_VERSION="${PROJECT_VERSION}")
  target_compile_options(${_target} PRIVATE $<IF:$<BOOL:${PLIMSOLL_SANITIZE}>,-O0,-O1>)
endforeach()
plimsoll_precompile(plimsoll cli)
set_source_files_properties(older_glibc.cc PROPERTIES SKIP_PRECOMPILE_HEADERS ON)  # newer headers declare what it defines
