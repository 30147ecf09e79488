"""Defects of the commit protocol, put back on purpose: what the product does otherwise while a world happens.

Each takes out one thing that the protocol rests on, with a second check of the same where there is one. `seed`: a world
that shows it; another one is looked for where a change of the product has moved its steps. None: few worlds show it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from headrace.changes import adopt, change, pending, rebuild, reset
from headrace.changes.rewind import Rewind
from headrace.checkpoint import handover, restore
from headrace.checkpoint.archive import Archive
from headrace.connectors.exactly_once import BatchWriter, acceptance, batches, text_ledger
from headrace.connectors.exactly_once.acceptance import Ahead, Behind, KeptLine, OtherBatch, OtherCheckpoint, Same
from headrace.connectors.kafka import topic_ledger
from headrace.connectors.kafka.transactions import KafkaStore
from headrace.connectors.sql import generations, preparation, sink_table, takeover
from headrace.connectors.sql import ledger as sql_ledger
from headrace.connectors.sql import rewind as sql_rewind
from headrace.connectors.sql.batches import SqlStore
from headrace.connectors.sql.before_images import BeforeImages
from headrace.connectors.sql.dialect import run
from headrace.connectors.sql.ledger import Ledger
from headrace.connectors.sql.result_table import ResultTable
from headrace.connectors.sql.system_tables import EPOCHS
from headrace.connectors.sql.takeover import TableAdoption
from headrace.connectors.sql.transactions import Transaction
from headrace.contract import SinkContext
from headrace.errors import HeadraceError, PlatformError
from headrace.generations import driver_lock, log, register
from headrace.generations import facts as facts_of_start
from headrace.generations.facts import StartFacts
from headrace.planner import verdict
from headrace.starter import recovery, start
from headrace.storage import numbered
from headrace.storage.durable import replace_file
from headrace.storage.s3 import S3

from .world import World

Let = Callable[[Any, str, Any], None]


@dataclass(frozen=True)
class Defect:
    """what: is otherwise. make: lets it be so. seed: shows it, if one is known, of the worlds about `about`.

    scene: what happens in them.
    """

    what: str
    make: Callable[[Let], None]
    seed: int | None
    about: str = ""
    scene: str = ""

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
        before, own = self._ledger().lines_around(batch)
        return {"before": before, "own": own, "is_in": own is not None}

    let(SqlStore, "standing", blind)


def _epoch_compared_before_the_transaction_alone(let: Let) -> None:
    standing = SqlStore.standing

    def blind(self: SqlStore, batch: int, *, lock: bool = False) -> Any:
        view = standing(self, batch, lock=lock)
        if not lock:
            return view
        before, own = self._ledger().lines_around(batch)
        return replace(view, newer="", before=before, own=own, is_in=own is not None)

    let(SqlStore, "standing", blind)


def _epoch_not_locked(let: Let) -> None:
    epoch = Ledger.epoch
    let(Ledger, "epoch", lambda self, *, lock=False: epoch(self))


def _epoch_not_counted_on(let: Let) -> None:
    enter, made = Ledger.enter_epoch, preparation.Ready
    let(Ledger, "enter_epoch", lambda self, epoch: enter(self, 1))
    let(preparation, "Ready", lambda **facts: made(**{**facts, "epoch": 1}))


def _fence_before_compare(let: Let) -> None:
    make_ready = preparation._make_ready

    def fenced(ledger: Ledger, table: ResultTable, schema: str, *, adds: bool) -> Any:
        ledger.create()
        with Transaction().begin(ledger.connection, ledger.dialect):
            ledger.enter_epoch(ledger.epoch(lock=True) + 1)
        return make_ready(ledger, table, schema, adds=adds)

    let(preparation, "_make_ready", fenced)


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
    standing, views = SqlStore.standing, {}

    def once(self: SqlStore, batch: int, *, lock: bool = False) -> Any:
        if lock:
            return views[self]
        views[self] = standing(self, batch)
        return views[self]

    let(SqlStore, "__hash__", object.__hash__)
    let(SqlStore, "standing", once)


def _batch_not_asked_for_again(let: Let) -> None:
    """An attempt that is made again takes the answer that the first one got."""
    admitted, admissions = BatchWriter._admit, {}

    def once(self: Any, standing: Any, batch: int, work: Any) -> Any:
        if id(work) not in admissions:
            admissions.clear()
            admissions[id(work)] = (work, admitted(self, standing, batch, work))
        return admissions[id(work)][1]

    let(BatchWriter, "_admit", once)
    let(Ledger, "add", _replacing(Ledger.add))


def _replacing(add: Any) -> Any:
    def replaced(self: Ledger, entry: Any, **facts: Any) -> None:
        run(self.connection, "DELETE FROM _headrace_ledger WHERE batch = ?", (entry.line.batch,))
        add(self, entry, **facts)

    return replaced


def _verdict_passed_over(passed: type) -> Callable[[Let], None]:
    def make(let: Let) -> None:
        judge = acceptance.judge

        def blind(lines: Any, here: Any, **more: Any) -> Any:
            verdict = judge(lines, here, **more)
            return Same() if isinstance(verdict, passed) else verdict

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
    """Each attempt begins without a doubt, so that a COMMIT without an answer counts as not written."""
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
    let(driver_lock, "_require_over", lambda folder, number: None)


def _lease_not_renewed(let: Let) -> None:
    let(driver_lock, "_mark_alive", lambda folder, number: None)


def _lease_not_created_alone(let: Let) -> None:
    def put(folder: Any, number: int, facts: Any) -> bool:
        file = numbered.file_of(folder, number)
        replace_file(file, json.dumps(facts))
        return True

    let(driver_lock, "create", put)


def _every_create_is_the_first(let: Let) -> None:
    """A store's answer that the file is there is taken for one of a put of one's own."""

    def create(self: S3, path: str, data: bytes) -> bool:
        with suppress(FileExistsError):
            self._ask("put_object", Key=path.strip("/"), Body=data, IfNoneMatch="*")
        return True

    let(S3, "create", create)


def _lost_batches_not_made_again(let: Let) -> None:
    let(start, "restore_lost_batch", lambda facts: None)


def _plan_lost_batches_again(let: Let) -> None:
    """A checkpoint that is behind goes on with what comes next, and the ledger's batches are skipped by number."""
    _lost_batches_not_made_again(let)
    _verdict_passed_over(Ahead)(let)
    let(batches, "is_same_batch", lambda line, before, digest: True)


