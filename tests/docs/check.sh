#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Checks the documents: their blocks of code, their links (check.awk), and that the names of functions,
# types, macros and variables in them exist.
#
#   check.sh ROOT
set -eu

root=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root"

documents=$(find ./*.md docs -name '*.md' | sed 's,^\./,,' | sort)
snippets=$(find docs/snippets -type f | sort | paste -sd " " -)
status=0

# Words are split on purpose: they are file names.
# shellcheck disable=SC2086
awk -f "$here/check.awk" -v root="$root" -v snippets="$snippets" $documents || status=1

# words FILE...: names of ours, one a line. culvert_seq_* is no name.
words() {
    grep -ohE '(culvert|CULVERT)_[A-Za-z0-9_]+' "$@" | grep -v '_$' | LC_ALL=C sort -u
}
# shellcheck disable=SC2086
words $documents >"$work/used"
# shellcheck disable=SC2046,SC2086
words $(find include cmake scripts CMakeLists.txt kernels examples bench -type f) $snippets >"$work/known"
LC_ALL=C comm -23 "$work/used" "$work/known" >"$work/unknown"
if [ -s "$work/unknown" ]; then
    echo "names in the documents that are nowhere else: $(paste -sd " " "$work/unknown")"
    status=1
fi
exit "$status"
