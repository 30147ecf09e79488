"""The code of one function as data, with numbers in the place of its variables' names."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, TypeAlias

from headrace.plan.bytecode import VARIABLE_OPS, Step, is_class_body, parameters, steps_of
from headrace.plan.control_flow import Block, blocks, case_of
from headrace.plan.python_names import VALUE, Scope, resolved

Data: TypeAlias = dict[str, Any]
# Those whose results depend on the names of variables.
_SEES_VARIABLES = (locals, vars, eval, exec, dir)
_FLAGS = 0x20 | 0x80 | 0x100 | 0x200  # generator, coroutine, iterable coroutine, asynchronous generator


class Listing:
    """The code of one function, with numbers for its variables."""

    def __init__(
        self, encode: Callable[[Any], Data], note: Callable[[Step], None], code: CodeType, scope: Scope
    ) -> None:
        self._encode, self._note = encode, note
        self._code = code
        steps, self._scope = resolved(code, steps_of(code), scope)
        self._blocks = blocks(steps)
        self._numbers: dict[str, str] = {}
        self._outer: list[str] = []

    def data(self) -> tuple[Data, list[str]]:
        """The code as data, and the variables of other functions that it uses, in the order of their use."""
        positional, keyword, rest = parameters(self._code)
        for number, name in enumerate(positional):
            self._numbers[name] = str(number)
        self._numbers.update({name: f"{name}=" for name in keyword})
        self._numbers.update({name: "*" * (number + 1) for number, name in enumerate(rest)})
        labels = {id(block): number for number, block in enumerate(self._blocks)}
        found: Data = {"positional": len(positional), "names": positional, "keyword": sorted(keyword)}
        found["rest"] = self._code.co_flags & 0xC
        found["flags"] = self._code.co_flags & _FLAGS
        if self._code.co_posonlyargcount:
            found["positional only"] = self._code.co_posonlyargcount
        found["blocks"] = [self._block(block, labels) for block in self._blocks]
        if self._sees_variables():
            found["variables"] = sorted(map(list, self._numbers.items()))
        return found, self._outer

    def _sees_variables(self) -> bool:
        steps = (step for block in self._blocks for step in block.steps if step.op == VALUE)
        return any(step.arg is each for step in steps for each in _SEES_VARIABLES)

    def _block(self, block: Block, labels: dict[int, int]) -> Data:
        found: Data = {"steps": [self._step(step) for step in block.steps]}
        if block.exits:
            found["then"] = [labels[id(each)] for each in block.exits]
        if block.handler is not None:
            found["on error"] = [labels[id(block.handler[0])], block.handler[1], bool(block.handler[2])]
        return found

    def _step(self, step: Step) -> str | Data:
        self._note(step)
        if step.op == VALUE:
            data: Data = {"value": self._encode(step.arg)}
            if step.shown:
                data["name"] = step.shown
            return data
        if step.op == "MAKE_FUNCTION":
            code, captured = Listing(self._encode, self._note, step.arg, self._scope).data()
            return {"function": code, "with": step.bits, "captures": [self._variable(name) for name in captured]}
        if step.jump is not None:
            return case_of(step)
        if VARIABLE_OPS.fullmatch(step.op) or (step.op.endswith("_NAME") and not is_class_body(self._code)):
            return f"{step.op} {self._variable(step.arg)}"
        if step.op == "LOAD_SUPER_ATTR":
            return f"{step.op} {step.arg} {step.bits & 3}"
        return step.op if step.arg is None else f"{step.op} {step.arg}"

    def _variable(self, name: str) -> str:
        if name in self._code.co_freevars:
            if name not in self._outer:
                self._outer.append(name)
            return f"outer {self._outer.index(name)}"
        return self._numbers.setdefault(name, f"local {len(self._numbers)}")
