"""Things declared in a script or notebook: faults are raised at once, functions stay functions."""

from __future__ import annotations

import inspect

import pytest

import headrace as hr
from headrace.declare import declarations as things
from headrace.declare.assembly import project_of, set_starter
from headrace.errors import ProjectError
from headrace.model import AvailableNow, Default, Every, Once

pytestmark = pytest.mark.plain


def test_connectors_are_found_by_their_names():
    assert {"files", "rate"} <= set(dir(hr.source))
    assert "console" in dir(hr.sink)
    assert not hasattr(hr.source, "_repr_html_")


def test_a_source_knows_where_it_was_declared():
    here = inspect.currentframe().f_lineno
    source = hr.source.rate(rows_per_second=3, watermark=("timestamp", "1 hour"))
    assert source.where.file.endswith("test_declaring.py")
    assert source.where.line == here + 1
    assert source.watermark.delay.seconds == 3600


@pytest.mark.parametrize(
    ("declare", "code", "fix"),
    [
        (lambda: hr.source.fils("x"), "HR103", "'files'"),
        (lambda: hr.sink.consol(), "HR103", "'console'"),
        (lambda: hr.source.rate(rows_per_secnd=1), "HR103", "'rows_per_second'"),
        (lambda: hr.source.rate(watermark="time"), "HR104", "watermark="),
        (lambda: hr.source.rate(watermark=("time", "soon")), "HR104", "2 hours"),
        (lambda: hr.every("soon"), "HR104", "5 seconds"),
        (lambda: hr.query(sink=hr.sink.console(), mode="upsert")(lambda: 1), "HR104", "update"),
        (lambda: hr.query(sink=hr.sink.console(), on_change="forwards")(lambda: 1), "HR104", "forward"),
        (lambda: hr.query(sink=hr.sink.console(), trigger="onse")(lambda: 1), "HR104", "every"),
        (lambda: hr.query(sink=hr.sink.console(), trigger=5)(lambda: 1), "HR104", "every"),
        (lambda: hr.query(lambda: 1), "HR112", "sink="),
        (lambda: hr.query(sink="console")(lambda: 1), "HR112", "sink="),
        (lambda: hr.view(lambda *rest: 1), "HR117", "plain name"),
        (lambda: hr.view(lambda **rest: 1), "HR117", "plain name"),
        (lambda: hr.table(lambda a=1: 1), "HR117", "plain name"),
        (lambda: hr.table(lambda a, /: 1), "HR117", "plain name"),
    ],
)
def test_a_fault_is_raised_where_it_stands(declare, code, fix):
    with pytest.raises(ProjectError) as caught:
        declare()
    (finding,) = caught.value.findings
    assert finding.code == code
    assert fix in finding.fix
    assert finding.where.file.endswith("test_declaring.py")


def test_a_decorated_function_is_called_as_before():
    @hr.view
    def doubled(numbers: list[int], spark: object) -> list[int]:
        """Twice
        each.

        And more."""
        return [2 * number for number in numbers]

    assert doubled([1, 2], spark=None) == [2, 4]
    assert (doubled.inputs, doubled.wants_spark, doubled.description) == (("numbers",), True, "Twice each.")
    assert list(inspect.signature(doubled).parameters) == ["numbers", "spark"]


def test_decorators_take_a_name():
    assert hr.view(name="other")(lambda: 1).name == "other"
    assert hr.table()(lambda: 1).name == "<lambda>"


@pytest.mark.parametrize(
    ("given", "trigger"),
    [
        (None, Default()),
        (hr.available_now, AvailableNow()),
        ("once", Once()),
        ("available_now", AvailableNow()),
        (hr.every("5 seconds"), hr.every("5 seconds")),
        ("every 5 seconds", hr.every("5 seconds")),
    ],
)
def test_triggers_are_values_or_words(given, trigger):
    declared = hr.query(sink=hr.sink.console(), trigger=given)(lambda: 1)
    assert declared.trigger == trigger
    assert not isinstance(trigger, Every) or trigger.interval.seconds == 5


def test_the_project_of_a_query_is_what_it_reads(tmp_path):
    numbers = hr.source.files("${WHERE}", format="text")  # noqa: F841, found by its name
    unused = hr.source.rate()  # noqa: F841

    @hr.view
    def even(numbers):
        return numbers

    @hr.table
    def names(spark):
        return spark

    @hr.query(sink=hr.sink.files("out"))
    def counts(even, names, missing):
        return even

    project = project_of(counts, root=tmp_path, environ={"WHERE": "in"})
    assert (list(project.sources), list(project.views), list(project.tables)) == (["numbers"], ["even"], ["names"])
    assert project.sources["numbers"].connector.path == str(tmp_path / "in")
    assert project.queries["counts"].sink.path == str(tmp_path / "out")
    assert project.queries["counts"].transform.inputs == ("even", "names", "missing")


def test_the_project_of_a_query_reports_all_faults(tmp_path):
    numbers = hr.source.files("${UNSET}", format="text")

    @hr.query(sink=hr.sink.files("out", format="jsn"))
    def counts(numbers):
        return numbers

    with pytest.raises(ProjectError) as caught:
        project_of(counts, root=tmp_path, environ={})
    assert [finding.code for finding in caught.value.findings] == ["HR105", "HR113"]
    assert numbers is not None


def test_start_gives_the_project_the_query_and_the_session_to_the_starter(monkeypatch, tmp_path):
    monkeypatch.setattr(things.DeclaredQuery, "starter", None)
    counts = hr.query(sink=hr.sink.console(), name="counts")(lambda: 1)
    set_starter(lambda project, query, spark, trigger: (project.root, query.name, spark, trigger))
    session = object()
    started = counts.start(session, root=tmp_path, trigger="once")
    assert started == (tmp_path, "counts", session, Once())
