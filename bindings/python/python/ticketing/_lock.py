"""A lock around a block, or around a function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from ._ticket import Ticket
from ._types import Seconds

if TYPE_CHECKING:
    from ._broker import TicketBroker

P = ParamSpec("P")
R = TypeVar("R")


class Lock:
    """A lock around a block, or around a function; it comes of `TicketBroker.lock`.

    >>> async def sell(broker: "TicketBroker") -> None:
    ...     async with broker.lock("seat:12", lease=10) as ticket:
    ...         print("write with the token", ticket.token)

    In a program without a loop it is `with`. As a decorator it acquires the lock
    anew for each call, and the function gets the ticket as its first argument,
    since what it writes should carry the token:

    >>> def nightly(broker: "TicketBroker") -> None:
    ...     @broker.lock("nightly-report", wait=0)
    ...     def report(ticket: "Ticket", title: str) -> None:
    ...         print(title, "with the token", ticket.token)
    ...
    ...     report("Sales")

    Acquiring raises what `TicketBroker.acquire` raises. At the end of the block
    the lock is released: if it was no longer held, that raises `TicketNotHeld`,
    unless the block itself raised something, which goes first; then the failure
    is only logged.
    """

    __slots__ = ("_broker", "_key", "_lease", "_min_remaining", "_ticket", "_wait")

    def __init__(
        self, broker: TicketBroker, key: str, wait: Seconds, lease: Seconds, min_remaining: Seconds | None
    ) -> None:
        self._broker = broker
        self._key = key
        self._wait = wait
        self._lease = lease
        self._min_remaining = min_remaining
        self._ticket: Ticket | None = None

    async def __aenter__(self) -> Ticket:
        self._use()
        self._ticket = await self._broker.acquire(
            self._key, self._wait, self._lease, min_remaining=self._min_remaining
        )
        return self._ticket

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            await ticket.__aexit__(kind, error, trace)

    def __enter__(self) -> Ticket:
        self._use()
        self._ticket = self._broker.acquire_sync(
            self._key, self._wait, self._lease, min_remaining=self._min_remaining
        )
        return self._ticket

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            ticket.__exit__(kind, error, trace)

    @overload
    def __call__(
        self, function: Callable[Concatenate[Ticket, P], Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Ticket, P], R], /) -> Callable[P, R]: ...

    def __call__(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{function!r} is a generator function: its body runs after the call, so use `with` in it"
            )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def locked_async(*args: Any, **kwargs: Any) -> Any:
                async with self._again() as ticket:
                    return await function(ticket, *args, **kwargs)

            return locked_async

        @functools.wraps(function)
        def locked(*args: Any, **kwargs: Any) -> Any:
            with self._again() as ticket:
                return function(ticket, *args, **kwargs)

        return locked

    def _again(self) -> Lock:
        return Lock(self._broker, self._key, self._wait, self._lease, self._min_remaining)

    def _use(self) -> None:
        if self._ticket is not None:
            raise RuntimeError("this Lock is in use; call lock() again for another one")

    def __repr__(self) -> str:
        return f"<Lock key={self._key!r}>"
