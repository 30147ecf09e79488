"""A Delta table as it was at the end of an earlier batch, by its own versions: one more version, which can be undone.

It brings the files of that batch's version back and takes the others out; nothing is rewritten. The number of the query
goes up with the driver's epoch, so that Delta takes the batches again and nothing more from an older driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from headrace.connectors.delta import ledger
from headrace.connectors.delta.generations import OfDelta
from headrace.connectors.delta.ledger import Progress
from headrace.connectors.delta.table import DeltaTable, LogCutError, State
from headrace.connectors.exactly_once import Conflict, take_epoch
from headrace.contract import Held, Session, SinkContext, SinkRewind
from headrace.errors import Finding, NothingChanged
from headrace.spark.jvm.hadoop_files import first_missing
from headrace.spark.jvm.session_conf import applied

NOTE = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass(frozen=True, kw_only=True)
class VersionAfterBatch:
    """The version that the table had after a batch; without one, the first batch after it that has one, and why."""

    state: State | None = None
    earliest: int | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class DeltaRewind(OfDelta, SinkRewind):
    """A table brought back to an earlier batch; the version that it had ends as the table's own rules say."""

    def earliest(self, context: SinkContext, batch: int, session: Session) -> int | None:
        table = self.found(session)
        if table is None:
            return None
        state = table.now()
        if ledger.progress(context, state.txn_ids).batch is None:
            return None
        found = _find(state, context, batch)
        return batch if found.state is not None else found.earliest

    def taken_back(self, context: SinkContext, batch: int, session: Session) -> tuple[Held, ...]:
        table = self.found(session)
        if table is None:
            return ()
        state = table.now()
        own = ledger.progress(context, state.txn_ids)
        if own.batch is None or own.batch <= batch:
            return ()
        found = _find(state, context, batch)
        if found.state is None:
            return ()
        now, then = state.rows().count(), found.state.rows().count()
        return (
            Held(count=now, what=f"rows of {self.name}, which go back to the {then:,} rows after batch {batch}"),
            Held(count=own.batch - batch, what=f"batches of {self.name} are taken back"),
        )

    def go_back(self, context: SinkContext, batch: int, session: Session) -> None:
        self._tried(session, lambda table: _rewound(table, self.name, context, batch))

    def undo(self, context: SinkContext, batch: int, session: Session) -> None:
        self._tried(session, lambda table: _undone(table, self.name, context, batch))

    def forget(self, context: SinkContext, session: Session) -> None:
        self._tried(session, lambda table: _forgotten(table, context))

    def _tried(self, session: Session, change: Callable[[DeltaTable], None]) -> None:
        table = self.found(session)
        what = f"other writers changed {self.name} again and again"
        contended = Finding(code="HR587", what=what, fix="give the command again when the table is at rest")
        if table is not None:
            take_epoch(lambda: change(table), contended)


def _forgotten(table: DeltaTable, context: SinkContext) -> None:
    mark, known = ledger.rewound_mark(context), table.now().txn_ids
    if known.get(mark) and not table.mark({mark: 0}, seen={mark: known[mark]}):
        raise Conflict("another writer was quicker")


def _rewound(table: DeltaTable, name: str, context: SinkContext, batch: int) -> None:
    state = table.now()
    own = ledger.progress(context, state.txn_ids)
    if own.batch is None or own.batch <= batch:
        return
    found = _find(state, context, batch)
    if found.state is None:
        fix = "" if found.earliest is None else f"go back to batch {found.earliest} at most; or "
        fix += f"recompute the result: headrace rebuild {context.query}"
        raise NothingChanged(
            Finding(code="HR580", what=f"{name} cannot go back to batch {batch}: {found.why}", fix=fix)
        )
    # 0 is that of a rewind that was taken back.
    _commit(state, found.state, context, Progress(own.epoch + 1, batch), before=state.version + 1)


def _undone(table: DeltaTable, name: str, context: SinkContext, batch: int) -> None:
    state = table.now()
    own = ledger.progress(context, state.txn_ids)
    before = state.txn_ids.get(ledger.rewound_mark(context), 0) - 1
    if own.batch is None or before < 0:
        return
    if own.batch != batch:
        if own.batch < batch:
            return
        what = f"{name} has batches of query '{context.query}' after batch {batch} again"
        raise NothingChanged(Finding(code="HR583", what=what, fix="go back to that batch once more, or keep them"))
    try:
        former = table.at(before)
    except LogCutError:
        what = f"the log of {name} no longer has the version that it had before it went back to batch {batch}"
        raise NothingChanged(
            Finding(code="HR583", what=what, fix="run the query: it reads the removed batches again")
        ) from None
    _require_files(former, state, name, "HR583")
    reached = ledger.progress(context, former.txn_ids)
    _commit(state, former, context, Progress(own.epoch + 1, reached.batch), before=0)


def _commit(state: State, former: State, context: SinkContext, wanted: Progress, *, before: int) -> None:
    """Bring `former` back. Raises Conflict."""
    marks = {ledger.app(context.query, context.generation): wanted.number, ledger.rewound_mark(context): before}
    note = {
        "query": context.query,
        "generation": context.generation,
        "batch": wanted.batch,
        ledger.RESTORES: former.version,
    }
    with applied(state.table.spark, {NOTE: json.dumps(note)}):
        if not state.table.restore(former, marks, seen=state):
            raise Conflict("another writer was quicker")


def _find(state: State, context: SinkContext, batch: int) -> VersionAfterBatch:
    """The newest version of `batch` on the way back from the present one, past what earlier rewinds took off."""
    passed = ledger.progress(context, state.txn_ids).batch
    for commit, number in ledger.newest_first(state, context):
        if number is None:
            if commit.new or commit.takes_rows:
                why = f"another writer has changed it after batch {batch}, in version {commit.version}"
                return VersionAfterBatch(earliest=passed, why=why)
        elif number == batch:
            try:
                found = state.table.at(commit.version)
            except LogCutError:
                break
            if missing := _missing(found, state):
                return VersionAfterBatch(earliest=passed, why=f"its file {missing} was removed, as VACUUM does")
            return VersionAfterBatch(state=found)
        elif number < batch:
            break
        else:
            passed = number
    return VersionAfterBatch(earliest=passed, why=f"its log no longer has the version of batch {batch}")


def _missing(former: State, now: State) -> str:
    """A file of `former` that the table no longer has; "": all are there."""
    removed = sorted(path for path, _ in former.actions.keys() - now.actions.keys())
    return first_missing(now.table.spark, now.table.log.dataPath(), removed)


def _require_files(former: State, now: State, name: str, code: str) -> None:
    if missing := _missing(former, now):
        what = f"{name} cannot be brought back: its file {missing} was removed, as VACUUM does"
        raise NothingChanged(Finding(code=code, what=what, fix="run the query: it reads the removed batches again"))