def _archive_forgets(let: Let) -> None:
    let(Archive, "catch_up", lambda self, checkpoint: 0)


# ----------------------------------------------------------------------------------------------- the changes


def _make_gone_table_again(let: Let) -> None:
    lines = preparation._require_lines
    let(preparation, "_require_lines", lambda ledger, table, is_there, **more: lines(ledger, table, True, **more))


class _Unfenced(Ledger):
    def enter_epoch(self, epoch: int) -> None:
        return None


def _change_fences_no_driver(let: Let) -> None:
    let(sink_table, "Ledger", _Unfenced)


def _change_takes_no_lock(let: Let) -> None:
    let(change, "driver_lock", SimpleNamespace(take=lambda project, query: None))


def _sink_not_reset(let: Let) -> None:
    let(generations.TableReset, "archive", lambda self, context, session: None)


def _sink_not_brought_back(let: Let) -> None:
    let(generations.TableReset, "restore", lambda self, context, session: None)


def _undo_after_a_new_start(let: Let) -> None:
    """A reset is taken back though the query has run since."""
    let(reset, "Checkpoint", lambda root: SimpleNamespace(last_batch=None, last_committed=None))
    let(generations, "_drop_empty", _drop)


def _drop(ledger: Ledger, context: SinkContext) -> None:
    run(ledger.connection, f'DROP TABLE "{ledger.table}"')


def _sink_not_rewound(let: Let) -> None:
    let(sql_rewind.TableRewind, "go_back", lambda self, context, batch, session: None)


def _rewind_leaves_the_lines(let: Let) -> None:
    let(Ledger, "move_lines", lambda self, *names, **of: None)


def _rewind_leaves_the_rows(let: Let) -> None:
    let(sql_rewind.Rewinding, "restore", lambda self, steps, *, saved=0: None)


def _older_storage_accepted(let: Let) -> None:
    """Neither the mark nor the generation of the table is compared at a start."""
    _start_ignores_the_mark(let)
    let(ResultTable, "require_ours", lambda self, *facts: None)


def _restored_without_its_source_log(let: Let) -> None:
    let(restore, "restore_log", lambda folder, entries, end: None)


# -------------------------------------------------------------------------------------- of several steps each


def _digests_not_compared(let: Let) -> None:
    """Neither at a start nor at a batch: the plans of a batch are taken for the same by its number."""
    _verdict_passed_over(OtherBatch)(let)
    let(batches, "is_same_batch", lambda line, before, digest: True)


def _committed_batch_may_be_missing(let: Let) -> None:
    judge = acceptance.judge
    let(acceptance, "judge", lambda lines, here, **more: judge(lines, replace(here, committed=None), **more))


def _row_of_the_epoch_made_late(let: Let) -> None:
    """The row that drivers lock is made by the first of them that enters its epoch: there is none to lock before."""
    run_one = Ledger.run

    def without(self: Ledger, statement: str, *values: Any) -> None:
        if EPOCHS.name not in statement or not statement.startswith("INSERT"):
            run_one(self, statement, *values)

    def enter(self: Ledger, epoch: int) -> None:
        made = self.dialect.insert_into(EPOCHS.name, ("application", "query_id", "query", "epoch"))
        then = "VALUES (?, ?, ?, ?) ON CONFLICT (application, query_id) DO UPDATE SET epoch = excluded.epoch"
        run_one(self, f"{made} {then}", *self._driver, self.context.query, epoch)

    let(Ledger, "run", without)
    let(Ledger, "enter_epoch", enter)


def _ledger_read_before_the_lock(let: Let) -> None:
    """A start compares the ledger with the checkpoint first, and locks then."""
    make_ready, compare = preparation._make_ready, preparation._require_lines

    def early(ledger: Ledger, table: ResultTable, schema: str, *, adds: bool) -> Any:
        ledger.create()
        compare(ledger, table, ledger.has_table(table.name))
        return make_ready(ledger, table, schema, adds=adds)

    let(preparation, "_require_lines", lambda *_, **__: None)
    let(preparation, "_make_ready", early)


def _owner_not_entered(let: Let) -> None:
    let(Ledger, "own", lambda self, schema, made_for=None: None)


def _behind_is_not_tried_again(let: Let) -> None:
    """An older driver has committed a batch while the start waited for it: the start is refused."""
    let(start, "CheckpointBehind", type("Nothing", (Exception,), {}))


