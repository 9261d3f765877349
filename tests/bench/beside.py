#!/usr/bin/env python3
"""tests/bench/beside.py: how long a well-behaved client waits for an answer beside each kind of hostile one, over what
it waits alone. A daemon of its own; NPUD_BIN is the build folder. The hostile ones, and the lines that are printed, are
tests/flow/beside.py's. BENCH_QUICK: fewer turns."""
import os
import subprocess
import sys

import server

BESIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "flow", "beside.py")
TURNS = "3" if os.environ.get("BENCH_QUICK") else "9"

with server.running() as daemon:
    status = subprocess.run([sys.executable, BESIDE, server.NPUD, str(daemon.pid), TURNS]).returncode
sys.exit(status)
