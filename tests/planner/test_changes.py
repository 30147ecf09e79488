"""Each change of the catalogue gets its verdict, from the project's text alone."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
from headrace import model
from headrace.checkpoint.sources import SourceNames
from headrace.frames.plan_builder import build, registered_tables
from headrace.generations.manifest import QueryForm
from headrace.planner.comparison import compare_forms
from headrace.planner.difference import worst
from headrace.planner.forming import form_of
from headrace.starter.judge import reader

from . import catalogue
from .catalogue import Change
from .catalogue_python import PYTHON_BASES, PYTHON_CHANGES
from .catalogue_sql import SQL_BASES, SQL_CHANGES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    # By the source's name, its connector and the trigger: to make a stream takes as long as all the rest of a form.
    Streams = dict[tuple[str, str, model.Trigger], DataFrame]

pytestmark = pytest.mark.spark
# The start and the end of a place in a base, and the text that replaces it.
Place = tuple[int, int, str]
BASES = {**catalogue.BASES, **SQL_BASES, **PYTHON_BASES}
CHANGES = [*catalogue.CHANGES, *SQL_CHANGES, *PYTHON_CHANGES]


# Changes that are compared as others of their base: they differ by a function, a literal or a place alone.
FURTHER = {
    "counts": (
        *("sum becomes avg", "max becomes min under its name", "a window's start", "a filter removed"),
        *("a filter added", "AND becomes OR", "max and min swapped", "the aggregated column", "an aggregate removed"),
        *("a sliding window", "a long list of values", "an expression under an aggregate", "a constant column"),
        *("the source's name", "another group key", "no aggregation"),
    ),
    "rows": ("a filter removed", "a function", "a column removed", "LIMIT", "the format", "a union"),
    "joined": ("another key", "a column of the other side", "a filter above", "an expression above", "the time range"),
    "enriched": ("a row more", "another key"),
    "functions": (
        *("a default of a keyword", "a global", "a method", "an attribute", "a partial's argument"),
        *("another function", "the type that a function returns"),
    ),
    "expressions": (
        *("a branch's text", "coalesce in another order", "try_cast", "texts in another order", "a separator"),
        *("how it is rounded", "bround", "a field of a JSON", "the schema of a JSON", "a lambda's condition"),
        *("where a fold begins", "what is shuffled", "a hash's length", "ILIKE", "NOT IN", "a condition gone"),
        "a comparison's border",
    ),
    "aggregates": (
        *("a NULL is not a first", "a set in place of a list", "how exact a number is", "min_by", "no FILTER"),
        *("stddev_pop", "bool_or"),
    ),
    "csv": (
        *("a row more", "texts over several lines", "a pattern of times", "what counts as NULL"),
        *("a column in front", "a header", "directories below", "some files by a pattern", "values that are rounded"),
    ),
    "chain": ("a condition in between", "a filter behind an expression"),
    "outer": ("RIGHT", "a filter behind the join"),
    "frames": ("a loop's constant", "a side less", "max in place of sum"),
    "pandas": ("a pandas function's type", "rows one by one", "columns of frames swapped", "a type of frames"),
    "called_by_name": ("an attribute by its name", "what a table function takes", "a rule"),
    "processed": ("the name of a variable", "a variable gone", "the key"),
}


@pytest.mark.capability("REC-02", "REC-03", "REC-04", "REC-05", "REC-06", "REC-07")
@pytest.mark.parametrize(
    ("base", "further"),
    [(base, False) for base in BASES] + [pytest.param(base, True, marks=pytest.mark.long) for base in FURTHER],
    ids=[*BASES, *(f"{base}, further" for base in FURTHER)],
)
def test_every_change_gets_its_verdict(tmp_path: Path, spark: SparkSession, base: str, further: bool) -> None:
    for name in ("in", "clicks", "more"):
        (tmp_path / name).mkdir()
    (tmp_path / "prices.csv").write_text("1,2.5\n")
    (tmp_path / "more.csv").write_text("1,3.5\n")
    streams: Streams = {}
    before = _form(tmp_path, spark, BASES[base])
    changes = {change.what: change for change in CHANGES if change.base == base}
    assert changes.keys() >= set(FURTHER.get(base, ()))
    tried = [change for title, change in changes.items() if (title in FURTHER.get(base, ())) == further]
    wrong = {}

    def judge(change: Change, text: str) -> bool:
        differences = compare_forms(before, _form(tmp_path, spark, text, streams))
        if worst(differences) == change.verdict:
            return True
        lines = [f"{one.verdict}: {one.part}: {one.before} -> {one.now}" for one in differences]
        wrong[change.what] = (worst(differences), change.verdict, lines)
        return False

    # Changes that make no difference make none together; if they do, each is judged alone.
    for edits, text in _together([Change(base=base, what="nothing", old="", new="", verdict="same"), *tried]):
        if not judge(edits[0], text) and len(edits) > 1:
            wrong.pop(edits[0].what)
            alone = [judge(edit, _edit(edit)) for edit in edits]
            assert not all(alone), [edit.what for edit in edits]
    assert not wrong, "\n".join(f"{title}: {wrong_verdict}" for title, wrong_verdict in wrong.items())


# Settings of a session, and the verdict on the counts of an hour when one is another at the next start.
SETTINGS = {
    "spark.sql.session.timeZone": ("Asia/Tokyo", "rebuild"),
    "spark.sql.ansi.enabled": ("false", "rebuild"),
    "spark.sql.caseSensitive": ("true", "rebuild"),
    "spark.sql.mapKeyDedupPolicy": ("LAST_WIN", "rebuild"),
    "spark.sql.legacy.timeParserPolicy": ("LEGACY", "rebuild"),
    "spark.sql.files.ignoreMissingFiles": ("true", "rebuild"),
    "spark.sql.execution.pythonUDF.arrow.enabled": ("false", "rebuild"),
    "spark.sql.shuffle.partitions": ("7", "same"),
    "spark.sql.autoBroadcastJoinThreshold": ("-1", "same"),
    "spark.sql.adaptive.enabled": ("false", "same"),
}


def test_a_setting_counts_where_expressions_follow_it(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in").mkdir()
    before, verdicts = _form(tmp_path, spark, BASES["counts"]), {}
    for name, (value, verdict) in SETTINGS.items():
        former = spark.conf.get(name, None)
        spark.conf.set(name, value)
        try:
            verdicts[name] = (worst(compare_forms(before, _form(tmp_path, spark, BASES["counts"]))), verdict)
        finally:
            spark.conf.unset(name) if former is None else spark.conf.set(name, former)
    assert {name: pair for name, pair in verdicts.items() if pair[0] != pair[1]} == {}


REFRESHED = """name: p
sources:
  events: {files: {path: in, format: json, schema: id INT}}
