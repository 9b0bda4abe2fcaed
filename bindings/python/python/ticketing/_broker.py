"""The broker: what acquires and releases locks."""

from __future__ import annotations

import os
import warnings
from collections.abc import Coroutine, Generator, Iterable
from types import TracebackType
from typing import Any, NoReturn

from . import _process
from ._calls import Result, abandon, ask, ask_sync, begin, checked, wait
from ._errors import TicketClosed, TicketInvalidInput, error_of
from ._lock import Lock
from ._log import forward_log
from ._ticket import Ticket
from ._ticketing import DEFAULT_LEASE, DEFAULT_WAIT, Broker, Call, Failure, Held
from ._types import ConnectionStatus, Place, Seconds, TlsOptions


class TicketBroker:
    """Acquires and releases locks, over connections that it keeps by itself.

    It connects in the background: a server that is not there yet is found when
    it comes. One broker serves all threads and event loops of a process; each
    process needs its own. End it with `close`, or use it in `async with` or
    `with`.

    `addresses` are those of all servers, as `host:port` (without a port it is
    5225, an IPv6 address stands in brackets). `token` is the secret shared with
    them. `tls` is `True` for the system's roots, or a `TlsOptions`. With
    `expect_domain`, only servers of that fencing domain are talked to. More than
    `max_pending` acquires, and as many releases, are refused.

    Raises `TicketInvalidInput` for settings that make no sense, and
    `TicketTlsError` for certificates or names that cannot be used.

    >>> import asyncio, ticketing
    >>> async def main() -> None:
    ...     async with ticketing.TicketBroker(["127.0.0.1:5225"]) as broker:
    ...         async with broker.lock("seat:12", wait=30, lease=10) as ticket:
    ...             print("our turn, token", ticket.token)
    """

    def __init__(
        self,
        addresses: str | Iterable[str],
        *,
        token: str | bytes | None = None,
        tls: bool | TlsOptions = False,
        expect_domain: str | None = None,
        max_pending: int | None = None,
    ) -> None:
        self._closed = True  # Until there is something to close.
        self._addresses = [addresses] if isinstance(addresses, str) else list(addresses)
        if _process.is_ending():
            raise TicketClosed("the interpreter is ending")
        forward_log()
        secret = token.encode() if isinstance(token, str) else token
        started = Broker.start(self._addresses, secret, _tls(tls), expect_domain, max_pending)
        if isinstance(started, Failure):
            raise error_of(started)
        self._core = started
        self._closed = False
        _process.remember(self)

    def acquire(
        self,
        key: str,
        wait: Seconds = DEFAULT_WAIT,
        lease: Seconds = DEFAULT_LEASE,
        *,
        min_remaining: Seconds | None = None,
    ) -> Acquire:
        """Waits in the queue of `key` for up to `wait`, then holds the lock for at most `lease`.

        `wait` is 0 (one immediate try that never queues) to 255 s, `lease` 1 s to
        250 s; fractions of a second are rounded up. A grant with less than
        `min_remaining` left of its lease is given back at once. The lock is not
        re-entrant: its holder queues like anybody else.

        Await it: `ticket = await broker.acquire("seat:12")`. It begins when it is
        awaited, or its task runs. Cancelled, it leaves the queue, and a grant that
        comes all the same is given back.

        Raises, of which only `TicketIndeterminate` leaves open whether the lock is held:

        - `TicketTimeout`, `TicketBusy`, `TicketNotConnected`
        - `TicketIndeterminate`: sent, and no answer came. See its `verify`.
        - `TicketInsufficientLease`: granted too late to be of use, and given back
        - `TicketInvalidInput`, `TicketClientCapacity`, `TicketClosed`: nothing was sent
        - `TicketAuthError`, `TicketTlsError`, `TicketWrongDomain`: every connection
          fails for that reason
        """
        return Acquire(self._core, key, wait, lease, min_remaining)

    def acquire_sync(
        self,
        key: str,
        wait: Seconds = DEFAULT_WAIT,
        lease: Seconds = DEFAULT_LEASE,
        *,
        min_remaining: Seconds | None = None,
    ) -> Ticket:
        """Like `acquire`, for threads: blocks this one, and no other."""
        return _ticket(ask_sync(self._core.acquire, key, wait, lease, min_remaining))

    def try_acquire(self, key: str, lease: Seconds = DEFAULT_LEASE) -> Acquire:
        """One immediate try that never enters the queue; `TicketTimeout` if the lock is held."""
        return Acquire(self._core, key, 0, lease, None)

    def try_acquire_sync(self, key: str, lease: Seconds = DEFAULT_LEASE) -> Ticket:
        """Like `try_acquire`, for threads."""
        return _ticket(ask_sync(self._core.acquire, key, 0, lease, None))

    def lock(
        self,
        key: str,
        wait: Seconds = DEFAULT_WAIT,
        lease: Seconds = DEFAULT_LEASE,
        *,
        min_remaining: Seconds | None = None,
    ) -> Lock:
        """The lock as a context manager or a decorator; see `Lock`."""
        return Lock(self, key, wait, lease, min_remaining)

    async def release(self, key: str, token: int) -> None:
        """Gives back the lock that was granted under exactly this token, wherever it was granted.

        A `Ticket` does that by itself; this is for a `Grant`.

        Raises what `Ticket.release` raises; and `TicketInvalidInput`,
        `TicketClientCapacity`, `TicketClosed`, and the errors of configuration,
        when nothing was sent.
        """
        await ask(self._core.release, key, token)

    def release_sync(self, key: str, token: int) -> None:
        """Like `release`, for threads."""
        ask_sync(self._core.release, key, token)

    async def wait_ready(self, timeout: Seconds = 10) -> None:
        """Waits until a session is open that can be asked for locks.

        Raises `TicketAuthError`, `TicketTlsError` or `TicketWrongDomain` as soon
        as every connection fails for that reason; `TicketNotConnected` when the
        time is over; `TicketClosed`.
        """
        await ask(self._core.wait_ready, timeout)

    def wait_ready_sync(self, timeout: Seconds = 10) -> None:
        """Like `wait_ready`, for threads."""
        ask_sync(self._core.wait_ready, timeout)

    def connections(self) -> list[ConnectionStatus]:
        """How the connections stand, in the order of the addresses."""
        known = self._core.connections()
        if isinstance(known, Failure):
            raise error_of(known)
        return [ConnectionStatus(*status) for status in known]

    async def close(self) -> None:
        """Ends the broker in order, within 2 s.

        No acquire begins any more, those that wait end (`TicketClosed`, or
        `TicketIndeterminate` where that cannot be known), releases under way are
        given a moment. Tickets that are still held stay valid until their leases
        end, but can no longer be released here. Closing twice does no harm.
        """
        self._closed = True
        try:
            await ask(self._core.close)
        except TicketClosed:
            pass
        else:
            self._core.join()

    def close_sync(self) -> None:
        """Like `close`, for threads."""
        self._closed = True
        try:
            ask_sync(self._core.close)
        except TicketClosed:
            pass
        else:
            self._core.join()

    async def __aenter__(self) -> TicketBroker:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __enter__(self) -> TicketBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_sync()

    def __repr__(self) -> str:
        return f"<TicketBroker {', '.join(self._addresses)}{' closed' if self._closed else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a TicketBroker cannot be pickled; make one in each process")

    def __del__(self, _warn: Any = warnings.warn) -> None:
        if not self._closed and self._core.is_here():
            _warn(f"{self!r} was never closed", ResourceWarning, source=self, stacklevel=2)


