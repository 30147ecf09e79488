"""The schemas of a query's state as Spark keeps them in its checkpoint, and where those of two checkpoints differ.

Source: SchemaHelper and StateSchemaCompatibilityChecker of Spark 4.2. Spark itself compares types alone, so that two
columns of one type may change places and mix what they mean; here names count as well.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from headrace.checkpoint.directory import DEFAULT_STORE, Checkpoint, Part, broken_file
from headrace.errors import CheckpointError, Where, reason

_VERSIONS = (1, 2, 3)
_DELAY = "spark.watermarkDelayMs"


@dataclass(frozen=True, kw_only=True)
class Field:
    """A column of a key or a value; delay_ms: of the watermark on it, if there is one."""

    name: str
    type: str
    delay_ms: int | None = None

    def __str__(self) -> str:
        return f"'{self.name} {self.type}'"


@dataclass(frozen=True, kw_only=True)
class StoreSchema:
    """What one store, or one variable in a store, keeps by which key."""

    key: tuple[Field, ...]
    value: tuple[Field, ...]


@dataclass(frozen=True, kw_only=True)
class OperatorSchema:
    """One stateful operator: Spark's name for it, and the schema of each of its stores or variables."""

    name: str
    stores: Mapping[str, StoreSchema]


def state_schema(checkpoint: Checkpoint) -> dict[int, OperatorSchema]:
    """The schema of each stateful operator by its number; raises CheckpointError where one cannot be read."""
    schemas = {}
    for operator in checkpoint.state_operators():
        stores = dict(_stores(checkpoint.root / Part.STATE / str(operator.number)))
        schemas[operator.number] = OperatorSchema(name=operator.name, stores=stores)
    return schemas


def schema_differences(old: Mapping[int, OperatorSchema], new: Mapping[int, OperatorSchema]) -> Iterator[str]:
    """Where the state that there is differs from that of the query, in words."""
    for number in sorted({*old, *new}):
        before, now = old.get(number), new.get(number)
        if before is None or now is None:
            one = before or now
            assert one is not None, "one of the two has the number"
            here, there = ("the checkpoint", "the query") if now is None else ("the query", "the checkpoint")
            yield f"{here} has state operator {number} ({one.name}), and {there} has none"
        elif before.name != now.name:
            yield f"state operator {number} is {before.name} in the checkpoint and {now.name} in the query"
        else:
            yield from _store_differences(f"state operator {number} ({now.name})", before.stores, now.stores)


