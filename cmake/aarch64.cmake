# Toolchain: builds the core for aarch64 on Debian for another machine (apt-get install g++-aarch64-linux-gnu). Of the
# libraries only what is headers is used, from this machine, so whatever needs another one is left out:
#   cmake -S . -B build-aarch64 --toolchain cmake/aarch64.cmake -DBUILD_TESTING=OFF
#   ninja -C build-aarch64 sluice_intercept sluice_controller sluice-status ...
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
foreach(kind IN ITEMS LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()

# Not /usr/include itself: it has the headers of this machine's glibc.
set(headers ${CMAKE_BINARY_DIR}/headers)
file(MAKE_DIRECTORY ${headers})
foreach(folder IN ITEMS boost spdlog fmt nlohmann CLI)
  file(CREATE_LINK /usr/include/${folder} ${headers}/${folder} SYMBOLIC)
endforeach()
set(definitions_spdlog "SPDLOG_FMT_EXTERNAL;FMT_HEADER_ONLY")
set(targets_Boost Boost::headers)
set(targets_spdlog spdlog::spdlog_header_only fmt::fmt-header-only)
set(targets_nlohmann_json nlohmann_json::nlohmann_json)
set(targets_CLI11 CLI11::CLI11)
foreach(package IN ITEMS Boost spdlog nlohmann_json CLI11)
  set(text "")
  foreach(target IN LISTS targets_${package})
    string(APPEND text "add_library(${target} INTERFACE IMPORTED)\n"
      "target_include_directories(${target} SYSTEM INTERFACE ${headers})\n"
      "target_compile_definitions(${target} INTERFACE ${definitions_${package}})\n")
  endforeach()
  file(CONFIGURE OUTPUT ${headers}/${package}Config.cmake CONTENT "${text}")
  file(CONFIGURE OUTPUT ${headers}/${package}ConfigVersion.cmake CONTENT "set(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
  set(${package}_DIR ${headers})
endforeach()
