"""Two forms of a query compared: what differs, why it matters, and what may be done.

Source: guide, "Recovery Semantics after Changes in a Streaming Query", and how Spark keeps state (see `normal`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headrace.plan.compared_ends import ends, renamed_sources
from headrace.plan.difference import Difference, Kind, python_changes
from headrace.plan.form import Operator, QueryForm

_REORDERED = "in another order"


def compare(before: QueryForm, now: QueryForm) -> tuple[Difference, ...]:
    """All that differs between what ran and what is to run; none if both mean the same."""
    found = tuple(ends(before, now))
    if renamed_sources(before, now):
        return found  # The expressions name the sources.
    if before.python_version != now.python_version and before.python and before.shape == now.shape:
        return (*_other_python(before, now), *found)
    if before.spark != now.spark and before.declared and before.declared == now.declared:
        # Another Spark writes the plan of the same code otherwise; what it keeps in another order it takes for another.
        return (*found, *(each for each in _operators(before, now) if _REORDERED in each.why))
    return (*found, *_operators(before, now), *_watermarks(before, now), *_result(before, now))


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
        told, others = _listed(old, new, before), _listed(new, old, now)
        yield Difference(
            verdict="rebuild" if fits else "forbidden",
            part=f"{name} of {part}",
            before=told,
            now=others,
            why=why,
            functions=python_changes(told, others, before, now)[1],
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
            about=f"watermark {_source_of({*before.watermarks} ^ {*now.watermarks})}",
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
                about=f"watermark {_source_of([column])}",
                part=f"the watermark's delay of {column}",
                before=f"{old} ms",
                now=f"{now.watermarks[column]} ms",
                why="rows from now on are late by the new delay; those that were dropped before stay dropped",
            )


def _source_of(columns: Iterable[str]) -> str:
    """The source that the first of some columns is of."""
    return min(columns, default="").partition(".")[0]


# ------------------------------------------------------------------------------------------------------ the result


def _result(before: QueryForm, now: QueryForm) -> Iterator[Difference]:
    whole = now.mode == "complete" and before.mode == "complete"
    verdict: Kind = "safe" if whole else "forward"
    why = (
        "each batch rewrites the whole result"
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
    changed, functions = python_changes(was, is_, before, now)
    told = f"{part}: {'; '.join(changed)}" if changed else part
    return Difference(verdict=verdict, part=told, before=was, now=is_, why=why, functions=functions)


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
