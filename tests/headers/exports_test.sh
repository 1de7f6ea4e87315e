#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# exports.sh notices what it is there to notice: small libraries with one fault each.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
: "${CC:=cc}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export INCLUDE="$work"
mkdir "$work/culvert"
cat >"$work/culvert/x.h" <<'H'
#define API __attribute__((visibility("default")))
#define NODISCARD __attribute__((warn_unused_result))
struct culvert_pair { int a; int b; };
API int culvert_one(void);
API NODISCARD struct culvert_pair *culvert_two(int (*fn)(int a), const char *text)
    __attribute__((format(printf, 2, 0)));
API extern const int culvert_three;
static inline int culvert_four(void) { return culvert_one(); }
H
cat >"$work/base.c" <<'C'
#include "culvert/x.h"
const int culvert_three = 3;
int culvert_one(void) { return 1; }
struct culvert_pair *culvert_two(int (*fn)(int a), const char *text)
{ (void)fn; return text ? 0 : (struct culvert_pair *)0; }
C

# build NAME EXTRA-SOURCE [FLAGS]: lib NAME from base.c and more
build() {
    name=$1
    printf '%s\n' "$2" >"$work/more.c"
    shift 2
    cat "$work/base.c" "$work/more.c" >"$work/$name.c"
    "$CC" -w -shared -fPIC -fvisibility=hidden -I"$work" -o "$work/$name.so" "$work/$name.c" "$@"
}

expect() {
    want=$1
    words=$2
    shift 2
    got=0
    sh "$here/exports.sh" "$@" >"$work/said" 2>&1 || got=$?
    if [ "$got" -ne "$want" ] || ! grep -q "$words" "$work/said"; then
        echo "exports.sh $*: status $got, expected $want and '$words':" >&2
        cat "$work/said" >&2
        exit 1
    fi
}

nodelete=-Wl,-z,nodelete
build good '' $nodelete
expect 0 '3 declared, 3 exported' shared "$work/good.so" culvert/x.h
build extra 'API int culvert_five(void) { return 5; }' $nodelete
expect 1 'exported, not declared: culvert_five' shared "$work/extra.so" culvert/x.h
build internal 'API int culvert__six(void) { return 6; }' $nodelete
expect 1 'exported, not declared: culvert__six' shared "$work/internal.so" culvert/x.h
build missing 'API int culvert_x; ' $nodelete -Dculvert_two=culvert_x2
expect 1 'declared, not exported: culvert_two' shared "$work/missing.so" culvert/x.h
build deleted ''
expect 1 'nodelete' shared "$work/deleted.so" culvert/x.h

echo 'API int culvert_sim_one(void);' >>"$work/culvert/x.h"
build driver 'API int cuInit(void) { return 0; } int culvert_sim_one(void) { return 1; } API int cu_other;' \
    -Wl,--version-script="$here/../../lib/culvert-sim.map"
expect 0 '1 declared, 2 exported' sim "$work/driver.so" culvert/x.h
build driver 'API int cuInit(void) { return 0; } int culvert_sim_one(void) { return 1; } API int cu_other;'
expect 1 'exported, not declared: cu_other' sim "$work/driver.so" culvert/x.h
build driver 'API int cuInit(void) { return 0; }'
expect 1 'declared, not exported: culvert_sim_one' sim "$work/driver.so" culvert/x.h
sed -i '/culvert_sim_one/d' "$work/culvert/x.h"

"$CC" -w -c -I"$work" -o "$work/extra.o" "$work/internal.c"
ar rc "$work/libx.a" "$work/extra.o"
expect 0 '3 declared, 4 exported' static "$work/libx.a" culvert/x.h
echo 'int helper(void) { return 0; }' >>"$work/internal.c"
"$CC" -w -c -I"$work" -o "$work/extra.o" "$work/internal.c"
ar rc "$work/libx.a" "$work/extra.o"
expect 1 'exported, not declared: helper' static "$work/libx.a" culvert/x.h
