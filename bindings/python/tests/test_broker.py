"""What users do, on a real server, awaited and blocking."""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime
import pickle
import threading
import time

import pytest

import ticketing
from support import Server, eventually
from ticketing import _ticketing


async def test_a_ticket_knows_what_it_is(broker: ticketing.TicketBroker, server: Server, key: str) -> None:
    before = server.held()
    ticket = await broker.acquire(key, wait=5, lease=datetime.timedelta(seconds=9.5))
    assert (ticket.key, ticket.domain) == (key, "0" * 32)
    assert ticket.token > 0 and ticket.owner >= 0
    assert 5 < ticket.remaining() < 10
    assert server.held() == before + 1
    await ticket.release()
    assert (server.held(), ticket.remaining()) == (before, 0)
    with pytest.raises(ticketing.TicketNotHeld, match="released or detached before") as told:
        await ticket.release()
    assert (told.value.key, told.value.token) == (key, ticket.token)


def test_the_same_without_a_loop(broker: ticketing.TicketBroker, key: str) -> None:
    first = broker.acquire_sync(key, 5, 5)
    with pytest.raises(ticketing.TicketTimeout) as told:
        broker.try_acquire_sync(key)
    assert told.value.key == key and told.value.owner is not None
    assert isinstance(told.value, TimeoutError)
    first.release_sync()
    second = broker.try_acquire_sync(key)
    assert second.token > first.token
    broker.release_sync(key, second.token)
    with pytest.raises(ticketing.TicketNotHeld):
        second.release_sync()


async def test_context_managers_release(broker: ticketing.TicketBroker, key: str) -> None:
    async with await broker.acquire(key) as ticket:
        assert ticket.remaining() > 0
    async with broker.lock(key, lease=5) as second:
        assert second.token > ticket.token
        await second.release()
    with broker.lock(key) as third, pytest.raises(ticketing.TicketTimeout):
        await broker.try_acquire(key)
    assert third.remaining() == 0


