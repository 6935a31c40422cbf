# Finds LibTorch in the PyPI wheel `torch` (CUDA build), or unpacked on its own.
#
# Does not use torch's own CMake config, which needs nvcc and which fails with CMake 3.25 and CUDA
# 13 on an unknown dialect. Sluice needs only headers and libraries.
#
# Searches in this order: LibTorch_ROOT and CMAKE_PREFIX_PATH (the folder with include/ and lib/, or
# the site-packages around it), SLUICE_VENV or .venv of this checkout, the torch of python3.
#
# Sets
# - LibTorch_FOUND, LibTorch_VERSION, LibTorch_DIR_FOUND (the torch folder)
# - LibTorch_SITE_PACKAGES (the folder where torchvision may be; empty for an unpacked LibTorch)
# - LibTorch_PYTHON and LibTorch_PYTHON_LIBRARY (the Python of that folder and its libpython, which
#   torchvision's operators need; may be empty)
# - the targets LibTorch::c10, LibTorch::c10_cuda, LibTorch::torch_cpu, LibTorch::torch_cuda,
#   LibTorch::torch, and LibTorch::LibTorch for all of them

# Runs a line of Python and returns its output; empty if it fails.
function(_libtorch_python result program)
  execute_process(COMMAND ${program} -c "${ARGN}" OUTPUT_VARIABLE out ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(failed)
    set(out "")
  endif()
  set(${result} "${out}" PARENT_SCOPE)
endfunction()

# A copy of the tree, as ./x mutate makes, names the .venv of the checkout.
set(_libtorch_venv_folder ${PROJECT_SOURCE_DIR}/.venv)
if(SLUICE_VENV)
  set(_libtorch_venv_folder ${SLUICE_VENV})
endif()
file(GLOB _libtorch_venv ${_libtorch_venv_folder}/lib/python3*/site-packages/torch)
# Finds the folder without importing torch, which takes seconds.
_libtorch_python(_libtorch_system python3
  "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])")
find_path(LibTorch_INCLUDE_DIR torch/csrc/inductor/aoti_package/model_package_loader.h
  HINTS ${LibTorch_ROOT} ${CMAKE_PREFIX_PATH} ${_libtorch_venv} ${_libtorch_system}
  PATH_SUFFIXES include torch/include
  NO_DEFAULT_PATH)
if(LibTorch_INCLUDE_DIR)
  get_filename_component(LibTorch_DIR_FOUND ${LibTorch_INCLUDE_DIR} DIRECTORY)
  set(_libtorch_header ${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h)
  if(EXISTS ${_libtorch_header})
    set(LibTorch_VERSION "")
    foreach(_libtorch_part IN ITEMS MAJOR MINOR PATCH)
      file(STRINGS ${_libtorch_header} _libtorch_line
           REGEX "define TORCH_VERSION_${_libtorch_part} [0-9]+")
      string(REGEX MATCH "[0-9]+$" _libtorch_number "${_libtorch_line}")
      string(JOIN "." LibTorch_VERSION ${LibTorch_VERSION} ${_libtorch_number})
    endforeach()
  endif()
endif()

# The CUDA headers that torch's headers include. The headers in the wheel nvidia-cuda-runtime need
# crt/, which is in a wheel that torch does not require. Triton, which torch requires, also has
# crt/.
get_filename_component(_libtorch_parent "${LibTorch_DIR_FOUND}" DIRECTORY)
set(_libtorch_cuda_hints ${_libtorch_parent}/nvidia/cu13 ENV CUDA_HOME ENV CUDA_PATH)
find_path(LibTorch_CUDA_INCLUDE_DIR cuda_runtime_api.h
  HINTS ${_libtorch_cuda_hints} PATHS /usr/local/cuda PATH_SUFFIXES include)
find_path(LibTorch_CRT_INCLUDE_DIR crt/host_config.h
  HINTS ${LibTorch_CUDA_INCLUDE_DIR} ${_libtorch_parent}/triton/backends/nvidia
        ${_libtorch_cuda_hints}
  PATHS /usr/local/cuda PATH_SUFFIXES include)
# cuda_fp16.h needs nv/target, which is in the wheel nvidia-cuda-cccl.
find_path(LibTorch_NV_INCLUDE_DIR nv/target
  HINTS ${LibTorch_CUDA_INCLUDE_DIR} ${_libtorch_cuda_hints}
  PATHS /usr/local/cuda PATH_SUFFIXES cccl include/cccl include)
set(_libtorch_cuda_includes ${LibTorch_CUDA_INCLUDE_DIR} ${LibTorch_CRT_INCLUDE_DIR}
                            ${LibTorch_NV_INCLUDE_DIR})
list(REMOVE_DUPLICATES _libtorch_cuda_includes)

set(_libtorch_required LibTorch_INCLUDE_DIR LibTorch_CUDA_INCLUDE_DIR LibTorch_CRT_INCLUDE_DIR
                       LibTorch_NV_INCLUDE_DIR)
foreach(_library IN ITEMS c10 c10_cuda torch_cpu torch_cuda torch)
  find_library(LibTorch_${_library}_LIBRARY ${_library}
    HINTS ${LibTorch_DIR_FOUND}/lib NO_DEFAULT_PATH)
  list(APPEND _libtorch_required LibTorch_${_library}_LIBRARY)
  mark_as_advanced(LibTorch_${_library}_LIBRARY)
endforeach()
# Inline functions in c10's headers call the CUDA runtime. A wheel has its library only under the
# full name.
find_library(LibTorch_cudart_LIBRARY NAMES cudart libcudart.so.13 NAMES_PER_DIR
  HINTS ${LibTorch_CUDA_INCLUDE_DIR}/.. PATH_SUFFIXES lib lib64)
list(APPEND _libtorch_required LibTorch_cudart_LIBRARY)
mark_as_advanced(LibTorch_cudart_LIBRARY LibTorch_INCLUDE_DIR LibTorch_CUDA_INCLUDE_DIR
                 LibTorch_CRT_INCLUDE_DIR LibTorch_NV_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS ${_libtorch_required}
                                           VERSION_VAR LibTorch_VERSION)
if(NOT LibTorch_FOUND)
  return()
endif()

foreach(_library IN ITEMS c10 c10_cuda torch_cpu torch_cuda torch)
  if(TARGET LibTorch::${_library})
    continue()
  endif()
  add_library(LibTorch::${_library} SHARED IMPORTED)
  set_target_properties(LibTorch::${_library} PROPERTIES
    IMPORTED_LOCATION ${LibTorch_${_library}_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES
      "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES
      "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include")
endforeach()
if(NOT TARGET LibTorch::LibTorch)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  set_target_properties(LibTorch::LibTorch PROPERTIES
    INTERFACE_LINK_LIBRARIES
      "LibTorch::torch;LibTorch::torch_cpu;LibTorch::torch_cuda;LibTorch::c10_cuda;LibTorch::c10;${LibTorch_cudart_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${_libtorch_cuda_includes}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${_libtorch_cuda_includes}")
endif()

# torchvision's operators are linked with libpython. The Python of the folder's virtual environment
# knows where its library is; the loader finds system libraries by name.
set(LibTorch_SITE_PACKAGES "")
set(LibTorch_PYTHON_LIBRARY "")
set(LibTorch_PYTHON "")
if(_libtorch_parent MATCHES "/lib/python3[.0-9]+/[a-z]+-packages$")
  set(LibTorch_SITE_PACKAGES ${_libtorch_parent})
  get_filename_component(_libtorch_prefix ${_libtorch_parent}/../../.. ABSOLUTE)
  set(LibTorch_PYTHON ${_libtorch_prefix}/bin/python3)
  if(NOT EXISTS ${LibTorch_PYTHON})
    set(LibTorch_PYTHON python3)
  endif()
  _libtorch_python(LibTorch_PYTHON_LIBRARY ${LibTorch_PYTHON}
    "import os, sysconfig as s; v = s.get_config_var
f = [os.path.join(d, v('INSTSONAME')) for d in (v('LIBDIR'), os.path.join(v('LIBDIR'), v('MULTIARCH') or ''))]
print(next((p for p in f if os.path.exists(p)), v('INSTSONAME')) if v('Py_ENABLE_SHARED') else '')")
endif()
