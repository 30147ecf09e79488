"""What a start, a plan and a check of a query go by, read once and handed on, and what is wrong with it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from headrace.checkpoint import Archive, Checkpoint, OffsetEntry, StateOperator
from headrace.checkpoint.directory import Part
from headrace.checkpoint.handover import PartitionChange, Repartitions
from headrace.checkpoint.problems import list_problems
from headrace.checkpoint.sources import SourceIds, SourceNames, read_names, source_of
from headrace.contract import SinkContext
from headrace.errors import CheckpointError, Finding, HeadraceError
from headrace.generations.blame import with_command
from headrace.generations.log import QueryLayout, begin, cut_offs, find_lost, newest_of
from headrace.generations.manifest import QueryRevision, forms
from headrace.generations.register import Register, layout_of, read_register, root_places
from headrace.model import NamedSource, Project, Query
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
        return cls(project=project, query=query, register=register, layout=layout_of(project, query, register))

    @property
    def lasting(self) -> bool:
        """Whether a later start resumes from the checkpoint."""
        return self.scratch is None

    @property
    def salt(self) -> str:
        """What digests of code are salted with."""
        return "" if self.register is None else self.register.application

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
    def cut_offs(self) -> tuple[Finding, ...]:
        """That a change of the query was cut off, so that it must not start."""
        return tuple(cut_offs(self.layout))

    @_Once
    def sources(self) -> tuple[NamedSource, ...]:
        """The sources that feed the query."""
        return self.project.sources_of(self.query)

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

    @_Once
    def operators(self) -> tuple[StateOperator, ...]:
        """The stateful operators that the checkpoint describes."""
        return self.checkpoint.state_operators()

    @_Once
    def entered_partitions(self) -> tuple[PartitionChange, ...]:
        """The changes of the number of state partitions that were entered."""
        return self.repartitions.all()

    @_Once
    def partitions(self) -> int | None:
        """The number of partitions that the state has; None without state."""
        return self.repartitions.partitions(self.checkpoint)

    @_Once
    def archive(self) -> Archive:
        return Archive(self.layout.archive)

    @_Once
    def source_ids(self) -> Mapping[str, Mapping[str, str]]:
        """The ids that what the query has read had, by Spark's name of each source."""
        return SourceIds(self.layout.home).read() if self.begun or self.checkpoint.source_names() else {}

    @property
    def is_async(self) -> bool | None:
        """Whether the last run wrote its progress apart from its batches; None where nothing shows it."""
        if self.query.sink.facts.transactional or self.query.sink.facts.idempotent:
            return False
        return self.revisions[-1].async_progress if self.revisions else None

    @_Once
    def run(self) -> SinkContext:
        """What the sink of the query is given of its newest generation."""
        context = sink_context(self.project, self.query, self.layout, register=self.register)
        if self.scratch is not None:
            context = replace(context, application="", project="", roots=(), rebuilds=False)
        empty = self.repartitions.batches(self.checkpoint)
        return replace(context, checkpoint=self.checkpoint.root, empty_batches=empty)

    @_Once
    def last_in_sink(self) -> int | None:
        """The newest batch that the sink's ledger has. Raises SinkError where it does not answer."""
        ledger = self.query.sink.ledger
        return None if ledger is None else ledger.last_batch(self.run)

    @property
    def is_in_sink(self) -> bool:
        """Whether the sink has the newest planned batch already."""
        last, planned = self.last_in_sink, self.last_batch
        return last is not None and planned is not None and last >= planned

    @_Once
    def id_in_sink(self) -> str | None:
        """The id of the checkpoint that the sink's newest batch came from."""
        ledger = self.query.sink.ledger
        return None if ledger is None else ledger.checkpoint_id(self.run)


def require_usable(facts: StartFacts) -> None:
    """Raise CheckpointError with everything that keeps the next start from beginning with what is there."""
    errors = [finding for finding in list_faults(facts) if finding.severity == "error"]
    if errors:
        raise CheckpointError(errors)


def list_faults(facts: StartFacts) -> Iterator[Finding]:
    """Yield what is wrong with the checkpoint, and with the records with it that a start needs; never raises."""
    query, root, partitions = facts.query, facts.checkpoint.root, None
    if facts.cut_offs:
        # A part of the directory may lie under another name, which the end of that command brings together.
        yield from facts.cut_offs
        return
    try:
        _ = facts.entered_partitions
        # What is wrong inside the checkpoint is reported below, with all else.
        with suppress(CheckpointError):
            partitions = facts.partitions
    except CheckpointError as error:
        yield from error.findings
    is_async = None
    try:
        _ = facts.revisions
        is_async = facts.is_async
    except CheckpointError as error:
        yield from error.findings
    for finding in list_problems(facts.checkpoint, facts.archive, partitions=partitions, written_async=is_async):
        if finding.where.file == str(root / Part.ID_FILE):
            with suppress(HeadraceError):
                if facts.id_in_sink is not None:
                    fix = f'restore it from a backup, or write {{"id":"{facts.id_in_sink}"}} into it'
                    finding = finding.reword(fix=fix)
        yield with_command(query, finding)


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
        find_lost=partial(find_lost, layout),
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


def read_source_names(project: Project, query: Query, layout: QueryLayout) -> SourceNames:
    """Return what Spark calls the sources of `query`, renamed ones included that no start has recorded yet.

    A source whose name Spark knows as that of another one gets a number. Raises CheckpointError for a damaged record,
    and for a source of which it does not say which former one it continues.
    """
    names, sources = dict(_read(layout)), project.sources_of(query)
    for source in sources:
        if source.name not in names:
            former = _former(query, source, names)
            names[source.name] = _free(source.name, names) if former is None else names.pop(former)
    return SourceNames(names, tuple(source.name for source in sources))


def renamed_sources(project: Project, query: Query, layout: QueryLayout) -> Iterator[tuple[NamedSource, str]]:
    """Yield each source that the next start renames, with its former name. Raises as `read_source_names`."""
    names = _read(layout)
    for source in project.sources_of(query):
        if source.name not in names and (former := _former(query, source, names)) is not None:
            yield source, former


def _read(layout: QueryLayout) -> dict[str, str]:
    """Return Spark's names by those of the last start; an adopted checkpoint has no record, and the names of now."""
    recorded = read_names(layout.source_names)
    if recorded is not None:
        return recorded
    checkpoint = Checkpoint(layout.checkpoint)
    last = checkpoint.last_batch
    entry = None if last is None else checkpoint.offset(last)
    uses = entry.offsets if entry is not None and entry.version > 1 else ()  # Else they have numbers.
    return {source_of(use): source_of(use) for use in uses}


def _former(query: Query, source: NamedSource, names: dict[str, str]) -> str | None:
    """Return the former name of a source that is new in `names`, by which they know it."""
    formers = [name for name in source.renamed_from if name in names]
    if len(formers) > 1:
        fault = f"source '{source.name}' is renamed from '{formers[0]}' and from '{formers[1]}', and query "
        fault += f"'{query.name}' has read both"
        fix = "name the one in renamed_from whose rows it continues"
        raise CheckpointError(code="HR549", what=fault, fix=fix, where=source.where)
    return formers[0] if formers else None


def _free(name: str, names: dict[str, str]) -> str:
    """Return a name of Spark's that no other source has, or had before it was renamed."""
    taken, number, free = set(names.values()), 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free
