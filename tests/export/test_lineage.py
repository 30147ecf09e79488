"""OpenLineage receives which datasets each query reads and writes, and how each of its starts ended."""

from __future__ import annotations

import json
import pkgutil
import socket
import sys
import time
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from headrace.api import load
from headrace.connectors.files.source import Files
from headrace.connectors.iceberg.source import Iceberg
from headrace.connectors.kafka.source import Kafka
from headrace.connectors.rate.source import Rate
from headrace.connectors.sql.mysql import MySql
from headrace.connectors.sql.postgres import Postgres
from headrace.connectors.sql.sqlite import Sqlite
from headrace.contract import Connector
from headrace.errors import Finding, PlatformError, ProjectError
from headrace.export import lineage
from headrace.export.lineage import Dataset, Lineage, LineageStart, datasets
from headrace.runner.supervise import run
from tests.runner.projects import write_project
from tests.runner.test_run import FRUIT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

event_v2: Any = pytest.importorskip("openlineage.client.event_v2", reason="the extra openlineage is not installed")
naming: Any = pytest.importorskip("openlineage.client.naming.dataset")
AWAY = Finding(code="HR405", what="the database does not answer")
QUERIES = """
@hr.query(sink=hr.sink.files("copied", format="parquet"), trigger="available-now")
def copied(events):
    "Every sale."
    return events

again = hr.source.files("copied", format="parquet", schema="name STRING, amount INT")

@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"]), mode="update", trigger="available-now")
def totals(again):
    return again.groupBy("name").agg(F.sum("amount").alias("amount"))

@F.udf("int")
def broken(amount):
    raise ValueError("swordfish")

@hr.query(sink=hr.sink.memory(), trigger="available-now")
def failing(events):
    return events.select(broken("amount").alias("amount"))
"""


def dataset_of(name: Any) -> Dataset:
    return Dataset(name.get_namespace(), name.get_name())


