"""The list of a board of several projects, and how each of them stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from headrace.contract.observer import RUNNING, Level
from headrace.ui.answers import Answers
from headrace.ui.listed import Listed
from headrace.ui.live import Live

_LEVELS: Sequence[Level] = ("idle", "good", "warning", "bad")


class Overview:
    """The list of the board, with a look of its own at each history: that of a project's page has another state."""

    def __init__(self, projects: Sequence[Listed]) -> None:
        self._projects = projects
        self._answers = {one.key: Answers(one.project) for one in projects if one.project is not None}
        self._standings: dict[str, Mapping[str, Any]] = {}
        self.live = Live(self.look)

    def projects(self, request: Request) -> Response:
        """Return how each project stands."""
        return JSONResponse(self.look(again=True))

    async def follow(self, request: Request) -> Response:
        """Server-sent events: the list, each time that it changes."""
        return StreamingResponse(self.live.stream(), media_type="text/event-stream")

    def look(self, again: bool) -> dict[str, Any] | None:
        """Return the list, if any history was written since the last look, or in any case; never raises."""
        new = {key: standing for key, answers in self._answers.items() if (standing := answers.look(again))}
        self._standings |= new
        if not new and not again:
            return None
        return {"projects": [_summary(one, self._standings.get(one.key, {})) for one in self._projects]}


def _summary(listed: Listed, standing: Mapping[str, Any]) -> dict[str, Any]:
    queries, findings = standing.get("queries", {}).values(), standing.get("findings", [])
    findings = [*(finding.as_dict() for finding in listed.findings), *findings]
    level = "bad" if findings else max((query["level"] for query in queries), key=_LEVELS.index, default="idle")
    running = sum(query["state"] in RUNNING for query in queries)
    state = "cannot be shown" if findings else "running" if running else "not running"
    return {
        "key": listed.key,
        "name": listed.name,
        "target": listed.project.target.name if listed.project else "",
        "directory": str(listed.directory),
        "state": "in trouble" if level == "bad" and not findings else state,
        "level": level,
        "queries": len(queries),
        "running": running,
        "rate": sum(query["rates"]["input"] or 0 for query in queries),
        "rows": sum(query.get("rows_total") or 0 for query in queries),
        "attention": sum(len(query["findings"]) for query in queries) + len(findings),
        "findings": findings,
    }