def _before_images_after_the_rows(let: Let) -> None:
    """What a batch replaces is looked for once it is replaced."""
    write = SqlStore._write

    def late(self: SqlStore, connection: Any, batch: int, content: Any) -> Any:
        done = write(self, connection, batch, content)
        if self.rewindable_seconds:
            images = self._before()
            images.keep_content(images.begin(batch, "batch"), content)
        return done

    let(BeforeImages, "keep_batch", lambda self, batch, content: None)
    let(SqlStore, "_write", late)


def _lease_renewed_too_seldom(let: Let) -> None:
    let(driver_lock, "RENEW_SECONDS", 1.5 * driver_lock.LEASE_SECONDS)


def _lease_never_ends(let: Let) -> None:
    let(driver_lock, "LEASE_SECONDS", float("inf"))


def _lease_of_its_own_clock(let: Let) -> None:
    """A lease is judged by the clock of who asks, and by no file of the store."""
    modified = driver_lock._time_of

    def over(folder: Any, number: int) -> None:
        record, free, alive = (numbered.file_of(folder, number, ending) for ending in (".json", ".free", ".alive"))
        if free.exists() or not record.exists():
            return
        now = batches.time.time()
        silent = now - max(modified(alive), modified(record))
        if silent <= driver_lock.LEASE_SECONDS:
            raise driver_lock.LeaseHeld(None, silent)

    let(driver_lock, "_require_over", over)


def _lease_removed_at_its_end(let: Let) -> None:
    """A lease that is given back leaves no record, so that its number is given twice."""
    release = driver_lock.Lease.release

    def removed(self: Any) -> None:
        release(self)
        with suppress(OSError, HeadraceError):
            driver_lock._remove(self.folder, self._number)

    let(driver_lock.Lease, "release", removed)


def _lease_taken_before_its_look(let: Let) -> None:
    """The records of others are removed before one's own is there."""
    create = driver_lock.create

    def late(folder: Any, number: int, facts: Any) -> bool:
        for other in numbered.numbers_in(folder):
            driver_lock._remove(folder, other)
        return create(folder, number, facts)

    let(driver_lock, "create", late)


def _lock_given_back_at_once(let: Let) -> None:
    """A driver has the lock for its start alone."""
    start_query = start.start_query

    def forgetful(request: Any) -> Any:
        running = start_query(request)
        if running.lock is not None:
            running.lock.release()
        return running

    let(start, "start_query", forgetful)


def _start_takes_no_lock(let: Let) -> None:
    let(
        start,
        "driver_lock",
        SimpleNamespace(
            starting=lambda project, query: nullcontext(register.register_query(project, query) and None),
            require_held=lambda project, query, folder: None,
        ),
    )


def _start_over_half_a_change(let: Let) -> None:
    let(facts_of_start, "cut_offs", lambda _: ())


def _restored_without_its_records(let: Let) -> None:
    """A directory that is restored has the checkpoint alone, and nothing of what lies next to it."""
    let(log, "copy_directory", lambda layout, new, **_: None)


def _restored_by_the_plan_before(let: Let) -> None:
    """A lost batch is planned again as the batch before it was."""
    make = restore.restore

    def shifted(checkpoint: Any, lost: Any) -> None:
        before = lost.plans.get(lost.first - 1, lost.plans[lost.first])
        plans = {**lost.plans, lost.first: replace(lost.plans[lost.first], offsets=before.offsets)}
        make(checkpoint, replace(lost, plans=plans))

    let(recovery, "restore", shifted)


def _archive_keeps_what_was_rewound(let: Let) -> None:
    let(Archive, "void_after", lambda self, batch: None)


def _archive_keeps_what_was_lost(let: Let) -> None:
    """Of a batch that is planned again the archive keeps the first plan."""
    compare = Archive._compare

    def blind(self: Archive, checkpoint: Any) -> int:
        files = self._read_files(0)
        write = self._write
        self._write = lambda lines, fresh: write(  # type: ignore[method-assign]
            [], [line for line in fresh if line.entry.batch not in files]
        )
        try:
            return compare(self, checkpoint)
        finally:
            del self._write

    let(Archive, "_compare", blind)


def _rewind_copies_later_batches(let: Let) -> None:
    """With what the source's log has of them: without it the next start would bring the copy back by itself."""
    let(restore, "_is_later", lambda inside, root, batch: False)
    let(restore.Past, "_log_ends", lambda self, reached: {})


def _rewind_undone_after_a_new_start(let: Let) -> None:
    let(Rewind, "_require_not_run", lambda self, record: None)
    let(sql_rewind.Rewinding, "is_ahead", lambda self, batch: False)


def _undone_rewind_leaves_the_lines(let: Let) -> None:
    move = Ledger.move_lines

    def moved(self: Ledger, former: str, *names: Any, **of: Any) -> None:
        if not former.endswith("_void"):
            move(self, former, *names, **of)

    let(Ledger, "move_lines", moved)


def _later_rewind_keeps_the_earlier(let: Let) -> None:
    """What an earlier rewind has taken off is in the way of a later one."""
    let(sql_rewind, "_forget", lambda found: None)


def _discard_forgets_the_live(let: Let) -> None:
    """What is kept of the generation in use is deleted with those that were set aside."""
    discard = generations.TableReset.discard
    _discard_of_the_result_in_use(let)

    def more(self: Any, context: SinkContext, session: Any) -> None:
        discard(self, context, session)
        discard(self, replace(context, generation=context.generation + 1), session)

    let(generations.TableReset, "discard", more)


def _swap_while_a_driver_runs(let: Let) -> None:
    """The results are exchanged while a driver may run the query."""
    let(rebuild.Rebuild, "_hold_stopped", lambda self, wait: nullcontext())


