# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
# Sourced by the scripts beside it: messages, packages, configure and build.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cores=$(nproc)

say() {
    printf '== %s\n' "$*"
}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# need_packages PACKAGE...: installs the Debian packages that are missing. Where dpkg does not rule, or
# CULVERT_DEPS_PREFIX says that the libraries lie elsewhere, what is needed must be there already.
need_packages() {
    local missing=() package as_root=()
    if [ -n "${CULVERT_DEPS_PREFIX:-}" ]; then
        return
    fi
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        say "no apt-get here; needed, under its Debian names: $*"
        return
    fi
    for package in "$@"; do
        if ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed'; then
            missing+=("$package")
        fi
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "missing packages, and neither root nor sudo to install them: ${missing[*]}"
        as_root=(sudo)
    fi
    say "installing ${missing[*]}"
    "${as_root[@]}" apt-get -qq update
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
}

# What every build needs, for the scripts that source this one; Debian 12 has CMake 3.25.
# shellcheck disable=SC2034
build_packages=(cmake ninja-build gcc g++ libc6-dev binutils libev-dev)
# shellcheck disable=SC2034
test_packages=(check pkg-config openssl libssl-dev python3 uthash-dev libuv1-dev shellcheck)

# use_deps_prefix: libraries unpacked into CULVERT_DEPS_PREFIX (by `dpkg -x`) are found by the build and
# by the programs.
use_deps_prefix() {
    local dir
    [ -n "${CULVERT_DEPS_PREFIX:-}" ] || return 0
    [ -d "$CULVERT_DEPS_PREFIX" ] || die "CULVERT_DEPS_PREFIX: no folder $CULVERT_DEPS_PREFIX"
    CULVERT_DEPS_PREFIX=$(cd "$CULVERT_DEPS_PREFIX" && pwd)
    for dir in "$CULVERT_DEPS_PREFIX"/{usr/,}lib{,/"$(uname -m)-linux-gnu"}; do
        [ -d "$dir" ] || continue
        export CMAKE_LIBRARY_PATH="$dir${CMAKE_LIBRARY_PATH:+:$CMAKE_LIBRARY_PATH}"
        export LD_LIBRARY_PATH="$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
        export PKG_CONFIG_PATH="$dir/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
    done
    export CMAKE_PREFIX_PATH="$CULVERT_DEPS_PREFIX/usr:$CULVERT_DEPS_PREFIX${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}"
}

# build_preset PRESET FOLDER [CMAKE-OPTION...]: configures and builds in build/FOLDER.
build_preset() {
    local preset=$1 folder=$2
    shift 2
    (
        cd "$root" &&
            cmake --preset "$preset" -B "build/$folder" "$@" &&
            cmake --build "build/$folder" --parallel "$cores"
    )
}
