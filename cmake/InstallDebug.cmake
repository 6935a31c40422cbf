# `cmake --install BUILD --component debug`, after the install itself: the debug information of each installed program and
# library as .debug/NAME.debug next to it, where gdb looks. Variables as for CheckAllBuilt.cmake.
file(STRINGS ${SLUICE_PLACED_FILE} placed)
foreach(built IN LISTS placed)
  cmake_path(RELATIVE_PATH built BASE_DIRECTORY ${SLUICE_BUILD_DIR} OUTPUT_VARIABLE installed)
  string(PREPEND installed $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/)
  if(NOT EXISTS ${installed})  # a component that is not installed
    continue()
  endif()
  cmake_path(GET installed PARENT_PATH folder)
  cmake_path(GET installed FILENAME name)
  set(debug ${folder}/.debug/${name}.debug)
  message(STATUS "Installing: ${debug}")
  file(MAKE_DIRECTORY ${folder}/.debug)
  execute_process(COMMAND ${SLUICE_OBJCOPY} --only-keep-debug ${built} ${debug} COMMAND_ERROR_IS_FATAL ANY)
  # A new file: the old one may be running.
  execute_process(COMMAND ${SLUICE_OBJCOPY} --remove-section=.gnu_debuglink --add-gnu-debuglink=${debug}
                          ${installed} ${installed}.linked COMMAND_ERROR_IS_FATAL ANY)
  file(RENAME ${installed}.linked ${installed})
endforeach()
