# What the wheel is made of: the extension by the limited API, and the library, the command and what they read beside it,
# with the C++ library inside so that any Linux of this glibc or later has all it needs. The command's code is in the
# library, which has most of it anyhow: the wheel holds nothing twice. Install component: python.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)

function(faltung_self_contained target)
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/python/compat/arc4random.c)
  target_link_options(${target} PRIVATE -static-libstdc++)
  # Beside the package's Python files, so that the build folder is a package that works, too.
  set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python/faltung/lib
                                             RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python/faltung/bin)
endfunction()

add_library(faltung_python_library SHARED $<TARGET_OBJECTS:faltung_objects> $<TARGET_OBJECTS:faltung_tools>
                                          ${FALTUNG_ZSTD_OBJECTS})
target_link_libraries(faltung_python_library PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
target_include_directories(faltung_python_library INTERFACE ${PROJECT_SOURCE_DIR}/include)
set_target_properties(faltung_python_library PROPERTIES OUTPUT_NAME faltung SOVERSION ${FALTUNG_ABI})
faltung_exports(faltung_python_library)
faltung_self_contained(faltung_python_library)

add_executable(faltung_python_command ${PROJECT_SOURCE_DIR}/tools/main.cpp)
target_include_directories(faltung_python_command PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(faltung_python_command PRIVATE faltung_python_library)
set_target_properties(faltung_python_command PROPERTIES OUTPUT_NAME faltung BUILD_RPATH $ORIGIN/../lib
                                                        INSTALL_RPATH $ORIGIN/../lib)
# LD_LIBRARY_PATH may have another libfaltung, without what the command is.
target_link_options(faltung_python_command PRIVATE LINKER:--disable-new-dtags)
faltung_self_contained(faltung_python_command)

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/c/*.c)
add_library(faltung_python_extension MODULE ${sources})
set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "-std=c11;-Wno-pedantic;-Wno-conversion")
target_compile_definitions(faltung_python_extension PRIVATE Py_LIMITED_API=0x030A0000)
target_include_directories(faltung_python_extension PRIVATE ${CMAKE_CURRENT_LIST_DIR})
target_include_directories(faltung_python_extension SYSTEM PRIVATE ${Python_INCLUDE_DIRS})
target_link_libraries(faltung_python_extension PRIVATE faltung_python_library)
set_target_properties(faltung_python_extension PROPERTIES PREFIX "" OUTPUT_NAME _c SUFFIX .abi3.so C_VISIBILITY_PRESET hidden
                      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python/faltung
                      BUILD_RPATH $ORIGIN/lib INSTALL_RPATH $ORIGIN/lib)

file(GLOB_RECURSE modules CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_LIST_DIR} ${CMAKE_CURRENT_LIST_DIR}/faltung/*.py
     ${CMAKE_CURRENT_LIST_DIR}/faltung/*.pyi ${CMAKE_CURRENT_LIST_DIR}/faltung/*.cu ${CMAKE_CURRENT_LIST_DIR}/faltung/py.typed)
foreach(module ${modules})
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${module} ${PROJECT_BINARY_DIR}/python/${module} COPYONLY)
endforeach()
# In the build folder alone: in wheels it is python/hopper/'s.
configure_file(share/known_devices.pack python/faltung/share/faltung/known_devices.pack COPYONLY)
file(GLOB lists CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/workloads/*.csv ${PROJECT_SOURCE_DIR}/workloads/*.txt)
foreach(list ${lists})
  configure_file(${list} python/faltung/share/faltung/${list} COPYONLY)
endforeach()
configure_file(bench/peers/torch_peer.py python/faltung/peers/torch_peer.py COPYONLY)
add_custom_target(faltung_python ALL DEPENDS faltung_python_library faltung_python_command faltung_python_extension)

install(TARGETS faltung_python_extension LIBRARY DESTINATION faltung COMPONENT python)
install(TARGETS faltung_python_library LIBRARY DESTINATION faltung/lib COMPONENT python NAMELINK_SKIP)
install(TARGETS faltung_python_command RUNTIME DESTINATION faltung/bin COMPONENT python)
install(FILES ${lists} DESTINATION faltung/share/faltung/workloads COMPONENT python)
install(FILES bench/peers/torch_peer.py DESTINATION faltung/peers COMPONENT python)
