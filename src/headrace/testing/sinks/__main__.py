"""`python -m headrace.testing.sinks --sink NAME`: faults on a sink, a table of what became of its rows, JSON of it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError
from headrace.testing.sinks.query import AT_LEAST, EXACTLY, SINKS, sink_of
from headrace.testing.sinks.trial import FAULTS, FaultOutcome, finding, of_the_jvm, settings_of, try_sink


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the faults; returns 1 when a result breaks `--promises`, 2 when nothing could be tried."""
    parser = argparse.ArgumentParser(prog="python -m headrace.testing.sinks", description=__doc__)
    parser.add_argument("--sink", required=True, help=f"{', '.join(SINKS)}, or FILE.py that defines SINK")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this one; may be repeated")
    parser.add_argument(
        "--promises", choices=(EXACTLY, AT_LEAST), default=EXACTLY, help="what to judge by: exactly-once if not given"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10.0, help="what does not begin in that time is not tried")
    parser.add_argument("--python", default=sys.executable, help="of an environment with another PySpark")
    parser.add_argument("--version", help="of the connector; or group:artifact:version")
    parser.add_argument("--url", default="", help="postgresql://... of a database, or HOST:PORT of a Kafka broker")
    parser.add_argument("--json", type=Path, help="put the record there, beside those of other sinks")
    parser.add_argument("--keep", type=Path, help="keep the directories of the trials there")
    options = parser.parse_args(arguments)
    try:
        sink = sink_of(options.sink)
    except (KeyError, OSError):
        parser.error(f"no sink is named '{options.sink}': {', '.join(SINKS)}")
    if sink.needs and not options.url:
        parser.error(f"the sink '{options.sink}' needs --url: {sink.needs}")
    asked = [options.python, "-c", "import pyspark; print(pyspark.__version__)"]
    spark = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    if not spark:
        parser.error(f"'{options.python}' has no PySpark: pip install pyspark")
    try:
        settings = settings_of(sink, spark=spark, connector=options.version, url=options.url)
    except HeadraceError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    promises, words, link = sink.promise
    print(f"{sink.title}, PySpark {spark}, seed {options.seed}; it promises {promises}: {words} ({link})")
    outcomes: list[FaultOutcome] = []
    more = {"python": options.python, "url": options.url, "settings": {**of_the_jvm(spark), **settings}}
    with tempfile.TemporaryDirectory(prefix="headrace-sinks-") as scratch:
        home, faults = (options.keep or Path(scratch)).absolute(), options.fault or FAULTS
        for each in try_sink(options.sink, home, faults, seed=options.seed, minutes=options.minutes, **more):
            row = f"{each.fault:26} {each.verdict:32} {_mark(each, promises):16} {each.seconds:6.1f} s  {each.detail}"
            red = each.breaks(options.promises) and sys.stdout.isatty()
            print(f"\x1b[31m{row.rstrip()}\x1b[0m" if red else row.rstrip(), flush=True)
            outcomes.append(each)
    found, broken = finding(outcomes), [each.fault for each in outcomes if each.breaks(promises)]
    inexact = ", ".join(f"{each.verdict} ({each.fault})" for each in outcomes if each.breaks(EXACTLY))
    print(f"found: {found}{': ' if inexact else ''}{inexact}")
    print(f"its documentation promises {promises}{': broken by ' if broken else ''}{', '.join(broken)}")
    if options.json:
        record: dict[str, Any] = {
            **{"title": sink.title, "promises": promises, "words": words, "link": link, "spark": spark},
            "jars": sorted(Path(jar).name for jar in settings.get("spark.jars", "").split(",") if jar),
            "outcomes": [asdict(each) for each in outcomes],
            **{"found": found, "broken": broken},
        }
        held = json.loads(options.json.read_text()) if options.json.exists() else {}
        options.json.write_text(json.dumps({**held, options.sink: record}, indent=1) + "\n")
    return 1 if any(each.breaks(options.promises) for each in outcomes) else 0


def _mark(outcome: FaultOutcome, promises: str) -> str:
    """What an outcome is, beside what the documentation promises."""
    if outcome.breaks(promises):
        return "BREAKS ITS WORD"
    if outcome.breaks(EXACTLY):
        return "NOT EXACT"
    return "" if outcome.within else "not promised"


if __name__ == "__main__":
    sys.exit(main())
