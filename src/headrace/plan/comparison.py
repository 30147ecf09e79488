"""Two forms of a query compared: what differs, why it matters, and what may be done.

Source: guide, "Recovery Semantics after Changes in a Streaming Query", and how Spark keeps state (see `normal`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from headrace.plan.form import Operator, QueryForm
from headrace.plan.python_code import differences as python_differences

Kind: TypeAlias = Literal["same", "safe", "forward", "rebuild", "forbidden"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_REORDERED = "in another order"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that is not as it was.

    verdict: what follows from it alone. part: what has changed, in words. before, now: as it was and as it is.
    why: what would come of it. fix: what else there is to do than to undo it.
    """

    verdict: Kind
    part: str
    before: str
    now: str
    why: str
    fix: str = ""

    def as_dict(self) -> dict[str, str]:
        """The difference as plain data, for `--json`."""
        return {"verdict": self.verdict, "part": self.part, "before": self.before, "now": self.now, "why": self.why}


def worst(differences: Sequence[Difference]) -> Kind:
    """The verdict over all differences together."""
    return max((each.verdict for each in differences), key=KINDS.index, default="same")


def compare(before: QueryForm, now: QueryForm) -> tuple[Difference, ...]:
    """All that differs between what ran and what is to run; none if both mean the same."""
    ends = tuple(_ends(before, now))
    if renamed_sources(before, now):
        return ends  # The expressions name the sources.
    if before.python_version != now.python_version and before.python and before.shape == now.shape:
        return (*_other_python(before, now), *ends)
    if before.spark != now.spark and before.declared and before.declared == now.declared:
        # Another Spark writes the plan of the same code otherwise; what it keeps in another order it takes for another.
        return (*ends, *(each for each in _operators(before, now) if _REORDERED in each.why))
    return (*ends, *_operators(before, now), *_watermarks(before, now), *_result(before, now))


# ------------------------------------------------------------------------------------------------------- the ends


def _ends(before: QueryForm, now: QueryForm) -> Iterator[Difference]:
    yield from _sources(before, now)
    yield from _sink(before, now)
    yield from _mode(before, now)
    yield from _settings(before, now)


def renamed_sources(before: QueryForm, now: QueryForm) -> dict[str, str]:
    """The sources that look as if they had another name before: that name by the present one."""
    gone = {name: facts for name, facts in before.sources.items() if name not in now.sources}
    new = {name: facts for name, facts in now.sources.items() if name not in before.sources}
    found = {}
    for name, facts in new.items():
        former = [each for each, was in gone.items() if was == facts]
        if len(former) == 1 and list(new.values()).count(facts) == 1:
            found[name] = former[0]
    return found


def _sources(before: QueryForm, now: QueryForm) -> Iterator[Difference]:
    renamed = renamed_sources(before, now)
    for name, former in sorted(renamed.items()):
        yield Difference(
            verdict="rebuild",
            part=f"source '{name}'",
            before=f"'{former}', the same in all but its name",
            now=f"'{name}'",
            why="its offsets are kept under its former name, so that it would be read from its beginning",
            fix=f"this looks like '{former}' renamed: `renamed_from: {former}` at the source keeps its offsets",
        )
    for name in sorted({*before.sources, *now.sources} - {*renamed, *renamed.values()}):
        old, new = before.sources.get(name), now.sources.get(name)
        part = f"source '{name}'"
        if old == new:
            continue
        if new is None:
            why = "no row of it is taken any more, and what was made of its rows stays"
            yield Difference(verdict=_mixing(before), part=part, before=_shown(old), now="not read", why=why)
        elif old is None:
            why = "its rows are added to what was made without them"
            yield Difference(verdict=_mixing(before), part=part, before="not read", now=_shown(new), why=why)
        elif old.get("kind") != new.get("kind"):
            why = "Spark cannot read the offsets of another kind of source"
            yield Difference(verdict="forbidden", part=part, before=_shown(old), now=_shown(new), why=why)
        else:
            yield from _source(part, old, new, before)


def _source(part: str, old: Mapping[str, Any], new: Mapping[str, Any], before: QueryForm) -> Iterator[Difference]:
    for key in sorted({*old, *new}):
        if old.get(key) == new.get(key):
            continue
        if key == "place" and directory(str(old.get(key))) == directory(str(new.get(key))):
            verdict: Kind = "safe"
            why = "files that are read from now on are those that the new pattern finds"
        elif key == "place":
            why = "the checkpoint's offsets are those of the former place: what is there now counts as new, all of it"
            verdict = _mixing(before)
        else:
            why = "rows from now on are read otherwise than those before"
            verdict = _mixing(before)
        yield Difference(
            verdict=verdict,
            part=f"{part}, {key}",
            before=_text(old.get(key)),
            now=_text(new.get(key)),
            why=why,
        )


