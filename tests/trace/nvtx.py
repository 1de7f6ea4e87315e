# SPDX-License-Identifier: BSD-2-Clause
"""Ranges for a profiler: nvtx.py PROGRAM PROFILER (case 128)."""
import collections
import os
import subprocess
import sys
import tempfile


def run(path, extra):
    environment = dict(os.environ, NVTX_INJECTION64_PATH=sys.argv[2], **extra)
    r = subprocess.run([sys.argv[1], path, "end"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       env=environment, timeout=200, text=True)
    if r.returncode == 77:
        sys.exit(77)
    assert r.returncode == 0, r
    lines = [line.split() for line in r.stderr.splitlines() if line.startswith("nvtx ")]
    assert lines[0] == ["nvtx", "domain", "culvert"], lines[:2]
    assert lines[-1] == ["nvtx", "destroy"], lines[-2:]
    return int(r.stdout.split()[-1]), lines[1:-1]


with tempfile.TemporaryDirectory() as folder:
    for path in (os.path.join(folder, "trace.json"), "-"):  # "-": no file
        sequences, lines = run(path, {})
        started = [line[2] for line in lines if line[1] == "start"]
        ended = [line[2] for line in lines if line[1] == "end"]
        assert len(started) == len(set(started)) == sequences, (len(started), sequences)
        assert sorted(started) == sorted(ended)
        assert started != ended  # they cross
        assert any(line[3:] == ["culvert_seq_launch", "busy"] for line in lines)
        sequences, lines = run(path, {"PROFILER_SAME": "1"})
        counts = collections.Counter(line[1] for line in lines)
        assert counts == {"start": sequences, "end": sequences}, counts
