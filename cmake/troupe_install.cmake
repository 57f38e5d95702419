# cmake --install: the library, its headers, the program, the config presets, and the files by which find_package and pkg-config
# find it.
#
# Headers keep their folders under include/troupe/, and a one-line troupe.hpp beside them leads to the entry header (a copy would
# be defined twice): with that one include directory both <troupe.hpp> and "memory/types/types.hpp" resolve, as in the tree.
include(CMakePackageConfigHelpers)

set(header_dir ${CMAKE_INSTALL_INCLUDEDIR}/troupe)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/troupe)

install(TARGETS troupe EXPORT troupe_targets)
install(DIRECTORY memory topology protocols actors engine DESTINATION ${header_dir}
  FILES_MATCHING PATTERN "*.hpp" PATTERN "cli" EXCLUDE PATTERN "page" EXCLUDE)
file(CONFIGURE OUTPUT troupe.hpp CONTENT "#pragma once\n#include \"engine/api/troupe.hpp\"\n" @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/troupe.hpp DESTINATION ${header_dir})
if(TARGET troupe_cli)
  # Relative, so that the installed tree can be moved.
  file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(troupe_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS troupe_cli)
endif()
install(DIRECTORY config/ DESTINATION ${CMAKE_INSTALL_DATADIR}/troupe/config OPTIONAL)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT troupe_targets NAMESPACE troupe:: DESTINATION ${package_dir})
configure_package_config_file(cmake/troupeConfig.cmake.in troupeConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(troupeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/troupeConfig.cmake ${PROJECT_BINARY_DIR}/troupeConfigVersion.cmake cmake/FindCAF.cmake
  DESTINATION ${package_dir})

# prefix is written relative to the .pc file for the same reason.
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/troupe.pc.in troupe.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/troupe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
