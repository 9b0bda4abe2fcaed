"""The exceptions: one base, and one class for each kind of failure.

A class exists where a caller's next step differs. The names of the kinds are
the same in every language.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ._ticketing import Failure


class TicketError(Exception):
    """What every error of Ticketing is.

    Nothing was acquired, unless the class says that it cannot be known. Errors
    can be pickled, and so cross processes.

    >>> error = TicketTimeout("the wait ran out", key="seat:12", owner=7)
    >>> error.kind, error.key, error.owner, error.token
    ('timeout', 'seat:12', 7, None)
    """

    #: The name of the kind of failure, the same in every language.
    kind: ClassVar[str]
    #: The lock that was asked for, where it is a legal name.
    key: str | None
    #: The owner number of the acquire, as the server knows it.
    owner: int | None
    #: The fencing token that a release named.
    token: int | None

    def __init__(
        self,
        message: str,
        *,
        key: str | None = None,
        owner: int | None = None,
        token: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.key = key
        self.owner = owner
        self.token = token

    def __str__(self) -> str:
        return self.message

    @classmethod
    def _of(cls, failure: Failure) -> TicketError:
        return cls(failure.message, key=failure.key, owner=failure.owner, token=failure.token)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.key, self.owner, self.token)


def _rebuild(
    cls: type[TicketError], message: str, key: str | None, owner: int | None, token: int | None
) -> TicketError:
    return cls(message, key=key, owner=owner, token=token)


class TicketTimeout(TicketError, TimeoutError):
    """The wait ran out in the queue. The lock was not acquired."""

    kind = "timeout"


class TicketBusy(TicketError):
    """The server said no: it is at a limit, or does not lead now. Not acquired."""

    kind = "busy"


class TicketNotConnected(TicketError):
    """Nothing was sent: there was no usable connection in time. Not acquired."""

    kind = "not_connected"


class TicketInsufficientLease(TicketError):
    """The lock came with too little of its lease left, and was released."""

    kind = "insufficient_lease"


class TicketNotHeld(TicketError):
    """Not held under that token: the lease ran out, or it was released before.

    Somebody else may have had the lock since.
    """

    kind = "not_held"


class TicketReleaseUnconfirmed(TicketError):
    """The release was not confirmed in time. The lease will end the lock."""

    kind = "release_unconfirmed"


class TicketAuthError(TicketError):
    """The server refused the token of the client."""

    kind = "auth"


class TicketTlsError(TicketError):
    """TLS could not be set up, or the certificate is not trusted."""

    kind = "tls"


class TicketWrongDomain(TicketError):
    """The server belongs to another fencing domain than the expected one."""

    kind = "wrong_domain"


class TicketInvalidInput(TicketError, ValueError):
    """An argument breaks a rule; nothing was sent."""

    kind = "invalid_input"


class TicketClientCapacity(TicketError):
    """Too many requests are pending in this client; nothing was sent."""

    kind = "client_capacity"


class TicketClosed(TicketError):
    """The broker is closed."""

    kind = "closed"


class TicketForked(TicketClosed, RuntimeError):
    """The broker, or what came of it, belongs to the parent of this process.

    A fork inherits no connections. Make a new `TicketBroker` in each child.
    """


class TicketUnsupported(TicketError):
    """The server does not speak the protocol extension that this needs."""

    kind = "unsupported"


#: By the names that the extension module knows them by.
CLASSES: dict[str, type[TicketError]] = {
    cls.__name__: cls
    for cls in (
        TicketTimeout,
        TicketBusy,
        TicketNotConnected,
        TicketInsufficientLease,
        TicketNotHeld,
        TicketReleaseUnconfirmed,
        TicketAuthError,
        TicketTlsError,
        TicketWrongDomain,
        TicketInvalidInput,
        TicketClientCapacity,
        TicketClosed,
        TicketForked,
        TicketUnsupported,
    )
}


def error_of(failure: Failure) -> TicketError:
    """The exception that tells of a failure."""
    return CLASSES[failure.class_name]._of(failure)
