"""Looks at a project, and orders to its application, need no passwords; what needs one says which variable it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace import registry
from headrace.api import load
from headrace.cli import main
from headrace.errors import ProjectError
from headrace.inspect import offsets as inspect_offsets
from tests.verifier import late_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = """
name: shop
sources:
  orders: {kafka: {bootstrap_servers: "${BROKERS}", subscribe: orders, value: json, schema: "id INT",
                   options: {kafka.sasl.jaas.config: "${JAAS}"}}}
queries:
  q: {select: SELECT * FROM orders, sink: {postgres: {url: "${DATABASE_URL}", table: t, key: [id]}}}
spark: {spark.hadoop.fs.s3a.secret.key: "${S3_SECRET}"}
metrics: {port: 9108, token: "${file:no-such-secret}"}
hooks: [{on: [failure], webhook: "${ALERT_URL}"}]
targets:
  dev: {vars: {DATABASE_URL: "postgresql://u:${PASSWORD}@db/shop"}}
"""


def variables(error: pytest.ExceptionInfo[ProjectError]) -> set[str]:
    return {finding.what.split("'")[1] for finding in error.value.findings if finding.code in ("HR105", "HR115")}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "headrace.yml").write_text(DOCUMENT)
    for name in ("BROKERS", "JAAS", "DATABASE_URL", "S3_SECRET", "ALERT_URL", "PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.plain
@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (["status"], 0, "never"),
        (["status", "--storage-only"], 0, "q"),
        (["stop"], 1, "HR850"),
        (["stop", "q"], 1, "HR850"),
        (["pause", "q"], 1, "HR850"),
        (["resume", "q"], 1, "HR850"),
        (["restart", "q"], 1, "HR850"),
        (["inspect", "checkpoint"], 0, "no batch yet"),
        (["inspect", "offsets", "q"], 1, "HR588"),
        (["inspect", "watermark", "q"], 1, "HR588"),
        (["change", "status", "q"], 0, "no change of it"),
        (["late", "q", "--count"], 1, "the variable 'BROKERS' is not set"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_look_or_an_order_needs_no_secret(
    project: Path, capsys: pytest.CaptureFixture[str], command: list[str], code: int, says: str
) -> None:
    assert main(command) == code
    text = "".join(capsys.readouterr())
    assert says in text
    assert ("HR105" in text) is says.startswith("the variable")


@pytest.mark.plain
@pytest.mark.parametrize("command", ["check", "plan", "verify q", "ui"])
def test_what_works_on_the_data_names_them_all(project: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main(command.split()) == 1
    errors = capsys.readouterr().err
    assert all(name in errors for name in ("BROKERS", "JAAS", "PASSWORD", "S3_SECRET", "ALERT_URL", "no-such-secret"))


@pytest.mark.plain
def test_what_asks_a_system_says_which_variable_it_needs(project: Path) -> None:
    loaded = load(project, environ={}, may_lack_variables=True)
    source, sink = loaded.sources["orders"].connector, loaded.queries["q"].sink
    assert isinstance(source, registry.connector("source", "kafka"))
    assert source.identity() is sink.identity() is None
    with pytest.raises(ProjectError) as lacking:
        source.check_connection(None)  # type: ignore[arg-type]
    assert variables(lacking) == {"BROKERS", "JAAS"}
    with pytest.raises(ProjectError) as lacking:
        sink.read_back(None, None)  # type: ignore[arg-type]
    assert variables(lacking) == {"DATABASE_URL"}
    assert (sink.reset.droppable, sink.reset.judge_keeping("update").possible) == (True, True)
    assert sink.swap is not None
    for place in (sink, sink.swap.shadow):
        with pytest.raises(ProjectError) as lacking:
            place.reset.row_counts(None, None)  # type: ignore[arg-type]
        assert variables(lacking) == {"DATABASE_URL"}
    with pytest.raises(ProjectError) as lacking:
        loaded.target.require_settings()
    assert variables(lacking) == {"PASSWORD", "S3_SECRET", "no-such-secret", "ALERT_URL"}


@pytest.mark.plain
@pytest.mark.parametrize("line", ["storage: ${STORE}", "name: ${NAME}"])
def test_what_says_where_the_project_lies_must_be_there(
    project: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    (project / "headrace.yml").write_text(f"{DOCUMENT.replace('name: shop', '')}\n{line}\n")
    assert main(["status"]) == 1
    assert f"the variable '{line.split('{')[1][:-1]}' is not set" in capsys.readouterr().err


@pytest.mark.plain
def test_a_fault_of_another_kind_is_reported(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "headrace.yml").write_text(DOCUMENT.replace("subscribe:", "subscribes:"))
    assert main(["stop"]) == 1
    assert "HR103" in capsys.readouterr().err


@pytest.mark.plain
@pytest.mark.parametrize("kind", sorted(registry.list_names("sink")))
def test_each_sink_can_lack_the_values_of_its_texts(kind: str, tmp_path: Path) -> None:
    given = dict.fromkeys(registry.required_options(registry.connector("sink", kind)), "${LACKING}")
    (tmp_path / "headrace.yml").write_text(
        "sources: {s: {rate: {rows_per_second: 1}}}\n"
        f"queries: {{q: {{select: SELECT * FROM s, sink: {{{kind}: {json.dumps(given)}}}}}}}\n"
    )
    sink = load(tmp_path, environ={}, may_lack_variables=True).queries["q"].sink
    assert bool(sink.lacking) is bool(given)
    assert sink.facts is not None


@pytest.mark.spark
def test_rows_that_came_late_are_counted_without_the_sinks_password(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = late_project.write_project(tmp_path / "p")
    pipeline = root / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace('path="result.db"', 'path="${RESULT}"'))
    monkeypatch.setenv("RESULT", str(root / "result.db"))
    late_project.run(root, "updated", spark)
    monkeypatch.delenv("RESULT")
    capsys.readouterr()
    assert main(["late", "updated", "-C", str(root), "--count"]) == 0
    output = capsys.readouterr().out
    assert "2 rows" in output or "2 late rows" in output
    assert "the variable 'RESULT' is not set" in output  # so that it is unknown what was brought back
    assert main(["late", "updated", "-C", str(root), "--replay"]) == 1
    assert "the variable 'RESULT' is not set" in "".join(capsys.readouterr())

    # The lag of a source whose directory is not known is none, and not 0.
    pipeline.write_text(pipeline.read_text().replace('"path": "landing"', '"path": "${LANDING}"'))
    [offsets] = inspect_offsets(load(root, environ={}, may_lack_variables=True), "updated").sources
    assert offsets.lag is None
