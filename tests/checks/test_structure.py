"""What is wrong with a project's shape is found without Spark."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from subprocess import run

import pytest

from headrace.checks.structure import check_structure, columns_of
from headrace.loader import load

pytestmark = pytest.mark.plain

BASE = """\
sources:
  events: {rate: {rows_per_second: 5}}
queries:
  q:
    select: SELECT * FROM events
    sink: {files: out}
"""


def findings(root: Path, text: str) -> list[tuple[str, int | None, str]]:
    (root / "headrace.yml").write_text(text)
    return [(finding.code, finding.where.line, finding.severity) for finding in check_structure(load(root, environ={}))]


FAULTS = {
    "nothing": (BASE, []),
    "unknown input": (BASE.replace("FROM events", "FROM event"), [("HR204", 5, "error"), ("HR256", 2, "note")]),
    "a query as input": (BASE + "views: {v: SELECT * FROM q}\n", [("HR204", 7, "error"), ("HR256", 7, "note")]),
    "a cycle": (
        BASE.replace("FROM events", "FROM events, a") + "views:\n  a: SELECT * FROM b\n  b: SELECT * FROM a\n",
        [("HR251", 8, "error")],
    ),
    "a view of itself": (
        BASE.replace("FROM events", "FROM events, a") + "views: {a: SELECT * FROM a}\n",
        [("HR251", 7, "error")],
    ),
    "no stream": (BASE.replace("FROM events", ""), [("HR252", 4, "error"), ("HR256", 2, "note")]),
    "a table of a stream": (
        BASE.replace("FROM events", "FROM events JOIN t") + "tables: {t: SELECT * FROM v}\n"
        "views: {v: SELECT * FROM events}\n",
        [("HR253", 7, "error")],
    ),
    "a name": (
        BASE.replace("events:", "my-events:").replace("FROM events", "FROM `my-events`"),
        [("HR254", 2, "error")],
    ),
    "the name of another's further use": (
        BASE.replace("queries:", "  events__2: {rate: {}}\nqueries:"),
        [("HR254", 3, "error"), ("HR256", 3, "note")],
    ),
    "a mode": (BASE + "    mode: complete\n", [("HR255", 4, "error")]),
    "an unused source": (BASE.replace("queries:", "  more: {rate: {}}\nqueries:"), [("HR256", 3, "note")]),
    "the trigger once": (BASE + "    trigger: once\n", [("HR257", 4, "warning")]),
    "a watermark on no column": (
        BASE.replace(
            "{rate: {rows_per_second: 5}}", "{files: {path: i, format: csv, schema: a INT}, watermark: [b, 1h]}"
        ),
        [("HR214", 2, "error")],
    ),
    "one place for two": (
        BASE + "  r:\n    select: SELECT * FROM events\n    sink: {files: {path: ./out}}\n",
        [("HR259", 7, "error")],
    ),
    "one console for two": (
        BASE.replace("{files: out}", "console") + "  r: {select: SELECT * FROM events, sink: console}\n",
        [],
    ),
    "names that differ by case": (
        BASE + "views: {EVENTS: SELECT 1}\n",
        [("HR109", 7, "error"), ("HR252", 4, "error"), ("HR256", 2, "note")],
    ),
}


@pytest.mark.parametrize(("text", "expected"), FAULTS.values(), ids=FAULTS)
def test_each_fault_is_found_with_its_line(tmp_path, text, expected):
    assert findings(tmp_path, text) == expected


def test_problems_of_a_connector_say_whose_they_are(tmp_path):
    (tmp_path / "headrace.yml").write_text(BASE.replace("5", "-5"))
    (finding,) = check_structure(load(tmp_path, environ={}))
    assert (finding.code, finding.where.line) == ("HR113", 2)
    assert finding.what.startswith("source 'events': ")


def test_a_misspelt_input_gets_the_nearest_name(tmp_path):
    (tmp_path / "p.py").write_text(
        "import headrace as hr\nevents = hr.source.rate()\n\n@hr.query(sink=hr.sink.console())\ndef q(evnts): ...\n"
    )
    finding = next(check_structure(load(tmp_path, environ={})))
    assert (finding.code, finding.where.line, finding.fix) == ("HR204", 4, "did you mean 'events'?")


def test_a_cycle_is_shown_as_a_way_round(tmp_path):
    (tmp_path / "headrace.yml").write_text(BASE + "views: {a: TABLE b, b: TABLE c, c: TABLE a}\n")
    (cycle,) = [finding for finding in check_structure(load(tmp_path, environ={})) if finding.code == "HR251"]
    assert "a -> b -> c -> a" in cycle.what


@pytest.mark.parametrize(
    ("schema", "columns"),
    [
        ("a INT, b STRUCT<c: INT, d: ARRAY<STRING>>, `e f` DECIMAL(10, 2) COMMENT 'x, y'", ("a", "b", "e f")),
        ("a: INT, b: STRING", ("a", "b")),
        ('{"type": "struct"}', ()),
        ("", ()),
    ],
)
def test_a_schemas_columns_are_its_top_level_names(schema, columns):
    assert tuple(columns_of(schema)) == columns


def test_no_jvm_and_no_pyspark_is_needed(tmp_path):
    (tmp_path / "headrace.yml").write_text(BASE)
    program = (
        "import sys; from headrace.loader import load; from headrace.checks.structure import check_structure\n"
        "print(list(check_structure(load('.'))), {'pyspark', 'pandas'} & set(sys.modules))"
    )
    done = run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] set()"


def test_views_that_read_each_other_are_reported_once(tmp_path):
    text = """\
