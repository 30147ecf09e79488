"""Questions of people to a table and its database while the query runs: read-only, a few rows, in some seconds.

An answer is read by a process of its own, with a limit of memory, and killed if the database does not end a statement.
So a large or slow answer neither fills nor blocks the dashboard, or the run that serves it.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

from headrace.connectors.sql.dialect import Connection, Dialect, rows_of
from headrace.connectors.sql.silence import CONNECT_SECONDS
from headrace.connectors.sql.sink_table import SinkTable
from headrace.connectors.sql.system_tables import LEDGER, TABLES
from headrace.contract import LedgerLine, Rows, SinkAnswers
from headrace.errors import Finding, SinkError

LONGEST = 500
# What is read from the database for one answer, and what is shown of it; each row is cut before the next one is read.
READ_BYTES, SHOWN_BYTES = 64_000_000, 1_000_000
# The memory of the reading process for rows; the client's buffers let a row of a fourth of it pass.
MEMORY_BYTES = 256_000_000
# How long a Python may take to start on a loaded machine.
_START_SECONDS = 30.0
_CHILD = "import sys; sys.path[:] = {path!r}; from headrace.connectors.sql import answers; answers.answer_one()"
_COMMENT = re.compile(r"\s+|--[^\n]*(\n|$)|/\*(?!!).*?\*/|\(", re.DOTALL)
_READS = re.compile(r"(?:select|with|values|table)(?![A-Za-z])", re.IGNORECASE)
# What reaches files, other sessions or other databases from within a statement that reads, which no transaction
# forbids, and what runs a text as SQL. It stops mistakes, not attacks: the rights of the user stop those.
_REACHES_OUT = re.compile(
    r"\b(outfile|dumpfile|load_file|lo_(?:im|ex)port|lo_get|lo_put|pg_(?:terminate|cancel)_backend|pg_reload_conf"
    r"|pg_rotate_logfile|pg_(?:read|stat)_(?:binary_)?file|pg_ls_\w+|dblink\w*"
    r"|(?:query|cursor|table|schema|database)_to_xml\w*|set_config)\b|\bU&\"",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class _Question:
    """A statement for the reading process; `by_a_person`: it is not one of our own."""

    dialect: Dialect
    statement: str
    limit: int
    seconds: float
    by_a_person: bool


class _OutOfTime(SinkError):
    """An answer that took too long."""


@dataclass(frozen=True, kw_only=True)
class DatabaseAnswers(SinkTable, SinkAnswers):
    """The answers of a database; `dialect_to_ask` gives the dialect for a person's own statement."""

    dialect_to_ask: Callable[[], Dialect]

    def ask(self, statement: str, *, limit: int, seconds: float) -> Rows:
        """Raises SinkError for what does not only read, fails, or takes too much."""
        wanted = statement.strip().rstrip(";").strip()
        begins, fix = 0, "write one such statement"
        while comment := _COMMENT.match(wanted, begins):
            begins = comment.end()
        if not _READS.match(wanted, begins):
            fault = "only a statement that reads is taken: it begins with SELECT, WITH, VALUES or TABLE"
            raise SinkError(code="HR889", what=fault, fix=fix)
        if outside := _REACHES_OUT.search(wanted):
            fault = f"only a statement that reads the database's tables is taken, and it has '{outside[0]}'"
            raise SinkError(code="HR889", what=fault, fix=fix)
        dialect = self.dialect_to_ask()
        return _ask_in_process(
            _Question(dialect=dialect, statement=wanted, limit=limit, seconds=seconds, by_a_person=True)
        )

    def newest_rows(self, *, limit: int, seconds: float) -> Rows:
        """Return rows, those with the greatest time first if the table has a time and the answer comes in time."""
        dialect, table = self.dialect(), self.table
        with _open_reader(dialect) as connection:
            statement = dialect.own(f"SELECT spark_schema FROM {TABLES} WHERE table_name = ?")
            schema = list(rows_of(connection, statement, (table,)))
            name, at = dialect.real_name(connection, table), _time_column(str(schema[0][0])) if schema else None

        def rows(statement: str, order: str = "") -> Rows:
            question = _Question(dialect=dialect, statement=statement, limit=limit, seconds=seconds, by_a_person=False)
            return replace(_ask_in_process(question), order=order)

        every = f"SELECT * FROM {_quote(dialect, name)}"
        if at is not None:
            with suppress(_OutOfTime):
                return rows(f"{every} ORDER BY {_quote(dialect, at)} DESC", f"the greatest {at} first")
        return rows(every)

    def ledger_lines(self, generation: int, first: int, last: int) -> Mapping[int, LedgerLine]:
        """Return the ledger's lines of these batches, of the query whose result the table is."""
        dialect, table = self.dialect(), self.table
        statement = dialect.own(
            f"SELECT batch, row_count, committed_at FROM {LEDGER} WHERE generation = ? AND table_name = ? "
            f"AND batch BETWEEN ? AND ? AND query_id IN (SELECT query_id FROM {TABLES} WHERE table_name = ?)"
        )
        with _open_reader(dialect) as connection:
            lines = list(rows_of(connection, statement, (generation, table, first, last, table)))
        return {
            int(batch): LedgerLine(rows=None if rows is None else int(rows), committed_at=at)
            for batch, rows, at in lines
        }


