"""Defects of the commit protocol, put back on purpose: what the product does otherwise while a world happens.

Each takes out one thing that the protocol rests on. `seed`: a world that shows it; another one is looked for where a
change of the product has moved its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from headrace.change import change, reset, rewind_copy
from headrace.checkpoint import restore
from headrace.checkpoint.archive import Archive
from headrace.connectors.exactly_once import BatchWriter, acceptance, batches
from headrace.connectors.exactly_once.acceptance import Ahead, Behind, KeptLine, OtherCheckpoint, Same
from headrace.connectors.sql import generations, prepare
from headrace.connectors.sql import rewind as sql_rewind
from headrace.connectors.sql.batches import SqlStore
from headrace.connectors.sql.dialect import Transaction, run
from headrace.connectors.sql.ledger import Ledger
from headrace.connectors.sql.result_table import ResultTable
from headrace.contract import SinkContext
from headrace.queries import lease
from headrace.queries.changes import ChangeRecord, ResetRecord
from headrace.run import start
from headrace.storage.remote import at
from headrace.storage.s3 import S3

Let = Callable[[Any, str, Any], None]


@dataclass(frozen=True)
class Defect:
    """what: is otherwise. make: lets it be so. seed: shows it."""

    what: str
    make: Callable[[Let], None]
    seed: int

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Let the product have the defect in the block."""
        patches: list[Any] = []

        def let(owner: Any, name: str, value: Any) -> None:
            patches.append(patch.object(owner, name, value))
            patches[-1].start()

        self.make(let)
        try:
            yield
        finally:
            for one in reversed(patches):
                one.stop()


# ------------------------------------------------------------------------------------------------- the epochs


def _epoch_not_compared(let: Let) -> None:
    standing = SqlStore.standing

    def blind(self: SqlStore, batch: int, *, lock: bool = False) -> Any:
        return replace(standing(self, batch, lock=lock), newer="", **_lines(self, batch))

    def _lines(self: SqlStore, batch: int) -> dict[str, Any]:
        before, own = self._ledger().around(batch)
        return {"before": before, "own": own, "is_in": own is not None}

    let(SqlStore, "standing", blind)


def _epoch_compared_before_the_transaction_alone(let: Let) -> None:
    standing = SqlStore.standing

    def blind(self: SqlStore, batch: int, *, lock: bool = False) -> Any:
        found = standing(self, batch, lock=lock)
        if not lock:
            return found
        before, own = self._ledger().around(batch)
        return replace(found, newer="", before=before, own=own, is_in=own is not None)

    let(SqlStore, "standing", blind)


def _epoch_not_locked(let: Let) -> None:
    epoch = Ledger.epoch
    let(Ledger, "epoch", lambda self, *, lock=False: epoch(self))


def _epoch_not_counted_on(let: Let) -> None:
    enter, made = Ledger.enter_epoch, prepare.Ready
    let(Ledger, "enter_epoch", lambda self, epoch: enter(self, 1))
    let(prepare, "Ready", lambda **facts: made(**{**facts, "epoch": 1}))


def _fence_before_compare(let: Let) -> None:
    prepared = prepare._prepared

    def fenced(connection: Any, dialect: Any, table: Any, schema: str, context: SinkContext, *, adds: bool) -> Any:
        ledger = Ledger(connection, dialect, context, table.name)
        ledger.create()
        with Transaction().begin(connection, dialect):
            ledger.enter_epoch(ledger.epoch(lock=True) + 1)
        return prepared(connection, dialect, table, schema, context, adds=adds)

    let(prepare, "_prepared", fenced)


# ------------------------------------------------------------------------------------------------- the ledger


def _line_before_the_rows(let: Let) -> None:
    """The ledger's line is written by a transaction of its own, before that of the rows ends."""
    add = Ledger.add

    def early(self: Ledger, entry: Any, **facts: Any) -> None:
        add(replace(self, connection=self.dialect.connect()), entry, **facts)

    let(Ledger, "add", early)


def _line_after_the_rows(let: Let) -> None:
    """The ledger's line is written by a transaction of its own, after that of the rows."""
    commit, add, waiting = SqlStore.commit, Ledger.add, []

    def late(self: SqlStore, rows: Any, batch: int, admit: Any) -> None:
        waiting.clear()
        commit(self, rows, batch, admit)
        for ledger, entry, facts in waiting:
            add(ledger, entry, **facts)

    let(Ledger, "add", lambda self, entry, **facts: waiting.append((self, entry, facts)))
    let(SqlStore, "commit", late)


def _no_line(let: Let) -> None:
    let(Ledger, "add", lambda self, entry, **facts: None)


def _batch_not_asked_for_under_the_lock(let: Let) -> None:
    """What was admitted before the transaction is written; an earlier attempt may have come through."""
    standing, known = SqlStore.standing, {}

    def once(self: SqlStore, batch: int, *, lock: bool = False) -> Any:
        if lock:
            return known[self]
        known[self] = standing(self, batch)
        return known[self]

    let(SqlStore, "__hash__", object.__hash__)
    let(SqlStore, "standing", once)


