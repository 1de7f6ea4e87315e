#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# word-histogram against the standard tools, on the texts of the system's licences and this project's own.
#
# word_histogram.sh PROGRAM
set -euo pipefail
export LC_ALL=C
program=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

check() {
    local what=$1
    shift
    if "$@"; then
        echo "ok   $what"
    else
        echo "FAIL $what"
        failures=$((failures + 1))
    fi
}

# A word ends where its file does, so each file gets a line's end.
judge() {
    local file
    for file in "$@"; do
        cat "$file"
        echo
    done | tr -cs '[:alpha:]' '\n' | tr '[:upper:]' '[:lower:]' | grep . | sort | uniq -c | sort -k1,1nr -k2 || true
}

# same WHAT OPTIONS -- FILE...: the program and the tools say the same.
same() {
    local what=$1 options=()
    shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    judge "$@" >"$work/right"
    "$program" "${options[@]}" "$@" >"$work/got" || { echo "FAIL $what: exit $?" && failures=$((failures + 1)) && return; }
    check "$what ($(wc -l <"$work/right") words)" cmp "$work/right" "$work/got"
}

# refused WHAT STATUS TEXT ARGUMENT...: it exits so, prints nothing, and says the text.
refused() {
    local what=$1 status=$2 text=$3 got=0
    shift 3
    "$program" "$@" >"$work/got" 2>"$work/said" || got=$?
    check "$what: exit $status, not $got" [ "$got" = "$status" ]
    check "$what: nothing printed" [ ! -s "$work/got" ]
    check "$what: says '$text', not '$(head -c 200 "$work/said")'" grep -qF -- "$text" "$work/said"
}

corpus=("$root"/docs/*.md "$root"/include/culvert/*.h)
for file in /usr/share/common-licenses/*; do
    if [ -f "$file" ]; then
        corpus+=("$file")
    fi
done

same "a corpus of ${#corpus[@]} files" -- "${corpus[@]}"
same "in pieces of 1000 bytes on 7 streams" --chunk 1000 --streams 7 -- "${corpus[@]:0:4}"
same "on one stream" --streams 1 --chunk 64k -- "${corpus[@]}"
same "one file many times" --chunk 4k -- "${corpus[0]}" "${corpus[0]}" "${corpus[0]}"

printf 'Then a THEN the, then-THE: a\n' >"$work/small"
for chunk in 1 2 3 5 7; do
    same "each place of a border, in pieces of $chunk" --chunk "$chunk" --streams 3 -- "$work/small"
done
printf 'ends in a word' >"$work/end"
same "no line's end at the end" --chunk 4 -- "$work/end" "$work/end"
: >"$work/empty"
same "an empty file" -- "$work/empty"
printf '0123 -- \n' >"$work/none"
same "no word" -- "$work/none" "$work/empty"
head -c 300000 /dev/urandom >"$work/noise"
same "bytes at random" --chunk 10k -- "$work/noise"
{ head -c 65536 /dev/zero | tr '\0' x && echo && head -c 65536 /dev/zero | tr '\0' x && echo y; } >"$work/long"
same "words of 65,536 letters" --chunk 1k -- "$work/long"
seq 1 20000 | tr 0-9 a-j >"$work/different"
same "20,000 different words" --chunk 16k -- "$work/different"

judge "${corpus[@]}" | head -n 10 >"$work/right" || true
"$program" --top 10 "${corpus[@]}" >"$work/got"
check "--top 10" cmp "$work/right" "$work/got"
"$program" --verbose "$work/small" >"$work/got" 2>"$work/said"
check "--verbose says how many words" grep -q ': 7 words, 3 different' "$work/said"
"$program" --help >"$work/got"
check "--help prints the usage" grep -q '^usage: word-histogram' "$work/got"

head -c 200000 /dev/zero | tr '\0' x >"$work/longer"
refused "a longer word" 1 "a word of more than 65536 letters" --chunk 10k "$work/longer"
refused "no file" 2 "no file was given"
refused "a file that is not there" 1 "cannot open $work/absent: No such file" "$work/absent"
refused "a folder" 1 "is no regular file" "$work"
refused "a chunk of nothing" 2 "--chunk: '0': must be a number from 1 to 268435456" --chunk 0 "$work/small"
refused "too many streams" 2 "--streams: '65'" --streams 65 "$work/small"
refused "no such driver" 1 "$work/no.so" --driver "$work/no.so" "$work/small"

status=0
"$program" "$work/small" >/dev/full 2>"$work/said" || status=$?
check "a full disk: exit 1" [ "$status" = 1 ]
check "a full disk: says so" grep -q 'No space left on device' "$work/said"

# Stopped in the middle: the pieces are small and the text is long, so that it cannot be over before.
for _ in $(seq 200); do cat "${corpus[@]}"; done >"$work/much"
status=0
"$program" --chunk 512 --streams 2 "$work/much" >"$work/got" 2>"$work/said" &
pid=$!
sleep 1
kill -INT "$pid" 2>/dev/null || true
wait "$pid" || status=$?
check "SIGINT: exit 130, not $status" [ "$status" = 130 ]
check "SIGINT: nothing printed" [ ! -s "$work/got" ]

[ "$failures" = 0 ] || exit 1
