# What `cmake --install` puts where, and what `cpack` packs, in components: lib (the shared library and what it reads), dev
# (the headers, the static library, what find_package(faltung) and pkg-config read), tools (the command, which is also the
# library's worker, and the workloads) and peers (the adapters to peer libraries).
include(CMakePackageConfigHelpers)

install(TARGETS faltung_static faltung_shared EXPORT faltungTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lib NAMELINK_COMPONENT dev)
install(FILES share/known_devices.pack DESTINATION ${CMAKE_INSTALL_DATADIR}/faltung COMPONENT lib)
install(DIRECTORY include/faltung DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(DIRECTORY workloads/ DESTINATION ${CMAKE_INSTALL_DATADIR}/faltung/workloads COMPONENT tools)
foreach(component lib dev tools)  # each Debian package has its own
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${FALTUNG_PACKAGE_${component}} RENAME copyright
          COMPONENT ${component})
endforeach()
if(FALTUNG_TOOLS)
  install(TARGETS faltung_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
endif()
if(TARGET faltung_manual)
  set(printed ${PROJECT_BINARY_DIR}/tools/faltung)
  install(FILES ${printed}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
  install(FILES ${printed}.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME faltung COMPONENT tools)
  install(FILES ${printed}.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _faltung COMPONENT tools)
  install(FILES ${printed}.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT tools)
endif()
# The pages, beside each other as in the sources, for their links.
set(pages ${CMAKE_INSTALL_DATADIR}/doc/${FALTUNG_PACKAGE_tools})
install(FILES README.md CHANGELOG.md SECURITY.md DESTINATION ${pages} COMPONENT tools)
install(DIRECTORY docs DESTINATION ${pages} COMPONENT tools FILES_MATCHING PATTERN "*.md" PATTERN "*.svg"
        PATTERN "pictures/*" PATTERN "notes" EXCLUDE PATTERN "api" EXCLUDE)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${FALTUNG_PACKAGE_dev} COMPONENT dev)
if(FALTUNG_PEERS)
  get_property(peers DIRECTORY bench/peers PROPERTY BUILDSYSTEM_TARGETS)
  foreach(peer ${peers})
    get_target_property(type ${peer} TYPE)
    if(type STREQUAL EXECUTABLE)
      install(TARGETS ${peer} RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/faltung COMPONENT peers)
    endif()
  endforeach()
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/faltung)
install(EXPORT faltungTargets NAMESPACE faltung:: DESTINATION ${package_dir} COMPONENT dev)
configure_package_config_file(cmake/faltungConfig.cmake.in ${PROJECT_BINARY_DIR}/faltungConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/faltungConfigVersion.cmake COMPATIBILITY ${FALTUNG_COMPATIBILITY})
install(FILES ${PROJECT_BINARY_DIR}/faltungConfig.cmake ${PROJECT_BINARY_DIR}/faltungConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT dev)

# Relative to the file itself, so that the package can be installed anywhere and moved.
file(RELATIVE_PATH FALTUNG_PC_TO_INCLUDE ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(cmake/faltung.pc.in ${PROJECT_BINARY_DIR}/faltung.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/faltung.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
