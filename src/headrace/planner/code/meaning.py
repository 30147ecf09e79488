"""What a Python callable does, as data that edits without an effect leave as it is."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator
from difflib import SequenceMatcher
from types import ModuleType
from typing import Any, TypeAlias

from headrace.planner.code.values import ReachedValues, without_names

Meaning: TypeAlias = dict[str, Any]
# The first form kept the bytecode, the second the arguments of a call as they were written.
FORM = 3
_REF = re.compile(r'\{"ref": (\d+)\}')


def read_meaning(
    function: Callable[..., Any],
    *,
    owned: Callable[[ModuleType], bool],
    salt: str,
    keywords: Collection[str] = (),
    files: bool = True,
) -> Meaning:
    """Return the meaning of `function`, which can be written as JSON; `digest` in it is equal where the meaning is.

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


def compare_meanings(before: Meaning, now: Meaning) -> list[str]:
    """Return what differs between two meanings, or why they cannot be compared; nothing if they are the same.

    What cannot be inspected is equal to nothing: two meanings that differ in nothing else are not compared.
    """
    reasons = {"form": "another version of Headrace wrote it", "salt": "it was written with another salt"}
    for part, reason in reasons.items():
        if before[part] != now[part]:
            return [f"not compared: {reason}"]
    graphs = ([before["root"], *before["nodes"]], [now["root"], *now["nodes"]])
    first, second = map(digests, graphs)
    if first[0] != second[0]:
        walk = _Walk(*graphs, first, second)
        return list(dict.fromkeys(walk.value(before["root"], now["root"], "", ""))) or ["its code differs"]
    return [f"not compared: {why}" for why in reasons_not_compared(now)]


def reasons_not_compared(data: Meaning) -> tuple[str, ...]:
    """Return why parts of a meaning cannot be compared, each reason once."""
    return tuple(dict.fromkeys(str(part["not comparable"]) for part in _mappings(data) if "not comparable" in part))


def libraries_in(data: Any) -> Iterator[str]:
    """Yield the names of what comes from libraries."""
    yield from (part["library"] for part in _mappings(data) if isinstance(part.get("library"), str))


def name_of(data: Meaning) -> str:
    """Return the name of a function, or of an object's class, in the source."""
    node = data["nodes"][data["root"]["ref"]] if "ref" in data["root"] else {}
    return str(node.get("name", "a function"))


def _mappings(data: Any) -> Iterator[dict[str, Any]]:
    """Yield all mappings in `data`, each before those inside it."""
    if isinstance(data, dict):
        yield data
        data = list(data.values())
    for part in data if isinstance(data, list) else ():
        yield from _mappings(part)


def digests(graph: list[Any]) -> list[str]:
    """Return a digest of each node of a graph, the root first; `{"ref": n}` leads to the node after the n-th.

    It depends on what a node reaches, and not on the numbers of the nodes or how often an equal one stands there.
    """
    parts = [_parts(node) for node in graph]
    texts, reached = [text for text, _ in parts], [numbers for _, numbers in parts]
    digest_of = [""] * len(graph)
    for circle in _find_circles(reached):
        if len(circle) == 1 and circle[0] not in reached[circle[0]]:
            number = circle[0]
            digest_of[number] = _hash(texts[number], *(digest_of[other] for other in reached[number]))
        else:
            _digest_circle(circle, texts, reached, digest_of)
    return digest_of


def _parts(node: Any) -> tuple[str, list[int]]:
    """Return the digest of a node's own text, and the nodes that it leads to."""
    text = json.dumps(without_names(node), sort_keys=True)
    return _hash(_REF.sub("ref", text)), [int(number) + 1 for number in _REF.findall(text)]


def _digest_circle(circle: list[int], texts: list[str], reached: list[list[int]], digest_of: list[str]) -> None:
    """Fill in the digests of nodes that all reach each other.

    All begin as equal, and each round separates those that reach different nodes, until a round separates no more.
    The digest of a node is then that of the classes in the order in which they are reached from it.
    """
    inside = set(circle)
    classes = dict.fromkeys(circle, "")
    count = 0
    while len(set(classes.values())) > count:
        count = len(set(classes.values()))
        classes = {
            number: _hash(
                texts[number], *(classes[other] if other in inside else digest_of[other] for other in reached[number])
            )
            for number in circle
        }
    one_of = {classes[number]: number for number in circle}
    for start in circle:
        order, waiting, hashes = {classes[start]: 0}, [classes[start]], list[str]()
        while waiting:
            number = one_of[waiting.pop(0)]
            for other in reached[number]:
                if other in inside and classes[other] not in order:
                    order[classes[other]] = len(order)
                    waiting.append(classes[other])
            ways = (str(order[classes[other]]) if other in inside else digest_of[other] for other in reached[number])
            hashes.append(_hash(texts[number], *ways))
        digest_of[start] = _hash("circle", *hashes)


