"""Threads: many of them, signals, and the end of the interpreter."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

import ticketing
from support import PATIENCE, Server, eventually, python, said


def test_a_storm_of_threads(broker: ticketing.TicketBroker, key: str) -> None:
    counters = [0] * 16
    errors: list[BaseException] = []
    done = [0] * 256
    files = len(os.listdir("/proc/self/fd"))
    end = time.monotonic() + 3

    def storm(number: int) -> None:
        index = number % len(counters)
        try:
            while time.monotonic() < end or done[number] == 0:
                with broker.acquire_sync(f"{key}:{index}", wait=200):
                    seen = counters[index]
                    time.sleep(0)
                    counters[index] = seen + 1
                done[number] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=storm, args=(number,)) for number in range(256)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert not errors
    assert sum(counters) == sum(done)
    assert min(done) > 0
    assert len(os.listdir("/proc/self/fd")) <= files


def test_waiting_holds_no_lock_of_the_interpreter(broker: ticketing.TicketBroker, key: str) -> None:
    held = broker.acquire_sync(key)
    threads = [threading.Thread(target=lambda: broker.acquire_sync(key, wait=200).release_sync()) for _ in range(32)]
    for thread in threads:
        thread.start()
    # All of this would stand still.
    start = time.monotonic()
    for _ in range(200):
        time.sleep(0)
        sum(range(1000))
    assert time.monotonic() - start < 20
    held.release_sync()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


INTERRUPTED = """
    import os, signal, sys, threading, time, ticketing
    # Whoever runs the tests in the background has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    broker = ticketing.connect(sys.argv[1])
    held = broker.acquire_sync("ctrl-c", lease=250)
    acquire = broker.acquire("ctrl-c", wait=250)
    sent = [0.0]
    def interrupt():
        while acquire._call is None or acquire.place_sync().place != 1:
            time.sleep(0.01)
        sent[0] = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    try:
        acquire.wait_sync()
    except KeyboardInterrupt:
        print("interrupted after", time.monotonic() - sent[0])
    held.release_sync()
    # It has left the queue, so the lock is free at once.
    broker.acquire_sync("ctrl-c", wait=0, lease=1).release_sync()
    broker.close_sync()
"""


def test_ctrl_c_ends_a_blocked_acquire(server: Server) -> None:
    took = [float(said(python(INTERRUPTED, server.address)).split()[-1]) for _ in range(3)]
    assert min(took) < 0.1, took


def test_what_a_signal_handler_raises_ends_the_acquire(broker: ticketing.TicketBroker, key: str) -> None:
    class Alarm(Exception):
        pass

    def handler(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with broker.acquire_sync(key):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Alarm):
                broker.acquire_sync(key, wait=200)
    finally:
        signal.signal(signal.SIGALRM, before)
    broker.acquire_sync(key, wait=60).release_sync()


def test_a_signal_handler_may_use_the_broker(broker: ticketing.TicketBroker, key: str) -> None:
    held = broker.acquire_sync(key)
    before = signal.signal(signal.SIGALRM, lambda *_: held.release_sync())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        broker.acquire_sync(key, wait=200).release_sync()
    finally:
        signal.signal(signal.SIGALRM, before)


BLOCKED_AT_EXIT = """
    import sys, threading, time, ticketing
    broker = ticketing.connect(sys.argv[1])
    held = broker.acquire_sync("exit", lease=2).detach()
    ended = []
    def block(acquire):
        while True:
            try:
                acquire.wait_sync()
            except ticketing.TicketError as error:
                ended.append(error)
            acquire = broker.acquire("exit", wait=250)
    first = [broker.acquire("exit", wait=250) for _ in range(20)]
    for acquire in first:
        threading.Thread(target=block, args=[acquire], daemon=True).start()
    while any(acquire._call is None for acquire in first):
        time.sleep(0.01)
    print("the end", flush=True)
"""


def test_the_interpreter_ends_while_threads_wait(server: Server) -> None:
    for _ in range(5):
        start = time.monotonic()
        assert said(python(BLOCKED_AT_EXIT, server.address)) == "the end\n"
        assert time.monotonic() - start < 30


LOOP_AT_EXIT = """
    import asyncio, sys, threading, time, ticketing
    broker = ticketing.connect(sys.argv[1])
    async def main():
        await asyncio.gather(*(broker.acquire("loop-exit", wait=250) for _ in range(50)))
    def run():
        try:
            asyncio.run(main())
        except ticketing.TicketError:
            pass
    broker.acquire_sync("loop-exit", lease=1).detach()
    threading.Thread(target=run, daemon=True).start()
    time.sleep(0.2)
    print("the end", flush=True)
"""


def test_the_interpreter_ends_while_a_loop_waits(server: Server) -> None:
    for _ in range(3):
        assert said(python(LOOP_AT_EXIT, server.address)) == "the end\n"


def test_an_unreachable_server_does_not_hold_the_exit() -> None:
    script = """
        import ticketing
        brokers = [ticketing.connect("127.0.0.1:1") for _ in range(20)]
        print("the end", flush=True)
    """
    start = time.monotonic()
    assert said(python(script)) == "the end\n"
    assert time.monotonic() - start < 30


def test_sys_exit_and_a_killed_process_do_not_hang(server: Server) -> None:
    script = """
        import os, sys, threading, ticketing
        broker = ticketing.connect(sys.argv[1])
        ticket = broker.acquire_sync("kill" + sys.argv[2])
        threading.Thread(target=broker.acquire_sync, args=("kill" + sys.argv[2], 250), daemon=True).start()
        if sys.argv[2] == "exit":
            sys.exit(3)
        if sys.argv[2] == "_exit":
            os._exit(4)
        os.kill(os.getpid(), 9)
    """
    for how, code in [("exit", 3), ("_exit", 4), ("kill", -signal.SIGKILL)]:
        assert python(script, server.address, how).returncode == code


def test_close_from_another_thread_ends_those_who_wait(server: Server, key: str) -> None:
    broker = ticketing.connect(server.address)
    held = broker.acquire_sync(key, lease=3).detach()
    ended: list[ticketing.TicketError] = []

    def block() -> None:
        try:
            broker.acquire_sync(key, wait=250)
        except ticketing.TicketError as error:
            ended.append(error)

    threads = [threading.Thread(target=block) for _ in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: server.waiting() == 8)
    broker.close_sync()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(ended) == 8
    assert all(isinstance(error, ticketing.TicketClosed) for error in ended), ended
    assert held.token > 0

