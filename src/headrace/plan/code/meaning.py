"""What a Python callable does, as data that edits without an effect leave as it is."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, TypeAlias

from headrace.plan.code.differences import named_differences
from headrace.plan.code.values import ReachedValues, essence

Meaning: TypeAlias = dict[str, Any]
# The first form kept the bytecode.
FORM = 2
_REF = re.compile(r'\{"ref": (\d+)\}')


@dataclass(frozen=True, kw_only=True)
class MeaningComparison:
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
    files: bool = True,
) -> Meaning:
    """The meaning of `function`, which can be written as JSON; `digest` in it is equal where the meaning is.

    owned: whether a module belongs to the project, whose code is followed. Other code is known by its name.
    salt: makes the hashes of texts and of environment variables useless to others; keep it with the meaning.
    keywords: the parameters that Spark calls `function` with by name. files: whether what the files hold that it opens
    is part of what it means; not where it is called again as they change.
    """
    values = ReachedValues(owned, salt, keywords, files=files)
    root = values.root(function)
    return {
        "form": FORM,
        "salt": hashlib.sha256(salt.encode()).hexdigest()[:8],
        "digest": digests([root, *values.nodes])[0],
        "root": root,
        "nodes": values.nodes,
    }


def compare(before: Meaning, now: Meaning) -> MeaningComparison:
    """Whether two meanings are the same, and what differs.

    What cannot be looked at is equal to nothing: two meanings that differ in nothing else are not compared.
    """
    reason = _incomparable(before, now)
    if reason is not None:
        return MeaningComparison(verdict="not compared", differences=(reason,))
    graphs = ([before["root"], *before["nodes"]], [now["root"], *now["nodes"]])
    first, second = map(digests, graphs)
    if first[0] != second[0]:
        told = tuple(dict.fromkeys(named_differences(*graphs, first, second)))
        return MeaningComparison(verdict="changed", differences=told or ("its code differs",))
    blind = tuple(f"not compared: {why}" for why in not_comparable(now))
    return MeaningComparison(verdict="not compared" if blind else "same", differences=blind)


def differences(before: Meaning, now: Meaning) -> list[str]:
    """What differs between two meanings, or why they cannot be compared; nothing if they are the same."""
    return list(compare(before, now).differences)


def not_comparable(told: Meaning) -> tuple[str, ...]:
    """Why parts of a meaning are equal to nothing, each reason once."""
    return tuple(dict.fromkeys(_blind(told)))


def libraries(told: Any) -> Iterator[str]:
    """The names of what is taken from elsewhere than the project."""
    if isinstance(told, dict):
        if isinstance(told.get("library"), str):
            yield told["library"]
        for each in told.values():
            yield from libraries(each)
    elif isinstance(told, list):
        for each in told:
            yield from libraries(each)


def name_of(told: Meaning) -> str:
    """What the people who wrote a function, or the class of an object, call it."""
    node = told["nodes"][told["root"]["ref"]] if "ref" in told["root"] else {}
    return str(node.get("name", "a function"))


def _incomparable(before: Meaning, now: Meaning) -> str | None:
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


def digests(graph: list[Any]) -> list[str]:
    """A digest of each node of a graph, the root first; `{"ref": n}` leads to the node after the n-th.

    It depends on what a node reaches, and not on the numbers of the nodes or how often an equal one stands there.
    """
    parts = [_parts(node) for node in graph]
    texts, reached = [text for text, _ in parts], [numbers for _, numbers in parts]
    found = [""] * len(graph)
    for circle in _circles(reached):
        if len(circle) == 1 and circle[0] not in reached[circle[0]]:
            number = circle[0]
            found[number] = _hash(texts[number], *(found[each] for each in reached[number]))
        else:
            _digest_circle(circle, texts, reached, found)
    return found


def _parts(node: Any) -> tuple[str, list[int]]:
    """The digest of a node's own text, and the nodes that it leads to."""
    text = json.dumps(essence(node), sort_keys=True)
    return _hash(_REF.sub("ref", text)), [int(number) + 1 for number in _REF.findall(text)]


def _digest_circle(circle: list[int], texts: list[str], reached: list[list[int]], found: list[str]) -> None:
    """Put in the digests of nodes that all reach each other.

    All begin as equal, and are told apart by what they reach until no round tells more apart. Then the digest of each
    is that of the classes as they are met from it.
    """
    inside = set(circle)
    classes = dict.fromkeys(circle, "")
    known = 0
    while len(set(classes.values())) > known:
        known = len(set(classes.values()))
        classes = {
            number: _hash(
                texts[number], *(classes[each] if each in inside else found[each] for each in reached[number])
            )
            for number in circle
        }
    one_of = {classes[number]: number for number in circle}
    for start in circle:
        order, waiting, told = {classes[start]: 0}, [classes[start]], list[str]()
        while waiting:
            number = one_of[waiting.pop(0)]
            for each in reached[number]:
                if each in inside and classes[each] not in order:
                    order[classes[each]] = len(order)
                    waiting.append(classes[each])
            ways = (str(order[classes[each]]) if each in inside else found[each] for each in reached[number])
            told.append(_hash(texts[number], *ways))
        found[start] = _hash("circle", *told)


def _circles(reached: list[list[int]]) -> Iterator[list[int]]:
    """The groups of nodes that reach each other, each after those that it leads to (Tarjan's algorithm)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for start in range(len(reached)):
        work = [(start, iter(reached[start]))] if start not in index else []
        while work:
            number, ways = work[-1]
            if number not in index:
                index[number] = low[number] = len(index)
                stack.append(number)
                on_stack.add(number)
            following = next(ways, None)
            if following is not None:
                if following not in index:
                    work.append((following, iter(reached[following])))
                elif following in on_stack:
                    low[number] = min(low[number], index[following])
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[number])
            if low[number] == index[number]:
                circle: list[int] = []
                while not circle or circle[-1] != number:
                    circle.append(stack.pop())
                    on_stack.discard(circle[-1])
                yield circle


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