def _find_circles(reached: list[list[int]]) -> Iterator[list[int]]:
    """Yield the groups of nodes that reach each other, each after those that it leads to (Tarjan's algorithm)."""
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


_LONGEST = 60
_PARTS = {
    "attributes": "attribute `{}`",
    "keyword defaults": "the default of `{}`",
    "members": "the member {}",
    "fields": "the field {}",
    "hints": "the type of `{}`",
}


class _Walk:
    """Goes through two graphs side by side, into what differs alone."""

    def __init__(self, before: list[Any], now: list[Any], old_digests: list[str], new_digests: list[str]) -> None:
        self._before, self._now = before, now
        self._old, self._new = old_digests, new_digests
        self._seen: set[tuple[int, int]] = set()

    def value(self, old: Any, new: Any, label: str, where: str) -> Iterator[str]:
        """Yield differences between two values, called `label`, in the function or class `where`."""
        if self._equal(old, new):
            return
        if isinstance(old, dict) and isinstance(new, dict):
            if "ref" in old and "ref" in new:
                yield from self._nodes(old["ref"] + 1, new["ref"] + 1, label, where)
                return
            if "environment" in old and old["environment"] == new.get("environment"):
                yield f"environment variable {old['environment']} differs"
                return
            if "file" in old and old["file"] == new.get("file"):
                yield _in_place(where, f"the file {old['file']} holds something else")
                return
            if "partial" in old and "partial" in new:
                yield from self._partials(old, new, where)
                return
            inner = list(self._inside(old, new, label, where))
            if inner:
                yield from inner
                return
        yield _in_place(
            where, f"{label} was {self._show(old, 0)} and is {self._show(new, 1)}" if label else "it differs"
        )

    def _equal(self, old: Any, new: Any) -> bool:
        if isinstance(old, dict) and isinstance(new, dict):
            if "ref" in old and "ref" in new:
                return bool(self._old[old["ref"] + 1] == self._new[new["ref"] + 1])
            plain = {key for key in (*old, *new) if key not in ("shown", "name", "names")}
            return all(key in old and key in new and self._equal(old[key], new[key]) for key in plain)
        if isinstance(old, list) and isinstance(new, list):
            return len(old) == len(new) and all(map(self._equal, old, new))
        return bool(old == new)

    def _inside(self, old: dict[str, Any], new: dict[str, Any], label: str, where: str) -> Iterator[str]:
        """Yield differences between the parts of two values of the same kind that are no plain containers."""
        if set(old) == set(new) and any("ref" in str(part) for part in old.values()):
            for key in old:
                for first, second in _pairs(old[key], new[key]):
                    yield from self.value(first, second, label, where)

    def _partials(self, old: dict[str, Any], new: dict[str, Any], where: str) -> Iterator[str]:
        yield from self.value(old["partial"], new["partial"], "the function of partial", where)
        if len(old["arguments"]) != len(new["arguments"]):
            yield _in_place(where, "the number of arguments of partial differs")
        for number, (first, second) in enumerate(zip(old["arguments"], new["arguments"], strict=False), 1):
            yield from self.value(first, second, f"argument {number} of partial", where)
        yield from self._compare_names(old["keywords"], new["keywords"], "argument `{}` of partial", where)

    def _nodes(self, first: int, second: int, label: str, where: str) -> Iterator[str]:
        if (first, second) in self._seen:
            return
        self._seen.add((first, second))
        old, new = self._before[first], self._now[second]
        if old.get("kind") != new.get("kind"):
            yield _in_place(where, f"{label or 'it'} was a {old.get('kind')} and is a {new.get('kind')}")
            return
        is_root = self._before[0] == {"ref": first - 1}
        inside = "" if is_root else f"{new['kind']} {new['name']}"
        if old["kind"] == "function":
            yield from self._functions(old, new, inside)
            return
        if old["kind"] == "object":
            if "library" in new["class"]:
                yield _in_place(where, self._library_object(old, new, label or "it"))
                return
            inside = _in_place(where, label) if label else inside
        parts = list(self._parts(old, new, inside))
        yield from parts or [_in_place(inside, "it differs")]

    def _library_object(self, old: dict[str, Any], new: dict[str, Any], label: str) -> str:
        """Return what differs in an object of a library: its one text, if it has one."""
        pairs = list(_pairs(old.get("arguments"), new.get("arguments")))
        changed = [(first, second) for first, second in pairs if not self._equal(first, second)]
        if len(changed) == 1 and all(isinstance(side, dict) and "shown" in side for side in changed[0]):
            return f"{label} was {self._show(changed[0][0], 0)} and is {self._show(changed[0][1], 1)}"
        return f"{label} differs, a value of type {new['name']}"

    def _functions(self, old: dict[str, Any], new: dict[str, Any], where: str) -> Iterator[str]:
        names = new["code"].get("names", [""] * len(new["defaults"]))
        names = names[len(names) - len(new["defaults"]) :]
        if len(old["defaults"]) == len(new["defaults"]):
            for name, first, second in zip(names, old["defaults"], new["defaults"], strict=True):
                yield from self.value(first, second, f"the default of `{name}`", where)
        else:
            yield _in_place(where, "its defaults differ")
        yield from self._parts(old, new, where)
        for first, second in _pairs(old.get("captured", []), new.get("captured", [])):
            yield from self.value(first, second, "a captured value", where)
        if not self._equal(old["code"], new["code"]):
            yield from self._codes(old["code"], new["code"], where)

    def _parts(self, old: dict[str, Any], new: dict[str, Any], where: str) -> Iterator[str]:
        for part, called in _PARTS.items():
            yield from self._compare_names(old.get(part, []), new.get(part, []), called, where)
        for part in ("bases", "arguments", "elements", "entries", "state", "class", "metaclass", "made by"):
            if part in old and part in new:
                for first, second in _pairs(old[part], new[part]):
                    yield from self.value(first, second, "its content", where)
            elif part in old or part in new:
                yield _in_place(where, f"its {part} differ")

    def _compare_names(self, old: list[Any], new: list[Any], called: str, where: str) -> Iterator[str]:
        first, second = dict(map(tuple, old)), dict(map(tuple, new))
        for name in sorted({*first, *second}):
            label = called.format(name)
            if name not in second:
                yield _in_place(where, f"{label} is gone")
            elif name not in first:
                yield _in_place(where, f"{label} is new")
            else:
                yield from self.value(first[name], second[name], label, where)
        if list(first) != list(second) and set(first) == set(second):
            yield _in_place(where, f"the order differs: {', '.join(second)}")

    def _codes(self, old: dict[str, Any], new: dict[str, Any], where: str) -> Iterator[str]:
        """Yield differences in code: values by name if only they differ, else the first line that differs."""
        if "tree" not in old or "tree" not in new:
            was, is_ = (
                "known" if "tree" in code else f"not known ({code.get('not comparable')})" for code in (old, new)
            )
            yield _in_place(where, f"its code was {was} and is {is_}")
            return
        if old["tree"] == new["tree"]:
            for first, second in zip(old["values"], new["values"], strict=True):
                yield from self._compare_loads(first, second, where)
            return
        yield _in_place(where, f"its code differs{_first_line(old['source'], new['source'])}")
        for first, second in _align(old["values"], new["values"]):
            yield from self._compare_loads(first, second, where)

    def _compare_loads(self, old: dict[str, Any], new: dict[str, Any], where: str) -> Iterator[str]:
        if self._equal(old, new):
            return
        name = new.get("name") or old.get("name")
        if name is None and "file" not in new["value"]:
            yield _in_place(where, f"the constant {self._show(old['value'], 0)} became {self._show(new['value'], 1)}")
        else:
            yield from self.value(old["value"], new["value"], str(name), where)

    def _show(self, data: Any, side: int) -> str:
        return _cut(self._text(data, side), _LONGEST)

    def _text(self, data: Any, side: int) -> str:
        if not isinstance(data, dict):
            return str(data)
        if "ref" in data:
            node = (self._before, self._now)[side][data["ref"] + 1]
            return f"{node.get('kind')} {node.get('name')}"
        if "text" in data:
            return repr(data["shown"]) if "shown" in data else "a text that is not shown"
        if "length" in data:
            return f"{data.get('of', 'bytes')} of {data['length']}"
        key = next(iter(data))
        inner = data[key]
        if key == "dict":
            return "{" + ", ".join(f"{self._text(k, side)}: {self._text(v, side)}" for k, v in inner) + "}"
        if isinstance(inner, list):
            ends = {"list": "[]", "tuple": "()"}.get(key, "{}")
            return ends[0] + ", ".join(self._text(part, side) for part in inner) + ends[1]
        return str(inner)


