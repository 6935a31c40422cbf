set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

set(SLUICE_SANITIZE "" CACHE STRING "Comma-separated sanitizers, for instance address,undefined")

find_package(Threads REQUIRED)
add_library(sluice_options INTERFACE)
target_compile_options(sluice_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # gcc 13 sees a write past the end in fmt 9, which is not there.
  target_compile_options(sluice_options INTERFACE -Wno-array-bounds -Wno-stringop-overflow)
endif()
if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  target_compile_options(sluice_options INTERFACE -fsigned-char)  # as there
endif()
target_include_directories(sluice_options INTERFACE ${PROJECT_SOURCE_DIR})
target_link_libraries(sluice_options INTERFACE Threads::Threads)
if(SLUICE_SANITIZE)
  target_compile_options(sluice_options INTERFACE -fsanitize=${SLUICE_SANITIZE}
                                                  -fno-sanitize-recover=all
                                                  -fno-omit-frame-pointer
                         # With its own checks, GCC 12 reports uninitialised members in std::regex.
                         -Wno-error=maybe-uninitialized
                         # Boost.Asio uses fences, which ThreadSanitizer does not model.
                         -Wno-error=tsan)
  target_link_options(sluice_options INTERFACE -fsanitize=${SLUICE_SANITIZE})
endif()