sources: {events: {rate: {}}}
views: {a: SELECT * FROM b, b: SELECT * FROM a}
queries: {q: {select: SELECT * FROM a, sink: console}}
"""
    assert [code for code, _, _ in findings(tmp_path, text)] == ["HR251", "HR256"]


SECRET = {
    "headrace.yml": """
name: p
sources: {e: {files: {path: in, format: text}}}
queries: {q: {select: SELECT * FROM e, sink: {postgres: {url: "REFERENCE", table: t}}}}
""".replace("REFERENCE", "postgresql://u:${DB_PASSWORD}@h/d")
}
FILE = {"headrace.yml": SECRET["headrace.yml"].replace("${DB_PASSWORD}", "${file:secrets/db}")}
OPEN = {
    "variables": (SECRET, ".env", 0o644, ["chmod o-rwx .env"]),
    "variables of a group": (SECRET, ".env", 0o640, []),
    "variables without a secret": (
        {"headrace.yml": SECRET["headrace.yml"].replace("DB_PASSWORD", "NAME")},
        ".env",
        0o644,
        [],
    ),
    "secret": (FILE, "secrets/db", 0o604, ["chmod o-rwx secrets/db"]),
    "secret of its owner": (FILE, "secrets/db", 0o600, []),
    "secret in a private directory": (FILE, "secrets/db", 0o604, []),
    "storage": (FILE, ".headrace", 0o777, ["chmod o-rwx STORAGE, or name a directory of your own as `storage`"]),
    "storage that others may read": (FILE, ".headrace", 0o755, []),
}


@pytest.mark.parametrize(("files", "path", "mode", "fixes"), OPEN.values(), ids=OPEN)
def test_what_every_user_may_read_or_write_is_a_warning(
    files: dict[str, str], path: str, mode: int, fixes: list[str], request: pytest.FixtureRequest
) -> None:
    # Below /tmp, since nothing below pytest's own directory is reached by others.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        root = Path(name)
        root.chmod(0o755)
        for directory in ("secrets", ".headrace"):
            (root / directory).mkdir(mode=0o755)
        (root / "headrace.yml").write_text(files["headrace.yml"])
        (root / ".env").write_text("DB_PASSWORD=sesame\nNAME=x\n")
        (root / "secrets/db").write_text("sesame street")
        for file in (".env", "secrets/db"):
            (root / file).chmod(0o600)
        (root / path).chmod(mode)
        if "private" in request.node.name:
            (root / "secrets").chmod(0o700)
        findings = [finding for finding in check_structure(load(root, environ={})) if finding.code == "HR141"]
        storage = str(root / ".headrace")
        assert [finding.fix.replace(storage, "STORAGE") for finding in findings] == fixes
        assert all(finding.severity == "warning" and "sesame" not in str(finding) for finding in findings)
