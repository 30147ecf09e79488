"""What a deploy does to each query: what runs against what is declared now, as steps and without effects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from headrace.control.deploys import DeployStep
from headrace.model import Project, Query
from headrace.planner.forming import DeclaredCode
from headrace.planner.verdict import SHOWN, Judgement, list_refusals

# What is compared by its meaning, shows where something stands, or counts only while a change is judged.
_NOT_SETTINGS = ("transform", "where", "on_change", "renamed_from", "description")


class Declared(NamedTuple):
    """A query, and the project that it is declared in.

    code: the digests of its code as it runs, which its file may no longer give, and what they are salted with.
    """

    project: Project
    query: Query
    code: DeclaredCode | None = None

    def settings(self) -> dict[str, Any]:
        """Return the settings of the query and of what feeds it, those too that change no row, without their code."""
        project, query = self.project, self.query
        things = (query, *project.upstream(query.transform), *project.counters_of(query))
        return {thing.name: _without_code(thing) for thing in things}

    def has_code(self, code: DeclaredCode | None) -> bool:
        """Whether the query, as it is declared now, has the same code as one that runs."""
        return code is not None and code == DeclaredCode.of(self.project, self.query, salt=code.salt)


def plan_steps(
    running: Mapping[str, Declared], project: Project, judgements: Iterable[Judgement]
) -> tuple[DeployStep, ...]:
    """Return what brings the queries of `project` that are judged to an application that has others `running`."""
    judged = {judgement.query: judgement for judgement in judgements}
    steps = [_step(Declared(project, project.queries[name]), running.get(name), judged[name]) for name in judged]
    return (*steps, *(DeployStep(query=name, action="stop") for name in running if name not in judged))


def _step(now: Declared, before: Declared | None, judgement: Judgement) -> DeployStep:
    is_kept = before is not None and _is_unchanged(before, now, judgement)
    return DeployStep(
        query=now.query.name,
        action="start" if before is None else "keep" if is_kept else "restart",
        verdict=judgement.verdict,
        from_batch=judgement.from_batch,
        changes=() if is_kept else tuple(_changes(before, now, judgement)),
        findings=() if is_kept else tuple(list_refusals(now.query, judgement)),
    )


def _is_unchanged(before: Declared, now: Declared, judgement: Judgement) -> bool:
    """Whether what runs is what is declared now, however it is written."""
    if before.settings() != now.settings() or any(note.severity == "error" for note in judgement.notes):
        return False
    # The verdict compares with the newest batch, which the code that runs now may not have made.
    started = before.code
    form = judgement.ran if started is None else started.form
    if form and form == judgement.written:
        return True
    # A query that has made no batch is judged without a look at its code, and one may take new values at each start.
    return judgement.verdict in ("same", "safe") and now.has_code(before.code)


def _changes(before: Declared | None, now: Declared, judgement: Judgement) -> Iterator[str]:
    """Yield what has changed, as clauses."""
    yield from (difference.describe(SHOWN) for difference in judgement.differences)
    if before is None:
        return
    old, new = before.settings(), now.settings()
    for name in sorted(name for name in {*old, *new} if old.get(name) != new.get(name)):
        was, is_ = old.get(name) or {}, new.get(name) or {}
        keys = sorted(key for key in {*was, *is_} if was.get(key) != is_.get(key))
        yield f"{', '.join(keys)} of '{name}'"
    if not judgement.differences and not now.has_code(before.code):
        yield "its code"


def _without_code(value: Any) -> Any:
    """Return a value as plain data; functions and objects are there by the names of their types."""
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if field.compare and field.name not in _NOT_SETTINGS]
        return {"": type(value).__qualname__, **{name: _without_code(getattr(value, name)) for name in names}}
    if isinstance(value, Mapping):
        return {str(key): _without_code(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_without_code(part) for part in value]
    return value if isinstance(value, str | bytes | int | float | None) else type(value).__qualname__
