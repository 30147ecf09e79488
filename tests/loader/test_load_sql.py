"""What a SELECT reads is found in its text."""

from __future__ import annotations

import pytest

from headrace.errors import Where
from headrace.loader.sql import transform

pytestmark = pytest.mark.plain

NAMES = ("events", "phones", "Users")

READS = {
    "one": ("SELECT * FROM events", "events"),
    "any case": ("select * from EVENTS e where e.a = 'from phones'", "events"),
    "a comma list": ("SELECT * FROM events e, phones AS p, users WHERE a IN (1, 2)", "events phones Users"),
    "joins": ("SELECT 1 FROM events LEFT ANTI JOIN phones USING (id) CROSS JOIN users", "events phones Users"),
    "a comma after ON": ("SELECT 1 FROM events JOIN phones ON f(a, b) = c, users", "events phones Users"),
    "a comma in the select list": ("SELECT a, phones, users FROM events", "events"),
    "a subquery": ("SELECT * FROM (SELECT * FROM events) x JOIN phones", "events phones"),
    "a subquery in WHERE": ("SELECT * FROM events WHERE id IN (SELECT id FROM phones)", "events phones"),
    "a scalar subquery": ("SELECT (SELECT max(a) FROM phones) FROM events", "phones events"),
    "brackets around joins": ("SELECT * FROM (events JOIN phones ON a = b)", "events phones"),
    "comments and texts": ("SELECT '-- FROM x', \"/*\" /* FROM a */ -- FROM b\nFROM `events`", "events"),
    "WITH": ("WITH a AS (SELECT * FROM events), b AS (SELECT * FROM a) SELECT * FROM b JOIN a", "events"),
    "WITH that hides its own source": ("WITH events AS (SELECT * FROM events) SELECT * FROM events", "events"),
    "WITH and column names": ("WITH a(x, y) AS (SELECT 1, 2 FROM events) SELECT * FROM a, phones", "events phones"),
    "WITH in front of FROM": ("WITH a AS (SELECT 1 FROM events) FROM a, phones SELECT *", "events phones"),
    "WITH within": ("SELECT * FROM (WITH a AS (SELECT 1 FROM events) SELECT * FROM a) JOIN a", "events a"),
    "recursive": ("WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT * FROM r) SELECT * FROM r, events", "events"),
    "a union": (
        "SELECT a FROM events UNION ALL (SELECT a FROM phones) UNION SELECT a FROM users",
        "events phones Users",
    ),
    "functions with FROM": ("SELECT extract(HOUR FROM time), trim(BOTH 'x' FROM a) FROM events", "events"),
    "distinct from": ("SELECT * FROM events WHERE a IS NOT DISTINCT FROM phones", "events"),
    "a lateral view": ("SELECT * FROM events LATERAL VIEW OUTER explode(m) t AS phones, users WHERE a", "events"),
    "a lateral subquery": ("SELECT * FROM events, LATERAL (SELECT * FROM phones p WHERE p.a = e.a)", "events phones"),
    "a function as relation": ("SELECT * FROM range(10), events", "events"),
    "inline rows": ("SELECT * FROM VALUES (1, 2), (3, 4) AS t(a, b) JOIN events", "events"),
    "a catalog's table": ("SELECT * FROM lake.phones JOIN events", "events"),
    "FROM first": ("FROM events SELECT a", "events"),
    "TABLE": ("TABLE events UNION TABLE phones", "events phones"),
    "a sample": ("SELECT * FROM events TABLESAMPLE (10 PERCENT), phones", "events phones"),
    "a pivot": ("SELECT * FROM events PIVOT (sum(a) FOR b IN ('x', 'y'))", "events"),
    "each once": ("SELECT * FROM events a JOIN events b", "events"),
    "one that is not declared": ("SELECT * FROM evnts", "evnts"),
    "no relation": ("VALUES (1), (2)", ""),
    "grouping words": ("SELECT a FROM events GROUP BY a, phones WITH ROLLUP ORDER BY a, users", "events"),
    "a column named like a word": ("SELECT e.from, e.join FROM events e", "events"),
    "a window": ("SELECT sum(a) OVER (PARTITION BY phones, users ORDER BY b) FROM events", "events"),
    "pipes": ("FROM events |> JOIN phones USING (id) |> SELECT a, users", "events phones"),
}


@pytest.mark.parametrize(("text", "inputs"), READS.values(), ids=READS)
def test_inputs_are_the_names_where_a_relation_stands(text, inputs):
    body, findings = transform(text, Where(file="q.sql", line=1), NAMES)
    assert findings == []
    assert body.inputs == tuple(inputs.split())


FAULTS = {
    "nothing": ("-- only words", 1),
    "not a SELECT": ("\nINSERT INTO a SELECT 1", 2),
    "two statements": ("SELECT 1;\n\nSELECT 2", 3),
    "an open bracket": ("SELECT (1", 1),
    "a closed bracket": ("SELECT 1\n)", 2),
    "an open quote": ("SELECT\n 'a FROM b", 2),
}


@pytest.mark.parametrize(("text", "line"), FAULTS.values(), ids=FAULTS)
def test_what_is_not_one_select_is_refused_at_its_line(text, line):
    body, (finding,) = transform(text, Where(file="q.sql", line=1), NAMES)
    assert body is None
    assert (finding.code, finding.where.line) == ("HR116", line)


def test_the_last_semicolon_and_what_follows_it_is_left_out():
    body, _ = transform("SELECT ';' FROM events ; -- end\n", Where(file="q.sql", line=1), NAMES)
    assert body.sql == "SELECT ';' FROM events"
