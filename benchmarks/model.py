"""What the model costs: Kafka to Kafka without state, how long a message takes, and batches while the state grows."""

from __future__ import annotations

import json
import sqlite3
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path

from benchmarks.figures import Figure, Side
from benchmarks.model_kafka import Broker, broker, median_latency
from benchmarks.processes import BASELINES, HEADRACE, lines_of, lines_until
from headrace.spark.jvm import jars as connectors
from services import connectors as stand_ins

TITLE = "Kafka to Kafka: rate and latency; a windowed count of 1.4 million groups"
RUNS = 3
RATE = 1_000

_THROUGH = """name: through
sources:
  words:
    kafka: {{bootstrap_servers: "{url}", subscribe: {source}, value: text, starting_offsets: earliest}}
queries:
  louder:
    select: SELECT upper(value) AS value FROM words WHERE NOT startswith(value, 'skip')
    mode: {mode}
    trigger: {trigger}
    sink: {{kafka: {{bootstrap_servers: "{url}", topic: {sink}, value: raw}}}}
targets:
  dev: {{master: "local[2]"}}
"""
_TRIGGERS = {
    "available-now": "available-now",
    "default": "default",
    "continuous": "{continuous: 1 second}",
    "real-time": "{real_time: 30 seconds}",
}
# Seven of ten rows begin a group; the others fall on numbers that have been.
_GROUPS = """name: groups
sources:
  numbers:
    rate_micro_batch: {{rows_per_batch: {rows}, advance_millis_per_batch: 1000}}
    watermark: {{column: timestamp, delay: 10 minutes}}
queries:
  counts:
    select: >
      SELECT window.start AS hour, number, count(*) AS count
      FROM (SELECT timestamp, CASE WHEN value % 10 < 7 THEN value ELSE pmod(xxhash64(value), value) END AS number
            FROM numbers)
      GROUP BY window(timestamp, '1 hour'), number
    mode: update
    sink: {{sqlite: {{path: result.db, table: counts, key: [hour, number]}}}}
targets:
  dev: {{master: "local[2]"}}
"""


def measure(*, runs: int, quick: bool) -> list[Figure]:
    stand_ins.install()
    with broker() as kafka:
        figures = [_throughput(kafka, runs, 200_000 if quick else 4_000_000)]
        seconds = 4.0 if quick else 6.0
        figures += [
            _latency(kafka, runs, seconds, trigger, target)
            for trigger, target in (("default", 250.0), ("continuous", 20.0), ("real-time", 20.0))
        ]
    return [*figures, _flat(runs, 2_000 if quick else 20_000, 40 if quick else 99)]


def _throughput(kafka: Broker, runs: int, messages: int) -> Figure:
    source = kafka.topic()
    kafka.fill(source, messages)

    def ours(place: Path, sink: str) -> list[str]:
        return lines_of([*HEADRACE, "run", "--json"], cwd=_project(place, kafka, source, sink, "available-now"))

    def theirs(place: Path, sink: str) -> list[str]:
        return lines_of(_baseline(place, kafka, source, sink, "available-now"), cwd=place)

    def side(run: Callable[[Path, str], list[str]]) -> float:
        sink = kafka.topic()
        with tempfile.TemporaryDirectory() as scratch:
            lines = run(Path(scratch), sink)
        if (count := kafka.messages(sink)) != messages - messages // 10:
            raise RuntimeError(f"{count} messages came out of {messages}")
        kafka.server.delete_topic(sink)
        return _span(lines)

    pairs = [(side(ours), side(theirs)) for _ in range(runs)]
    return Figure(
        name=f"Kafka to Kafka without state, {messages} messages",
        ours=Side.of([pair[0] for pair in pairs]),
        theirs=Side.of([pair[1] for pair in pairs]),
        against="the same query by hand, settings tuned by hand",
        unit="s",
        # 0.95 of the rate.
        target=round(1 / 0.95, 4),
        note="from the trigger of the first batch to the end of the last, a million messages a batch, two partitions",
    )


def _span(lines: list[str]) -> float:
    """Seconds from the first batch's trigger to the last one's end."""
    batches = [event for event in map(json.loads, lines) if "duration_ms" in event]
    begun = min(_instant(batch["at"]) for batch in batches)
    return max(_instant(batch["at"]) + float(batch["duration_ms"]) / 1000 for batch in batches) - begun


