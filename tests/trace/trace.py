# SPDX-License-Identifier: BSD-2-Clause
"""Traces a program and looks at the file: trace.py PROGRAM. Ends with 77 where there is no device."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

CODES = {"CULVERT_OK", "CULVERT_ECANCELED"}


def load(path, whole):
    text = open(path, encoding="ascii").read()
    if whole:
        return json.loads(text)
    assert not text.rstrip().endswith("]"), "it was not killed in the middle"
    return json.loads(text + "]")  # what readers of the array format do


def check_rows(events):
    """Every sequence: begun once, ended once at most, its parts within it and one after the other."""
    rows = {}
    for e in events:
        if e["ph"] in "be":
            assert e["cat"] == "sequence"
            rows.setdefault(e["id"], []).append(e)
    over = 0
    for row in rows.values():
        begin = row[0]
        assert begin["ph"] == "b" and "where" in begin["args"]
        stack, last = [begin], begin["ts"]
        for e in row[1:]:
            assert e["ts"] >= last, row
            last = e["ts"]
            if e["ph"] == "b":
                stack.append(e)
            else:
                assert stack.pop()["name"] == e["name"], row
        parts = [e["name"] for e in row[1:] if e["ph"] == "b"]
        if stack:
            assert stack[0] is begin and len(stack) <= 2, row  # in flight, or not all written, at the end
        else:
            over += 1
            assert row[-1]["args"]["outcome"] in CODES
            assert parts[:2] == ["building", "queued"], parts
    return rows, over


def check_tracks(events, rows):
    """Spans of a track: in order, none over another; each within what the loop knows of its sequence."""
    ends, names = {}, {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    slack = 0.0021  # a figure has three digits
    for e in events:
        if e["ph"] != "X":
            continue
        assert e["dur"] >= 0 and e["tid"] in names
        assert e["ts"] + slack >= ends.get(e["tid"], 0), (e, ends[e["tid"]])
        ends[e["tid"]] = e["ts"] + e["dur"]
        row = rows[e["args"]["id"]]
        assert row[0]["name"] == e["name"]
        assert e["ts"] + slack >= row[0]["ts"]
        assert e["ts"] + e["dur"] <= row[-1]["ts"] + slack, (e, row)
    return ends, names


def check(path, whole, expected=None):
    events = load(path, whole)
    rows, over = check_rows(events)
    ends, names = check_tracks(events, rows)
    assert names[1].startswith("loop")
    assert len(ends) == 3, ends  # the loop and two streams
    callbacks = [e for e in events if e["ph"] == "X" and e["tid"] == 1]
    device = [e for e in events if e["ph"] == "X" and e["tid"] != 1]
    busy = [e for e in device if e["name"] == "culvert_seq_launch busy"]
    assert busy and all(e["dur"] >= 190 for e in busy if e["tid"] in names), busy[:3]
    if expected is not None:
        assert len(rows) == over == expected, (len(rows), over, expected)
        assert len(device) == expected - 1  # all but the one that was cancelled
        assert len(callbacks) >= (expected - 1) * 2 // 3
        outcomes = [row[-1]["args"]["outcome"] for row in rows.values()]
        assert outcomes.count("CULVERT_ECANCELED") == 1
    return len(rows)


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        for mode in ("end", "stop"):
            run = subprocess.run([program, path, mode], stdout=subprocess.PIPE, timeout=200)
            if run.returncode == 77:
                return 77
            assert run.returncode == 0, run.returncode
            check(path, True, int(run.stdout.split()[-1]))
        run = subprocess.run([program, path, "abort"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=200)
        assert run.returncode == -signal.SIGABRT, run.returncode
        check(path, False)
        for i in range(5):  # at five moments
            run = subprocess.Popen([program, path, "forever"], stdout=subprocess.PIPE)
            assert run.stdout.readline() == b"going\n"
            time.sleep(0.05 + 0.017 * i)
            run.kill()
            assert run.wait(60) == -signal.SIGKILL
            run.stdout.close()
            assert check(path, False) > 10
        # A disk that is full: the program goes on, and says so.
        if os.path.exists("/dev/full"):
            run = subprocess.run([program, "/dev/full", "end"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            assert run.returncode in (0, 1) and b"No space left" in run.stderr, run
    return 0


sys.exit(main())
