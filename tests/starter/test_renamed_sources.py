"""A renamed source of each kind resumes at its offsets, whatever line of a start a process dies at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.starter import start
from headrace.verifier.inspect_progress import inspect_offsets
from tests.connectors.delta.test_source import add as add_to_delta
from tests.connectors.iceberg import tables as iceberg
from tests.connectors.kafka.test_source import sale
from tests.connectors.python_source.test_source import CLASS
from tests.registered import layout_in
from tests.runner.projects import land, ledger, rows, write_project
from tests.verifier.late_project import land as land_late
from tests.verifier.test_late_output import SECOND, SQLITE, late_times
from tests.verifier.test_late_output import write as write_late

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers import Topics

KEPT = """
import headrace as hr

{more}
{name} = hr.source.{source}{former})

@hr.query(sink=hr.sink.sqlite("out.db", table="kept"), mode="append", trigger=hr.available_now)
def kept({name}):
    return {name}.select("{column}")
"""
services = [pytest.mark.services, pytest.mark.connectors]


def files(root: Path, batch: int, spark: SparkSession, servers: Any) -> tuple[str, str, str]:
    land(root, batch, [{"name": f"n{batch}", "amount": batch}])
    return 'files("landing", format="json", schema="name STRING, amount INT"', "name", ""


def rate_micro_batch(root: Path, batch: int, spark: SparkSession, servers: Any) -> tuple[str, str, str]:
    return "rate_micro_batch(rows_per_batch=3", "value", ""


def python(root: Path, batch: int, spark: SparkSession, servers: Any) -> tuple[str, str, str]:
    (root / "until").write_text(str(2 * batch + 2))
    return f'python(Numbers, options={{"home": "{root}", "step": "2"}}, replayable=True', "number", CLASS


def kafka(root: Path, batch: int, spark: SparkSession, servers: Topics) -> tuple[str, str, str]:
    topic = root.parent / "topic"
    if not batch:
        topic.write_text(servers.make())
    servers.send(topic.read_text(), sale(f"n{batch}", batch))
    options = f'bootstrap_servers="{servers.url}", subscribe="{topic.read_text()}", starting_offsets="earliest"'
    return f'kafka({options}, value="json", schema="name STRING, amount INT"', "name", ""


def delta(root: Path, batch: int, spark: SparkSession, servers: Any) -> tuple[str, str, str]:
    add_to_delta(spark, str(root / "given"), batch, mode="append")
    return 'delta("given"', "id", ""


def iceberg_table(root: Path, batch: int, spark: SparkSession, servers: Any) -> tuple[str, str, str]:
    iceberg.add(root, "db.given", [{"id": batch}])
    return f'iceberg("db.given", catalog={iceberg.properties(root)}', "id", ""


def run(root: Path, spark: SparkSession) -> hr.Project:
    project = hr.load(root)
    outcomes = hr.run(project, trigger=hr.available_now, spark=spark).outcomes
    assert [outcome.finding for outcome in outcomes] == [None] * len(outcomes)
    return project


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(rate_micro_batch, marks=pytest.mark.spark),
        pytest.param(kafka, marks=[*services, pytest.mark.long]),
        pytest.param(python, marks=[pytest.mark.spark, pytest.mark.long]),
        pytest.param(delta, marks=[*services, pytest.mark.long]),
        pytest.param(iceberg_table, marks=[*services, pytest.mark.long]),
    ],
)
def test_a_source_of_each_kind_resumes_at_its_offsets(
    kind: Callable[..., tuple[str, str, str]], spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    root = write_project(tmp_path / "p", "")
    servers = request.getfixturevalue("kafka") if kind is kafka else None
    for batch, (name, former) in enumerate([("old", ""), ("new", ', renamed_from="old"'), ("new", "")]):
        source, column, more = kind(root, batch, spark, servers)
        text = KEPT.format(name=name, source=source, former=former, column=column, more=more)
        (root / "pipeline.py").write_text(text)
        project = run(root, spark)
    given = rows(root / "out.db", f"SELECT {column}, count(*) FROM kept GROUP BY 1")
    assert len(given) > 2
    assert {times for _, times in given} == {1}, given
    assert ledger(root / "out.db") == [0, 1, 2]
    assert hr.verify(project, "kept", spark=spark).state == "equal"
    assert [source.source for source in inspect_offsets(project, project.queries["kept"]).sources] == ["new"]
    [status] = hr.status(project)
    assert list(status.lags) in ([], ["new"]), status.lags


@pytest.mark.spark
def test_a_process_that_dies_at_any_line_of_the_start_has_renamed_all_or_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each cut is of one start; the following one resumes, by the name with the key."""

    class Killed(BaseException):
        pass

    root = write_project(tmp_path / "p", "")
    dies: list[str] = []

    def cut(owner: Any, name: str, *, after: bool) -> None:
        real, place = getattr(owner, name), f"{'after' if after else 'before'} {name}"

        def called(*args: Any, **kwargs: Any) -> Any:
            if place in dies and not after:
                raise Killed(place)
            given = real(*args, **kwargs)
            if place in dies:
                raise Killed(place)
            return given

        monkeypatch.setattr(owner, name, called)

    for after in (False, True):
        cut(start, "write_sources", after=after)
        cut(start, "_stream", after=after)
    formers: list[str] = []
    places = ["", "before write_sources", "after write_sources", "before _stream", "after _stream"]
    for batch, place in enumerate(places):
        source, column, _ = files(root, batch, spark, None)
        former = f", renamed_from={formers}" if formers else ""
        text = KEPT.format(name=f"name_{batch}", source=source, former=former, column=column, more="")
        (root / "pipeline.py").write_text(text)
        formers.insert(0, f"name_{batch}")
        dies[:] = [place]
        if place:
            project = hr.load(root)
            with pytest.raises(Killed):
                start.start(project, project.queries["kept"], spark, trigger=hr.available_now)
            dies.clear()
            # A reader between the two finds the batches before.
            assert hr.verify(project, "kept", spark=spark).state == "equal"
        project = run(root, spark)
    assert rows(root / "out.db", "SELECT name FROM kept ORDER BY 1") == [(f"n{batch}",) for batch in range(len(places))]
    assert ledger(root / "out.db") == list(range(len(places)))
    checkpoint = layout_in(root / ".headrace", "kept").checkpoint
    assert [path.name for path in (checkpoint / "sources").iterdir()] == ["name_0"]


@pytest.mark.long
@pytest.mark.spark
def test_late_rows_and_lag_follow_a_renamed_source(spark: SparkSession, tmp_path: Path) -> None:
    root = write_late(tmp_path / "p", SQLITE)
    run(root, spark)
    land_late(root, *SECOND)
    text = (root / "pipeline.py").read_text().replace("events", "happened")
    (root / "pipeline.py").write_text(
        text.replace('hr.source.files("', 'hr.source.files(renamed_from="events", path="')
    )
    pending = hr.load(root)
    assert [status.backlog.count for status in hr.status(pending) if status.query == "counted"] == [len(SECOND)]
    project = run(root, spark)
    assert late_times(root)[-1] == ("12:10", 7)
    hr.late(project, "counted", export=tmp_path / "late", spark=spark)
    assert [path.name for path in (tmp_path / "late").iterdir()] == ["happened"]
    [counted] = (status for status in hr.status(project) if status.query == "counted")
    assert (list(counted.lags), counted.backlog.count) == (["happened"], 0)
    assert hr.verify(project, "counted", spark=spark).state == "late"
