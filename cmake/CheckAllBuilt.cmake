# Runs at the start of `cmake --install` and fails if a program or library has not been built.
# SLUICE_PLACED_FILE lists their paths, one per line. SLUICE_BUILD_DIR is the build folder.
file(STRINGS ${SLUICE_PLACED_FILE} placed)
set(missing "")
foreach(file IN LISTS placed)
  if(NOT EXISTS "${file}")
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${SLUICE_BUILD_DIR})
    list(APPEND missing ${file})
  endif()
endforeach()
if(missing)
  list(JOIN missing ", " missing)
  message(FATAL_ERROR "nothing installed, because these are not built: ${missing}. "
                      "Build all first: cmake --build ${SLUICE_BUILD_DIR}")
endif()
