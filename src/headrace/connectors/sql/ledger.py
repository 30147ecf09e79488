"""The ledger in a sink's own database: the batches that are in, the newest driver, the owner of each table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from headrace.checkpoint import PlannedBatch
from headrace.connectors.exactly_once import Admitted, KeptLine, is_applied, plans
from headrace.connectors.sql.system_tables import (
    BEFORE,
    CHANGES,
    EPOCHS,
    FORMS,
    LEDGER,
    MINE,
    QUARANTINE,
    REPLAYS,
    TABLES,
    OwnLines,
    OwnTable,
    make_all,
)
from headrace.contract import Mark, SinkContext

# Spark repeats only the last batch; older lines are for people, and are deleted at some time.
KEPT_BATCHES = 10_000
# As many as Spark keeps: lost checkpoint entries are restored from them.
KEPT_PLANS = 100
_PRUNE_EVERY = 100
_NO_BATCH = 1 << 60
_MADE_FOR = "made_for_key"
# The row of a query's drivers, by `Ledger._driver`.
_DRIVER = "application = ? AND query_id = ?"


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Which query's result a table holds, and the result's schema as Spark's JSON, with the key of `made_for`."""

    query_id: str
    query: str
    generation: int
    schema: str
    application: str
    project: str = ""

    @property
    def made_for(self) -> list[str] | None:
        """The key that Headrace has made the table for; None: another program has made it, or it is not known."""
        key: list[str] | None = json.loads(self.schema).get(_MADE_FOR) if self.schema else None
        return key

    def is_of(self, context: SinkContext) -> bool:
        """Whether this is the life's own table."""
        own = (context.application, context.query_id, context.generation)
        return (self.application, self.query_id, self.generation) == own


