"""The tables of the page that compares sinks, from the record of `python -m benchmarks.sink_faults --json`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.sink_faults.query import EXACTLY, NONE
from benchmarks.sink_faults.trial import FAULTS, WITHIN, FaultOutcome, finding

RECORD = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "sinks-compared.json"


def records() -> dict[str, dict[str, Any]]:
    """What was measured, by the sink's name, in the order of the page."""
    document: dict[str, dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return document


def sinks() -> str:
    """What each sink is, in which version it was tried, what it promises, and what was found."""
    head = ("`--sink`", "sink", "tried with", "its documentation", "that is", "found", "keeps its word")
    rows = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name, record in records().items():
        version, outcomes = f"PySpark {record['spark']}{_connector(record['jars'])}", _outcomes(record)
        verdict = finding(outcomes).replace("-", " ")
        missed = [
            outcome.fault for outcome in outcomes if outcome.within and outcome.verdict in ("not tried", "not shown")
        ]
        verdict = f"{verdict}, but for {', '.join(missed)}" if missed else verdict
        verdict = verdict if finding(outcomes) == EXACTLY else f"**{verdict}**"
        kept = "**no**" if any(outcome.breaks(record["promises"]) for outcome in outcomes) else "yes"
        kept = "gives none" if record["promises"] == NONE else kept
        words = f"[{record['words']}]({record['link']})"
        row = (f"`{name}`", record["title"], version, words, record["promises"].replace("-", " "), verdict, kept)
        rows.append(f"| {' | '.join(row)} |")
    return "\n".join(rows)


def list_promised() -> str:
    """What became of the rows under the faults that Spark's fault tolerance is about."""
    return _faults([fault for fault in FAULTS if fault in WITHIN])


def beyond() -> str:
    """What became of the rows under the other faults."""
    return _faults([fault for fault in FAULTS if fault not in WITHIN])


def _faults(faults: list[str]) -> str:
    rows = [f"| sink | {' | '.join(faults)} | seed |", f"|---{'|---' * len(faults)}|---|"]
    for name, record in records().items():
        outcomes = {outcome.fault: outcome for outcome in _outcomes(record)}
        cells = (_cell(outcomes[fault]) for fault in faults)
        rows.append(f"| `{name}` | {' | '.join(cells)} | {next(iter(outcomes.values())).seed} |")
    return "\n".join(rows)


def _outcomes(record: dict[str, Any]) -> list[FaultOutcome]:
    return [FaultOutcome(**facts) for facts in record["outcomes"]]


def _cell(outcome: FaultOutcome) -> str:
    shown = outcome.verdict.replace("not applicable", "–")
    refused = re.search(r"a driver failed: (.*)", outcome.detail)
    before = ", before they met" if "before they met" in outcome.detail else ""
    shown += f" (one driver failed: `{refused[1]}`{before})" if refused and outcome.verdict == "exact" else ""
    return f"**{shown}**" if outcome.breaks(EXACTLY) else shown


def _connector(jars: list[str]) -> str:
    """The connector among the jars: the one that the sink is named by, and its version."""
    wanted = r"(delta-spark|iceberg-spark|paimon-spark|hudi-spark|spark-sql-kafka|postgresql).*\.jar"
    names = [jar.removesuffix(".jar") for jar in jars if re.fullmatch(wanted, jar)]
    return f", {names[0]}" if names else ""
