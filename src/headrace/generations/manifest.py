"""What was running, from which batch on: one line for each form that a generation of a query has had."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from difflib import SequenceMatcher
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headrace.errors import CheckpointError, Where, reason
from headrace.generations.log import QueryLayout
from headrace.model import Project, Query
from headrace.redaction import SECRET_NAME
from headrace.storage import json_lines
from headrace.storage.durable import replace_file
from headrace.storage.private import writing_to

# One more with each change of how a plan is written down: forms of two formats differ without a change of the query.
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class QueryRevision:
    """One form of a query: its fingerprint, the first batch that it made, when that began, and with which versions.

    async_progress: whether it wrote its progress apart from its batches; None: written by Headrace 0.1.0, which kept no
    record of it.
    shape: changes with the mode and the result's columns, and not with Spark; None: written by Headrace 0.1.0.
    form: what the query was, as `QueryForm` writes it; None: written before Headrace kept it.
    continues: it means what the form before it meant, whose table had another name.
    """

    fingerprint: str
    from_batch: int
    at: str
    headrace: str
    spark: str
    async_progress: bool | None = None
    shape: str | None = None
    form: Mapping[str, Any] | None = None
    continues: bool = False

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that change with what the query was, and not with its batches."""
        parts = [self.shape, self.form or self.fingerprint]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def parsed_form(self) -> QueryForm | None:
        """The form as a value. Raises TypeError, KeyError or ValueError for what this version does not know."""
        return None if self.form is None else QueryForm.of(self.form)

    def is_entered_by(self, other: QueryRevision) -> bool:
        """Whether `other` says all of this form but when it began, and by which spelling of its plan."""
        kept = ("from_batch", "at", "headrace", "fingerprint", "continues")
        same = replace(other, **{name: getattr(self, name) for name in kept})
        return json.dumps(asdict(same), sort_keys=True) == json.dumps(asdict(self), sort_keys=True)


def forms(path: Path) -> list[QueryRevision]:
    """The forms so far, oldest first; a line that a crash cut off is left out.

    Raises CheckpointError for a file that no crash leaves behind.
    """
    try:
        return list(_parse(json_lines.read(path)))
    except (OSError, json_lines.DamagedLine) as error:
        raise CheckpointError(
            code="HR584",
            where=Where(file=str(path)),
            what=f"the record of what the query was cannot be read: {reason(error)}",
            fix="restore it from a backup; or move it away, if the query is what it was: a new one is begun",
        ) from error


def revision(query: Query, form: QueryForm, fingerprint: str, *, columns: str, next_batch: int) -> QueryRevision:
    """The line of a query that begins to run in this form.

    columns: the result's names and types, which every version of Spark writes alike.
    """
    return QueryRevision(
        fingerprint=fingerprint,
        from_batch=next_batch,
        at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        headrace=version("headrace"),
        spark=form.spark,
        async_progress=query.sink.facts.async_progress,
        shape=hashlib.sha256(f"{query.mode}\n{columns}".encode()).hexdigest()[:16],
        form=form.as_dict(),
    )


def enter(layout: QueryLayout, now: QueryRevision) -> None:
    """Enter the form that runs, if it is not the last one."""
    revisions = forms(layout.manifest)
    if revisions and now.is_entered_by(revisions[-1]):
        return
    with writing_to(layout.home):
        # An older Headrace, which knows of no `continues`, passes over a line that has it.
        line = {name: value for name, value in asdict(now).items() if name != "continues" or value}
        json_lines.append(layout.manifest, [line])


def enter_run(project: Project, query: Query, layout: QueryLayout, now: QueryRevision) -> None:
    """Enter the form that runs, and note its code, settings and plan for people."""
    enter(layout, now)
    note_version(project, query, layout, now)


def note_version(project: Project, query: Query, layout: QueryLayout, now: QueryRevision) -> None:
    """Note the code, the settings and the plan that run, for people, if they are not those that were noted last.

    The dashboard shows them; nothing is compared with them, and without them nothing is lacking.
    """
    form = now.form or {}
    versions = {
        "code": project.code(query),
        "settings": {
            **{name: str(value) for name, value in form.get("settings", {}).items()},
            **{name: value for name, value in project.target.spark.items() if not SECRET_NAME.search(name)},
            **{"mode": query.mode, "trigger": str(query.trigger), "spark": now.spark, "headrace": now.headrace},
        },
        "plan": "\n".join(_plan_lines(form)),
    }
    versions = json.loads(project.redacted(json.dumps(versions, ensure_ascii=False)))
    with suppress(OSError, json_lines.DamagedLine):
        lines = json_lines.read(layout.versions, skip="any") if layout.versions.exists() else []
        if not lines or any(lines[-1].get(name) != value for name, value in versions.items()):
            json_lines.append(layout.versions, [{"at": now.at, "from_batch": now.from_batch, **versions}])


