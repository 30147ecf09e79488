"""Who a project is to the databases that it writes into: an id, made once and kept in the storage directory."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headrace.contract import SinkContext
from headrace.errors import CheckFailed, PlatformError
from headrace.model import Project, Query
from headrace.queries.layout import QueryLayout
from headrace.storage import json_record
from headrace.storage.durable import create_file, replace_file
from headrace.storage.private import writing_to

FILE = "application.json"


@dataclass(frozen=True, kw_only=True)
class Application:
    """id: a UUID; a copy of the storage directory has the same. roots: every place that the project was run from.

    rebuilds: the storage directory is that of a rebuild, inside the project's own.
    """

    id: str
    project: str
    roots: tuple[str, ...]
    rebuilds: bool = False

    def facts(self) -> dict[str, Any]:
        """What a SinkContext holds of it."""
        return {
            "application": self.id,
            "project": self.project,
            "roots": tuple(Path(root) for root in reversed(self.roots)),
            "rebuilds": self.rebuilds,
        }

    def enter(self, storage: Path) -> None:
        """Keep it in a storage directory that is to have the same. Raises OSError."""
        replace_file(storage / FILE, _text(self), shared=True)


def application(project: Project) -> Application:
    """The project's application; made when there is none, and updated with where the project lies now.

    Raises CheckFailed where there is none of a rebuild, which has that of its project from its beginning.
    """
    file = project.storage / FILE
    here = _roots(project)
    found = known_application(project)
    if found is None and project.is_rebuild:
        what = f"the rebuild in {project.storage} is gone: another command has discarded it meanwhile"
        raise CheckFailed(code="HR526", what=what, fix="look how the query stands: headrace status")
    with writing_to(file.parent):
        if found is None:
            file.parent.mkdir(parents=True, exist_ok=True)
            create_file(file, _text(Application(id=str(uuid.uuid4()), project=project.name, roots=here)))
            found = known_application(project)
            assert found is not None, "of several that create it at once, one does"
        if found.roots[-len(here) :] != here:
            former = tuple(root for root in found.roots if root not in here)
            found = replace(found, project=project.name, roots=(*former, *here))
            replace_file(file, _text(found), shared=True)
    return found


def known_application(project: Project) -> Application | None:
    """The project's application; None before its first start."""
    damaged = json_record.Damaged(
        file=project.storage / FILE,
        code="HR584",
        what="the file with the application's id cannot be read",
        fix="restore it from a backup, or write the id again: the column application of the sink's table "
        "_headrace_tables holds it",
        error=PlatformError,
    )
    return json_record.read_as(Application, damaged)


def known_facts(project: Project) -> dict[str, Any]:
    """What a SinkContext holds of the application, for a look that makes nothing; a moved project may not be known."""
    found = known_application(project)
    if found is None:
        return {}
    return replace(found, roots=tuple(dict.fromkeys((*found.roots, *_roots(project))))).facts()


def sink_context(
    project: Project, query: Query, layout: QueryLayout, *, makes: bool = False, **more: Any
) -> SinkContext:
    """What the sink of `query` is told of a generation; makes: the application gets its id where it has none."""
    return SinkContext(
        query=query.name,
        generation=layout.generation,
        mode=query.mode,
        checkpoint=layout.checkpoint,
        **(application(project).facts() if makes else known_facts(project)),
        **more,
    )


def _roots(project: Project) -> tuple[str, ...]:
    """Where the project lies; Spark names files as it was named, which may be by way of a link."""
    return tuple(dict.fromkeys((str(project.root.resolve()), str(project.root.absolute()))))


def _text(made: Application) -> str:
    told = asdict(made)
    if not made.rebuilds:
        del told["rebuilds"]
    return json.dumps(told, indent=2) + "\n"
