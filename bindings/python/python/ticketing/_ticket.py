"""A lock that is held."""

from __future__ import annotations

import logging
import warnings
from types import TracebackType
from typing import Any, NoReturn

from ._calls import ask, ask_sync
from ._errors import TicketError, TicketNotHeld
from ._ticketing import Held
from ._types import Grant

logger = logging.getLogger("ticketing")


class Ticket:
    """A lock that is held; it comes of `TicketBroker.acquire`.

    Give it back with `release`, which says whether it was still held, or use it
    in `async with` or `with`. A ticket that is dropped is given back too, in the
    background, with a `ResourceWarning`.

    Holding a ticket proves little to a database: a process can sleep through the
    end of its lease. Store the `token` with what the lock protects, and refuse
    writes with a smaller one, in the same transaction.

    >>> async def sell(broker: "TicketBroker") -> None:
    ...     async with await broker.acquire("seat:12") as ticket:
    ...         print("write with the token", ticket.token)
    """

    __slots__ = ("__weakref__", "_held")

    _held: Held

    def __init__(self, held: Held) -> None:
        self._held = held

    @property
    def key(self) -> str:
        """The lock's name."""
        return self._held.key

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier grant in the `domain`, whatever the key."""
        return self._held.token

    @property
    def owner(self) -> int:
        """The owner number of the acquire, as the server knows it."""
        return self._held.owner

    @property
    def domain(self) -> str | None:
        """The fencing domain within which tokens compare, 32 hexadecimal digits, where the server named one."""
        return self._held.domain

    def remaining(self) -> float:
        """How many seconds are surely left of the lease; 0 if nothing is, or if it was released.

        Counted from before the request left, less half a percent for the drift
        of two clocks, on a clock that goes on while the machine sleeps (Linux).
        """
        return self._held.remaining()

    async def release(self) -> None:
        """Gives the lock back, and says whether it was still held.

        Tried for up to 5 s, over every connection that can serve. If the task is
        cancelled meanwhile, the release goes on in the background.

        Raises `TicketNotHeld` if the lease had run out (somebody else may have
        had the lock since), and `TicketReleaseUnconfirmed` if no word came.
        """
        await ask(self._held.release)

    def release_sync(self) -> None:
        """Like `release`, for threads."""
        ask_sync(self._held.release)

    def detach(self) -> Grant:
        """Turns the ticket into plain data. Nothing releases the lock by itself then, but its lease.

        Raises `TicketNotHeld` if it was released or detached before.
        """
        remaining = self._held.detach()
        if remaining is None:
            message = f"lock {self.key!r}: this ticket was released or detached before"
            raise TicketNotHeld(message, key=self.key, token=self.token)
        return Grant(self.key, self.token, self.owner, self.domain, remaining)

    async def __aenter__(self) -> Ticket:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._held.is_here():
            return
        try:
            await self.release()
        except TicketError as failure:
            self._tell(failure, error)

    def __enter__(self) -> Ticket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._held.is_here():
            return
        try:
            self.release_sync()
        except TicketError as failure:
            self._tell(failure, error)

    def _tell(self, failure: TicketError, error: BaseException | None) -> None:
        """Raises the failure of a release, unless a greater one is on its way."""
        if error is None:
            raise failure
        logger.warning("while %s was on its way: %s", type(error).__name__, failure)

    def __repr__(self) -> str:
        state = f"{self.remaining():.1f} s left" if self._held.is_here() else "not held here"
        return f"<Ticket key={self.key!r} token={self.token} {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Ticket cannot be pickled; hand ticket.detach() on, which gives plain data")

    def __del__(self, _warn: Any = warnings.warn) -> None:
        # Collected with the last reference: the extension module gives the lock back.
        if self._held.is_here():
            _warn(f"{self!r} was never released", ResourceWarning, source=self, stacklevel=2)
