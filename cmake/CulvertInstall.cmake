# SPDX-License-Identifier: BSD-2-Clause
# What is installed: headers, both libraries, the simulator, a CMake package, pkg-config files.

include(CMakePackageConfigHelpers)
set(culvert_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Culvert")

install(DIRECTORY include/culvert DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")

set_target_properties(culvert_sim PROPERTIES EXPORT_NAME sim)
install(TARGETS culvert culvert_static culvert_sim EXPORT CulvertTargets)
install(EXPORT CulvertTargets NAMESPACE Culvert:: DESTINATION "${culvert_package_dir}")

configure_package_config_file(cmake/CulvertConfig.cmake.in CulvertConfig.cmake
  INSTALL_DESTINATION "${culvert_package_dir}")
write_basic_package_version_file(CulvertConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
    "${PROJECT_BINARY_DIR}/CulvertConfig.cmake"
    "${PROJECT_BINARY_DIR}/CulvertConfigVersion.cmake"
    cmake/FindLibev.cmake
    cmake/CulvertKernels.cmake
  DESTINATION "${culvert_package_dir}")

# The prefix is told from where the .pc file is, so an installed tree can be moved.
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_LIBDIR culvert_absolute)
if(culvert_absolute)
  message(FATAL_ERROR "CMAKE_INSTALL_LIBDIR is '${CMAKE_INSTALL_LIBDIR}': give a folder relative to the prefix")
endif()
file(RELATIVE_PATH culvert_pc_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" culvert_pc_to_prefix "${culvert_pc_to_prefix}")
foreach(pc culvert culvert-sim)
  configure_file(cmake/${pc}.pc.in ${pc}.pc @ONLY)
endforeach()
install(FILES "${PROJECT_BINARY_DIR}/culvert.pc" "${PROJECT_BINARY_DIR}/culvert-sim.pc"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
