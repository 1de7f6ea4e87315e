#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Compares what a library exports with what its headers declare as CULVERT_API.
#
#   exports.sh shared LIBRARY HEADER...   the same names on both sides; never unloaded; not linked to CUDA
#   exports.sh static LIBRARY HEADER...   all declared names, and no other but culvert__ ones
#   exports.sh sim    LIBRARY HEADER...   the declared culvert_sim_ names, and the driver's (cu and a capital letter)
#
# HEADER is a path as one includes it, in the folder $INCLUDE. $CC, $NM and $READELF are used.
set -eu

kind=$1
library=$2
shift 2
: "${CC:=cc}" "${NM:=nm}" "${READELF:=readelf}" "${INCLUDE:=include}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

complain() {
    echo "$library: $1" >&2
    status=1
}

# complain_about FILE WORDS: one complaint for each line of the file.
complain_about() {
    while read -r name; do
        complain "$2: $name"
    done <"$1"
}

# Declarations are looked for after the preprocessor, by the visibility that CULVERT_API gives them: the
# name is the one before the first parenthesis, or, of a variable, the last one.
for header in "$@"; do
    echo "#include \"$header\""
done >"$work/all.c"
"$CC" -std=c11 -E -P -DCULVERT_NO_WHERE -I"$INCLUDE" "$work/all.c" >"$work/all.i"
awk 'BEGIN { RS = ";" }
     /visibility\("default"\)/ {
         sub(/.*visibility\("default"\)\)\)/, "")
         gsub(/__attribute__ *\(\(([^()]|\([^()]*\))*\)\)/, "")
         if (match($0, /culvert_[A-Za-z0-9_]+ *\(/))
             name = substr($0, RSTART, RLENGTH)
         else if (match($0, /culvert_[A-Za-z0-9_]+[^A-Za-z0-9_]*$/))
             name = substr($0, RSTART, RLENGTH)
         else
             next
         gsub(/[^A-Za-z0-9_]/, "", name)
         print name
     }' "$work/all.i" | sort -u >"$work/declared"
if [ "$kind" = sim ]; then # its header includes the library's
    sed -i '/^culvert_sim_/!d' "$work/declared"
fi
[ -s "$work/declared" ] || complain "no declaration found in $*"

if [ "$kind" = static ]; then
    "$NM" -g --defined-only "$library" >"$work/nm"
else
    "$NM" -D --defined-only "$library" >"$work/nm"
fi
# Absolute symbols are the names of versions. Names of two underscores are the compiler's.
awk 'NF == 3 && $2 != "A" && $3 !~ /^__/ { sub(/@.*/, "", $3); print $3 }' "$work/nm" |
    sort -u >"$work/exported"

comm -23 "$work/declared" "$work/exported" >"$work/missing"
comm -13 "$work/declared" "$work/exported" >"$work/extra"
case $kind in
static) allowed='^culvert__\|^nvtx\|^InitializeInjectionNvtx2_fnptr$' ;; # NVTX is a header: weak and hidden
sim) allowed='^cu[A-Z]' ;;
*) allowed='^$' ;;
esac
grep -v "$allowed" "$work/extra" >"$work/wrong" || true

complain_about "$work/missing" "declared, not exported"
complain_about "$work/wrong" "exported, not declared"

if [ "$kind" != static ]; then
    "$READELF" -d "$library" >"$work/dynamic"
    if grep NEEDED "$work/dynamic" | grep -E 'lib(cuda|cudart)' >&2; then
        complain "linked to CUDA"
    fi
fi
if [ "$kind" = shared ] && ! grep -q NODELETE "$work/dynamic"; then
    complain "not linked with -z nodelete"
fi
[ "$status" -ne 0 ] || echo "$(wc -l <"$work/declared") declared, $(wc -l <"$work/exported") exported"
exit "$status"