tables:
  names: {select: "SELECT 1 AS id, 'one' AS name", refresh: 1 hour}
queries:
  q:
    select: SELECT events.id, name FROM events JOIN names ON events.id = names.id
    sink: {sqlite: {path: out.db, table: rows}}
"""


def test_what_computes_a_refreshed_table_counts_and_its_rows_do_not(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"id": 1}')
    verdicts = {}
    for edit in ("", "select 1 AS id,  'one' AS name /* first */", "SELECT 1 AS id, 'eins' AS name"):
        text = REFRESHED.replace("SELECT 1 AS id, 'one' AS name", edit) if edit else REFRESHED
        (tmp_path / "headrace.yml").write_text(text)
        if not edit:
            assert hr.run(hr.load(tmp_path), trigger=hr.available_now, spark=spark).exit_code == 0
        (judgement,) = hr.plan(hr.load(tmp_path), spark=spark)
        verdicts[edit] = judgement.verdict
    assert list(verdicts.values()) == ["same", "same", "forward"]
    (difference,) = judgement.differences[:1]
    assert str(difference.where).endswith("headrace.yml:5")


TEXT_FILE = """import headrace as hr

events = hr.source.files("in", format="json", schema="id LONG, price DOUBLE")

@hr.table
def names(spark):
    lines = spark.sparkContext.textFile("{root}/names.*")
    return lines.map(lambda line: (int(line[0]), line[2:])).toDF("id LONG, name STRING")

@hr.query(sink=hr.sink.sqlite("out.db", table="rows"))
def q(events, names):
    return events.join(names, "id")
