"""Python files declare things by decorators and assignment; their faults are findings, never stack traces."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import pytest

from headrace.errors import NOWHERE, ProjectError
from headrace.loader import load

pytestmark = pytest.mark.plain

PIPELINE = '''\
import headrace as hr

events = hr.source.files("landing/events", format="json",
                         schema="phone_id STRING, time TIMESTAMP, action STRING",
                         watermark=("time", "2 hours"))

@hr.query(sink=hr.sink.sqlite("out.db", table="action_counts", key=["action", "hour"]),
          mode="update", trigger=hr.every("5 seconds"))
def action_counts(events):
    """How many actions of each kind
    happened in each hour.

    More about it.
    """
    return events
'''

YAML = """\
sources:
  events:
    files: {path: landing/events, format: json, schema: "phone_id STRING, time TIMESTAMP, action STRING"}
    watermark: {column: time, delay: 2 hours}
queries:
  action_counts:
    description: How many actions of each kind happened in each hour.
    sql: queries/action_counts.sql
    mode: update
    trigger: {every: 5 seconds}
    sink: {sqlite: {path: out.db, table: action_counts, key: [action, hour]}}
"""

SQL = "SELECT action, window.start AS hour, count(*) AS count FROM events GROUP BY action, window(time, '1 hour')"


@pytest.mark.capability("MODEL-01")
def test_both_forms_of_the_example_give_the_same_model(load_texts, tmp_path):
    written = load_texts({"headrace.yml": YAML, "queries/action_counts.sql": SQL})
    (tmp_path / "headrace.yml").unlink()
    declared = load_texts({"pipeline.py": PIPELINE})

    def bare(project):
        query = project.queries["action_counts"]
        return (
            {name: replace(source, where=NOWHERE) for name, source in project.sources.items()},
            replace(query, where=NOWHERE, transform=query.transform.inputs),
            (project.name, project.root, replace(project.target, where=NOWHERE)),
        )

    assert bare(declared) == bare(written)


def test_everything_knows_its_file_and_line(load_texts):
    project = load_texts({"pipeline.py": PIPELINE})
    assert str(project.sources["events"].where) == "pipeline.py:3"
    assert str(project.queries["action_counts"].where) == "pipeline.py:7"


def test_both_forms_live_in_one_namespace(load_texts):
    yaml = "views: {late: SELECT * FROM events WHERE action = 'late'}\n"
    python = PIPELINE + "\n@hr.query(sink=hr.sink.console())\ndef all_late(late): return late\n"
    project = load_texts({"headrace.yml": yaml, "pipeline.py": python})
    assert project.sources_of(project.queries["all_late"]) == (project.sources["events"],)


def test_one_name_in_both_forms_is_reported_with_both_places(faults):
    (finding,) = faults({"headrace.yml": "views: {events: SELECT 1}\n", "pipeline.py": PIPELINE})
    assert (finding.code, str(finding.where)) == ("HR109", "pipeline.py:3")
    assert "headrace.yml:1" in finding.what


def test_variables_in_options_are_filled_in_at_load(load_texts):
    python = PIPELINE.replace('"landing/events"', '"${ROOT}/in"')
    assert load_texts({"p.py": python}, environ={"ROOT": "/data"}).sources["events"].connector.path == "/data/in"


def test_a_file_imports_another_and_each_runs_once(load_texts):
    files = {
        "a_uses.py": "import headrace as hr\nfrom common import events, runs\n"
        "@hr.view\ndef v(events, spark): return events\n",
        "common.py": "import headrace as hr\nevents = hr.source.rate()\nruns = [1]\n"
        "import sys; sys.runs_of_common = getattr(sys, 'runs_of_common', 0) + 1\n",
    }
    sys.runs_of_common = 0
    project = load_texts(files)
    assert sys.runs_of_common == 1
    assert list(project.sources) == ["events"]
    assert str(project.sources["events"].where) == "common.py:2"
    body = project.views["v"].transform
    assert (body.inputs, body.wants_spark) == (("events",), True)
    assert {module.__file__ for module in project.modules} == {
        str(project.root / "a_uses.py"),
        str(project.root / "common.py"),
    }


def test_a_second_load_sees_what_was_changed(load_texts, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    files = {"p.py": "import headrace as hr\nimport shared\nx = hr.source.rate(rows_per_second=shared.n)\n"}
    assert load_texts({**files, "shared.py": "n = 1\n"}).sources["x"].connector.rows_per_second == 1
    assert load_texts({**files, "shared.py": "n = 2\n"}).sources["x"].connector.rows_per_second == 2


def test_dataclasses_of_a_project_work_after_the_load(load_texts):
    python = PIPELINE + "\nfrom __future__ import annotations\n"
    python = "from __future__ import annotations\nimport dataclasses\n" + PIPELINE
    python += "\n@dataclasses.dataclass\nclass Row:\n    a: dataclasses.InitVar[int]\n"
    module = sys.modules[load_texts({"p.py": python}).queries["action_counts"].transform.function.__module__]
    assert module.Row(1)


def test_names_of_tests_and_data_generators_are_not_run(load_texts, tmp_path):
    files = dict.fromkeys(("test_p.py", "conftest.py", "_x.py", "setup.py"), "import headrace\nraise ValueError\n")
    assert load_texts({**files, "generator.py": "raise ValueError\n", "p.py": PIPELINE}).queries


def test_only_the_modules_named_are_run(load_texts):
    files = {"headrace.yml": "modules: p.py\n", "p.py": PIPELINE, "other.py": "import headrace\nraise ValueError\n"}
    assert list(load_texts(files).queries) == ["action_counts"]


@pytest.mark.parametrize(
    ("last", "line", "words"),
    [
        ("1 / 0", 2, "ZeroDivisionError: division by zero"),
        ("import no_such_package", 2, "No module named 'no_such_package'"),
        ("def f(:", 2, "SyntaxError"),
        ("raise SystemExit(3)", 2, "SystemExit: 3"),
        ("import json; json.loads('{')", 2, "JSONDecodeError"),
        ("load = __import__('headrace').load('.')", 2, "loads it"),
        ("s = headrace.sink.console()\n@headrace.query(sink=s)\ndef q(): ...\nq.start(None)", 3, "is started"),
    ],
    ids=["error", "missing package", "syntax", "exit", "error in a library", "loads itself", "starts itself"],
)
def test_an_exception_is_a_finding_at_the_users_line(faults, last, line, words):
    (finding,) = faults({"p.py": f"import headrace\n{last}\n"})
    assert str(finding.where) == f"p.py:{line}"
    assert words in finding.what
    assert "\n" not in finding.what


def test_a_fault_within_an_imported_file_is_reported_there(faults):
    findings = faults({"p.py": "import headrace\nfrom lib.tools import x\n", "lib/tools.py": "\n\nx = missing\n"})
    assert [(str(finding.where), finding.code) for finding in findings] == [("lib/tools.py:3", "HR114")]


def test_a_single_file_is_a_project(write):
    root = write({"pipeline.py": PIPELINE, "other.py": "import headrace\nraise ValueError\n"})
    assert list(load(root / "pipeline.py", environ={}).queries) == ["action_counts"]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "Python files (found: none)"),
        ({"a.py": "x = 1\n"}, "found: a.py"),
        ({"a.py": "import headrace\n"}, "found: a.py"),
    ],
)
def test_a_directory_without_a_project_says_what_was_looked_for(write, files, words):
    with pytest.raises(ProjectError) as caught:
        load(write(files))
    (finding,) = caught.value.findings
    assert finding.code == "HR100"
    assert words in finding.what
    assert "headrace.yml" in finding.what


def test_a_path_that_does_not_exist_is_reported(tmp_path):
    with pytest.raises(ProjectError, match="does not exist"):
        load(tmp_path / "nowhere")


NOT_LOADED = "raise SystemExit('this file was run')\n"
UNRELATED = {
    "the word in a comment": "# what headrace reads\n",
    "the word in a text": "print('headrace run')\n",
    "an import inside a function": "def later():\n    import headrace\n",
    "an import when it is run as a script": "if __name__ == '__main__':\n    import headrace\n",
    "an import for type checkers": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import headrace\n",
    "another package": "import headrace_generator\n",
    "a module next to it": "from .headrace import source\n",
}


@pytest.mark.parametrize("text", UNRELATED.values(), ids=UNRELATED)
def test_a_file_that_declares_nothing_is_not_run(load_texts, text):
    assert load_texts({"pipeline.py": PIPELINE, "generate.py": text + NOT_LOADED}).queries.keys() == {"action_counts"}


DECLARING = {
    "plain": "import headrace as hr\n{}",
    "a part of it": "import headrace.testing, headrace as hr\n{}",
    "from": "from headrace import view\nimport headrace as hr\n{}",
    "in an if": "import sys\nif sys.version_info > (3,):\n    import headrace as hr\n{}",
    "in an else": "if __name__ == '__main__':\n    pass\nelse:\n    import headrace as hr\n{}",
    "in a try": "try:\n    import headrace as hr\nexcept ImportError:\n    raise\n{}",
    "in an except": "try:\n    import nothing_of_this_name\nexcept ImportError:\n    import headrace as hr\n{}",
}


@pytest.mark.parametrize("text", DECLARING.values(), ids=DECLARING)
def test_a_file_that_imports_headrace_as_it_is_loaded_is_run(load_texts, text):
    declared = PIPELINE.removeprefix("import headrace as hr\n")
    assert load_texts({"pipeline.py": text.format(declared)}).queries.keys() == {"action_counts"}


WAITS = {
    "in a call that waits": "import time\ntime.sleep(60)\n",
    "in a loop": "while True:\n    pass\n",
    "where it takes every exception": "while True:\n    try:\n        pass\n    except Exception:\n        pass\n",
}


@pytest.mark.parametrize("text", WAITS.values(), ids=WAITS)
def test_a_file_that_does_not_come_to_its_end_is_named_and_ended(faults, capsys, monkeypatch, text):
    monkeypatch.setattr(sys.modules["headrace.loader.modules"], "QUIET_SECONDS", 0.2)
    files = {"a_pipeline.py": PIPELINE, "waits.py": "import headrace\n" + text}
    [finding] = faults(files, environ={"HEADRACE_LOAD_TIMEOUT": "1 second"})
    assert (finding.code, finding.where.file) == ("HR114", "waits.py")
    assert finding.where.line in range(2, 7)
    assert "within 1 second" in finding.what
    assert "HEADRACE_LOAD_TIMEOUT" in finding.fix
    assert re.search(r"waits\.py:[2-6] HR114 \(note\): waits\.py is still being loaded", capsys.readouterr().err)


def test_a_limit_that_is_no_length_of_time_is_a_finding(faults):
    [finding] = faults({"pipeline.py": PIPELINE}, environ={"HEADRACE_LOAD_TIMEOUT": "soon"})
    assert (finding.code, "HEADRACE_LOAD_TIMEOUT" in finding.what) == ("HR104", True)