class Acquire(Coroutine[Any, Any, Ticket]):
    """An acquire: await it for its `Ticket`, or make a task of it.

    >>> import asyncio
    >>> async def queue(broker: TicketBroker) -> Ticket:
    ...     acquire = broker.acquire("seat:12", wait=60)
    ...     task = asyncio.create_task(acquire)
    ...     await asyncio.sleep(1)
    ...     print("we are number", (await acquire.place()).place)
    ...     return await task

    In a program without a loop, `wait_sync` does the same on one thread, while
    others may look at its place, or cancel it.
    """

    __slots__ = ("_args", "_begun", "_call", "_cancelled", "_core", "_steps")

    def __init__(
        self, core: Broker, key: str, wait: Seconds, lease: Seconds, min_remaining: Seconds | None
    ) -> None:
        self._core = core
        self._args = (key, wait, lease, min_remaining)
        self._begun = False
        self._cancelled = False
        self._call: Call | None = None
        self._steps: Generator[Any, Any, Ticket] | None = None

    def __await__(self) -> Generator[Any, Any, Ticket]:
        self._use()
        call, future = begin(self._core.acquire, *self._args)
        self._started(call)
        try:
            outcome = yield from future.__await__()
        except BaseException:
            # A cancel, or the end of the coroutine itself.
            abandon(call, future)
            raise
        return _ticket(checked(outcome))

    def send(self, value: Any, /) -> Any:
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.send(value)

    def throw(self, *args: Any) -> Any:
        if self._steps is None:
            # Before its first step: nothing begins.
            self._begun = True
            self._steps = self.__await__()
        return self._steps.throw(*args)

    def close(self) -> None:
        self._begun = True
        if self._steps is not None:
            self._steps.close()

    def wait_sync(self) -> Ticket:
        """Blocks this thread until the lock is held; like `TicketBroker.acquire_sync`.

        Raises `concurrent.futures.CancelledError` if it was cancelled.
        """
        self._use()
        call = self._core.acquire(None, 0, *self._args)
        self._started(call)
        return _ticket(wait(call))

    async def place(self) -> Place:
        """Asks the server where this acquire, which somebody is waiting for, stands in its queue.

        Raises `TicketUnsupported` if the server does not tell places;
        `TicketNotConnected` when no answer came within 5 s; `TicketInvalidInput`
        before it has begun; `TicketClientCapacity`, `TicketClosed`, and the
        errors of configuration.
        """
        return _place(await ask(self._under_way().place))

    def place_sync(self) -> Place:
        """Like `place`, for threads."""
        return _place(ask_sync(self._under_way().place))

    def cancel(self) -> None:
        """Ends it, from any thread: it leaves the queue, and whoever waits for it gets a `CancelledError`.

        In a loop, cancelling its task does the same.
        """
        self._cancelled = True
        if self._call is not None:
            self._call.cancel()

    def _use(self) -> None:
        if self._begun:
            raise RuntimeError("this acquire has begun before; call acquire() again for another one")
        self._begun = True

    def _started(self, call: Call) -> None:
        self._call = call
        if self._cancelled:
            call.cancel()

    def _under_way(self) -> Call:
        if self._call is None:
            raise TicketInvalidInput("this acquire has not begun: await it in a task of its own first")
        return self._call

    def __repr__(self) -> str:
        return f"<Acquire key={self._args[0]!r}{'' if self._begun else ' not begun'}>"

    def __del__(self, _warn: Any = warnings.warn) -> None:
        if not self._begun:
            _warn(f"{self!r} was never awaited", RuntimeWarning, source=self, stacklevel=2)