def _swap_leaves_the_lines(let: Let) -> None:
    let(Ledger, "rename_table", lambda self, name: None)


def _swap_back_leaves_the_table(let: Let) -> None:
    let(generations.TableSwap, "swap_out", lambda self, context, rebuilt, session: None)


def _last_batches_not_rebuilt(let: Let) -> None:
    """What came in while the rebuilt result was looked at is not brought in before the exchange."""
    catch_up = World._catch_up

    def once(self: World, alongside: Any, query: Any, session: Any, reporter: object) -> bool:
        done, session.caught_up = getattr(session, "caught_up", False), True
        return done or catch_up(self, alongside, query, session, reporter)

    let(World, "_catch_up", once)


# --------------------------------------------------------------------------------------------------- into Kafka


def _topic_fences_before_it_compares(let: Let) -> None:
    let(KafkaStore, "_compare", lambda self, result: None)


def _begin_gone_ledger_again(let: Let) -> None:
    """Where the ledger has nothing of the query, its checkpoint is not compared."""
    fit = text_ledger.require_lines_fit

    def require_if_begun(context: SinkContext, table: str, lines: Any, *, begun: bool = True, **more: Any) -> None:
        if begun:
            fit(context, table, lines, begun=begun, **more)

    let(text_ledger, "require_lines_fit", require_if_begun)


def _gone_messages_not_looked_for(let: Let) -> None:
    let(topic_ledger, "require_messages", lambda target, context, own: None)


def _lost_topic_commit_taken_as_done(let: Let) -> None:
    transact = KafkaStore._transact

    def hopeful(self: KafkaStore, known: Any, rows: Any, batch: int, admitted: Any) -> None:
        try:
            transact(self, known, rows, batch, admitted)
        except Exception:
            if not self._is_in_doubt:
                raise

    let(KafkaStore, "_transact", hopeful)


def _no_topic_doubt(let: Let) -> None:
    fate = KafkaStore.fate
    let(KafkaStore, "fate", lambda self, batch, *, is_in_doubt: fate(self, batch, is_in_doubt=False))


def _topic_ledger_not_read_again(let: Let) -> None:
    """After a transaction that failed, what was known of the ledger before is taken as it is now."""
    disconnect = KafkaStore.disconnect

    def keep(self: KafkaStore) -> None:
        view = self.known
        disconnect(self)
        self.known = view

    def current(self: KafkaStore) -> Any:
        self._connect()
        return self.known or self._existing()

    let(KafkaStore, "disconnect", keep)
    let(KafkaStore, "_current", current)


def _topic_line_of_its_own(let: Let) -> None:
    """The ledger's line is in a transaction of its own, after that of the rows."""
    send = KafkaStore._send

    def apart(self: KafkaStore, client: Any, records: Any) -> None:
        if any(not key.endswith("/head") for key in records):
            client.commit_transaction(60.0)
            client.begin_transaction()
        send(self, client, records)

    let(KafkaStore, "_send", apart)


def _no_second_look_at_a_first_start(let: Let) -> None:
    """A first start does not look whether a copy of the storage has entered the ledger topic meanwhile."""
    let(KafkaStore, "_require_alone", lambda self, client, begun: None)


def _change_goes_on_without_its_lease(let: Let) -> None:
    let(change.Change, "_require_locked", lambda self: None)


def _discard_of_the_result_in_use(let: Let) -> None:
    let(generations, "_require_set_aside", lambda ledger, name: None)


def _restored_over_half_a_change(let: Let) -> None:
    """A start makes lost batches again in a directory of which a change that was cut off has moved a part away."""
    made = start.restore_lost_batch

    def restored(facts: StartFacts) -> Any:
        others = replace(facts)
        others.__dict__["cut_offs"] = ()
        return made(others)

    let(start, "restore_lost_batch", restored)


def _restored_in_place(let: Let) -> None:
    """The live directory itself is brought to the lost batch, and no record says so."""

    def in_place(facts: StartFacts) -> Any:
        try:
            lost, _ = recovery._find_lost(facts)
        except HeadraceError:
            return None
        if lost is not None:
            restore.restore(facts.checkpoint, lost)
        return lost

    let(start, "restore_lost_batch", in_place)


def _restored_directory_live_before_it_is_made(let: Let) -> None:
    append = log.append

    def early(folder: Any, query: str, record: log.LogRecord) -> log.LogRecord:
        made = append(folder, query, record)
        return append(folder, query, made.with_restored(made.live)) if record.restoring is not None else made

    let(log, "append", early)


def _restored_with_the_next_free_number(let: Let) -> None:
    append = log.append

    def free(folder: Any, query: str, record: log.LogRecord) -> log.LogRecord:
        newest = log.read_log(folder)
        return append(folder, query, record if newest is None else replace(record, number=newest.number))

    let(log, "append", free)


def _restored_without_the_live_one(let: Let) -> None:
    """The record that a directory is restored leaves the one with the loss as the live one."""
    let(log.LogRecord, "with_restored", lambda self, lost: replace(self, restoring=None))


def _register_looks_for_the_new_name_alone(let: Let) -> None:
    require = register.require_known
    let(register, "require_known", lambda storage, kept, query, former=(): require(storage, kept, query))


# -------------------------------------------------------------------------------------------- the log and the mark


def _log_takes_the_next_free_number(let: Let) -> None:
    append = log.append

    def free(folder: Any, query: str, record: log.LogRecord) -> log.LogRecord:
        newest = log.read_log(folder)
        return append(folder, query, record if newest is None else replace(record, number=newest.number))

    let(change, "append", free)


