"""What pages show of a history: a page of its batches, a stretch of them sampled, its runs and verdicts.

Each answer reads a bounded number of rows through an index, however long the history is.
"""

from __future__ import annotations

import json
import re
import sqlite3
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headrace.contract import BatchRecord
from headrace.history.store import History
from headrace.units import instant

SCANNED = 20_000
"""A search looks at so many batches at most, and says where it stopped."""

_NUMBERS = {
    "rows": "rows",
    "ms": "json_extract(record, '$.duration_ms')",
    "late": "json_extract(record, '$.dropped_by_watermark')",
    "state": "json_extract(record, '$.state_rows')",
    "lag": "json_extract(record, '$.backlog.count')",
}
_COMPARED = re.compile(r"([a-z]+)(<=|>=|=|<|>)(.*)")
_BATCHES = re.compile(r"#?(\d{1,18})(?:-(\d{1,18}))?")
_OF = "query = ? AND generation = ?"


class SearchError(ValueError):
    """A search that is not understood."""


def batch_page(
    history: History, query: str, generation: int, *, before: int | None = None, limit: int = 50, search: str = ""
) -> tuple[list[BatchRecord], int | None]:
    """Return the newest batches below `before` that `search` finds, the newest first; raises SearchError.

    The second value is the `before` of the next page; None at the end.
    """
    where, values = _condition(search)
    top = before if before is not None else 2**62
    with history._snapshot() as db:
        bounds = db.execute(
            f"SELECT min(batch), count(*) FROM (SELECT batch FROM batches WHERE {_OF} AND batch < ? "
            "ORDER BY batch DESC LIMIT ?)",
            (query, generation, top, SCANNED if where else limit + 1),
        ).fetchone()
        lowest, looked = bounds[0], bounds[1]
        if lowest is None:
            return [], None
        rows = db.execute(
            f"SELECT batch, record FROM batches WHERE {_OF} AND batch < ? AND batch >= ?{where} "
            "ORDER BY batch DESC LIMIT ?",
            (query, generation, top, lowest, *values, limit + 1),
        ).fetchall()
    shown = rows[:limit]
    following = shown[-1][0] if len(rows) > limit else lowest if where and looked == SCANNED else None
    return [_record(text) for _, text in shown], following


