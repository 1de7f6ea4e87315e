#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Tests of an installed tree.
#
#   run.sh tree      BUILD WORK PREFIX   installs BUILD into a folder, which is then moved to PREFIX
#   run.sh cmake     BUILD WORK PREFIX   builds the project beside this file with find_package
#   run.sh pkgconfig BUILD WORK PREFIX   the same programs with pkg-config
set -eu

step=$1
build=$2
work=$3
prefix=$4
here=$(cd "$(dirname "$0")" && pwd)
: "${CC:=cc}" "${CMAKE:=cmake}" "${PKG_CONFIG:=pkg-config}" "${LIBDIR:=lib}"
rm -rf "$work"
mkdir -p "$work"

# Only the installed tree: not what this build's environment points at.
unset CULVERT_DRIVER || true

step_tree() {
    rm -rf "$prefix"
    "$CMAKE" --install "$build" --prefix "$work/first"
    mv "$work/first" "$prefix"
    if grep -rIl "$build\|$work" "$prefix"; then
        echo "installed files name the folder of the build or of the first install" >&2
        exit 1
    fi
}

step_cmake() {
    "$CMAKE" -S "$here/consumer" -B "$work/build" -G "$GENERATOR" \
        -DCMAKE_C_COMPILER="$CC" -DCMAKE_BUILD_TYPE=Debug \
        -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=ON \
        -DLibev_INCLUDE_DIR="$LIBEV_INCLUDE" -DLibev_LIBRARY="$LIBEV_DIR/libev.so" \
        -DCULVERT_CUDA="$CUDA" -DSAXPY="$here/../.."
    "$CMAKE" --build "$work/build"
    "$work/build/consumer_shared"
    "$work/build/consumer_static"
    "$work/build/consumer_sim"
    # The library finds the simulator, which the program does not link, beside itself.
    CULVERT_DRIVER=sim "$work/build/consumer_saxpy" | tee "$work/saxpy"
    grep -q '^y\[1\] = 3,' "$work/saxpy"
}

# link NAME SOURCE FLAGS...: builds and runs one program with what pkg-config says
link() {
    name=$1
    source=$2
    shift 2
    "$CC" -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$LIBEV_INCLUDE" -o "$work/$name" "$here/consumer/$source" \
        "$@" -L"$LIBEV_DIR" -Wl,-rpath,"$LIBEV_DIR" -Wl,-rpath,"$prefix/$LIBDIR"
    "$work/$name"
}

# Words are split on purpose: they are flags.
# shellcheck disable=SC2046
step_pkgconfig() {
    export PKG_CONFIG_PATH="$prefix/$LIBDIR/pkgconfig"
    case $("$PKG_CONFIG" --variable=prefix culvert) in
    "$prefix"*) ;;
    *)
        echo "the prefix is $("$PKG_CONFIG" --variable=prefix culvert), not under $prefix" >&2
        exit 1
        ;;
    esac
    link shared loop.c $("$PKG_CONFIG" --cflags --libs culvert)
    readelf -d "$work/shared" | grep -q 'libculvert.so.0'
    link static loop.c $("$PKG_CONFIG" --cflags --libs --static culvert | sed 's/-lculvert/-l:libculvert.a/g')
    if readelf -d "$work/static" | grep 'libculvert'; then
        echo "the static program needs the shared library" >&2
        exit 1
    fi
    link sim sim.c $("$PKG_CONFIG" --cflags --libs culvert-sim)
}

"step_$step"
