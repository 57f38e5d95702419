# SPDX-License-Identifier: Apache-2.0
# troupe_layer(<name> [ON <lower layer>...] [USES <outside target>...] [OF <folder>...] [WITHOUT <folder>...])
#
# One object library troupe_<name> of all sources in the calling folder, or in its folders named by OF, but for those named by WITHOUT. ON names the layers
# below it whose headers it may include; USES is what it takes from outside, invisible to the layers above. Objects rather than
# archives: a test can link the lower layers alone, and the linker is told exactly what a library or program consists of.
function(troupe_layer name)
  cmake_parse_arguments(layer "" "" "ON;USES;OF;WITHOUT" ${ARGN})
  set(folders ${CMAKE_CURRENT_SOURCE_DIR})
  if(layer_OF)
    list(TRANSFORM layer_OF PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE folders)
  endif()
  list(TRANSFORM folders APPEND /*.cpp)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folders})
  foreach(folder IN LISTS layer_WITHOUT)
    file(GLOB_RECURSE others CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
    list(REMOVE_ITEM sources ${others})
  endforeach()
  if(NOT sources)
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/headers_only.cpp)
    file(CONFIGURE OUTPUT ${sources} CONTENT "" @ONLY)
  endif()
  set(target troupe_${name})
  add_library(${target} OBJECT ${sources})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE troupe_own_code ${layer_USES})
  # Hidden unless marked TROUPE_API (memory/export.hpp).
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  if(NOT BUILD_SHARED_LIBS)
    target_compile_definitions(${target} PUBLIC TROUPE_STATIC)
  endif()
  foreach(lower IN LISTS layer_ON)
    # Headers only, not objects: whoever links the final program lists the layers it wants.
    target_include_directories(${target} PUBLIC $<TARGET_PROPERTY:troupe_${lower},INTERFACE_INCLUDE_DIRECTORIES>)
  endforeach()
  set_property(TARGET ${target} PROPERTY TROUPE_USES ${layer_USES})
endfunction()