async def test_what_a_block_raises_goes_before_a_failed_release(
    broker: ticketing.TicketBroker, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(KeyError):
        async with broker.lock(key) as ticket:
            await broker.release(key, ticket.token)
            raise KeyError("mine")
    assert "KeyError was on its way" in caplog.text
    with pytest.raises(ticketing.TicketNotHeld):
        with broker.lock(key) as ticket:
            await broker.release(key, ticket.token)


async def test_a_decorated_function_gets_a_ticket_of_each_call(
    broker: ticketing.TicketBroker, key: str
) -> None:
    @broker.lock(key, wait=20)
    async def add(ticket: ticketing.Ticket, number: int) -> tuple[int, int]:
        """Adds."""
        await asyncio.sleep(0)
        return ticket.token, number + 1

    @broker.lock(key + ":sync")
    def double(ticket: ticketing.Ticket, number: int) -> int:
        assert ticket.remaining() > 0
        return 2 * number

    results = await asyncio.gather(*(add(number) for number in range(20)))
    assert len({token for token, _ in results}) == 20
    assert [number for _, number in results] == list(range(1, 21))
    assert (double(4), add.__doc__) == (8, "Adds.")
    with pytest.raises(TypeError, match="generator"):

        @broker.lock(key)
        def never(ticket: ticketing.Ticket) -> object:
            yield ticket


async def test_a_detached_ticket_is_plain_data(broker: ticketing.TicketBroker, key: str) -> None:
    ticket = await broker.acquire(key, lease=100)
    grant = pickle.loads(pickle.dumps(ticket.detach()))
    assert (grant.key, grant.token, grant.owner) == (key, ticket.token, ticket.owner)
    assert 50 < grant.remaining <= 100
    del ticket
    with pytest.raises(ticketing.TicketTimeout):
        await broker.try_acquire(key)
    await broker.release(grant.key, grant.token)


async def test_first_come_first_served_and_places(broker: ticketing.TicketBroker, key: str) -> None:
    held = await broker.acquire(key)
    acquires = [broker.acquire(key, wait=60) for _ in range(5)]
    order: list[int] = []

    async def queue(number: int) -> None:
        async with await acquires[number]:
            order.append(number)

    tasks = []
    for number, acquire in enumerate(acquires):
        tasks.append(asyncio.create_task(queue(number)))
        await asyncio.sleep(0)
        while (await acquire.place()).place != number + 1:
            await asyncio.sleep(0.01)
    places = [await acquire.place() for acquire in acquires]
    assert places == [(number, 5) for number in range(1, 6)]
    await held.release()
    await asyncio.gather(*tasks)
    assert order == list(range(5))
    assert (await acquires[0].place()).place == 0


def test_a_blocked_acquire_can_be_watched_and_cancelled(broker: ticketing.TicketBroker, key: str) -> None:
    held = broker.acquire_sync(key)
    acquire = broker.acquire(key, wait=200)
    with pytest.raises(ticketing.TicketInvalidInput, match="has not begun"):
        acquire.place_sync()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(acquire.wait_sync)
        eventually(lambda: acquire._call is not None and acquire.place_sync().place == 1)
        acquire.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            waiting.result(60)
    held.release_sync()
    broker.try_acquire_sync(key).release_sync()
    early = broker.acquire(key)
    early.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        early.wait_sync()
    broker.acquire_sync(key).release_sync()


async def test_an_acquire_is_used_once(broker: ticketing.TicketBroker, key: str) -> None:
    acquire = broker.acquire(key)
    async with await acquire:
        with pytest.raises(RuntimeError, match="has begun before"):
            await acquire
    with pytest.warns(RuntimeWarning, match="never awaited"):
        broker.acquire(key)
    # Not so a task that was cancelled before it ran.
    task = asyncio.create_task(broker.acquire(key))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_lease_ends(broker: ticketing.TicketBroker, key: str) -> None:
    start = time.monotonic()
    ticket = await broker.acquire(key, lease=1)
    second = await broker.acquire(key, wait=60)
    assert time.monotonic() - start >= 1
    assert ticket.remaining() == 0
    assert second.token > ticket.token
    with pytest.raises(ticketing.TicketNotHeld):
        await ticket.release()
    await second.release()


async def test_connections_and_the_end(server: Server, key: str) -> None:
    broker = ticketing.connect(server.address)
    await broker.wait_ready(60)
    states = broker.connections()
    assert [state.address for state in states] == [server.address] * 2
    assert any(state.open and state.extension and state.last_error is None for state in states)
    assert repr(broker) == f"<TicketBroker {server.address}>"
    held = await broker.acquire(key, lease=250)
    waiting = asyncio.create_task(broker.acquire(key, wait=200))
    await asyncio.sleep(0)
    await broker.close()
    await broker.close()
    broker.close_sync()
    with pytest.raises(ticketing.TicketClosed):
        await waiting
    with pytest.raises(ticketing.TicketClosed):
        await broker.acquire(key)
    with pytest.raises(ticketing.TicketClosed):
        broker.acquire_sync(key)
    with pytest.raises(ticketing.TicketClosed):
        await broker.wait_ready()
    with pytest.raises(ticketing.TicketError):
        await held.release()
    assert not any(thread.name == "ticketing" for thread in threading.enumerate())
    with ticketing.TicketBroker(server.address) as other:
        await other.release(key, held.token)


async def test_a_broker_that_reaches_nobody_says_so() -> None:
    async with ticketing.connect("127.0.0.1:1", "127.0.0.1:2") as broker:
        with pytest.raises(ticketing.TicketNotConnected, match="refused"):
            await broker.wait_ready(0.2)
        with pytest.raises(ticketing.TicketNotConnected) as told:
            await broker.try_acquire("k")
        assert (told.value.kind, told.value.key) == ("not_connected", "k")


def test_defaults_are_those_of_the_core() -> None:
    assert (_ticketing.DEFAULT_WAIT, _ticketing.DEFAULT_LEASE) == (30, 60)