def _batch_not_asked_for_again(let: Let) -> None:
    """An attempt that is made again takes what the first one was told."""
    admitted, known = BatchWriter._admitted, {}

    def once(self: Any, standing: Any, batch: int, work: Any) -> Any:
        if id(work) not in known:
            known.clear()
            known[id(work)] = (work, admitted(self, standing, batch, work))
        return known[id(work)][1]

    let(BatchWriter, "_admitted", once)
    let(Ledger, "add", _replacing(Ledger.add))


def _replacing(add: Any) -> Any:
    def replaced(self: Ledger, entry: Any, **facts: Any) -> None:
        run(self.connection, "DELETE FROM _headrace_ledger WHERE batch = ?", (entry.line.batch,))
        add(self, entry, **facts)

    return replaced


def _verdict_passed_over(verdict: type) -> Callable[[Let], None]:
    def make(let: Let) -> None:
        judge = acceptance.judge

        def blind(lines: Any, here: Any, **more: Any) -> Any:
            found = judge(lines, here, **more)
            return Same() if isinstance(found, verdict) else found

        let(acceptance, "judge", blind)

    return make


def _planned_batch_must_be_in(let: Let) -> None:
    """The newest planned batch, which Spark makes again, is asked of the ledger."""
    judge = acceptance.judge

    def strict(lines: Any, here: Any, **more: Any) -> Any:
        return judge(lines, replace(here, committed=here.planned), **more)

    let(acceptance, "judge", strict)


def _chain_not_continued(let: Let) -> None:
    let(KeptLine, "after", lambda self, before: replace(self, chain=self.digest))


def _plans_not_kept(let: Let) -> None:
    of = KeptLine.of.__func__  # type: ignore[attr-defined]
    let(KeptLine, "of", classmethod(lambda cls, *facts: replace(of(cls, *facts), planned=None)))


# ------------------------------------------------------------------------------------- answers that are lost


def _lost_commit_taken_as_done(let: Let) -> None:
    begin = Transaction.begin

    @contextmanager
    def hopeful(self: Transaction, connection: Any, dialect: Any) -> Iterator[None]:
        try:
            with begin(self, connection, dialect):
                yield
        except dialect.errors:
            if not self.is_in_doubt:
                raise

    let(Transaction, "begin", hopeful)


def _doubt_forgotten(let: Let) -> None:
    """Each attempt begins without a doubt, so that a COMMIT without an answer is told as not written."""
    begin = SqlStore.begin

    def forget(self: SqlStore, frame: Any, batch: int) -> None:
        begin(self, frame, batch)
        self._transaction.is_in_doubt = False

    let(SqlStore, "begin", forget)


def _doubt_ended_by_a_new_connection(let: Let) -> None:
    disconnect = SqlStore.disconnect

    def forget(self: SqlStore) -> None:
        disconnect(self)
        self._transaction.is_in_doubt = False

    let(SqlStore, "disconnect", forget)


def _no_doubt(let: Let) -> None:
    fate = SqlStore.fate
    let(SqlStore, "fate", lambda self, batch, *, is_in_doubt: fate(self, batch, is_in_doubt=False))


# --------------------------------------------------------------------------------------------- the storage


def _lease_not_looked_at(let: Let) -> None:
    let(lease, "_require_over", lambda folder, number: None)


def _lease_not_renewed(let: Let) -> None:
    let(lease, "_tell", lambda folder, number: None)


def _lease_not_created_alone(let: Let) -> None:
    def put(file: Any, text: str) -> bool:
        store, inside = at(file)
        store.put(inside, text.encode())
        return True

    let(lease, "create_file", put)


def _every_create_is_the_first(let: Let) -> None:
    """A store's answer that the file is there is taken for one of a put of one's own."""

    def create(self: S3, path: str, data: bytes) -> bool:
        with suppress(FileExistsError):
            self._ask("put_object", Key=path.strip("/"), Body=data, IfNoneMatch="*")
        return True

    let(S3, "create", create)


def _lost_batches_not_made_again(let: Let) -> None:
    let(start, "plan_lost_batch", lambda project, query, layout: None)


def _lost_batches_planned_anew(let: Let) -> None:
    """A checkpoint that is behind goes on with what comes next, and the ledger's batches are skipped by number."""
    _lost_batches_not_made_again(let)
    _verdict_passed_over(Ahead)(let)
    let(batches, "is_same_batch", lambda line, before, digest: True)


def _archive_forgets(let: Let) -> None:
    let(Archive, "catch_up", lambda self, checkpoint: 0)


# ----------------------------------------------------------------------------------------------- the changes


def _gone_table_is_made_anew(let: Let) -> None:
    lines = prepare._require_lines
    let(prepare, "_require_lines", lambda ledger, table, is_there, **more: lines(ledger, table, True, **more))


def _change_not_recorded(kind: type[ChangeRecord]) -> Callable[[Let], None]:
    return lambda let: let(kind, "enter", lambda self, layout: self)


class _Unfenced(Ledger):
    def enter_epoch(self, epoch: int) -> None:
        return None