def changed_line(project: Project, query: Query, versions: Path) -> tuple[str, str]:
    """The first line of the query's code that is not as it was noted last, as it was and as it is.

    Empty texts stand for a line that is not there, and for code that was not noted.
    """
    with suppress(OSError, json_lines.DamagedLine, AttributeError, IndexError, KeyError):
        noted = json_lines.read(versions, skip="any")[-1]["code"]
        for name, text in project.code(query).items():
            old, new = (_code_lines(version) for version in (noted[name], project.redacted(text)))
            for kind, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
                if kind != "equal":
                    return next(iter(old[i:j]), ""), next(iter(new[k:m]), "")
    return "", ""


def _code_lines(text: str) -> list[str]:
    lines = map(str.strip, text.splitlines())
    return [line for line in lines if line and not line.startswith(("#", "--"))]


def _plan_lines(form: Mapping[str, Any]) -> Iterator[str]:
    for operator in form.get("operators", ()):
        yield f"{operator['kind']} by {', '.join(operator['keys']) or 'nothing'}: {', '.join(operator['values'])}"
    if form.get("feed"):
        yield f"from {form['feed']}"
    for name, expression in form.get("columns", ()):
        yield f"{name} = {expression}"


def move_sink(layout: QueryLayout, place: Mapping[str, Any]) -> None:
    """Let every form have its sink at another `place`, to which the result was moved."""
    revisions = forms(layout.manifest)
    moved = [
        revision
        if revision.form is None
        else replace(revision, form={**revision.form, "sink": {**revision.form["sink"], **place}})
        for revision in revisions
    ]
    if moved != revisions:
        with writing_to(layout.home):
            replace_file(layout.manifest, json_lines.text_of(map(asdict, moved)))


def _parse(lines: list[Any]) -> Iterator[QueryRevision]:
    for line in lines:
        with suppress(TypeError):
            yield QueryRevision(**line)


@dataclass(frozen=True, kw_only=True)
class OperatorForm:
    """A stateful operator: its kind, the expressions of its keys and values in Spark's order, and what feeds it.

    further: what else decides what the state means, by its name. feeds: where the rows come from, for each side.
    """

    kind: str
    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    further: Mapping[str, str] = field(default_factory=dict)
    feeds: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class QueryForm:
    """One form of a query.

    operators: the layout of its state. feed: where the rows of the result come from; columns: the expression of each
    column of the result. watermarks: milliseconds, by column.
    definitions: long expressions, which stand elsewhere by a digest. python: what each Python function means, by the
    digest that stands for it. tables: the rows of bounded inputs, by the table's name or the kind of the input.
    changes: how its rows change the table of its sink; empty where they are rows of the result.
    sources, sink: what identifies each. settings: those of Spark that change what an expression means.
    declared: a digest of the code as it is written, without layout and comments. pieces: the same of the query (its
    name is empty), and of each view and table that feeds it.
    python_version: which ran them. packages: the versions of the installed packages that they use.
    unreadable: why the plan could not be read, if so.
    """

    operators: tuple[OperatorForm, ...] = ()
    feed: str = ""
    columns: tuple[tuple[str, str], ...] = ()
    watermarks: Mapping[str, int] = field(default_factory=dict)
    definitions: Mapping[str, str] = field(default_factory=dict)
    python: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sink: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    mode: str = "append"
    settings: Mapping[str, str] = field(default_factory=dict)
    declared: str = ""
    pieces: Mapping[str, str] = field(default_factory=dict)
    spark: str = ""
    python_version: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    unreadable: str = ""
    format: int = FORMAT

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that change with the layout, the meaning and the mode, and not with versions."""
        parts = [
            [asdict(operator) for operator in self.operators],
            self.feed,
            sorted(self.columns),
            self.watermarks,
            self.mode,
            self.settings,
            *([self.changes] if self.changes else []),
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def as_dict(self) -> dict[str, Any]:
        """The form as plain data, for the manifest."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> QueryForm:
        """The form that `as_dict` gave; raises TypeError, KeyError or ValueError for anything else."""
        if not data:
            raise ValueError("no form of it was kept")
        if int(data["format"]) > FORMAT:
            raise ValueError(f"its format is {data['format']}, and this version of Headrace knows {FORMAT}")
        parts = dict(data)
        parts["operators"] = tuple(
            OperatorForm(
                kind=str(operator["kind"]),
                keys=tuple(operator["keys"]),
                values=tuple(operator["values"]),
                further=dict(operator["further"]),
                feeds=tuple(operator["feeds"]),
            )
            for operator in data["operators"]
        )
        parts["columns"] = tuple((str(name), str(text)) for name, text in data["columns"])
        return cls(**parts)
