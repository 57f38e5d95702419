# SPDX-License-Identifier: Apache-2.0
# `./dev deb`, or cpack -G DEB: libtroupe (the shared library), libtroupe-dev (headers, CMake and pkg-config files) and troupe (the
# program, its presets and documents). Needs dpkg-dev, whose dpkg-shlibdeps reads off what each of them depends on.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME troupe)
set(CPACK_PACKAGE_VENDOR "The Troupe authors")
set(CPACK_PACKAGE_CONTACT "The Troupe authors <troupe@localhost>")  # who makes a package of his own names himself
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Collective communication as verified choreographies")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# The program depends on the library of the same build, which is installed nowhere yet.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL library development program)

set(library_package libtroupe${PROJECT_VERSION_MAJOR})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${library_package})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "Collective communication of threads, tasks and actors: the shared library.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtroupe-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${library_package} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "libcaf-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Collective communication of threads, tasks and actors: headers, CMake and pkg-config files.")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME troupe)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "Collective communication: runs, measures, explains, proves and simulates collectives.")
include(CPack)
