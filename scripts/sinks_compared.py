"""The tables of the page that compares sinks, from the record of `python -m headrace.testing.sinks --json`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from headrace.testing.sinks.query import EXACTLY
from headrace.testing.sinks.trial import FAULTS, WITHIN, FaultOutcome

RECORD = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "sinks-compared.json"


def records() -> dict[str, dict[str, Any]]:
    """What was measured, by the sink's name, in the order of the page."""
    found: dict[str, dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def sinks() -> str:
    """What each sink is, in which version it was tried, and what it promises."""
    head = ("`--sink`", "sink", "tried with", "promises", "its documentation", "keeps it", "exact under each")
    rows = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name, found in records().items():
        version, kept = f"PySpark {found['spark']}{_connector(found['jars'])}", "**no**" if found["broken"] else "yes"
        words = f"[{found['words']}]({found['link']})"
        exact = not any(FaultOutcome(**each).breaks(EXACTLY) for each in found["outcomes"])
        partly = " of those tried" if any(each["verdict"] == "not tried" for each in found["outcomes"]) else ""
        row = (f"`{name}`", found["title"], version, found["promises"], words, kept, f"yes{partly}" if exact else "no")
        rows.append(f"| {' | '.join(row)} |")
    return "\n".join(rows)


def promised() -> str:
    """What became of the rows under the faults that Spark's fault tolerance is about."""
    return _faults([fault for fault in FAULTS if fault in WITHIN])


def beyond() -> str:
    """What became of the rows under the other faults."""
    return _faults([fault for fault in FAULTS if fault not in WITHIN])


def _faults(faults: list[str]) -> str:
    rows = [f"| sink | {' | '.join(faults)} | seed |", f"|---{'|---' * len(faults)}|---|"]
    for name, found in records().items():
        outcomes = {each["fault"]: FaultOutcome(**each) for each in found["outcomes"]}
        cells = (_cell(outcomes[fault], found["promises"]) for fault in faults)
        rows.append(f"| `{name}` | {' | '.join(cells)} | {next(iter(outcomes.values())).seed} |")
    return "\n".join(rows)


def _cell(outcome: FaultOutcome, promises: str) -> str:
    shown = outcome.verdict.replace("not applicable", "–")
    refused = re.search(r"a driver failed: (.*)", outcome.detail)
    shown += f" (one driver failed: `{refused[1]}`)" if refused and outcome.verdict == "exact" else ""
    return f"**{shown}**" if outcome.breaks(promises) else shown


def _connector(jars: list[str]) -> str:
    """The connector among the jars: the one that the sink is named by, and its version."""
    wanted = r"(delta-spark|iceberg-spark|paimon-spark|hudi-spark|spark-sql-kafka|postgresql).*\.jar"
    found = [jar.removesuffix(".jar") for jar in jars if re.fullmatch(wanted, jar)]
    return f", {found[0]}" if found else ""
