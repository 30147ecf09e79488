"""The kit for any streaming sink: what keeps its promise stays green, what breaks it turns red."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.testing.sinks.__main__ import main
from headrace.testing.sinks.query import AT_LEAST, EXACTLY, SINKS, sentence
from headrace.testing.sinks.trial import FaultOutcome, settings_of

USERS = """
from query import TestedSink, by_batch, by_jdbc, from_jdbc

SINK = TestedSink(
    by_batch(by_jdbc("append")), from_jdbc, title="my script", promise=("at-least-once", "as the guide says", "guide")
)
"""


@pytest.mark.crash
def test_sparks_own_file_sink_is_exact_and_a_script_that_appends_by_jdbc_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, script = tmp_path / "record.json", tmp_path / "script.py"
    script.write_text(USERS)  # It says at-least-once, as Spark's guide does of foreachBatch.
    asked = ["--fault", "replayed batch", "--json", str(record)]
    assert main(["--sink", "files", *asked]) == 0, capsys.readouterr()
    assert main(["--sink", str(script), *asked, "--promises", "exactly-once"]) == 1, capsys.readouterr()
    found = json.loads(record.read_text())
    verdicts = {name: [each["verdict"] for each in of["outcomes"]] for name, of in found.items()}
    assert verdicts == {"files": ["exact"], str(script): ["duplicates 300"]}
    assert found[str(script)]["broken"] == ["replayed batch"]


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
    ],
)
def test_a_promise_is_broken_by_what_it_excludes(verdict: str, within: bool, promises: str, broken: bool) -> None:
    outcome = FaultOutcome(fault="f", within=within, verdict=verdict, detail="", seed=1, seconds=0.0)
    assert outcome.breaks(promises) is broken


@pytest.mark.plain
def test_a_sink_that_needs_a_server_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--sink", "kafka"])
    assert ended.value.code == 2
    assert "needs --url: HOST:PORT of a Kafka broker" in capsys.readouterr().err


@pytest.mark.plain
def test_a_script_over_derby_needs_no_jar() -> None:
    assert settings_of(SINKS["jdbc-append"], spark="4.2.0") == {}


@pytest.mark.plain
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[STREAM_FAILED] Query terminated with exception: [DIVIDE_BY_ZERO] x SQLSTATE: 22012", "DIVIDE_BY_ZERO"),
        ("[STREAM_FAILED] Query terminated with exception: HR431: x", "HR431"),
        ("[STREAM_FAILED] Query terminated with exception: Race in batch 1 SQLSTATE: XX", "Race in batch 1"),
        ("two queries use file:/data/job-7/4, and jdbc:x://me@h:1/d", "two queries use PATH, and PATH"),
        ("", "RuntimeError"),
    ],
)
def test_an_error_is_told_by_its_code(text: str, said: str) -> None:
    assert sentence(RuntimeError(text)) == said
