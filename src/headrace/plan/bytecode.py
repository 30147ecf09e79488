"""The steps of a code object, without what its layout, its names and the compiler's freedom put into bytecode."""

from __future__ import annotations

import dis
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

VARIABLE_OPS = re.compile(r"(LOAD|STORE|DELETE)_(FAST|DEREF|CLOSURE|CLASSDEREF)(_AND_CLEAR)?|LOAD_FROM_DICT_OR_DEREF")
_LEFT_OUT = {"NOP", "RESUME", "PRECALL", "MAKE_CELL", "COPY_FREE_VARS", "GEN_START", "NOT_TAKEN"}
_RENAMED = {"LOAD_FAST_CHECK": "LOAD_FAST", "LOAD_FAST_BORROW": "LOAD_FAST", "CALL_METHOD": "CALL_FUNCTION"}
# What a class body writes about itself: its name, its place in the file and its documentation.
_ABOUT_CLASS = {"__module__", "__qualname__", "__doc__", "__firstlineno__", "__static_attributes__"}
_ANNOTATIONS, _CLOSURE = 4, 8
_PYTHON = sys.version_info[:2]


@dataclass(eq=False)
class Step:
    """One instruction.

    arg: what stands for its argument: a name, a constant, a number, or for a function its code.
    jump, handler: where it may go, and where an exception in it goes, with the depth of the stack.
    after: for a step that was taken out the one that took its place.
    """

    op: str
    arg: Any = None
    jump: Step | None = None
    handler: tuple[Step, int, bool] | None = None
    is_target: bool = False
    after: Step | None = None
    effect: int = 0
    shown: str = ""
    bits: int = 0

    def live(self) -> Step:
        """This step, or what stands where it was taken out."""
        step = self
        while step.after is not None:
            step = step.after
        return step


def steps_of(code: CodeType) -> list[Step]:
    """The steps of `code` in their order, without type hints, positions and what a class body says about itself."""
    steps = _decoded(code)
    steps = _with_functions(steps)
    steps = _plain(steps)
    return _without_header(steps) if is_class_body(code) else steps


def is_class_body(code: CodeType) -> bool:
    """Whether `code` is the body of a class statement, whose variables are attributes."""
    return not code.co_flags & inspect.CO_NEWLOCALS


def parameters(code: CodeType) -> tuple[list[str], list[str], list[str]]:
    """The names of the positional parameters, of those by keyword alone, and of `*args` and `**options`."""
    names, first = code.co_varnames, code.co_argcount
    last = first + code.co_kwonlyargcount
    rest = sum(bool(code.co_flags & flag) for flag in (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS))
    return list(names[:first]), list(names[first:last]), list(names[last : last + rest])


