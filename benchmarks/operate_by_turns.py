"""`headrace` with history and metrics on in every other block of batches; its first arguments: where, and how many.

There is no switch for the history: in the blocks of the other side nothing of a batch is noted or counted.
"""

import sys
import time
from collections.abc import Callable, Iterable

from headrace.cli.entry import main
from headrace.contract import BatchRecord
from headrace.export.metrics import MetricsObserver
from headrace.history import History

first, size = int(sys.argv.pop(1)), int(sys.argv.pop(1))
record, progressed, heartbeat = History.record, MetricsObserver.progressed, History.heartbeat
spent = open("spent", "w", encoding="utf-8")  # noqa: SIM115
newest = 0


def is_on(batch: int) -> bool:
    return batch >= first and (batch - first) // size % 4 in (0, 3)


def time_call(call: Callable[[], None], batch: int) -> None:
    if is_on(batch):
        begun = time.perf_counter()
        call()
        print(batch, time.perf_counter() - begun, file=spent, flush=True)


def note(self: History, run: int, made: BatchRecord) -> None:
    global newest
    newest = made.batch
    time_call(lambda: record(self, run, made), made.batch)


def beaten(self: History, runs: Iterable[int]) -> None:
    if is_on(newest):
        heartbeat(self, runs)


def count(self: MetricsObserver, made: BatchRecord) -> None:
    time_call(lambda: progressed(self, made), made.batch)


History.record = note  # type: ignore[method-assign, assignment]
History.heartbeat = beaten  # type: ignore[method-assign]
MetricsObserver.progressed = count  # type: ignore[method-assign, assignment]
sys.exit(main(sys.argv[1:]))
