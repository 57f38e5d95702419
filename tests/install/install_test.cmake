# Installs the build tree to a fresh prefix, moves it, then builds and runs tests/install/app against it twice: through
# find_package and through pkg-config. The app is copied out of the tree so that it sees nothing but the installation.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " line)
    message(FATAL_ERROR "this ended with ${result}: ${line}\n${output}")
  endif()
  message(STATUS "${output}")
endfunction()

set(prefix ${work_dir}/moved)
file(REMOVE_RECURSE ${work_dir})
file(MAKE_DIRECTORY ${work_dir})
file(COPY ${app_dir} DESTINATION ${work_dir})
run(${CMAKE_COMMAND} --install ${build_dir} --prefix ${work_dir}/installed)
file(RENAME ${work_dir}/installed ${prefix})

run(${CMAKE_COMMAND} -S ${work_dir}/app -B ${work_dir}/build -G ${generator}
  -DCMAKE_CXX_COMPILER=${compiler} -DCMAKE_PREFIX_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${work_dir}/build)
run(${work_dir}/build/app)
run(${prefix}/bin/troupe --help)

set(ENV{PKG_CONFIG_PATH} ${prefix}/${lib_dir}/pkgconfig)
execute_process(COMMAND ${pkg_config} --cflags --libs troupe OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
run(${compiler} -std=c++20 -Wall -Wextra -Werror ${work_dir}/app/main.cpp ${flags}
  -Wl,-rpath,${prefix}/${lib_dir} -o ${work_dir}/app_pkg_config)
run(${work_dir}/app_pkg_config)