@pytest.mark.plain
@pytest.mark.parametrize(
    ("connector", "dataset"),
    [
        (Kafka(bootstrap_servers="K:9092", subscribe="a"), naming.Kafka("k", "9092", "a")),
        (
            Postgres(url="postgresql://me:x@db:5433/shop", table="t"),
            naming.Postgres("db", "5433", "shop", "public", "t"),
        ),
        (MySql(url="mysql://me:x@db:3307/shop", table="t"), naming.MySQL("db", "3307", "shop", "t")),
        (Files(path="/data/in", format="json", schema="a INT"), naming.LocalFileSystem("/data/in")),
        (Files(path="s3a://lake/in", format="json", schema="a INT"), naming.S3("lake", "in")),
        (Files(path="hdfs://name:9000/in", format="json", schema="a INT"), naming.HDFS("name", "9000", "/in")),
        (Sqlite(path="/data/out.db", table="T"), Dataset("sqlite:///data/out.db", "t")),
        (Iceberg(catalog="lake", table="db.t"), Dataset("iceberg://lake", "db.t")),
        (Rate(), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_names_are_those_of_openlineages_own_rules(connector: Connector, dataset: Any) -> None:
    wanted = () if dataset is None else (dataset if isinstance(dataset, Dataset) else dataset_of(dataset),)
    assert datasets(connector.identity()) == wanted


def load_event(text: str) -> Any:
    """The event as the library's own models take it, which refuse what the specification does not know."""
    facts = json.loads(text)
    return event_v2.RunEvent(
        eventType=event_v2.RunState(facts["eventType"]),
        eventTime=facts["eventTime"],
        run=event_v2.Run(**facts["run"]),
        job=event_v2.Job(**facts["job"]),
        inputs=[event_v2.InputDataset(**dataset) for dataset in facts["inputs"]],
        outputs=[event_v2.OutputDataset(**dataset) for dataset in facts["outputs"]],
        producer=facts["producer"],
    )


@pytest.mark.spark
def test_queries_that_feed_each_other_are_joined_by_a_dataset_and_a_failure_is_sent(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path / "p", QUERIES, batches=FRUIT)
    (root / "headrace.yml").write_text("name: p\ntelemetry: {openlineage: true}\n")
    transport: dict[str, Any] = {"type": "file", "log_file_path": str(tmp_path / "events"), "append": True}
    (tmp_path / "openlineage.yml").write_text(json.dumps({"transport": transport}))
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(tmp_path / "openlineage.yml"))
    (root / "copied").mkdir()
    assert run(load(root), ["copied", "failing"], spark=spark).exit_code == 1
    assert run(load(root), ["totals"], spark=spark).exit_code == 0
    events = [load_event(line) for line in (tmp_path / "events").read_text().splitlines()]
    events_of = {
        job: [event for event in events if event.job.name == f"p.{job}"] for job in ("copied", "totals", "failing")
    }
    kinds = {job: [event.eventType.value for event in job_events] for job, job_events in events_of.items()}
    assert kinds == {
        "copied": ["START", "RUNNING", "COMPLETE"],
        "totals": ["START", "RUNNING", "COMPLETE"],
        "failing": ["START", "FAIL"],
    }
    assert all(len({event.run.runId for event in job_events}) == 1 for job_events in events_of.values())
    copied, totals, failing = (events_of[job][-1] for job in events_of)
    (read,), (written,), (taken,), (made,) = copied.inputs, copied.outputs, totals.inputs, totals.outputs
    assert (read.namespace, read.name) == ("file", str(root / "landing"))
    assert (written.namespace, written.name) == (taken.namespace, taken.name) == ("file", str(root / "copied"))
    assert (made.namespace, made.name) == (f"sqlite://{root}/out.db", "totals")
    columns = [(field["name"], field["type"]) for field in made.facets["schema"]["fields"]]
    assert columns == [("name", "string"), ("amount", "bigint")]
    assert [field["name"] for field in read.facets["schema"]["fields"]] == ["name", "amount"]
    assert taken.inputFacets["inputStatistics"]["rowCount"] == 3
    assert copied.job.facets["documentation"]["description"] == "Every sale."
    assert copied.job.facets["jobType"]["processingType"] == "STREAMING"
    assert failing.run.facets["errorMessage"]["message"].startswith("HR")
    assert failing.outputs == []


def facets_by_schema() -> dict[str, Any]:
    """The classes that the library has generated from the specification, by the URL of each one's schema."""
    generated: Any = pytest.importorskip("openlineage.client.generated")
    modules = [
        import_module(f"{generated.__name__}.{module.name}") for module in pkgutil.iter_modules(generated.__path__)
    ]
    classes = [value for module in modules for value in vars(module).values() if hasattr(value, "_get_schema")]
    return {facet._get_schema(): facet for facet in classes}


@pytest.mark.plain
def test_each_facet_is_what_the_schema_that_it_names_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    transport = {"type": "file", "log_file_path": str(tmp_path / "events"), "append": True}
    (tmp_path / "openlineage.yml").write_text(json.dumps({"transport": transport}))
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(tmp_path / "openlineage.yml"))
    serde: Any = pytest.importorskip("openlineage.client.serde").Serde
    landing, table = Dataset("file", "/landing"), Dataset("sqlite:///out.db", "totals")
    start = LineageStart(
        query="totals",
        run_id="0a1b2c3d-0000-4000-8000-000000000000",
        description="Every sale.",
        reads={landing: "events"},
        inputs={landing: [("name", "string")]},
        outputs={table: [("name", "string"), ("amount", "bigint")]},
        rows={"events": 3},
    )
    sent = Lineage("p", "4.2.0", print)
    for state, error in (("START", None), ("RUNNING", None), ("COMPLETE", None), ("FAIL", AWAY)):
        sent.send(state, start, error)  # type: ignore[arg-type]
    sent.close()
    facet_classes, seen = facets_by_schema(), set()
    for line in (tmp_path / "events").read_text().splitlines():
        event = json.loads(line)
        assert event["schemaURL"] == event_v2.RunEvent._get_schema()
        assert (urlsplit(event["producer"]).scheme, datetime.fromisoformat(event["eventTime"]).tzinfo) == (
            "urn",
            timezone.utc,
        )
        parts = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
        facets = [facet for part in parts for kind in ("facets", "inputFacets") for facet in part.get(kind, {}).items()]
        for name, facet in facets:
            kind, values = facet_classes[facet["_schemaURL"]], {key: facet[key] for key in facet if key[0] != "_"}
            # It refuses what the schema does not know, and misses what it asks for.
            assert serde.to_dict(kind(**values)) == {**facet, "_producer": event["producer"]}, name
            seen.add(kind.__name__)
    assert {"SchemaDatasetFacet", "InputStatisticsInputDatasetFacet", "ErrorMessageRunFacet"} < seen
    assert {"ProcessingEngineRunFacet", "JobTypeJobFacet", "DocumentationJobFacet"} < seen


@pytest.mark.plain
def test_a_receiver_that_hangs_keeps_no_query_waiting_and_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    findings: list[Finding] = []
    monkeypatch.setattr(lineage, "CLOSE_SECONDS", 4.0)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        transport = {"TYPE": "http", "URL": f"http://127.0.0.1:{deaf.getsockname()[1]}"}
        for name, value in {**transport, "TIMEOUT": "1", "RETRY": '{"total": 0}'}.items():
            monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", value)
        sent = Lineage("p", "4.2.0", findings.append)
        begun = time.monotonic()
        for _ in range(100):
            sent.send("RUNNING", LineageStart(query="totals", run_id="0a1b2c3d-0000-4000-8000-000000000000"))
        assert time.monotonic() - begun < 50, "each attempt takes a second"
        sent.close()
    assert [finding.code for finding in findings] == ["HR875"]


@pytest.mark.plain
def test_a_wrong_configuration_and_a_missing_package_are_reported_before_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "pigeon")
    with pytest.raises(PlatformError) as caught:
        Lineage("p", "4.2.0", print)
    assert caught.value.findings[0].code == "HR898"
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    with pytest.raises(PlatformError) as caught:
        Lineage("p", "4.2.0", print)
    assert caught.value.findings[0].code == "HR011"
    root = write_project(tmp_path / "p", "")
    (root / "headrace.yml").write_text("name: p\ntelemetry: {openlineage: sometimes}\n")
    with pytest.raises(ProjectError) as raised:
        load(root)
    assert raised.value.findings[0].code == "HR104"
