# At install time: what PLIMSOLL prints, as files below the prefix.
set(_share "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share")

function(plimsoll_write path)
  execute_process(COMMAND "${PLIMSOLL}" ${ARGN} OUTPUT_FILE "${_share}/${path}.tmp" COMMAND_ERROR_IS_FATAL ANY)
  file(RENAME "${_share}/${path}.tmp" "${_share}/${path}")
  message(STATUS "Installing: ${_share}/${path}")
endfunction()

file(MAKE_DIRECTORY "${_share}/bash-completion/completions" "${_share}/zsh/site-functions"
     "${_share}/fish/vendor_completions.d" "${_share}/man/man1")
plimsoll_write(bash-completion/completions/plimsoll completion bash)
plimsoll_write(zsh/site-functions/_plimsoll completion zsh)
plimsoll_write(fish/vendor_completions.d/plimsoll.fish completion fish)
plimsoll_write(man/man1/plimsoll.1 help --man)
execute_process(COMMAND "${PLIMSOLL}" help --commands OUTPUT_VARIABLE _commands COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" _commands "${_commands}")
foreach(_command IN LISTS _commands)
  if(_command)
    plimsoll_write(man/man1/plimsoll-${_command}.1 help ${_command} --man)
  endif()
endforeach()
