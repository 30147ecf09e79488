"""A Delta table as it was at the end of an earlier batch, by its own versions.

The number of the query goes up with the driver's epoch, so that Delta takes the batches again and nothing more from an
older driver.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from headrace.connectors.delta import ledger
from headrace.connectors.delta.generations import OfDelta
from headrace.connectors.delta.ledger import Progress
from headrace.connectors.delta.table import NOTE, LogCutError, State
from headrace.connectors.exactly_once.lake import Reached, VersionRewind
from headrace.contract import Session, SinkContext
from headrace.errors import NothingChanged
from headrace.spark.jvm.hadoop_files import first_missing
from headrace.spark.jvm.session_conf import applied


@dataclass(frozen=True, kw_only=True)
class DeltaRewind(OfDelta, VersionRewind[tuple[State, Progress], State]):
    """A table brought back to an earlier batch; the version that it had ends as the table's own rules say."""

    def known(self, context: SinkContext, session: Session) -> tuple[State, Progress] | None:
        table = self.found(session)
        state = None if table is None else table.now()
        own = ledger.NOT_BEGUN if state is None else ledger.progress(context, state.txn_ids)
        return None if state is None or own.batch is None else (state, own)

    def last(self, known: tuple[State, Progress]) -> int:
        batch = known[1].batch
        return -1 if batch is None else batch

    def reach(self, known: tuple[State, Progress], context: SinkContext, batch: int) -> Reached[State]:
        state, own = known
        passed = own.batch
        for commit, number in ledger.newest_first(state, context):
            if number is None:
                if commit.new or commit.takes_rows:
                    why = f"another writer has changed it after batch {batch}, in version {commit.version}"
                    return Reached(earliest=passed, why=why)
            elif number == batch:
                try:
                    found = state.table.at(commit.version)
                except LogCutError:
                    break
                if missing := _missing(found, state):
                    return Reached(earliest=passed, why=f"its file {missing} was removed, as VACUUM does")
                return Reached(version=found)
            elif number < batch:
                break
            else:
                passed = number
        return Reached(earliest=passed, why=f"its log no longer has the version of batch {batch}")

    def count(self, known: tuple[State, Progress], version: State | None) -> int:
        return (version or known[0]).rows().count()

    def restore(self, known: tuple[State, Progress], version: State, context: SinkContext, batch: int) -> None:
        state, own = known
        # 0 is that of a rewind that was taken back.
        _commit(state, version, context, Progress(own.epoch + 1, batch), before=state.version + 1)

    def is_rewound(self, known: tuple[State, Progress], context: SinkContext, batch: int) -> bool:
        return known[0].txn_ids.get(ledger.own_mark(context, ledger.REWOUND), 0) > 0 and self.last(known) >= batch

    def bring_back(self, known: tuple[State, Progress], context: SinkContext, batch: int) -> None:
        state, own = known
        what, fix = "", "run the query: it reads the removed batches again"
        try:
            former = state.table.at(state.txn_ids[ledger.own_mark(context, ledger.REWOUND)] - 1)
            if missing := _missing(former, state):
                what = f"{self.name} cannot be brought back: its file {missing} was removed, as VACUUM does"
        except LogCutError:
            what = f"the log of {self.name} no longer has the version that it had before it went back to batch {batch}"
        if what:
            raise NothingChanged(code="HR583", what=what, fix=fix)
        reached = ledger.progress(context, former.txn_ids)
        _commit(state, former, context, Progress(own.epoch + 1, reached.batch), before=0)

    def forget_former(self, context: SinkContext, session: Session) -> None:
        table = self.found(session)
        state, mark = None if table is None else table.now(), ledger.own_mark(context, ledger.REWOUND)
        if state is not None and state.txn_ids.get(mark):
            state.enter({mark: 0})


def _commit(state: State, former: State, context: SinkContext, wanted: Progress, *, before: int) -> None:
    """Bring `former` back. Raises Conflict."""
    note = {
        "query": context.query,
        "generation": context.generation,
        "batch": wanted.batch,
        ledger.RESTORES: former.version,
    }
    marks = {ledger.own_mark(context): wanted.number, ledger.own_mark(context, ledger.REWOUND): before}
    with applied(state.table.spark, {NOTE: json.dumps(note)}):
        state.restore(former, marks)


def _missing(former: State, now: State) -> str:
    """A file of `former` that the table no longer has; "": all are there."""
    removed = sorted(path for path, _ in former.actions.keys() - now.actions.keys())
    return first_missing(now.table.spark, now.table.log.dataPath(), removed)