def _ticket(outcome: Result) -> Ticket:
    if not isinstance(outcome, Held):
        raise AssertionError(f"an acquire came to {outcome!r}")
    return Ticket(outcome)


def _place(outcome: Result) -> Place:
    if not isinstance(outcome, tuple):
        raise AssertionError(f"a place came to {outcome!r}")
    return Place(*outcome)


def _tls(tls: bool | TlsOptions) -> tuple[str | None, bytes | None, str | None, bool] | None:
    if not tls:
        return None
    options = TlsOptions() if tls is True else tls
    ca_file = None if options.ca_file is None else os.fspath(options.ca_file)
    pem = options.ca_pem
    ca_pem = pem.encode() if isinstance(pem, str) else pem
    return ca_file, ca_pem, options.server_name, options.dangerously_accept_any_certificate


def connect(
    *addresses: str,
    token: str | bytes | None = None,
    tls: bool | TlsOptions = False,
    expect_domain: str | None = None,
    max_pending: int | None = None,
) -> TicketBroker:
    """A broker for these servers; it connects in the background. See `TicketBroker`.

    >>> broker = connect("127.0.0.1:5225")
    >>> broker.close_sync()
    """
    return TicketBroker(
        addresses, token=token, tls=tls, expect_domain=expect_domain, max_pending=max_pending
    )
