"""Real servers for tests, and waiting for what must come."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
#: Where the binaries of the workspace are.
BIN = Path(os.environ.get("TICKETING_BIN_DIR", ROOT / "target" / "debug")).resolve()
#: Where results go that are compared across languages.
RESULTS = BIN.parent / "conformance"
TABLE = ROOT / "tests" / "conformance" / "scenarios"

#: How long something may take that must come, on a machine with much else to do.
PATIENCE = 60.0


def eventually(condition: Callable[[], bool], what: str = "the condition") -> None:
    """Waits until it holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"{what} did not come within {PATIENCE} s"
        time.sleep(0.01)


class Process:
    """A process of a test, and what it says."""

    def __init__(self, *command: str | Path) -> None:
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._said, stderr=subprocess.STDOUT
        )

    def said(self) -> str:
        self._said.seek(0)
        return self._said.read()

    def find(self, pattern: str) -> list[str]:
        """Waits until it has said such a thing."""
        found: list[str] = []

        def looks() -> bool:
            found[:] = re.findall(pattern, self.said())
            assert found or self.process.poll() is None, f"it has ended: {self.said()}"
            return bool(found)

        eventually(looks, pattern)
        return found

    def stop(self) -> None:
        # It may hang in a stop of a test.
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            self._said.close()


class Server(Process):
    """A real server, alone and in memory, on a port that the system chose."""

    def __init__(self, *flags: str) -> None:
        super().__init__(BIN / "ticketing-server", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", *flags)
        self.address = self.find(r"listening .*client=(\S+)")[0]
        self.admin = self.find(r"listening .*admin=(\S+)")[0]

    def held(self) -> int:
        """How many locks are held."""
        return int(self.status()["locks"]["held"])

    def waiting(self) -> int:
        """How many acquires wait in queues."""
        return int(self.status()["waiters"]["waiting"])

    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self.admin}/status") as page:
            status: dict[str, Any] = json.load(page)
        return status


class Cluster(Process):
    """Three nodes on this machine."""

    def __init__(self) -> None:
        super().__init__(BIN / "ticketing-server", "dev", "--nodes", "3")
        self.find(r"End it:")
        nodes = re.findall(r"clients (\S+) +admin (\S+) +process (\d+)", self.said())
        self.addresses = [address for address, _, _ in nodes]
        self.pids = {address: int(pid) for address, _, pid in nodes}


def python(script: str, *args: str, timeout: float = PATIENCE, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in an interpreter of its own, where it can fork, hang or end."""
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script), *args],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **env},
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    """What a script wrote, if it ended well and complained of nothing."""
    assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
