"""Runs the table of scenarios that the client of every language runs.

It knows nothing about any scenario: a scripted server tells which calls to make,
and judges both ends. The form that awaits and the form that blocks each run the
whole table. `CONFORMANCE_ONLY=text` plays only the cases with that in their name.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

import ticketing

#: Cases that run at the same time. Most of their time is spent waiting.
AT_ONCE = 24

#: Each case has a limit of its own; a client that is stuck can stop even that.
CASE_SECS = 120

Line: TypeAlias = dict[str, Any]


class Reply:
    """Where the outcome of one call goes."""

    def __init__(self, number: int, write: Callable[[bytes], None]) -> None:
        self.number = number
        self.start = time.monotonic()
        self.write = write

    def send(self, kind: str, **fields: Any) -> None:
        elapsed_ms = (time.monotonic() - self.start) * 1000
        line = {"id": self.number, "kind": kind, "elapsed_ms": elapsed_ms, **fields}
        self.write(json.dumps(line).encode() + b"\n")

    def error(self, error: ticketing.TicketError) -> None:
        def text(number: int | None) -> str | None:
            return None if number is None else str(number)

        self.send(error.kind, message=str(error), owner=text(error.owner), token=text(error.token))

    def ticket(self, ticket: ticketing.Ticket) -> None:
        self.send(
            "ticket",
            token=str(ticket.token),
            owner=str(ticket.owner),
            domain=ticket.domain,
            remaining_ms=ticket.remaining() * 1000,
        )


class Session:
    """What the calls of one case leave behind, whatever the form."""

    def __init__(self) -> None:
        self.brokers: dict[str, ticketing.TicketBroker] = {}
        self.acquires: dict[int, ticketing.Acquire] = {}
        self.tickets: dict[int, ticketing.Ticket] = {}
        self.errors: dict[int, ticketing.TicketIndeterminate] = {}

    def build(self, call: Line) -> None:
        tls: bool | ticketing.TlsOptions = False
        if (wanted := call.get("tls")) is not None:
            tls = ticketing.TlsOptions(
                ca_file=wanted.get("ca_file"),
                ca_pem=wanted.get("ca_pem"),
                server_name=wanted.get("server_name"),
                dangerously_accept_any_certificate=wanted.get("verify") is False,
            )
        self.brokers[call["broker"]] = ticketing.TicketBroker(
            call["addresses"],
            token=call.get("token"),
            tls=tls,
            expect_domain=call.get("expect_domain"),
            max_pending=call.get("max_pending"),
        )

    def begin(self, call: Line) -> ticketing.Acquire:
        broker = self.brokers[call["broker"]]
        if call["call"] == "try_acquire":
            acquire = broker.try_acquire(key(call), seconds(call, "lease"))
        else:
            least = seconds(call, "min_remaining") if "min_remaining" in call else None
            acquire = broker.acquire(
                key(call), seconds(call, "wait"), seconds(call, "lease"), min_remaining=least
            )
        self.acquires[call["id"]] = acquire
        return acquire

    def keep(self, ticket: ticketing.Ticket, reply: Reply) -> None:
        self.tickets[reply.number] = ticket
        reply.ticket(ticket)

    def failed(self, error: ticketing.TicketError, reply: Reply) -> None:
        if isinstance(error, ticketing.TicketIndeterminate):
            self.errors[reply.number] = error
        reply.error(error)

    def at_once(self, call: Line, reply: Reply) -> bool:
        """Does what neither form waits for; whether it was that."""
        kind = call["call"]
        if kind == "broker":
            try:
                self.build(call)
            except ticketing.TicketError as error:
                reply.error(error)
            else:
                reply.send("done")
        elif kind == "drop":
            # CPython collects it here and now.
            self.tickets.pop(call["of"], None)
            reply.send("done")
        elif kind == "detach":
            self.tickets.pop(call["of"]).detach()
            reply.send("done")
        elif kind == "remaining":
            reply.send("remaining", remaining_ms=self.tickets[call["of"]].remaining() * 1000)
        elif kind == "connections":
            self.connections(call, reply)
        else:
            return False
        return True

    def connections(self, call: Line, reply: Reply) -> None:
        seen = [
            {
                "address": status.address,
                "open": status.open,
                "extension": status.extension,
                "leads": status.leads,
                "node": None if status.node is None else str(status.node),
                "last_error": status.last_error,
            }
            for status in self.brokers[call["broker"]].connections()
        ]
        reply.send("connections", connections=seen)


class AsyncSession(Session):
    """The form that awaits: a task for each call."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def call(self, call: Line, reply: Reply) -> None:
        if not self.at_once(call, reply):
            self.tasks[reply.number] = asyncio.create_task(self.do(call, reply))

    async def do(self, call: Line, reply: Reply) -> None:
        try:
            await self.wait_for(call, reply)
        except ticketing.TicketError as error:
            self.failed(error, reply)
        except asyncio.CancelledError:
            reply.send("cancelled")

    async def wait_for(self, call: Line, reply: Reply) -> None:
        kind = call["call"]
        if kind in ("acquire", "try_acquire"):
            self.keep(await self.begin(call), reply)
        elif kind == "cancel":
            self.tasks[call["of"]].cancel()
            reply.send("done")
        elif kind == "place":
            place = await self.acquires[call["of"]].place()
            reply.send("place", place=place.place, waiters=place.waiters)
        elif kind == "release":
            await self.tickets.pop(call["of"]).release()
            reply.send("released")
        elif kind == "release_token":
            await self.brokers[call["broker"]].release(key(call), int(call["token"]))
            reply.send("released")
        elif kind == "verify":
            ticket = await self.errors[call["of"]].verify(seconds(call, "timeout"))
            if ticket is None:
                reply.send("not_acquired")
            else:
                self.keep(ticket, reply)
        elif kind == "wait_ready":
            await self.brokers[call["broker"]].wait_ready(seconds(call, "timeout"))
            reply.send("ready")
        else:
            assert kind == "close", call
            await self.brokers[call["broker"]].close()
            reply.send("done")

    async def end(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        for broker in self.brokers.values():
            await broker.close()


class SyncSession(Session):
    """The form that blocks: a thread for each call."""

    async def call(self, call: Line, reply: Reply) -> None:
        if self.at_once(call, reply):
            return
        if call["call"] in ("acquire", "try_acquire"):
            self.begin(call)
        threading.Thread(target=self.do, args=(call, reply), daemon=True).start()
        if (acquire := self.acquires.get(reply.number)) is not None:
            # Calls start in the order in which they come.
            while acquire._call is None:
                await asyncio.sleep(0)

    def do(self, call: Line, reply: Reply) -> None:
        try:
            self.wait_for(call, reply)
        except ticketing.TicketError as error:
            self.failed(error, reply)
        except concurrent.futures.CancelledError:
            reply.send("cancelled")

    def wait_for(self, call: Line, reply: Reply) -> None:
        kind = call["call"]
        if kind in ("acquire", "try_acquire"):
            self.keep(self.acquires[reply.number].wait_sync(), reply)
        elif kind == "cancel":
            self.acquires[call["of"]].cancel()
            reply.send("done")
        elif kind == "place":
            place = self.acquires[call["of"]].place_sync()
            reply.send("place", place=place.place, waiters=place.waiters)
        elif kind == "release":
            self.tickets.pop(call["of"]).release_sync()
            reply.send("released")
        elif kind == "release_token":
            self.brokers[call["broker"]].release_sync(key(call), int(call["token"]))
            reply.send("released")
        elif kind == "verify":
            ticket = self.errors[call["of"]].verify_sync(seconds(call, "timeout"))
            if ticket is None:
                reply.send("not_acquired")
            else:
                self.keep(ticket, reply)
        elif kind == "wait_ready":
            self.brokers[call["broker"]].wait_ready_sync(seconds(call, "timeout"))
            reply.send("ready")
        else:
            assert kind == "close", call
            self.brokers[call["broker"]].close_sync()
            reply.send("done")

    async def end(self) -> None:
        for broker in self.brokers.values():
            await asyncio.to_thread(broker.close_sync)


FORMS: dict[str, type[AsyncSession] | type[SyncSession]] = {
    "python": AsyncSession,
    "python_sync": SyncSession,
}


def key(call: Line) -> str:
    """A key; bytes that are no UTF-8 become what Python makes of such: halves of surrogates."""
    if "key_hex" in call:
        return bytes.fromhex(call["key_hex"]).decode("utf-8", "surrogateescape")
    return str(call["key"])


def seconds(call: Line, name: str) -> float:
    text = call.get(name, "0")
    return int(text) if text.isdigit() else float(text)


async def play(server: str, table: str, case: str, form: type[AsyncSession] | type[SyncSession]) -> Line:
    """Plays one case and gives its verdict."""
    process = await asyncio.create_subprocess_exec(
        server, "play", table, case, stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=1 << 20
    )
    assert process.stdin is not None and process.stdout is not None
    loop, to_server = asyncio.get_running_loop(), process.stdin

    def write(line: bytes) -> None:
        # From any thread; after its verdict the server reads no more.
        loop.call_soon_threadsafe(to_server.write, line)

    session = form()
    try:
        while line := await process.stdout.readline():
            call: Line = json.loads(line)
            if "end" in call:
                return call
            await session.call(call, Reply(call["id"], write))
        return {"end": "failed", "why": "the scripted server ended without a verdict"}
    finally:
        await session.end()
        session.tickets.clear()
        if process.returncode is None:
            process.stdin.close()
            await process.wait()


async def play_table(server: str, table: str, language: str) -> list[Line]:
    """Plays the whole table in one form."""
    listed = subprocess.run([server, "list", table], check=True, capture_output=True, text=True).stdout
    only = os.environ.get("CONFORMANCE_ONLY", "")
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(case: str) -> Line:
        async with slots:
            try:
                verdict = await asyncio.wait_for(play(server, table, case, FORMS[language]), CASE_SECS)
            except asyncio.TimeoutError:
                verdict = {"end": "failed", "why": f"not over after {CASE_SECS} s"}
            return {"case": case, **verdict}

    return await asyncio.gather(*(one(case) for case in listed.splitlines() if only in case))


def run(language: str, server: str, table: str, results: Path) -> list[Line]:
    """Plays the table, writes `LANGUAGE.jsonl`, and gives the cases that failed."""
    with warnings.catch_warnings():
        # Tickets are dropped on purpose.
        warnings.simplefilter("ignore", ResourceWarning)
        verdicts: Coroutine[Any, Any, list[Line]] = play_table(server, table, language)
        played = asyncio.run(verdicts)
    results.mkdir(parents=True, exist_ok=True)
    with open(results / f"{language}.jsonl", "w") as file:
        for verdict in played:
            line = {"case": verdict["case"], "end": verdict["end"], "why": verdict.get("why")}
            file.write(json.dumps(line) + "\n")
    return [verdict for verdict in played if verdict["end"] not in ("ok", "n/a")]
