# SPDX-License-Identifier: Apache-2.0
# Finds the C++ Actor Framework, 0.17 (Debian's, which brings no CMake configuration) or 1.x (-DCMAKE_PREFIX_PATH=… where it is
# installed).
#
#   find_package(CAF [0.17...<2] COMPONENTS core [io] [openssl])
#
# Defines CAF::core, CAF::io, CAF::openssl (imported, so their headers are SYSTEM) and CAF_VERSION.

find_path(CAF_INCLUDE_DIR caf/actor_system.hpp)
mark_as_advanced(CAF_INCLUDE_DIR)

if(CAF_INCLUDE_DIR)
  # 0.17: `#define CAF_VERSION 1706` is major * 10000 + minor * 100 + patch. 1.x: `#define CAF_VERSION_STR "1.1.0"`.
  file(STRINGS ${CAF_INCLUDE_DIR}/caf/config.hpp caf_line REGEX "^#define CAF_VERSION [0-9]+")
  string(REGEX MATCH "[0-9]+$" caf_number "${caf_line}")
  if(caf_number)
    math(EXPR caf_major "${caf_number} / 10000")
    math(EXPR caf_minor "${caf_number} / 100 % 100")
    math(EXPR caf_patch "${caf_number} % 100")
    set(CAF_VERSION ${caf_major}.${caf_minor}.${caf_patch})
  elseif(EXISTS ${CAF_INCLUDE_DIR}/caf/detail/build_config.hpp)
    file(STRINGS ${CAF_INCLUDE_DIR}/caf/detail/build_config.hpp caf_line REGEX "^#define CAF_VERSION_STR ")
    string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" CAF_VERSION "${caf_line}")
  endif()
  if(CAF_VERSION VERSION_GREATER_EQUAL 0.18 AND CAF_VERSION VERSION_LESS 1)
    message(FATAL_ERROR "CAF ${CAF_VERSION} in ${CAF_INCLUDE_DIR}: Troupe takes 0.17 (Debian 12's) and 1.x")
  endif()
endif()

if(NOT CAF_FIND_COMPONENTS)
  set(CAF_FIND_COMPONENTS core)
endif()
find_package(Threads QUIET)
foreach(component IN LISTS CAF_FIND_COMPONENTS)
  find_library(CAF_${component}_LIBRARY caf_${component})
  mark_as_advanced(CAF_${component}_LIBRARY)
  if(CAF_INCLUDE_DIR AND CAF_${component}_LIBRARY)
    set(CAF_${component}_FOUND TRUE)
    if(NOT TARGET CAF::${component})
      add_library(CAF::${component} UNKNOWN IMPORTED)
      set_target_properties(CAF::${component} PROPERTIES
        IMPORTED_LOCATION ${CAF_${component}_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${CAF_INCLUDE_DIR}
        INTERFACE_LINK_LIBRARIES Threads::Threads)
      if(NOT component STREQUAL "core" AND TARGET CAF::core)
        set_property(TARGET CAF::${component} APPEND PROPERTY INTERFACE_LINK_LIBRARIES CAF::core)
      endif()
    endif()
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CAF
  REQUIRED_VARS CAF_INCLUDE_DIR VERSION_VAR CAF_VERSION HANDLE_VERSION_RANGE HANDLE_COMPONENTS)
