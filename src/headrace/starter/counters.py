"""What the counters of a query have come to: kept before each batch is committed, and counted once it is.

The line of a batch is written when its rows are computed and its sink has not yet committed them. A driver that dies in
between leaves a line of a batch that is made again, and the line that is written then counts in its place. A batch that
the sink holds already is not computed again, and its line is there. So each line holds what the batches before it have
come to, and the newest line up to the last committed batch has all.
"""

from __future__ import annotations

import base64
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError, Finding, HeadraceError, reason
from headrace.model import Counter, Query
from headrace.spark.stream.broadcasts import pickle_value, unpickle_value
from headrace.spark.stream.counting import Counting, add_up
from headrace.storage import json_lines
from headrace.storage.durable import replace_file
from headrace.storage.private import writing_to

# Spark keeps the checkpoint's files of 100 batches, so that no start goes farther back.
KEPT, _MOST = 200, 400
_LONGEST = 200


@dataclass(frozen=True, kw_only=True)
class CounterLine:
    """What the counters were before a batch, and after it; values as the file has them."""

    batch: int
    before: Mapping[str, Any]
    after: Mapping[str, Any]


@dataclass(kw_only=True)
class Counters:
    """The counters of one generation of a query, and what this start has counted.

    sync: whether a line is on the disk before the batch is committed, or survives the end of the process alone. path:
    None where the query keeps nothing. notes: that batches are not counted, whose driver died before it reported them.
    """

    query: Query
    declared: tuple[Counter, ...]
    counting: Counting
    path: Path | None
    sync: bool = True
    lines: dict[int, CounterLine] = field(default_factory=dict)
    own: set[int] = field(default_factory=set)
    notes: tuple[Finding, ...] = ()
    # The stream's thread keeps, and the supervisor's counts.
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def resume(self, committed: int | None) -> Counters:
        """Continue where earlier starts have left off; `committed`: the last batch that is. Raises CheckpointError."""
        if self.path is not None and self.declared:
            self.lines = {line.batch: line for line in read(self.query, self.path)}
        last = max((batch for batch in self.lines if committed is not None and batch <= committed), default=None)
        if last is not None and committed is not None and last < committed:
            batches = f"batch {committed} is" if committed == last + 1 else f"batches {last + 1} to {committed} are"
            fault = f"{batches} not in the counters of query '{self.query.name}': the driver died before it recorded "
            fault += "them, or the query had no counters then"
            fix = "nothing; where no batch may be left out, use a sink with a ledger, such as postgres or sqlite"
            self.notes = (Finding(code="HR806", what=fault, fix=fix, where=self.query.where),)
        return self

    def keep(self, batch: int) -> None:
        """Keep what the tasks of `batch` have added, before it is committed. Raises HeadraceError."""
        if self.declared:
            with self._lock:
                self._keep(batch)

    def _keep(self, batch: int) -> None:
        self.counting.forget(batch - 1)
        before = self._through(batch - 1)
        added = self._add(batch)
        after = dict(before)
        for counter in self.declared:
            total = _value(before[counter.name]) if counter.name in before else counter.zero
            if counter.name in added:
                after[counter.name] = _value_to_keep(self._sum(counter, total, added[counter.name]))
            else:
                after.setdefault(counter.name, _value_to_keep(total))
        line = CounterLine(batch=batch, before=before, after=after)
        self.lines[batch] = line
        self.own.add(batch)
        if self.path is not None:
            with writing_to(self.path.parent):
                json_lines.append(self.path, [vars(line)], sync=self.sync)

    def add_committed(self, batch: int) -> dict[str, Any]:
        """What the counters come to with `batch`, which is committed, as people and JSON read it."""
        if not self.declared:
            return {}
        with self._lock:
            if batch not in self.own and (batch not in self.lines or self._add(batch)):
                self._keep(batch)  # The sink did not say when it committed, or holds the batch already.
            self.counting.forget(batch)
            self._sweep(batch)
            line = self._through(batch)
        return {counter.name: readable_value(line[counter.name]) for counter in self.declared if counter.name in line}

    def _through(self, batch: int) -> Mapping[str, Any]:
        last = max((line for line in self.lines if line <= batch), default=None)
        return {} if last is None else self.lines[last].after

    def _add(self, batch: int) -> dict[str, Any]:
        try:
            return self.counting.of_batch(batch)
        except Exception as error:  # The user's own code adds.
            raise self._failure("", error) from error

    def _sum(self, counter: Counter, total: Any, added: Any) -> Any:
        try:
            return add_up(counter.param, total, added)
        except Exception as error:
            raise self._failure(f" '{counter.name}'", error) from error

    def _failure(self, which: str, error: Exception) -> HeadraceError:
        return HeadraceError(
            code="HR807",
            what=f"the counter{which} of query '{self.query.name}' cannot be added up: "
            f"{type(error).__name__}: {reason(error)}",
            fix="correct the addInPlace of its param; if its type has changed, give the counter another name",
            where=self.query.where,
        )

    def _sweep(self, committed: int) -> None:
        """Let go of lines that no start will ask for."""
        if len(self.lines) <= _MOST:
            return
        self.lines = {batch: line for batch, line in self.lines.items() if batch > committed - KEPT}
        self.own &= set(self.lines)
        if self.path is not None:
            with writing_to(self.path.parent):
                replace_file(self.path, json_lines.text_of(vars(line) for line in self.lines.values()))


def read(query: Query, path: Path) -> list[CounterLine]:
    """The lines of a file, of which a later one for the same batch counts. Raises CheckpointError."""
    try:
        return [CounterLine(**facts) for facts in json_lines.read(path)]
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(
            code="HR584",
            what=f"the counters of query '{query.name}' cannot be read from {path}: {reason(error)}",
            fix="bring the file back from a copy, or remove it: then the counters start again from zero",
            where=query.where,
        ) from error


def readable_value(entry: Any) -> Any:
    """A value of the file for people: itself if JSON has it, or a text."""
    return entry["text"] if isinstance(entry, dict) else entry


def _value_to_keep(value: Any) -> Any:
    """A value as the file has it: a number or a text as it is, anything else with its text."""
    if type(value) in (int, str) or (type(value) is float and math.isfinite(value)):
        return value
    text = str(value)
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return {"text": text, "pickle": base64.b64encode(pickle_value(value)).decode()}


def _value(entry: Any) -> Any:
    return unpickle_value(base64.b64decode(entry["pickle"])) if isinstance(entry, dict) else entry
