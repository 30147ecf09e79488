"""A session gets a JVM that fits its purpose, whatever the process did before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import get_args

import pytest

from headrace.spark.jvm.session import _Asked
from headrace.spark.jvm.settings import Purpose

PROGRAM = """
import json, tempfile
from headrace.spark.jvm.session import start

def asked(purpose):
    home = tempfile.mkdtemp()
    spark = start(master="local[1]", purpose=purpose, name="t", overrides={"spark.sql.warehouse.dir": home})
    runtime = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    seen = (runtime.getName(), "-XX:+UseSerialGC" in list(runtime.getInputArguments()), spark.range(3).count())
    spark.stop()
    return seen

print(json.dumps([asked(purpose) for purpose in ("short", "stream", "reading", "short")]))
"""


@pytest.mark.spark
@pytest.mark.timeout(180)
def test_a_stream_after_a_check_does_not_run_on_the_jvm_of_a_short_command() -> None:
    # Of the tests' own options one is the collector, which the purpose chooses here.
    env = {**os.environ, "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True, env=env)
    answers = json.loads(done.stdout)
    (check, serial, _), (run, runs_serial, _), *others = answers
    assert [rows for *_, rows in answers] == [3] * 4
    assert serial
    assert not runs_serial
    assert check != run, "another JVM"
    assert [again for again, *_ in others] == [run, run], "which does for a verdict and a short command too"


@pytest.mark.plain
@pytest.mark.parametrize(
    ("purpose", "serves"),
    [
        ("short", {"short"}),
        ("reading", {"short", "reading"}),
        ("backlog", {"short", "reading", "backlog"}),
        ("stream", {"short", "reading", "backlog", "stream"}),
    ],
)
def test_a_jvm_serves_what_ends_as_soon_as_what_it_was_started_for(purpose: Purpose, serves: set[Purpose]) -> None:
    started = _Asked(purpose, {"spark.master": "local[1]"})
    assert {other for other in get_args(Purpose) if started.serves(_Asked(other, started.settings))} == serves
    assert not started.serves(_Asked(purpose, {"spark.master": "local[2]"}))
