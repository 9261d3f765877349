"""
lingering.py PID: descriptors that nobody closes soon, TCP sockets which linger over bytes that no one takes, come at
every moment along the main socket and along the side socket of the daemon PID, and are left for it to close last.
"""
import array
import contextlib
import os
import signal
import socket
import struct
import sys
import time

from sp import GREETING, Client, check, exactly, failures, lives, pack, side, stream

DAEMON = int(sys.argv[1])
MINUTES = 600


def lingering():
    listener = socket.create_server(("127.0.0.1", 0))
    full = socket.create_connection(listener.getsockname())
    other, _ = listener.accept()
    full.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            full.send(bytes(1 << 16))
    full.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, MINUTES))
    kept.append(other)
    return full


def send_along(s, *parts):
    """Each part with one; the daemon sees nothing of it before ours are closed."""
    os.kill(DAEMON, signal.SIGSTOP)
    try:
        for data in parts:
            full = lingering()
            s.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [full.fileno()]))])
            full.close()
    finally:
        os.kill(DAEMON, signal.SIGCONT)


def greeted():
    s = stream()
    s.sendall(GREETING)
    exactly(s, 8)
    return s


def descriptors():
    return len(os.listdir(f"/proc/{DAEMON}/fd"))


kept = []
before = descriptors()
for what, make, parts in (
    ("the greeting", stream, [GREETING]),
    ("half a greeting", stream, [GREETING[:4]]),
    ("what is no greeting", stream, [b"GET / HTTP/1.1\r\n\r\n"]),
    ("the head of a message", greeted, [b"\x01"]),
    ("what follows a message that is too large", greeted, [b"\x01" + struct.pack(">Q", 1 << 62), b"more", b"more"]),
):
    s = make()
    send_along(s, *parts)
    lives(f"a descriptor that came with {what}", within=5)
    s.close()
    lives(f"a descriptor that came with {what}, and its connection ended", within=5)

c = Client()
c.hello()
c.send("events.next", {})
send_along(c.s, b"\x01" + struct.pack(">Q", 100))
lives("a descriptor that came behind a request", within=5)
c.s.close()

packet = pack([1, "file.pass", 1, {"token": bytes(16)}])
s = side()
send_along(s, packet, packet, b"", b"garbage")
lives("descriptors on the side socket", within=5)
s.close()
lives("descriptors on the side socket that nobody read", within=5)
crowd = [side() for _ in range(120)]
s = side()
send_along(s, packet)
lives("a descriptor on a connection too many to the side socket", within=5)
for s in crowd:
    s.close()
for _ in range(100):  # while who could end the lingering does not
    if descriptors() <= before:
        break
    time.sleep(0.1)
check(descriptors() <= before, f"{descriptors()} descriptors of the daemon, {before} before")
sys.exit(bool(failures))
