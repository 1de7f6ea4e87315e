# SPDX-License-Identifier: BSD-2-Clause
# culvert_add_test(<name> SOURCES <files> [LIBS <targets>] [LABELS <labels>] [NO_FORK] [ALLOC_FAIL]
#                  [TIMEOUT <seconds>] [ENVIRONMENT <NAME=value>...] [ARGS <arguments>])
#
# A Check program, built in bin/tests, that links the static library (so internals can be tested) and the
# helpers of tests/lib, and the tests that run it:
#
#   <name>       unless "gpu" is the only one of the labels; with the label "sim", CULVERT_DRIVER=sim
#   <name>.gpu   where "gpu" is among the labels: CULVERT_DRIVER=cuda; skipped (77) where there is no GPU
#
# LABELS      unit (the default), sim, gpu, slow, install, ...
# NO_FORK     Check's tests share the program's process; so too under ThreadSanitizer and on a GPU
# ALLOC_FAIL  the library's allocations go through tests/lib/alloc_fail.h

set(CULVERT_TEST_TIMEOUT 300 CACHE STRING "Seconds that a test program may run")

# What all tests of this build have in their environment.
set(culvert_test_environment CK_DEFAULT_TIMEOUT=120)
if(CULVERT_SANITIZE STREQUAL "address")
  list(APPEND culvert_test_environment
    "ASAN_OPTIONS=detect_leaks=1:halt_on_error=1:exitcode=86:detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1"
    "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:exitcode=86"
    "LSAN_OPTIONS=exitcode=86")
elseif(CULVERT_SANITIZE STREQUAL "thread")
  # A program that ends while it has threads, as the simulator's are, sleeps first, 1 s unless told
  # otherwise; some tests are hundreds of processes.
  list(APPEND culvert_test_environment
    "TSAN_OPTIONS=halt_on_error=1:exitcode=86:second_deadlock_stack=1:atexit_sleep_ms=20")
endif()

function(culvert_test_entry entry program labels environment)
  add_test(NAME ${entry} COMMAND ${program} ${ARG_ARGS})
  set_tests_properties(${entry} PROPERTIES
    LABELS "${labels}"
    TIMEOUT ${ARG_TIMEOUT}
    SKIP_RETURN_CODE 77
    ENVIRONMENT "${culvert_test_environment};${environment};${ARG_ENVIRONMENT}")
endfunction()

function(culvert_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "NO_FORK;ALLOC_FAIL" "TIMEOUT" "SOURCES;LIBS;LABELS;ENVIRONMENT;ARGS")
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_SOURCES)
    message(FATAL_ERROR "culvert_add_test(${name}): bad arguments: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT ${CULVERT_TEST_TIMEOUT})
  endif()

  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin/tests"
    BUILD_RPATH "\$ORIGIN/../../lib")
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/lib" "${PROJECT_SOURCE_DIR}/tests")
  if(TARGET culvert_test_support)
    target_link_libraries(${name} PRIVATE culvert_test_support)
  endif()
  if(ARG_ALLOC_FAIL)
    target_link_libraries(${name} PRIVATE culvert_alloc_fail ${ARG_LIBS} Check::check)
  else()
    target_link_libraries(${name} PRIVATE culvert_static ${ARG_LIBS} Check::check)
  endif()

  set(fork CK_FORK=yes)
  if(ARG_NO_FORK OR CULVERT_SANITIZE STREQUAL "thread")
    set(fork CK_FORK=no)
  endif()
  set(here_labels ${ARG_LABELS})
  list(REMOVE_ITEM here_labels gpu)
  if("sim" IN_LIST here_labels)
    culvert_test_entry(${name} ${name} "${here_labels}" "${fork};CULVERT_DRIVER=sim")
  elseif(NOT "${ARG_LABELS}" STREQUAL "gpu")
    culvert_test_entry(${name} ${name} "${here_labels}" "${fork}")
  endif()
  if("gpu" IN_LIST ARG_LABELS)
    set(gpu_labels ${ARG_LABELS})
    list(REMOVE_ITEM gpu_labels sim unit)
    culvert_test_entry(${name}.gpu ${name} "${gpu_labels}" "CK_FORK=no;CULVERT_DRIVER=cuda")
    set_tests_properties(${name}.gpu PROPERTIES RESOURCE_LOCK gpu)
  endif()
endfunction()
