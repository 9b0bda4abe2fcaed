"""What the tests share: servers, and coroutines that run on each kind of loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

import ticketing
from support import Server

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def broker(server: Server) -> Iterator[ticketing.TicketBroker]:
    with ticketing.TicketBroker([server.address]) as broker:
        broker.wait_ready_sync()
        yield broker


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """A lock of the test's own."""
    return str(request.node.nodeid).rpartition("/")[2].replace(" ", "_")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if inspect.iscoroutinefunction(metafunc.function) and "new_loop" not in metafunc.fixturenames:
        metafunc.fixturenames.append("new_loop")
    if "new_loop" in metafunc.fixturenames:
        metafunc.parametrize("new_loop", LOOPS.values(), ids=LOOPS)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine, on asyncio's own loop and on uvloop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in wanted}
    new_loop: Any = pyfuncitem.callspec.params["new_loop"]
    loop = new_loop()
    try:
        loop.run_until_complete(pyfuncitem.obj(**arguments))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    return True
