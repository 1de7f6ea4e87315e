# SPDX-License-Identifier: BSD-2-Clause
# Finds Check, the unit test library, without pkg-config, so that an unpacked copy in any prefix will do.
#
# Check::check   imported target, with libsubunit where Check was built with it

find_path(Check_INCLUDE_DIR check.h)
find_library(Check_LIBRARY NAMES check_pic check)
find_library(Check_SUBUNIT_LIBRARY subunit)
mark_as_advanced(Check_INCLUDE_DIR Check_LIBRARY Check_SUBUNIT_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Check REQUIRED_VARS Check_LIBRARY Check_INCLUDE_DIR)

if(Check_FOUND AND NOT TARGET Check::check)
  find_package(Threads REQUIRED)
  add_library(Check::check UNKNOWN IMPORTED)
  set_target_properties(Check::check PROPERTIES
    IMPORTED_LOCATION "${Check_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Check_INCLUDE_DIR}")
  if(Check_SUBUNIT_LIBRARY)
    target_link_libraries(Check::check INTERFACE "${Check_SUBUNIT_LIBRARY}")
  endif()
  target_link_libraries(Check::check INTERFACE Threads::Threads m rt)
endif()
