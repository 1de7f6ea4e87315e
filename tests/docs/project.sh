#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Builds the project of the documents with an installed Culvert, and runs its tests.
#
#   project.sh ROOT WORK PREFIX
set -eu

root=$1
work=$2
prefix=$3
: "${CC:=cc}" "${CMAKE:=cmake}" "${CTEST:=ctest}"
unset CULVERT_DRIVER || true

rm -rf "$work"
mkdir -p "$work"
cp "$root/docs/snippets/project/CMakeLists.txt" "$root/examples/saxpy.c" "$root/kernels/saxpy.cu" \
    "$root/docs/snippets/simulator.c" "$root/docs/snippets/snippet.c" "$root/docs/snippets/snippet.h" \
    "$root/docs/snippets/vector.cu" "$work"
"$CMAKE" -S "$work" -B "$work/build" -G "$GENERATOR" -DCMAKE_C_COMPILER="$CC" -DCMAKE_PREFIX_PATH="$prefix" \
    -DLibev_INCLUDE_DIR="$LIBEV_INCLUDE" -DLibev_LIBRARY="$LIBEV_DIR/libev.so" -DCULVERT_CUDA="$CUDA" -DCULVERT_KERNEL_ARCHITECTURES=90
"$CMAKE" --build "$work/build"
"$CTEST" --test-dir "$work/build" --output-on-failure --no-tests=error

# What the README says that it prints.
CULVERT_DRIVER=sim "$work/build/saxpy" >"$work/printed"
grep -qF "\`$(cat "$work/printed")\`" "$root/README.md" || {
    echo "saxpy prints $(cat "$work/printed"), and the README says otherwise" >&2
    exit 1
}