def directory(path: str) -> str:
    """The directory that a path or a pattern begins with."""
    bare = re.split(r"[*?\[{]", path, maxsplit=1)[0]
    return path if bare == path else bare.rpartition("/")[0]


def _sink(before: QueryForm, now: QueryForm) -> Iterator[Difference]:
    old, new = before.sink, now.sink
    verdict: Kind
    for key in sorted({*old, *new}):
        # A table may be moved to another server with its ledger, which is compared by itself.
        if old.get(key) == new.get(key) or key in ("by_name", "begins_anywhere", "systems"):
            continue
        if key == "key":
            verdict, part = "rebuild", "the key of the sink"
            why = "rows that are there stay under the former key, and no batch replaces them any more"
        elif key == "function":
            # Allowed by the guide: what it means depends on the code, which alone knows what it has written.
            changed = "; ".join(_python_changes(str(old.get(key)), str(new.get(key)), before, now))
            verdict, part = "safe", f"the function of the sink{': ' * bool(changed)}{changed}"
            why = "rows from now on are written by the new code"
        elif now.sink.get("begins_anywhere"):
            verdict, part = "forward", f"the sink, {key}"
            why = "it gets only the rows that come from now on; those before are in the former place"
        else:
            verdict, part = "forbidden", f"the sink, {key}"
            why = "it lacks all that was written before, and gets only what comes from now on"
        yield Difference(verdict=verdict, part=part, before=_text(old.get(key)), now=_text(new.get(key)), why=why)


def _mode(before: QueryForm, now: QueryForm) -> Iterator[Difference]:
    if before.mode == now.mode:
        return
    if not before.operators and not now.operators:
        why = "a query without a state gives the same rows in both"
        yield Difference(verdict="safe", part="the output mode", before=before.mode, now=now.mode, why=why)
        return
    why = "the rows that are there were given by another rule: what is left out of each mode is missing, or stays"
    yield Difference(verdict="rebuild", part="the output mode", before=before.mode, now=now.mode, why=why)


def _settings(before: QueryForm, now: QueryForm) -> Iterator[Difference]:
    for name in sorted({*before.settings, *now.settings}):
        old, new = before.settings.get(name), now.settings.get(name)
        if old != new and old is not None and new is not None:
            why = "the same expressions mean something else from now on"
            yield Difference(verdict=_mixing(before), part=f"the setting {name}", before=old, now=new, why=why)


# ------------------------------------------------------------------------------------------------------- the state


def _operators(before: QueryForm, now: QueryForm) -> Iterator[Difference]:
    old, new = [each.kind for each in before.operators], [each.kind for each in now.operators]
    if old != new:
        why = (
            "the state that is there belongs to other operations"
            if new and old
            else "the checkpoint has no state for it"
            if new
            else "what the state holds and was not written yet is lost"
        )
        yield Difference(
            verdict="forbidden" if new else "rebuild",
            part="what keeps state",
            before=", ".join(old) or "nothing",
            now=", ".join(new) or "nothing",
            why=why,
        )
        return
    for number, (was, is_) in enumerate(zip(before.operators, now.operators, strict=True)):
        named = was.kind if len(old) == 1 else f"{was.kind} {number}"
        yield from _operator(f"the {named}", was, is_, before, now)


def _operator(part: str, was: Operator, is_: Operator, before: QueryForm, now: QueryForm) -> Iterator[Difference]:
    for name, old, new in (("keys", was.keys, is_.keys), ("values", was.values, is_.values)):
        if old == new:
            continue
        fits = len(old) == len(new)
        order = f"{_REORDERED}: " if sorted(old) == sorted(new) else ""
        why = (
            f"{order}Spark takes the state for what it is not, silently where the types allow it"
            if fits
            else "Spark cannot read the state that is there"
        )
        yield Difference(
            verdict="rebuild" if fits else "forbidden",
            part=f"{name} of {part}",
            before=_listed(old, new, before),
            now=_listed(new, old, now),
            why=why,
        )
    for name in sorted({*was.further, *is_.further}):
        if was.further.get(name, "") != is_.further.get(name, ""):
            yield _changed(
                "rebuild",
                f"{name} of {part}",
                was.further.get(name, ""),
                is_.further.get(name, ""),
                before,
                now,
                why="the state holds what the former one has made, and is continued by another",
            )
    for side, (old_feed, new_feed) in enumerate(zip(was.feeds, is_.feeds, strict=False)):
        if old_feed != new_feed:
            which = f", side {side + 1}" if len(was.feeds) > 1 else ""
            why = "the state holds other rows than it would hold"
            yield _changed("rebuild", f"what feeds {part}{which}", old_feed, new_feed, before, now, why=why)


