# The build tree has the same shape as the install tree, so that every program finds the others by
# the same relative path in both:
#   bin/sluice   libexec/sluice/*   lib/sluice/libsluice_intercept.so   lib/sluice/simgpu/libcuda.so.1
#   include/sluice/sluice.h         share/sluice/{exp_configs,recordings}
set(SLUICE_LIBEXEC_DIR libexec/sluice)
set(SLUICE_LIB_DIR lib/sluice)
set(SLUICE_SIMGPU_DIR lib/sluice/simgpu)
set(SLUICE_DATA_DIR share/sluice)
set(SLUICE_INCLUDE_DIR include/sluice)

# Components: `sluice` is what no install command puts elsewhere, `dev` the C API, `lab` what only experiments need,
# `slurm` the plugin, `debug` the debug information. An install without --component has all but the last.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME sluice)
set(SLUICE_LAB_COMMANDS bench opbench predict programs sweep)

# The first install step. Without it, installing a partial build would stop half way, at the first
# missing program. All but the debug information is stripped.
set(SLUICE_PLACED_FILE ${PROJECT_BINARY_DIR}/sluice_placed.txt)
install(CODE "set(SLUICE_PLACED_FILE \"${SLUICE_PLACED_FILE}\")
set(SLUICE_BUILD_DIR \"${PROJECT_BINARY_DIR}\")
set(SLUICE_OBJCOPY \"${CMAKE_OBJCOPY}\")
set(CMAKE_INSTALL_DO_STRIP TRUE)" ALL_COMPONENTS)
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/CheckAllBuilt.cmake ALL_COMPONENTS)
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/InstallDebug.cmake COMPONENT debug EXCLUDE_FROM_ALL)

function(sluice_list_placed)
  get_property(placed GLOBAL PROPERTY SLUICE_PLACED)
  list(JOIN placed "\n" lines)
  file(GENERATE OUTPUT ${SLUICE_PLACED_FILE} CONTENT "${lines}\n")
endfunction()
cmake_language(DEFER DIRECTORY ${PROJECT_SOURCE_DIR} CALL sluice_list_placed)

# sluice_bring_runtime(TARGET): links the C++ runtime in. A module or a conda environment may put an older libstdc++ in
# LD_LIBRARY_PATH, and then neither our commands nor the program behind `sluice exec` would start.
function(sluice_bring_runtime target)
  if(NOT SLUICE_SANITIZE)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections)
  endif()
endfunction()

# sluice_place(TARGET DIR [SHARED_RUNTIME]): puts a program or library into DIR below the build folder and below the
# install prefix. A program brings its C++ runtime. SHARED_RUNTIME: it does not, because it links other shared
# libraries of C++ (gRPC, LibTorch), which must have the same runtime.
function(sluice_place target dir)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "SHARED_RUNTIME" "" "")
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE AND NOT ARG_SHARED_RUNTIME)
    sluice_bring_runtime(${target})
  endif()
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${dir}
                                             LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${dir})
  set_property(GLOBAL APPEND PROPERTY SLUICE_PLACED $<TARGET_FILE:${target}>)
  install(TARGETS ${target} RUNTIME DESTINATION ${dir} LIBRARY DESTINATION ${dir} NAMELINK_SKIP)
endfunction()

# sluice_find_torch(TARGET): once installed, TARGET finds LibTorch where it was at build time.
function(sluice_find_torch target)
  get_filename_component(torch_libraries ${LibTorch_torch_cpu_LIBRARY} DIRECTORY)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH ${torch_libraries})
endfunction()

# sluice_add_torch_program(TARGET PARTS LIBRARIES SOURCE...): a command that needs LibTorch. PARTS: a library without
# LibTorch. Where LibTorch is missing, the program is without_torch.cpp with PARTS alone, and says so.
function(sluice_add_torch_program target parts libraries)
  set(runtime "")
  if(SLUICE_TORCH_VERSION)
    add_executable(${target} ${ARGN})
    target_link_libraries(${target} PRIVATE ${parts} ${libraries})
    sluice_find_torch(${target})
    set(runtime SHARED_RUNTIME)
  else()
    add_executable(${target} without_torch.cpp)
    target_link_libraries(${target} PRIVATE ${parts})
  endif()
  string(REPLACE _ - name ${target})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name})
  sluice_place(${target} ${SLUICE_LIBEXEC_DIR} ${runtime})
endfunction()
