"""What a new start of the application would do, planned by a new process before anything stops."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Mapping
from typing import Any

from headrace.control.deploys import DeployResult, DeployStep
from headrace.errors import Finding
from headrace.planner.verdict import SHOWN, Judgement
from headrace.storage import json_lines

_LOOK_SECONDS = 0.5


def plan_new_start(
    child: subprocess.Popen[str], running: Collection[str], *, accept_forward: bool, is_stopping: Callable[[], bool]
) -> DeployResult:
    """Read what `headrace plan --json` prints in the process `child`; it is ended once the application stops.

    running: the queries that the application has.
    """
    while True:
        try:
            out, errors = child.communicate(timeout=_LOOK_SECONDS)
            break
        except subprocess.TimeoutExpired:
            if is_stopping():
                child.terminate()
    lines = list(json_lines.objects_of(out))
    findings = tuple(Finding.from_dict(plain) for line in lines for plain in line.get("findings", ()))
    planned = next((line["queries"] for line in lines if "queries" in line), None)
    if planned is None:
        return DeployResult(findings=findings or (_no_plan(child.returncode, errors),))
    steps = [_step(plain, running, accept_forward=accept_forward) for plain in planned]
    planned_names = [step.query for step in steps]
    steps += [DeployStep(query=query, action="stop") for query in running if query not in planned_names]
    return DeployResult(steps=tuple(steps))


def _step(plain: Mapping[str, Any], running: Collection[str], *, accept_forward: bool) -> DeployStep:
    judgement = Judgement.from_dict(plain)
    refused = [Finding.from_dict(one) for one in plain["refused"]]
    if accept_forward and judgement.verdict == "forward":
        refused = [note for note in judgement.notes if note.severity == "error"]
    return DeployStep(
        query=judgement.query,
        action="restart" if judgement.query in running else "start",
        verdict=judgement.verdict,
        from_batch=judgement.from_batch,
        changes=tuple(difference.describe(SHOWN) for difference in judgement.differences),
        findings=tuple(refused),
    )


def _no_plan(code: int, errors: str) -> Finding:
    printed = next(reversed(errors.strip().splitlines()), "it printed nothing")
    return Finding(
        code="HR854",
        what=f"the new start cannot be planned: headrace plan ended with {code}: {printed[:500]}",
        fix="see what it prints in a shell: headrace plan; nothing was stopped",
    )
