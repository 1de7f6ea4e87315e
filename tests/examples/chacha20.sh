#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# culvert-chacha20 against OpenSSL and RFC 8439, and how it fails. The driver is CULVERT_DRIVER's.
#
#   chacha20.sh PROGRAM [large]
# shellcheck disable=SC2317,SC2094  # functions are called by `check`
set -u
program=$1
mode=${2:-all}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
nonce=000000000000004a00000000

if [ "${CULVERT_DRIVER:-}" = cuda ] && ! nvidia-smi -L >/dev/null 2>&1; then
    echo "no GPU here"
    exit 77
fi

ok() {
    passed=$((passed + 1))
}

bad() {
    failed=$((failed + 1))
    echo "FAILED: $*" >&2
}

# check NAME COMMAND...
check() {
    local name=$1
    shift
    if "$@"; then ok; else bad "$name"; fi
}

encrypt() {
    "$program" --key "$key" --nonce "$nonce" "$@"
}

# openssl_encrypt COUNTER: IV is the counter, the least byte first, then the nonce.
openssl_encrypt() {
    local iv
    iv=$(printf '%08x' "$1" | sed 's/\(..\)\(..\)\(..\)\(..\)/\4\3\2\1/')$nonce
    openssl enc -chacha20 -K "$key" -iv "$iv"
}

same_as_openssl() { # SIZE OPTIONS...
    local size=$1
    shift
    head -c "$size" /dev/urandom >"$work/in"
    openssl_encrypt 1 <"$work/in" >"$work/expected" || return 1
    encrypt --counter 1 "$@" "$work/in" "$work/out" || return 1
    cmp "$work/out" "$work/expected" || return 1
    encrypt --counter 1 "$@" <"$work/in" >"$work/out2" || return 1
    cmp "$work/out2" "$work/expected"
}

expect_status() { # STATUS COMMAND...
    local want=$1
    shift
    "$@" >"$work/stdout" 2>"$work/stderr"
    local got=$?
    [ "$got" = "$want" ] && return 0
    echo "exit status $got, not $want: $(cat "$work/stderr")" >&2
    return 1
}

says() { # TEXT: the last command's standard error has it
    grep -q -- "$1" "$work/stderr" && return 0
    echo "standard error does not say '$1': $(cat "$work/stderr")" >&2
    return 1
}

no_leftovers() { # no partly written file in DIR beside what is named
    [ -z "$(find "$1" -name 'result*' -print -quit)" ]
}

large() {
    truncate -s $(((4 << 30) + 123)) "$work/in"
    local expected got
    expected=$(openssl_encrypt 1 <"$work/in" | sha256sum) || return 1
    got=$(encrypt --counter 1 "$work/in" | sha256sum) || return 1
    [ "$expected" = "$got" ]
}

if [ "$mode" = large ]; then
    check "case_093_4_gib_and_123_bytes" large
    echo "$passed passed, $failed failed"
    exit $((failed > 0))
fi

# RFC 8439, 2.4.2 and A.2 test vector 1 (all zero).
rfc_2_4_2() {
    printf '%s' "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the \
future, sunscreen would be it." | encrypt --counter 1 | od -An -v -tx1 | tr -d ' \n' >"$work/out"
    [ "$(cat "$work/out")" = 6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0bf91b65c5524733ab8f593dabcd62b3571639d624e65152ab8f530c359f0861d807ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab77937365af90bbf74a35be6b40b8eedf2785e42874d ]
}
rfc_a_2_1() {
    local zero=0000000000000000000000000000000000000000000000000000000000000000
    head -c 64 /dev/zero | "$program" -k "$zero" -n "${zero:0:24}" -c 0 | od -An -v -tx1 |
        tr -d ' \n' >"$work/out"
    [ "$(cat "$work/out")" = 76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586 ]
}
check "RFC 8439 2.4.2" rfc_2_4_2
check "RFC 8439 A.2 #1" rfc_a_2_1

chunk=65536
for size in 0 1 63 64 65 $((chunk - 1)) "$chunk" $((chunk + 1)) $((5 * chunk + 17)); do
    check "size $size, chunk $chunk, depth 3" same_as_openssl "$size" --chunk "$chunk" --depth 3
done
check "size 3000001, default chunk" same_as_openssl 3000001
check "depth 1" same_as_openssl 300001 --chunk 64k --depth 1
check "chunk 64, depth 64" same_as_openssl 10007 --chunk 64 --depth 64

# Pipes with short reads and slow ends.
short_reads() {
    head -c 200003 /dev/urandom >"$work/in"
    openssl_encrypt 1 <"$work/in" >"$work/expected"
    { head -c 1; sleep 0.1; head -c 70000; sleep 0.1; cat; } <"$work/in" |
        encrypt --counter 1 --chunk 64k | { sleep 0.1; cat; } >"$work/out"
    cmp "$work/out" "$work/expected"
}
check "short reads through pipes" short_reads

# The way back.
round_trip() {
    head -c 100000 /dev/urandom >"$work/in"
    encrypt <"$work/in" | encrypt | cmp - "$work/in"
}
check "decrypts what it encrypted" round_trip