def sample_batches(
    history: History, query: str, generation: int, *, seconds: float | None = None, most: int = 2_000
) -> tuple[list[BatchRecord], int]:
    """Return the batches of the last `seconds` before the newest one (None: all) in order, at most `most` of them.

    The second value is the step: of so many batches one is returned.
    """
    with history._snapshot() as db:
        ends = db.execute(f"SELECT min(batch), max(batch) FROM batches WHERE {_OF}", (query, generation)).fetchone()
        if ends[0] is None:
            return [], 1
        first, last = int(ends[0]), int(ends[1])
        if seconds is not None:
            first = _first_since(db, query, generation, first, last, seconds)
        step = max(1, -(-(last - first + 1) // most))
        if step == 1:
            rows = db.execute(
                f"SELECT record FROM batches WHERE {_OF} AND batch >= ? ORDER BY batch", (query, generation, first)
            ).fetchall()
        else:
            # Counted back from the newest one, so that it is among them; each is one look into the index.
            rows = db.execute(
                "WITH RECURSIVE wanted(n) AS (SELECT ? UNION ALL SELECT n - ? FROM wanted WHERE n - ? >= ?) "
                "SELECT record FROM wanted CROSS JOIN batches ON query = ? AND generation = ? AND batch = n "
                "ORDER BY batch",
                (last, step, step, first, query, generation),
            ).fetchall()
    return [_record(text) for (text,) in rows], step


def runs_of(history: History, query: str, limit: int = 20) -> list[dict[str, Any]]:
    """Return the newest runs of a query as plain data, the newest first."""
    rows = history.rows(
        "SELECT id, generation, pid, state, started, ended, error FROM runs WHERE query = ? ORDER BY id DESC LIMIT ?",
        (query, limit),
    )
    return [
        {
            **dict(row),
            "started": _text(row["started"]),
            "ended": _text(row["ended"]),
            "error": json.loads(row["error"]) if row["error"] else None,
        }
        for row in rows
    ]


def spark_page(history: History, query: str, run: int) -> str | None:
    """Where Spark served its own page when this run of the query started; None where it serves none."""
    rows = history.rows(
        "SELECT json_extract(detail, '$.spark_page') FROM events WHERE query = ? AND run = ? AND kind = 'started' "
        "ORDER BY id DESC LIMIT 1",
        (query, run),
    )
    return rows[0][0] if rows else None


def verdicts_of(history: History, query: str) -> list[dict[str, Any]]:
    """Return the newest verdicts of a query, in order, each with when it was given."""
    rows = history.rows("SELECT at, verdict FROM verdicts WHERE query = ? ORDER BY id DESC LIMIT 100", (query,))
    return [{"at": _text(row["at"]), **json.loads(row["verdict"])} for row in reversed(rows)]


@dataclass(frozen=True, kw_only=True)
class LateBatch:
    """A batch that dropped late rows. rows: as Spark counts them. watermark: what its rows had to reach, if known."""

    batch: int
    rows: int
    oldest: datetime | None
    watermark: datetime | None


def late_batches(history: History, query: str, generation: int, most: int = 10_000) -> list[LateBatch]:
    """Return batches with late rows among the newest `most`; late is behind the previous batch's watermark."""
    with history._snapshot() as db:
        last = db.execute(f"SELECT max(batch) FROM batches WHERE {_OF}", (query, generation)).fetchone()[0]
        rows = db.execute(
            "SELECT batch, json_extract(record, '$.dropped_by_watermark') AS late, "
            "json_extract(record, '$.event_min') AS oldest, (SELECT json_extract(b.record, '$.watermark') "
            "FROM batches b WHERE b.query = batches.query AND b.generation = batches.generation "
            f"AND b.batch = batches.batch - 1) AS mark FROM batches WHERE {_OF} AND batch > ? AND late > 0 "
            "ORDER BY batch",
            (query, generation, (last or 0) - most),
        ).fetchall()
    return [
        LateBatch(batch=row["batch"], rows=row["late"], oldest=_moment(row["oldest"]), watermark=_moment(row["mark"]))
        for row in rows
    ]


def change_mark(history: History) -> int:
    """Return a number that is another one once any other process has written to the history."""
    with history._snapshot() as db:
        return int(db.execute("PRAGMA data_version").fetchone()[0])


def _first_since(db: sqlite3.Connection, query: str, generation: int, first: int, last: int, seconds: float) -> int:
    """Return the first batch within `seconds` of the newest one; batches follow each other in time, so it is halved."""

    def at(batch: int) -> float:
        text = db.execute(
            f"SELECT json_extract(record, '$.at') FROM batches WHERE {_OF} AND batch >= ? ORDER BY batch LIMIT 1",
            (query, generation, batch),
        ).fetchone()[0]
        return datetime.fromisoformat(text).timestamp()

    since = at(last) - seconds
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if at(middle) < since:
            low = middle + 1
        else:
            high = middle
    return low


def _condition(search: str) -> tuple[str, list[Any]]:
    """Return the search as SQL, with its values: batches by number or range, comparisons of figures, and texts."""
    parts, values = [], list[Any]()
    for word in search.split():
        if match := _BATCHES.fullmatch(word):
            parts.append("batch BETWEEN ? AND ?")
            values += [int(match[1]), int(match[2] or match[1])]
        elif (match := _COMPARED.fullmatch(word)) and match[1] in _NUMBERS:
            try:
                values.append(float(match[3].replace(",", "")))
            except ValueError:
                raise SearchError(f"'{word}' compares with no number; write for example {match[1]}>1000") from None
            parts.append(f"{_NUMBERS[match[1]]} {match[2]} ?")
        elif match and match[3]:
            raise SearchError(f"batches have no '{match[1]}' to compare; there are {', '.join(_NUMBERS)}")
        else:
            parts.append("instr(lower(record), ?) > 0")
            values.append(word.lower().strip('"'))
    return "".join(f" AND {part}" for part in parts), values


def _record(text: str) -> BatchRecord:
    return BatchRecord.from_dict(json.loads(text))


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _text(seconds: float | None) -> str | None:
    return None if seconds is None else instant(seconds).isoformat()


def code_since(history: History, event: int) -> tuple[int, bool, int]:
    """Return the newest event, whether there was a deploy after `event`, and the process of the newest run."""
    with history._snapshot() as db:
        newest = db.execute("SELECT max(id) FROM events").fetchone()[0]
        deployed = db.execute("SELECT 1 FROM events WHERE id > ? AND kind = 'deployed' LIMIT 1", (event,)).fetchone()
        process = db.execute("SELECT pid FROM runs ORDER BY id DESC LIMIT 1").fetchone()
    return int(newest or 0), deployed is not None, int(process[0]) if process else 0
