#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Runs a program of the documents, and compares what it prints with the lines behind "Prints:" in its
# first comment.
#
#   run.sh SOURCE PROGRAM
#
# Exits with 77 where the program says that there is no driver or no device.
set -eu

source=$1
program=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

awk '
    on && (/\*\// || !/^ \*     /) { exit }
    on { sub(/^ \*     /, ""); print }
    /^ \* Prints:$/ { on = 1 }
' "$source" >"$work/expected"
[ -s "$work/expected" ] || {
    echo "$source does not say what it prints" >&2
    exit 1
}

status=0
"$program" >"$work/printed" 2>"$work/errors" || status=$?
cat "$work/errors" >&2
if [ "$status" -ne 0 ]; then
    cat "$work/printed"
    echo "exit status $status" >&2
    if [ "${CULVERT_DRIVER:-}" = cuda ] && grep -qE '^CULVERT_ENO(DRIVER|DEVICE)\>' "$work/errors"; then
        exit 77
    fi
    exit 1
fi
diff -u "$work/expected" "$work/printed"
