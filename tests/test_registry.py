"""Connectors are built from options, or every fault of the options is reported."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, ClassVar, Literal

import pytest

from headrace import registry
from headrace.contract import Jars, ProjectObject, ProjectPath, Sink, SinkContext, SinkFacts, Writer, path_options
from headrace.declare.assembly import build, with_absolute_paths, with_objects
from headrace.errors import PlatformError, Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.plain

HERE = Where(file="headrace.yml", line=4)


@dataclass(frozen=True, kw_only=True)
class Gauge(Sink):
    """A connector with an option of every type."""

    facts: ClassVar[SinkFacts] = SinkFacts(modes=frozenset({"append"}), transactional=False, idempotent=False)
    path: ProjectPath
    table: str = "t"
    key: tuple[str, ...] = ()
    limit: int | None = None
    ratio: float = 1.0
    header: bool = False
    size: int | str | None = None
    on_bad: Literal["fail", "drop"] = "fail"
    options: Mapping[str, str] = field(default_factory=dict)

    def open(self, frame: DataFrame, context: SinkContext) -> Writer:
        raise NotImplementedError

    def __post_init__(self) -> None:
        if self.table == "forbidden":
            raise ValueError("this table is forbidden")


@pytest.fixture(autouse=True)
def gauge(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {
        "gauge": EntryPoint("gauge", f"{__name__}:Gauge", "headrace.sinks"),
        "absent": EntryPoint("absent", "no_such_package:Absent", "headrace.sinks"),
        "stranger": EntryPoint("stranger", "decimal:Decimal", "headrace.sinks"),
    }
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    monkeypatch.setattr(registry, "_entries", lambda kind: entries)


BUILT = {
    "a list for a tuple": ({"key": ["a", "b"]}, "key", ("a", "b")),
    "a text for a number": ({"limit": "5"}, "limit", 5),
    "a whole number for a number": ({"ratio": 2}, "ratio", 2.0),
    "truth": ({"header": "true"}, "header", True),
    "a choice": ({"on_bad": "drop"}, "on_bad", "drop"),
    "either": ({"size": "unlimited"}, "size", "unlimited"),
    "a mapping": ({"options": {"a": "b"}}, "options", {"a": "b"}),
}


@pytest.mark.parametrize(("options", "name", "value"), BUILT.values(), ids=BUILT)
def test_options_take_their_declared_types(options, name, value):
    built, findings = build("sink", "gauge", {"path": "x", **options}, HERE)
    assert findings == []
    assert getattr(built, name) == value


FAULTS = {
    "misspelt": ({"pth": "x", "path": "y"}, ["HR103"], "'path'"),
    "missing": ({}, ["HR112"], "give 'path'"),
    "no number": ({"path": "x", "limit": "many"}, ["HR113"], ""),
    "truth for a whole number": ({"path": "x", "limit": True}, ["HR113"], ""),
    "truth for a number": ({"path": "x", "ratio": False}, ["HR113"], ""),
    "truth for one of two": ({"path": "x", "size": True}, ["HR113"], ""),
    "a number for a text": ({"path": 5}, ["HR113"], ""),
    "no choice": ({"path": "x", "on_bad": "skip"}, ["HR113"], ""),
    "a text for a list": ({"path": "x", "key": "a"}, ["HR113"], ""),
    "refused by the connector": ({"path": "x", "table": "forbidden"}, ["HR113"], ""),
    "many at once": ({"tabl": "x", "limit": "many", "header": "perhaps"}, ["HR103", "HR112", "HR113", "HR113"], ""),
}


@pytest.mark.parametrize(("options", "codes", "fix"), FAULTS.values(), ids=FAULTS)
def test_every_fault_of_the_options_is_reported(options, codes, fix):
    built, findings = build("sink", "gauge", options, HERE)
    assert built is None
    assert sorted(finding.code for finding in findings) == codes
    assert fix in findings[0].fix
    assert {finding.where for finding in findings} == {HERE}


def test_a_fault_is_reported_at_the_options_own_line():
    there = Where(file="headrace.yml", line=9)
    _, (finding,) = build("sink", "gauge", {"path": "x", "limit": "many"}, HERE, lines={"limit": there})
    assert finding.where == there


def test_no_message_repeats_a_value():
    _, findings = build("sink", "gauge", {"path": "x", "limit": "hunter2", "on_bad": "hunter2"}, HERE)
    assert len(findings) == 2
    assert "hunter2" not in str(findings)


def test_an_option_whose_value_is_not_known_is_not_missing():
    assert build("sink", "gauge", {"path": ""}, HERE, unresolved={"path"}) == (None, [])


def test_an_unknown_connector_is_reported_with_the_nearest():
    built, (finding,) = build("sink", "guage", {}, HERE)
    assert built is None
    assert (finding.code, finding.where) == ("HR103", HERE)
    assert "'gauge'" in finding.fix


def test_a_connector_that_cannot_be_imported_says_what_to_install():
    _, (finding,) = build("sink", "absent", {}, HERE)
    assert (finding.code, finding.where) == ("HR011", HERE)
    assert "headrace[absent]" in finding.fix
    with pytest.raises(PlatformError):
        registry.connector("sink", "absent")


def test_what_does_not_extend_the_contract_is_no_connector():
    _, (finding,) = build("sink", "stranger", {}, HERE)
    assert (finding.code, finding.where) == ("HR432", HERE)
    assert "headrace.contract.Sink" in finding.what


def test_an_option_may_not_hide_a_member_of_the_contract():
    with pytest.raises(TypeError, match="the option 'location' of Hiding has the name of a member"):
        type("Hiding", (Gauge,), {"__annotations__": {"location": str}})


def test_paths_and_objects_of_the_project_are_known_by_their_types(tmp_path):
    @dataclass(frozen=True, kw_only=True)
    class Dial(Gauge):
        archive: ProjectPath | None = None
        hook: ProjectObject = None

    dial = Dial(path="a.db", table="b", archive="c", hook="decimal:Decimal")
    assert path_options(dial) == ("path", "archive")
    whole = with_objects(with_absolute_paths(dial, tmp_path), ())
    assert (whole.path, whole.table, whole.archive, whole.hook) == (
        str(tmp_path / "a.db"),
        "b",
        str(tmp_path / "c"),
        Decimal,
    )


def test_the_first_option_is_the_one_that_may_be_given_by_position():
    @dataclass(frozen=True, kw_only=True)
    class Dial(Gauge):
        positional: ClassVar[str] = "table"
        extra: str = ""

    assert registry.options_of(Gauge)[0] == "path"
    assert registry.options_of(Dial)[:3] == ("table", "extra", "path")


def test_jars_that_a_class_declares_are_known_without_its_options(monkeypatch):
    monkeypatch.setattr(Gauge, "jars", ("kafka", Jars(name="gauge", coordinates=("org.example:gauge:1",))))
    assert {name: jars.coordinates for name, jars in registry.declared_jars().items()} == {
        "gauge": ("org.example:gauge:1",)
    }
