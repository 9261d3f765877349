"""future_daemon.py PATH HOW: one connection of a daemon that is not there yet.

HOW: minor (answers with fields and an error that nobody knows yet), major (refuses protocol 1), or silent-major
(greets as if it spoke protocol 1, and tells in hello that it does not).
"""

import socket
import struct
import sys

import npud

PATH, HOW = sys.argv[1:3]


def exactly(s, n):
    out = b""
    while len(out) < n:
        part = s.recv(n - len(out))
        if not part:
            sys.exit(0)
        out += part
    return out


def answer(op, req):
    more = {"moods": ["calm"], "since": -1, "nested": {"a": [{}]}}
    if HOW == "major":
        return [
            req,
            4,
            {
                "error": "VERSION",
                "message": "the client speaks protocol 1 and this npud 2; install matching versions",
            },
        ]
    if op == "hello":
        told = {
            "session": 1,
            "token": b"t" * 16,
            "major": 2 if HOW == "silent-major" else 1,
            "minor": 9,
            "version": "9.0",
        }
        return [
            req,
            0,
            {**told, "max_request": 1 << 20, "max_reply": 1 << 20, "max_rows": 4, **more},
            "a fourth element",
        ]
    if op == "ping":
        return [req, 0, more]
    return [
        req,
        999,
        {"error": "TOO_TIRED", "message": "the NPU sleeps until noon; ask then", "detail": more},
    ]


listener = socket.socket(socket.AF_UNIX)
listener.bind(PATH)
listener.listen(1)
peer, _ = listener.accept()
peer.sendall(npud.Stream.PEER)
exactly(peer, 8)
while True:
    kind, size = struct.unpack(">BQ", exactly(peer, 9))
    frame = exactly(peer, size)
    _, op, req = npud.unpack(frame[4:])[:3]
    body = frame[:4] + npud.pack(answer(op, req))
    peer.sendall(struct.pack(">BQ", 1, len(body)) + body)
