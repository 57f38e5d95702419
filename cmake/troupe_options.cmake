# How our own code is compiled: language, warnings, optimisation, sanitizers.

set(TROUPE_SANITIZE "" CACHE STRING "Build with a sanitizer: address (ASan + UBSan), thread, or empty")
set_property(CACHE TROUPE_SANITIZE PROPERTY STRINGS "" address thread)
option(TROUPE_TESTS "Build tests, examples and benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(TROUPE_WERROR "Treat warnings in our own code as errors" ${PROJECT_IS_TOP_LEVEL})

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# -O2 keeps the first build short; the kernels, where vector code pays, ask for -O3 (memory/CMakeLists.txt). -g1 gives
# stack traces with lines at a tenth of the size of full debug information.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# Linked privately by every target made from our own sources.
add_library(troupe_own_code INTERFACE)
target_compile_options(troupe_own_code INTERFACE -Wall -Wextra -Wconversion $<$<BOOL:${TROUPE_WERROR}>:-Werror>)

# Frame pointers make profiles and sanitizer stacks cheap. Inside the shared library a function may be inlined into its
# neighbours: nobody interposes our symbols.
add_compile_options(-fno-omit-frame-pointer -fno-semantic-interposition)

if(TROUPE_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
elseif(TROUPE_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread)
  add_link_options(-fsanitize=thread)
elseif(TROUPE_SANITIZE)
  message(FATAL_ERROR "TROUPE_SANITIZE is '${TROUPE_SANITIZE}'; it must be 'address', 'thread' or empty")
endif()
if(TROUPE_SANITIZE)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()
