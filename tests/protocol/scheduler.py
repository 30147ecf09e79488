"""A seeded scheduler: processes of several threads each, of which one runs at a time, from one step to the next.

Whatever touches the world (a question to the store, a statement to the database) is a step. At a step the scheduler, by
its seed alone, lets the thread continue or another one. It may also stop the process for a while, as a machine that
swaps does; or, at a step that changes the world, end it, so that everything that it still tries raises `Crashed`.
"""

from __future__ import annotations

import _thread
import random
import re
import threading
from collections.abc import Callable, ItemsView, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

MOST_STEPS = 12_000
_TICK_SECONDS = 0.01
# How often another thread may go on before a step that changes the world, and before another one.
_AT_CHANGES, _ELSEWHERE = 0.2, 0.05


class Crashed(BaseException):
    """The process has ended; nothing of it runs on."""


class Stuck(Exception):
    """The simulation does not come to an end."""


@dataclass(eq=False)
class Process:
    """A driver, or another process that works on a storage.

    crash_in: before which of its changes of the world it ends. pause_in: before which of its steps it is stopped for
    `pause_seconds`. None: never. at: those of its steps alone are counted whose labels match this. steps, changes:
    how many it has come to. looks: it looks before each change whether it
    may make it (nested as deep as this is), so that it is stopped before such a look; is_due: it is to be. skew: by how
    many seconds its clock is wrong. locked_at: when it took its newest lease. kept: what its modules hold in their
    globals.
    """

    name: str
    pid: int
    crash_in: int | None = None
    pause_in: int | None = None
    pause_seconds: float = 0.0
    at: str = ""
    skew: float = 0.0
    dead: bool = False
    paused_until: float = 0.0
    locked_at: float = 0.0
    steps: int = 0
    changes: int = 0
    looks: int = 0
    is_due: bool = False
    kept: dict[str, dict[Any, Any]] = field(default_factory=dict)


@dataclass(eq=False)
class Thread:
    """One thread of a process; `until`: when it wakes; `ready`: what it waits for."""

    name: str
    process: Process
    work: Callable[[], object]
    baton: threading.Lock = field(default_factory=threading.Lock)
    until: float | None = None
    ready: Callable[[], bool] | None = None
    done: bool = False

    def may_run(self, now: float) -> bool:
        """Whether it has something to do at that time."""
        if self.done or self.process.paused_until > now:
            return False
        if self.process.dead or (self.ready is None and self.until is None):
            return True
        return (self.until is not None and self.until <= now) or (self.ready is not None and self.ready())


