"""One difference between two forms of a query: what follows from it, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

from headrace.errors import NOWHERE, Where
from headrace.plan.form import QueryForm
from headrace.plan.python_code import differences as python_differences
from headrace.plan.python_code import name_of

Kind: TypeAlias = Literal["same", "safe", "forward", "rebuild", "forbidden"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that is not as it was.

    verdict: what follows from it alone. part: what has changed, in words. before, now: as it was and as it is.
    why: what would come of it. fix: what else there is to do than to undo it.
    about: `source NAME OPTION`, `sink OPTION`, `mode`, `setting NAME` or `watermark SOURCE`; none for what stands in
    the code. functions: the Python functions that differ, by module and name. where: the place in what is written now.
    """

    verdict: Kind
    part: str
    before: str
    now: str
    why: str
    fix: str = ""
    about: str = ""
    functions: tuple[str, ...] = ()
    where: Where = NOWHERE

    def as_dict(self) -> dict[str, Any]:
        """The difference as plain data, for `--json`."""
        return {
            "verdict": self.verdict,
            "part": self.part,
            "before": self.before,
            "now": self.now,
            "why": self.why,
            "where": asdict(self.where),
        }


def worst(differences: Sequence[Difference]) -> Kind:
    """The verdict over all differences together."""
    return max((each.verdict for each in differences), key=KINDS.index, default="same")


def python_changes(old: str, new: str, before: QueryForm, now: QueryForm) -> tuple[list[str], tuple[str, ...]]:
    """What differs between the Python functions that two texts name, taken in their order; and their names."""
    gone = [name for name in before.python if name in old and name not in new]
    come = [name for name in now.python if name in new and name not in old]
    names = tuple(name_of(now.python[name]) for name in sorted(come, key=new.index))
    if len(gone) != len(come):
        return [], names
    pairs = zip(sorted(gone, key=old.index), sorted(come, key=new.index), strict=True)
    return [said for was, is_ in pairs for said in python_differences(before.python[was], now.python[is_])], names


def mixing(before: QueryForm) -> Kind:
    """What follows where rows from now on differ from those before, all the way from the sources."""
    return "rebuild" if before.operators else "forward"


def shown(told: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{key} {text_of(value)}" for key, value in (told or {}).items())


def text_of(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return str(value)
