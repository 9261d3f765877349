"""
stopped_file.py FILE OTHER PID: FILE is of a file system whose process PID stops to answer once it is open. Who
passes it waits; nobody else does, also when it is passed again and again, or among others.
"""
import array
import os
import signal
import socket
import sys
import time

from sp import Client, check, failures, file_pass, lives, pack, refused, side

server = int(sys.argv[3])
stopped = os.open(sys.argv[1], os.O_RDONLY)
other = os.open(sys.argv[2], os.O_RDONLY)
c = Client()
token = c.hello()["token"]
refused(file_pass(token, [stopped]), 6, "BAD_VALUE", "a file of a user's file system")
os.kill(server, signal.SIGUSR1)
for _ in range(100):
    with open(os.path.dirname(sys.argv[1]) + ".said") as said:
        if "stopped" in said.read():
            break
    time.sleep(0.1)

try:
    waiting = []
    for fds in ([stopped], [stopped] * 8, [other, stopped]) * 3:
        s = side()
        s.sendmsg([pack([1, "file.pass", 1, {"token": token}])], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
        waiting.append(s)
    lives("files that do not answer", within=5)
    for _ in range(10):
        code, body = file_pass(token, [other])[1:]
        check(code == 0, f"a file of a disk meanwhile: {code} {body}")
        check(c.call("file.close", {"file": body["file"]})[0] == 0, "file.close meanwhile")
    for s in waiting:
        s.close()
    lives("files that do not answer, whose peers have gone", within=5)
finally:
    os.kill(server, signal.SIGKILL)  # or nothing that has the file open ends, this process included
sys.exit(bool(failures))
