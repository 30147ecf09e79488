"""Defects of the commit protocol, put back on purpose: what the product does otherwise while a world happens.

Each takes out one thing that the protocol rests on. `seed`: a world that shows it; another one is looked for where a
change of the product has moved its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from headrace.checkpoint.archive import Archive
from headrace.connectors.exactly_once import BatchWriter, acceptance, batches
from headrace.connectors.exactly_once.acceptance import Ahead, Behind, KeptLine, OtherCheckpoint, Same
from headrace.connectors.sql import prepare
from headrace.connectors.sql.batches import SqlStore
from headrace.connectors.sql.dialect import Transaction, run
from headrace.connectors.sql.ledger import Ledger
from headrace.contract import SinkContext
from headrace.queries import lease
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


def _digests_not_compared_at_start(let: Let) -> None:
    judge = acceptance.judge
    let(acceptance, "judge", lambda lines, here, **more: judge(lines, replace(here, digests={}), **more))
    let(batches, "is_same_batch", lambda line, before, digest: True)


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


def _committed_batch_need_not_be_in(let: Let) -> None:
    judge = acceptance.judge
    let(acceptance, "judge", lambda lines, here, **more: judge(lines, replace(here, committed=None), **more))


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


def _lease_too_short(let: Let) -> None:
    let(lease, "RENEW_SECONDS", 100.0)


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


DEFECTS = (
    Defect("the epoch is not compared", _epoch_not_compared, 37),
    Defect("the epoch is compared before the transaction alone", _epoch_compared_before_the_transaction_alone, 0),
    Defect("the row of the epoch is not locked", _epoch_not_locked, 21),
    Defect("every start has the same epoch", _epoch_not_counted_on, 0),
    Defect("a start fences others off before it compares", _fence_before_compare, 10),
    Defect("the ledger's line is in before the rows", _line_before_the_rows, 0),
    Defect("the ledger's line is in after the rows", _line_after_the_rows, 0),
    Defect("the ledger has no lines", _no_line, 0),
    Defect("the ledger is not asked under the lock", _batch_not_asked_for_under_the_lock, 4),
    Defect("the ledger is not asked at the next attempt", _batch_not_asked_for_again, 0),
    Defect("offsets are not compared at all", _digests_not_compared_at_start, 1137),
    Defect("another checkpoint is accepted", _verdict_passed_over(OtherCheckpoint), 52),
    Defect("a ledger that lacks batches is accepted", _verdict_passed_over(Behind), 54),
    Defect("a ledger without a committed batch is accepted", _committed_batch_need_not_be_in, 54),
    Defect("the planned batch must be in the ledger", _planned_batch_must_be_in, 0),
    Defect("the chain of the lines is not continued", _chain_not_continued, 0),
    Defect("the ledger keeps no plans", _plans_not_kept, 58),
    Defect("a COMMIT without an answer is taken as done", _lost_commit_taken_as_done, 4),
    Defect("a doubt is forgotten at the next attempt", _doubt_forgotten, 485),
    Defect("a doubt is forgotten with the connection", _doubt_ended_by_a_new_connection, 485),
    Defect("a doubt is never told", _no_doubt, 485),
    Defect("the lease of another is not looked at", _lease_not_looked_at, 12),
    Defect("the lease is renewed too seldom", _lease_too_short, 523),
    Defect("the lease is not renewed", _lease_not_renewed, 1349),
    Defect("the lease's record is not created alone", _lease_not_created_alone, 185),
    Defect("each create is told as the first", _every_create_is_the_first, 185),
    Defect("lost batches are not made again", _lost_batches_not_made_again, 82),
    Defect("lost batches are planned anew", _lost_batches_planned_anew, 82),
    Defect("nothing is archived", _archive_forgets, 0),
)
