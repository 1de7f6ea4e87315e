#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# check.sh notices what it is there to notice: small trees with one fault each.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# tree: a tree without a fault
tree() {
    rm -rf "$work/tree"
    mkdir -p "$work/tree/docs/snippets" "$work/tree/include" "$work/tree/cmake" "$work/tree/scripts" \
        "$work/tree/kernels" "$work/tree/examples" "$work/tree/bench"
    cd "$work/tree"
    : >CMakeLists.txt
    echo 'int culvert_one(void);' >include/x.h
    cat >docs/snippets/a.c <<'C'
int main(void)
{
    /* region: call */
    if (culvert_one())
        return 1;
    /* end region */
}
C
    cat >examples/e.c <<'C'
static int twice(int x);

static int once(int x)
{
    return x;
}

static int twice(int x)
{
    return 2 * x;
}
C
    cat >README.md <<'M'
# Title

See [the guide](docs/guide.md#the-second-part), [here](#title) and [the web](https://example.org/x).

```sh
anything
```
M
    cat >docs/guide.md <<'M'
# Guide

## The second part

Back to [the start](../README.md). `[no](link)`

<!-- docs/snippets/a.c: call -->
```c
if (culvert_one())
    return 1;
```

<!-- examples/e.c: twice() -->
```c
static int twice(int x)
{
    return 2 * x;
}
```

[label]: snippets/a.c
M
    echo '# Changelog' >CHANGELOG.md
}

check() {
    sh "$here/check.sh" "$work/tree" >"$work/said" 2>&1
}

# notices TEXT: check fails and says so
notices() {
    if check; then
        echo "not noticed: $1" >&2
        exit 1
    fi
    grep -q "$1" "$work/said" || {
        echo "expected: $1; said:" >&2
        cat "$work/said" >&2
        exit 1
    }
}

# edit FILE SED-SCRIPT: on a tree without another fault
edit() {
    tree
    sed "$2" "$1" >"$work/edited"
    if cmp -s "$1" "$work/edited"; then
        echo "$2 changes nothing" >&2
        exit 1
    fi
    cat "$work/edited" >"$1"
}

tree
check || {
    cat "$work/said" >&2
    exit 1
}
edit docs/guide.md 's/return 1/return 2/'
notices 'docs/guide.md:10: differs from docs/snippets/a.c: call, which has:     return 1;'
edit docs/guide.md 's/^    return 1/  return 1/'
notices 'differs from docs/snippets/a.c: call'
edit docs/guide.md '/return 1/d'
notices 'differs from docs/snippets/a.c: call'
# The backquotes are those of the document.
# shellcheck disable=SC2016
edit docs/guide.md '11s/^```$/more\n```/'
notices 'which has: nothing more'
edit docs/guide.md 's/a.c: call/a.c: caal/'
notices 'there is no docs/snippets/a.c: caal'
edit docs/guide.md 's/a.c: call/b.c: call/'
notices 'there is no docs/snippets/b.c: call'
edit docs/guide.md 's/2 \* x/3 * x/'
notices 'differs from examples/e.c: twice(), which has:     return 2'
edit docs/guide.md 's/e.c: twice/e.c: thrice/'
notices 'there is no examples/e.c: thrice()'
edit docs/guide.md '/^<!-- docs/d'
notices 'no comment says where this block stands'
edit docs/guide.md '11s/^```$//'
notices 'this block has no end'
edit docs/snippets/a.c 's/^}/    \/* region: more *\/\n    \/* end region *\/\n}/'
notices 'no document has region more'
edit docs/snippets/a.c '/end region/d'
notices 'region call has no end'
edit README.md 's/docs.guide.md#/docs\/gude.md#/'
notices 'README.md:3: no file docs/gude.md'
edit README.md 's/second-part/third-part/'
notices 'no heading #the-third-part in docs/guide.md'
edit README.md 's/(#title)/(#titel)/'
notices 'no heading #titel in README.md'
edit docs/guide.md 's/..\/README/README/'
notices 'no file docs/README.md'
edit docs/guide.md 's/^\[label\]: snippets.a.c/[label]: snippets\/b.c/'
notices 'no file docs/snippets/b.c'
edit README.md 's/^See/See culvert_two and/'
notices 'nowhere else: culvert_two$'
