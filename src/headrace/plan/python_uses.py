"""Which names the code of a function uses: of attributes, of parameters, of globals that it sets."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, TypeAlias

from headrace.plan.bytecode import VARIABLE_OPS, Step
from headrace.plan.python_names import VALUE

Data: TypeAlias = dict[str, Any]

# With these the names of attributes are no longer known before.
DYNAMIC = (getattr, vars, dir, setattr, delattr, hasattr)
_NAME = re.compile(r"[A-Za-z_]\w{0,99}")
# What each function and class has; a change of it counts only where the code asks for it.
_OWN_NAMES = ("__name__", "__qualname__", "__doc__", "__annotations__")


class Uses:
    """What is known of names so far, and the attributes that wait until the code uses their names.

    Nothing else can reach an attribute of a class of the project: so a method that nobody calls may change.
    """

    def __init__(self, keywords: Collection[str]) -> None:
        self.dynamic = False
        self._names: set[str] = set()
        self._keywords = set(keywords)
        self._any_keyword = False
        self._set: set[str] = set()
        self._waiting: list[tuple[Data, str, Any]] = []

    def add(self, *names: str) -> None:
        """Note names of attributes; a text may be one, for `getattr` and the like."""
        self._names.update(name for name in names if _NAME.fullmatch(name))

    def add_keywords(self, *names: str) -> None:
        """Note names of parameters that values are given to by name."""
        self._keywords.update(names)

    def note(self, step: Step) -> None:
        """Note what a step uses."""
        if step.op in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            self._set.add(step.arg)
        elif isinstance(step.arg, str) and step.op != VALUE and not VARIABLE_OPS.fullmatch(step.op):
            self.add(step.arg)
            self.dynamic |= step.arg in ("__dict__", "__getattribute__")
        elif isinstance(step.arg, tuple) and step.arg and all(isinstance(each, str) for each in step.arg):
            self.add(*step.arg)
            self.add_keywords(*step.arg)
        elif step.op == "CALL_FUNCTION_EX" and step.bits & 1:
            self._any_keyword = True

    def keep(self, node: Data, name: str, value: Any) -> None:
        """Let an attribute of `node` wait until its name is used."""
        self._waiting.append((node, name, value))

    def keep_own_names(self, node: Data, thing: Any) -> None:
        """Let the names and the documentation of a function or a class wait."""
        for name in _OWN_NAMES:
            self.keep(node, name, getattr(thing, name, None))

    def take(self) -> list[tuple[Data, str, Any]]:
        """The attributes whose names are used by now."""
        taken = [each for each in self._waiting if self._is_used(each[1])]
        self._waiting = [each for each in self._waiting if not self._is_used(each[1])]
        return taken

    def _is_used(self, name: str) -> bool:
        return name in self._names or (self.dynamic and name not in _OWN_NAMES)

    def finish(self, nodes: list[Data]) -> None:
        """Keep the names of parameters that some call gives a value by name, and of globals that some function sets."""
        waiting: list[Any] = list(nodes)
        while waiting:
            data = waiting.pop()
            if isinstance(data, dict):
                if "positional" in data:
                    data["named"] = [[n, name] for n, name in enumerate(data["names"]) if self._is_keyword(name)]
                if str(data.get("name", "")).startswith("global ") and data["name"][7:] in self._set:
                    data["set"] = data["name"]
                waiting.extend(data.values())
            elif isinstance(data, list):
                waiting.extend(data)

    def _is_keyword(self, name: str) -> bool:
        return self._any_keyword or name in self._keywords