def _instant(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _latency(kafka: Broker, runs: int, seconds: float, trigger: str, target: float) -> Figure:
    def side(command: Callable[[Path, str, str], list[str]]) -> float:
        source, sink = kafka.topic(), kafka.topic()
        with tempfile.TemporaryDirectory() as scratch:
            place = Path(scratch)
            median = median_latency(
                kafka, source, sink, command(place, source, sink), cwd=place, rate=RATE, seconds=seconds
            )
        return median * 1000

    def ours(place: Path, source: str, sink: str) -> list[str]:
        _project(place, kafka, source, sink, trigger)
        return [*HEADRACE, "run", "--json"]

    def theirs(place: Path, source: str, sink: str) -> list[str]:
        return _baseline(place, kafka, source, sink, trigger)

    pairs = [(side(ours), side(theirs)) for _ in range(runs)]
    return Figure(
        name=f"from the send to the receipt of a message, {_NAMES[trigger]}",
        ours=Side.of([pair[0] for pair in pairs]),
        theirs=Side.of([pair[1] for pair in pairs]),
        against="the same query by hand, settings tuned by hand",
        unit="ms",
        target=target,
        target_of="ours",
        note=f"median of {seconds:g} s at {RATE} messages a second, producer and consumer on the same machine",
    )


_NAMES = {"default": "in micro-batches", "continuous": "continuously", "real-time": "in real time"}


def _project(place: Path, kafka: Broker, source: str, sink: str, trigger: str) -> Path:
    mode = "update" if trigger == "real-time" else "append"
    text = _THROUGH.format(url=kafka.url, source=source, sink=sink, trigger=_TRIGGERS[trigger], mode=mode)
    (place / "headrace.yml").write_text(text, encoding="utf-8")
    return place


def _baseline(place: Path, kafka: Broker, source: str, sink: str, trigger: str) -> list[str]:
    jars = connectors.settings(connectors.choose(["kafka"]))["spark.jars"]
    script = str(BASELINES / "model_kafka.py")
    return [sys.executable, script, kafka.url, source, sink, str(place / "checkpoint"), trigger, jars]


def _flat(runs: int, rows: int, last: int) -> Figure:
    """The last ten batches against those from ten to twenty, while each batch adds groups to the state."""
    early, late = [], []
    for _ in range(runs):
        batches = _groups(rows, last)
        early.append(statistics.median(batches[number] for number in range(10, 20)))
        late.append(statistics.median(batches[number] for number in range(last - 9, last + 1)))
    groups = rows * (last + 1) * 7 // 10
    return Figure(
        name=f"a batch of a windowed count, the last ten of {last + 1}, up to {groups} groups",
        ours=Side.of(late),
        theirs=Side.of(early),
        against="batches ten to twenty of the same run",
        unit="ms",
        target=1.2,
        note=f"triggerExecution; {rows} rows a batch, of which 70 % begin a group; update mode into SQLite",
    )


def _groups(rows: int, last: int) -> dict[int, float]:
    def enough(line: str) -> bool:
        entry = json.loads(line)
        return bool(entry["event"] == "batch" and entry["batch"] >= last)

    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        (place / "headrace.yml").write_text(_GROUPS.format(rows=rows), encoding="utf-8")
        events = [json.loads(line) for line in lines_until([*HEADRACE, "run", "--json"], enough, cwd=place)]
        batches = [event for event in events if event["event"] == "batch"]
        with closing(sqlite3.connect(place / "result.db")) as connection:
            groups, counted = connection.execute("SELECT count(*), sum(count) FROM counts").fetchone()
    newest = batches[-1]
    # Until the run has stopped it makes batches whose events are not read.
    ahead = counted - rows * (newest["batch"] + 1)
    unsaid = groups - newest["state_rows"]
    if ahead < 0 or ahead % rows or not ahead * 7 // 10 <= unsaid <= ahead or groups < counted * 7 // 10:
        raise RuntimeError(f"{counted} rows counted in {groups} groups, {newest['state_rows']} of them in the state")
    return {batch["batch"]: float(batch["duration_ms"]) for batch in batches}
