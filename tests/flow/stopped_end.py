"""
stopped_end.py FILE PID: FILE, which is taken, is of a file system whose process PID stops to answer before it is
closed. Nobody waits for that.
"""
import os
import signal
import sys

from sp import Client, check, failures, file_pass, lives

server = int(sys.argv[2])
fd = os.open(sys.argv[1], os.O_RDONLY)
clients = [Client() for _ in range(2)]
for c in clients:
    code, body = file_pass(c.hello()["token"], [fd])[1:]
    check(code == 0, f"a file of a disk that root mounted: {code} {body}")
    c.file = body.get("file")
os.kill(server, signal.SIGUSR1)
try:
    check(clients[0].call("file.close", {"file": clients[0].file})[0] == 0, "file.close")
    lives("a file that does not close", within=5)
    clients[1].s.close()
    lives("the end of a session whose file does not close", within=5)
finally:
    os.kill(server, signal.SIGKILL)  # or nothing that has the file open ends, this process included
sys.exit(bool(failures))
