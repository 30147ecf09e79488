"""What is to run, judged against what ran: the verdict, and the findings by which a start is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.checkpoint.directory import Part
from headrace.checkpoint.sources import SourceNames
from headrace.checks.user_functions import find_calls, is_users
from headrace.errors import NOWHERE, CheckpointError, Finding, PlainData
from headrace.generations.blame import recompute_command, reset_command
from headrace.generations.log import newest_of
from headrace.generations.manifest import FORMAT, QueryForm, QueryRevision, changed_line, forms
from headrace.generations.register import layout_of_entry, read_register
from headrace.model import Project, PythonTransform, Query
from headrace.planner.code.meaning import name_of, reasons_not_compared
from headrace.planner.comparison import compare_forms
from headrace.planner.difference import Kind, PlanDifference, locate, worst

SHOWN = 160


@dataclass(frozen=True, kw_only=True)
class Judgement(PlainData):
    """The result of comparing a query as written with the query that ran.

    Attributes:
        verdict: `same`, `safe`, `forward`, `rebuild` or `forbidden`.
        from_batch: The first batch that the query as written would make.
        differences: All that has changed.
        notes: What could not be compared.
        checkpoint: The id of the query's checkpoint; empty if there is none.
        ran: The digest of the form that ran last; empty if none ran.
        written: The digest of the form as written; empty if there is none.
    """

    query: str
    verdict: Kind
    from_batch: int
    differences: tuple[PlanDifference, ...] = ()
    notes: tuple[Finding, ...] = ()
    checkpoint: str = ""
    ran: str = ""
    written: str = ""


def judge(
    project: Project,
    query: Query,
    revisions: Sequence[QueryRevision],
    now: QueryRevision,
    *,
    begun: bool,
    names: SourceNames | None = None,
    checkpoint: Path | None = None,
    versions: Path | None = None,
) -> Judgement:
    """Compare the form that is to run with the last one that ran; a query without a batch is `same`.

    begun: whether a batch was committed. names: of its sources; None: none was renamed. checkpoint: its directory,
    which shows the options that had no effect. versions: where the code that ran was noted.
    """
    if not revisions or not begun:
        return Judgement(query=query.name, verdict="same", from_batch=now.from_batch)
    before = revisions[-1]
    assert now.form is not None, "what is to run has a form"
    try:
        was, is_ = QueryForm.of(before.form or {}), QueryForm.of(now.form)
        if unreadable := is_.unreadable or was.unreadable:
            return _judge_by_fingerprint(query, before, now, unreadable)
        names = names or SourceNames({}, ())
        was, is_ = _by_names_now(was, names), _by_names_now(is_, names)
        changes = [
            difference
            for difference in compare_forms(was, is_)
            if not _has_no_effect(project, difference, names, checkpoint)
        ]
        if was.declared and was.declared == is_.declared and _takes_values(project, query):
            changes = list(map(_accept_new_values, changes))
        differences = locate(project, query, was, is_, changes)
        if versions is not None and any(not difference.about for difference in differences):
            differences = tuple(_add_code(differences, changed_line(project, query, versions)))
    except (TypeError, KeyError, ValueError) as error:
        return Judgement(
            query=query.name,
            verdict="forbidden",
            from_batch=now.from_batch,
            notes=(_unreadable_record(query, before, error),),
        )
    return Judgement(
        query=query.name,
        verdict=worst(differences),
        from_batch=now.from_batch,
        differences=differences,
        notes=tuple(_report_not_compared(query, was, is_)),
    )


def _by_names_now(form: QueryForm, names: SourceNames) -> QueryForm:
    return replace(form, sources={names.now(source): facts for source, facts in form.sources.items()})


def _has_no_effect(project: Project, difference: PlanDifference, names: SourceNames, checkpoint: Path | None) -> bool:
    """Whether a changed option of a source had no effect on what was read, and has none now."""
    kind, _, rest = difference.about.partition(" ")
    name, _, option = rest.partition(" ")
    if checkpoint is None or kind != "source" or not option or name not in project.sources:
        return False
    connector, log = project.sources[name].connector, checkpoint / Part.SOURCES / names.in_spark(name)
    return all(connector.has_no_effect(option, value, log) for value in (difference.before, difference.now))


def _takes_values(project: Project, query: Query) -> bool:
    """Whether the Python code of a query calls a clock or chance, which may put a value into its plan."""
    upstream = (getattr(thing, "transform", None) for thing in project.upstream(query.transform))
    functions = (
        transform.function for transform in (query.transform, *upstream) if isinstance(transform, PythonTransform)
    )
    return any(find_calls(function, is_users) for function in functions)


# A text or a number, also one with its type, as the normal form writes values.
_VALUE = re.compile(r"'[^']*'|(?<![\w.])-?\d[\d.]*(?![\w.])")


def _accept_new_values(difference: PlanDifference) -> PlanDifference:
    """Return the difference, as `safe` if only values differ: unchanged code has taken them again at this start."""
    same = _VALUE.sub("?", difference.before) == _VALUE.sub("?", difference.now)
    if difference.about or difference.functions or difference.verdict == "forbidden" or not same:
        return difference
    why = "the code is the same, and takes this value from a clock or by chance each time the query starts"
    return replace(difference, verdict="safe", why=why)


def list_refusals(query: Query, judgement: Judgement) -> Iterator[Finding]:
    """Report why the query must not start over its checkpoint."""
    yield from (note for note in judgement.notes if note.severity == "error")
    past = f"batches up to {judgement.from_batch - 1} of query '{query.name}' were made by another form of it"
    if judgement.verdict in ("same", "safe") or (judgement.verdict == "forward" and query.on_change == "forward"):
        return
    # While there is a more serious difference, what follows from the others does not matter.
    for difference in (one for one in judgement.differences if one.verdict == judgement.verdict):
        code, fix = _WAYS_OUT[difference.verdict]
        yield Finding(
            code=code,
            what=f"{past}: {difference.describe(SHOWN)}; {difference.why}",
            fix=difference.fix or fix.format(query=query.name, recompute_command=recompute_command(query)),
            where=difference.where if difference.where != NOWHERE else query.where,
        )


def list_remarks(query: Query, judgement: Judgement) -> Iterator[Finding]:
    """Report what has changed in a query that starts all the same."""
    yield from (note for note in judgement.notes if note.severity != "error")
    for difference in judgement.differences:
        if difference.verdict in ("safe", "forward"):
            yield Finding(
                code="HR538",
                what=f"query '{query.name}' has changed from batch {judgement.from_batch} on: "
                f"{difference.describe(SHOWN)}; {difference.why}",
                where=difference.where if difference.where != NOWHERE else query.where,
            )


_WAYS_OUT = {
    "forward": (
        "HR537",
        "accept it for the rows from now on: headrace run {query} --accept-forward, or `on_change: forward` at the "
        "query; else undo the change, or {recompute_command}",
    ),
    "rebuild": ("HR535", "undo the change, or {recompute_command}"),
    "forbidden": ("HR536", "undo the change, or {recompute_command}"),
}


def _add_code(differences: Sequence[PlanDifference], code: tuple[str, str]) -> Iterator[PlanDifference]:
    """Yield the differences, the first that stands in the code with the lines that differ."""
    for difference in differences:
        yield difference if difference.about else replace(difference, code=code)
        code = code if difference.about else ("", "")


def _unreadable_record(query: Query, before: QueryRevision, error: Exception) -> Finding:
    form = before.form or {}
    problem = f"what query '{query.name}' was cannot be compared with what it is: {error}"
    fix = f"restore the query's manifest from a backup, or {recompute_command(query)}"
    if isinstance(form.get("format"), int) and form["format"] > FORMAT:
        problem = f"query '{query.name}' was last run by Headrace {before.headrace}, whose record this one cannot read"
        fix = f"run it with Headrace {before.headrace}"
    return Finding(code="HR539", what=problem, fix=fix, where=query.where)


def _report_not_compared(query: Query, was: QueryForm, is_: QueryForm) -> Iterator[Finding]:
    """Report the Python functions that look unchanged, and of which a part cannot be inspected."""
    for key, function in is_.python.items():
        if key in was.python and (why := reasons_not_compared(function)):
            yield Finding(
                code="HR664",
                what=f"whether {name_of(function)} of query '{query.name}' does what it did cannot be determined: "
                f"{'; '.join(why)}",
                fix="let it read constants, arguments and environment variables by names that stand in the code; "
                f"`headrace verify {query.name}` shows whether the result is that of the code as it is now",
                where=query.where,
            )


def _verify_hint(query: Query) -> str:
    return f"`headrace verify {query.name}` shows whether the result is that of the query as it is now"


def _judge_by_fingerprint(query: Query, before: QueryRevision, now: QueryRevision, why: str) -> Judgement:
    """Judge a query whose plan could not be read by digests of the plan and of the columns alone."""
    finding = query.finding(
        "HR545",
        f"is not what it was up to batch {now.from_batch - 1}: the result may mix "
        f"meanings; how it has changed is not known, since its plan could not be read ({why})",
        f"if it means something else now, reset the query ({reset_command(query)}); {_verify_hint(query)}",
    )
    notes = () if before.fingerprint == now.fingerprint else (finding,)
    return Judgement(query=query.name, verdict="same", from_batch=now.from_batch, notes=notes)


def check_renamed(project: Project, query: Query, form: QueryForm) -> Iterator[Finding]:
    """Report a query without a checkpoint whose rows were written under another name.

    From the beginning it would write all of them once more, into the same place.
    """
    register = read_register(project.storage)
    for former, entry in sorted(register.queries.items()) if register is not None else ():
        if former in project.queries or former in query.renamed_from:
            continue
        try:
            layout = newest_of(layout_of_entry(project.storage, former, entry))
            revisions = forms(layout.manifest)
            ran = QueryForm.of(revisions[-1].form or {}) if revisions else QueryForm()
        except (CheckpointError, TypeError, KeyError, ValueError):
            continue  # It is not declared any more, so its remains are ignored.
        if "place" in ran.sink and ran.sink == form.sink:
            same = "means the same" if ran.digest == form.digest else "writes to the same place"
            yield query.finding(
                "HR547",
                f"has never run, and looks like '{former}' renamed, which is no longer "
                f"declared and {same}: it would read its sources from the beginning and write its rows once more",
                f"give it `renamed_from: {former}`, which keeps its checkpoint; or write to another place; or, if "
                f"the rows of '{former}' are gone, remove {layout.folder}",
            )
