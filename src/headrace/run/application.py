"""Who a project is to the databases that it writes into: an id, made once and kept in the storage directory."""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.errors import Finding, PlatformError, Where
from headrace.model import Project

FILE = "application.json"


@dataclass(frozen=True, kw_only=True)
class Application:
    """id: a UUID; a copy of the storage directory has the same. roots: every place that the project was run from."""

    id: str
    project: str
    roots: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """What a SinkContext holds of it."""
        return {
            "application": self.id,
            "project": self.project,
            "roots": tuple(Path(root) for root in reversed(self.roots)),
        }


def application(project: Project) -> Application:
    """The project's application; made when there is none, and told where the project lies now."""
    file = project.storage / FILE
    # Spark names files as the project was named, which may be by way of a link.
    here = tuple(dict.fromkeys((str(project.root.resolve()), str(project.root.absolute()))))
    found = known_application(project)
    try:
        if found is None:
            _create(file, Application(id=str(uuid.uuid4()), project=project.name, roots=here))
            # Of two that make it at once, one wins.
            found = known_application(project)
            assert found is not None
        if found.roots[-len(here) :] != here:
            former = tuple(root for root in found.roots if root not in here)
            found = Application(id=found.id, project=project.name, roots=(*former, *here))
            os.replace(_draft(file, found), file)
    except OSError as fault:
        raise PlatformError(
            Finding(
                code="HR540",
                what=f"the storage directory {file.parent} cannot be written: {fault.strerror or fault}",
                fix="give the user that runs Headrace the right to write there, or name another `storage`",
            )
        ) from fault
    return found


def known_application(project: Project) -> Application | None:
    """The project's application; None before its first start."""
    file = project.storage / FILE
    try:
        facts: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return Application(id=str(facts["id"]), project=str(facts["project"]), roots=tuple(facts["roots"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise PlatformError(
            Finding(
                code="HR458",
                where=Where(file=str(file)),
                what=f"the file with the application's id cannot be read: {fault}",
                fix="restore it from a backup, or write the id again: the column application of the sink's table "
                "_headrace_tables holds it",
            )
        ) from fault


def known_facts(project: Project) -> dict[str, Any]:
    """What a SinkContext holds of the application, for a look that makes nothing."""
    found = known_application(project)
    return {} if found is None else found.facts()


def _create(file: Path, made: Application) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = _draft(file, made)
    try:
        # A link is made only where no file is.
        with suppress(FileExistsError):
            os.link(draft, file)
    finally:
        os.unlink(draft)
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _draft(file: Path, made: Application) -> Path:
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{FILE}-")
    with os.fdopen(handle, "w", encoding="utf-8") as opened:
        opened.write(json.dumps(asdict(made), indent=2) + "\n")
        opened.flush()
        os.fsync(opened.fileno())
    return Path(name)
