"""`python -m benchmarks.sink_faults --sink NAME`: faults on a sink, a table of what became of its rows, JSON of it."""

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

from benchmarks.sink_faults.query import AT_LEAST, EXACTLY, SINKS, TestedSink, sink_of
from benchmarks.sink_faults.settings import of_the_jvm, settings_of
from benchmarks.sink_faults.trial import FAULTS, FaultOutcome, finding, try_sink, verdict_without_fault
from headrace.errors import HeadraceError, reason
from headrace.storage.durable import replace_file


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the faults; returns 1 when a result breaks `--promises`, 2 when nothing could be tried or kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sink_faults", description=__doc__)
    parser.add_argument("--sink", required=True, help=f"{', '.join(SINKS)}, or FILE.py that defines SINK")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this one; may be repeated")
    parser.add_argument(
        "--promises", choices=(EXACTLY, AT_LEAST), default=EXACTLY, help="what to judge by: exactly-once if not given"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=_minutes, default=10.0, help="what does not begin in that time is not tried")
    parser.add_argument("--python", default=sys.executable, help="of an environment with another PySpark")
    parser.add_argument("--version", help="of the connector; or group:artifact:version")
    parser.add_argument("--url", default="", help="postgresql://... of a database, or HOST:PORT of a Kafka broker")
    parser.add_argument("--json", type=Path, help="put the record there, next to those of other sinks")
    parser.add_argument("--keep", type=Path, help="keep the directories of the trials there")
    options = parser.parse_args(arguments)
    name = str(Path(options.sink).absolute()) if options.sink.endswith(".py") else options.sink
    try:
        sink, spark = _sink(name), _version(options.python)
        held = _record(options.json) if options.json else {}
        if options.keep and options.keep.exists() and any(options.keep.iterdir()):
            raise ValueError(f"--keep {options.keep} is not empty; name a directory that is, or none")
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if sink.needs and not options.url:
        parser.error(f"the sink '{options.sink}' needs --url: {sink.needs}")
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
        if (alone := verdict_without_fault(name, home, seed=options.seed, **more)) != "exact":
            fix = f"see {home / 'undisturbed' / 'log'}" if options.keep else "read the log that --keep DIR keeps"
            sentence = f"without any fault the result is not exact: {alone}"
            print(f"'{options.sink}': {sentence}, so that no fault was tried; fix: {fix}", file=sys.stderr)
            return 2
        for outcome in try_sink(name, home, faults, seed=options.seed, minutes=options.minutes, **more):
            row = f"{outcome.fault:26} {outcome.verdict:32} {_mark(outcome, promises):16} {outcome.seconds:6.1f} s  "
            row += outcome.detail
            red = outcome.breaks(options.promises) and sys.stdout.isatty()
            print(f"\x1b[31m{row.rstrip()}\x1b[0m" if red else row.rstrip(), flush=True)
            outcomes.append(outcome)
    verdict, broken = finding(outcomes), [outcome.fault for outcome in outcomes if outcome.breaks(promises)]
    inexact = ", ".join(f"{outcome.verdict} ({outcome.fault})" for outcome in outcomes if outcome.breaks(EXACTLY))
    print(f"found: {verdict}{': ' if inexact else ''}{inexact}")
    print(f"its documentation promises {promises}{': broken by ' if broken else ''}{', '.join(broken)}")
    if options.json:
        record: dict[str, Any] = {
            **{"title": sink.title, "promises": promises, "words": words, "link": link, "spark": spark},
            "jars": sorted(Path(jar).name for jar in settings.get("spark.jars", "").split(",") if jar),
            "outcomes": [asdict(outcome) for outcome in outcomes],
            **{"found": verdict, "broken": broken},
        }
        try:
            held = {**held, **_record(options.json)}
            replace_file(options.json, json.dumps({**held, options.sink: record}, indent=1) + "\n")
        except (ValueError, OSError) as error:
            print(f"{error}; the record of '{options.sink}' was not written: {json.dumps(record)}", file=sys.stderr)
            return 2
    if any(outcome.breaks(options.promises) for outcome in outcomes):
        return 1
    return 0 if any(not outcome.verdict.startswith("not ") for outcome in outcomes) else 2


def _sink(name: str) -> TestedSink:
    """The sink of that name or file; raises ValueError."""
    try:
        sink = sink_of(name)
    except KeyError:
        reason = "defines no SINK" if name.endswith(".py") else f"is not a sink: there are {', '.join(SINKS)}"
        raise ValueError(f"'{name}' {reason}") from None
    except Exception as error:  # whatever a user's file raises
        raise ValueError(f"'{name}' cannot be run: {type(error).__name__}: {error}") from error
    if not isinstance(sink, TestedSink):
        raise ValueError(f"SINK in '{name}' is of type {type(sink).__name__}, not TestedSink")
    return sink


def _version(python: str) -> str:
    """The version of PySpark in an environment; raises ValueError."""
    asked = [python, "-c", "import pyspark; print(pyspark.__version__)"]
    try:
        output = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    except OSError as error:
        raise ValueError(f"'{python}' cannot be run: {reason(error)}") from error
    if not output:
        raise ValueError(f"'{python}' has no PySpark: pip install pyspark")
    return output


def _record(file: Path) -> dict[str, Any]:
    """The sinks in a record, none if it is not there yet; raises ValueError, OSError."""
    if not file.parent.is_dir():
        raise ValueError(f"--json {file}: there is no directory {file.parent}")
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"--json {file} holds no JSON: {error}") from error
    if not isinstance(held, dict):
        raise ValueError(f"--json {file} holds no record of sinks")
    return held


def _minutes(text: str) -> float:
    """A number of minutes above 0; raises ValueError."""
    if not 0 < (minutes := float(text)) < float("inf"):
        raise ValueError
    return minutes


def _mark(outcome: FaultOutcome, promises: str) -> str:
    """Compare an outcome with what the documentation promises."""
    if outcome.breaks(promises):
        return "BREAKS ITS WORD"
    if outcome.breaks(EXACTLY):
        return "NOT EXACT"
    return "" if outcome.within else "not promised"


if __name__ == "__main__":
    sys.exit(main())
