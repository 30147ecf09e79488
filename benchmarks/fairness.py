"""Equal queries that share two cores: how far apart they end, and how long one waits while the others continue."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from benchmarks.figures import Figure, Side
from benchmarks.processes import HEADRACE, lines_of

TITLE = "six equal queries on two cores: how far apart they end, and the batches of another that one waits for"
RUNS = 3
QUERIES = ("a", "b", "c", "d", "e", "f")

SOURCE = """
{name}_in = hr.source.files("{name}", format="json", max_files_per_trigger=1, schema="k INT, text STRING")

@hr.query(sink=hr.sink.sqlite("{name}.db", table="counts", key=["k"]), mode="update", trigger=hr.available_now)
def {name}({name}_in):
    return {name}_in.groupBy("k").agg(F.count("*").alias("rows"), F.max(F.sha2("text", 512)).alias("most"))
"""
POOLS = "<allocations>{}</allocations>"
POOL = '<pool name="{}"><schedulingMode>FIFO</schedulingMode></pool>'

Ends = Mapping[str, Sequence[float]]


def measure(*, runs: int, quick: bool) -> list[Figure]:
    files, rows = (6, 2_000) if quick else (16, 20_000)
    sides: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for turn in range(runs):
            for name in ("turns", "pools"):
                ends = run(Path(scratch) / f"{turn}-{name}", files, rows, pool_each=name == "pools")
                side = sides.setdefault(name, {"apart": [], "wait": [], "first": []})
                side["apart"].append(apart(ends))
                side["wait"].append(longest_wait(ends))
                side["first"].append(first_apart(ends))
    against = "a scheduler pool for each query, named after it"

    def figure(key: str, title: str, target: float | None) -> Figure:
        return Figure(
            name=title,
            ours=Side.of(sides["turns"][key]),
            theirs=Side.of(sides["pools"][key]),
            against=against,
            unit="share" if key == "apart" else "batches" if key == "wait" else "s",
            target=target,
            target_of="ours",
        )

    return [
        figure("apart", "between the first and the last end of six equal queries, as a share of the whole time", 0.15),
        figure("wait", "the most batches of another query between two batches of one", 3.0),
        figure("first", "between the first batch of the first and of the last query", None),
    ]


def run(
    home: Path, files: int, rows: int, *, pool_each: bool = False, settings: Mapping[str, str] | None = None
) -> Ends:
    """When each query's batches ended, in seconds, by its name."""
    write(home, files, rows, pool_each=pool_each, settings=settings or {})
    ends: dict[str, list[float]] = {}
    for line in lines_of((*HEADRACE, "run", "-C", home, "--json"), cwd=home):
        facts = json.loads(line)
        if facts["event"] == "batch" and facts["rows"]:
            at = datetime.fromisoformat(facts["at"]).timestamp()
            ends.setdefault(facts["query"], []).append(at + facts["duration_ms"] / 1000)
    assert {name: len(times) for name, times in ends.items()} == dict.fromkeys(QUERIES, files), "every batch ran"
    return ends


def write(home: Path, files: int, rows: int, *, pool_each: bool, settings: Mapping[str, str]) -> None:
    """The project, and the same files for each query."""
    home.mkdir(parents=True)
    chosen = {"spark.sql.shuffle.partitions": "2", **settings}
    if pool_each:
        (home / "pools.xml").write_text(POOLS.format("".join(POOL.format(name) for name in QUERIES)))
        chosen["spark.scheduler.allocation.file"] = str(home / "pools.xml")
    spark = "".join(f"      {key}: {json.dumps(value)}\n" for key, value in chosen.items())
    (home / "headrace.yml").write_text(f"name: fairness\ntargets:\n  dev:\n    master: 'local[2]'\n    spark:\n{spark}")
    body = "".join(SOURCE.format(name=name) for name in QUERIES)
    (home / "pipeline.py").write_text(f"import headrace as hr\nfrom pyspark.sql import functions as F\n{body}")
    text = "".join(json.dumps({"k": row % 100, "text": f"{row:>200}"}) + "\n" for row in range(rows))
    for name in QUERIES:
        (home / name).mkdir()
        for number in range(files):
            file = home / name / f"{number:04d}.json"
            file.write_text(text)
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def apart(ends: Ends) -> float:
    """Between the first and the last end, as a share of the time from the first batch's end to the last one's."""
    last = [times[-1] for times in ends.values()]
    return (max(last) - min(last)) / (max(last) - min(times[0] for times in ends.values()))


def longest_wait(ends: Ends) -> float:
    """The most batches that any query ended between two batches of another that follow each other."""
    return float(
        max(
            sum(before < end < after for end in ends[other])
            for name, times in ends.items()
            for before, after in pairwise(times)
            for other in ends
            if other != name
        )
    )


def first_apart(ends: Ends) -> float:
    """Between the first batch of the first and of the last query."""
    firsts = [times[0] for times in ends.values()]
    return max(firsts) - min(firsts)