def _ask_in_process(question: _Question) -> Rows:
    """Ask the question in a process of its own, and wait no longer than it may take."""
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD.format(path=sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Ctrl-C ends the dashboard, which ends it.
        start_new_session=True,
    )
    try:
        longest = _START_SECONDS + 2 * CONNECT_SECONDS + question.seconds
        output, errors = child.communicate(pickle.dumps(question), timeout=longest)
    except subprocess.TimeoutExpired:
        raise _time_fault(question.seconds) from None
    finally:
        child.kill()
        child.wait()
    try:
        answer = json.loads(output)
    except ValueError:
        if child.returncode == -signal.SIGALRM:
            raise _time_fault(question.seconds) from None
        if child.returncode < 0 or b"MemoryError" in errors:
            raise _memory_fault() from None
        raise RuntimeError(errors.decode("utf-8", "replace")[-2_000:]) from None
    if "finding" in answer:
        raise (_OutOfTime if answer["out_of_time"] else SinkError)(Finding(**answer["finding"]))
    return Rows(**{**answer, "columns": tuple(answer["columns"]), "rows": tuple(map(tuple, answer["rows"]))})


def answer_one() -> None:
    """Answer the question on standard input, as JSON on standard output, and end this process."""
    question = pickle.load(sys.stdin.buffer)
    _limit_memory()
    try:
        output = json.dumps(asdict(_read_rows(question)))
    except SinkError as error:
        (finding,) = error.findings
        plain = {"code": finding.code, "what": finding.what, "fix": finding.fix}
        output = json.dumps({"finding": plain, "out_of_time": isinstance(error, _OutOfTime)})
    sys.stdout.write(output)
    sys.stdout.flush()
    # To close the connection in order, all rows that the server still sends would be read.
    os._exit(0)


