"""Spark's connectors: found where they were put, fetched by their coordinates, and missed in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.cli.entry import main
from headrace.contract import Jars
from headrace.errors import PlatformError
from headrace.frames.project_session import jars_of
from headrace.loader import load
from headrace.spark.jvm import jars as connectors
from headrace.spark.jvm import maven, settings
from headrace.spark.jvm.jars import CONTENT, DIRECTORIES_VARIABLE, SUMS
from headrace.spark.jvm.maven import sum_of
from headrace.spark.messages.refusals import finding_of

TINY = Jars(name="tiny", coordinates=("org.slf4j:slf4j-simple:1.7.36",), settings={"a": "1"})
NOWHERE = Jars(name="nowhere", coordinates=("headrace.nowhere:nothing:1",))


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(DIRECTORIES_VARIABLE, raising=False)


def put(place: Path, connector: Jars, jar: str = "some.jar") -> Path:
    folder = connectors.folder_of(connector, place)
    folder.mkdir(parents=True)
    (folder / jar).touch()
    (folder / SUMS).write_text(f"{sum_of(folder / jar)}  {jar}\n")
    (folder / CONTENT).write_text("\n".join(connector.coordinates))
    return folder / jar


@pytest.mark.plain
def test_jars_are_found_in_the_named_directories_the_project_and_the_cache_in_turn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert connectors.find(TINY, tmp_path) is None
    cached = put(tmp_path / "cache" / "connectors", TINY)
    assert connectors.find(TINY, tmp_path) == [cached]
    own = put(tmp_path / "connectors", TINY)
    assert connectors.find(TINY, tmp_path) == [own]
    named = put(tmp_path / "named", TINY)
    monkeypatch.setenv(DIRECTORIES_VARIABLE, f"{tmp_path / 'empty'}:{tmp_path / 'named'}")
    assert connectors.find(TINY, tmp_path) == [named]
    newer = Jars(name="tiny", coordinates=("org.slf4j:slf4j-simple:1.7.37",))
    assert connectors.find(newer, tmp_path) is None


@pytest.fixture
def fetch_jar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for Maven: it brings one jar."""
    monkeypatch.setattr(maven, "_fetch_by_maven", lambda _, __, directory: (directory / "tiny-1.jar").touch())
    monkeypatch.setattr("shutil.which", lambda _: "mvn")


