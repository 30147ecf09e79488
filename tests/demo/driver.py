"""A driver for the demo that only talks: `python -m tests.demo.driver PROJECT SECONDS hangs|...`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from headrace.contract.observer import QueryState
from headrace.demo.starter import LANDING, QUERY
from headrace.generations.log import history_file
from headrace.history import History


def main() -> None:
    project, seconds, way = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    if way == "sleeps and beats":
        time.sleep(0.7 * seconds)
    say(event="preparing", query=QUERY, step="making its plan")
    with History.open(history_file(project / ".headrace")) as history:
        history.state(QueryState(query=QUERY, state="starting"))
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            time.sleep(0.1)
            if way != "hangs":
                history.heartbeat([])
    say(event="note", landed=len(list((project / LANDING).iterdir())))
    say(event="started", query=QUERY)
    time.sleep(60)


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