def nested(code: CodeType) -> Iterator[CodeType]:
    """`code` and the code of all functions and classes in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)


def stored(code: CodeType, *ops: str) -> list[str]:
    """The names that steps of `code` itself give a value to by one of `ops`, as often as they do."""
    found = []
    for each in dis.get_instructions(code):
        names = each.argval if isinstance(each.argval, tuple) else (each.argval,)
        halves = re.findall(r"(?:LOAD|STORE)_FAST", each.opname) if len(names) == 2 else [each.opname]
        found += [str(name) for op, name in zip(halves, names, strict=False) if op in ops]
    return found


def without(steps: list[Step], gone: set[int]) -> list[Step]:
    """`steps` less those at the positions `gone`; a jump to one of them leads to the next that stays."""
    kept: list[Step] = []
    following: Step | None = None
    for index in range(len(steps) - 1, -1, -1):
        step = steps[index]
        if index in gone and following is not None:
            step.after = following
            following.is_target |= step.is_target
        else:
            kept.append(step)
            following = step
    return kept[::-1]


def _decoded(code: CodeType) -> list[Step]:
    steps: list[Step] = []
    at: dict[int, Step] = {}
    jumps: list[tuple[Step, int]] = []
    offsets: list[int] = []
    waiting: list[int] = []
    for each in dis.get_instructions(code):
        waiting.append(each.offset)
        if each.opname in ("CACHE", "EXTENDED_ARG"):
            continue
        step = Step(each.opname, each.arg, bits=each.arg or 0)
        if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
            jumps.append((step, each.argval))
        elif each.opcode in dis.hasconst:
            step.arg = code.co_consts[step.bits]  # Some versions of `dis` know the argument of LOAD_CONST alone.
        elif each.opcode in dis.hasname or each.opcode in dis.haslocal or each.opcode in dis.hasfree:
            step.arg = each.argval
        step.effect = dis.stack_effect(each.opcode, each.arg, jump=False)
        at.update(dict.fromkeys(waiting, step))
        waiting.clear()
        offsets.append(each.offset)
        steps.append(step)
    for step, offset in jumps:
        step.jump = at[offset]
        step.jump.is_target = True
    entries = dis._parse_exception_table(code) if hasattr(dis, "_parse_exception_table") else ()
    for entry in entries:
        target = at[entry.target]
        target.is_target = True
        for step, offset in zip(steps, offsets, strict=True):
            if entry.start <= offset < entry.end:
                step.handler = (target, entry.depth, entry.lasti)
    return steps


def _with_functions(steps: list[Step]) -> list[Step]:
    """Each function that is made as one step, without its type hints, its name and the order of what it captures."""
    gone: set[int] = set()
    for index, step in enumerate(steps):
        if step.op != "MAKE_FUNCTION":
            continue
        flags, last = step.bits, index + 1
        while last < len(steps) and steps[last].op == "SET_FUNCTION_ATTRIBUTE":  # From Python 3.13 on.
            flags |= steps[last].bits
            gone.add(last)
            last += 1
        first = index - 1
        if not isinstance(steps[first].arg, CodeType):  # Up to Python 3.10 the name comes last.
            gone.add(first)
            first -= 1
        code = steps[first].arg
        gone.add(first)
        if flags & _CLOSURE:
            captured = steps[first - 1].bits
            gone.update(range(first - 1 - captured, first))
            first -= 1 + captured
        if flags & _ANNOTATIONS and (start := _start_of_values(steps, first, 1)) is not None:
            gone.update(range(start, first))
            flags &= ~_ANNOTATIONS
        step.arg, step.bits = code, flags & ~_CLOSURE
        if step.bits & _ANNOTATIONS == 0 and index > 1 and _is_class_statement(steps, first, last):
            gone.add(last)
    return without(steps, gone)


def _is_class_statement(steps: list[Step], first: int, last: int) -> bool:
    """Whether the function made before `last` is a class's body, after which the class's name is loaded."""
    before = [step.op for step in steps[max(first - 2, 0) : first]]
    return "LOAD_BUILD_CLASS" in before and steps[last].op == "LOAD_CONST"


def _start_of_values(steps: list[Step], end: int, count: int) -> int | None:
    """Where the steps begin that leave the last `count` values on the stack before `end`; None if they branch."""
    wanted = count
    for index in range(end - 1, -1, -1):
        step = steps[index]
        if step.jump is not None or step.is_target:
            return None
        wanted -= step.effect
        if wanted == 0:
            return index
    return None


def _plain(steps: list[Step]) -> list[Step]:
    """Without what does nothing; what some versions of Python join into one step is parted again."""
    parted: list[Step] = []
    for step in steps:
        parted += _parts(step)
    return without(parted, {index for index, step in enumerate(parted) if step.op in _LEFT_OUT})


def _parts(step: Step) -> list[Step]:
    op = step.op = _RENAMED.get(step.op, step.op)
    if isinstance(step.arg, tuple) and (names := re.fullmatch(r"((?:LOAD|STORE)_FAST)_(?:BORROW_)?(\w+)", op)):
        # Lines decide which neighbours Python 3.13 joins.
        step.op, second = names[1], names[2].replace("_BORROW", "")
        (step.arg, other) = step.arg
        return [step, Step(second, other, handler=step.handler)]
    if op == "RETURN_CONST":
        step.op = "LOAD_CONST"
        return [step, Step("RETURN_VALUE", handler=step.handler)]
    if op == "COMPARE_OP":
        boolean = _PYTHON >= (3, 13) and step.bits & 16
        step.arg = dis.cmp_op[step.bits >> (5 if _PYTHON >= (3, 13) else 4 if _PYTHON >= (3, 12) else 0)]
        return [step, Step("TO_BOOL", handler=step.handler)] if boolean else [step]
    if op == "LOAD_METHOD" and _PYTHON < (3, 11):  # Up to Python 3.10 it differs in speed alone.
        step.op = "LOAD_ATTR"
    if op == "LOAD_ATTR" and step.bits & 1 and _PYTHON >= (3, 12):
        step.op = "LOAD_METHOD"
    if op == "LOAD_GLOBAL" and step.bits & 1 and _PYTHON >= (3, 11):
        return null_beside(step)
    return [step]


def null_beside(step: Step) -> list[Step]:
    """`step` with the empty place that a call has beside the function: before it up to Python 3.12."""
    if _PYTHON >= (3, 13):
        return [step, Step("PUSH_NULL", handler=step.handler)]
    load = Step(step.op, step.arg, handler=step.handler, shown=step.shown)
    step.op, step.arg, step.shown = "PUSH_NULL", None, ""
    return [step, load]


def _without_header(steps: list[Step]) -> list[Step]:
    gone: set[int] = set()
    for index, step in enumerate(steps[1:], 1):
        if step.op == "STORE_NAME" and step.arg in _ABOUT_CLASS and steps[index - 1].op in ("LOAD_CONST", "LOAD_NAME"):
            gone |= {index - 1, index}
    return without(steps, gone)
