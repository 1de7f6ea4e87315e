#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The line server as its clients and its supervisor see it.

line_server.py PROGRAM
"""
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

PROGRAM = sys.argv[1]
failures = 0


def check(condition, what):
    global failures
    print(("ok   " if condition else "FAIL ") + what, flush=True)
    failures += not condition


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, **environment):
        self.port = free_port()
        self.process = subprocess.Popen(
            [PROGRAM, f"127.0.0.1:{self.port}"], stderr=subprocess.PIPE, text=True,
            env={**os.environ, **environment})
        for _ in range(1200):
            try:
                self.connect().close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        raise SystemExit("the server did not start: " + self.process.stderr.read())

    def connect(self, **options):
        s = socket.socket()
        for name, value in options.items():
            s.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        s.settimeout(60)
        s.connect(("127.0.0.1", self.port))
        return s

    def end(self, number):
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


def read_all(s):
    data = b""
    while chunk := s.recv(65536):
        data += chunk
    return data


def talk(server, text):
    with server.connect() as s:
        s.sendall(text)
        s.shutdown(socket.SHUT_WR)
        return read_all(s)


def lines_of(seed, count, least=1):
    rng = random.Random(seed)
    ask, expect = [], []
    for _ in range(count):
        a = rng.randrange(-8, 8)
        x = [rng.randrange(-100000, 100000) for _ in range(rng.randrange(least, 257))]
        ask.append((" ".join(map(str, [a] + x)) + "\n").encode())
        expect.append((" ".join("%g" % (float(a) * v + 0.0) for v in x) + "\n").encode())
    return b"".join(ask), b"".join(expect)


def many(server):
    results = []

    def one(seed):
        ask, expect = lines_of(seed, 40)
        results.append(talk(server, ask) == expect)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(32)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(all(results) and len(results) == 32, "32 clients of 40 lines at once get their answers, in order")


def messages(server):
    error = b"error: a line is a and 1 to 256 numbers x\n"
    check(talk(server, b"2 1 2.5 -3\n") == b"2 5 -6\n", "a line is answered after a half-close")
    for bad in (b"\n", b"2\n", b"x 1\n", b"2 1 x\n", b"2 " + b"1 " * 257 + b"\n"):
        check(talk(server, bad + b"1 7\n") == error + b"7\n", f"{bad[:12]!r} is an error, and the next line is not")
    check(talk(server, b"2 1 2 3") == b"", "a line without its end gets no answer")
    try:
        too_long = talk(server, b"1" * 20000)
    except OSError:
        too_long = b""
    check(too_long == b"", "a line that is too long ends the connection")
    with server.connect() as s:
        for part in (b"2 1", b" 2\n3", b" 1\n"):
            s.sendall(part)
            time.sleep(0.05)
        s.shutdown(socket.SHUT_WR)
        check(read_all(s) == b"2 4\n3\n", "lines may come in pieces")


def vanish(server):
    for i in range(300):
        s = server.connect()
        s.sendall(b"2 1 2 3\n" * (i % 5) + b"2 1"[: i % 4])
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", i % 2, 0))
        s.close()
    check(talk(server, b"2 4\n") == b"8\n", "300 clients that leave at any moment harm nobody")
    descriptors = f"/proc/{server.process.pid}/fd"
    before = len(os.listdir(descriptors))
    for _ in range(100):
        talk(server, b"2 4\n")
    check(len(os.listdir(descriptors)) <= before, "no descriptor is left open")


def slow(server):
    ask, expect = lines_of(7, 8000, 256)
    with server.connect(SO_RCVBUF=4096) as s:
        s.setblocking(False)
        sent = 0
        while sent < len(ask):  # without reading one answer
            try:
                sent += s.send(ask[sent:sent + 65536])
            except BlockingIOError:
                time.sleep(0.3)
                try:
                    sent += s.send(ask[sent:sent + 65536])
                except BlockingIOError:
                    break
        check(sent < len(ask), "a client that does not read is not read from for ever")
        check(talk(server, b"2 4\n") == b"8\n", "others are served meanwhile")
        s.setblocking(True)
        whole = ask[:sent].rfind(b"\n") + 1
        want = b"".join(expect.splitlines(True)[: ask[:whole].count(b"\n")])
        s.shutdown(socket.SHUT_WR)
        check(read_all(s) == want, "and it gets all its answers when it reads")


def stop(number):
    server = Server()
    with server.connect() as s:
        s.sendall(b"2 4\n")
        check(s.recv(10) == b"8\n", "a client is there")
        status, err = server.end(number)
    check(status == 128 + number and err == "", f"signal {number} ends it in order, with status {128 + number}")


def wrong_calls():
    def call(*arguments, **environment):
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60,
                              env={**os.environ, **environment})
        return done.returncode, done.stdout, done.stderr

    status, out, _ = call("--help")
    check(status == 0 and out.startswith("usage: line-server"), "--help")
    check(call("--nonsense")[0] == 2, "an unknown option has status 2")
    check(call("--device", "x")[0] == 2, "a device that is no number has status 2")
    status, _, err = call("127.0.0.1:none")
    check(status == 1 and "is not HOST:PORT" in err, "a port that is none")
    status, _, err = call(CULVERT_DRIVER="/nonexistent/libcuda.so")
    check(status == 1 and "/nonexistent" in err and err.count("\n") == 1, "a missing driver is one clear line")


def main():
    server = Server()
    messages(server)
    many(server)
    vanish(server)
    slow(server)
    status, err = server.end(signal.SIGTERM)
    check(status == 128 + signal.SIGTERM and "Sanitizer" not in err, "SIGTERM")
    stop(signal.SIGINT)
    wrong_calls()
    return failures != 0


sys.exit(main())
