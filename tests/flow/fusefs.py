"""
fusefs.py MOUNTPOINT UID FILE: a FUSE file system of user UID with FILE in it, as "model". Says "mounted"; from
SIGUSR1 on it answers nothing that asks for the file, and says "stopped". As root; exits 77 where there is no FUSE.
"""
import ctypes
import os
import signal
import stat
import struct
import sys

AT, UID, SIZE = sys.argv[1], int(sys.argv[2]), os.stat(sys.argv[3]).st_size
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, INTERRUPT, MULTI = (
    1, 2, 3, 14, 15, 17, 18, 25, 26, 27, 36, 42)  # fmt: skip
ENOENT, ENOSYS = 2, 38
file = open(sys.argv[3], "rb")
stopped = False


def stop(*_):
    global stopped
    stopped = True
    print("stopped", flush=True)


def attributes(node):
    mode = stat.S_IFDIR | 0o755 if node == 1 else stat.S_IFREG | 0o644
    size = 0 if node == 1 else SIZE
    return struct.pack("<6Q10I", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, UID, UID, 0, 4096, 0)


def answer(op, node, body):
    """(error, bytes)"""
    if op == INIT:
        return 0, struct.pack("<4I2H2I2H8I", 7, 31, 65536, 0, 12, 9, 65536, 1, 0, 0, *[0] * 8)[:64]
    if op == LOOKUP:
        if body.rstrip(b"\0") != b"model":
            return ENOENT, b""
        return 0, struct.pack("<4Q2I", 2, 0, 0, 0, 0, 0) + attributes(2)
    if op == GETATTR:
        return 0, struct.pack("<Q2I", 0, 0, 0) + attributes(node)
    if op in (OPEN, OPENDIR):
        return 0, struct.pack("<Q2I", 7, 0, 0)
    if op == READ:
        _, at, size = struct.unpack_from("<QQI", body)
        file.seek(at)
        return 0, file.read(size)
    if op == STATFS:
        return 0, struct.pack("<5Q4I", 1, 1, 1, 1, 1, 4096, 255, 4096, 0) + bytes(24)
    return (0 if op in (FLUSH, RELEASE) else ENOSYS), b""


try:
    device = os.open("/dev/fuse", os.O_RDWR)
except OSError as error:
    print("no FUSE:", error)
    sys.exit(77)
libc = ctypes.CDLL(None, use_errno=True)
how = f"fd={device},rootmode=40000,user_id={UID},group_id={UID},allow_other"
if libc.mount(b"npud-test", AT.encode(), b"fuse", 6, how.encode()):
    print("no FUSE:", os.strerror(ctypes.get_errno()))
    sys.exit(77)
signal.signal(signal.SIGUSR1, stop)
print("mounted", flush=True)
while True:
    try:
        request = os.read(device, 1 << 18)
    except OSError as error:
        if error.errno == ENOENT:
            continue  # it was interrupted before it was read
        break  # unmounted
    _, op, unique, node = struct.unpack_from("<IIQQ", request)
    if op in (FORGET, INTERRUPT, MULTI) or (stopped and node == 2):
        continue
    error, out = answer(op, node, request[40:])
    os.write(device, struct.pack("<IiQ", 16 + len(out), -error, unique) + out)
