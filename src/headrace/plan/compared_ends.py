"""The ends of two forms of a query compared: their sources, their sink, their mode and their settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.plan.difference import Difference, Kind, mixing, python_changes, shown, text_of
from headrace.plan.form import QueryForm


def ends(before: QueryForm, now: QueryForm) -> Iterator[Difference]:
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
            about=f"source {name}",
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
            yield Difference(verdict=mixing(before), part=part, before=shown(old), now="not read", why=why)
        elif old is None:
            why = "its rows are added to what was made without them"
            yield Difference(
                verdict=mixing(before), part=part, before="not read", now=shown(new), why=why, about=f"source {name}"
            )
        elif old.get("kind") != new.get("kind"):
            why = "Spark cannot read the offsets of another kind of source"
            yield Difference(
                verdict="forbidden", part=part, before=shown(old), now=shown(new), why=why, about=f"source {name}"
            )
        else:
            yield from _source(name, old, new, before)


def _source(name: str, old: Mapping[str, Any], new: Mapping[str, Any], before: QueryForm) -> Iterator[Difference]:
    for key in sorted({*old, *new}):
        was, is_ = old.get(key), new.get(key)
        if was == is_ or (key in ("columns", "judged columns") and not _reads_otherwise(key, was, is_)):
            continue
        verdict, why = mixing(before), "rows from now on are read otherwise than those before"
        if key == "place" and _takes_all(str(was)) == _takes_all(str(is_)):
            verdict, why = "safe", "both name the same files of one directory"
        elif key == "place" and directory(str(was)) == directory(str(is_)):
            why = "which files are read from now on follows another pattern than which were read before"
        elif key == "place":
            why = "the checkpoint's offsets are those of the former place: what is there now counts as new, all of it"
        yield Difference(
            verdict=verdict,
            about=f"source {name} {key}",
            part=f"source '{name}', {key}",
            before=text_of(was),
            now=text_of(is_),
            why=why,
        )


def _reads_otherwise(key: str, was: Any, is_: Any) -> bool:
    """Whether rows are read otherwise by other columns, some of which nobody may ask for.

    By their place they may get others behind them. Where each is judged, every one counts. What was not kept is not
    known: each column that is read stands in the plan.
    """
    if was is None or is_ is None:
        return False
    least = min(len(was), len(is_))
    return key == "judged columns" or bool(was[:least] != is_[:least])


def directory(path: str) -> str:
    """The directory that a path or a pattern begins with."""
    bare = re.split(r"[*?\[{]", path, maxsplit=1)[0]
    return path if bare == path else bare.rpartition("/")[0]


def _takes_all(path: str) -> str:
    """The directory all of whose files a path or a pattern takes, those of one ending too; else the pattern itself."""
    return re.sub(r"/\*(\.[A-Za-z]+)?$", "", path)


def _sink(before: QueryForm, now: QueryForm) -> Iterator[Difference]:
    old, new = before.sink, now.sink
    verdict: Kind
    for key in sorted({*old, *new}):
        functions: tuple[str, ...] = ()
        # A table may be moved to another server with its ledger, which is compared by itself.
        if old.get(key) == new.get(key) or key in ("by_name", "begins_anywhere", "systems"):
            continue
        if key == "key":
            verdict, part = "rebuild", "the key of the sink"
            why = "rows that are there stay under the former key, and no batch replaces them any more"
        elif key == "function":
            # Allowed by the guide: what it means depends on the code, which alone knows what it has written.
            said, functions = python_changes(str(old.get(key)), str(new.get(key)), before, now)
            changed = "; ".join(said)
            verdict, part = "safe", f"the function of the sink{': ' * bool(changed)}{changed}"
            why = "rows from now on are written by the new code"
        elif key not in ("kind", "place") and old.get("kind") == new.get("kind"):
            begun = now.sink.get("begins_anywhere")
            verdict, part = "forward" if begun else "rebuild", f"the sink, {key}"
            why = "what was written before is laid out otherwise, and readers find both"
        elif now.sink.get("begins_anywhere"):
            verdict, part = "forward", f"the sink, {key}"
            why = "it gets only the rows that come from now on; those before are in the former place"
        else:
            verdict, part = "forbidden", f"the sink, {key}"
            why = "it lacks all that was written before, and gets only what comes from now on"
        yield Difference(
            verdict=verdict,
            about=f"sink {key}",
            part=part,
            before=text_of(old.get(key)),
            now=text_of(new.get(key)),
            why=why,
            functions=functions,
        )


def _mode(before: QueryForm, now: QueryForm) -> Iterator[Difference]:
    if before.mode == now.mode:
        return
    if not before.operators and not now.operators:
        why = "a query without a state gives the same rows in both"
        yield Difference(
            verdict="safe", part="the output mode", before=before.mode, now=now.mode, why=why, about="mode"
        )
        return
    why = "the rows that are there were given by another rule: what is left out of each mode is missing, or stays"
    yield Difference(verdict="rebuild", part="the output mode", before=before.mode, now=now.mode, why=why, about="mode")


def _settings(before: QueryForm, now: QueryForm) -> Iterator[Difference]:
    for name in sorted({*before.settings, *now.settings}):
        old, new = before.settings.get(name), now.settings.get(name)
        if old != new and old is not None and new is not None:
            why = "the same expressions mean something else from now on"
            yield Difference(
                verdict=mixing(before),
                about=f"setting {name}",
                part=f"the setting {name}",
                before=old,
                now=new,
                why=why,
            )
