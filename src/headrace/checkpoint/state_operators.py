"""What Spark keeps about each stateful operator of a query: its name, its stores and its partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.checkpoint.logs import body, broken, numbered, text_of

DEFAULT_STORE = "default"
_VERSIONS = (1, 2)


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
    newest = max(numbered(metadata / "v2").items(), default=None)
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
        raise broken(file, "it does not describe a state operator") from error


def _variables(facts: Mapping[str, Any]) -> Iterator[str]:
    """The names of a processor's variables; Spark keeps its timers among them, by names that begin with `$`."""
    told = json.loads(facts.get("operatorPropertiesJson") or "{}")
    for each in told.get("stateVariables", ()):
        if not (name := str(each["stateName"])).startswith("$"):
            yield name
