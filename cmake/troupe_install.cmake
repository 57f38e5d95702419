# SPDX-License-Identifier: Apache-2.0
# cmake --install: the library, its public headers, the files by which find_package and pkg-config find it; and, unless TROUPE_PROGRAM is
# off, the program with its man page and completions, the config presets and their JSON Schema.
#
# Public headers are the entry headers below and what they include; no others are installed. They keep their folders under
# include/troupe/, and a one-line troupe.hpp beside them leads to the entry header (a copy would be defined twice): with that one
# include directory both <troupe.hpp> and "protocols/score/score_builder.hpp" resolve, spelled as in the tree.
include(CMakePackageConfigHelpers)

# Components, of which cmake/troupe_package.cmake makes a package each: `library`, `development`, and `program`, the rest.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)

set(header_dir ${CMAKE_INSTALL_INCLUDEDIR}/troupe)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/troupe)

set(public_headers
  engine/api/troupe.hpp
  engine/api/caf_actors.hpp  # programs made of CAF actors
  memory/tiers/card_memory.hpp  # a card's memory in three tiers
  engine/bindings/c/troupe_card.h
  # A flow's operators.
  engine/flow/operators/add.hpp
  engine/flow/operators/dropout.hpp
  engine/flow/operators/gelu.hpp
  engine/flow/operators/gemm.hpp
  engine/flow/operators/layer_norm.hpp
  # Authors of choreographies (docs/choreographies.md).
  protocols/choreographies/patterns.hpp
  protocols/choreographies/plugin.hpp
  protocols/lower/lowering.hpp
  protocols/score/score_builder.hpp
  protocols/verify/verifier.hpp)
set(unread ${public_headers})
while(unread)
  list(POP_FRONT unread header)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})  # its includes may change
  file(STRINGS ${header} lines REGEX "^#include \"")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
    if(NOT included IN_LIST public_headers)
      list(APPEND public_headers ${included})
      list(APPEND unread ${included})
    endif()
  endforeach()
endwhile()

install(TARGETS troupe EXPORT troupe_targets
  LIBRARY COMPONENT library NAMELINK_COMPONENT development
  ARCHIVE COMPONENT development)
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${header_dir}/${folder})
endforeach()
file(CONFIGURE OUTPUT troupe.hpp CONTENT "#pragma once\n#include \"engine/api/troupe.hpp\"\n" @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/troupe.hpp DESTINATION ${header_dir})
if(TROUPE_PROGRAM)
  install(TARGETS troupe_cli COMPONENT program)
  install(FILES ${PROJECT_BINARY_DIR}/generated/troupe.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
  install(FILES ${PROJECT_BINARY_DIR}/generated/troupe.bash RENAME troupe
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
  install(FILES ${PROJECT_BINARY_DIR}/generated/_troupe DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions
    COMPONENT program)
  install(FILES ${PROJECT_BINARY_DIR}/generated/troupe.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/troupe
    COMPONENT program)
  install(DIRECTORY config/ DESTINATION ${CMAKE_INSTALL_DATADIR}/troupe/config COMPONENT program OPTIONAL)
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)

install(EXPORT troupe_targets NAMESPACE troupe:: DESTINATION ${package_dir})
configure_package_config_file(cmake/troupeConfig.cmake.in troupeConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(troupeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/troupeConfig.cmake ${PROJECT_BINARY_DIR}/troupeConfigVersion.cmake cmake/FindCAF.cmake
  DESTINATION ${package_dir})

# prefix is written relative to the .pc file, so that the installed tree can be moved.
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
# A static library names what it uses. Not as private: then pkg-config --static would ask for what those, shared themselves, use.
set(pc_requires "")
set(pc_libs "")
set(pc_cflags "")
if(NOT BUILD_SHARED_LIBS)
  set(pc_requires "hwloc libssl libcrypto spdlog tomlplusplus")
  set(pc_libs " -lcaf_core")  # brings no .pc file
  set(pc_cflags " -DTROUPE_STATIC")
endif()
configure_file(cmake/troupe.pc.in troupe.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/troupe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
