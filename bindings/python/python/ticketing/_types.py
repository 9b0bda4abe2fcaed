"""Plain data."""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass, field
from typing import NamedTuple, Union

#: A duration: seconds, fractions of them included, or a `timedelta`.
Seconds = Union[int, float, datetime.timedelta]


class Place(NamedTuple):
    """Where an acquire stands in the queue of its key."""

    #: 1 is the head of the queue; 0 means that the acquire is not in it: not sent yet, or over.
    place: int
    #: How many wait for the key.
    waiters: int


@dataclass(frozen=True)
class Grant:
    """A held lock as plain data; nothing releases it by itself.

    It can be pickled, and so handed to another process, which releases the lock
    by `broker.release(grant.key, grant.token)`.
    """

    #: The lock's name.
    key: str
    #: The fencing token.
    token: int
    #: The owner number of the acquire.
    owner: int
    #: The fencing domain, 32 hexadecimal digits, where the server named one.
    domain: str | None
    #: Seconds of the lease that were surely left when the ticket was detached.
    remaining: float


@dataclass(frozen=True)
class ConnectionStatus:
    """How one connection of a broker stands."""

    #: The configured address.
    address: str
    #: Whether a session is open.
    open: bool
    #: The server's fencing domain, where it named one.
    domain: str | None
    #: The server's node id, where it named one.
    node: int | None
    #: Whether that node leads; `None`: nothing is known.
    leads: bool | None
    #: Whether protocol extension 1 is spoken.
    extension: bool
    #: Why the last attempt failed, or the last session ended; `None` while open.
    last_error: str | None


@dataclass(frozen=True)
class TlsOptions:
    """How a server's certificate is verified.

    By default the operating system's own verifier and roots check the chain, and
    the host of each address is the name that the certificate must have.

    >>> private_ca = TlsOptions(ca_file="/etc/ticketing/ca.pem")
    """

    #: A PEM file with the certificates to trust, in place of the system's.
    ca_file: str | os.PathLike[str] | None = None
    #: The same as text or bytes; both may be given.
    ca_pem: str | bytes | None = field(default=None, repr=False)
    #: The name that the certificate must have, in place of each address's host.
    server_name: str | None = None
    #: Turns every check off: anyone on the path can then read and change all that is
    #: said, and hand out locks. For experiments only.
    dangerously_accept_any_certificate: bool = False
