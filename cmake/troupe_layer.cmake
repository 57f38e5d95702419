# troupe_layer(<folder> [ON <lower layer>...] [USES <outside target>...])
#
# One object library troupe_<folder> of all sources in the calling folder. ON names the layers below it whose headers it may
# include; USES is what it takes from outside, invisible to the layers above. Objects rather than archives: nothing that
# registers itself is dropped by the linker, and a test can link the lower layers alone.
function(troupe_layer folder)
  cmake_parse_arguments(layer "" "" "ON;USES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/engine/tools/cli/")
  if(NOT sources)
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/headers_only.cpp)
    file(CONFIGURE OUTPUT ${sources} CONTENT "" @ONLY)
  endif()
  set(target troupe_${folder})
  add_library(${target} OBJECT ${sources})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE troupe_own_code ${layer_USES})
  foreach(lower IN LISTS layer_ON)
    # Headers only, not objects: whoever links the final program lists the layers it wants.
    target_include_directories(${target} PUBLIC $<TARGET_PROPERTY:troupe_${lower},INTERFACE_INCLUDE_DIRECTORIES>)
  endforeach()
endfunction()
