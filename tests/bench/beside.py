#!/usr/bin/env python3
"""tests/bench/beside.py: how long a well-behaved client waits for an answer beside each kind of hostile one, over what
it waits alone. A daemon of its own; NPUD_BIN is the build folder. The hostile ones, and the lines that are printed, are
tests/flow/beside.py's. BENCH_QUICK: fewer turns."""
import os
import subprocess
import sys
import tempfile
import time

BIN = os.environ.get("NPUD_BIN", "build/release")
NPUD, CTL = os.path.join(BIN, "daemon", "npud"), os.path.join(BIN, "client", "npuctl")
BESIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "flow", "beside.py")
TURNS = "3" if os.environ.get("BENCH_QUICK") else "9"

with tempfile.TemporaryDirectory(prefix="npud-bench.") as place:
    os.environ["NPUD_SOCKET"] = os.path.join(place, "run", "npud.sock")
    daemon = subprocess.Popen([NPUD, "--foreground", "--cache-dir", place, "--state-dir", os.path.join(place, "state")],
                              stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if subprocess.run([CTL, "ping"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
                break
            time.sleep(0.1)
        status = subprocess.run([sys.executable, BESIDE, NPUD, str(daemon.pid), TURNS]).returncode
    finally:
        daemon.terminate()
        daemon.wait()
sys.exit(status)
