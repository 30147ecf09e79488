"""What can be answered without a JVM: the help, and the structural check of a project of 50 queries."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.figures import Figure, Side
from benchmarks.processes import HEADRACE, seconds

TITLE = "headrace --help, and the structural check of 50 queries"
RUNS = 15
QUERIES = 50

_PYTHON = '''"""Fifty queries over ten sources."""

import headrace as hr
from pyspark.sql import DataFrame, functions as F

'''


def measure(*, runs: int, quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory() as scratch:
        in_yaml, in_python = Path(scratch) / "yaml", Path(scratch) / "python"
        _write_yaml(in_yaml)
        _write_python(in_python)
        sides = {
            "help": (*HEADRACE, "--help"),
            "yaml": (*HEADRACE, "check", "--no-spark", "--project", in_yaml),
            "python": (*HEADRACE, "check", "--no-spark", "--project", in_python),
            "pass": (sys.executable, "-c", "pass"),
            "pyspark": (sys.executable, "-c", "import pyspark.sql"),
        }
        took: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(-1, runs):  # the first round only fills the caches
            for name, command in sides.items():
                spent = seconds(command)
                if turn >= 0:
                    took[name].append(spent)
    side = {name: Side.of(times) for name, times in took.items()}
    return [
        Figure(
            name="headrace --help",
            ours=side["help"],
            theirs=side["pass"],
            against="python -c pass",
            unit="s",
            target=0.3,
            target_of="ours",
        ),
        Figure(
            name=f"headrace check --no-spark, {QUERIES} queries in YAML and SQL",
            ours=side["yaml"],
            theirs=side["pass"],
            against="python -c pass",
            unit="s",
            target=0.5,
            target_of="ours",
        ),
        Figure(
            name=f"headrace check --no-spark, {QUERIES} queries in Python",
            ours=side["python"],
            theirs=side["pyspark"],
            against="python -c 'import pyspark.sql', which the project itself imports",
            unit="s",
        ),
    ]


def _write_yaml(place: Path) -> None:
    sources = "".join(
        f"  events_{i}:\n"
        f"    files: {{path: landing/events_{i}, format: json, "
        'schema: "phone_id STRING, time TIMESTAMP, action STRING"}\n'
        "    watermark: {column: time, delay: 2 hours}\n"
        for i in range(10)
    )
    queries = "".join(
        f"  counts_{i}:\n    sql: queries/counts_{i}.sql\n    mode: update\n    trigger: {{every: 5 seconds}}\n"
        f"    sink: {{sqlite: {{path: result.db, table: counts_{i}, key: [action, hour]}}}}\n"
        for i in range(QUERIES)
    )
    (place / "queries").mkdir(parents=True)
    (place / "headrace.yml").write_text(f"name: fifty\nsources:\n{sources}queries:\n{queries}", encoding="utf-8")
    for i in range(QUERIES):
        (place / "queries" / f"counts_{i}.sql").write_text(
            f"SELECT action, window(time, '{i + 1} hours').start AS hour, count(*) AS count\n"
            f"FROM events_{i % 10}\nGROUP BY action, window(time, '{i + 1} hours')\n",
            encoding="utf-8",
        )


def _write_python(place: Path) -> None:
    sources = "".join(
        f'events_{i} = hr.source.files(\n    "landing/events_{i}", format="json", '
        'schema="phone_id STRING, time TIMESTAMP, action STRING",\n    watermark=("time", "2 hours"),\n)\n'
        for i in range(10)
    )
    queries = "".join(
        f'\n\n@hr.query(\n    sink=hr.sink.sqlite("result.db", table="counts_{i}", key=["action", "hour"]),\n'
        f'    mode="update", trigger=hr.every("5 seconds"),\n)\n'
        f"def counts_{i}(events_{i % 10}: DataFrame) -> DataFrame:\n"
        f'    counts = events_{i % 10}.groupBy("action", F.window("time", "{i + 1} hours")).count()\n'
        '    return counts.select("action", F.col("window.start").alias("hour"), "count")\n'
        for i in range(QUERIES)
    )
    place.mkdir(parents=True)
    (place / "headrace.yml").write_text("name: fifty\nmodules: [pipeline.py]\n", encoding="utf-8")
    (place / "pipeline.py").write_text(_PYTHON + sources + queries, encoding="utf-8")
