# `make install`: the program, Arrow beside it, completion scripts and manual pages, which the program writes itself.
# The library path is relative and an RPATH, not a RUNPATH: libraries that libraries need are found by it, too, so that
# an unpacked archive runs wherever it lies.
include(GNUInstallDirs)
set_target_properties(plimsoll PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/plimsoll")
target_link_options(plimsoll PRIVATE -Wl,--disable-new-dtags)
install(TARGETS plimsoll RUNTIME DESTINATION bin)
install(FILES "$<TARGET_FILE:Arrow::arrow>" "$<TARGET_FILE:Arrow::parquet>" DESTINATION lib/plimsoll)
if(TARGET plimsoll_mpi)
  install(TARGETS plimsoll_mpi LIBRARY DESTINATION lib/plimsoll)
endif()
install(FILES "${CMAKE_SOURCE_DIR}/LICENSE" "${CMAKE_SOURCE_DIR}/README.md" DESTINATION share/doc/plimsoll)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/docs" DESTINATION share/doc/plimsoll FILES_MATCHING PATTERN "*.md" PATTERN "*.webp" PATTERN "*.svg")
set(PLIMSOLL_SCRIPT "${CMAKE_SOURCE_DIR}/cmake/install_texts.cmake")
install(CODE "set(PLIMSOLL \"$<TARGET_FILE:plimsoll>\")\ninclude(\"${PLIMSOLL_SCRIPT}\")")
