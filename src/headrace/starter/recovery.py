"""A query's directory brought to what its sink and its project hold now: lost batches, and paths after a move.

Batches that a checkpoint has lost and the sink holds are planned again, in a new directory of the same generation. The
directory with the loss stays as it is until the record that names the new one as live. So a process that was stopped in
the midst, and continues late, fills a directory that is never read.

Spark's logs name files by absolute paths. In a project that was moved every file would be a new one and be read again.
So the paths below the project's old directory are rewritten before the start; a source or sink that lies elsewhere for
another reason is refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.directory import Part
from headrace.checkpoint.relocation import FileLog, Move, below, logged_files, rewrite_paths
from headrace.checkpoint.restore import Restorable, restorable, restore, stores_of
from headrace.checkpoint.sources import ReadFiles, source_of
from headrace.contract import Connector
from headrace.errors import CheckpointError, Finding, HeadraceError
from headrace.generations.facts import StartFacts
from headrace.generations.log import QueryLayout, replace_live
from headrace.model import Query
from headrace.storage.durable import files_below, link, replace_file
from headrace.storage.private import writing_to

# As many batches as a ledger keeps plans of.
KEPT = 101
_GLOB = "*?[]{}"


def restore_lost_batch(facts: StartFacts) -> Restorable | None:
    """Let the checkpoint plan the first batch that it has lost and the sink has; what was planned, or None.

    Spark makes only its newest planned batch again, and a state only from the one before. So the query runs that batch
    alone, its rows are skipped by the sink, and this is asked again. Raises LeaseLost, PlatformError, SinkError.
    """
    layout = facts.layout
    try:
        lost, roots = _find_lost(facts)
    except CheckpointError:
        # The look at the whole checkpoint, which comes next, reports it with all else.
        return None
    # A change that was cut off has the directory elsewhere, or a part of it: the look reports that too.
    if lost is None or layout.record is None or facts.cut_offs:
        return None
    try:
        replace_live(layout, layout.record, lambda new: _make(facts, new, lost, roots))
    except CheckpointError:
        # Earlier entries are lost too, which the ledger keeps no more.
        return None
    return lost


def _make(facts: StartFacts, new: QueryLayout, lost: Restorable, roots: Sequence[Path]) -> None:
    """Copy the checkpoint, and bring the copy to the lost batch. Raises OSError, CheckpointError."""
    layout, checkpoint = facts.layout, Checkpoint(new.checkpoint)
    for file in sorted(path for path in files_below(layout.checkpoint) if not path.name.endswith(".tmp")):
        link(file, new.checkpoint / file.relative_to(layout.checkpoint))
    stores = stores_of(checkpoint.root, facts.partitions) if lost.stores else ()
    restore(checkpoint, replace(lost, stores=tuple(stores or ())))
    # The ledger names files as they lay when the batch was written, perhaps before the project was moved.
    root, logs = facts.project.root, list(_source_logs(replace(facts, layout=new), _current_location(facts)))
    moves = [(str(former), str(root.absolute())) for former in roots if former not in (root.absolute(), root.resolve())]
    rewrite_paths(checkpoint.root, logs, moves, copied=[(str(layout.home.absolute()), str(new.home.absolute()))])


def _find_lost(facts: StartFacts) -> tuple[Restorable | None, Sequence[Path]]:
    """Return what the checkpoint has lost, and where the project has lain. Raises CheckpointError and SinkError."""
    checkpoint, ledger, last = facts.checkpoint, facts.query.sink.ledger, None
    if checkpoint.id is not None and ledger is not None:
        last = facts.last_in_sink
    if ledger is None or last is None:
        return None, ()
    # Asked once, and only for a checkpoint that has lost something.
    run, plans = facts.run, cache(lambda: ledger.read_plans(facts.run, last - KEPT))
    lost = restorable(
        checkpoint,
        last,
        lambda batch: plans().get(batch),
        empty=run.empty_batches,
        partitions=facts.partitions,
        roots=run.roots,
    )
    return lost, run.roots


@dataclass(frozen=True, kw_only=True)
class Location:
    """The directories of the project and its storage, and the paths of a query's sources and sink, if they have one.

    former: the directories that the project lay in before.
    """

    root: str
    storage: str
    sources: dict[str, str]
    sink: str | None
    former: Sequence[str] = ()


def rewrite_moved_paths(facts: StartFacts) -> Iterator[Finding]:
    """Rewrite the paths in the logs of all queries after a move of the project, and say so.

    The logs of other queries are rewritten because this one may read the files that they write. Raises CheckpointError
    for files of the query that lie elsewhere for another reason.
    """
    before, now = _read_record(facts.layout), _current_location(facts)
    if before is None or (before.root, before.storage) != (now.root, now.storage):
        for other in facts.project.queries.values():
            if other.name != facts.query.name and other.sink.facts.durable:
                with suppress(HeadraceError):  # Reported at the start of that query.
                    list(_rewrite_query_paths(StartFacts.read(facts.project, other)))
    yield from _rewrite_query_paths(facts)


def require_in_place(facts: StartFacts) -> None:
    """Raise CheckpointError, as `rewrite_moved_paths` would, for files that lie elsewhere; nothing is changed."""
    if facts.layout.home.is_dir():
        _require_reachable(facts, _current_location(facts))


def unmoved_findings(facts: StartFacts) -> Iterator[Finding]:
    """Say that the project was moved, and that the logs of the query still name files at the old place.

    A reader would be given the files of the old place, if there are any.
    """
    query = facts.query
    if not facts.layout.home.is_dir():
        return
    logs, old, moves = _compare_places(facts, now := _current_location(facts))
    stale = (file.path for log in logs for file in logged_files(log.folder) if not below(file.path, log.home))
    if any(_move_path(path, moves) != path for path in stale):
        yield Finding(
            code="HR464",
            what=f"the project was moved from {old} to {now.root}, and query '{query.name}' has not run here yet: its "
            "logs name the files of the old place",
            fix=f"run it here first, which rewrites them: headrace run {query.name}",
            where=query.where,
        )


def _rewrite_query_paths(facts: StartFacts) -> Iterator[Finding]:
    query, layout = facts.query, facts.layout
    if not layout.home.is_dir():
        return
    before, now = _read_record(layout), _current_location(facts)
    if before is not None and asdict(before) == {**asdict(now), "former": before.former}:
        return
    logs, old, moves = _require_reachable(facts, now)
    changed = rewrite_paths(layout.checkpoint, logs, moves)
    for move in moves:
        _move_archives(facts, move)
        with writing_to(layout.home):
            ReadFiles(layout.home).note_move(*move)
    if changed:
        yield Finding(
            code="HR524",
            what=f"the project was moved from {old} to {now.root}: {changed} paths in the logs of query "
            f"'{query.name}' now name the new place",
            where=query.where,
        )
    former = () if before is None else tuple(before.former)
    if old not in (now.root, *former):
        former = (*former, old)
    _record(layout, replace(now, former=former))


def _require_reachable(facts: StartFacts, now: Location) -> tuple[list[FileLog], str, list[Move]]:
    """The logs of a query, the directory that the project lay in, and what moved; raises CheckpointError as said."""
    logs, old, moves = _compare_places(facts, now)
    _require_homes(facts.query, logs, moves)
    return logs, old, moves


def _compare_places(facts: StartFacts, now: Location) -> tuple[list[FileLog], str, list[Move]]:
    """The logs, where the project lay, and from where to where it and its storage were moved, as far as they were."""
    before = _read_record(facts.layout) or now
    moves = [(before.root, now.root), (before.storage, now.storage)]
    moved = [move for move in moves if move[0] != move[1] and (move == moves[0] or not below(move[0], before.root))]
    return _logs(facts, now), before.root, moved


def _move_path(path: str, moves: Sequence[Move]) -> str:
    for old, new in moves:
        if below(path, old):
            return new + path.removeprefix(old)
    return path


def _require_homes(query: Query, logs: Sequence[FileLog], moves: Sequence[Move]) -> None:
    """Raise CheckpointError for a log whose files do not lie where they should, seen from the project's new place."""
    for log in logs:
        for file in logged_files(log.folder):
            if not below(file.path, log.home) and not below(_move_path(file.path, moves), log.home):
                raise CheckpointError(
                    code="HR525",
                    what=f"{log.whose} of query '{query.name}' is in '{log.home}' now, and its log names "
                    f"'{file.path}': every file there would count as a new one",
                    fix="put the old path and its files back, or reset the query (headrace reset QUERY)",
                    where=query.where,
                )


