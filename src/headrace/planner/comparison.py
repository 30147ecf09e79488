"""Two forms of a query compared: what differs, why it matters, and what may be done.

Source: guide, "Recovery Semantics after Changes in a Streaming Query", and how Spark keeps state (see `normal`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from headrace.generations.manifest import OperatorForm, QueryForm
from headrace.planner.change_data import compare_changes
from headrace.planner.difference import Kind, PlanDifference, compare_functions
from headrace.planner.ends import compare_ends, find_renamed_sources

_REORDERED = "in another order"
# A column with its type, a text or a number; and a comparison of two of them.
_OPERAND = r"(?:[A-Za-z_][\w.]* [a-z]+(?:\(\d+,\d+\))?|'[^']*'|-?[\d.]+(?: [a-z]+)?)"
_COMPARED = re.compile(rf"\((?P<one>{_OPERAND}) (?P<sign><=?) (?P<other>{_OPERAND})\)")
_EQUAL = re.compile(rf"=\((?P<one>{_OPERAND}), (?P<other>{_OPERAND})\)")
# A text as it is; a column or a number without its type, and a column without its source.
_UNTYPED = re.compile(r"('[^']*')|(?:\b[A-Za-z_]\w*\.(?=[A-Za-z_]))?\b([\w.]+) [a-z]+(?:\(\d+,\d+\))?(?= [<>=]|$|[,)])")
_OPERATOR = re.compile(r"\boperator (\d+)\b")


def compare_forms(before: QueryForm, now: QueryForm) -> tuple[PlanDifference, ...]:
    """Return all that differs between what ran and what is to run; nothing if both mean the same."""
    differences = (*compare_ends(before, now), *compare_changes(before, now), *_compare_packages(before, now))
    if find_renamed_sources(before, now):
        return differences  # The expressions name the sources.
    if before.spark != now.spark and before.declared and before.declared == now.declared:
        # Another Spark plans the same code otherwise; only state in another order would be misread.
        return (
            *differences,
            *(difference for difference in _compare_operators(before, now) if _REORDERED in difference.why),
        )
    return (
        *differences,
        *_compare_operators(before, now),
        *_compare_watermarks(before, now),
        *_compare_results(before, now),
    )


# ------------------------------------------------------------------------------------------------------- the state


def _compare_operators(before: QueryForm, now: QueryForm) -> Iterator[PlanDifference]:
    old, new = [operator.kind for operator in before.operators], [operator.kind for operator in now.operators]
    if old != new:
        why = (
            "the state that is there belongs to other operations"
            if new and old
            else "the checkpoint has no state for it"
            if new
            else "what the state holds and was not written yet is lost"
        )
        yield PlanDifference(
            verdict="forbidden" if new else "rebuild",
            part="what keeps state",
            before=", ".join(old) or "nothing",
            now=", ".join(new) or "nothing",
            why=why,
        )
        return
    for number, (was, is_) in enumerate(zip(before.operators, now.operators, strict=True)):
        named = was.kind if len(old) == 1 else f"{was.kind} {number}"
        yield from _compare_operator(f"the {named}", was, is_, before, now)


def _compare_operator(
    part: str, was: OperatorForm, is_: OperatorForm, before: QueryForm, now: QueryForm
) -> Iterator[PlanDifference]:
    for name, old, new in (("keys", was.keys, is_.keys), ("values", was.values, is_.values)):
        if old == new:
            continue
        fits = len(old) == len(new)
        order = f"{_REORDERED}: " if sorted(old) == sorted(new) else ""
        why = (
            f"{order}Spark would read the old state as if the new query had written it, unless types differ"
            if fits
            else "Spark cannot read the state that is there"
        )
        former_texts, others = _join_texts(old, new, before), _join_texts(new, old, now)
        yield PlanDifference(
            verdict="rebuild" if fits else "forbidden",
            part=f"{name} of {part}",
            before=former_texts,
            now=others,
            why=why,
            functions=compare_functions(former_texts, others, before, now)[1],
        )
    for name in sorted({*was.further, *is_.further}):
        former, present = was.further.get(name, ""), is_.further.get(name, "")
        if former != present:
            why = "the state holds what the former one has made, and is continued by another"
            yield _difference_of("rebuild", f"{name} of {part}", former, present, before, now, why=why)
    for side, (old_feed, new_feed) in enumerate(zip(was.feeds, is_.feeds, strict=False)):
        if old_feed != new_feed:
            which = f", side {side + 1}" if len(was.feeds) > 1 else ""
            why = "the state holds other rows than it would hold"
            yield _difference_of("rebuild", f"what feeds {part}{which}", old_feed, new_feed, before, now, why=why)


def _compare_watermarks(before: QueryForm, now: QueryForm) -> Iterator[PlanDifference]:
    if not before.operators or before.watermarks == now.watermarks:
        return
    if set(before.watermarks) != set(now.watermarks):
        yield PlanDifference(
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
            yield PlanDifference(
                verdict="forward",
                about=f"watermark {_source_of([column])}",
                part=f"the watermark's delay of {column}",
                before=f"{old} ms",
                now=f"{now.watermarks[column]} ms",
                why="rows from now on are late by the new delay; those that were dropped before stay dropped",
            )


def _source_of(columns: Iterable[str]) -> str:
    """Return the source that the first of some columns is of."""
    return min(columns, default="").partition(".")[0]


# ------------------------------------------------------------------------------------------------------ the result


def _compare_results(before: QueryForm, now: QueryForm) -> Iterator[PlanDifference]:
    whole = now.mode == "complete" and before.mode == "complete"
    verdict: Kind = "safe" if whole else "forward"
    why = (
        "each batch rewrites the whole result"
        if whole
        else "rows that are written from now on follow the new rule, and those that are there the former one"
    )
    if before.feed != now.feed:
        yield _difference_of(verdict, "the rows of the result", before.feed, now.feed, before, now, why=why)
    old, new = dict(before.columns), dict(now.columns)
    for name in [*old, *(column for column in new if column not in old)]:
        was, is_ = old.get(name, "none"), new.get(name, "none")
        if name not in new or name not in old:
            yield PlanDifference(verdict=verdict, part=f"column '{name}'", before=was, now=is_, why=why)
        elif was != is_:
            yield _difference_of(verdict, f"column '{name}'", was, is_, before, now, why=why)
    if old == new and list(old) != list(new):
        named = bool(now.sink.get("by_name", True))
        yield PlanDifference(
            verdict="safe" if named else "forward",
            part="the order of the columns",
            before=", ".join(old),
            now=", ".join(new),
            why="the sink writes columns by their names" if named else "the sink writes columns by their place",
        )


def _difference_of(
    verdict: Kind, part: str, old: str, new: str, before: QueryForm, now: QueryForm, *, why: str
) -> PlanDifference:
    """Return the difference of two texts; if a Python function differs, what differs in it."""
    was, is_ = _unfold(old, before), _unfold(new, now)
    changed, functions = compare_functions(was, is_, before, now)
    label = f"{part}: {'; '.join(changed)}" if changed else part
    was, is_ = _make_readable(was, before), _make_readable(is_, now)
    clause = "" if changed else _describe_filters(part, was, is_)
    return PlanDifference(verdict=verdict, part=label, before=was, now=is_, why=why, functions=functions, clause=clause)


def _make_readable(text: str, form: QueryForm) -> str:
    """Return `text` with comparisons as people write them, and operators by their kind."""
    kinds = dict(enumerate(operator.kind for operator in form.operators))
    text = _OPERATOR.sub(lambda match: f"the {kinds.get(int(match[1]), match[0])}", text)
    return _COMPARED.sub(_write_comparison, _EQUAL.sub(r"\g<one> = \g<other>", text))


def _write_comparison(match: re.Match[str]) -> str:
    one, sign, other = match["one"], match["sign"], match["other"]
    if not one[0].isalpha() and other[0].isalpha():  # `5 < a`: the normal form has one direction.
        one, sign, other = other, sign.replace("<", ">"), one
    return f"{one} {sign} {other}"


def _describe_filters(part: str, old: str, new: str) -> str:
    """Return which filters were added or removed; empty if anything else has changed."""
    (source, _, was), (other, _, is_) = old.partition(" WHERE "), new.partition(" WHERE ")
    before, now = ([condition for condition in text.split(" AND ") if condition] for text in (was, is_))
    gone, come = (
        ", ".join(condition for condition in these if condition not in those)
        for these, those in ((before, now), (now, before))
    )
    if (
        source != other
        or not (gone or come)
        or any(condition.count("(") != condition.count(")") for condition in (*before, *now))
    ):
        return ""
    gone, come = (_UNTYPED.sub(lambda match: match[1] or match[2], condition) for condition in (gone, come))
    if gone and come:
        return f"in {part}, the filter {gone} was replaced by {come}"
    return f"in {part}, the filter {come or gone} was {'added' if come else 'removed'}"


def _unfold(text: str, form: QueryForm) -> str:
    """Return `text` with the long expressions that it names, one level deep."""
    for name, whole in form.definitions.items():
        text = text.replace(name, whole)
    return text


def _join_texts(these: Sequence[str], others: Sequence[str], form: QueryForm) -> str:
    return ", ".join(_unfold(text, form) if text not in others else text for text in these) or "none"


# ---------------------------------------------------------------------------------------------------- the packages


def _compare_packages(before: QueryForm, now: QueryForm) -> Iterator[PlanDifference]:
    """Compare the installed packages that the Python functions use by their versions alone."""
    for name in sorted({*before.packages} & {*now.packages}):
        if before.packages[name] != now.packages[name]:
            yield PlanDifference(
                verdict="safe",
                part=f"the package {name}",
                before=before.packages[name],
                now=now.packages[name],
                why="whether what the Python functions use of it does what it did was not compared",
            )