def _watermarks(before: QueryForm, now: QueryForm) -> Iterator[Difference]:
    if not before.operators or before.watermarks == now.watermarks:
        return
    if set(before.watermarks) != set(now.watermarks):
        yield Difference(
            verdict="rebuild",
            part="the columns with a watermark",
            before=", ".join(sorted(before.watermarks)) or "none",
            now=", ".join(sorted(now.watermarks)) or "none",
            why="what is late and when state goes follows another column: the state was kept by the former one",
        )
        return
    for column, old in sorted(before.watermarks.items()):
        if now.watermarks[column] != old:
            yield Difference(
                verdict="forward",
                part=f"the watermark's delay of {column}",
                before=f"{old} ms",
                now=f"{now.watermarks[column]} ms",
                why="rows from now on are late by the new delay; those that were dropped before stay dropped",
            )


# ------------------------------------------------------------------------------------------------------ the result


def _result(before: QueryForm, now: QueryForm) -> Iterator[Difference]:
    whole = now.mode == "complete" and before.mode == "complete"
    verdict: Kind = "safe" if whole else "forward"
    why = (
        "each batch writes the whole result anew"
        if whole
        else "rows that are written from now on follow the new rule, and those that are there the former one"
    )
    if before.feed != now.feed:
        yield _changed(verdict, "the rows of the result", before.feed, now.feed, before, now, why=why)
    old, new = dict(before.columns), dict(now.columns)
    for name in [*old, *(each for each in new if each not in old)]:
        if name not in new:
            yield Difference(verdict=verdict, part=f"column '{name}'", before=old[name], now="none", why=why)
        elif name not in old:
            yield Difference(verdict=verdict, part=f"column '{name}'", before="none", now=new[name], why=why)
        elif old[name] != new[name]:
            yield _changed(verdict, f"column '{name}'", old[name], new[name], before, now, why=why)
    if old == new and list(old) != list(new):
        named = bool(now.sink.get("by_name", True))
        yield Difference(
            verdict="safe" if named else "forward",
            part="the order of the columns",
            before=", ".join(old),
            now=", ".join(new),
            why="the sink writes columns by their names" if named else "the sink writes columns by their place",
        )


def _changed(
    verdict: Kind, part: str, old: str, new: str, before: QueryForm, now: QueryForm, *, why: str
) -> Difference:
    """A difference of two texts; where a Python function differs, what of it does."""
    was, is_ = _unfolded(old, before), _unfolded(new, now)
    changed = _python_changes(was, is_, before, now)
    if changed:
        return Difference(verdict=verdict, part=f"{part}: {'; '.join(changed)}", before=was, now=is_, why=why)
    return Difference(verdict=verdict, part=part, before=was, now=is_, why=why)


def _python_changes(old: str, new: str, before: QueryForm, now: QueryForm) -> list[str]:
    """What differs between the Python functions that two texts name, taken in their order."""
    gone = [name for name in before.python if name in old and name not in new]
    come = [name for name in now.python if name in new and name not in old]
    if len(gone) != len(come):
        return []
    pairs = zip(sorted(gone, key=old.index), sorted(come, key=new.index), strict=True)
    return [said for was, is_ in pairs for said in python_differences(before.python[was], now.python[is_])]


def _unfolded(text: str, form: QueryForm) -> str:
    """`text` with the long expressions that it names, one level deep."""
    for name, whole in form.definitions.items():
        text = text.replace(name, whole)
    return text


def _listed(these: Sequence[str], others: Sequence[str], form: QueryForm) -> str:
    return ", ".join(_unfolded(each, form) if each not in others else each for each in these) or "none"


# ------------------------------------------------------------------------------------------------------ the engine


def _other_python(before: QueryForm, now: QueryForm) -> Iterator[Difference]:
    yield Difference(
        verdict="safe",
        part="the version of Python",
        before=before.python_version,
        now=now.python_version,
        why="each makes other bytecode of the same code: whether the Python functions have changed was not compared",
    )


def _mixing(before: QueryForm) -> Kind:
    """What follows where rows from now on differ from those before, all the way from the sources."""
    return "rebuild" if before.operators else "forward"


def _shown(told: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{key} {_text(value)}" for key, value in (told or {}).items())


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return str(value)
