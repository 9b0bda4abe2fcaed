"""From a request of the extension module to its outcome, in a loop or a thread.

An event loop has a mailbox: what has ended lies in its inbox, and a file
descriptor wakes the loop when the first of a batch comes. Everything here runs
on the loop's own thread, so nothing needs a lock.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import threading
import weakref
from collections.abc import Callable
from types import EllipsisType
from typing import Concatenate, ParamSpec, TypeAlias

from ._errors import error_of
from ._ticketing import Call, Failure, Held, Inbox

P = ParamSpec("P")

#: What a request comes to when it does not fail.
Result: TypeAlias = "Held | tuple[int, int] | None"
Outcome: TypeAlias = "Result | Failure | EllipsisType"


class Mailbox:
    """What an event loop waits for."""

    __slots__ = ("__weakref__", "inbox", "next_number", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.inbox = Inbox()
        self.waiting: dict[int, asyncio.Future[Outcome]] = {}
        self.next_number = itertools.count().__next__
        loop.add_reader(self.inbox.fileno(), Doorbell(self))

    def deliver(self) -> None:
        for number, outcome in self.inbox.take():
            future = self.waiting.pop(number, None)
            if future is None or future.done():
                # Nobody waits any more. A ticket in the outcome is dropped here, and given back.
                continue
            if outcome is ...:
                future.cancel()
            else:
                future.set_result(outcome)


class Doorbell:
    """What the loop calls, and drops when it is closed: then nobody opens the mailbox again."""

    __slots__ = ("mailbox",)

    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox

    def __call__(self) -> None:
        self.mailbox.deliver()

    def __del__(self) -> None:
        self.mailbox.inbox.close()


class Mailboxes(threading.local):
    """Those of the loops that have run on this thread."""

    def __init__(self) -> None:
        self.of_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = (
            weakref.WeakKeyDictionary()
        )


_mailboxes = Mailboxes()


def mailbox_of(loop: asyncio.AbstractEventLoop) -> Mailbox:
    """The mailbox of the running loop."""
    mailbox = _mailboxes.of_loop.get(loop)
    if mailbox is None:
        mailbox = _mailboxes.of_loop[loop] = Mailbox(loop)
    return mailbox


def forget_mailboxes() -> None:
    """In a fork: those of the parent are not ours, even if a loop is used on."""
    _mailboxes.of_loop.clear()


def begin(
    start: Callable[Concatenate[Inbox | None, int, P], Call], /, *args: P.args, **kwargs: P.kwargs
) -> tuple[Call, asyncio.Future[Outcome]]:
    """Starts a request, whose outcome comes to a future of the running loop."""
    loop = asyncio.get_running_loop()
    mailbox = mailbox_of(loop)
    number = mailbox.next_number()
    call = start(mailbox.inbox, number, *args, **kwargs)
    future = mailbox.waiting[number] = loop.create_future()
    return call, future


async def ask(
    start: Callable[Concatenate[Inbox | None, int, P], Call], /, *args: P.args, **kwargs: P.kwargs
) -> Result:
    """Does a request in the running loop. Cancelled, it is abandoned."""
    call, future = begin(start, *args, **kwargs)
    try:
        outcome = await future
    except BaseException:
        # A cancel, or the end of the coroutine itself.
        abandon(call, future)
        raise
    return checked(outcome)


def abandon(call: Call, future: asyncio.Future[Outcome]) -> None:
    """Ends a request that nobody waits for any more, whether or not its outcome has come."""
    call.abandon()
    if future.done() and not future.cancelled():
        outcome = future.result()
        if isinstance(outcome, Held):
            # Collecting it would do the same, but a traceback may hold it for long.
            outcome.let_go()


def ask_sync(
    start: Callable[Concatenate[Inbox | None, int, P], Call], /, *args: P.args, **kwargs: P.kwargs
) -> Result:
    """Does a request and blocks the thread until it is over."""
    return wait(start(None, 0, *args, **kwargs))


def wait(call: Call) -> Result:
    """Blocks the thread until a request is over."""
    # Signals go to the main thread; there the handlers must get to run.
    sees_signals = threading.get_ident() == threading.main_thread().ident
    return checked(call.wait(sees_signals))


def checked(outcome: Outcome) -> Result:
    """The result; a failure is raised."""
    if isinstance(outcome, Failure):
        raise error_of(outcome)
    if isinstance(outcome, EllipsisType):
        raise concurrent.futures.CancelledError
    return outcome
