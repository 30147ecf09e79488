"""The console sink prints, the memory sink answers SQL while the stream runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.connectors.console.sink import Console
from headrace.connectors.memory.sink import Memory
from headrace.contract import OUTPUT_MODES, SinkContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


PRINT = """if True:
    import sys
    from pathlib import Path
    from headrace.contract import SinkContext
    from headrace.connectors.console.sink import Console
    from headrace.testing.spark_session import local_session

    home = Path(sys.argv[1])
    spark = local_session(home)
    frame = spark.readStream.name("lines").text(str(home / "input"))
    for truncate in (True, False):
        run = SinkContext(query="q", generation=1, mode="append", checkpoint=home / str(truncate))
        sink = Console(num_rows=2, truncate=truncate)
        opened = sink.open(frame, run)
        writer = frame.writeStream.option("checkpointLocation", str(run.checkpoint)).trigger(availableNow=True)
        opened.attach(writer).start().awaitTermination()
"""


@pytest.mark.capability("SINK-CONSOLE-01")
def test_the_console_shows_so_many_rows_cut_or_whole(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "a.txt").write_text(("a" * 30 + "\n") * 5)
    done = subprocess.run([sys.executable, "-c", PRINT, str(tmp_path)], capture_output=True, text=True, check=True)
    lines = [line.strip("| ") for line in done.stdout.splitlines()]
    assert lines.count("a" * 17 + "...") == 2
    assert lines.count("a" * 30) == 2
    assert lines.count("only showing top 2 rows") == 2


@pytest.mark.capability("SINK-MEMORY-01")
def test_sql_asks_the_table_in_memory_while_the_stream_runs(spark: SparkSession, tmp_path: Path) -> None:
    run = SinkContext(query="in_memory", generation=1, mode="complete", checkpoint=tmp_path / "checkpoint")
    (tmp_path / "input").mkdir()
    frame = spark.readStream.name("lines").text(str(tmp_path / "input")).groupBy("value").count()
    sink = Memory()
    opened = sink.open(frame, run)
    writer = frame.writeStream.outputMode("complete").option("checkpointLocation", str(run.checkpoint))
    query = opened.attach(writer).start()
    try:
        for number in (1, 2):
            (tmp_path / "input" / f"{number}.txt").write_text("word\n")
            query.processAllAvailable()
            assert spark.sql("SELECT * FROM in_memory WHERE value = 'word'").collect() == [("word", number)]
            assert sink.read_back(spark, run).rows.collect() == [("word", number)]
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("sink", "codes"),
    [(Console(num_rows=0), [["HR113"]] * 3), (Memory(), [[], ["HR403"], []])],
    ids=["console", "memory"],
)
def test_faults_of_the_options_are_reported(sink: Any, codes: list[list[str]]) -> None:
    assert [[problem.code for problem in sink.problems(mode)] for mode in OUTPUT_MODES] == codes
