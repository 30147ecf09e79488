"""What a Python callable does, as data that edits without an effect leave as it is."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, TypeAlias

from headrace.plan.digests import digests
from headrace.plan.python_differences import named_differences
from headrace.plan.python_values import Values

Meaning: TypeAlias = dict[str, Any]
FORM = 1


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How two meanings stand to each other.

    differences: for `changed` what differs, for `not compared` why not; fragments of sentences.
    """

    verdict: Literal["same", "changed", "not compared"]
    differences: tuple[str, ...] = ()


def meaning(
    function: Callable[..., Any],
    *,
    owned: Callable[[ModuleType], bool],
    salt: str,
    keywords: Collection[str] = (),
) -> Meaning:
    """The meaning of `function`, which can be written as JSON; `digest` in it is equal where the meaning is.

    owned: whether a module belongs to the project, whose code is followed. Other code is known by its name.
    salt: makes the hashes of texts and of environment variables useless to others; keep it with the meaning.
    keywords: the parameters that Spark calls `function` with by name.
    """
    values = Values(owned, salt, keywords)
    root = values.root(function)
    return {
        "form": FORM,
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "salt": hashlib.sha256(salt.encode()).hexdigest()[:8],
        "digest": digests([root, *values.nodes])[0],
        "root": root,
        "nodes": values.nodes,
    }


def compare(before: Meaning, now: Meaning) -> Comparison:
    """Whether two meanings are the same, and what differs.

    What cannot be looked at is equal to nothing: two meanings that differ in nothing else are not compared.
    """
    reason = _incomparable(before, now)
    if reason is not None:
        return Comparison(verdict="not compared", differences=(reason,))
    graphs = ([before["root"], *before["nodes"]], [now["root"], *now["nodes"]])
    first, second = map(digests, graphs)
    if first[0] != second[0]:
        told = tuple(dict.fromkeys(named_differences(*graphs, first, second)))
        return Comparison(verdict="changed", differences=told or ("its code differs",))
    blind = tuple(f"not compared: {why}" for why in not_comparable(now))
    return Comparison(verdict="not compared" if blind else "same", differences=blind)


def differences(before: Meaning, now: Meaning) -> list[str]:
    """What differs between two meanings, or why they cannot be compared; nothing if they are the same."""
    return list(compare(before, now).differences)


def not_comparable(told: Meaning) -> tuple[str, ...]:
    """Why parts of a meaning are equal to nothing, each reason once."""
    return tuple(dict.fromkeys(_blind(told)))


def name_of(told: Meaning) -> str:
    """What the people who wrote a function, or the class of an object, call it."""
    node = told["nodes"][told["root"]["ref"]] if "ref" in told["root"] else {}
    return str(node.get("name", "a function"))


def _incomparable(before: Meaning, now: Meaning) -> str | None:
    if before["python"] != now["python"]:
        return f"not compared: Python {before['python']} made it, {now['python']} runs it"
    if before["form"] != now["form"]:
        return "not compared: another version of Headrace wrote it"
    return "not compared: it was written with another salt" if before["salt"] != now["salt"] else None


def _blind(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        if "not comparable" in data:
            yield str(data["not comparable"])
        for each in data.values():
            yield from _blind(each)
    elif isinstance(data, list):
        for each in data:
            yield from _blind(each)
