# `cpack --config build/CPackConfig.cmake` makes Debian packages of the install components lib, dev and tools.
set(FALTUNG_PACKAGE_lib libfaltung${FALTUNG_ABI})
set(FALTUNG_PACKAGE_dev libfaltung-dev)
set(FALTUNG_PACKAGE_tools faltung)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME faltung)
set(CPACK_PACKAGE_CONTACT "The faltung developers")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL lib dev tools)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_LIB_PACKAGE_NAME ${FALTUNG_PACKAGE_lib})
set(CPACK_DEBIAN_LIB_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIB_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_COMPONENT_LIB_DESCRIPTION "Open convolution engine: the library
 Convolutions of neural networks with what surrounds them, on CPUs and GPUs.
 GPU kernels are tried in a process of their own: that is the package faltung.")
# GPUs' kernels are tried by the command.
set(CPACK_DEBIAN_LIB_PACKAGE_RECOMMENDS "faltung (= ${PROJECT_VERSION})")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME ${FALTUNG_PACKAGE_dev})
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${FALTUNG_PACKAGE_lib} (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_DEV_DESCRIPTION "Open convolution engine: headers and static library
 For C and C++, with a CMake package and a pkg-config file.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME ${FALTUNG_PACKAGE_tools})
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "Open convolution engine: the command
 Times, finds, explains and verifies convolution kernels, and tries them for
 the library.")
include(CPack)
