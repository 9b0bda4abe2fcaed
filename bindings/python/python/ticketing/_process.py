"""The end of the interpreter, and forks.

An interpreter that ends kills the threads that still run, daemon threads among
them, as soon as they ask for its lock. One that is blocked in the extension
module must come out before that, so all brokers are closed first.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import TYPE_CHECKING

from . import _calls, _log
from ._ticketing import forked, settle

if TYPE_CHECKING:
    from ._broker import TicketBroker

#: Longer than a close takes.
SETTLE_SECS = 3.0

_brokers: dict[int, weakref.ref[TicketBroker]] = {}
_ending = False


def is_ending() -> bool:
    """Whether it is too late for another broker."""
    return _ending


def remember(broker: TicketBroker) -> None:
    """Closes the broker at exit, if it is still there."""
    number = id(broker)
    _brokers[number] = weakref.ref(broker, lambda _: _brokers.pop(number, None))


def _at_exit() -> None:
    global _ending
    _ending = True
    brokers = [broker for reference in list(_brokers.values()) if (broker := reference()) is not None]
    # All at once, so that servers that do not answer cost their 2 s once.
    for call in [broker._core.close(None, 0) for broker in brokers]:
        call.wait(False)
    settle(SETTLE_SECS)
    _log.stop()


def _in_child() -> None:
    # First of all: what is dropped from here on must know that it is not ours.
    forked()
    _brokers.clear()
    _calls.forget_mailboxes()
    _log.forget()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)
