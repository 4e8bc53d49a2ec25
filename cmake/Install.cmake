# What `cmake --install` gives: headers, the library, a CMake package, a pkg-config file and the headgate command
# with its manual and its completions.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/headgate)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS headgate EXPORT headgateTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT headgateTargets NAMESPACE headgate:: DESTINATION ${package_dir})
if(TARGET headgate_cli)
  install(TARGETS headgate_cli)
  # The command itself writes them, so they cannot say anything else than it does.
  set(made_dir ${PROJECT_BINARY_DIR}/made)
  install(CODE "
    file(MAKE_DIRECTORY ${made_dir})
    foreach(made IN ITEMS headgate.1:help,--man headgate:completions,bash _headgate:completions,zsh
        headgate.fish:completions,fish)
      string(REGEX REPLACE \":.*\" \"\" name \${made})
      string(REGEX REPLACE \".*:\" \"\" arguments \${made})
      string(REPLACE \",\" \";\" arguments \${arguments})
      execute_process(COMMAND $<TARGET_FILE:headgate_cli> \${arguments} OUTPUT_FILE ${made_dir}/\${name}
        COMMAND_ERROR_IS_FATAL ANY)
    endforeach()")
  install(FILES ${made_dir}/headgate.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${made_dir}/headgate DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${made_dir}/_headgate DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${made_dir}/headgate.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  # To be copied to /etc/headgate and /etc/systemd/system by whoever wants them.
  install(FILES packaging/headgate.yaml packaging/headgate.service packaging/headgate.socket
    DESTINATION ${CMAKE_INSTALL_DATADIR}/headgate)
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
