# The build tree has the shape of the install tree, so that every program finds its neighbours by
# the same relative path in both:
#   bin/sluice   libexec/sluice/*   lib/sluice/libsluice_intercept.so   lib/sluice/simgpu/libcuda.so.1
#   include/sluice/sluice.h         share/sluice/{exp_configs,traces}
set(SLUICE_LIBEXEC_DIR libexec/sluice)
set(SLUICE_LIB_DIR lib/sluice)
set(SLUICE_SIMGPU_DIR lib/sluice/simgpu)
set(SLUICE_DATA_DIR share/sluice)
set(SLUICE_INCLUDE_DIR include/sluice)

# sluice_place(TARGET DIR): puts a program or library at DIR below the build root and below the
# install prefix.
function(sluice_place target dir)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${dir}
                                             LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${dir})
  install(TARGETS ${target} RUNTIME DESTINATION ${dir} LIBRARY DESTINATION ${dir} NAMELINK_SKIP)
endfunction()
