"""The kit for any streaming sink: what keeps its promise stays green, what breaks it turns red."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.sink_faults.__main__ import main
from benchmarks.sink_faults.query import AT_LEAST, EXACTLY, NONE, SINKS, sentence
from benchmarks.sink_faults.settings import coordinates_of, settings_of
from benchmarks.sink_faults.trial import FaultOutcome, LostAnswer, attempts_at, finding

USERS = """
from query import TestedSink, by_batch, by_jdbc, from_jdbc

SINK = TestedSink(
    by_batch(by_jdbc("append")), from_jdbc, title="my script", promise=("at-least-once", "as the guide says", "guide")
)
"""


@pytest.mark.long
@pytest.mark.crash
def test_sparks_own_file_sink_is_exact_and_a_script_that_appends_by_jdbc_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # It says at-least-once, as Spark's guide does of foreachBatch; it is red all the same.
    Path("script.py").write_text(USERS)
    records = {"files": tmp_path / "files.json", "script.py": tmp_path / "script.json"}
    asked = [["--sink", name, "--fault", "replayed batch", "--json", str(file)] for name, file in records.items()]
    with ThreadPoolExecutor(2) as both:
        assert list(both.map(main, asked)) == [0, 1], capsys.readouterr()
    documents = [json.loads(file.read_text())[name] for name, file in records.items()]
    assert [outcome["verdict"] for record in documents for outcome in record["outcomes"]] == ["exact", "duplicates 300"]
    assert [record["found"] for record in documents] == [EXACTLY, AT_LEAST]
    assert [record["broken"] for record in documents] == [[], []]


@pytest.mark.plain
@pytest.mark.parametrize(
    ("verdict", "within", "promises", "broken"),
    [
        ("exact", True, EXACTLY, False),
        ("duplicates 300", True, EXACTLY, True),
        ("duplicates 300", True, AT_LEAST, False),
        ("duplicates 300, lost 1", True, AT_LEAST, True),
        ("lost 1", True, AT_LEAST, True),
        ("duplicates 300", False, EXACTLY, False),
        ("refused (HR431)", True, EXACTLY, True),
        ("not applicable", True, EXACTLY, False),
        ("duplicates 300", True, NONE, False),
    ],
)
def test_a_promise_is_broken_by_what_it_excludes(verdict: str, within: bool, promises: str, broken: bool) -> None:
    outcome = FaultOutcome(fault="f", within=within, verdict=verdict, detail="", seed=1, seconds=0.0)
    assert outcome.breaks(promises) is broken


@pytest.mark.plain
@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["exact", "not applicable", "exact"], EXACTLY),
        (["exact", "duplicates 300"], AT_LEAST),
        (["duplicates 300", "lost 1"], "neither exactly-once nor at-least-once"),
        (["not shown", "not tried"], "nothing shown"),
    ],
    ids=["exact", "duplicates", "lost", "nothing"],
)
def test_a_sink_is_what_its_worst_outcome_leaves(verdicts: list[str], expected: str) -> None:
    outcomes = [
        FaultOutcome(fault="f", within=True, verdict=verdict, detail="", seed=1, seconds=0.0) for verdict in verdicts
    ]
    assert finding([*outcomes, replace(outcomes[0], within=False, verdict="lost 300")]) == expected


@pytest.mark.plain
@pytest.mark.parametrize(
    ("lines", "attempts"),
    [
        (["3 0 0", "3 0 1"], 2),
        (["3 0 0", "3 0 0"], 1),  # A row that is worked on twice by one attempt.
        (["3 0 0", "5 0 0"], 1),  # Of two batches.
        (["3 0 0", "3 1 1"], 1),  # Of two tasks.
        (None, 0),
    ],
    ids=["retried", "repeated", "batches", "tasks", "unreached"],
)
def test_attempts_are_counted_by_task(tmp_path: Path, lines: list[str] | None, attempts: int) -> None:
    if lines is not None:
        (tmp_path / "mark.attempts").write_text("".join(f"{line}\n" for line in lines))
    assert attempts_at(tmp_path / "mark") == attempts


@pytest.mark.plain
@pytest.mark.parametrize(
    ("sink", "spark", "connector", "wanted"),
    [
        ("hudi", "3.5.7", "1.0.2", "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.0.2"),
        ("iceberg", "4.0.2", "1.10.0", "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"),
        ("paimon", "4.0.2", "org.apache.paimon:other:2", "org.apache.paimon:other:2"),
    ],
)
def test_a_connector_is_chosen_by_the_version_of_spark(sink: str, spark: str, connector: str, wanted: str) -> None:
    assert coordinates_of(SINKS[sink], spark=spark, connector=connector) == [wanted]


@pytest.mark.plain
def test_a_sink_that_needs_a_server_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--sink", "kafka"])
    assert ended.value.code == 2
    assert "needs --url: HOST:PORT of a Kafka broker" in capsys.readouterr().err


@pytest.mark.crash
def test_a_sink_that_fails_without_any_fault_is_not_blamed(capsys: pytest.CaptureFixture[str]) -> None:
    # No server listens there.
    asked = ["--sink", "jdbc-upsert", "--url", "postgresql://me@127.0.0.1:1/test", "--fault", "kill at each log write"]
    assert main(asked) == 2
    printed = capsys.readouterr()
    assert "without any fault the result is not exact: refused (" in printed.err
    assert "no fault was tried" in printed.err
    assert "BREAKS" not in printed.out


@pytest.mark.plain
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sink", "fles"], "'fles' is not a sink: there are files, kafka"),
        (["--sink", "away.py"], "cannot be run: FileNotFoundError"),
        (["--sink", "broken.py"], "cannot be run: SyntaxError"),
        (["--sink", "empty.py"], "defines no SINK"),
        (["--sink", "other.py"], "is of type int, not TestedSink"),
        (["--sink", "files", "--python", "/no/python"], "'/no/python' cannot be run: "),
        (["--sink", "files", "--python", "/bin/true"], "'/bin/true' has no PySpark"),
        (["--sink", "files", "--json", "broken.py"], "holds no JSON"),
        (["--sink", "files", "--json", "list.json"], "holds no record of sinks"),
        (["--sink", "files", "--json", "away/record.json"], "there is no directory away"),
        (["--sink", "files", "--keep", "."], "--keep . is not empty"),
        (["--sink", "files", "--minutes", "0"], "argument --minutes: invalid"),
    ],
)
def test_what_was_asked_wrongly_is_reported_before_any_trial(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {"broken.py": "def (", "empty.py": "", "other.py": "SINK = 1", "list.json": "[]"}.items():
        Path(name).write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.plain
@pytest.mark.parametrize("user", ["", "me@", "me:a%40b@"])
def test_the_way_to_a_database_keeps_its_user(user: str) -> None:
    with LostAnswer(f"postgresql://{user}db:5432/test?sslmode=disable", 2) as proxy:
        assert re.fullmatch(rf"postgresql://{user}127\.0\.0\.1:\d+/test\?sslmode=disable", proxy.url)


@pytest.mark.plain
def test_a_script_over_derby_needs_no_jar() -> None:
    assert settings_of(SINKS["jdbc-append"], spark="4.2.0") == {}


@pytest.mark.plain
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[STREAM_FAILED] Query terminated with exception: [DIVIDE_BY_ZERO] x SQLSTATE: 22012", "DIVIDE_BY_ZERO"),
        ("[STREAM_FAILED] Query terminated with exception: HR431: x", "HR431"),
        ("[STREAM_FAILED] Query terminated with exception: Race in batch 1 SQLSTATE: XX", "Race in batch 1"),
        ("two queries use file:/data/job-7/4, and jdbc:x://me@h:1/d", "two queries use PATH, and PATH"),
        ("An error occurred while calling o1.x\n: org.a.BException: it is refused\n\tat org.a.B", "it is refused"),
        ("", "RuntimeError"),
    ],
)
def test_an_error_is_named_by_its_code(text: str, expected: str) -> None:
    assert sentence(RuntimeError(text)) == expected