def _not_written(*kinds: str, again: bool = False) -> Callable[[Let], None]:
    """Records of these kinds are not written; again: those alone that continue what was begun."""

    def make(let: Let) -> None:
        append = log.append

        def silent(folder: Any, query: str, record: log.LogRecord) -> log.LogRecord:
            if record.kind in kinds and (record.of or not again):
                return replace(record, of=record.of or record.number + 1)
            return append(folder, query, record)

        let(change, "append", silent)

    return make


def _done_before_the_sink(let: Let) -> None:
    move = reset.Reset._move

    def late(self: reset.Reset, context: SinkContext, result: Any) -> None:
        self._complete()
        move(self, context, result)

    let(reset.Reset, "_move", late)


def _sink_keeps_no_mark(let: Let) -> None:
    begin = Ledger.begin_change
    let(Ledger, "begin_change", lambda self: begin(replace(self, context=replace(self.context, mark=None))))


def _change_ignores_the_mark(let: Let) -> None:
    let(sql_ledger, "is_applied", lambda context, kept: False)


def _start_ignores_the_mark(let: Let) -> None:
    let(preparation, "is_applied", lambda context, kept: False)


def _rewound_in_place(let: Let) -> None:
    let(Rewind, "_next", lambda self, generation: self.record.live)


def _directory_used_again(let: Let) -> None:
    """A directory has the number of the one before plus one, which a command that was cut off may have used."""
    let(
        change.Change,
        "_next",
        lambda self, generation: log.Directory(generation=generation, made=self.record.live.made + 1),
    )


def _part_of_a_directory_taken_as_whole(let: Let) -> None:
    let(log.QueryLayout, "made_by", property(lambda self: self.checkpoint / "metadata"))
    let(change, "enter_made", lambda *_: None)


def _lost_change_of_any_token(let: Let) -> None:
    """Of the changes that the log lacks the newest one is entered, whatever the sink has seen."""

    def find(layout: log.QueryLayout, mark: object) -> log.LogRecord | None:
        return max(log.lost_changes(layout), key=lambda record: record.number, default=None)

    let(pending, "find_lost", find)


def _live_directory_deleted_late(let: Let) -> None:
    reachable = log.LogRecord.is_reachable
    let(
        log.LogRecord,
        "is_reachable",
        lambda self, directory: directory.made <= self.number and reachable(self, directory),
    )


def _undone_without_the_sink(let: Let) -> None:
    let(change.Change, "_undo_fails", change.Change._end_undoing)


# --------------------------------------------------------------------------------------------------- the register


def _rename_gives_a_new_id(let: Let) -> None:
    """A query by a new name is a new query, whatever it was called before."""
    find = register.find_entry
    let(register, "find_entry", lambda storage, register, query, former: find(storage, register, query, ()))


def _register_overwritten(let: Let) -> None:
    """Of two writers of one record of the register the last one counts."""

    def put(folder: Any, number: int, facts: Any) -> bool:
        replace_file(numbered.file_of(folder, number), json.dumps({"number": number, "token": "", **facts}))
        return True

    let(register, "numbered", SimpleNamespace(**{**vars(numbered), "create": put}))


def _next_free_number(let: Let) -> None:
    """Who finds its number taken takes the next one that is free, over what it has not read."""

    def create(folder: Any, number: int, facts: Any) -> bool:
        while not numbered.create(folder, number, facts):
            number += 1
        return True

    let(register, "numbered", SimpleNamespace(**{**vars(numbered), "create": create}))


def _unreadable_record_passed_over(let: Let) -> None:
    """Where the newest record of the register cannot be read, the one before it counts; without any, there is none."""
    read = register.read_register

    def older(storage: Any) -> Any:
        try:
            return read(storage)
        except PlatformError:
            folder = storage / register.FOLDER
            for number in reversed(numbered.numbers_in(folder)[:-1]):
                with suppress(ValueError):
                    facts = json.loads(numbered.file_of(folder, number).read_text())
                    return replace(register._register_of(facts), number=numbers_of(folder)[-1])
            return None

    numbers_of = numbered.numbers_in
    for module in (register, facts_of_start, verdict):
        let(module, "read_register", older)


def _id_drawn_over_a_directory(let: Let) -> None:
    """A query that the register does not know gets an id, whatever directory it had."""
    let(register, "_list_unregistered", lambda storage, known, query: iter(()))


def _lost_register_is_a_first_run(let: Let) -> None:
    let(register, "_unknown_use", lambda storage: None)
    _id_drawn_over_a_directory(let)


def _lost_directory_begun_again(let: Let) -> None:
    """The register may come without the directories that it names, as where it alone was copied."""
    let(register, "QUERY_FILE", "")
    find = register.find_entry

    def find_or_enter(storage: Any, known: Any, query: str, former: Any) -> Any:
        entry = find(storage, known, query, former)
        if entry is not None:
            register.enter_directory(storage, entry, known, query)
        return entry

    let(register, "find_entry", find_or_enter)


def _application_drawn_again(let: Let) -> None:
    """The application is drawn for each record of the register."""
    append = register.append
    let(register, "append", lambda storage, known: append(storage, replace(known, application=str(uuid.uuid4()))))


def _lost_answer_is_a_record_of_ours(let: Let) -> None:
    """Where the answer to a create is lost, the record is taken for one's own, also if another has written it."""

    def create(folder: Any, number: int, facts: Any) -> bool:
        try:
            return numbered.create(folder, number, facts)
        except (OSError, HeadraceError):
            return True

    let(register, "numbered", SimpleNamespace(**{**vars(numbered), "create": create}))
    let(driver_lock, "create", create)


