# SPDX-License-Identifier: Apache-2.0
# Cross-compilation for 64-bit Arm with Debian's compiler; tests run under qemu-user. `./dev arm64` unpacks Debian's arm64 packages into
# build/arm64-packages/root, so that nothing of the system is changed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(packages ${CMAKE_CURRENT_LIST_DIR}/../build/arm64-packages/root)
get_filename_component(packages ${packages} ABSOLUTE)
set(libraries ${packages}/usr/lib/aarch64-linux-gnu)
list(APPEND CMAKE_PREFIX_PATH ${packages}/usr)
set(hwy_DIR ${libraries}/cmake/hwy)
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES ${packages}/usr/include/aarch64-linux-gnu)  # of hwloc and OpenSSL
# Nothing from the build machine's own folders, whose headers are another processor's.
set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)
set(ENV{PKG_CONFIG_LIBDIR} ${libraries}/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${packages})
add_link_options(-Wl,-rpath-link,${libraries})

set(CMAKE_CROSSCOMPILING_EMULATOR
  qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=${libraries})