def _store_differences(whose: str, old: Mapping[str, StoreSchema], new: Mapping[str, StoreSchema]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        before, now = old.get(name), new.get(name)
        which = whose if name == DEFAULT_STORE else f"{whose}, {name}"
        if before is None or now is None:
            yield f"{which} is kept by {'the query' if before is None else 'the checkpoint'} alone"
            continue
        for part, was, is_ in (("key", before.key, now.key), ("value", before.value, now.value)):
            difference = next(_field_differences(was, is_), None)
            if difference is not None:
                yield f"the {part} of {which} differs: {difference}"


def _field_differences(old: tuple[Field, ...], new: tuple[Field, ...]) -> Iterator[str]:
    for number, (before, now) in enumerate(zip_longest(old, new), start=1):
        if before is None:
            yield f"column {number} is {now} in the query, and the checkpoint has no more than {number - 1}"
        elif now is None:
            yield f"column {number} is {before} in the checkpoint, and the query has no more than {number - 1}"
        elif (before.name, before.type) != (now.name, now.type):
            yield f"column {number} is {before} in the checkpoint and {now} in the query"
        elif before.delay_ms != now.delay_ms:
            yield (
                f"the watermark of column '{now.name}' waits {_ms(before.delay_ms)} in the checkpoint and "
                f"{_ms(now.delay_ms)} in the query"
            )


def _ms(delay: int | None) -> str:
    return "for nothing" if delay is None else f"{delay / 1000:g} seconds"


def _stores(folder: Path) -> Iterator[tuple[str, StoreSchema]]:
    """The schemas of an operator, by store; of a store with several variables, by the variable."""
    for file in sorted((folder / "0").glob("**/_metadata/schema")):
        home = file.parent.parent
        yield from _read(file, DEFAULT_STORE if home == folder / "0" else home.name)
    for home in sorted(path for path in folder.glob("_stateSchema/*") if path.is_dir()):
        files = [file for file in home.iterdir() if not file.name.startswith(".")]
        if files:
            # Named by the batch that it holds from, and an id.
            yield from _read(max(files, key=lambda file: int(file.name.partition("_")[0])), home.name)


def _read(file: Path, store: str) -> Iterator[tuple[str, StoreSchema]]:
    try:
        data = _Data(file.read_bytes())
        version = data.text()
    except (OSError, ValueError, struct.error) as error:
        raise broken_file(file, f"it cannot be read: {reason(error)}") from error
    if version not in {f"v{number}" for number in _VERSIONS}:
        raise CheckpointError(
            code="HR507",
            where=Where(file=str(file)),
            what=f"the file is of version {version[:40]}, and this Headrace reads v1 to v{_VERSIONS[-1]}",
            fix="upgrade Headrace: the checkpoint was written by a newer Spark",
        )
    try:
        if version == "v3":
            for name, key, value in data.families():
                yield (store if name == DEFAULT_STORE else f"{store}/{name}"), _schema(key, value)
        else:
            key, value = (data.text(), data.text()) if version == "v1" else (data.chunks(), data.chunks())
            yield store, _schema(key, value)
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise broken_file(file, f"it does not hold a schema: {reason(error)}") from error


class _Data:
    """Reads the output of java.io.DataOutputStream."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def text(self) -> str:
        """A text of writeUTF; texts beyond the basic plane are written in two halves."""
        (length,) = self._take(">H")
        part = self._content[self._at : self._at + length]
        if len(part) < length:
            raise ValueError("it is cut off")
        self._at += length
        return part.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")

    def chunks(self) -> str:
        """A text in several pieces, their number first."""
        (count,) = self._take(">i")
        if not 0 < count < 1 << 16:
            raise ValueError(f"{count} is not a number of pieces")
        return "".join(self.text() for _ in range(count))

    def families(self) -> Iterator[tuple[str, str, str]]:
        """The name, the key and the value of each variable; how Spark encodes the key follows, and is left out."""
        (count,) = self._take(">i")
        for _ in range(count):
            name = self.text()
            self._schema_id()
            key = self.chunks()
            self._schema_id()
            value = self.chunks()
            self.chunks()
            self.chunks()
            yield name, key, value

    def _schema_id(self) -> None:
        """Leave out the number that newer versions of Spark put before a schema: two bytes before those of a count."""
        _, low = struct.unpack_from(">HH", self._content, self._at)
        if low == 0:
            self._at += 2

    def _take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(form, self._content, self._at)
        self._at += struct.calcsize(form)
        return values


def _schema(key: str, value: str) -> StoreSchema:
    return StoreSchema(key=_fields(key), value=_fields(value))


def _fields(text: str) -> tuple[Field, ...]:
    return tuple(
        Field(name=str(column["name"]), type=_type(column["type"]), delay_ms=(column.get("metadata") or {}).get(_DELAY))
        for column in json.loads(text)["fields"]
    )


def _type(facts: Any) -> str:
    """Spark's JSON of a type, in short; whether a value may be NULL is left out, as readers of files say yes to all."""
    if isinstance(facts, str):
        return facts
    if facts["type"] == "struct":
        fields = [f"{column['name']} {_type(column['type'])}" for column in facts["fields"]]
        return f"struct<{', '.join(fields)}>"
    if facts["type"] == "array":
        return f"array<{_type(facts['elementType'])}>"
    if facts["type"] == "map":
        return f"map<{_type(facts['keyType'])}, {_type(facts['valueType'])}>"
    return _type(facts["sqlType"]) if "sqlType" in facts else str(facts["type"])