def _limit_memory() -> None:
    """Limit this process's memory, where the kernel reports and limits it."""
    with suppress(OSError, ValueError):
        held = re.search(r"VmData:\s*(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
        if held:
            most = 1024 * int(held[1]) + MEMORY_BYTES
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _read_rows(question: _Question) -> Rows:
    """Read row by row, cut each value, and stop at the first limit that is reached."""
    # The timer's signal ends the process, whatever the client library is waiting for.
    signal.setitimer(signal.ITIMER_REAL, 2 * CONNECT_SECONDS)
    rows: list[tuple[Any, ...]] = []
    read, shown, stopped = 0, 0, ""
    dialect = question.dialect
    with _open_reader(dialect, question.seconds) as connection:
        if question.by_a_person and (rights := dialect.rights_beyond_reading(connection)):
            fault = f"questions are not answered, since the user of the url {rights}"
            fix = "give the sink ask_url: the url of a user that may only read"
            raise SinkError(code="HR895", what=fault, fix=fix)
        signal.setitimer(signal.ITIMER_REAL, question.seconds + 1)
        until = time.monotonic() + question.seconds
        answer = dialect.answer(connection, question.statement, question.limit + 1, question.seconds)
        columns = tuple(map(str, next(answer)))
        for row in answer:
            if time.monotonic() > until:
                raise _time_fault(question.seconds)
            values = [_show(value) for value in row]
            rows.append(tuple(value for value, _ in values))
            read += sum(size for _, size in values)
            shown += sum(min(size, LONGEST) for _, size in values)
            if len(rows) > question.limit:
                break
            if read > READ_BYTES or shown > SHOWN_BYTES:
                stopped = f"stopped after {max(read, shown) / 1e6:.0f} MB"
                break
    more = bool(stopped) or len(rows) > question.limit
    return Rows(columns=columns, rows=tuple(rows[: question.limit]), more=more, stopped=stopped)


@contextmanager
def _open_reader(dialect: Dialect, seconds: float = 0.0) -> Iterator[Connection]:
    """Open a connection that reads; raises SinkError if that fails, or if the database refuses the statement."""
    try:
        connection = dialect.connect_to_read()
    except dialect.errors as error:
        problem = dialect.explain(error)
        raise SinkError(code=problem.code, what=problem.what, fix=problem.fix) from None
    with closing(connection):
        try:
            yield connection
        except MemoryError:
            raise _memory_fault() from None
        except dialect.errors as error:
            if dialect.has_code(error, dialect.faults.out_of_time):
                raise _time_fault(seconds) from None
            # The first line of what the database says; the others repeat the statement.
            sentence = next(
                iter(str(error.args[-1] if error.args else error).strip().splitlines()), type(error).__name__
            )
            if re.search("out of memory|cannot allocate memory", sentence, re.IGNORECASE):
                raise _memory_fault() from None
            fix = "correct the statement, or grant the user of the url what it asks for"
            raise SinkError(code="HR889", what=f"{dialect.name} refused it: {sentence}", fix=fix) from None


_LESS = "ask for less, or by a column that has an index"


def _time_fault(seconds: float) -> SinkError:
    return _OutOfTime(code="HR888", what=f"the answer took longer than {seconds:g} seconds", fix=_LESS)


def _memory_fault() -> SinkError:
    fault = f"a row of the answer takes more than the {MEMORY_BYTES // 1_000_000} MB of memory that there are for it"
    return SinkError(code="HR888", what=fault, fix=_LESS)


def _quote(dialect: Dialect, name: str) -> str:
    """Return the name in a statement without values, where a per cent sign is not a placeholder."""
    quoted = dialect.quote(name)
    return quoted if dialect.placeholder == "?" else quoted.replace("%%", "%")


def _time_column(schema: str) -> str | None:
    """Return the first column with a time, by the schema that the ledger keeps."""
    try:
        fields = json.loads(schema)["fields"]
    except (ValueError, KeyError, TypeError):
        return None
    return next(
        (str(field["name"]) for field in fields if field["type"] in ("timestamp", "timestamp_ntz", "date")), None
    )


def _show(value: Any) -> tuple[str | int | float | bool | None, int]:
    """Return a value for JSON, and its size; a whole number that a browser would round, and any other type, as text.

    Long texts are cut.
    """
    if value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) < 2**53):
        return value, 8
    if isinstance(value, float) and math.isfinite(value):
        return value, 8
    if isinstance(value, (bytes, bytearray, memoryview)):
        text, size = f"0x{bytes(value[: LONGEST // 2]).hex()}", len(value)
    elif isinstance(value, (dict, list)):
        text = json.dumps(value, default=str, ensure_ascii=False)
        size = len(text)
    else:
        text = value.isoformat() if isinstance(value, (date, datetime)) else str(value)
        size = len(text)
    return (text if size <= LONGEST else f"{text[:LONGEST]}..."), size