def _lease_not_compared_after_its_record(let: Let) -> None:
    """Who has written its record has the lease, though another one has written a later one meanwhile."""

    def taken(folder: Any, started: str) -> Any:
        while True:
            numbers = numbered.numbers_in(folder)
            mine = max(numbers, default=0) + 1
            if numbers:
                driver_lock._require_over(folder, mine - 1)
            if driver_lock.create(folder, mine, {"holder": asdict(driver_lock.Holder.here(started))}):
                for number in numbers:
                    driver_lock._remove(folder, number)
                return driver_lock.Lease(folder, mine)

    let(driver_lock, "take_lease", taken)


def _lease_held_for_ever(let: Let) -> None:
    """Who had the lease once has it, also if another has taken it since."""
    let(driver_lock.Lease, "is_held", True)


def _lease_of_another_given_back(let: Let) -> None:
    """Who gives its lease back ends the newest one."""
    end = driver_lock._end
    let(driver_lock, "_end", lambda folder, number: end(folder, max(numbered.numbers_in(folder), default=number)))


def _holder_counts_as_ended(let: Let) -> None:
    """Who has a lease counts as a process of this machine that has ended."""
    let(driver_lock.Holder, "is_known_dead", True)


def _other_id_accepted(let: Let) -> None:
    """A ledger, or a table, of another id is accepted if it is of a query of this name."""
    let(topic_ledger, "_require_one_query", lambda records, context: None)


# -------------------------------------------------------------------------------------------------- an adoption


def _adoption_takes_over_nothing(let: Let) -> None:
    let(TableAdoption, "take_over", lambda self, frame, context, batch: None)


def _adoption_without_its_line(let: Let) -> None:
    take = TableAdoption.take_over
    let(TableAdoption, "take_over", lambda self, frame, context, batch: take(self, frame, context, None))


def _adoption_is_done_first(let: Let) -> None:
    """The copy is live before the sink records whose its rows are."""
    make = adopt.Adopt._make

    def early(self: adopt.Adopt, *given: Any) -> None:
        make(self, *given)
        self._complete()

    let(adopt.Adopt, "_make", early)


def _planned_batch_is_written(let: Let) -> None:
    """The batch that the former job has planned last is taken as written."""
    let(adopt.Adopt, "_last_written", lambda self, recorded: self.old.last_batch)


def _planned_batch_is_not_written(let: Let) -> None:
    let(adopt.Adopt, "_last_written", lambda self, recorded: self.old.last_committed)


def _adoption_begins_with_its_sources(let: Let) -> None:
    """What the former job has read is left out of the copy."""
    let(handover, "_targets", lambda inside, names: [])


def _adopted_rows_of_another(let: Let) -> None:
    """An adoption goes on over batches that the query has made."""
    let(takeover, "_require_free", lambda ledger, **_: None)
    let(takeover, "_is_entered", lambda last, line: False)
    let(ResultTable, "require_ours", lambda self, *facts: None)


