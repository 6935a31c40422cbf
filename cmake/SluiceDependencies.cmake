find_package(Boost 1.74 REQUIRED CONFIG)
find_package(spdlog REQUIRED)  # and fmt
# sluice_fmt has fmt in our programs; see sluice_bring_runtime.
set_target_properties(spdlog::spdlog_header_only PROPERTIES INTERFACE_LINK_LIBRARIES "Threads::Threads;sluice_fmt")
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
if(BUILD_TESTING OR NOT DEFINED BUILD_TESTING)
  find_package(GTest REQUIRED)
endif()

# Only cuda.h is needed: the driver is loaded at run time. cuda.h comes from the toolkit, or from
# the PyPI wheel nvidia-cuda-runtime, which `./x build` unpacks into .cuda/.
find_path(SLUICE_CUDA_INCLUDE_DIR cuda.h
  HINTS ENV CUDA_HOME ENV CUDA_PATH
  PATHS /usr/local/cuda ${PROJECT_SOURCE_DIR}/.cuda/nvidia/cu13
  PATH_SUFFIXES include REQUIRED
  DOC "Folder of cuda.h, version 12.4 or later")
add_library(sluice_cuda_headers INTERFACE)
target_include_directories(sluice_cuda_headers SYSTEM INTERFACE ${SLUICE_CUDA_INCLUDE_DIR})

# Only `sluice top` uses curses. Without curses it prints its frames as text, one after the other.
set(CURSES_NEED_WIDE TRUE)
find_package(Curses QUIET)
if(NOT CURSES_FOUND)
  message(NOTICE "-- sluice: no curses (libncurses-dev) found: `sluice top` prints text only")
endif()

# Only the worker for PyTorch models needs LibTorch. Builds with a sanitizer leave it out: LibTorch
# is not instrumented, and its processes are not tested there.
set(SLUICE_TORCH_VERSION "")
if(NOT SLUICE_SANITIZE)
  find_package(LibTorch 2.11 QUIET)
  if(LibTorch_FOUND)
    set(SLUICE_TORCH_VERSION ${LibTorch_VERSION})
  else()
    message(NOTICE "-- sluice: no LibTorch 2.11 found: built without sluice-worker-torch, so "
                   "experiments replay recordings but run no PyTorch models (./x torch fetches it)")
  endif()
endif()

# Only the model server needs gRPC. Builds with ThreadSanitizer leave it out, because gRPC is not
# instrumented.
set(SLUICE_HAS_GRPC FALSE)
if(NOT SLUICE_SANITIZE MATCHES "thread")
  find_package(Protobuf 3.21 QUIET MODULE)
  find_package(Grpc 1.51 QUIET)
  find_package(ZLIB QUIET)
  find_package(OpenSSL QUIET)
  if(Protobuf_FOUND AND Grpc_FOUND AND ZLIB_FOUND AND OPENSSL_FOUND)
    set(SLUICE_HAS_GRPC TRUE)
  else()
    message(NOTICE "-- sluice: no gRPC 1.51 (libgrpc++-dev, protobuf-compiler-grpc, zlib1g-dev) "
                   "found: built without `sluice serve`")
  endif()
endif()

# Only the plugin for Slurm needs Slurm's headers. A sanitizer cannot be loaded into Slurm's programs.
if(NOT SLUICE_SANITIZE)
  find_path(SLUICE_SLURM_INCLUDE_DIR slurm/spank.h DOC "Folder of slurm/spank.h")
  if(NOT SLUICE_SLURM_INCLUDE_DIR)
    message(NOTICE "-- sluice: no slurm/spank.h (libslurm-dev) found: built without the plugin for Slurm")
  endif()
endif()

# Packs of tensor programs are xz'd.
find_package(LibLZMA QUIET)
if(NOT LIBLZMA_FOUND)
  message(NOTICE "-- sluice: no liblzma (liblzma-dev) found: built without `sluice opbench`")
endif()
# The tuners xgb of `sluice opbench run` need XGBoost; the others do not.
find_path(SLUICE_XGBOOST_INCLUDE_DIR xgboost/c_api.h DOC "Folder of xgboost/c_api.h")
find_library(SLUICE_XGBOOST_LIBRARY xgboost)

# Only execution times in traces need CUPTI, which is also loaded at run time. Its header is next to
# cuda.h in the wheels, and in a folder of its own in a toolkit.
find_path(SLUICE_CUPTI_INCLUDE_DIR cupti.h
  HINTS ${SLUICE_CUDA_INCLUDE_DIR} ${SLUICE_CUDA_INCLUDE_DIR}/../extras/CUPTI/include
        ${LibTorch_CUDA_INCLUDE_DIR} ENV CUDA_HOME ENV CUDA_PATH
  PATHS /usr/local/cuda PATH_SUFFIXES include extras/CUPTI/include
  DOC "Folder of cupti.h, version 12.5 or later")
# cupti.h includes crt/, which is next to cuda.h in a toolkit, and in the wheel nvidia-cuda-crt
# otherwise.
find_path(SLUICE_CRT_INCLUDE_DIR crt/host_defines.h
  HINTS ${SLUICE_CUPTI_INCLUDE_DIR} ${SLUICE_CUPTI_INCLUDE_DIR}/../../../include
        ${SLUICE_CUDA_INCLUDE_DIR} ENV CUDA_HOME ENV CUDA_PATH
  PATHS /usr/local/cuda PATH_SUFFIXES include
  DOC "Folder of crt/host_defines.h")
if(NOT SLUICE_CRT_INCLUDE_DIR)
  set(SLUICE_CUPTI_INCLUDE_DIR "" CACHE PATH "Not usable without crt/host_defines.h" FORCE)
endif()
if(NOT SLUICE_CUPTI_INCLUDE_DIR)
  message(NOTICE "-- sluice: no cupti.h found: built without libsluice_cupti.so, so traces of a "
                 "real GPU have launches but no execution times")
endif()
