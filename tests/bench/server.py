"""tests/bench/server.py: a daemon for the time of a benchmark, in a folder of its own. Not a benchmark."""
import contextlib
import os
import subprocess
import tempfile
import time

BIN = os.environ.get("NPUD_BIN", "build/release")
NPUD, CTL = os.path.join(BIN, "daemon", "npud"), os.path.join(BIN, "client", "npuctl")


@contextlib.contextmanager
def running(config=""):
    """Gives the subprocess.Popen of a daemon that answers; NPUD_SOCKET of the environment is its socket."""
    with tempfile.TemporaryDirectory(prefix="npud-bench.") as place:
        os.environ["NPUD_SOCKET"] = os.path.join(place, "run", "npud.sock")
        with open(os.path.join(place, "npud.conf"), "w", encoding="ascii") as conf:
            conf.write(config)
        daemon = subprocess.Popen([NPUD, "--foreground", "--config", conf.name, "--cache-dir", os.path.join(place, "cache"),
                                   "--state-dir", os.path.join(place, "state")], stderr=subprocess.DEVNULL)
        try:
            while subprocess.run([CTL, "ping"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
                if daemon.poll() is not None:
                    raise SystemExit(f"the daemon ended with {daemon.returncode}")
                time.sleep(0.05)
            yield daemon
        finally:
            daemon.terminate()
            daemon.wait()
