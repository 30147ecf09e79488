"""What is asked of one start, and how it is given up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.contract import Boundary
from headrace.errors import Finding
from headrace.model import Project, Query, Trigger
from headrace.starter.sink_work import ignore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class GivenUp(BaseException):
    """A start that was given up has come to the end of its wait; nothing was started, and no caller waits for it."""


class Attempt:
    """One start, which may be given up while it makes its sink ready: there it can wait long for another driver.

    makes_ready: whether it does so now.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.makes_ready = False
        self._given_up = False

    @contextmanager
    def making_ready(self) -> Iterator[None]:
        """Let the start be given up inside the block; raises GivenUp at its end if it was."""
        with self._lock:
            self.makes_ready = True
        try:
            yield
        finally:
            with self._lock:
                self.makes_ready = False
        if self._given_up:
            raise GivenUp

    def give_up(self) -> bool:
        """Give the start up if it may be; it then starts nothing, whenever its wait ends."""
        with self._lock:
            self._given_up = self._given_up or self.makes_ready
            return self._given_up


Reached = Callable[[Boundary, int], None]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be started, and how.

    query: with the trigger that it is to run with.
    reached: called at each boundary of a batch.
    versions: of its tables that are recomputed while it runs; None: those of a batch that was planned and not
        committed, or else they are computed.
    report: takes at once what the sink has to say while it is made ready, as that it waits for a lock.
    preparing: called with each step as it begins.
    attempt: by which the start may be given up meanwhile.
    restoring: one batch alone is made again, because the checkpoint has lost it.
    settings: of the session, while the query is planned and started.
    """

    project: Project
    query: Query
    spark: SparkSession
    reached: Reached | None = None
    versions: Mapping[str, int] | None = None
    report: Callable[[Finding], None] | None = None
    preparing: Callable[[str], None] = ignore
    attempt: Attempt = field(default_factory=Attempt)
    restoring: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def trigger(self) -> Trigger:
        return self.query.trigger
