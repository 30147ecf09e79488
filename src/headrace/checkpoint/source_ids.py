"""The ids that other systems drew for the objects that a query reads: a topic that was created again has another id.

A checkpoint names topics by their names alone. So the id of each is kept next to the archive before its first batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from headrace.storage import json_record
from headrace.storage.durable import replace_file
from headrace.storage.private import writing_to


class SourceIds:
    """The ids of what each source of a query reads, by Spark's name of it, next to the query's archive."""

    def __init__(self, home: Path) -> None:
        self.file = home / "source_ids.json"

    def read(self) -> dict[str, dict[str, str]]:
        """The ids by source and name. Raises CheckpointError."""
        damaged = json_record.Damaged(
            file=self.file,
            code="HR584",
            what="the record of which topics and tables the query reads cannot be read",
            fix="restore it from a backup; or remove it, if none of them was created again: a new one is begun",
        )
        return json_record.read(self.file, _parse, damaged) or {}

    def of(self, source: str) -> dict[str, str]:
        """The ids of what one source reads, by name. Raises CheckpointError."""
        return self.read().get(source, {})

    def write(self, ids: Mapping[str, Mapping[str, str]]) -> None:
        """Keep these ids in place of those before. Raises PlatformError."""
        if ids != self.read():
            with writing_to(self.file.parent):
                replace_file(self.file, json.dumps(ids, sort_keys=True) + "\n")


def _parse(facts: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {str(source): {str(name): str(id_) for name, id_ in ids.items()} for source, ids in facts.items()}
