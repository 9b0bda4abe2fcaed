"""From the core's log to `logging.getLogger("ticketing")`.

The extension module writes into a pipe and never waits; a thread of ours reads
it. Whatever handlers do, they delay nobody but each other.
"""

from __future__ import annotations

import json
import logging
import os
import threading

from ._ticketing import close_log, open_log

logger = logging.getLogger("ticketing")
logger.addHandler(logging.NullHandler())

_lock = threading.Lock()
_thread: threading.Thread | None = None
_pipe = -1


def forward_log() -> None:
    """Begins to forward, once in each process."""
    global _thread, _pipe
    with _lock:
        if _thread is None:
            _pipe = open_log()
            _thread = threading.Thread(target=_forward, args=(_pipe,), name="ticketing-log", daemon=True)
            _thread.start()


def _forward(pipe: int) -> None:
    rest = b""
    while chunk := os.read(pipe, 65_536):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            level, message = json.loads(line)
            try:
                logger.log(level, "%s", message)
            except Exception:
                # What a handler raises past `logging` is its own trouble, and nobody is here to be told.
                continue


def stop() -> None:
    """Lets what is in the pipe out, and ends."""
    close_log()
    if _thread is not None:
        _thread.join(1)


def forget() -> None:
    """In a fork: the thread is not here, and the pipe is the parent's."""
    global _lock, _thread, _pipe
    _lock = threading.Lock()
    _thread = None
    if _pipe >= 0:
        os.close(_pipe)
        _pipe = -1
