"""The ways through a function's steps, in one form for all layouts that a compiler may choose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.plan.bytecode import Step

_ALWAYS = {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP"}
_ENDS = {"RETURN_VALUE", "RAISE_VARARGS", "RERAISE"}
# Compilers copy the end of a function of up to four instructions, no-operations counted: all such are copied here.
_COPIED = 8
_HANDLER = tuple[int, int, bool]


@dataclass(eq=False)
class Block:
    """Steps that follow each other, and the blocks that may come after them, in the order of the last step's cases."""

    steps: list[Step] = field(default_factory=list)
    exits: list[Block] = field(default_factory=list)
    handler: tuple[Block, int, bool] | None = None

    @property
    def ends(self) -> bool:
        """Whether the function ends here and in few steps, so that a compiler may have copied it."""
        return not self.exits and len(self.steps) <= _COPIED

    @property
    def goes_on(self) -> bool:
        """Whether what follows is known."""
        return len(self.exits) == 1


def blocks(steps: list[Step]) -> list[Block]:
    """The blocks of a function in the order in which they can be reached, cases in a fixed order."""
    first = _parted(steps)
    while _simplified(first):
        pass
    return list(_reachable(first))


def case_of(step: Step) -> str:
    """The operation of a step that branches, without the direction and the sense, which the order of its cases has."""
    op = _without_direction(step.op)
    return "IF" if op in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE") else op.replace("IF_NOT_NONE", "IF_NONE")


def _without_direction(op: str) -> str:
    return re.sub(r"_(FORWARD|BACKWARD)(?=_)", "", op)


def _parted(steps: list[Step]) -> Block:
    """Part steps into blocks where ways meet, part, or lead into another handler; return the first."""
    of: dict[int, Block] = {}
    order: list[Block] = []
    for index, step in enumerate(steps):
        before = steps[index - 1] if index else None
        if before is None or step.is_target or before.jump or before.op in _ENDS or before.handler != step.handler:
            order.append(Block())
        of[id(step)] = order[-1]
        order[-1].steps.append(step)
    for block, following in zip(order, [*order[1:], None], strict=True):
        last = block.steps[-1]
        if block.steps[0].handler is not None:
            target, depth, with_place = block.steps[0].handler
            block.handler = (of[id(target.live())], depth, with_place)
        if last.op in _ALWAYS and last.jump is not None:
            block.steps.pop()
            block.exits = [of[id(last.jump.live())]]
        elif last.jump is not None and following is not None:
            block.exits = _cases(block, following, of[id(last.jump.live())])
        elif last.op not in _ENDS and following is not None:
            block.exits = [following]
    return order[0]


def _cases(block: Block, following: Block, target: Block) -> list[Block]:
    """The blocks after one that branches at its end: the one for true or None first, as if no `not` stood there."""
    op = _without_direction(block.steps[-1].op)
    cases = [target, following] if op in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_NONE") else [following, target]
    before = block.steps[-2] if len(block.steps) > 1 else None
    if op.startswith("POP_JUMP_IF") and before is not None and before.op in ("IS_OP", "CONTAINS_OP") and before.arg:
        before.arg = 0
        cases.reverse()
    return cases


def _simplified(first: Block) -> bool:
    """Pass over empty blocks, copy short ends to where they are reached from, and join what follows without choice."""
    changed = False
    found = list(_reachable(first))
    for block in found:
        for index, after in enumerate(block.exits):
            end = _past_empty(after)
            if end is not after:
                block.exits[index], changed = end, True
        if block.handler is not None and (end := _past_empty(block.handler[0])) is not block.handler[0]:
            block.handler, changed = (end, *block.handler[1:]), True
    reached = _times_reached(first)
    # An empty block that was passed over is no part of the function any more, and must take no steps to itself.
    for block in list(_reachable(first)):
        for index, after in enumerate(block.exits):
            if after.ends and reached.get(id(after), 0) > 1:
                copied = Block(list(after.steps), [], after.handler)
                block.exits[index], changed = copied, True
                reached[id(after)] -= 1
                reached[id(copied)] = 1
        while block.goes_on and block.exits[0] is not block:
            after = block.exits[0]
            if reached.get(id(after), 0) > 1 or after.handler != block.handler or after is first:
                break
            block.steps, block.exits, changed = [*block.steps, *after.steps], after.exits, True
            after.steps, after.exits = [], []
    return changed


def _past_empty(block: Block) -> Block:
    seen: set[int] = set()
    while not block.steps and block.goes_on and id(block) not in seen:
        seen.add(id(block))
        block = block.exits[0]
    return block


def _times_reached(first: Block) -> dict[int, int]:
    times: dict[int, int] = {}
    for block in _reachable(first):
        for after in block.exits:
            times[id(after)] = times.get(id(after), 0) + 1
        if block.handler is not None:  # A handler is reached from many places.
            times[id(block.handler[0])] = times.get(id(block.handler[0]), 0) + 2
    return times


def _reachable(first: Block) -> Iterator[Block]:
    seen: set[int] = set()
    waiting = [first]
    while waiting:
        block = waiting.pop()
        if id(block) in seen:
            continue
        seen.add(id(block))
        yield block
        if block.handler is not None:
            waiting.append(block.handler[0])
        waiting.extend(reversed(block.exits))
