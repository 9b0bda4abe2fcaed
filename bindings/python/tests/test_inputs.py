"""What is refused, and how: before a byte is sent, never clamped."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import ticketing

BAD_KEYS = ["", " ", "two words", "line\nfeed", "\r", "k" * 129, "€" * 43, "\udcff", "\ud800"]
BAD_LEASES = [0, 0.0, 250.001, 251, 256, 2**32 + 1, 2**64, 10**40, -1, -0.001, float("nan"), float("inf"), 1e300]
BAD_WAITS = [255.001, 256, 511, 2**32, 2**63, 10**400, -1, -0.001, float("nan"), float("-inf"), 1e300]
BAD_DELTAS = [datetime.timedelta(seconds=-1), datetime.timedelta.max, datetime.timedelta.min]


class Silent:
    """A server that lets clients in, and notes what they send besides keep-alives."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.received = b""
        self.tokens: Iterator[int] = iter(())
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as reader, contextlib.suppress(OSError):
            client.sendall(b"TICKETING/1 nonce\n")
            reader.readline()
            client.sendall(b"L\n")
            while op := reader.read(1):
                if op == b"\n":
                    continue
                # A wait, a lease and an owner, or a token; then the key.
                frame = op + reader.read(10 if op == b"A" else 8) + reader.readline().rstrip(b"\n")
                self.received += frame
                self.answer(client, frame)

    def answer(self, client: socket.socket, frame: bytes) -> None:
        token = next(self.tokens, None)
        if frame[:1] == b"A" and token is not None:
            owner, key = frame[3:11], frame[11:]
            client.sendall(b"A" + struct.pack(">Q", token) + owner + key + b"\n")
        elif frame[:1] == b"R":
            client.sendall(frame + b"\n")

    def close(self) -> None:
        self.listener.close()


@pytest.fixture
def silent() -> Iterator[Silent]:
    silent = Silent()
    yield silent
    silent.close()


@pytest.fixture
def quiet(silent: Silent) -> Iterator[ticketing.TicketBroker]:
    """A broker that is connected."""
    with ticketing.TicketBroker(silent.address) as broker:
        broker.wait_ready_sync(60)
        yield broker


async def test_bad_input_is_refused_before_a_byte_is_sent(silent: Silent, quiet: ticketing.TicketBroker) -> None:
    bad: list[dict[str, Any]] = [{"key": key} for key in BAD_KEYS]
    bad += [{"lease": lease} for lease in BAD_LEASES + BAD_DELTAS]
    bad += [{"wait": wait} for wait in BAD_WAITS + BAD_DELTAS]
    bad += [{"min_remaining": seconds} for seconds in (30.001, -1, float("nan"), 2**70)]
    for arguments in bad:
        arguments = {"key": "k", "wait": 30, "lease": 30, **arguments}
        with pytest.raises(ticketing.TicketInvalidInput) as told:
            await quiet.acquire(**arguments)
        assert isinstance(told.value, ValueError), arguments
        with pytest.raises(ticketing.TicketInvalidInput):
            quiet.acquire_sync(**arguments)
    for key in BAD_KEYS:
        with pytest.raises(ticketing.TicketInvalidInput):
            await quiet.release(key, 7)
        with pytest.raises(ticketing.TicketInvalidInput):
            quiet.try_acquire_sync(key)
    for token in (-1, 2**64, 10**40):
        with pytest.raises(ticketing.TicketInvalidInput):
            await quiet.release("k", token)
    for timeout in (-1, float("nan"), float("inf")):
        with pytest.raises(ticketing.TicketInvalidInput):
            quiet.wait_ready_sync(timeout)
    assert silent.received == b""


async def test_wrong_types_are_type_errors(silent: Silent, quiet: ticketing.TicketBroker) -> None:
    anything: Any = quiet
    for value in (None, "1", b"1", [], True, 1j, object()):
        with pytest.raises(TypeError, match="lease must be seconds"):
            await anything.acquire("k", lease=value)
        with pytest.raises(TypeError):
            anything.acquire_sync("k", wait=value)
    for key in (None, b"k", 7, ["k"]):
        with pytest.raises(TypeError):
            await anything.acquire(key)
        with pytest.raises(TypeError):
            anything.release_sync(key, 7)
    for token in (None, "7", 7.0):
        with pytest.raises(TypeError):
            await anything.release("k", token)
    assert silent.received == b""


def test_settings_that_make_no_sense() -> None:
    broker: Any = ticketing.TicketBroker
    for addresses in ([], [""], ["127.0.0.1:65536"], "127.0.0.1:port", ":5225", "[::1", "two words:5225", ["\udcff:1"]):
        with pytest.raises(ticketing.TicketInvalidInput):
            broker(addresses)
    for max_pending in (0, -1, 2**70):
        with pytest.raises(ticketing.TicketInvalidInput):
            broker("127.0.0.1:1", max_pending=max_pending)
    for domain in ("", "xyz", "0" * 31, "\ud800"):
        with pytest.raises(ticketing.TicketInvalidInput):
            broker("127.0.0.1:1", expect_domain=domain)
    with pytest.raises(ticketing.TicketTlsError, match="cannot be read"):
        broker("127.0.0.1:1", tls=ticketing.TlsOptions(ca_file="/nowhere/ca.pem"))
    wrong: list[Any] = [None, 7, [7], [b"127.0.0.1:1"]]
    for addresses in wrong:
        with pytest.raises(TypeError):
            broker(addresses)
    for arguments in ({"token": 7}, {"max_pending": "1"}, {"max_pending": 1.0}, {"expect_domain": 7}):
        with pytest.raises(TypeError):
            broker("127.0.0.1:1", **arguments)


def test_secrets_are_not_shown(silent: Silent) -> None:
    with ticketing.TicketBroker(silent.address, token="a very secret secret") as broker:
        assert "secret" not in repr(broker) + repr(vars(broker)) + str(broker.connections())


async def test_numbers_are_exact(silent: Silent, quiet: ticketing.TicketBroker) -> None:
    numbers = [1, 2**31, 2**32 - 1, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]
    for token in numbers:
        silent.tokens = iter([token])
        ticket = await quiet.acquire("k")
        assert ticket.token == token
        silent.received = b""
        await ticket.release()
        assert silent.received == b"R" + struct.pack(">Q", token) + b"k"
    for token in [0, *numbers]:
        silent.received = b""
        await asyncio.to_thread(quiet.release_sync, "k", token)
        assert silent.received == b"R" + struct.pack(">Q", token) + b"k"
