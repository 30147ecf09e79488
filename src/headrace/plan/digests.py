"""Digests of values that may lead to each other in circles."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from headrace.plan.python_values import essence

_REF = re.compile(r'\{"ref": (\d+)\}')


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
