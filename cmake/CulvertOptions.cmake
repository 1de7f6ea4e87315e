# SPDX-License-Identifier: BSD-2-Clause
# Options, and the compiler settings that all of the project's own targets share. They are set for the
# project's directories only: where Culvert is a part of another project, that project keeps its own.

set(CULVERT_CUDA AUTO CACHE STRING "Use the CUDA Toolkit: AUTO (where it is found), ON, OFF")
set_property(CACHE CULVERT_CUDA PROPERTY STRINGS AUTO ON OFF)
set(CULVERT_SANITIZE "" CACHE STRING "Sanitizers: empty, address (with undefined), thread")
set_property(CACHE CULVERT_SANITIZE PROPERTY STRINGS "" address thread)
option(CULVERT_WERROR "Warnings are errors" OFF)
option(CULVERT_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(CULVERT_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(CULVERT_BUILD_BENCH "Build the benchmark programs" ${PROJECT_IS_TOP_LEVEL})
option(CULVERT_INSTALL "Make the install rules" ${PROJECT_IS_TOP_LEVEL})

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

# C++ is only for the simulator's kernel modules and for the header tests.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Programs find the libraries beside them, so a build folder and an installed tree can be moved; the
# library finds the simulator, which it opens by name, in its own folder.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
set(CMAKE_BUILD_RPATH "\$ORIGIN;\$ORIGIN/../lib")
file(RELATIVE_PATH culvert_bin_to_lib "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
set(CMAKE_INSTALL_RPATH "\$ORIGIN;\$ORIGIN/${culvert_bin_to_lib}")

set(culvert_warnings -Wall -Wextra -Wpedantic -Wshadow -Wpointer-arith -Wvla)
set(culvert_c_warnings -Wstrict-prototypes -Wmissing-prototypes)
add_compile_options(
  "$<$<COMPILE_LANGUAGE:C,CXX>:${culvert_warnings}>"
  "$<$<COMPILE_LANGUAGE:C>:${culvert_c_warnings}>")
if(CULVERT_WERROR)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Werror>")
endif()

if(CULVERT_SANITIZE STREQUAL "address")
  set(culvert_sanitize -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(CULVERT_SANITIZE STREQUAL "thread")
  set(culvert_sanitize -fsanitize=thread)
elseif(NOT CULVERT_SANITIZE STREQUAL "")
  message(FATAL_ERROR "CULVERT_SANITIZE is '${CULVERT_SANITIZE}': give address, thread or nothing")
endif()
if(CULVERT_SANITIZE)
  add_compile_options(${culvert_sanitize} -fno-omit-frame-pointer)
  add_link_options(${culvert_sanitize})
else()
  # With a sanitizer its symbols stay undefined in a shared library until the program brings them.
  add_link_options("$<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY>:LINKER:-z,defs>")
endif()