# In place: the output takes its name at the end.
in_place() {
    head -c 100000 /dev/urandom >"$work/in"
    openssl_encrypt 0 <"$work/in" >"$work/expected"
    encrypt "$work/in" "$work/in" && cmp "$work/in" "$work/expected"
}
check "input and output the same file" in_place

# The counter.
check "counter near its end" same_as_openssl 64
near_end() {
    head -c 128 /dev/zero >"$work/in"
    expect_status 0 encrypt --counter 4294967294 "$work/in" "$work/out"
}
check "the last block of the keystream can be used" near_end
too_long() {
    head -c 129 /dev/zero >"$work/in"
    mkdir -p "$work/dir"
    expect_status 1 encrypt --counter 4294967294 "$work/in" "$work/dir/result" &&
        says "room for 128 bytes" && no_leftovers "$work/dir"
}
check "a counter that would wrap is an error, and no output is left" too_long

# What can go wrong with files.
no_input() {
    expect_status 1 encrypt "$work/none" "$work/dir/result" && says "none" &&
        no_leftovers "$work/dir"
}
check "an input that is not there" no_input
input_is_dir() {
    expect_status 1 encrypt "$work" "$work/dir/result" && says "directory" &&
        no_leftovers "$work/dir"
}
check "an input that is a directory" input_is_dir
full_disk() {
    head -c 100000 /dev/zero >"$work/in"
    expect_status 1 encrypt "$work/in" /dev/full && says "No space left"
}
check "ENOSPC" full_disk
full_disk_stdout() {
    encrypt "$work/in" >/dev/full 2>"$work/stderr"
    [ $? = 1 ] && says "No space left"
}
check "ENOSPC on standard output" full_disk_stdout
closed_pipe() {
    head -c 5000000 /dev/zero >"$work/in"
    { encrypt --chunk 64k "$work/in" 2>"$work/stderr"; echo $? >"$work/status"; } | head -c 10 >/dev/null
    [ "$(cat "$work/status")" = 1 ] && says "Broken pipe"
}
check "EPIPE is an error, not a death by signal" closed_pipe
no_dir() {
    expect_status 1 encrypt "$work/in" "$work/nodir/result" && says "nodir"
}
check "an output folder that is not there" no_dir

# Signals.
stopped() { # SIGNAL NUMBER
    rm -f "$work/fifo" && mkfifo "$work/fifo"
    sleep 30 >"$work/fifo" &
    local writer=$!
    # Not by the function: that would be a shell between us and the program.
    "$program" --key "$key" --nonce "$nonce" "$work/fifo" "$work/dir/result" 2>"$work/stderr" &
    local pid=$!
    sleep 1
    kill "-$1" "$pid"
    wait "$pid"
    local got=$?
    kill "$writer" 2>/dev/null
    wait "$writer" 2>/dev/null
    [ "$got" = $((128 + $2)) ] && says "SIG$1" && no_leftovers "$work/dir"
}
check "SIGTERM" stopped TERM 15
check "SIGINT" stopped INT 2

# Arguments.
wrong() { # TEXT ARGUMENTS...
    local text=$1
    shift
    expect_status 2 "$program" "$@" && says "$text"
}
check "no key" wrong "--key" --nonce "$nonce"
check "nothing" wrong "--key and --nonce"
check "short key" wrong "64 hexadecimal" --key 00 --nonce "$nonce"
check "key that is no number" wrong "no hexadecimal digit" --key "${key%f}x" --nonce "$nonce"
check "chunk no multiple of 64" wrong "multiple of 64" -k "$key" -n "$nonce" --chunk 100
check "chunk 0" wrong "from 64" -k "$key" -n "$nonce" --chunk 0
check "depth 65" wrong "from 1 to 64" -k "$key" -n "$nonce" --depth 65
check "counter of 33 bits" wrong "from 0 to 4294967295" -k "$key" -n "$nonce" --counter 4294967296
check "three files" wrong "two files" -k "$key" -n "$nonce" a b c
check "unknown option" wrong "--help" --bogus
check "--help" expect_status 0 "$program" --help
check "--version" expect_status 0 "$program" --version
key_is_secret() { expect_status 2 "$program" --key deadbeef --nonce "$nonce" && ! says deadbeef 2>/dev/null; }
check "a key is not repeated in messages" key_is_secret
traced() {
    head -c 300000 /dev/zero >"$work/in.trace"
    expect_status 0 encrypt --trace "$work/trace.json" --chunk 64k "$work/in.trace" "$work/out.trace" &&
        grep -q '"culvert_seq_launch chacha20' "$work/trace.json" && [ "$(tail -c 2 "$work/trace.json")" = "]" ]
}
check "--trace" traced
no_trace() { expect_status 1 encrypt --trace "$work/no/where" "$work/in.trace" && says "$work/no/where"; }
check "--trace to nowhere" no_trace
unknown_driver() { expect_status 1 encrypt --driver bogus "$work/in" && says bogus; }
check "an unknown driver" unknown_driver
no_driver() { CULVERT_DRIVER=$work/no.so expect_status 1 encrypt "$work/in" && says "no.so"; }
check "a driver that is not there" no_driver

echo "$passed passed, $failed failed"
exit $((failed > 0))
