# SPDX-License-Identifier: Apache-2.0
# Installs a build tree to a fresh prefix, moves it, then builds and runs tests/install/app against it twice: through find_package
# and through pkg-config. The app is copied out of the tree so that it sees nothing but the installation. Without build_dir the tree is one
# of the static library alone, configured here as people do who embed it and know nothing of our presets. One layer is compiled in it, to show that it is; the library
# is then made of the objects that the tests are linked with, archive, which differ in nothing but the visibility of some symbols. (`cmake --preset static` builds all of it.)
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " line)
    message(FATAL_ERROR "this ended with ${result}: ${line}\n${output}")
  endif()
  message(STATUS "${output}")
endfunction()

set(tools -G ${generator} -DCMAKE_CXX_COMPILER=${compiler} -DCMAKE_CXX_COMPILER_LAUNCHER=${launcher})
if(also_there)
  set(ENV{CMAKE_PREFIX_PATH} ${also_there})
endif()
set(own_tree OFF)
if(NOT build_dir)
  set(own_tree ON)
  set(build_dir ${work_dir}/build)
  run(${CMAKE_COMMAND} -S ${source_dir} -B ${build_dir} ${tools}
    -DBUILD_SHARED_LIBS=OFF -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DTROUPE_PROGRAM=OFF -DTROUPE_UNITY=ON)
  run(${CMAKE_COMMAND} --build ${build_dir} --parallel --target troupe_topology)
  configure_file(${archive} ${build_dir}/libtroupe.a COPYONLY)
endif()

set(prefix ${work_dir}/moved)
set(outside ${work_dir}/outside)
file(REMOVE_RECURSE ${outside} ${prefix})
file(COPY ${source_dir}/tests/install/app/ ${source_dir}/examples/04_your_own_choreography.cpp
  ${source_dir}/examples/05_from_caf_actors.cpp ${source_dir}/examples/11_card_memory.cpp DESTINATION ${outside})
run(${CMAKE_COMMAND} --install ${build_dir} --prefix ${work_dir}/installed)
file(RENAME ${work_dir}/installed ${prefix})

# Public headers alone.
foreach(inside IN ITEMS engine/tools engine/planning engine/world actors/rank)
  if(EXISTS ${prefix}/include/troupe/${inside})
    message(FATAL_ERROR "${inside} is installed, and is not public")
  endif()
endforeach()
# The same bytes wherever the tree was built: no file of the installation knows where that was.
execute_process(COMMAND grep -rlF ${source_dir} ${prefix} OUTPUT_VARIABLE tellers)
if(tellers)
  message(FATAL_ERROR "these files name ${source_dir}:\n${tellers}")
endif()

run(${CMAKE_COMMAND} -S ${outside} -B ${outside}/build ${tools} -DCMAKE_PREFIX_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${outside}/build --parallel)
foreach(program IN ITEMS app author actors card)
  run(${outside}/build/${program})
endforeach()
if(own_tree)
  if(EXISTS ${prefix}/bin)
    message(FATAL_ERROR "TROUPE_PROGRAM is off, and something is installed in bin")
  endif()
else()
  run(${prefix}/bin/troupe --help)
  foreach(file IN ITEMS man/man1/troupe.1 bash-completion/completions/troupe zsh/site-functions/_troupe troupe/troupe.schema.json)
    file(SIZE ${prefix}/share/${file} size)
    if(size LESS 1000)
      message(FATAL_ERROR "share/${file} has ${size} bytes")
    endif()
  endforeach()
endif()

# CAF of another version than the library was built with: refused, with both versions, before anything is linked with two of them.
set(other_caf ${work_dir}/other_caf)
file(WRITE ${other_caf}/caf/config.hpp "")
file(WRITE ${other_caf}/caf/detail/build_config.hpp "#define CAF_VERSION_STR \"9.8.7\"\n")
execute_process(COMMAND ${CMAKE_COMMAND} -S ${outside} -B ${outside}/refused ${tools} -DCMAKE_PREFIX_PATH=${prefix} -DCAF_INCLUDE_DIR=${other_caf}
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
string(REGEX REPLACE "[ \n]+" " " output "${output}")  # CMake breaks lines
if(result EQUAL 0 OR NOT output MATCHES "it needs the C\\+\\+ Actor Framework [01]\\.[0-9.]+, with which it was built .*there is 9\\.8\\.7 in")
  message(FATAL_ERROR "another CAF is not refused as it should be, but with ${result}: ${output}")
endif()

set(ENV{PKG_CONFIG_PATH} ${prefix}/${lib_dir}/pkgconfig)
execute_process(COMMAND ${pkg_config} --cflags --libs troupe OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
foreach(source IN ITEMS main 04_your_own_choreography)
  run(${compiler} -std=c++20 -Wall -Wextra -Werror ${outside}/${source}.cpp ${flags}
    -Wl,-rpath,${prefix}/${lib_dir} -o ${outside}/by_pkg_config)
  run(${outside}/by_pkg_config)
endforeach()
