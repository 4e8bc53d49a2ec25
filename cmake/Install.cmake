# What `cmake --install` gives: headers, the library, a CMake package, a pkg-config file and the headgate command.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/headgate)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS headgate EXPORT headgateTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT headgateTargets NAMESPACE headgate:: DESTINATION ${package_dir})
if(TARGET headgate_cli)
  install(TARGETS headgate_cli)
endif()

# A static library hands its own needs on to whoever links it, who may be a C program; a shared one has met them already.
if(BUILD_SHARED_LIBS)
  set(HEADGATE_NEEDS_DATE FALSE)
  set(HEADGATE_PC_LIBS "")
  set(HEADGATE_PC_LIBS_PRIVATE "-ldate-tz -lstdc++ -lm -pthread")
else()
  set(HEADGATE_NEEDS_DATE TRUE)
  set(HEADGATE_PC_LIBS " -ldate-tz -lstdc++ -lm -pthread")
  set(HEADGATE_PC_LIBS_PRIVATE "")
endif()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/headgateConfig.cmake.in
  ${PROJECT_BINARY_DIR}/headgateConfig.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may break its users.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/headgateConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/headgateConfig.cmake ${PROJECT_BINARY_DIR}/headgateConfigVersion.cmake
  DESTINATION ${package_dir})

# Paths are relative to the file, so that `cmake --install --prefix` may name another place than configuring did.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
  BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${pkgconfig_dir} OUTPUT_VARIABLE HEADGATE_PC_PREFIX)
configure_file(${CMAKE_CURRENT_LIST_DIR}/headgate.pc.in ${PROJECT_BINARY_DIR}/headgate.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/headgate.pc DESTINATION ${pkgconfig_dir})
