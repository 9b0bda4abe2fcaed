"""Tickets and brokers that the collector finds."""

from __future__ import annotations

import gc
import threading
import warnings
from typing import Any

import pytest

import ticketing
from support import Server, eventually, python, said


def is_free(broker: ticketing.TicketBroker, key: str) -> bool:
    try:
        broker.try_acquire_sync(key).release_sync()
    except ticketing.TicketTimeout:
        return False
    return True


def test_a_dropped_ticket_is_given_back_with_a_warning(broker: ticketing.TicketBroker, key: str) -> None:
    ticket = broker.acquire_sync(key, lease=250)
    with pytest.warns(ResourceWarning, match="never released"):
        del ticket
    eventually(lambda: is_free(broker, key))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_tickets_in_cycles_and_on_other_threads(broker: ticketing.TicketBroker, server: Server, key: str) -> None:
    before = server.held()
    for number in range(200):
        cycle: list[Any] = [broker.acquire_sync(f"{key}:{number}", lease=250)]
        cycle.append(cycle)
    del cycle
    collectors = [threading.Thread(target=gc.collect) for _ in range(4)]
    for thread in collectors:
        thread.start()
    for thread in collectors:
        thread.join()
    eventually(lambda: server.held() == before)
    tickets = [broker.acquire_sync(f"{key}:{number}", lease=250) for number in range(200)]
    threads = [threading.Thread(target=tickets.clear) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: server.held() == before)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_finalizer_may_use_the_broker(broker: ticketing.TicketBroker, key: str) -> None:
    class Owner:
        def __init__(self) -> None:
            self.ticket = broker.acquire_sync(key, lease=250)
            self.myself = self

        def __del__(self) -> None:
            self.ticket.release_sync()
            # Once more, which is refused.
            with pytest.raises(ticketing.TicketNotHeld):
                self.ticket.release_sync()

    Owner()
    gc.collect()
    assert is_free(broker, key)


def test_a_released_or_detached_ticket_warns_of_nothing(broker: ticketing.TicketBroker, key: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with broker.lock(key):
            pass
        grant = broker.acquire_sync(key).detach()
        broker.release_sync(grant.key, grant.token)
        gc.collect()


def test_an_unclosed_broker_warns_and_ends(server: Server) -> None:
    broker = ticketing.connect(server.address)
    broker.wait_ready_sync()
    with pytest.warns(ResourceWarning, match="never closed"):
        del broker


@pytest.mark.parametrize("where", ["held = ticket", "sys.keep = ticket", "atexit.register(lambda: ticket)", "loop = [ticket]; loop.append(loop)"])
def test_tickets_that_are_left_at_the_end(server: Server, where: str) -> None:
    script = f"""
        import atexit, sys, ticketing
        broker = ticketing.connect(sys.argv[1])
        ticket = broker.acquire_sync("shutdown", wait=250, lease=1)
        {where}
        print("the end", flush=True)
    """
    assert said(python(script, server.address)) == "the end\n"


def test_a_ticket_dropped_just_before_the_end_is_given_back(
    server: Server, broker: ticketing.TicketBroker
) -> None:
    script = """
        import sys, ticketing
        broker = ticketing.connect(sys.argv[1])
        ticket = broker.acquire_sync("dropped-at-end", lease=250)
        del ticket
    """
    for _ in range(5):
        said(python(script, server.address))
        eventually(lambda: is_free(broker, "dropped-at-end"))
