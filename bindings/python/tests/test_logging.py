"""What the client has to tell, in Python's `logging`."""

from __future__ import annotations

import logging

import pytest

import ticketing
from support import Server, eventually, python, said


class Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def test_lost_connections_are_told_and_levels_obeyed(server: Server) -> None:
    logger, heard = logging.getLogger("ticketing"), Heard()
    logger.addHandler(heard)
    try:
        with ticketing.connect("127.0.0.1:1", server.address):
            eventually(lambda: any("127.0.0.1:1" in record.getMessage() for record in heard.records))
        assert {record.levelno for record in heard.records} == {logging.WARNING}
        assert {record.name for record in heard.records} == {"ticketing"}
        logger.setLevel(logging.DEBUG)
        with ticketing.connect(server.address):
            eventually(lambda: any("session open" in record.getMessage() for record in heard.records))
    finally:
        logger.removeHandler(heard)
        logger.setLevel(logging.NOTSET)


def test_a_program_that_sets_up_no_logging_hears_of_warnings_only_if_it_wants() -> None:
    script = """
        import ticketing, time
        with ticketing.connect("127.0.0.1:1") as broker:
            try:
                broker.acquire_sync("k", wait=0)
            except ticketing.TicketNotConnected:
                print("the end")
    """
    assert said(python(script)) == "the end\n"


def test_a_handler_that_raises_or_hangs_stops_nothing(broker: ticketing.TicketBroker, server: Server) -> None:
    script = """
        import logging, sys, threading, ticketing
        raised, hung = threading.Event(), threading.Event()
        class Bad(logging.Handler):
            def handle(self, record):
                if raised.is_set():
                    hung.set()
                    threading.Event().wait()
                raised.set()
                raise RuntimeError("a handler's own trouble")
        logging.getLogger("ticketing").addHandler(Bad())
        for _ in range(2):
            broken = ticketing.connect("127.0.0.1:1", "127.0.0.1:2")
        assert raised.wait(60) and hung.wait(60)
        # The log is stuck for good, with more to tell than its pipe can hold.
        brokers = [ticketing.connect(*(f"127.0.0.1:{port}" for port in range(1, 100))) for _ in range(10)]
        with ticketing.connect(sys.argv[1]) as broker:
            for _ in range(100):
                broker.acquire_sync("hung-log", wait=60).release_sync()
        print("the end", flush=True)
    """
    assert said(python(script, server.address)) == "the end\n"


@pytest.mark.parametrize("level", [logging.WARNING, logging.DEBUG])
def test_a_handler_may_use_the_broker(broker: ticketing.TicketBroker, key: str, level: int) -> None:
    logger, used = logging.getLogger("ticketing"), []

    class Using(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            broker.acquire_sync(key, wait=60).release_sync()
            used.append(record)

    handler = Using()
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        with ticketing.connect("127.0.0.1:1"):
            eventually(lambda: bool(used))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
