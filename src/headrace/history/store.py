"""The history of a project's runs, batches and verdicts, in one SQLite file that many processes share."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from headrace.contract import BatchRecord
from headrace.contract.observer import ENDED, QueryState, State
from headrace.errors import Finding, HeadraceError
from headrace.generations.driver_lock import birth
from headrace.history.schema import TAKE_OVER, VERSION, create, faults, newer_history, no_history
from headrace.history.status import Event, QueryStatus, is_alive, state_of, status_of
from headrace.redaction import redacted
from headrace.units import instant

BATCHES_KEPT = 10_000
RUNS_KEPT = 1_000
VERDICTS_KEPT = 100
EVENTS_KEPT = 10_000
_PRUNE_EVERY = 50
_BUSY_SECONDS = 5.0


class History:
    """The open history; safe to use from many threads, and from many processes at once.

    Every method raises PlatformError when the file cannot be reached or written, and CheckpointError when its
    content is damaged or of a newer version. Neither is a reason to stop a stream.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._lock = threading.RLock()
        self._own = (socket.gethostname(), os.getpid(), birth(os.getpid()))

    @classmethod
    def open(cls, path: str | Path, *, read_only: bool = False) -> History:
        """Open the history; unless `read_only`, it is created when it is not there."""
        path = Path(path)
        with faults(path):
            if read_only:
                if not path.exists():
                    raise no_history(path)
                connection = _connect_to_read(path)
            else:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                # SQLite gives its -wal and -shm files the same mode.
                path.touch(mode=0o600)
                connection = _connect(str(path))
            try:
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                if version > VERSION:
                    raise newer_history(path, version)
                if not read_only:
                    create(connection)
                elif version == 0:
                    raise no_history(path)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection)

    def begin_run(self, query: str, *, pid: int, mode: str, trigger: str, sink: str, generation: int) -> int:
        """Note that process `pid` starts a query; the number of the run."""
        now = time.time()
        with self._transaction() as db:
            run = db.execute(
                "INSERT INTO runs (query, generation, host, pid, birth, mode, trigger_text, sink, state, restarts, "
                "started, seen) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'starting', 0, ?, ?)",
                (query, generation, socket.gethostname(), pid, birth(pid), mode, trigger, sink, now, now),
            ).lastrowid
            db.execute(
                "DELETE FROM runs WHERE query = :query AND id NOT IN "
                "(SELECT id FROM runs WHERE query = :query ORDER BY id DESC LIMIT :kept)",
                {"query": query, "kept": RUNS_KEPT},
            )
        return int(run or 0)

    def newest_run(self, query: str) -> int:
        """Return the number of the run of `query` that began last, in whatever process; 0 if there is none."""
        with self._snapshot() as db:
            return int(db.execute("SELECT coalesce(max(id), 0) FROM runs WHERE query = ?", (query,)).fetchone()[0])

    def state(self, state: QueryState, run: int | None = None) -> None:
        """Note how a query stands in this process, and in `run`, unless that has ended.

        While another process runs the query, its state stays; a start, which has the query's lock, takes over.
        """
        now, text = time.time(), redacted(json.dumps(state.as_dict(), default=str, ensure_ascii=False))
        with self._transaction() as db:
            if run is not None:
                values = (state.state, now, run)
                db.execute("UPDATE runs SET state = ?, seen = ? WHERE id = ? AND ended IS NULL", values)
            before = db.execute("SELECT * FROM states WHERE query = ?", (state.query,)).fetchone()
            own = before is None or tuple(before)[1:4] == self._own
            if not own and before["host"] == self._own[0] and state_of(before).state == "killed":
                _end_killed(db, before)
            if own or state.state == "starting" or state_of(before).has_ended:
                db.execute(
                    "INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?, ?, ?)", (state.query, *self._own, now, text)
                )

    def record_warning(self, run: int, finding: Finding | None) -> None:
        """Note what is wrong with a run that continues, or None once nothing is."""
        text = json.dumps(finding.as_dict()) if finding else None
        with self._transaction() as db:
            db.execute("UPDATE runs SET error = ? WHERE id = ? AND ended IS NULL", (text, run))

    def heartbeat(self, runs: Iterable[int]) -> None:
        """Note that runs of this process are alive."""
        now = time.time()
        with self._transaction() as db:
            db.executemany("UPDATE runs SET seen = ? WHERE id = ?", [(now, run) for run in runs])
            db.execute("UPDATE states SET seen = ? WHERE host = ? AND pid = ? AND birth IS ?", (now, *self._own))

    def end_run(self, run: int, state: State, error: Finding | None = None, *, fenced: bool = False) -> None:
        """Note how a run ended, and of what; fenced: a newer driver has ended it."""
        if state not in ENDED:
            raise ValueError(f"a run ends as one of {', '.join(ENDED)}, not as {state}")
        plain = None if error is None else {**error.as_dict(), **({"fenced": True} if fenced else {})}
        now, text = time.time(), None if plain is None else json.dumps(plain)
        with self._transaction() as db:
            db.execute(
                "UPDATE runs SET state = ?, seen = ?, ended = ?, error = ? WHERE id = ?", (state, now, now, text, run)
            )

    def note_killed(self) -> None:
        """Record the queries of killed processes of this machine as killed.

        A file that may only be read stays as it is.
        """
        with self._snapshot() as db:
            if not _killed_states(db):
                return
        with suppress(HeadraceError), History.open(self._path) as writing, writing._transaction() as db:
            for row in _killed_states(db):
                _end_killed(db, row)

    def record(self, run: int, record: BatchRecord) -> None:
        """Keep what a batch did; a batch that is run again replaces what is known of it."""
        text = redacted(json.dumps(record.as_dict(), separators=(",", ":"), default=str))
        with self._transaction() as db:
            about = db.execute("SELECT query, generation FROM runs WHERE id = ?", (run,)).fetchone()
            if about is None:
                return
            batch = (*about, record.batch)
            old = db.execute(
                "SELECT rows, record FROM batches WHERE query = ? AND generation = ? AND batch = ?", batch
            ).fetchone()
            db.execute("INSERT OR REPLACE INTO batches VALUES (?, ?, ?, ?, ?, ?)", (*batch, run, record.rows, text))
            before = (old[0], _quarantined_rows(old[1])) if old else (0, 0)
            self._add_rows(db, tuple(about), record.rows - before[0], record.quarantined - before[1])
            db.execute("UPDATE runs SET seen = ? WHERE id = ?", (time.time(), run))
            if record.batch % _PRUNE_EVERY == 0:
                self._prune(db, about[0])

    def unreported_batches(self, query: str, generation: int, through: int) -> list[int]:
        """Return the committed batches up to `through` that no run has reported.

        Those before the first one that is kept do not count; nor do any where the history knows of no earlier run.
        """
        with self._snapshot() as db:
            of_query = (query, generation)
            runs = db.execute("SELECT count(*) FROM runs WHERE query = ? AND generation = ?", of_query).fetchone()[0]
            rows = db.execute("SELECT batch FROM batches WHERE query = ? AND generation = ?", of_query).fetchall()
        batches = {batch for (batch,) in rows}
        return (
            [batch for batch in range(min(batches, default=0), through + 1) if batch not in batches] if runs > 1 else []
        )

    def recent(self, query: str, count: int = 100, *, generation: int | None = None) -> list[BatchRecord]:
        """Return the newest batches of a generation of a query (None: the newest first), in order."""
        rows = self.rows(
            "SELECT record FROM batches WHERE query = ? AND generation = coalesce(?, generation) "
            "ORDER BY generation DESC, batch DESC LIMIT ?",
            (query, generation, count),
        )
        return [BatchRecord.from_dict(json.loads(text)) for (text,) in reversed(rows)]

    def note(self, kind: str, query: str | None, run: int | None, detail: dict[str, Any]) -> None:
        """Keep what happened to a query, or to the application."""
        text = redacted(json.dumps(detail, separators=(",", ":"), default=str, ensure_ascii=False))
        with self._transaction() as db:
            kept = db.execute(
                "INSERT INTO events (at, query, run, kind, detail) VALUES (?, ?, ?, ?, ?)",
                (time.time(), query, run, kind, text),
            ).lastrowid
            if (kept or 0) % _PRUNE_EVERY == 0:
                db.execute("DELETE FROM events WHERE id <= ?", ((kept or 0) - EVENTS_KEPT,))

    def events(self, count: int = 100, *, query: str | None = None, after: int = 0) -> list[Event]:
        """Return the newest events (of `query`) whose number is greater than `after`, in order."""
        newest = "SELECT * FROM events WHERE id > ? AND query IS coalesce(?, query) ORDER BY id DESC LIMIT ?"
        rows = map(dict, reversed(self.rows(newest, (after, query, count))))
        return [Event(**{**row, "at": instant(row["at"]), "detail": json.loads(row["detail"])}) for row in rows]

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[sqlite3.Row]:
        """Return all rows of one statement that reads."""
        with self._snapshot() as db:
            return db.execute(statement, values).fetchall()

    def verdicts(self) -> dict[str, dict[str, Any]]:
        """Return the newest verdict of each query that has one."""
        newest = "SELECT query, verdict FROM verdicts WHERE id IN (SELECT max(id) FROM verdicts GROUP BY query)"
        return {query: json.loads(text) for query, text in self.rows(newest)}

    def newest_batches(self) -> dict[str, int]:
        """Return the newest batch of each query in the generation of its newest run, of those that have one."""
        rows = self.rows(
            "SELECT runs.query, max(batch) FROM runs JOIN batches USING (query, generation) "
            "WHERE id IN (SELECT max(id) FROM runs GROUP BY query) GROUP BY runs.query"
        )
        return dict(map(tuple, rows))

    def rename(self, former: str, query: str) -> None:
        """Rename the query `former` to `query` in all tables; done again, it changes nothing."""
        with self._transaction() as db:
            for table in ("runs", "batches", "totals", "quarantined", "verdicts", "events", "states"):
                db.execute(f"UPDATE OR REPLACE {table} SET query = ? WHERE query = ?", (query, former))

    def record_verdict(self, query: str, verdict_json: str) -> None:
        """Keep what verify found."""
        text = redacted(verdict_json)
        with self._transaction() as db:
            db.execute(
                "INSERT INTO verdicts (query, at, verdict) VALUES (?, ?, ?)",
                (query, time.time(), text),
            )
            db.execute(
                "DELETE FROM verdicts WHERE query = :query AND id NOT IN "
                "(SELECT id FROM verdicts WHERE query = :query ORDER BY id DESC LIMIT :kept)",
                {"query": query, "kept": VERDICTS_KEPT},
            )

    def take_over(self, other: Path, query: str, generation: int) -> None:
        """Copy the runs and batches of a generation from `other`, once, however often it is called.

        A missing file has none.
        """
        if not other.exists():
            return
        with self._lock, faults(self._path):
            self._connection.execute("ATTACH DATABASE ? AS other", (str(other),))
            try:
                with self._transaction() as db:
                    for statement in TAKE_OVER:
                        db.execute(statement, {"query": query, "generation": generation})
            finally:
                self._connection.execute("DETACH DATABASE other")

    def forget(self, query: str, generation: int) -> None:
        """Delete a generation that was given up; the next one may have its number."""
        with self._transaction() as db:
            for table in ("runs", "batches", "totals", "quarantined"):
                db.execute(f"DELETE FROM {table} WHERE query = ? AND generation = ?", (query, generation))
            # It may be of that generation; the remaining runs show how the query stands.
            db.execute("DELETE FROM states WHERE query = ?", (query,))

    def take_batches(self, query: str, generation: int, after: int, keep: Callable[[list[list[Any]]], None]) -> None:
        """Delete the batches after one, which will come again, and verdicts about them; `keep` gets the batches.

        Called again after a crash, it finds none and does not call `keep`.
        """
        whose = (query, generation)
        with self._transaction() as db:
            db.execute("DELETE FROM verdicts WHERE query = ? AND json_extract(verdict, '$.batch') > ?", (query, after))
            columns = "batch, run, rows, record"
            among = "FROM batches WHERE query = ? AND generation = ? AND batch > ?"
            removed = [list(row) for row in db.execute(f"SELECT {columns} {among} ORDER BY batch", (*whose, after))]
            if removed:
                keep(removed)
                db.execute(f"DELETE {among}", (*whose, after))
                self._add_rows(
                    db, whose, -sum(row[2] for row in removed), -sum(_quarantined_rows(row[3]) for row in removed)
                )

    def restore_batches(self, query: str, generation: int, batches: Sequence[Sequence[Any]]) -> None:
        """Put back the batches that `take_batches` deleted; newer ones stay."""
        whose = (query, generation)
        with self._transaction() as db:
            for batch, run, rows, record in batches:
                done = db.execute(
                    "INSERT OR IGNORE INTO batches VALUES (?, ?, ?, ?, ?, ?)", (*whose, batch, run, rows, record)
                )
                if done.rowcount:
                    self._add_rows(db, whose, rows, _quarantined_rows(record))

    @staticmethod
    def _add_rows(db: sqlite3.Connection, whose: tuple[str, int], rows: int, quarantined: int) -> None:
        for table, more in (("totals", rows), ("quarantined", quarantined)):
            db.execute(
                f"INSERT INTO {table} VALUES (?, ?, ?) "
                "ON CONFLICT (query, generation) DO UPDATE SET rows = rows + excluded.rows",
                (*whose, more),
            )

    def statuses(self) -> list[QueryStatus]:
        """Return how each query stands, by name."""
        with self._snapshot() as db:
            rows = db.execute("SELECT * FROM runs WHERE id IN (SELECT max(id) FROM runs GROUP BY query)").fetchall()
            runs = {row["query"]: row for row in rows}
            states = db.execute("SELECT * FROM states").fetchall()
            kept = {row["query"]: row for row in states}
            return [status_of(db, query, runs.get(query), kept.get(query)) for query in sorted({*runs, *kept})]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> History:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _prune(self, db: sqlite3.Connection, query: str) -> None:
        db.execute(
            "DELETE FROM batches WHERE rowid IN (SELECT rowid FROM batches WHERE query = ? "
            "ORDER BY generation DESC, batch DESC LIMIT -1 OFFSET ?)",
            (query, BATCHES_KEPT),
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, faults(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """Read everything in the block from one snapshot."""
        with self._lock, faults(self._path):
            self._connection.execute("BEGIN")
            try:
                yield self._connection
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")


def _quarantined_rows(record: str) -> int:
    """Return how many rows of a batch were quarantined, by its record."""
    return sum(source.get("quarantined", 0) for source in json.loads(record)["sources"])


def _killed_states(db: sqlite3.Connection) -> list[sqlite3.Row]:
    """Return the kept states of queries whose process on this machine is gone and has not said how they ended."""
    rows = db.execute("SELECT * FROM states WHERE host = ?", (socket.gethostname(),)).fetchall()
    return [row for row in rows if json.loads(row["state"])["state"] not in ENDED and not is_alive(row)]


def _end_killed(db: sqlite3.Connection, row: sqlite3.Row) -> None:
    """Note once that a process was killed: as the state of the query, the end of its run, and an event."""
    state = state_of(row)
    unended = db.execute(
        "SELECT id FROM runs WHERE query = ? AND pid = ? AND ended IS NULL", (row["query"], row["pid"])
    ).fetchone()
    run = unended["id"] if unended else None
    db.execute("UPDATE runs SET state = 'killed', ended = seen WHERE id = ?", (run,))
    text = json.dumps(state.as_dict(), default=str, ensure_ascii=False)
    db.execute("UPDATE states SET state = ? WHERE query = ?", (text, row["query"]))
    detail = {"pid": row["pid"], "last_seen": state.since.isoformat()}
    db.execute(
        "INSERT INTO events (at, query, run, kind, detail) VALUES (?, ?, ?, 'killed', ?)",
        (time.time(), row["query"], run, json.dumps(detail)),
    )


def _connect(target: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        target, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=target.startswith("file:")
    )
    connection.row_factory = sqlite3.Row
    return connection


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """Return a connection that writes nothing, also where the directory may not be written."""
    uri = path.resolve().as_uri()
    connection = _connect(f"{uri}?mode=ro")
    try:
        connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        if os.access(path.parent, os.W_OK):
            raise
        return _connect(f"{uri}?immutable=1")
    return connection
