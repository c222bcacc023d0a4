# Third-party libraries. Each stop names the command that installs what is missing.
set(_hint "run scripts/setup.sh (or `make`), which installs it")

find_package(Threads REQUIRED)
if(NOT PLIMSOLL_FUZZ)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
find_package(yaml-cpp CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(ICU REQUIRED COMPONENTS i18n uc data)
if(NOT PLIMSOLL_FUZZ)
  find_package(GTest CONFIG REQUIRED)
endif()
find_package(SQLite3 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET GLOBAL libpcre2-8)
# Its compile flags ask for an older POSIX than everything else is compiled with; its headers need none.
pkg_check_modules(NCURSESW REQUIRED ncursesw)
# The page of `plimsoll top --serve`. Linked whole: what nobody serves costs a start no library.
find_library(PLIMSOLL_LIBEVENT libevent.a REQUIRED)
add_library(Event::http STATIC IMPORTED GLOBAL)
set_target_properties(Event::http PROPERTIES IMPORTED_LOCATION "${PLIMSOLL_LIBEVENT}")

# Checksums of what `fetch` receives. Linked whole, too.
find_library(PLIMSOLL_NETTLE libnettle.a REQUIRED)
add_library(Nettle::nettle STATIC IMPORTED GLOBAL)
set_target_properties(Nettle::nettle PROPERTIES IMPORTED_LOCATION "${PLIMSOLL_NETTLE}")

# Messages (src/base/format.h). Debian has no static library of it: src/base/format.cc compiles what is called.
find_path(PLIMSOLL_FMT fmt/format-inl.h REQUIRED)

# Arrow and Parquet from the pyarrow wheel, in a private folder.
set(PLIMSOLL_PYARROW_DIR "${CMAKE_SOURCE_DIR}/.deps/py/pyarrow" CACHE PATH "pyarrow package folder")
if(NOT EXISTS "${PLIMSOLL_PYARROW_DIR}/include/arrow/util/config.h")
  message(FATAL_ERROR "pyarrow is missing at ${PLIMSOLL_PYARROW_DIR}: ${_hint}")
endif()
file(STRINGS "${PLIMSOLL_PYARROW_DIR}/include/arrow/util/config.h" _so REGEX "define ARROW_SO_VERSION")
string(REGEX REPLACE ".*\"([0-9]+)\".*" "\\1" _so "${_so}")
foreach(_l IN ITEMS arrow parquet)
  add_library(Arrow::${_l} SHARED IMPORTED GLOBAL)
  set_target_properties(Arrow::${_l} PROPERTIES
    IMPORTED_LOCATION "${PLIMSOLL_PYARROW_DIR}/lib${_l}.so.${_so}"
    INTERFACE_INCLUDE_DIRECTORIES "${PLIMSOLL_PYARROW_DIR}/include")
endforeach()
target_link_libraries(Arrow::parquet INTERFACE Arrow::arrow)
