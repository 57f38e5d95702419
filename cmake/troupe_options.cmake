# SPDX-License-Identifier: Apache-2.0
# How our own code is compiled. What a user may want otherwise (optimisation, frame pointers, warnings as errors) is in
# CMakePresets.json or has a variable; nothing here changes a flag that was given.

set(TROUPE_SANITIZE "" CACHE STRING "Build with a sanitizer: address (ASan + UBSan), thread, fuzzer (address, and libFuzzer for tests/fuzz; clang), or empty")
set_property(CACHE TROUPE_SANITIZE PROPERTY STRINGS "" address thread fuzzer)
option(TROUPE_PROGRAM "Build the program `troupe`; who embeds the library needs neither it nor CLI11" ${PROJECT_IS_TOP_LEVEL})
set(tests_by_default OFF)
if(PROJECT_IS_TOP_LEVEL AND TROUPE_PROGRAM)
  set(tests_by_default ON)
endif()
option(TROUPE_TESTS "Build tests, examples and benchmarks; they run the program, too" ${tests_by_default})
option(TROUPE_WITHOUT_CAF "Build only what needs no CAF (the lower layers and the ports) and its tests; no library" OFF)
option(TROUPE_UNITY "Compile several sources of a folder as one: a build from nothing takes half of the time, one after a small change more" OFF)
option(TROUPE_WERROR "Treat warnings in our own code as errors; our presets do" OFF)
set(TROUPE_UCX AUTO CACHE STRING "UCX (libucx-dev) as a transport between hosts: ON, OFF, or AUTO, where its headers are there; it is loaded when a job wants it")
set_property(CACHE TROUPE_UCX PROPERTY STRINGS AUTO ON OFF)
option(TROUPE_CCACHE "Compile through ccache where it is installed and no CMAKE_CXX_COMPILER_LAUNCHER is set" ${PROJECT_IS_TOP_LEVEL})

if(TROUPE_TESTS AND NOT TROUPE_PROGRAM)
  message(FATAL_ERROR "TROUPE_TESTS=ON needs TROUPE_PROGRAM=ON: the tests run the program")
endif()

# A library that is a file of its own unless BUILD_SHARED_LIBS says otherwise; nobody else's default is touched.
if(NOT DEFINED BUILD_SHARED_LIBS)
  set(BUILD_SHARED_LIBS ON)
endif()
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
foreach(default IN ITEMS CXX_STANDARD=20 CXX_EXTENSIONS=OFF POSITION_INDEPENDENT_CODE=ON)
  string(REPLACE "=" ";" default ${default})
  list(GET default 0 name)
  if(NOT DEFINED CMAKE_${name})
    list(GET default 1 CMAKE_${name})
  endif()
endforeach()
set(CMAKE_CXX_STANDARD_REQUIRED ON)

if(TROUPE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(CCACHE ccache)
  mark_as_advanced(CCACHE)
  if(CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  endif()
endif()

# Linked privately by every target made from our own sources.
add_library(troupe_own_code INTERFACE)
target_compile_options(troupe_own_code INTERFACE -Wall -Wextra -Wconversion $<$<BOOL:${TROUPE_WERROR}>:-Werror>)

# The same bytes wherever the tree lies. The longer path comes last: the last match wins.
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}=. -ffile-prefix-map=${PROJECT_BINARY_DIR}=./build)
# Nobody interposes our symbols: inside the shared library a function may be inlined into its neighbours.
add_compile_options(-fno-semantic-interposition)

if(TROUPE_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
elseif(TROUPE_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread)
  add_link_options(-fsanitize=thread)
elseif(TROUPE_SANITIZE STREQUAL "fuzzer")
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "TROUPE_SANITIZE=fuzzer needs clang: -DCMAKE_CXX_COMPILER=clang++, or the preset fuzz")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
elseif(TROUPE_SANITIZE)
  message(FATAL_ERROR "TROUPE_SANITIZE is '${TROUPE_SANITIZE}'; it must be 'address', 'thread', 'fuzzer' or empty")
endif()
if(TROUPE_SANITIZE)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()
