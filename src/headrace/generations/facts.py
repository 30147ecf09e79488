"""What a start, a plan and a check of a query go by, read once and handed on."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from headrace.checkpoint import Checkpoint, OffsetEntry
from headrace.checkpoint.repartitions import Repartitions
from headrace.checkpoint.sources import SourceNames
from headrace.contract import SinkContext
from headrace.errors import CheckpointError
from headrace.generations.log import QueryLayout, begin, newest_of
from headrace.generations.manifest import QueryRevision, forms
from headrace.generations.register import Register, layout_of, read_register, root_places
from headrace.generations.source_names import read_source_names
from headrace.model import Project, Query
from headrace.storage.private import make_private, writing_to
from headrace.storage.remote import store_at

_Value = TypeVar("_Value")


class _Once(Generic[_Value]):
    """A property that is computed once. That of functools keeps other threads waiting before Python 3.12."""

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        self._compute = compute

    def __get__(self, facts: Any, owner: type) -> _Value:
        value = facts.__dict__[self._compute.__name__] = self._compute(facts)
        return value


@dataclass(frozen=True, kw_only=True)
class StartFacts:
    """The facts of a query: each is read when it is first asked for, and not again.

    A start reads them after it has taken the query's lease, and once more after it has changed them.

    register: None before the first start in the storage. layout: of the newest generation. scratch: the checkpoint of a
    sink that keeps nothing is in it, and goes with it.
    """

    project: Project
    query: Query
    register: Register | None
    layout: QueryLayout
    scratch: Path | None = None

    @classmethod
    def read(cls, project: Project, query: Query) -> StartFacts:
        """Return the facts of `query` as they are now. Raises CheckpointError and PlatformError."""
        register = read_register(project.storage)
        return cls(project=project, query=query, register=register, layout=layout_of(project, query))

    @property
    def lasting(self) -> bool:
        """Whether a later start resumes from the checkpoint."""
        return self.scratch is None

    @_Once
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.layout.checkpoint if self.scratch is None else self.scratch / "checkpoint")

    @_Once
    def repartitions(self) -> Repartitions:
        """How the number of state partitions was changed."""
        return Repartitions(self.layout.repartitions)

    @_Once
    def last_batch(self) -> int | None:
        """The newest batch that was planned."""
        return self.checkpoint.last_batch

    @_Once
    def last_committed(self) -> int | None:
        """The newest batch that is committed."""
        return self.checkpoint.last_committed

    @_Once
    def newest(self) -> OffsetEntry | None:
        """What was planned for the newest batch."""
        return None if self.last_batch is None else self.checkpoint.offset(self.last_batch)

    @property
    def begun(self) -> bool:
        """Whether the query has planned a batch before, from which it resumes."""
        return self.lasting and self.last_batch is not None

    @property
    def next_batch(self) -> int:
        """The first batch that is not committed."""
        return 0 if self.last_committed is None else self.last_committed + 1

    @_Once
    def revisions(self) -> tuple[QueryRevision, ...]:
        """The forms that the query has had, oldest first."""
        return tuple(forms(self.layout.manifest))

    @_Once
    def names(self) -> SourceNames:
        """What Spark calls the sources of the query."""
        return read_source_names(self.project, self.query, self.layout)

    @_Once
    def as_it_ran(self) -> Query:
        """The query with its sink's table under the name by which the last form in the manifest knows it."""
        former = None if self.query.sink.rename is None else self.query.sink.rename.former
        form = self.revisions[-1].form if former is not None and self.revisions else None
        place = form["sink"].get("place") if form is not None and isinstance(form.get("sink"), dict) else None
        if former is None or former.location is None or place != former.location.name or not place:
            return self.query
        return replace(self.query, sink=former)

    def sink_context(self, **more: Any) -> SinkContext:
        """Return what the sink of the query is given of its newest generation."""
        return sink_context(self.project, self.query, self.layout, register=self.register, **more)

    def remove_scratch(self) -> None:
        """Remove a checkpoint that no start resumes from."""
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)


def create_directories(facts: StartFacts) -> StartFacts:
    """Make the directories of the query if need be, and return the facts with them.

    Raises PlatformError where they cannot be written.
    """
    query, layout = facts.query, facts.layout
    if not query.sink.facts.durable:
        return replace(facts, scratch=Path(tempfile.mkdtemp(prefix="headrace-")))
    if not layout.query_id:
        fault = f"query '{query.name}' was renamed by another process while it started"
        fix = "look which name is declared now; then start it by that"
        raise CheckpointError(code="HR549", what=fault, fix=fix, where=query.where)
    if layout.head is None:
        begin(layout.folder)
        layout = newest_of(layout)
    with writing_to(layout.home):
        make_private(layout.storage)
        layout.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        if store_at(layout.home).is_local:  # Others refuse by themselves, with a sentence of their own.
            tempfile.NamedTemporaryFile(dir=layout.home, prefix=".writable-").close()
    return facts if layout is facts.layout else replace(facts, layout=layout)


def sink_context(
    project: Project, query: Query, layout: QueryLayout, *, register: Register | None = None, **more: Any
) -> SinkContext:
    """What the sink of `query` is given of a generation; register: None where it is still to be read."""
    return SinkContext(
        query=query.name,
        query_id=layout.query_id,
        generation=layout.generation,
        mode=query.mode,
        checkpoint=layout.checkpoint,
        mark=layout.head,
        **context_facts(project, register),
        **more,
    )


def context_facts(project: Project, register: Register | None = None) -> dict[str, Any]:
    """What a SinkContext holds of the project; nothing before its first start."""
    register = register or read_register(project.storage)
    if register is None:
        return {}
    # A project that was moved may not be registered by a look.
    return {
        "application": register.application,
        "project": register.project,
        "roots": tuple(map(Path, dict.fromkeys((*root_places(project)[::-1], *reversed(register.roots))))),
        "rebuilds": project.is_rebuild,
    }
