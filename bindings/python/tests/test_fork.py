"""Forks: a child has a clear error at once, and harms nobody."""

from __future__ import annotations

from support import Server, python, said

#: Every way to use what came of the parent's broker, and what each raises.
USE = """
import asyncio, gc, os, sys, threading, time, warnings, ticketing
warnings.simplefilter("error")

def refused(use):
    try:
        use()
    except ticketing.TicketForked as error:
        assert isinstance(error, (ticketing.TicketClosed, RuntimeError)) and error.kind == "closed", error
        assert "parent process" in str(error)
    else:
        raise AssertionError(f"{use} was not refused")

def refuse_all(broker, ticket, key):
    start = time.monotonic()
    refused(lambda: broker.acquire_sync(key))
    refused(lambda: broker.try_acquire_sync(key))
    refused(lambda: broker.release_sync(key, ticket.token))
    refused(lambda: broker.wait_ready_sync())
    refused(lambda: broker.connections())
    refused(lambda: asyncio.run(asyncio.wait_for(broker.acquire(key), 60)))
    refused(lambda: asyncio.run(broker.release(key, 7)))
    assert ticket.remaining() == 0
    broker.close_sync()
    assert time.monotonic() - start < 20

def in_child(work):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    return child

def ended(child):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    raise AssertionError("the child hangs")

def is_free(broker, key):
    try:
        broker.try_acquire_sync(key).release_sync()
    except ticketing.TicketTimeout:
        return False
    return True
"""


def script(body: str) -> str:
    return USE + "\n" + "\n".join(line[4:] for line in body.splitlines())


def test_a_child_has_an_error_at_once_and_the_parent_nothing(server: Server) -> None:
    body = """
    broker = ticketing.connect(sys.argv[1])
    ticket = broker.acquire_sync("fork", lease=250)
    for _ in range(20):
        assert ended(in_child(lambda: refuse_all(broker, ticket, "fork"))) == 0
    assert not is_free(broker, "fork") and ticket.remaining() > 100
    ticket.release_sync()
    assert is_free(broker, "fork")
    broker.close_sync()
    """
    said(python(script(body), server.address, timeout=120))


def test_dropping_everything_in_the_child_harms_nobody(server: Server) -> None:
    body = """
    broker = ticketing.connect(sys.argv[1])
    ticket = broker.acquire_sync("fork-drop", lease=250)
    others = [broker.acquire_sync(f"fork-drop:{number}") for number in range(100)]

    def drop():
        global broker, ticket, others
        del broker, ticket, others
        gc.collect()

    for _ in range(5):
        assert ended(in_child(drop)) == 0
    time.sleep(0.2)
    assert not is_free(broker, "fork-drop")
    for held in [ticket, *others]:
        held.release_sync()
    broker.close_sync()
    """
    said(python(script(body), server.address))


def test_a_child_makes_a_broker_of_its_own(server: Server) -> None:
    body = """
    import logging
    broker = ticketing.connect(sys.argv[1])
    ticket = broker.acquire_sync("fork-own")

    def own():
        with ticketing.connect(sys.argv[1]) as mine:
            assert not is_free(mine, "fork-own")
            mine.acquire_sync("fork-child").release_sync()
            async def cycle():
                async with mine.lock("fork-child"):
                    pass
            asyncio.run(cycle())
        # The log of the child is its own, too.
        heard = []
        logging.getLogger("ticketing").addHandler(type("H", (logging.Handler,), {"emit": lambda _, r: heard.append(r)})())
        with ticketing.connect("127.0.0.1:1") as nobody:
            end = time.monotonic() + 30
            while not heard:
                assert time.monotonic() < end
                time.sleep(0.01)

    children = [in_child(own) for _ in range(4)]
    assert [ended(child) for child in children] == [0] * 4
    ticket.release_sync()
    broker.close_sync()
    """
    said(python(script(body), server.address))