@pytest.mark.plain
@pytest.mark.usefixtures("fetch_jar")
@pytest.mark.parametrize("other", ["another PySpark", "other coordinates"])
def test_two_environments_that_share_a_cache_leave_each_others_jars_alone(
    other: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = connectors.install(TINY, connectors.cache())
    if other == "another PySpark":
        monkeypatch.setattr(connectors, "version", lambda _: "4.2.9")
    coordinates = TINY.coordinates if other == "another PySpark" else ("org.slf4j:slf4j-simple:1.7.37",)
    second = connectors.install(Jars(name="tiny", coordinates=coordinates), connectors.cache())
    assert [jar.name for jar in (*first, *second)] == ["tiny-1.jar"] * 2
    assert all(jar.exists() for jar in (*first, *second))
    assert set(first).isdisjoint(second)
    assert connectors.install(TINY, connectors.cache()) == (second if other == "another PySpark" else first)


@pytest.mark.spark
@pytest.mark.usefixtures("fetch_jar")
def test_the_first_session_has_what_was_compiled_for_it_too() -> None:
    compiled = Jars(name="compiled", coordinates=TINY.coordinates, sources=(settings.FILE_MANAGER_SOURCE,))
    first = connectors.settings([compiled])["spark.jars"]
    assert [Path(jar).name for jar in first.split(",")] == [
        "headrace-ConditionalCheckpointFileManager.jar",
        "tiny-1.jar",
    ]
    assert first == connectors.settings([compiled])["spark.jars"]


@pytest.mark.plain
def test_a_session_gets_the_jars_and_settings_as_well_as_the_projects_own(tmp_path: Path) -> None:
    jar = put(tmp_path / "cache" / "connectors", TINY)
    given = {"spark.jars": "mine.jar", "a": "2", "b": "3"}
    assert connectors.settings([TINY], given) == {"spark.jars": f"{jar},mine.jar", "a": "2", "b": "3"}
    assert connectors.settings([], given) == given


@pytest.mark.plain
def test_a_project_needs_what_its_sources_and_sinks_need(tmp_path: Path) -> None:
    (tmp_path / "headrace.yml").write_text(
        "name: p\n"
        "sources:\n  s: {kafka: {bootstrap_servers: b, subscribe: t, value: avro, schema: e.avsc}}\n"
        "queries:\n  q: {select: SELECT * FROM s, sink: console}\n"
    )
    assert [connector.name for connector in jars_of(load(tmp_path))] == ["kafka", "avro"]
    assert set(connectors.known_connectors()) >= {"kafka", "avro"}


@pytest.mark.plain
def test_a_name_that_is_none_gets_the_nearest(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["jars", "fetch", str(tmp_path), "kafca"]) == 2
    errors = capsys.readouterr().err
    assert "HR103: no connector is named 'kafca'" in errors
    assert "did you mean 'kafka'" in errors


@pytest.mark.services
def test_a_connector_is_fetched_without_what_spark_has_and_a_missing_one_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(connectors, "known_connectors", lambda: {"tiny": TINY, "nowhere": NOWHERE})
    assert main(["jars", "list"]) == 0
    assert "tiny  not here" in capsys.readouterr().out
    assert main(["jars", "fetch", str(tmp_path / "d"), "tiny"]) == 0
    assert f"{DIRECTORIES_VARIABLE}={tmp_path / 'd'}" in capsys.readouterr().out
    monkeypatch.setenv(DIRECTORIES_VARIABLE, str(tmp_path / "d"))
    assert main(["jars", "list", "--json"]) == 0
    jar = connectors.folder_of(TINY, tmp_path / "d") / "slf4j-simple-1.7.36.jar"
    # It needs slf4j-api, which Spark brings along.
    assert json.loads(capsys.readouterr().out) == {"tiny": [str(jar)], "nowhere": None}
    with pytest.raises(PlatformError) as raised:
        connectors.settings([NOWHERE])
    [finding] = raised.value.findings
    assert finding.code == "HR012"
    assert "headrace.nowhere:nothing:1" in finding.what
    assert "\n" not in finding.what
    assert "repository that has it" in finding.fix


@pytest.mark.plain
@pytest.mark.parametrize(
    "words",
    [
        "Failed to find data source: kafka. Please deploy the application as per the deployment section of Structured "
        "Streaming + Kafka Integration Guide.",
        "[AVRO_DATA_SOURCE_NOT_ENABLED] Failed to find data source: avro. Avro is built-in but external",
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make sure the provider name is correct",
    ],
    ids=["Kafka", "Avro, by Spark 4.3", "Delta"],
)
def test_in_a_session_without_the_jars_the_way_to_them_is_shown(words: str) -> None:
    from pyspark.errors import AnalysisException

    finding = finding_of(AnalysisException(words))
    assert (finding.code, "headrace jars fetch" in finding.fix) == ("HR012", True)


@pytest.mark.services
def test_sparks_own_resolver_says_what_it_does_not_find(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(maven.FetchError) as raised:
        maven.fetch(NOWHERE.coordinates, tmp_path)
    assert str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("output", "sentence", "missing"),
    [
        pytest.param(
            "[ERROR] Failed to execute goal on project connectors: Could not resolve dependencies for project a: "
            + "The following artifacts could not be resolved: " * 9
            + "Could not find artifact org.apache.spark:spark-avro_2.13:jar:4.2.0 in central -> [Help 1]",
            "the repository does not have org.apache.spark:spark-avro_2.13:4.2.0",
            ["org.apache.spark:spark-avro_2.13:4.2.0"],
            id="an artifact is missing",
        ),
        pytest.param(
            "[ERROR] org.apache.spark:spark-avro_2.13:jar:4.2.0 was not found in https://repo during a previous try.",
            "the repository does not have org.apache.spark:spark-avro_2.13:4.2.0",
            ["org.apache.spark:spark-avro_2.13:4.2.0"],
            id="and was missing before",
        ),
        pytest.param(
            ":: unresolved dependency: org.apache.spark#spark-avro_2.13;4.2.0: not found",
            "the repository does not have org.apache.spark:spark-avro_2.13:4.2.0",
            ["org.apache.spark:spark-avro_2.13:4.2.0"],
            id="by Ivy",
        ),
        pytest.param(
            "[ERROR] Could not transfer artifact a:b:pom:1 from/to central (https://x): x: Name or service not known",
            "the repository cannot be reached (x)",
            [],
            id="no network",
        ),
    ],
)
def test_why_jars_are_not_here_is_one_whole_sentence(output: str, sentence: str, missing: list[str]) -> None:
    assert maven.reason_of(output) == sentence
    assert maven.missing_in(output) == missing


@pytest.mark.long
@pytest.mark.services
def test_the_nearest_version_that_a_repository_has_is_found() -> None:
    near = maven.nearest_version("org.slf4j:slf4j-simple:1.7.999")
    assert near is not None
    assert near.startswith("1.7.")
