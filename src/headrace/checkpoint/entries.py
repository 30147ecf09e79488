"""The files of the offsets log and of the commits log as values, and the description of each stateful operator."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.checkpoint.logs import body, broken_file, numbered_files, text_of
from headrace.errors import reason
from headrace.units import instant

DEFAULT_STORE = "default"
_VERSIONS = (1, 2)
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
        return instant(self.watermark_ms / 1000).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    @classmethod
    def parse(cls, batch: int, text: str, file: Path) -> OffsetEntry:
        """Read what Spark wrote; raises CheckpointError naming `file`."""
        version, lines = body(file, text, versions=_VERSIONS)
        if not lines:
            raise broken_file(file, "it ends after its first line")
        # Continuous processing leaves the line empty.
        facts = {} if version == 1 and not lines[0] else _json_object(file, lines[0])
        offsets: dict[str, str | None] = {}
        for position, line in enumerate(lines[1:]):
            name, colon, offset = (str(position), ":", line) if version == 1 else line.partition(":")
            if not colon or not offset:
                raise broken_file(file, f"line {position + 3} holds no offset")
            _complete(file, offset)
            offsets[name] = None if offset == _NO_OFFSET else offset
        if not offsets:
            raise broken_file(file, "it ends before the first source's offset")
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
    """That a batch is done, and the watermark of the next one.

    version: of the file. state_ids: of the second, the ids in the names of the state's files that the next batch begins
        with: by the operator's number, for each partition those of its stores.
    """

    batch: int
    next_watermark_ms: int = 0
    version: int = field(default=1, compare=False)
    state_ids: Mapping[int, tuple[frozenset[str], ...]] = field(default_factory=dict, compare=False)

    @classmethod
    def parse(cls, batch: int, text: str, file: Path) -> CommitEntry:
        """Read what Spark wrote; raises CheckpointError naming `file`."""
        version, lines = body(file, text, versions=_VERSIONS)
        facts = _json_object(file, lines[0] if lines else "")
        try:
            named = (facts.get("stateUniqueIds") or {}).items()
            ids = {int(operator): tuple(map(frozenset, partitions)) for operator, partitions in named}
        except (ValueError, TypeError, AttributeError) as error:
            raise broken_file(file, "it does not name the files of the state") from error
        watermark_ms = _whole(file, facts, "nextBatchWatermarkMs")
        return cls(batch=batch, next_watermark_ms=watermark_ms, version=version, state_ids=ids)


def _json_object(file: Path, line: str) -> dict[str, Any]:
    if not line.strip():
        return {}
    try:
        value = json.loads(line)
    except ValueError as error:
        raise broken_file(file, f"its second line: {reason(error)}") from error
    if not isinstance(value, dict):
        raise broken_file(file, "its second line is no JSON object")
    return value


def _whole(file: Path, facts: Mapping[str, Any], key: str) -> int:
    value = facts.get(key, 0)
    if not isinstance(value, int):
        raise broken_file(file, f"{key} is {value!r} in place of a whole number")
    return value


def _complete(file: Path, offset: str) -> None:
    """Refuse an offset that begins as JSON and was cut off; a source may also write plain text."""
    if offset[0] in '{["':
        try:
            json.loads(offset)
        except ValueError as error:
            raise broken_file(file, f"an offset is cut off: {offset[-40:]!r}") from error


@dataclass(frozen=True, kw_only=True)
class StateOperator:
    """One stateful operator of the query: its number, Spark's name for it, its state's partitions, and their stores.

    variables: those of a processor (`transformWithState`), which its state is made of.
    """

    number: int
    name: str
    partitions: int
    stores: tuple[str, ...] = (DEFAULT_STORE,)
    variables: tuple[str, ...] = ()


def state_operator(folder: Path) -> StateOperator | None:
    """The operator whose state is in `folder`, state/N; None without metadata. Raises CheckpointError."""
    metadata = folder / "_metadata"
    newest = max(numbered_files(metadata / "v2").items(), default=None)
    file = newest[1] if newest else metadata / "metadata"
    text = text_of(file)
    if text is None:
        return None
    _, lines = body(file, text, versions=_VERSIONS)
    try:
        facts = json.loads(lines[0])
        stores = facts["stateStoreInfo"]
        return StateOperator(
            number=int(folder.name),
            name=str(facts["operatorInfo"]["operatorName"]),
            partitions=max(int(store["numPartitions"]) for store in stores),
            stores=tuple(str(store.get("storeName", DEFAULT_STORE)) for store in stores),
            variables=tuple(_variables(facts)),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise broken_file(file, "it does not describe a state operator") from error


def _variables(facts: Mapping[str, Any]) -> Iterator[str]:
    """The names of a processor's variables; Spark keeps its timers among them, by names that begin with `$`."""
    properties = json.loads(facts.get("operatorPropertiesJson") or "{}")
    for variable in properties.get("stateVariables", ()):
        if not (name := str(variable["stateName"])).startswith("$"):
            yield name
