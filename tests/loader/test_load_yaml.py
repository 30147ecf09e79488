"""headrace.yml becomes the model, or every fault of it with file, line, code and fix."""

from __future__ import annotations

import pytest

from headrace.model import AvailableNow, Default, Duration, Every, Once, SqlTransform

pytestmark = pytest.mark.plain

BASE = """\
sources:
  events:
    rate: {rows_per_second: 5}
queries:
  counts:
    select: SELECT * FROM events
    sink: console
"""


def test_a_query_reads_what_its_select_names(load_texts):
    query = load_texts(BASE).queries["counts"]
    assert query.transform == SqlTransform(sql="SELECT * FROM events", inputs=("events",), where=query.transform.where)
    assert (str(query.where), query.sink_kind, query.mode) == ("headrace.yml:5", "console", "append")


def test_a_select_may_stand_in_a_file(load_texts):
    text = BASE.replace("select: SELECT * FROM events", "sql: queries/counts.sql")
    project = load_texts({"headrace.yml": text, "queries/counts.sql": "-- all of them\nSELECT * FROM Events;\n"})
    body = project.queries["counts"].transform
    assert (body.sql, body.inputs, str(body.where)) == (
        "-- all of them\nSELECT * FROM Events",
        ("events",),
        "queries/counts.sql:1",
    )


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("default", Default()),
        ("once", Once()),
        ("available-now", AvailableNow()),
        ("{every: 5 seconds}", Every(Duration("5 seconds", 5.0))),
        ("2 minutes", Every(Duration("2 minutes", 120.0))),
    ],
)
def test_a_trigger_is_a_word_or_an_interval(load_texts, text, trigger):
    assert load_texts(BASE + f"    trigger: {text}\n").queries["counts"].trigger == trigger


@pytest.mark.parametrize("text", ["{column: timestamp, delay: 2 hours}", "[timestamp, 2 hours]"])
def test_a_watermark_is_a_column_and_a_delay(load_texts, text):
    project = load_texts(BASE.replace("queries:", f"    watermark: {text}\nqueries:"))
    assert project.sources["events"].watermark.column == "timestamp"
    assert project.sources["events"].watermark.delay.seconds == 7200


@pytest.mark.parametrize(
    ("value", "schema", "taken"),
    [
        ("avro", "event.avsc", "{root}/event.avsc"),
        ("avro", '{"type": "record", "name": "e", "fields": []}', '{"type": "record", "name": "e", "fields": []}'),
        ("json", "id INT", "id INT"),
    ],
    ids=["a file", "the schema itself", "no Avro"],
)
def test_the_file_of_an_avro_schema_is_looked_for_in_the_project(load_texts, tmp_path, value, schema, taken):
    (tmp_path / "event.avsc").write_text('{"type": "record", "name": "e", "fields": []}')
    text = BASE.replace(
        "rate: {rows_per_second: 5}",
        f"kafka: {{bootstrap_servers: b:9092, subscribe: t, value: {value}, schema: '{schema}'}}",
    )
    events = load_texts(text).sources["events"].connector
    assert events.schema == taken.replace("{root}", str(tmp_path))
    assert list(events.problems()) == []


def test_relative_paths_start_from_the_project_and_urls_stay(load_texts, tmp_path):
    text = BASE.replace("rate: {rows_per_second: 5}", "files: {path: landing/../in, format: text}")
    assert load_texts(text).sources["events"].connector.path == str(tmp_path / "in")
    text = text.replace("landing/../in", "s3a://lake/in")
    assert load_texts(text).sources["events"].connector.path == "s3a://lake/in"


def test_one_value_in_place_of_the_options_is_the_first_option(load_texts):
    assert load_texts(BASE.replace("{rows_per_second: 5}", "7")).sources["events"].connector.rows_per_second == 7


def test_views_and_tables_are_selects_too(load_texts):
    project = load_texts(BASE + "views: {busy: {select: SELECT * FROM events}}\ntables: {names: SELECT 1 AS one}\n")
    assert project.views["busy"].transform.inputs == ("events",)
    assert project.tables["names"].transform.sql == "SELECT 1 AS one"


