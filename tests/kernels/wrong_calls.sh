#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# What culvert_add_kernels says of wrong calls, when CMake is run.
#
#   wrong_calls.sh ROOT WORK
set -eu

root=$1
work=$2
: "${CMAKE:=cmake}"
rm -rf "$work"
mkdir -p "$work/project/sub"
cd "$work/project"
: >main.c
: >here.cu
echo 'add_library(below STATIC ../main.c)' >sub/CMakeLists.txt
failed=0

# wrong WHAT-IT-SAYS CODE. No language is enabled, so that it takes no time; of a right call CMake says that.
wrong() {
    cat >CMakeLists.txt <<EOF
cmake_minimum_required(VERSION 3.25)
project(wrong LANGUAGES NONE)
include("$root/cmake/CulvertKernels.cmake")
add_subdirectory(sub)
add_executable(app main.c)
add_library(objects OBJECT main.c)
add_library(headers INTERFACE)
add_library(elsewhere SHARED IMPORTED)
add_executable(other ALIAS app)
$2
EOF
    if "$CMAKE" -S . -B ../build >../output 2>&1; then
        echo "no error: $2"
        failed=1
    fi
    # CMake breaks lines.
    if ! tr -s '[:space:]' ' ' <../output | grep -qF -- "$1"; then
        printf 'of %s it does not say "%s", but:\n' "$2" "$1"
        cat ../output
        failed=1
    fi
}

here=$(pwd -P)
wrong 'culvert_add_kernels(app): neither C nor CXX is enabled: project(... LANGUAGES C)' \
    'culvert_add_kernels(app SOURCES here.cu)'
wrong 'culvert_add_kernels(app): no SOURCES; write culvert_add_kernels(app SOURCES kernels.cu)' \
    'culvert_add_kernels(app)'
wrong 'culvert_add_kernels(app): no SOURCES; write' 'culvert_add_kernels(app SOURCES)'
wrong 'culvert_add_kernels(app): here.cu: behind none of the keywords SOURCES,' 'culvert_add_kernels(app here.cu)'
wrong 'culvert_add_kernels(app): SOURCE here.cu: behind none of the keywords' \
    'culvert_add_kernels(app SOURCE here.cu)'
wrong 'culvert_add_kernels: the target is missing, which comes before SOURCES,' 'culvert_add_kernels(SOURCES here.cu)'
wrong 'culvert_add_kernels(ap): there is no target ap; call it behind add_executable(ap ...)' \
    'culvert_add_kernels(ap SOURCES here.cu)'
wrong 'culvert_add_kernels(other): other is an alias; name app' 'culvert_add_kernels(other SOURCES here.cu)'
wrong 'culvert_add_kernels(objects): the target is an OBJECT_LIBRARY, which cannot hold' \
    'culvert_add_kernels(objects SOURCES here.cu)'
wrong 'culvert_add_kernels(headers): the target is an INTERFACE_LIBRARY, which' \
    'culvert_add_kernels(headers SOURCES here.cu)'
wrong 'culvert_add_kernels(elsewhere): the target is an imported SHARED_LIBRARY, which' \
    'culvert_add_kernels(elsewhere SOURCES here.cu)'
wrong "culvert_add_kernels(below): call it in the directory that made the target, $here/sub" \
    'culvert_add_kernels(below SOURCES here.cu)'
wrong "culvert_add_kernels(app): no file gone.cu in $here (it has to be there" \
    'culvert_add_kernels(app SOURCES here.cu gone.cu)'
wrong 'culvert_add_kernels(app): no file sub in' 'culvert_add_kernels(app SOURCES sub)'
exit "$failed"
