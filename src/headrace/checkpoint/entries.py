"""What one file of the offsets log and one file of the commits log say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from headrace.checkpoint.logs import body, broken

OFFSET_VERSIONS = (1, 2)
COMMIT_VERSIONS = (1, 2)
_NO_OFFSET = "-"
_FACTS = ("batchWatermarkMs", "batchTimestampMs", "conf")


@dataclass(frozen=True, kw_only=True)
class OffsetEntry:
    """Where each source ends in one batch, and what the batch is computed with.

    watermark_ms: the global watermark in force in the batch; 0: none yet.
    offsets: by the source's name, or by "0", "1", ... in the first format, in the order of the query's plan; the
        source's own JSON text, or None where the source has given nothing yet.
    version: the first names the sources by their order, the second by their names.
    is_continuous: continuous processing has written it, which leaves out all facts about the batch.
    further: facts of the batch that only Spark reads.
    """

    batch: int
    watermark_ms: int = 0
    timestamp_ms: int = 0
    conf: Mapping[str, str] = field(default_factory=dict)
    offsets: Mapping[str, str | None] = field(default_factory=dict)
    version: int = field(default=2, compare=False)
    is_continuous: bool = field(default=False, compare=False)
    further: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def watermark(self) -> str | None:
        """The watermark as ISO 8601 in UTC; None: none yet."""
        if self.watermark_ms <= 0:
            return None
        moment = datetime.fromtimestamp(self.watermark_ms / 1000, timezone.utc)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    @classmethod
    def parse(cls, batch: int, text: str, file: Path) -> OffsetEntry:
        """Read what Spark wrote; raises CheckpointError naming `file`."""
        version, lines = body(file, text, versions=OFFSET_VERSIONS)
        if not lines:
            raise broken(file, "it ends after its first line")
        # Continuous processing leaves the line empty.
        facts = {} if version == 1 and not lines[0] else _json_object(file, lines[0])
        offsets: dict[str, str | None] = {}
        for position, line in enumerate(lines[1:]):
            name, colon, offset = (str(position), ":", line) if version == 1 else line.partition(":")
            if not colon or not offset:
                raise broken(file, f"line {position + 3} holds no offset")
            _complete(file, offset)
            offsets[name] = None if offset == _NO_OFFSET else offset
        if not offsets:
            raise broken(file, "it ends before the first source's offset")
        return cls(
            batch=batch,
            watermark_ms=_whole(file, facts, "batchWatermarkMs"),
            timestamp_ms=_whole(file, facts, "batchTimestampMs"),
            conf={str(key): str(value) for key, value in (facts.get("conf") or {}).items()},
            offsets=offsets,
            version=version,
            is_continuous=version == 1 and not lines[0],
            further={key: value for key, value in facts.items() if key not in _FACTS},
        )

    def format(self) -> str:
        """The text that Spark reads back as this entry."""
        facts: dict[str, Any] = {
            "batchWatermarkMs": self.watermark_ms,
            "batchTimestampMs": self.timestamp_ms,
            "conf": dict(self.conf),
        }
        facts |= self.further
        lines = [
            f"{'' if self.version == 1 else f'{name}:'}{_NO_OFFSET if offset is None else offset}"
            for name, offset in self.offsets.items()
        ]
        head = "" if self.is_continuous else json.dumps(facts, separators=(",", ":"))
        return "\n".join([f"v{self.version}", head, *lines])


@dataclass(frozen=True, kw_only=True)
class CommitEntry:
    """That a batch is done, and the watermark of the next one. State ids of newer formats are not kept."""

    batch: int
    next_watermark_ms: int = 0

    @classmethod
    def parse(cls, batch: int, text: str, file: Path) -> CommitEntry:
        """Read what Spark wrote; raises CheckpointError naming `file`."""
        _, lines = body(file, text, versions=COMMIT_VERSIONS)
        facts = _json_object(file, lines[0] if lines else "")
        return cls(batch=batch, next_watermark_ms=_whole(file, facts, "nextBatchWatermarkMs"))


def _json_object(file: Path, line: str) -> dict[str, Any]:
    if not line.strip():
        return {}
    try:
        value = json.loads(line)
    except ValueError as error:
        raise broken(file, f"its second line is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise broken(file, "its second line is no JSON object")
    return value


def _whole(file: Path, facts: Mapping[str, Any], key: str) -> int:
    value = facts.get(key, 0)
    if not isinstance(value, int):
        raise broken(file, f"{key} is {value!r} in place of a whole number")
    return value


def _complete(file: Path, offset: str) -> None:
    """Refuse an offset that begins as JSON and was cut off; a source may also write plain text."""
    if offset[0] in '{["':
        try:
            json.loads(offset)
        except ValueError as error:
            raise broken(file, f"an offset is cut off: {offset[-40:]!r}") from error
