"""A plan kept in a file: what was found when it was made, and whether it still holds when it is applied."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError, Finding, HeadraceError, Where
from headrace.model import Project
from headrace.planner.verdict import Judgement
from headrace.storage import json_record
from headrace.storage.durable import replace_file

FORMAT = 1
_MAKE = "headrace plan --out FILE"
# What is compared of each query, in the order in which it is reported, and what a difference means.
_COMPARED = {
    "checkpoint": "it has started from scratch",
    "ran": "another form of it has run",
    "written": "it is written otherwise",
    "verdict": "it is judged otherwise",
    "differences": "what differs from what ran is not the same",
}


@dataclass(frozen=True, kw_only=True)
class SavedPlan:
    """What a plan found.

    file: where it is kept. project, application: whose plan it is, by name and by the id in the project's storage.
    made: when, in ISO 8601, UTC. queries: what is known of each, by its name, as `Judgement.as_dict` gives it.
    """

    file: str
    project: str
    application: str
    made: str
    queries: Mapping[str, Mapping[str, Any]]

    def accepting(self, project: Project) -> Project:
        """Return `project` with `on_change: forward` for the queries whose verdict in the plan is forward."""
        forward = {name for name, saved in self.queries.items() if saved["verdict"] == "forward"}
        return replace(
            project,
            queries={
                name: replace(query, on_change="forward") if name in forward else query
                for name, query in project.queries.items()
            },
        )

    def require_project(self, project: Project, application: str) -> None:
        """Raise HeadraceError unless the plan was made of this project, and of its queries."""
        if self.application != application:
            raise HeadraceError(
                _refusal(
                    self.file,
                    f"the plan was made for the project '{self.project}' with another storage directory, and not for "
                    f"'{project.name}' as it is here: apply it where it was made",
                )
            )
        if gone := [name for name in self.queries if name not in project.queries]:
            problem = f"the plan does not hold any more: query '{gone[0]}' is no longer declared"
            raise HeadraceError(_refusal(self.file, problem))

    def require(self, now: Sequence[Judgement]) -> None:
        """Raise CheckpointError if the judgements are not those of the plan any more; later batches change nothing."""
        if changed := tuple(self._changed(now)):
            raise CheckpointError(changed)

    def _changed(self, now: Sequence[Judgement]) -> Iterator[Finding]:
        for judgement in now:
            saved, current = self.queries[judgement.query], judgement.as_dict()
            other = next(
                (key for key in _COMPARED if _without_place(saved.get(key)) != _without_place(current[key])), None
            )
            if other is not None:
                yield _refusal(
                    self.file,
                    f"the plan does not hold any more: since it was made at {self.made}, query '{judgement.query}' has "
                    f"changed: {_COMPARED[other]}",
                )


def _refusal(file: str, problem: str) -> Finding:
    return Finding(code="HR660", where=Where(file=file), what=problem, fix="make it again here, and read it: " + _MAKE)


def _without_place(saved: Any) -> Any:
    """Return a saved value without lines of code."""
    if isinstance(saved, (list, tuple)):
        return [{key: value for key, value in entry.items() if key != "where"} for entry in saved]
    return saved


def save(file: Path, project: Project, application: str, judgements: Sequence[Judgement]) -> None:
    """Write the judgements into a file; raise HeadraceError if that fails."""
    content = {
        "format": FORMAT,
        "project": project.name,
        "application": application,
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "queries": {judgement.query: judgement.as_dict() for judgement in judgements},
    }
    try:
        replace_file(file, json.dumps(content, ensure_ascii=False, indent=2) + "\n")
    except OSError as error:
        raise HeadraceError(
            code="HR663",
            where=Where(file=str(file)),
            what=f"the plan cannot be written there: {error.strerror or error}",
            fix="name a file in a directory that is there and that you may write into",
        ) from error


def read(file: Path) -> SavedPlan:
    """Read the plan that `save` wrote; raise HeadraceError for anything else."""
    damaged = json_record.Damaged(
        file=file,
        code="HR660",
        what="this is not a plan that can be applied",
        fix=f"make one: {_MAKE}",
        error=HeadraceError,
    )
    plan = json_record.read(file, lambda content: _parse(file, content), damaged)
    if plan is None:
        raise damaged("No such file or directory")
    return plan


def _parse(file: Path, content: Any) -> SavedPlan:
    if content["format"] > FORMAT:
        raise ValueError(f"its format is {content['format']}, and this version of Headrace knows {FORMAT}")
    queries = {str(name): dict(saved) for name, saved in content["queries"].items()}
    if not all(isinstance(saved.get("verdict"), str) for saved in queries.values()):
        raise ValueError("a query in it has no verdict")
    return SavedPlan(
        file=str(file),
        project=str(content["project"]),
        application=str(content["application"]),
        made=str(content["made"]),
        queries=queries,
    )
