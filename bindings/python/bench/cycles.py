"""Cycles a second through this client: what `ticketing bench` measures, from Python.

    python cycles.py --server 127.0.0.1:5225 --form asyncio --workload contended

A cycle is an acquire, an addition to a counter, and a release. Prints one line
of JSON, with the fields of `ticketing bench --json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading
import time
from typing import Any

import ticketing

WAIT, LEASE = 30, 60

#: In one of so many visits of a key, others get to run between reading and writing.
VISITS_A_PAUSE = 16


class Course:
    """What the tasks share."""

    def __init__(self, keys: int, cycles: int) -> None:
        self.names = [f"bench:{os.getpid()}:{number}" for number in range(keys)]
        self.counters = [0] * keys
        self.numbers = iter(range(cycles))
        # `next` of a range is one step of the interpreter: threads may share it.
        self.take = self.numbers.__next__
        self.times_ns: list[int] = []

    def visit(self, number: int) -> tuple[int, str, bool]:
        keys = len(self.names)
        key = number % keys
        return key, self.names[key], (number // keys) % VISITS_A_PAUSE == 0


async def run_tasks(broker: ticketing.TicketBroker, course: Course, tasks: int) -> None:
    async def cycles() -> None:
        for number in course.numbers:
            start = time.perf_counter_ns()
            key, name, pause = course.visit(number)
            ticket = await broker.acquire(name, WAIT, LEASE)
            seen = course.counters[key]
            if pause:
                await asyncio.sleep(0)
            course.counters[key] = seen + 1
            await ticket.release()
            course.times_ns.append(time.perf_counter_ns() - start)

    await asyncio.gather(*(cycles() for _ in range(tasks)))


def run_threads(broker: ticketing.TicketBroker, course: Course, threads: int) -> None:
    errors: list[BaseException] = []

    def cycles() -> None:
        try:
            for number in iter(course.take, None):
                start = time.perf_counter_ns()
                key, name, pause = course.visit(number)
                ticket = broker.acquire_sync(name, WAIT, LEASE)
                seen = course.counters[key]
                if pause:
                    time.sleep(0)
                course.counters[key] = seen + 1
                ticket.release_sync()
                course.times_ns.append(time.perf_counter_ns() - start)
        except StopIteration:
            pass
        except BaseException as error:
            errors.append(error)

    started = [threading.Thread(target=cycles) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if errors:
        raise errors[0]


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    tasks = arguments.tasks
    keys = 32 if arguments.workload == "contended" else tasks
    course = Course(keys, arguments.cycles)
    broker = ticketing.TicketBroker(arguments.server.split(","), token=os.environ.get("TICKETING_CLIENT_TOKEN"))
    broker.wait_ready_sync()
    start = time.perf_counter()
    if arguments.form == "threads":
        run_threads(broker, course, tasks)
    elif arguments.form == "uvloop":
        import uvloop

        uvloop.run(run_tasks(broker, course, tasks))
    else:
        asyncio.run(run_tasks(broker, course, tasks))
    secs = time.perf_counter() - start
    broker.close_sync()

    times = sorted(course.times_ns)
    done = len(times)

    def micros(part: float) -> float:
        return round(times[min(int(done * part), done - 1)] / 1000, 1)

    return {
        "client": f"python-{arguments.form}",
        "workload": arguments.workload,
        "tasks": tasks,
        "keys": keys,
        "cycles": done,
        "secs": secs,
        "cycles_per_sec": done / secs,
        "p50_us": micros(0.5),
        "p99_us": micros(0.99),
        "max_us": micros(1.0),
        "errors": 0,
        "error": None,
        "violations": done - sum(course.counters),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="127.0.0.1:5225", help="addresses, separated by commas")
    parser.add_argument("--form", choices=["asyncio", "uvloop", "threads"], default="asyncio")
    parser.add_argument("--workload", choices=["contended", "own-key"], default="contended")
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--cycles", type=int, default=40_000)
    report = measure(parser.parse_args())
    print(json.dumps(report))
    return 0 if report["violations"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
