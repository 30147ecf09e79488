"""Many worlds, or one with its steps: `python -m tests.protocol 0 100000`, `--show SEED`, `--defects 2000`.

`--defect WORDS` shows the world of a defect that is put back, and what it breaks.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext

from .defects import DEFECTS, Defect
from .scheduler import Stuck
from .world import ABOUT, Broken, World

_CHUNK = 250
_LOOKED_AT = 1_000


def stay_on_one_core() -> None:
    """Of the threads of a world one runs at a time: from one to the next is a shorter way on the same core.

    What was imported is not looked through for garbage, which is a tenth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})


def first_fault(
    first: int, last: int, defect: Defect | None = None, about: str = "", scene: str = ""
) -> tuple[int, int, str] | None:
    """The first seed in which something does not hold, after how many steps, and what; None without any.

    With a defect: one in which all holds without it. What is not a broken promise is a mistake of the defect then.
    """
    if defect is not None:
        about, scene = defect.about, defect.scene
    for seed in range(first, last):
        world = World(seed, about=about, scene=scene)
        with nullcontext() if defect is None else defect.put_back():
            try:
                world.run()
                continue
            except Exception as error:
                if defect is not None and not isinstance(error, (Broken, Stuck)):
                    raise
                fault = f"{type(error).__name__}: {error}"
        if defect is None or first_fault(seed, seed + 1, about=about, scene=scene) is None:
            return seed, len(world.scheduler.trace), fault
    return None


def _chunk(first: int, last: int, about: str) -> tuple[list[tuple[int, int, str]], int, Counter[str]]:
    faults, steps, refusals = [], 0, Counter[str]()
    for seed in range(first, last):
        world = World(seed, about=about)
        try:
            world.run()
        except Exception as error:
            faults.append((seed, len(world.scheduler.trace), f"{type(error).__name__}: {error}"))
        steps += len(world.scheduler.trace)
        refusals.update(world.refusals)
    return faults, steps, refusals


def _defect(number: int, most: int) -> str:
    fault = first_fault(0, most, DEFECTS[number])
    return f"{DEFECTS[number].what}: {'NOT FOUND' if fault is None else _line(*fault)}"


def _line(seed: int, step: int, sentence: str) -> str:
    return f"seed {seed}, step {step}: {sentence}"


def world_of(defect: Defect) -> tuple[int, int, str] | None:
    """The world that shows a defect: the one of the table, unless a change of the product has moved its steps."""
    seed = defect.seed or 0
    return first_fault(seed, seed + 1, defect) or first_fault(0, _LOOKED_AT, defect)


def _show(seed: int | None, about: str, words: str | None) -> int:
    defect = None
    if words is not None:
        meant = [defect for defect in DEFECTS if words in defect.what]
        if len(meant) != 1:
            raise SystemExit(f"{len(meant)} defects have these words in their names: {words}")
        defect, about = meant[0], meant[0].about
    if seed is None and defect is not None:
        fault = world_of(defect)
        if fault is None:
            raise SystemExit(f"no world is known that shows this defect: {words}; look for one: --defects 2500")
        seed = fault[0]
    assert seed is not None
    world = World(seed, about=about, scene="" if defect is None else defect.scene)
    try:
        with nullcontext() if defect is None else defect.put_back():
            world.run()
    except Exception as error:
        print("\n".join(world.scheduler.trace))
        print(f"{type(error).__name__}: {error}")
        return 1
    print("\n".join(world.scheduler.trace))
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for; 1 where something does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.protocol", description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, help="the first one, and the one behind the last")
    parser.add_argument("--show", type=int, metavar="SEED", help="the steps of one world")
    parser.add_argument("--defect", metavar="WORDS", help="the steps of the world that shows this defect")
    parser.add_argument("--defects", type=int, metavar="SEEDS", help="in how many worlds each defect is looked for")
    parser.add_argument("--about", choices=("", *ABOUT), default="", help="what there is something of in each world")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args(arguments)
    if asked.show is not None or asked.defect is not None:
        return _show(asked.show, asked.about, asked.defect)
    with ProcessPoolExecutor(asked.jobs, initializer=stay_on_one_core) as pool:
        if asked.defects is not None:
            lines = []
            for line in pool.map(_defect, range(len(DEFECTS)), [asked.defects] * len(DEFECTS)):
                print(line, flush=True)
                lines.append(line)
            caught = sum(not line.endswith("NOT FOUND") for line in lines)
            print(f"{caught} of {len(DEFECTS)} defects found in {asked.defects} worlds")
            return 1 if caught < len(DEFECTS) else 0
        first, last = asked.seeds
        begun, faults, steps, refusals = time.monotonic(), 0, 0, Counter[str]()
        starts = range(first, last, _CHUNK)
        ends, abouts = [min(start + _CHUNK, last) for start in starts], [asked.about] * len(starts)
        for wrong, more, refused in pool.map(_chunk, starts, ends, abouts):
            for seed, step, sentence in wrong:
                print(_line(seed, step, sentence), flush=True)
            faults, steps = faults + len(wrong), steps + more
            refusals.update(refused)
        seconds = time.monotonic() - begun
    rate = 60 * (last - first) / seconds
    print(f"{last - first} seeds, {steps} steps, {faults} faults in {seconds:.0f} s: {rate:.0f} seeds a minute")
    print("refused starts: " + ", ".join(f"{code} {count}" for code, count in refusals.most_common()))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
