# What `cmake --install` puts where: both libraries, the headers, the command, the workloads, the
# adapters to peer libraries, and what find_package(faltung) and pkg-config read.
include(CMakePackageConfigHelpers)

install(TARGETS faltung_static faltung_shared EXPORT faltungTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/faltung DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(DIRECTORY workloads/ DESTINATION ${CMAKE_INSTALL_DATADIR}/faltung/workloads)
install(FILES share/known_devices.json DESTINATION ${CMAKE_INSTALL_DATADIR}/faltung)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(FALTUNG_TOOLS)
  install(TARGETS faltung_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(FALTUNG_PEERS)
  get_property(peers DIRECTORY bench/peers PROPERTY BUILDSYSTEM_TARGETS)
  foreach(peer ${peers})
    get_target_property(type ${peer} TYPE)
    if(type STREQUAL EXECUTABLE)
      install(TARGETS ${peer} RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/faltung)
    endif()
  endforeach()
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/faltung)
install(EXPORT faltungTargets NAMESPACE faltung:: DESTINATION ${package_dir})
configure_package_config_file(cmake/faltungConfig.cmake.in ${PROJECT_BINARY_DIR}/faltungConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/faltungConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/faltungConfig.cmake ${PROJECT_BINARY_DIR}/faltungConfigVersion.cmake
        DESTINATION ${package_dir})

# Relative to the file itself, so that the package can be installed anywhere and moved.
file(RELATIVE_PATH FALTUNG_PC_TO_INCLUDE ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(cmake/faltung.pc.in ${PROJECT_BINARY_DIR}/faltung.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/faltung.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
