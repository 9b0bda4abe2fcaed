"""Against three nodes, one of which dies while it leads."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

import ticketing
from support import PATIENCE, Cluster, eventually


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.stop()


async def test_a_lock_excludes_while_its_leader_is_killed(cluster: Cluster, key: str) -> None:
    """A counter that loses additions as soon as two are inside, and tokens that only grow."""
    async with ticketing.TicketBroker(cluster.addresses) as broker:
        await broker.wait_ready(PATIENCE)
        counter = entered = 0
        highest = 0
        end = time.monotonic() + 6

        async def add() -> None:
            nonlocal counter, entered, highest
            while time.monotonic() < end:
                try:
                    ticket = await broker.acquire(key, wait=30, lease=10, min_remaining=5)
                except ticketing.TicketIndeterminate as error:
                    try:
                        verified = await error.verify(20)
                    except ticketing.TicketIndeterminate:
                        continue
                    if verified is None:
                        continue
                    ticket = verified
                except ticketing.TicketError as error:
                    assert error.kind in ("busy", "not_connected", "timeout", "insufficient_lease"), error
                    await asyncio.sleep(0.05)
                    continue
                assert ticket.token > highest
                highest = ticket.token
                seen = counter
                await asyncio.sleep(0)
                counter = seen + 1
                entered += 1
                try:
                    await ticket.release()
                except (ticketing.TicketReleaseUnconfirmed, ticketing.TicketNotHeld):
                    pass

        tasks = [asyncio.create_task(add()) for _ in range(16)]
        started = time.monotonic()
        while entered < 32:
            assert time.monotonic() - started < PATIENCE, "no lock in the beginning"
            await asyncio.sleep(0.01)
        before = entered
        leader = next(state.address for state in broker.connections() if state.leads)
        os.kill(cluster.pids[leader], signal.SIGKILL)
        killed = time.monotonic()
        while entered < before + 32:
            assert time.monotonic() - killed < PATIENCE, "no lock after the leader died"
            await asyncio.sleep(0.05)
        await asyncio.gather(*tasks)
        assert counter == entered > 0
        cluster.find(rf"node \S+ is process \d+")


def test_threads_and_a_lease_that_ends(cluster: Cluster, key: str) -> None:
    with ticketing.TicketBroker(cluster.addresses) as broker:
        broker.wait_ready_sync(PATIENCE)
        counter = [0]

        def add() -> None:
            for _ in range(10):
                with broker.lock(key, wait=200):
                    seen = counter[0]
                    time.sleep(0)
                    counter[0] = seen + 1

        threads = [threading.Thread(target=add) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE)
        assert counter == [160]
        held = broker.acquire_sync(key, lease=1).detach()
        start = time.monotonic()
        broker.acquire_sync(key, wait=60).release_sync()
        assert time.monotonic() - start > held.remaining - 0.1
        acquire = broker.acquire(key, wait=200)
        with broker.lock(key, wait=60):
            waiting = threading.Thread(target=lambda: acquire.wait_sync().release_sync())
            waiting.start()
            eventually(lambda: acquire._call is not None and acquire.place_sync() == (1, 1))
        waiting.join(PATIENCE)
        assert not waiting.is_alive()