def _logs(facts: StartFacts, now: Location) -> list[FileLog]:
    logs = list(_source_logs(facts, now))
    if now.sink is not None:
        logs.append(FileLog(whose="the sink", folder=Path(now.sink) / "_spark_metadata", home=now.sink))
    warehouse = Path(now.storage) / "warehouse"
    for folder in (*warehouse.glob("*/_spark_metadata"), *warehouse.glob("*.db/*/_spark_metadata")):
        logs.append(FileLog(whose="a table", folder=folder, home=str(folder.parent)))
    return [log for log in logs if log.folder.is_dir()]


def _source_logs(facts: StartFacts, now: Location) -> Iterator[FileLog]:
    """The logs of the sources that read files on this machine."""
    names = {facts.names.in_spark(name): name for name in now.sources}
    for use in facts.checkpoint.source_names():
        if (name := names.get(source_of(use))) is not None:
            folder = facts.checkpoint.root / Part.SOURCES / use
            yield FileLog(whose=f"source '{name}'", folder=folder, home=_home(now.sources[name]))


def _move_archives(facts: StartFacts, move: Move) -> None:
    """A source that archives what it has read keeps each file there below its whole former path."""
    for source in facts.sources:
        archive = source.connector.archive_path
        path = _local(source.connector)
        # What stayed where it was is perhaps read by the project's original too.
        if not _is_local(archive) or path is None or not below(_home(path), move[1]):
            continue
        old, new = Path(f"{archive}{move[0]}"), Path(f"{archive}{move[1]}")
        if old.is_dir() and not new.exists():
            new.parent.mkdir(parents=True, exist_ok=True)
            os.rename(old, new)


def _current_location(facts: StartFacts) -> Location:
    project, query = facts.project, facts.query
    sources = {source.name: _local(source.connector) for source in facts.sources}
    return Location(
        root=str(project.root),
        storage=str(project.storage),
        sources={name: path for name, path in sources.items() if path is not None},
        sink=_local(query.sink),
    )


def _local(connector: Connector) -> str | None:
    """The path of a connector that has one on this machine."""
    path = connector.project_path
    plain = None if path is None else re.sub(r"^file:/+", "/", path)
    return plain if _is_local(plain) else None


def _is_local(path: object) -> bool:
    return isinstance(path, str) and path.startswith("/")


def _home(path: str) -> str:
    """The directory that a source's path or pattern begins with."""
    first = min((at for at in map(path.find, _GLOB) if at >= 0), default=None)
    return path.rstrip("/") if first is None else path[:first].rpartition("/")[0] or "/"


def _file(layout: QueryLayout) -> Path:
    return layout.home / "location.json"


def _read_record(layout: QueryLayout) -> Location | None:
    try:
        return Location(**json.loads(_file(layout).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _record(layout: QueryLayout, location: Location) -> None:
    with writing_to(layout.home):
        replace_file(_file(layout), json.dumps(asdict(location)) + "\n")
