# What only a build for packages does (preset `package`, ./x package): man pages, docs, and CPack's .deb.
find_package(Python3 REQUIRED COMPONENTS Interpreter)

# The objects are those of ./x build, so ccache has them. Only debug information has paths of this folder; stripped by
# the linker, it is not part of the build id either, so that the bytes are the same from any folder.
add_link_options(-s)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)

# Every --help, so of what was built. Always made again: it takes seconds, and each program or module may change one.
set(man_dir ${PROJECT_BINARY_DIR}/share/man/man1)
function(sluice_man_pages)
  get_property(placed GLOBAL PROPERTY SLUICE_PLACED)
  add_custom_target(man_pages ALL
    ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/man/man_pages.py ${PROJECT_BINARY_DIR}/bin/sluice ${man_dir}
            ${PROJECT_VERSION}
    DEPENDS ${placed} COMMENT "Writing man pages" VERBATIM)
endfunction()
cmake_language(DEFER CALL sluice_man_pages)

# A package for each component. To add one, give its install commands a component, and name that below.
list(JOIN SLUICE_LAB_COMMANDS "|" lab)
install(DIRECTORY ${man_dir} DESTINATION share/man REGEX "/sluice-(${lab})[.]1" EXCLUDE)
install(DIRECTORY ${man_dir} DESTINATION share/man COMPONENT lab FILES_MATCHING REGEX "/sluice-(${lab})[.]1")
# What the pages link to, at the same places as here.
install(FILES README.md CHANGELOG.md CONTRIBUTING.md DESTINATION share/doc/sluice)
foreach(folder IN ITEMS exp_configs simgpu)
  install(FILES ${folder}/README.md DESTINATION share/doc/sluice/${folder})
endforeach()
install(DIRECTORY docs DESTINATION share/doc/sluice FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.webp"
        PATTERN "*.csv" PATTERN "*.json" PATTERN "*.jsonl" REGEX "docs/data/[^/]+[.]xz$")
install(FILES tools/completion/sluice.bash DESTINATION share/bash-completion/completions RENAME sluice)
install(FILES tools/completion/_sluice DESTINATION share/zsh/site-functions)
install(FILES tools/completion/sluice.fish DESTINATION share/fish/vendor_completions.d)
set(contact "The authors of Sluice <maintainers@users.noreply.a-seed-02b29003.example>")  # that of the commits
set(components sluice lab dev)
if(SLUICE_SLURM_INCLUDE_DIR)
  list(APPEND components slurm)
endif()
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # of SOURCE_DATE_EPOCH
configure_file(cmake/debian/changelog.in ${PROJECT_BINARY_DIR}/debian/changelog @ONLY)
set(changelog ${PROJECT_BINARY_DIR}/debian/changelog.gz)
execute_process(COMMAND gzip -9nc ${PROJECT_BINARY_DIR}/debian/changelog OUTPUT_FILE ${changelog}
                COMMAND_ERROR_IS_FATAL ANY)
foreach(component IN LISTS components)
  set(package sluice)
  if(NOT component STREQUAL sluice)
    set(package sluice-${component})
  endif()
  install(FILES cmake/debian/copyright ${changelog} DESTINATION share/doc/${package} COMPONENT ${component})
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
  list(APPEND CPACK_COMPONENTS_ALL ${component})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT ${contact})
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_DEV_PACKAGE_ARCHITECTURE all)

set(CPACK_COMPONENT_SLUICE_DESCRIPTION "Shares one NVIDIA GPU between critical and best-effort programs
A latency-critical program answers nearly as fast as alone, and best-effort
programs use the rest of the GPU. None of them needs a change.

Without the programs that run PyTorch models: those need LibTorch, which is
not in this distribution. sluice doctor says what is missing.")
set(CPACK_DEBIAN_SLUICE_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_SLUICE_PACKAGE_SHLIBDEPS ON)
# The programs that others link to or load are found relative to their own place.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/${SLUICE_SIMGPU_DIR})
set(CPACK_DEBIAN_SLUICE_PACKAGE_DEPENDS "python3 (>= 3.10)")
set(CPACK_DEBIAN_SLUICE_PACKAGE_SUGGESTS "python3-venv")
set(scripts ${PROJECT_SOURCE_DIR}/cmake/debian)
set(CPACK_DEBIAN_SLUICE_PACKAGE_CONTROL_EXTRA ${scripts}/postinst ${scripts}/prerm ${scripts}/postrm)

set(CPACK_COMPONENT_LAB_DESCRIPTION "Experiments with the sharing of a GPU by Sluice
Commands that compare policies and measure programs: bench and sweep; opbench,
predict and programs for single operators. Sharing a GPU needs none of them.")
set(CPACK_DEBIAN_LAB_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_LAB_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LAB_PACKAGE_DEPENDS "sluice (= ${PROJECT_VERSION})")

set(CPACK_COMPONENT_DEV_DESCRIPTION "C API of Sluice: jobs, announcements, memory orders
One header. It looks for the preloaded interposer when a function is called,
so a program that uses it runs without Sluice too.")
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_RECOMMENDS sluice)

if(SLUICE_SLURM_INCLUDE_DIR)
  # Slurm refuses a plugin that was built for another release. 0x160508 is 22.05.8.
  file(STRINGS ${SLUICE_SLURM_INCLUDE_DIR}/slurm/slurm_version.h slurm REGEX "define SLURM_VERSION_NUMBER 0x")
  string(REGEX MATCH "0x[0-9a-fA-F]+" slurm "${slurm}")
  math(EXPR major "${slurm} >> 16")
  math(EXPR minor "(${slurm} >> 8) & 0xff")
  math(EXPR next "${minor} + 1")
  foreach(part IN ITEMS minor next)
    if(${part} LESS 10)
      set(${part} 0${${part}})
    endif()
  endforeach()
  set(CPACK_COMPONENT_SLURM_DESCRIPTION "Priorities on shared GPUs for jobs of Slurm
A SPANK plugin, a prolog and an epilog. For Slurm ${major}.${minor} only.")
  set(CPACK_DEBIAN_SLURM_PACKAGE_SECTION admin)
  set(CPACK_DEBIAN_SLURM_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_SLURM_PACKAGE_CONTROL_EXTRA ${scripts}/slurm/prerm)
  set(basic slurm-wlm-basic-plugins)  # of the daemon and of the clients
  set(CPACK_DEBIAN_SLURM_PACKAGE_DEPENDS
      "sluice (= ${PROJECT_VERSION}), ${basic} (>= ${major}.${minor}), ${basic} (<< ${major}.${next}~)")
endif()
include(CPack)
