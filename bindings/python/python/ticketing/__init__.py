"""Client of the Ticketing lock service: distributed FIFO locks with fencing tokens.

With asyncio:

>>> import asyncio, ticketing
>>> async def main() -> None:
...     async with ticketing.TicketBroker(["127.0.0.1:5225"]) as broker:
...         async with broker.lock("seat:12", wait=30, lease=10) as ticket:
...             print("our turn, token", ticket.token)

and with threads, where each method has a form whose name ends in `_sync`:

>>> def main_sync() -> None:
...     with ticketing.TicketBroker(["127.0.0.1:5225"]) as broker:
...         with broker.lock("seat:12", wait=30, lease=10) as ticket:
...             print("our turn, token", ticket.token)

No lock can stop a process that was paused while it held it: write `ticket.token`
with your data, in the same transaction, and refuse smaller ones.

What the client has to tell about its connections goes to the logger `ticketing`.
"""

from ._broker import Acquire, TicketBroker, connect
from ._errors import (
    TicketAuthError,
    TicketBusy,
    TicketClientCapacity,
    TicketClosed,
    TicketError,
    TicketForked,
    TicketInsufficientLease,
    TicketInvalidInput,
    TicketNotConnected,
    TicketNotHeld,
    TicketReleaseUnconfirmed,
    TicketTimeout,
    TicketTlsError,
    TicketUnsupported,
    TicketWrongDomain,
)
from ._indeterminate import TicketIndeterminate
from ._lock import Lock
from ._ticket import Ticket
from ._ticketing import VERSION as __version__
from ._types import ConnectionStatus, Grant, Place, Seconds, TlsOptions

__all__ = [
    "Acquire",
    "ConnectionStatus",
    "Grant",
    "Lock",
    "Place",
    "Seconds",
    "Ticket",
    "TicketAuthError",
    "TicketBroker",
    "TicketBusy",
    "TicketClientCapacity",
    "TicketClosed",
    "TicketError",
    "TicketForked",
    "TicketIndeterminate",
    "TicketInsufficientLease",
    "TicketInvalidInput",
    "TicketNotConnected",
    "TicketNotHeld",
    "TicketReleaseUnconfirmed",
    "TicketTimeout",
    "TicketTlsError",
    "TicketUnsupported",
    "TicketWrongDomain",
    "TlsOptions",
    "__version__",
    "connect",
]

# Where users know them from: in tracebacks, documentation and pickles.
for _name in __all__:
    if isinstance(_public := globals()[_name], type):
        _public.__module__ = __name__
