"""Wide events of a web shop for the jobs of `against_flink`, the same on every machine, and the answers to expect."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.spark.jvm import cds

SPAN_MS = 2 * 3600 * 1000
DISORDER_MS = 30 * 1000
START_MS = 1_704_067_200_000  # 2024-01-01T00:00:00Z
DAY_MS = 24 * 3600 * 1000
PAGES = 100
# So many of a hundred events begin a session; the others belong to one of the sessions before.
NEW_SESSIONS, RECENT_SESSIONS = 76, 1000
SCHEMA = "id BIGINT, session STRING, time TIMESTAMP, page STRING, value DOUBLE, agent STRING"
_SYSTEMS = ("X11; Linux x86_64", "Macintosh; Intel Mac OS X 14_2", "Windows NT 10.0; Win64; x64", "Linux; Android 14")
_FORM = 1  # counts up when the events or the answers change


@dataclass(frozen=True)
class Clicks:
    """`landing` has the events in JSON files, oldest first; `closed` has them, and one of two days later as the last.

    `answers` has the answer of each job as one parquet file.
    """

    landing: Path
    closed: Path
    answers: Path

    @property
    def megabytes(self) -> float:
        return sum(path.stat().st_size for path in self.landing.glob("*.json")) / 1e6


def clicks(number: int, *, files: int) -> Clicks:
    """`number` events in `files` files, made once and kept in the cache directory."""
    home = cds.cache().parent / "benchmarks" / f"clicks-{_FORM}-{number}-{files}"
    if not home.exists():
        part = home.with_name(f"{home.name}.part{os.getpid()}")
        shutil.rmtree(part, ignore_errors=True)
        made = Clicks(part / "landing", part / "closed", part / "answers")
        for directory in (made.landing, made.closed, made.answers):
            directory.mkdir(parents=True)
        events = _events(number)
        _write(made, events, files)
        for job, answer in _answers(events).items():
            pq.write_table(answer, made.answers / f"{job}.parquet")
        part.rename(home)
    return Clicks(home / "landing", home / "closed", home / "answers")


def _events(number: int) -> pa.Table:
    chance = np.random.default_rng(20240102)
    ids = np.arange(number)
    # Events arrive in order but for up to half a minute that each was on its way.
    ms = np.maximum(ids * SPAN_MS // number - chance.integers(0, DISORDER_MS, number), 0)
    begins = chance.integers(0, 100, number) < NEW_SESSIONS
    newest = np.cumsum(begins)
    session = np.where(begins, newest, np.maximum(newest - chance.integers(0, RECENT_SESSIONS, number), 0))
    # The first pages have a few more views than the last ones.
    page = (chance.random(number) ** 1.1 * PAGES).astype(np.int64)
    cents = chance.integers(0, 1_000_000, number)
    return pa.table(
        {
            "id": ids,
            "session": pc.binary_join_element_wise("session-", _pad(session, 8), ""),
            "time": pa.array(START_MS + ms, pa.timestamp("ms")),
            "page": pc.binary_join_element_wise("/products/", _pad(page, 3), ""),
            "value": cents / 100,
            "agent": pc.take(pa.array(_agents()), pa.array(chance.integers(0, len(_agents()), number))),
        }
    )


def _agents() -> list[str]:
    browser = "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/12{}.0.0.0"
    return [f"Mozilla/5.0 ({system}) {browser.format(number)}" for system in _SYSTEMS for number in range(3)]


def _pad(numbers: np.ndarray, width: int) -> pa.Array:
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, padding="0")


def _write(made: Clicks, events: pa.Table, files: int) -> None:
    for file, span in enumerate(np.array_split(np.arange(len(events)), files)):
        path = made.landing / f"clicks-{file:02d}.json"
        path.write_bytes(_lines(events.slice(span[0], len(span))))
        os.utime(path, (START_MS // 1000 + file, START_MS // 1000 + file))
        os.link(path, made.closed / path.name)
    last = events.slice(len(events) - 1).set_column(2, "time", pa.array([START_MS + 2 * DAY_MS], pa.timestamp("ms")))
    path = made.closed / "closing.json"
    path.write_bytes(_lines(last))
    os.utime(path, (START_MS // 1000 + files, START_MS // 1000 + files))


def _lines(events: pa.Table) -> bytes:
    lines = pc.binary_join_element_wise(
        '{"id":',
        events["id"].cast(pa.string()),
        ',"session":"',
        events["session"],
        '","time":"',
        pc.strftime(events["time"], "%Y-%m-%dT%H:%M:%S"),
        'Z","page":"',
        events["page"],
        '","value":',
        events["value"].cast(pa.string()),
        ',"agent":"',
        events["agent"],
        '"}',
        "",
    )
    return ("\n".join(lines.to_pylist()) + "\n").encode()


def _answers(events: pa.Table) -> dict[str, pa.Table]:
    return {
        "groups": _count_windows(events, 10 * 60_000, "session"),
        "rows": events,
        "sliding": _most_frequent(events),
        "highest": _count_windows(events, 10_000).select(["begins", "highest"]),
    }


def _count_windows(events: pa.Table, width_ms: int, *by: str) -> pa.Table:
    ms = events["time"].cast(pa.int64()).to_numpy()
    begins = pa.array(ms // width_ms * width_ms, pa.timestamp("ms"))
    totals = events.append_column("begins", begins).group_by(["begins", *by])
    grouped = totals.aggregate([("value", "count"), ("value", "sum"), ("value", "max")])
    names = {"value_count": "count", "value_sum": "total", "value_max": "highest"}
    columns = {names.get(name, name): grouped[name] for name in grouped.column_names}
    if by:
        del columns["highest"]
    return pa.table(columns)


def _most_frequent(events: pa.Table, width_ms: int = 10_000, slide_ms: int = 2_000) -> pa.Table:
    """The page with the most views of each sliding window; of equal ones the last by its name."""
    ms = events["time"].cast(pa.int64()).to_numpy() - START_MS
    page = pc.cast(pc.utf8_slice_codeunits(events["page"], len("/products/")), pa.int64()).to_numpy()
    overlap = width_ms // slide_ms
    # The first window begins before the first event.
    window = ms // slide_ms + overlap - 1
    views = np.zeros((int(window.max()) + 1, PAGES), np.int64)
    for back in range(overlap):
        np.add.at(views, (window - back, page), 1)
    best = PAGES - 1 - np.argmax(views[:, ::-1], axis=1)
    number = np.flatnonzero(views.any(axis=1))
    begins = START_MS + (number - overlap + 1) * slide_ms
    return pa.table(
        {
            "begins": pa.array(begins, pa.timestamp("ms")),
            "page": pc.binary_join_element_wise("/products/", _pad(best[number], 3), ""),
            "count": views[number, best[number]],
        }
    )
