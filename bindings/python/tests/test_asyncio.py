"""Event loops: cancelled tasks, loops that end, several of them."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable

import pytest

import ticketing
from support import PATIENCE, Server, eventually

NewLoop = Callable[[], asyncio.AbstractEventLoop]


async def is_free(broker: ticketing.TicketBroker, key: str) -> bool:
    try:
        await (await broker.try_acquire(key)).release()
    except ticketing.TicketTimeout:
        return False
    return True


async def becomes_free(broker: ticketing.TicketBroker, key: str) -> None:
    end = time.monotonic() + PATIENCE
    while not await is_free(broker, key):
        assert time.monotonic() < end, f"{key} stayed held"
        await asyncio.sleep(0.01)


async def test_a_cancelled_task_leaves_the_queue(
    broker: ticketing.TicketBroker, server: Server, key: str
) -> None:
    held = await broker.acquire(key, lease=250)
    told: list[BaseException] = []

    async def wait() -> None:
        try:
            await broker.acquire(key, wait=200)
        except BaseException as error:
            told.append(error)
            raise

    tasks = [asyncio.create_task(wait()) for _ in range(50)]
    while server.waiting() < 50:
        await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(error, asyncio.CancelledError) for error in ended)
    assert len(told) == 50
    while server.waiting() > 0:
        await asyncio.sleep(0.01)
    await held.release()
    assert await is_free(broker, key)


async def test_a_time_out_at_any_moment_loses_no_lock(broker: ticketing.TicketBroker, key: str) -> None:
    """The grant comes before, after, or just as the caller gives up."""
    won = 0
    for step in range(120):
        try:
            ticket = await asyncio.wait_for(broker.acquire(key, lease=250), step * 0.000_1)
        except (asyncio.TimeoutError, ticketing.TicketTimeout):
            pass
        else:
            won += 1
            await ticket.release()
    await becomes_free(broker, key)
    assert won > 0


async def test_a_cancel_beside_the_grant_loses_no_lock(broker: ticketing.TicketBroker, key: str) -> None:
    loop = asyncio.get_running_loop()
    for step in range(120):
        task = loop.create_task(broker.acquire(key, lease=250))
        loop.call_later(step * 0.000_05, task.cancel)
        try:
            await (await task).release()
        except asyncio.CancelledError:
            pass
    await becomes_free(broker, key)


async def test_a_grant_whose_task_was_cancelled_is_given_back(
    broker: ticketing.TicketBroker, key: str
) -> None:
    """Its future has the ticket already, and the task is cancelled before it takes the next step."""
    for _ in range(50):
        task = asyncio.create_task(broker.acquire(key, lease=250))
        while not task.done() and (not (waiting := getattr(task, "_fut_waiter", None)) or not waiting.done()):
            await asyncio.sleep(0)
        if not task.done():
            break
        # The task was quicker.
        await task.result().release()
    else:
        pytest.fail("this loop leaves no moment between the grant and the task")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await becomes_free(broker, key)


async def test_a_cancelled_release_goes_on(broker: ticketing.TicketBroker, key: str) -> None:
    ticket = await broker.acquire(key, lease=250)
    task = asyncio.create_task(ticket.release())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await becomes_free(broker, key)


async def test_one_cancel_disturbs_nobody_else(broker: ticketing.TicketBroker, key: str) -> None:
    tasks = [asyncio.create_task(broker.acquire(f"{key}{number}")) for number in range(100)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    for ticket in await asyncio.gather(*tasks[1::2]):
        await ticket.release()


def test_loops_one_after_the_other(broker: ticketing.TicketBroker, key: str, new_loop: NewLoop) -> None:
    async def cycle() -> int:
        async with await broker.acquire(key) as ticket:
            return ticket.token

    tokens = []
    for _ in range(20):
        loop = new_loop()
        tokens.append(loop.run_until_complete(cycle()))
        loop.close()
    assert sorted(tokens) == tokens
    # One loop, left and entered again, beside another one.
    loops = [new_loop(), new_loop()]
    for _ in range(5):
        for loop in loops:
            loop.run_until_complete(cycle())
    for loop in loops:
        loop.close()


def test_a_ticket_moves_between_loops_and_threads(
    broker: ticketing.TicketBroker, key: str, new_loop: NewLoop
) -> None:
    first, second = new_loop(), new_loop()
    ticket = first.run_until_complete(broker.acquire(key))
    first.close()
    second.run_until_complete(ticket.release())
    ticket = second.run_until_complete(broker.acquire(key))
    second.close()
    thread = threading.Thread(target=ticket.release_sync)
    thread.start()
    thread.join()
    broker.try_acquire_sync(key).release_sync()


def test_loops_in_several_threads(broker: ticketing.TicketBroker, key: str, new_loop: NewLoop) -> None:
    counter = 0
    errors: list[BaseException] = []

    async def add() -> None:
        nonlocal counter
        for _ in range(20):
            async with await broker.acquire(key, wait=200):
                seen = counter
                await asyncio.sleep(0)
                counter = seen + 1

    def run() -> None:
        loop = new_loop()
        try:
            loop.run_until_complete(asyncio.wait_for(add(), PATIENCE))
        except BaseException as error:
            errors.append(error)
        finally:
            loop.close()

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert counter == 160


def test_a_grant_for_a_closed_loop_is_given_back(
    broker: ticketing.TicketBroker, key: str, new_loop: NewLoop
) -> None:
    """The loop is closed with the acquire in its queue, and the task is still there."""
    held = broker.acquire_sync(key)
    loop = new_loop()
    acquire = broker.acquire(key, wait=200, lease=250)
    task = loop.create_task(acquire)
    loop.run_until_complete(asyncio.sleep(0.01))
    eventually(lambda: acquire.place_sync().place == 1)
    loop.close()
    held.release_sync()

    def is_free() -> bool:
        try:
            broker.try_acquire_sync(key).release_sync()
        except ticketing.TicketTimeout:
            return False
        return True

    eventually(is_free, "the grant was given back")
    assert not task.done()
    acquire.close()
    del task, acquire
    gc.collect()


def test_a_task_that_is_destroyed_leaves_the_queue(
    broker: ticketing.TicketBroker, server: Server, key: str, new_loop: NewLoop
) -> None:
    held = broker.acquire_sync(key)
    loop = new_loop()
    steps = broker.acquire(key, wait=200).__await__()

    async def first_step() -> None:
        next(steps)

    loop.run_until_complete(first_step())
    eventually(lambda: server.waiting() == 1)
    del steps
    gc.collect()
    eventually(lambda: server.waiting() == 0, "the acquire left the queue")
    loop.close()
    held.release_sync()


def test_without_a_loop_it_says_so(broker: ticketing.TicketBroker, key: str) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        broker.acquire(key).send(None)


async def test_the_loop_goes_on_while_it_waits(broker: ticketing.TicketBroker, key: str) -> None:
    held = await broker.acquire(key)
    waiting = asyncio.create_task(broker.acquire(key, wait=200))
    start = time.monotonic()
    for _ in range(1000):
        await asyncio.sleep(0)
    assert time.monotonic() - start < PATIENCE
    assert not waiting.done()
    await held.release()
    await (await waiting).release()


async def test_ten_thousand_at_once(broker: ticketing.TicketBroker, key: str) -> None:
    tickets = await asyncio.gather(*(broker.acquire(f"{key}:{number}") for number in range(10_000)))
    await asyncio.gather(*(ticket.release() for ticket in tickets))


async def test_the_bound_of_pending_requests(server: Server, key: str) -> None:
    async with ticketing.TicketBroker(server.address, max_pending=3) as broker:
        async with await broker.acquire(key):
            waiting = [asyncio.create_task(broker.acquire(key, wait=200)) for _ in range(3)]
            await asyncio.sleep(0)
            with pytest.raises(ticketing.TicketClientCapacity):
                await broker.acquire(key)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