"""


def test_the_lines_of_a_text_file_behind_a_table_count(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in").mkdir()
    forms = []
    for line in ("1,one", "1,one", "1,eins"):
        (tmp_path / "names.txt").write_text(line)
        forms.append(_form(tmp_path, spark, f"# file: pipeline.py\n{TEXT_FILE}"))
    assert [worst(compare_forms(forms[0], form)) for form in forms] == ["same", "same", "forward"]


OUTSIDE = """import headrace as hr
from pyspark.sql import functions as F
from outside_the_project import scaled

events = hr.source.files("in", format="json", schema="id LONG, price DOUBLE")

@hr.query(sink=hr.sink.sqlite("out.db", table="rows"))
def q(events):
    return events.select("id", F.udf(scaled, "double")("price").alias("price"))
"""


def test_a_helper_outside_the_project_that_is_not_installed_counts(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, forms = tmp_path / "p", []
    (root / "in").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    for text in ("value * 2", "value  *  2  # twice", "value * 3"):
        (tmp_path / "outside_the_project.py").write_text(f"def scaled(value):\n    return {text}\n")
        monkeypatch.delitem(sys.modules, "outside_the_project", raising=False)
        importlib.invalidate_caches()
        forms.append(_form(root, spark, f"# file: pipeline.py\n{OUTSIDE}"))
    assert [worst(compare_forms(forms[0], form)) for form in forms] == ["same", "same", "forward"]


def _together(changes: list[Change]) -> Iterator[tuple[list[Change], str]]:
    """Each change with the text after it; those to `same` that touch different places of the text in one edit."""
    groups: list[tuple[list[Change], list[Place]]] = []
    for change in changes:
        places = _places(change)
        if change.verdict != "same" or not _are_apart(places):
            yield [change], _edit(change)
            continue
        for edits, taken in groups:
            if _are_apart([*taken, *places]):
                edits.append(change)
                taken += places
                break
        else:
            groups.append(([change], places))
    for edits, places in groups:
        text = BASES[edits[0].base]
        for begin, end, new in sorted(places, reverse=True):
            text = text[:begin] + new + text[end:]
        yield edits, text


def _places(change: Change) -> list[Place]:
    """Where a change puts which text into its base."""
    pairs = zip(change.old.split("|"), change.new.split("|"), strict=True)
    text = BASES[change.base]
    return [
        (match.start(), match.end(), new) for old, new in pairs if old for match in re.finditer(re.escape(old), text)
    ]


def _are_apart(places: list[Place]) -> bool:
    return all(before[1] < after[0] for before, after in pairwise(sorted(places)))


def _edit(change: Change) -> str:
    text = BASES[change.base]
    for old, new in zip(change.old.split("|"), change.new.split("|"), strict=True):
        assert old in text, (change.what, old)
        text = text.replace(old, new)
    return text


def _form(root: Path, spark: SparkSession, text: str, made: Streams | None = None) -> QueryForm:
    """The form of the query of a project; `made`: the streams of its sources that are there already."""
    if text.startswith("# file: "):
        for part in text.split("# file: ")[1:]:
            name, _, content = part.partition("\n")
            (root / name).write_text(content.replace("{root}", str(root)), encoding="utf-8")
    else:
        (root / "headrace.yml").write_text(text.replace("{root}", str(root)), encoding="utf-8")
    project = hr.load(root)
    query = project.queries["q"]
    streams: dict[str, DataFrame] = {}
    former = {source.name: [*source.renamed_from, source.name][0] for source in project.sources_of(query)}
    names = SourceNames(former, tuple(former))
    read = reader(spark, query.trigger, streams, names)

    def stream(source: model.NamedSource) -> DataFrame:
        cache = {} if made is None else made
        key = (names.in_spark(source.name), repr(source.connector), query.trigger)
        if key not in cache:
            cache[key] = read(source)
        streams[source.name] = cache[key]
        return cache[key]

    with registered_tables(project, query, spark):
        frame = build(project, query.transform, spark, stream)
        form = form_of(project, query, frame, salt="salt", streams=streams, names=names)
    return QueryForm.of(replace(form).as_dict())
