"""Where a query keeps its checkpoint while it runs: in the project's storage, or where nobody looks for it again."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headrace.checkpoint import Checkpoint
from headrace.checkpoint.repartitions import Repartitions
from headrace.model import Project, Query
from headrace.queries.inspect_checkpoint import require_usable
from headrace.queries.layout import QueryLayout, layout_of
from headrace.queries.sink_location import require_same_sink
from headrace.storage.location import is_remote
from headrace.storage.private import make_private, writing_to


@dataclass(frozen=True, kw_only=True)
class Home:
    """A query's directories. `scratch`: the checkpoint of a sink that keeps nothing is in it, and goes with it."""

    layout: QueryLayout
    scratch: Path | None = None

    @property
    def lasting(self) -> bool:
        """Whether a later start resumes from the checkpoint."""
        return self.scratch is None

    @cached_property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.layout.checkpoint if self.scratch is None else self.scratch / "checkpoint")

    @cached_property
    def repartitions(self) -> Repartitions:
        """How the number of state partitions was changed."""
        return Repartitions(self.layout.repartitions)

    @property
    def begun(self) -> bool:
        """Whether the query has planned a batch before, from which it resumes."""
        return self.lasting and self.checkpoint.last_batch is not None

    def remove_scratch(self) -> None:
        """Remove a checkpoint that nobody resumes from."""
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)


def entered(project: Project, query: Query) -> Home:
    """The directories of `query`, made if need be; raises where they cannot be written or do not fit the query."""
    layout = layout_of(project, query)
    if not query.sink.facts.durable:
        return Home(layout=layout, scratch=Path(tempfile.mkdtemp(prefix="headrace-")))
    _make_home(layout)
    require_usable(query, layout)
    require_same_sink(project, query, layout)
    return Home(layout=layout)


def _make_home(layout: QueryLayout) -> None:
    with writing_to(layout.home):
        make_private(layout.storage)
        layout.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        if is_remote(layout.home):
            return  # Its store refuses by itself, with a sentence of its own.
        probe = tempfile.NamedTemporaryFile(dir=layout.home, prefix=".writable-")  # noqa: SIM115
        probe.close()