class Ledger(OwnLines):
    """The lines of the batches of one life and its table, its drivers' epochs, and whose table it is."""

    def create(self) -> None:
        """Bring the ledger's tables to their form, and enter the rows that are locked later."""
        forms = (*FORMS, REPLAYS) if self.has_table(REPLAYS) else FORMS
        make_all(self.connection, self.dialect, forms)
        if not self.select(f"SELECT 1 FROM {EPOCHS} WHERE {_DRIVER}", *self._driver):
            names = tuple(column.name for column in EPOCHS.columns if not column.nullable)
            self.run(self.dialect.insert_new(EPOCHS.name, names, EPOCHS.key), *self._driver, self.context.query, 0)
        if not self.select(f"SELECT 1 FROM {TABLES} WHERE table_name = ?", self.table):
            names = tuple(column.name for column in TABLES.columns)
            self.run(self.dialect.insert_new(TABLES.name, names, ("table_name",)), self.table, "", "", "", "", 0, "")

    # ------------------------------------------------------------------------------------------------ batches

    def lines(self, first: int = 0) -> list[KeptLine]:
        """Return the lines from batch `first` on, and the last one in any case."""
        rows = self.select(
            f"SELECT {_LINE} FROM {LEDGER} WHERE {MINE} AND batch >= ? ORDER BY batch", *self.mine, first
        ) or self.select(f"SELECT {_LINE} FROM {LEDGER} WHERE {MINE} ORDER BY batch DESC LIMIT 1", *self.mine)
        return [_line(row) for row in rows]

    def last(self) -> KeptLine | None:
        lines = self.lines(_NO_BATCH)
        return lines[-1] if lines else None

    def lines_around(self, batch: int) -> tuple[KeptLine | None, KeptLine | None]:
        """Return the line of the newest batch before `batch`, and that of `batch`."""
        statement = f"SELECT {_LINE} FROM {LEDGER} WHERE {MINE} AND batch <= ? ORDER BY batch DESC LIMIT 2"
        lines = [_line(row) for row in self.select(statement, *self.mine, batch)]
        own = next((line for line in lines if line.batch == batch), None)
        return next((line for line in lines if line.batch < batch), None), own

    def kept_plan(self, batch: int) -> str | None:
        """Return the text to plan `batch` again from."""
        rows = self.select(f"SELECT planned FROM {LEDGER} WHERE {MINE} AND batch = ?", *self.mine, batch)
        return None if not rows or rows[0][0] is None else str(rows[0][0])

    def plans(self, first: int) -> dict[int, PlannedBatch]:
        """Return the plans of the batches from `first` on; one whose digest differs is ignored."""
        statement = f"SELECT batch, digest, planned FROM {LEDGER} WHERE {MINE} AND batch >= ? AND planned IS NOT NULL"
        rows = self.select(statement, *self.mine, first)
        lines = [KeptLine(batch=int(batch), checkpoint="", digest=digest, planned=text) for batch, digest, text in rows]
        return plans(self.context, lines, first)

    def add(self, entry: Admitted, *, epoch: int, rows: int, quarantined: int) -> None:
        """Enter a batch; it becomes visible with its rows, at the commit."""
        line, batch = entry.line, entry.line.batch
        self.enter(
            LEDGER,
            *(*self.life, self.table, batch, epoch, line.checkpoint, rows, quarantined, entry.watermark),
            *(self.context.fingerprint, now(), line.digest, line.chain, line.planned),
        )
        if batch % _PRUNE_EVERY == 0:
            self.run(f"DELETE FROM {LEDGER} WHERE {MINE} AND batch <= ?", *self.mine, batch - KEPT_BATCHES)
            forgotten = f"UPDATE {LEDGER} SET planned = NULL WHERE {MINE} AND batch <= ? AND planned IS NOT NULL"
            self.run(forgotten, *self.mine, batch - KEPT_PLANS)

    # ------------------------------------------------------------------------------------------------ late rows

    def last_replay(self, checkpoint: str) -> int | None:
        """Return the last batch of this checkpoint whose late rows were replayed."""
        if not self.has_table(REPLAYS):
            return None
        statement = f"SELECT max(batch) FROM {REPLAYS} WHERE {MINE} AND checkpoint = ?"
        (batches,) = self.select(statement, *self.mine, checkpoint)
        return None if batches[0] is None else int(batches[0])

    # --------------------------------------------------------------------------------------- drivers and tables

    def epoch(self, *, lock: bool = False) -> int:
        """Return the epoch of the query's newest driver; 0 before the first."""
        suffix = self.dialect.lock_row if lock else ""
        rows = self.select(f"SELECT epoch FROM {EPOCHS} WHERE {_DRIVER}{suffix}", *self._driver)
        return int(rows[0][0]) if rows else 0

    def enter_epoch(self, epoch: int) -> None:
        """Begin `epoch`: from the commit on, older drivers can write nothing. The row is locked and there."""
        self.run(f"UPDATE {EPOCHS} SET epoch = ?, query = ? WHERE {_DRIVER}", epoch, self.context.query, *self._driver)

    def begin_change(self) -> bool:
        """Fence older drivers off and keep the mark of the context's change; False: there is nothing more to do.

        It was made already, or is to be undone and was never made. Where a rename ends a transaction, a part of it may
        have been made: then it is made again. The row is locked and there. Raises as `is_applied`.
        """
        mark, kept = self.context.mark, self.mark()
        if is_applied(self.context, kept):
            return not self.dialect.transactional_ddl
        self.enter_epoch(self.epoch() + 1)
        if mark is None or mark.way not in ("there", "back"):
            return True
        values = (mark.number, mark.of, mark.token, mark.way)
        names = ("change_number", "change_of", "change_token", "change_way")
        marked = f"UPDATE {EPOCHS} SET {', '.join(f'{name} = ?' for name in names)} WHERE {_DRIVER}"
        self.run(marked, *values, *self._driver)
        return mark.way == "there" or (kept is not None and kept.number >= mark.of)

    def continue_change(self) -> None:
        """Begin a transaction after a rename that has ended the one before, where a database does so.

        Another command may have had the lock between the two. Raises as `is_applied`.
        """
        if not self.dialect.transactional_ddl:
            self.run(self.dialect.begin_write)
            self.epoch(lock=True)
            is_applied(self.context, self.mark())

    def mark(self) -> Mark | None:
        """Return the newest change of the query that the database has seen."""
        kept = f"SELECT change_number, change_of, change_token, change_way FROM {EPOCHS} WHERE {_DRIVER}"
        rows = self.select(kept, *self._driver)
        if not rows or rows[0][0] is None:
            return None
        number, of, token, way = rows[0]
        return Mark(number=int(number), of=int(of), token=str(token), way=way)

    def owner(self, name: str | None = None, *, lock: bool = False) -> Owner | None:
        """Whose result the table holds, or that of another `name`, as far as is known."""
        suffix = self.dialect.lock_row if lock else ""
        rows = self.select(
            "SELECT query_id, query, generation, spark_schema, application, project "
            f"FROM {TABLES} WHERE table_name = ?{suffix}",
            name or self.table,
        )
        if not rows or not rows[0][0]:
            return None
        names = ("query_id", "query", "schema", "application", "project")
        query_id, query, generation, *texts = rows[0]
        return Owner(generation=int(generation), **dict(zip(names, map(str, (query_id, query, *texts)), strict=True)))

    def owner_by(self, spelled: str) -> Owner | None:
        """Whose result the table holds, also where it was entered under the name as the sink spells it."""
        return self.owner() or self.owner(spelled)

    def own(self, schema: str, made_for: Sequence[str] | None = None) -> None:
        """Enter this query as the owner of the table; `made_for`: the key of a table that Headrace made."""
        context = self.context
        if made_for is not None:
            schema = json.dumps({**json.loads(schema), _MADE_FOR: list(made_for)})
        self.run(
            f"UPDATE {TABLES} SET application = ?, project = ?, query_id = ?, query = ?, generation = ?, "
            "spark_schema = ? WHERE table_name = ?",
            *(context.application, context.project, context.query_id, context.query, context.generation),
            *(schema, self.table),
        )

    # ------------------------------------------------------------------------------------------- another name

    @property
    def has_lines(self) -> bool:
        """Whether the ledger has a batch of the query, in whatever table."""
        return bool(self.select(f"SELECT 1 FROM {LEDGER} WHERE {_DRIVER} LIMIT 1", *self._driver))

    def move(self, table: str) -> None:
        """Enter another name of the table in the query's lines of it, of all generations."""
        for lines_table in self._tables():
            moved = f"UPDATE {lines_table} SET table_name = ? WHERE application = ? AND query_id = ? AND table_name = ?"
            self.run(moved, table, self.context.application, self.context.query_id, self.table)

    # ------------------------------------------------------------------------------------------- generations

    def count(self, table: OwnTable) -> int:
        """Return how many rows of one of Headrace's own tables are the generation's."""
        return int(self.select(f"SELECT COUNT(*) FROM {table} WHERE {MINE}", *self.mine)[0][0])

    def enter_owner(self, name: str, owner: Owner) -> None:
        """Enter the owner of the table called `name`."""
        self.forget_owner(name)
        whose = (owner.application, owner.project, owner.query_id, owner.query, owner.generation)
        self.enter(TABLES, name, *whose, owner.schema)

    def forget_owner(self, name: str) -> None:
        """Delete the entry of the owner of the table called `name`."""
        self.run(f"DELETE FROM {TABLES} WHERE table_name = ?", name)

    def forget(self) -> None:
        """Delete the generation's lines, quarantined rows and replaced rows."""
        kept = self._tables()
        if BEFORE in kept:
            named = f"SELECT DISTINCT images FROM {BEFORE} WHERE {MINE}"
            for (images,) in self.select(named, *self.mine):
                for aside in (str(images), *aside_names(str(images))):
                    self.delete_lines(aside)
                self.run(f"DROP TABLE IF EXISTS {self.quote(str(images))}")
        if CHANGES in kept:
            for (aside,) in self.select(f"SELECT DISTINCT aside FROM {CHANGES} WHERE {MINE}", *self.mine):
                self.run(f"DROP TABLE IF EXISTS {self.quote(str(aside))}")
        for table in kept:
            self.run(f"DELETE FROM {table} WHERE {MINE}", *self.mine)

    def rename_table(self, name: str) -> None:
        """Enter another name of the table in the generation's lines."""
        for table in self._tables():
            self.run(f"UPDATE {table} SET table_name = ? WHERE {MINE}", name, *self.mine)

    def forget_driver(self) -> None:
        """Delete the record of the generation's drivers."""
        self.run(f"DELETE FROM {EPOCHS} WHERE {_DRIVER}", *self._driver)

    # ------------------------------------------------------------------------------------------- rewinding

    def batches_after(self, batch: int) -> set[int]:
        rows = self.select(f"SELECT batch FROM {LEDGER} WHERE {MINE} AND batch > ?", *self.mine, batch)
        return {int(number) for (number,) in rows}

    def replays_after(self, batch: int) -> list[int]:
        """Return the last batch of each replay of late rows that was done after a batch."""
        if not self.has_table(REPLAYS):
            return []
        rows = self.select(f"SELECT batch FROM {REPLAYS} WHERE {MINE} AND batch > ?", *self.mine, batch)
        return [int(number) for (number,) in rows]

    def move_lines(
        self, former: str, name: str, first: int, last: int = _NO_BATCH, *, of: OwnTable | None = None
    ) -> None:
        """Enter another name in the lines that have the name `former`, of all own tables or the one in `of`."""
        for table in self._tables():
            if table is not BEFORE and of in (None, table):
                moved = f"UPDATE {table} SET table_name = ? WHERE {MINE} AND batch BETWEEN ? AND ?"
                self.run(moved, name, *self.mine[:3], former, first, last)

    def delete_lines(self, name: str) -> None:
        for table in self._tables():
            if table is not BEFORE:
                self.run(f"DELETE FROM {table} WHERE {MINE}", *self.mine[:3], name)

    def _tables(self) -> tuple[OwnTable, ...]:
        """Headrace's own tables with lines of the query's batches; the last three are made when first needed."""
        return (LEDGER, QUARANTINE, *filter(self.has_table, (REPLAYS, BEFORE, CHANGES)))

    @property
    def _driver(self) -> tuple[str, str]:
        # No id has a blank in it.
        query_id = self.context.query_id
        return self.context.application, f"{query_id} (rebuild)" if self.context.rebuilds else query_id


def now() -> str:
    """Return the time as Headrace's own tables keep it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


_LINE = "batch, checkpoint, digest, chain, CASE WHEN planned IS NULL THEN NULL ELSE '' END"


def aside_names(images: str) -> tuple[str, str]:
    """Return the names of the lines that a rewind took off: those of the table, and those that were kept before."""
    return f"{images}_void", f"{images}_void_before"


def _line(row: tuple[Any, ...]) -> KeptLine:
    batch, checkpoint, digest, chain, planned = row
    return KeptLine(batch=int(batch), checkpoint=str(checkpoint), digest=digest, chain=chain, planned=planned)