def test_a_fork_in_the_middle_of_acquires(server: Server) -> None:
    """Other threads are in the middle of anything when the fork comes."""
    body = """
    broker = ticketing.connect(sys.argv[1])
    held = broker.acquire_sync("fork-mid", lease=250)
    stop = []

    def work(number):
        while not stop:
            with broker.acquire_sync(f"fork-mid:{number % 3}", wait=250):
                pass

    def wait():
        broker.acquire_sync("fork-mid", wait=250).release_sync()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    threads += [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        time.sleep(0.01)
        assert ended(in_child(lambda: refuse_all(broker, held, "fork-mid"))) == 0
    stop.append(1)
    held.release_sync()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    broker.close_sync()
    """
    said(python(script(body), server.address, timeout=180))


def test_a_fork_in_a_signal_handler_under_a_blocked_acquire(server: Server) -> None:
    body = """
    import signal
    broker = ticketing.connect(sys.argv[1])
    held = broker.acquire_sync("fork-signal", lease=250)
    children = []

    def handler(*_):
        child = os.fork()
        if child:
            children.append(child)
            held.release_sync()

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        broker.acquire_sync("fork-signal", wait=250).release_sync()
    except ticketing.TicketForked:
        os._exit(7)
    assert [ended(child) for child in children] == [7]
    broker.close_sync()
    """
    said(python(script(body), server.address))


def test_a_fork_in_a_running_loop(server: Server) -> None:
    body = """
    async def main():
        async with ticketing.TicketBroker(sys.argv[1]) as broker:
            held = await broker.acquire("fork-loop", lease=250)

            async def cycle():
                async with broker.lock("fork-loop", wait=250):
                    await asyncio.sleep(0)

            tasks = [asyncio.create_task(cycle()) for _ in range(10)]
            await asyncio.sleep(0.05)

            def drop_tasks():
                for task in tasks:
                    task.get_coro().close()
                tasks.clear()
                gc.collect()

            assert ended(in_child(lambda: refused(lambda: broker.acquire_sync("other")))) == 0
            assert ended(in_child(drop_tasks)) == 0
            await held.release()
            await asyncio.gather(*tasks)

    asyncio.run(main())
    """
    said(python(script(body), server.address))


def test_a_child_ends_in_order_by_itself(server: Server) -> None:
    """Its exit hooks run, with everything of the parent still in reach."""
    body = """
    broker = ticketing.connect(sys.argv[1])
    ticket = broker.acquire_sync("fork-end")
    acquire = broker.acquire("fork-end", wait=250)
    blocked = threading.Thread(target=lambda: acquire.wait_sync().release_sync())
    blocked.start()
    while acquire.place_sync().place != 1:
        time.sleep(0.01)
    child = os.fork()
    if child == 0:
        sys.exit(5)
    assert ended(child) == 5
    ticket.release_sync()
    blocked.join(60)
    assert not blocked.is_alive()
    broker.close_sync()
    """
    said(python(script(body), server.address))


def test_multiprocessing(server: Server) -> None:
    body = """
    import multiprocessing

    def work(number):
        refused(lambda: broker.acquire_sync("mp"))
        with ticketing.connect(sys.argv[1]) as mine:
            for _ in range(10):
                with mine.lock("mp", wait=250):
                    seen = counter.value
                    time.sleep(0)
                    counter.value = seen + 1
        return number

    if __name__ == "__main__":
        broker = ticketing.connect(sys.argv[1])
        broker.acquire_sync("mp").release_sync()
        context = multiprocessing.get_context("fork")
        counter = context.Value("i", 0, lock=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with context.Pool(4) as pool:
                assert pool.map(work, range(8)) == list(range(8))
        assert counter.value == 80, counter.value
        broker.acquire_sync("mp").release_sync()
        broker.close_sync()
    """
    said(python(script(body), server.address))


def test_preloaded_workers(server: Server) -> None:
    """As `gunicorn --preload` does: the application is loaded, its workers are forked, the master ends."""
    body = """
    broker = ticketing.connect(sys.argv[1])
    broker.wait_ready_sync()

    def worker():
        global broker
        refused(lambda: broker.acquire_sync("preload"))
        broker = ticketing.connect(sys.argv[1])
        with broker.lock("preload", wait=250) as ticket:
            print(ticket.token, flush=True)
        broker.close_sync()

    workers = [in_child(worker) for _ in range(4)]
    broker.close_sync()
    assert [ended(child) for child in workers] == [0] * 4
    """
    assert len(set(said(python(script(body), server.address)).split())) == 4