def _in_place(where: str, text: str) -> str:
    return f"{where}: {text}" if where else text


def _pairs(old: Any, new: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the values in two parts, side by side."""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for first, second in zip(old, new, strict=True):
            yield from _pairs(first, second)
    else:
        yield old, new


def _first_line(old: list[str], new: list[str]) -> str:
    """Return the first line that differs, as it was and as it is."""
    for kind, first, last, begin, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        was, is_ = old[first:last][:1], new[begin:end][:1]
        if kind == "replace":
            return f": `{_cut(was[0].strip())}` became `{_cut(is_[0].strip())}`"
        if kind != "equal":
            return f": `{_cut((was or is_)[0].strip())}` is {'gone' if was else 'new'}"
    return ""


def _cut(text: str, length: int = 2 * _LONGEST) -> str:
    return text if len(text) <= length else text[:length] + "..."


def _align(old: list[Any], new: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the values of the same names, where the code around them differs."""
    before, now = ([value for value in values if "name" in value] for values in (old, new))
    matcher = SequenceMatcher(
        None, [value["name"] for value in before], [value["name"] for value in now], autojunk=False
    )
    for block in matcher.get_matching_blocks():
        yield from zip(before[block.a : block.a + block.size], now[block.b : block.b + block.size], strict=True)