@pytest.mark.parametrize(("text", "seconds"), [("10 minutes", 600), ("{every: 90 seconds}", 90)])
def test_a_table_says_how_often_it_is_computed_again(load_texts, text, seconds):
    project = load_texts(
        BASE + f"tables: {{names: {{select: SELECT 1 AS one, refresh: {text}}}, more: SELECT 2 AS two}}\n"
    )
    assert project.tables["names"].refresh.seconds == seconds
    assert project.tables["more"].refresh is None


@pytest.mark.parametrize(
    ("section", "text", "code"),
    [("tables", "soon", "HR104"), ("tables", "{each: 5 s}", "HR103"), ("views", "5 minutes", "HR103")],
)
def test_a_refresh_that_cannot_be_read_is_reported_with_its_line(faults, section, text, code):
    findings = faults(BASE + f"{section}:\n  names:\n    select: SELECT 1 AS one\n    refresh: {text}\n")
    assert [(finding.code, str(finding.where)) for finding in findings] == [(code, "headrace.yml:11")]


def test_merged_mappings_are_one_mapping(load_texts):
    text = BASE.replace("{rows_per_second: 5}", "&r {rows_per_second: 5}").replace(
        "queries:", "  more:\n    rate:\n      <<: *r\n      num_partitions: 2\nqueries:"
    )
    connector = load_texts(text).sources["more"].connector
    assert (connector.rows_per_second, connector.num_partitions) == (5, 2)


FAULTS = {
    "misspelt key at the top": (BASE + "qeries: {}\n", 8, "HR103", "'queries'"),
    "misspelt key of a query": (BASE + "    triger: once\n", 8, "HR103", "'trigger'"),
    "unknown source": (BASE.replace("rate:", "rat:"), 2, "HR103", "'rate'"),
    "unknown sink": (BASE.replace("console", "consol"), 7, "HR103", "'console'"),
    "misspelt option": (BASE.replace("rows_per_second", "rows_per_secnd"), 3, "HR103", "'rows_per_second'"),
    "option of a wrong type": (BASE.replace("5}", "many}"), 3, "HR113", "for example 100"),
    "truth for a number": (BASE.replace("5}", "true}"), 3, "HR113", "for example 100"),
    "missing option": (BASE.replace("rate: {rows_per_second: 5}", "files: {format: csv}"), 2, "HR112", "give 'path'"),
    "two kinds": (BASE.replace("queries:", "    files: x\nqueries:"), 4, "HR103", "one kind"),
    "misspelt watermark": (BASE.replace("queries:", "    watermrk: x\nqueries:"), 4, "HR103", "'watermark'"),
    "watermark without a delay": (BASE.replace("queries:", "    watermark: {column: t}\nqueries:"), 4, "HR112", "2 h"),
    "delay of no length": (BASE.replace("queries:", "    watermark: [t, soon]\nqueries:"), 4, "HR104", "2 hours"),
    "unknown mode": (BASE + "    mode: upsert\n", 8, "HR104", "update"),
    "unknown on_change": (BASE + "    on_change: forwards\n", 8, "HR104", "forward"),
    "unknown trigger": (BASE + "    trigger: onse\n", 8, "HR104", "every"),
    "no sink": (BASE.replace("    sink: console\n", ""), 5, "HR112", "sink: console"),
    "no SELECT": (BASE.replace("    select: SELECT * FROM events\n", ""), 5, "HR112", "sql:"),
    "no such SQL file": (BASE.replace("select: SELECT * FROM events", "sql: no.sql"), 6, "HR115", "relative"),
    "no SELECT in it": (BASE.replace("SELECT * FROM", "DELETE FROM"), 6, "HR116", "SELECT"),
    "two statements": (BASE.replace("FROM events", "FROM events; SELECT 2"), 6, "HR116", "view or query"),
    "a list for a mapping": (BASE.replace("queries:", "views: [1]\nqueries:"), 4, "HR104", 'name: "SELECT'),
    "two of one name": (BASE + "views: {events: SELECT 1}\n", 8, "HR109", "rename"),
    "a table and a view of one name": (BASE + "tables: {a: SELECT 1}\nviews: {a: SELECT 2}\n", 9, "HR109", "rename"),
    "a key twice": (BASE + "  counts: {}\n", 8, "HR109", "keep one"),
    "no such module": ("modules: [no.py]\n" + BASE, 1, "HR115", "relative"),
}


