# SPDX-License-Identifier: BSD-2-Clause
# Finds libev, which ships neither a CMake package nor, on Debian, a .pc file.
#
# Libev::libev         imported target
# Libev_FOUND, Libev_VERSION, Libev_INCLUDE_DIR, Libev_LIBRARY

find_path(Libev_INCLUDE_DIR ev.h PATH_SUFFIXES libev)
find_library(Libev_LIBRARY ev)
mark_as_advanced(Libev_INCLUDE_DIR Libev_LIBRARY)

if(Libev_INCLUDE_DIR AND EXISTS "${Libev_INCLUDE_DIR}/ev.h")
  file(STRINGS "${Libev_INCLUDE_DIR}/ev.h" libev_lines REGEX "EV_VERSION_(MAJOR|MINOR)[ =]")
  foreach(libev_part MAJOR MINOR)
    if(libev_lines MATCHES "EV_VERSION_${libev_part}[ =]+([0-9]+)")
      set(libev_${libev_part} "${CMAKE_MATCH_1}")
    endif()
  endforeach()
  set(Libev_VERSION "${libev_MAJOR}.${libev_MINOR}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libev
  REQUIRED_VARS Libev_LIBRARY Libev_INCLUDE_DIR
  VERSION_VAR Libev_VERSION)

if(Libev_FOUND AND NOT TARGET Libev::libev)
  add_library(Libev::libev UNKNOWN IMPORTED)
  set_target_properties(Libev::libev PROPERTIES
    IMPORTED_LOCATION "${Libev_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Libev_INCLUDE_DIR}")
endif()