DEFECTS = (
    Defect("the epoch is not compared", _epoch_not_compared, 38),
    Defect(
        "the epoch is compared before the transaction alone",
        _epoch_compared_before_the_transaction_alone,
        3,
        "starts",
    ),
    Defect("the row of the epoch is not locked", _epoch_not_locked, 0, "starts"),
    Defect("every start has the same epoch", _epoch_not_counted_on, 2),
    Defect("a start fences others off before it compares", _fence_before_compare, 38),
    Defect("the ledger's line is in before the rows", _line_before_the_rows, 0),
    Defect("the ledger's line is in after the rows", _line_after_the_rows, 0),
    Defect("the ledger has no lines", _no_line, 0),
    Defect("the ledger is not asked under the lock", _batch_not_asked_for_under_the_lock, 6, "starts"),
    Defect("the ledger is not asked at the next attempt", _batch_not_asked_for_again, 2),
    Defect("another checkpoint is accepted", _verdict_passed_over(OtherCheckpoint), 94),
    Defect("a ledger that lacks batches is accepted", _verdict_passed_over(Behind), 57, "losses"),
    Defect("the planned batch must be in the ledger", _planned_batch_must_be_in, 14),
    Defect("the chain of the lines is not continued", _chain_not_continued, 2),
    Defect("the ledger keeps no plans", _plans_not_kept, 2, "losses"),
    Defect(
        "a COMMIT without an answer is taken as done",
        _lost_commit_taken_as_done,
        7,
        "scenes",
        "start, unsure, start, start",
    ),
    Defect("a doubt is forgotten at the next attempt", _doubt_forgotten, 2, "scenes", "start, unsure, start, start"),
    Defect(
        "a doubt is forgotten with the connection",
        _doubt_ended_by_a_new_connection,
        2,
        "scenes",
        "start, unsure, start, start",
    ),
    Defect("a doubt is never reported", _no_doubt, 2, "scenes", "start, unsure, start, start"),
    Defect("the lease of another is not looked at", _lease_not_looked_at, 41),
    Defect("the lease is not renewed", _lease_not_renewed, 124),
    Defect("the lease's record is not created alone", _lease_not_created_alone, 139, "registers"),
    Defect("each create is reported as the first", _every_create_is_the_first, 58, "registers"),
    Defect("lost batches are not made again", _lost_batches_not_made_again, 12, "losses"),
    Defect("lost batches are planned again", _plan_lost_batches_again, 9, "losses"),
    Defect("a batch is restored without its entry of the source's log", _restored_without_its_source_log, 12, "losses"),
    Defect("a table that is gone is made again", _make_gone_table_again, 0),
    Defect(
        "a change fences no driver off",
        _change_fences_no_driver,
        1,
        "scenes",
        "start, start*sql SELECT _headrace_epochs, rewind",
    ),
    Defect("a change takes no lock", _change_takes_no_lock, None, "stops"),
    Defect("a reset leaves the result", _sink_not_reset, 2, "changes"),
    Defect("an undone reset leaves the result", _sink_not_brought_back, 24, "changes"),
    Defect("a reset is undone after a new start", _undo_after_a_new_start, 264, "changes"),
    Defect("a rewind leaves the result", _sink_not_rewound, 21, "changes"),
    Defect("a rewind leaves the ledger's lines", _rewind_leaves_the_lines, 8, "changes"),
    Defect("a rewind leaves the rows", _rewind_leaves_the_rows, 8, "changes"),
    Defect(
        "a storage from before a reset is accepted",
        _older_storage_accepted,
        0,
        "scenes",
        "start, copy, reset, start, copy1 start, start",
    ),
    Defect("nothing is archived", _archive_forgets, 0),
    Defect(
        "the digests of a batch are compared neither at a start nor at the batch",
        _digests_not_compared,
        2,
        "scenes",
        "start, copy, copy1 start!1sql INSERT _headrace_ledger, start1, copy1 start",
    ),
    Defect(
        "a committed batch may be missing in the ledger",
        _committed_batch_may_be_missing,
        0,
        "scenes",
        "start, back up, start1, bring back, start",
    ),
    Defect("the row of the epoch is made late", _row_of_the_epoch_made_late, None, "starts"),
    Defect("the ledger is read before the lock", _ledger_read_before_the_lock, 99, "starts"),
    Defect("the owner of the table is not entered", _owner_not_entered, 0),
    Defect("a start that is overtaken is refused", _behind_is_not_tried_again, None, "starts"),
    Defect("what a batch replaces is kept after it", _before_images_after_the_rows, 12, "changes"),
    Defect("the lease is renewed too seldom", _lease_renewed_too_seldom, None),
    Defect("a lease never ends", _lease_never_ends, 3),
    Defect("a lease is judged by one's own clock", _lease_of_its_own_clock, 124),
    Defect(
        "a lease that is given back is removed",
        _lease_removed_at_its_end,
        6,
        "scenes",
        "start, rewind*120, start, start&, wake",
    ),
    Defect(
        "the leases of others are removed before one's own is there", _lease_taken_before_its_look, 139, "registers"
    ),
    Defect("the lock is given back after the start", _lock_given_back_at_once, 21),
    Defect("a start takes no lock", _start_takes_no_lock, 8),
    Defect("a start passes over a change that was cut off", _start_over_half_a_change, 138, "changes"),
    Defect(
        "a restored directory lacks what lies next to the checkpoint", _restored_without_its_records, None, "losses"
    ),
    Defect(
        "a lost batch gets the plan of the one before",
        _restored_by_the_plan_before,
        0,
        "scenes",
        "start, lose, start!80, start",
    ),
    Defect("the archive keeps what was rewound", _archive_keeps_what_was_rewound, 25, "changes"),
    Defect("the archive keeps the first plan of a batch", _archive_keeps_what_was_lost, None, "losses"),
    Defect(
        "a rewind copies later batches",
        _rewind_copies_later_batches,
        0,
        "scenes",
        "start, rewind, start, rewind, undo, start",
    ),
    Defect("a rewind is undone after a new start", _rewind_undone_after_a_new_start, 21, "changes"),
    Defect("an undone rewind leaves the ledger's lines", _undone_rewind_leaves_the_lines, 25, "changes"),
    Defect(
        "a later rewind keeps what an earlier one took off",
        _later_rewind_keeps_the_earlier,
        0,
        "scenes",
        "start, rewind, start, rewind, undo, start",
    ),
    Defect(
        "a discard forgets the generation in use",
        _discard_forgets_the_live,
        0,
        "scenes",
        "start, reset, start, discard, start, rewind",
    ),
    Defect("a writer of the log takes the next free number", _log_takes_the_next_free_number, 322, "changes"),
    Defect("a change enters no intent", _not_written("intent"), 6, "changes"),
    Defect("an undoing is not entered", _not_written("undoing"), 56, "changes"),
    Defect("who continues a change enters no record", _not_written("intent", "undoing", again=True), 23, "changes"),
    Defect("a reset is done before the sink", _done_before_the_sink, 36, "changes"),
    Defect("the sink keeps no mark", _sink_keeps_no_mark, 19, "scenes", "start, rewind*sql BEGIN, undo, start, wake"),
    Defect(
        "a change ignores the mark",
        _change_ignores_the_mark,
        19,
        "scenes",
        "start, rewind*sql BEGIN, undo, start, wake",
    ),
    Defect("a start ignores the mark", _start_ignores_the_mark, None, "stops"),
    Defect("a query is rewound in its live directory", _rewound_in_place, 21, "changes"),
    Defect(
        "the number of a directory is used again",
        _directory_used_again,
        49,
        "scenes",
        "start, rewind*30/g1.2/, resume, start, wake",
    ),
    Defect(
        "a part of a directory is taken as whole",
        _part_of_a_directory_taken_as_whole,
        5,
        "scenes",
        "start, rewind!30/g1.2/, resume, start",
    ),
    Defect(
        "a lost change is entered whatever the sink's token is",
        _lost_change_of_any_token,
        0,
        "scenes",
        "start, rewind, start, reset!1sql UPDATE _headrace_epochs, lose log, start, resume, start",
    ),
    Defect(
        "a late process deletes the live directory",
        _live_directory_deleted_late,
        35,
        "scenes",
        "start, rewind*3 list\\S* /?headrace/queries/q-\\w+/?$, rewind, start, wake",
    ),
    Defect(
        "an undoing that the sink refuses is done",
        _undone_without_the_sink,
        0,
        "scenes",
        "start, rewind, silence, undo, start",
    ),
    Defect("a renamed query gets another id", _rename_gives_a_new_id, 1, "renames"),
    Defect(
        "a rebuild is exchanged while a driver runs",
        _swap_while_a_driver_runs,
        33,
        "scenes",
        "start, rebuild*6/log/0000, start&, wake",
    ),
    Defect("a rebuild leaves the ledger's lines", _swap_leaves_the_lines, 1, "changes"),
    Defect("an undone rebuild leaves the table", _swap_back_leaves_the_table, 19, "changes"),
    Defect("a rebuild lacks the newest batches", _last_batches_not_rebuilt, 51, "stops"),
    Defect("Kafka: a start fences others off before it compares", _topic_fences_before_it_compares, 89),
    Defect("Kafka: a ledger topic that is gone is begun again", _begin_gone_ledger_again, 308),
    Defect("Kafka: a topic that was made again is accepted", _gone_messages_not_looked_for, 102),
    Defect("Kafka: a commit without an answer is taken as done", _lost_topic_commit_taken_as_done, 72),
    Defect("Kafka: a doubt is never reported", _no_topic_doubt, 2, "topics"),
    Defect("Kafka: the ledger is not read again after a failure", _topic_ledger_not_read_again, 146),
    Defect("Kafka: the ledger's line is a transaction of its own", _topic_line_of_its_own, 1),
    Defect("Kafka: no second look at a first start", _no_second_look_at_a_first_start, 1374, "registers"),
    Defect("a change goes on without its lease", _change_goes_on_without_its_lease, 29, "stops"),
    Defect(
        "a discard deletes the result in use",
        _discard_of_the_result_in_use,
        0,
        "scenes",
        "start, back up, reset, start, bring back, discard, start",
    ),
    Defect(
        "lost batches are made again over half a change",
        _restored_over_half_a_change,
        1,
        "scenes",
        "start, rewind!80, lose, start, resume, start",
    ),
    Defect(
        "lost batches are made again in the live directory",
        _restored_in_place,
        0,
        "scenes",
        "start, lose, start!80, start",
    ),
    Defect(
        "a directory is live before it is restored",
        _restored_directory_live_before_it_is_made,
        6,
        "scenes",
        "start, lose, start!30/g1.2/, start",
    ),
    Defect(
        "who restores takes the next free number",
        _restored_with_the_next_free_number,
        0,
        "scenes",
        "start, lose, start*30/g1.2/, start, start, wake",
    ),
    Defect("a restored directory is not the live one", _restored_without_the_live_one, 2, "losses"),
    Defect(
        "a lost register looks for the new name alone",
        _register_looks_for_the_new_name_alone,
        0,
        "scenes",
        "register, start, rename, forget",
    ),
    Defect("a record of the register is overwritten", _register_overwritten, 28, "registers"),
    Defect("the next free number of the register is taken", _next_free_number, 28, "registers"),
    Defect("an unreadable record of the register is passed over", _unreadable_record_passed_over, 85, "registers"),
    Defect("an id is drawn over a directory", _id_drawn_over_a_directory, 45, "registers"),
    Defect("a lost register is taken for a first run", _lost_register_is_a_first_run, 5, "registers"),
    Defect("a register without its directories is accepted", _lost_directory_begun_again, 1, "registers"),
    Defect("each record of the register has another application", _application_drawn_again, 14, "registers"),
    Defect(
        "a record whose answer was lost is taken for one's own",
        _lost_answer_is_a_record_of_ours,
        None,
        "scenes",
        "start, fail, start&, start",
    ),
    Defect("a ledger of another id is accepted", _other_id_accepted, 14, "registers"),
    Defect(
        "a lease is not compared after its record",
        _lease_not_compared_after_its_record,
        None,
        "scenes",
        "start, start*.leases/0000, start, start&, wake, start",
    ),
    Defect("a lease is held for ever", _lease_held_for_ever, 5, "stops"),
    Defect(
        "the lease of another is given back",
        _lease_of_another_given_back,
        7,
        "scenes",
        "start, start*, start&, wake, start",
    ),
    Defect("the holder of a lease counts as ended", _holder_counts_as_ended, 38),
    Defect("an adoption takes over nothing", _adoption_takes_over_nothing, 0, "adoptions"),
    Defect("an adoption enters no line", _adoption_without_its_line, 0, "adoptions"),
    Defect("an adoption is done before the sink", _adoption_is_done_first, 17, "adoptions"),
    Defect("a former job's planned batch is taken as written", _planned_batch_is_written, 10, "adoptions"),
    Defect("a former job's planned batch is taken as not written", _planned_batch_is_not_written, 0, "adoptions"),
    Defect("an adoption leaves the source's log out", _adoption_begins_with_its_sources, 0, "adoptions"),
    Defect(
        "an adoption goes on over the query's batches",
        _adopted_rows_of_another,
        0,
        "scenes",
        "former, adopt, start, lose all, adopt, start",
    ),
)
