# Finds gRPC for C++ and its code generator: the target sluice_grpc, GRPC_CPP_PLUGIN and GRPC_LIBRARY_DIR. By its
# files instead of its own package: that package also searches for c-ares, OpenSSL, RE2 and Abseil, and reports
# what Debian does not describe to CMake. A search below CMAKE_PREFIX_PATH also finds unpacked packages.
find_path(GRPC_INCLUDE_DIR grpcpp/generic/async_generic_service.h DOC "Folder of grpcpp/grpcpp.h")
find_library(GRPC_CPP_LIBRARY grpc++)
find_library(GRPC_REFLECTION_LIBRARY grpc++_reflection)
find_library(GRPC_C_LIBRARY grpc)
find_library(GRPC_GPR_LIBRARY gpr)
# gRPC's headers call Abseil's mutex, and a link line must name every library that its objects call.
find_library(GRPC_ABSL_LIBRARY absl_synchronization)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin)
mark_as_advanced(GRPC_INCLUDE_DIR GRPC_CPP_LIBRARY GRPC_REFLECTION_LIBRARY GRPC_C_LIBRARY GRPC_GPR_LIBRARY
                 GRPC_ABSL_LIBRARY GRPC_CPP_PLUGIN)

# The library has no version in its headers, but in its file's name: libgrpc++.so.1.51.1.
set(GRPC_VERSION "")
if(GRPC_CPP_LIBRARY)
  file(REAL_PATH ${GRPC_CPP_LIBRARY} GRPC_CPP_FILE)
  if(GRPC_CPP_FILE MATCHES "\\.so\\.([0-9.]+)$")
    set(GRPC_VERSION ${CMAKE_MATCH_1})
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Grpc
  REQUIRED_VARS GRPC_CPP_LIBRARY GRPC_REFLECTION_LIBRARY GRPC_INCLUDE_DIR GRPC_C_LIBRARY GRPC_GPR_LIBRARY GRPC_ABSL_LIBRARY
                GRPC_CPP_PLUGIN
  VERSION_VAR GRPC_VERSION)

if(Grpc_FOUND AND NOT TARGET sluice_grpc)
  cmake_path(GET GRPC_CPP_LIBRARY PARENT_PATH GRPC_LIBRARY_DIR)
  add_library(sluice_grpc INTERFACE)
  target_include_directories(sluice_grpc SYSTEM INTERFACE ${GRPC_INCLUDE_DIR})
  target_link_libraries(sluice_grpc INTERFACE ${GRPC_REFLECTION_LIBRARY} ${GRPC_CPP_LIBRARY} ${GRPC_C_LIBRARY} ${GRPC_GPR_LIBRARY}
                                              ${GRPC_ABSL_LIBRARY})
  if(NOT GRPC_LIBRARY_DIR IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES AND
     NOT GRPC_LIBRARY_DIR IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
    # Unpacked packages. gRPC's own libraries find each other by DT_RPATH of the program, but not by DT_RUNPATH.
    target_link_options(sluice_grpc INTERFACE -Wl,--disable-new-dtags -Wl,-rpath,${GRPC_LIBRARY_DIR})
  endif()
endif()