class Scheduler:
    """Runs threads by a seed; `now`: the model's time in seconds, which moves when no process can run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 1_000_000.0
        self.trace: list[str] = []
        self.fault: BaseException | None = None
        self._threads: list[Thread] = []
        self._at_end = threading.Lock()
        self._at_end.acquire()
        self._over = False
        self.current: Thread | None = None

    # ------------------------------------------------------------------------------------------- from outside

    def spawn(self, process: Process, name: str, work: Callable[[], object]) -> Thread:
        """A new thread of a process, which runs when the scheduler lets it."""
        thread = Thread(f"{process.name}.{name}", process, work)
        thread.baton.acquire()
        self._threads.append(thread)
        _thread.start_new_thread(self._run, (thread,))
        return thread

    def run(self) -> None:
        """Let all threads run to their ends; raises what the simulation itself has found."""
        self._hand_over(None)
        self._at_end.acquire()
        self._over = True
        for thread in self._threads:
            thread.process.dead = True
            if not thread.done:
                self.current = thread
                thread.baton.release()
                self._at_end.acquire()
        self.current = None
        if self.fault is not None:
            raise self.fault

    # ------------------------------------------------------------------------------------------- from threads

    @property
    def process(self) -> Process:
        """The process that runs."""
        assert self.current is not None
        return self.current.process

    def step(self, label: str, *, changes: bool = False) -> None:
        """One step of the thread that runs; raises Crashed where its process has ended."""
        me = self.current
        if me is None:
            return
        process = me.process
        if process.dead:
            raise Crashed
        self.trace.append(f"{me.name}: {label}")
        if len(self.trace) > MOST_STEPS:
            self.fail(Stuck(f"no end after {MOST_STEPS} steps"))
        self.now += _TICK_SECONDS
        is_counted = not process.at or re.search(process.at, label) is not None
        process.steps += is_counted
        if changes and is_counted:
            process.changes += 1
            if process.crash_in is not None and process.changes >= process.crash_in:
                self.trace.append(f"{me.name}: crashes")
                process.dead = True
                raise Crashed
        if process.pause_in is not None and is_counted and process.steps >= process.pause_in:
            process.pause_in, process.is_due = None, True
        if process.is_due and not process.looks:
            return self.stop_if_due()
        if self.random.random() < (_AT_CHANGES if changes else _ELSEWHERE):
            self._yield(me)

    def stop_if_due(self) -> None:
        """Stop the process that runs for a while, if it is to be."""
        me = self.current
        if me is not None and me.process.is_due:
            process = me.process
            self.trace.append(f"{process.name}: is stopped for {process.pause_seconds:.0f} s")
            process.is_due, process.paused_until = False, self.now + process.pause_seconds
            self._yield(me)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What reads in the block is not a thread of the world, and takes no step."""
        me, self.current = self.current, None
        try:
            yield
        finally:
            self.current = me

    def sleep(self, seconds: float) -> None:
        """Let others run for so long."""
        self.wait(None, seconds)

    def wait(self, ready: Callable[[], bool] | None, seconds: float | None) -> bool:
        """Wait for something, or for so long; whether it has come."""
        me = self.current
        if me is None:
            return ready is None or ready()
        if me.process.dead:
            raise Crashed
        me.ready, me.until = ready, None if seconds is None else self.now + seconds
        self._yield(me)
        return ready is None or ready()

    def fail(self, fault: BaseException) -> None:
        """End the simulation with a fault that it has found; the thread that found it ends too."""
        if self.fault is None:
            self.fault = fault
        for thread in self._threads:
            thread.process.dead = True
        raise Crashed

    # ------------------------------------------------------------------------------------------------- inside

    def _run(self, thread: Thread) -> None:
        thread.baton.acquire()
        try:
            if not thread.process.dead:
                thread.work()
        except Crashed:
            pass
        except BaseException as error:
            if self.fault is None and not self._over:
                self.fault = error
                for other in self._threads:
                    other.process.dead = True
        finally:
            thread.done = True
            if self._over:
                self._at_end.release()
            else:
                self._hand_over(None)

    def _yield(self, me: Thread) -> None:
        self._hand_over(me)
        me.until = me.ready = None
        if me.process.dead:
            raise Crashed

    def _hand_over(self, me: Thread | None) -> None:
        """Let a thread run that can; the clock moves to where one can."""
        if len(self._threads) > 8:
            self._threads = [thread for thread in self._threads if not thread.done]
        while True:
            able = [thread for thread in self._threads if thread.may_run(self.now)]
            if able:
                break
            waiting = [thread for thread in self._threads if not thread.done]
            moments = [
                max(thread.until if thread.until is not None else 0.0, thread.process.paused_until)
                for thread in waiting
                if thread.until is not None or thread.process.paused_until > self.now
            ]
            later = [moment for moment in moments if moment > self.now]
            if not later:
                if waiting and self.fault is None:
                    self.fault = Stuck("all wait for each other: " + ", ".join(thread.name for thread in waiting))
                self.current = None
                self._at_end.release()
                if me is not None:
                    me.baton.acquire()
                return
            self.now = min(later)
        chosen = able[0] if len(able) == 1 else self.random.choice(able)
        self.current = chosen
        if chosen is not me:
            chosen.baton.release()
            if me is not None:
                me.baton.acquire()


class PerProcess(MutableMapping[Any, Any]):
    """A global of a module, of which each process has its own."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._scheduler, self._name, self._outside = scheduler, name, dict[Any, Any]()

    @property
    def _own(self) -> dict[Any, Any]:
        if self._scheduler.current is None:
            return self._outside
        return self._scheduler.process.kept.setdefault(self._name, {})

    def __getitem__(self, key: Any) -> Any:
        return self._own[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._own[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._own[key]

    def __contains__(self, key: object) -> bool:
        return key in self._own

    def items(self) -> ItemsView[Any, Any]:
        return self._own.items()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)


class Clock:
    """In place of the module `time`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def monotonic(self) -> float:
        return self._scheduler.now

    def time(self) -> float:
        current = self._scheduler.current
        return self._scheduler.now + (0.0 if current is None else current.process.skew)

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)


class Threading:
    """In place of the module `threading`: its threads are those of the process that begins them."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def Event(self) -> _Event:  # noqa: N802
        return _Event(self._scheduler)

    def Thread(self, *, target: Callable[..., object], name: str, daemon: bool, args: tuple[Any, ...] = ()) -> _Begun:  # noqa: N802
        return _Begun(self._scheduler, name, lambda: target(*args))


class _Event:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._is_set = scheduler, False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float | None = None) -> bool:
        return self._scheduler.wait(self.is_set, seconds)


class _Begun:
    def __init__(self, scheduler: Scheduler, name: str, work: Callable[[], object]) -> None:
        self._scheduler, self._name, self._work = scheduler, name, work

    def start(self) -> None:
        self._scheduler.spawn(self._scheduler.process, self._name, self._work)


class NoLock:
    """In place of a lock of one process, whose threads are not in each other's way in the model."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None
