"""What `headrace plan` says of a difference has the file and the line in which the differing part stands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import headrace as hr
from headrace.generations.manifest import OperatorForm, QueryForm, QueryRevision, note_version
from headrace.planner.comparison import compare_forms
from headrace.planner.difference import locate, place_of_code
from headrace.planner.verdict import Judgement, judge, list_refusals
from tests.registered import layout_in

pytestmark = pytest.mark.plain

YAML = """name: shop
sources:
  events:
    files:
      path: in
      format: json
      schema: id LONG, time TIMESTAMP
    watermark: {column: time, delay: 1 minute}
tables:
  prices: {select: SELECT 1 AS id}
views:
  dear:
    select: SELECT * FROM events
queries:
  q:
    select: SELECT dear.id FROM dear JOIN prices ON dear.id = prices.id
    mode: append
    sink:
      sqlite:
        path: out.db
        table: rows
        key: [id]
"""
CODE = """import headrace as hr

class Weight:
    def __call__(self, value):
        return value

def make(offset):
    def shifted(value):
        return value + offset
    return shifted
"""
STATE = QueryForm(
    operators=(OperatorForm(kind="aggregation", feeds=("events WHERE a",)),),
    columns=(("id", "events.id bigint"),),
    feed="dear join table of 1 rows a",
    watermarks={"events.time timestamp": 60_000},
    sources={"events": {"kind": "files", "place": "in", "format": "json", "inexact": "round"}},
    sink={"kind": "sqlite", "place": "rows", "key": ["id"], "function": "python a"},
    settings={"spark.sql.ansi.enabled": "true"},
    pieces={"": "q1", "dear": "d1", "prices": "p1"},
)
SOURCE = STATE.sources["events"]
MEANING = {"form": 1, "python": "3.11", "salt": "", "digest": "a", "root": {"ref": 0}, "nodes": [{}]}


def _python(text: str) -> QueryForm:
    node = {"kind": "function", "name": "pipeline.make.<locals>.shifted", "defaults": [], "keyword defaults": []}
    node |= {"attributes": [], "code": {"names": [], "blocks": [{"steps": [text]}]}}
    return replace(STATE, columns=(("id", f"python {text}"),), python={f"python {text}": {**MEANING, "nodes": [node]}})


# What is written now in place of STATE, and where the difference stands.
PLACES = {
    "a source's place": (replace(STATE, sources={"events": {**SOURCE, "place": "other"}}), "headrace.yml:5"),
    "a source's option": (replace(STATE, sources={"events": {**SOURCE, "format": "csv"}}), "headrace.yml:6"),
    "an option that is gone": (replace(STATE, sources={"events": {**SOURCE, "inexact": ""}}), "headrace.yml:3"),
    "a source's kind": (replace(STATE, sources={"events": {"kind": "kafka"}}), "headrace.yml:3"),
    "a watermark": (replace(STATE, watermarks={"events.time timestamp": 1}), "headrace.yml:3"),
    "the sink's table": (replace(STATE, sink={**STATE.sink, "place": "others"}), "headrace.yml:21"),
    "the sink's key": (replace(STATE, sink={**STATE.sink, "key": ["n"]}), "headrace.yml:22"),
    "the sink's kind": (replace(STATE, sink={**STATE.sink, "kind": "files"}), "headrace.yml:19"),
    "the mode": (replace(STATE, mode="update"), "headrace.yml:15"),
    "a view": (
        replace(
            STATE,
            operators=(OperatorForm(kind="aggregation", feeds=("events WHERE b",)),),
            pieces={**STATE.pieces, "dear": "d2"},
        ),
        "headrace.yml:13",
    ),
    "the query": (
        replace(STATE, columns=(("id", "events.id + 1"),), pieces={**STATE.pieces, "": "q2"}),
        "headrace.yml:16",
    ),
    "the rows of a table": (replace(STATE, feed="dear join table of 1 rows b"), "headrace.yml:10"),
    "a Python function": (_python("LOAD_FAST"), "pipeline.py:8"),
}


@pytest.fixture
def project(tmp_path: Path) -> hr.Project:
    (tmp_path / "headrace.yml").write_text(YAML, encoding="utf-8")
    (tmp_path / "pipeline.py").write_text(CODE, encoding="utf-8")
    return hr.load(tmp_path)


@pytest.mark.parametrize(("now", "place"), PLACES.values(), ids=PLACES)
def test_a_difference_names_the_file_and_the_line(project: hr.Project, now: QueryForm, place: str) -> None:
    was = _python("LOAD_CONST") if now.python else STATE
    (difference,) = locate(project, project.queries["q"], was, now, compare_forms(was, now))
    assert str(difference.where).endswith(f"/{place}"), difference
    assert difference.as_dict()["where"]["line"] == int(place.rpartition(":")[2])


CODE_PLACES = {"pipeline.Weight": 3, "pipeline.Weight.__call__": 4, "pipeline.make.<locals>.shifted": 8}


def test_code_is_found_by_its_name(project: hr.Project) -> None:
    places = {name: place_of_code(project, name) for name in CODE_PLACES}
    assert {name: where.line for name, where in places.items() if where} == CODE_PLACES
    assert place_of_code(project, "pipeline.nothing") is place_of_code(project, "json.loads") is None


JOINED = "operator 0 join table of 3 rows WHERE =(events.id int, prices.id int)"
# What fed the aggregation, what feeds it, and how that is shown.
FEEDS = {
    "a filter more": (
        "events",
        "events WHERE (5.0 double < events.amount double)",
        "the filter amount > 5.0 was added",
    ),
    "a filter less": (
        "events WHERE =('a.b c', events.name string) AND (events.n int <= events.m decimal(10,2))",
        "events WHERE =('a.b c', events.name string)",
        "the filter n <= m was removed",
    ),
    "another filter": (
        "events WHERE (1 < events.n int)",
        "events WHERE (2 < events.n int)",
        "n > 1 was replaced by n > 2",
    ),
    "a text with a comparison": (
        "events",
        "events WHERE =('see a.b int', events.name string)",
        "the filter 'see a.b int' = name was added",
    ),
    "a join": (
        "operator 0",
        JOINED,
        "was the join of streams and is the join of streams join table of 3 rows WHERE events.id int = prices.id int",
    ),
}


def _fed_by(feed: str) -> QueryForm:
    return replace(
        STATE, operators=(OperatorForm(kind="join of streams"), OperatorForm(kind="aggregation", feeds=(feed,)))
    )


@pytest.mark.parametrize(("before", "now", "words"), FEEDS.values(), ids=FEEDS)
def test_a_changed_filter_is_shown_as_people_write_it(before: str, now: str, words: str) -> None:
    (difference,) = compare_forms(_fed_by(before), _fed_by(now))
    assert words in difference.describe(300)
    assert "what feeds the aggregation 1" in difference.describe(300)


def test_a_refusal_shows_the_line_of_the_code_that_ran_and_the_one_that_is_there_now(
    project: hr.Project, tmp_path: Path
) -> None:
    def revision(form: QueryForm) -> QueryRevision:
        return QueryRevision(
            fingerprint="f", from_batch=0, at="", headrace="0.1.0", spark="4.2.0", form=form.as_dict(), shape=form.feed
        )

    before, now = (revision(_fed_by(feed)) for feed in FEEDS["a filter more"][:2])
    layout = layout_in(tmp_path / "storage", "q", 1)
    layout.home.mkdir(parents=True)
    note_version(project, project.queries["q"], layout, before)

    def refusal() -> str:
        changed = hr.load(tmp_path)
        judgement: Judgement = judge(changed, changed.queries["q"], [before], now, begun=True, versions=layout.versions)
        (finding,) = list_refusals(changed.queries["q"], judgement)
        return finding.what

    assert "its code" not in refusal()
    edited = YAML.replace("SELECT * FROM events", "SELECT * FROM events WHERE amount > 5")
    (tmp_path / "headrace.yml").write_text(edited, encoding="utf-8")
    code = "its code was `SELECT * FROM events` and is `SELECT * FROM events WHERE amount > 5`"
    assert f"the filter amount > 5.0 was added; {code}; the state" in refusal()