@pytest.mark.parametrize(("text", "line", "code", "fix"), FAULTS.values(), ids=FAULTS)
def test_each_fault_has_its_line_its_code_and_a_way_out(faults, text, line, code, fix):
    findings = faults(text)
    assert [(str(finding.where), finding.code) for finding in findings] == [(f"headrace.yml:{line}", code)]
    assert fix in findings[0].fix


def test_text_that_is_no_yaml_is_reported_with_its_line(faults):
    findings = faults("name: a\nsources: [\n")
    assert findings[0].code == "HR101"
    assert findings[0].where.line in (2, 3)


def test_an_alias_that_contains_itself_is_refused(faults):
    assert faults("views: &v {a: *v}\n")[0].code == "HR101"


def test_all_faults_come_together_in_the_order_of_their_lines(faults):
    text = BASE.replace("rate:", "rat:").replace("console", "consol") + "    mode: upsert\nname: [1]\n"
    python = "import headrace as hr\n\n@hr.view\ndef v(a=1): ...\n"
    findings = faults({"headrace.yml": text, "views.py": python})
    assert [(str(finding.where), finding.code) for finding in findings] == [
        ("headrace.yml:2", "HR103"),
        ("headrace.yml:7", "HR103"),
        ("headrace.yml:8", "HR104"),
        ("headrace.yml:9", "HR104"),
        ("views.py:3", "HR117"),
    ]


def test_an_empty_file_is_an_empty_project(load_texts, tmp_path):
    project = load_texts("")
    assert (project.name, project.queries) == (tmp_path.name, {})


NINE = """\
storge: x
sources:
  events: {files: {path: landing, formt: json, schema: "id INT"}}
  more: {files: {path: landing, format: json, schema: "id INTT"}}
  ok: {rate: {}}
queries:
  a: {select: SELECT id FROM events, sink: consol}
  b: {select: SELECT id FROM even, mode: upsert, sink: console}
  c: {select: SELECT value FROM ok, trigger: soon, sink: {sqlite: {path: a.db, table: t, key: [id, id]}}}
  my-d: {select: SELECT value FROM ok, sink: console}
targets: {dev: {master: localhost}}
"""


def test_all_that_is_wrong_is_reported_at_once_and_nothing_that_only_follows_from_it(faults):
    reported = [(finding.where.line, finding.code) for finding in faults(NINE)]
    assert reported == [
        *((1, "HR103"), (3, "HR103"), (4, "HR123"), (7, "HR103"), (8, "HR104"), (8, "HR204")),
        *((9, "HR104"), (9, "HR113"), (10, "HR254"), (11, "HR125")),
    ]


WITHOUT_A_PART = """
sources:
  events: {files: {path: landing, format: json, schema: id INT}}
queries:
  a: {sql: none.sql, sink: {sqlite: {path: r.db, tabel: x}}}
  b: {select: SELECT * FROM evnts, sink: {sqlit: {path: r.db, table: x}}}
  c: {selct: SELECT 1, sink: {kafka: {topic: 1}}}
"""


def test_a_query_that_lacks_its_select_or_its_sink_is_judged_in_its_other_parts(faults):
    reported = [(finding.where.line, finding.code, finding.fix) for finding in faults(WITHOUT_A_PART)]
    assert {(5, "HR103", "did you mean 'table'?"), (6, "HR204", "did you mean 'events'?")} <= set(reported)
    assert sorted((line, code) for line, code, _ in reported) == [
        *((5, "HR103"), (5, "HR115"), (6, "HR103"), (6, "HR204")),
        *((7, "HR103"), (7, "HR112"), (7, "HR112"), (7, "HR113")),
    ]
