"""Write what each file of tests took in a run, by which the next run orders them: `python -m scripts.durations`.

It reads the reports that `make test` and `make test-long` write to `build/`.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "tests" / "durations.json"
# What takes less is in no other process's way.
LEAST_SECONDS = 5.0


def read_durations(report: Path) -> dict[str, float]:
    """Return the seconds of each file in a JUnit report, of those that took long, the longest first."""
    seconds: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).iter("testcase"):
        seconds[_file_of(case.get("classname", ""))] += float(case.get("time", 0))
    longest = sorted(seconds.items(), key=lambda item: -item[1])
    return {name: round(taken) for name, taken in longest if taken >= LEAST_SECONDS}


def _file_of(classname: str) -> str:
    """Return the file of `tests.connectors.delta.test_sink.TestDeltaSink`."""
    parts = classname.split(".")
    while len(parts) > 1 and not ROOT.joinpath(*parts).with_suffix(".py").is_file():
        parts.pop()
    return "/".join(parts) + ".py"


def main() -> int:
    durations = json.loads(TARGET.read_text())
    reports = {name: ROOT / "build" / f"{name}.xml" for name in durations}
    if not any(report.is_file() for report in reports.values()):
        print(f"There is no report: {' or '.join(f'make {name}' for name in durations)} writes one.", file=sys.stderr)
        return 2
    for name, report in reports.items():
        if report.is_file():
            durations[name] = read_durations(report)
    TARGET.write_text(json.dumps(durations, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
