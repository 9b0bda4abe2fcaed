"""The error of an acquire that was sent and not answered, and what clears it up."""

from __future__ import annotations

from ._calls import ask, ask_sync
from ._errors import CLASSES, TicketError, TicketInvalidInput
from ._ticket import Ticket
from ._ticketing import Call, Failure, Held, Inbox
from ._types import Seconds


class TicketIndeterminate(TicketError):
    """The acquire was sent and its outcome is unknown: do not enter the critical section.

    The lock may be held in your name. Let its lease end it, or ask:

    >>> import ticketing
    >>> async def clear_up(error: ticketing.TicketIndeterminate) -> None:
    ...     ticket = await error.verify(timeout=10)
    ...     if ticket is not None:
    ...         print("held after all, with the token", ticket.token)
    ...         await ticket.release()
    """

    kind = "indeterminate"
    # Lost when it is pickled: nobody else can ask.
    _failure: Failure | None = None

    async def verify(self, timeout: Seconds = 5) -> Ticket | None:
        """Asks the leading server what became of the acquire.

        Returns the ticket if the lock is held after all; it ends by the lease of
        the original acquire. Returns `None` if it was not acquired, and never
        will be.

        Raises `TicketIndeterminate` again while nobody could say, after which
        this can be called again; otherwise `TicketInsufficientLease`,
        `TicketUnsupported`, `TicketClientCapacity`, `TicketClosed`, and
        `TicketInvalidInput` if its ticket was handed out before.
        """
        return _verdict(await ask(self._start, timeout))

    def verify_sync(self, timeout: Seconds = 5) -> Ticket | None:
        """Like `verify`, for threads."""
        return _verdict(ask_sync(self._start, timeout))

    def _start(self, inbox: Inbox | None, number: int, timeout: Seconds) -> Call:
        call = self._failure.verify(inbox, number, timeout) if self._failure else None
        if call is None:
            raise TicketInvalidInput(
                "this error can only be verified in the process in which it came up",
                key=self.key,
                owner=self.owner,
            )
        return call

    @classmethod
    def _of(cls, failure: Failure) -> TicketIndeterminate:
        error = cls(failure.message, key=failure.key, owner=failure.owner, token=failure.token)
        error._failure = failure
        return error


def _verdict(outcome: object) -> Ticket | None:
    return Ticket(outcome) if isinstance(outcome, Held) else None


CLASSES[TicketIndeterminate.__name__] = TicketIndeterminate