def _change_fences_nobody(let: Let) -> None:
    let(generations, "Ledger", _Unfenced)


def _change_takes_no_lock(let: Let) -> None:
    let(change, "driver_lock", SimpleNamespace(take=lambda project, query: None))


def _sink_not_reset(let: Let) -> None:
    let(generations.TableReset, "set_aside", lambda self, context, session: None)


def _sink_not_brought_back(let: Let) -> None:
    let(generations.TableReset, "bring_back", lambda self, context, session: None)


def _undo_after_a_new_start(let: Let) -> None:
    """A reset is taken back though the query has run since."""
    let(reset, "Checkpoint", lambda root: SimpleNamespace(last_batch=None))
    let(generations, "_drop_empty", _drop)


def _drop(ledger: Ledger, context: SinkContext) -> None:
    run(ledger.connection, f'DROP TABLE "{ledger.table}"')


def _sink_not_rewound(let: Let) -> None:
    let(sql_rewind.TableRewind, "go_back", lambda self, context, batch, session: None)


def _rewind_leaves_the_lines(let: Let) -> None:
    let(Ledger, "move_lines", lambda self, *names, **of: None)


def _rewind_leaves_the_rows(let: Let) -> None:
    let(sql_rewind.Rewinding, "restore", lambda self, steps, *, saved=0: None)


def _rewind_exchanges_nothing(let: Let) -> None:
    let(rewind_copy, "exchange_in", lambda layout, record: None)


def _moves_are_in_the_way_of_undo(let: Let) -> None:
    let(reset, "end_move", lambda new: None)


def _generation_not_compared(let: Let) -> None:
    let(ResultTable, "require_ours", lambda self, *facts: None)


def _restored_without_its_source_log(let: Let) -> None:
    let(restore, "restore_log", lambda folder, entries, end: None)


DEFECTS = (
    Defect("the epoch is not compared", _epoch_not_compared, 18),
    Defect("the epoch is compared before the transaction alone", _epoch_compared_before_the_transaction_alone, 50),
    Defect("the row of the epoch is not locked", _epoch_not_locked, 50),
    Defect("every start has the same epoch", _epoch_not_counted_on, 0),
    Defect("a start fences others off before it compares", _fence_before_compare, 2),
    Defect("the ledger's line is in before the rows", _line_before_the_rows, 0),
    Defect("the ledger's line is in after the rows", _line_after_the_rows, 0),
    Defect("the ledger has no lines", _no_line, 0),
    Defect("the ledger is not asked under the lock", _batch_not_asked_for_under_the_lock, 50),
    Defect("the ledger is not asked at the next attempt", _batch_not_asked_for_again, 50),
    Defect("another checkpoint is accepted", _verdict_passed_over(OtherCheckpoint), 64),
    Defect("a ledger that lacks batches is accepted", _verdict_passed_over(Behind), 262),
    Defect("the planned batch must be in the ledger", _planned_batch_must_be_in, 5),
    Defect("the chain of the lines is not continued", _chain_not_continued, 1),
    Defect("the ledger keeps no plans", _plans_not_kept, 19),
    Defect("a COMMIT without an answer is taken as done", _lost_commit_taken_as_done, 89),
    Defect("a doubt is forgotten at the next attempt", _doubt_forgotten, 43),
    Defect("a doubt is forgotten with the connection", _doubt_ended_by_a_new_connection, 43),
    Defect("a doubt is never told", _no_doubt, 43),
    Defect("the lease of another is not looked at", _lease_not_looked_at, 6),
    Defect("the lease is not renewed", _lease_not_renewed, 439),
    Defect("the lease's record is not created alone", _lease_not_created_alone, 38),
    Defect("each create is told as the first", _every_create_is_the_first, 38),
    Defect("lost batches are not made again", _lost_batches_not_made_again, 69),
    Defect("lost batches are planned anew", _lost_batches_planned_anew, 69),
    Defect("a batch is restored without its entry of the source's log", _restored_without_its_source_log, 19),
    Defect("a table that is gone is made anew", _gone_table_is_made_anew, 0),
    Defect("a reset keeps no record", _change_not_recorded(ResetRecord), 452),
    Defect("a change fences nobody off", _change_fences_nobody, 216),
    Defect("a change takes no lock", _change_takes_no_lock, 2),
    Defect("a reset leaves the result", _sink_not_reset, 1),
    Defect("an undone reset leaves the result", _sink_not_brought_back, 36),
    Defect("a reset is undone after a new start", _undo_after_a_new_start, 0),
    Defect("a rewind leaves the result", _sink_not_rewound, 216),
    Defect("a rewind leaves the ledger's lines", _rewind_leaves_the_lines, 6),
    Defect("a rewind leaves the rows", _rewind_leaves_the_rows, 6),
    Defect("a rewind leaves the checkpoint", _rewind_exchanges_nothing, 6),
    Defect("a reset's move that was cut off is in the way of its undo", _moves_are_in_the_way_of_undo, 620),
    Defect("a table of another generation is accepted", _generation_not_compared, 105),
    Defect("nothing is archived", _archive_forgets, 0),
)
