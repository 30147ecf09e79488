"""Further changes of queries in SQL: expressions, aggregates, windows, joins, views, bounded inputs, sources, sinks."""

# ruff: noqa: E501

from __future__ import annotations

from .catalogue import DIMS, SOURCES, Change, changes

EXPRESSIONS = """id, CASE WHEN n > 1 THEN 'a' WHEN n > 0 THEN 'b' ELSE 'c' END AS grade, coalesce(other, action) AS o,
      CAST(price AS INT) AS whole, date_format(time, 'yyyy-MM') AS month, concat(action, '-', other) AS both,
      round(price, 2) AS rounded, from_json(other, 'a INT, b INT').a AS parsed, transform(array(n, 2), x -> x + 1) AS more,
      filter(array(n, 2), x -> x > 1) AS few, aggregate(array(n, 2), 0, (a, x) -> a + x) AS total,
      shuffle(array(n, 7)) AS mixed, sha2(action, 256) AS hashed, CASE WHEN n > 9 THEN id END AS rare"""
CSV = "id LONG, action STRING, other STRING, n INT"

SQL_BASES = {
    "expressions": SOURCES
    + f"""queries:
  q:
    select: >
      SELECT {EXPRESSIONS}
      FROM events WHERE action LIKE 'a%' AND n IN (1, 2) AND other IS NOT NULL
    mode: append
    sink: {{sqlite: {{path: out.db, table: rows}}}}
""",
    "aggregates": SOURCES
    + """queries:
  q:
    select: >
      SELECT action, first(n) AS f, collect_list(n) AS l, approx_count_distinct(id) AS d,
      percentile_approx(price, 0.5) AS p, max_by(n, price) AS m, sum(price) FILTER (WHERE n > 1 AND id > 2) AS s,
      stddev(price) AS sd, bool_and(n > 0) AS good FROM events GROUP BY action HAVING count(*) > 1
    mode: update
    sink: {files: {path: out, format: json}}
""",
    "hops": SOURCES
    + """queries:
  q:
    select: >
      SELECT window.end AS until, action, count(*) AS n
      FROM events GROUP BY window(time, '10 minutes', '5 minutes'), action
    mode: append
    sink: {files: {path: out, format: json, partition_by: [action], options: {timestampFormat: yyyy}}}
""",
    "exploded": SOURCES
    + """queries:
  q:
    select: SELECT id, part FROM events LATERAL VIEW explode(split(other, ',')) t AS part
    mode: append
    sink: {files: {path: out, format: csv}}
""",
    "chain": SOURCES
    + """views:
  dear: {select: "SELECT * FROM events WHERE price > 10"}
  known: {select: "SELECT id, action, price, time FROM dear WHERE action IS NOT NULL"}
  taxed: {select: "SELECT id, action, price * 1.2 AS price, time FROM known"}
queries:
  q:
    select: SELECT action, sum(price) AS total FROM taxed GROUP BY action
    mode: update
    sink: {sqlite: {path: out.db, table: totals, key: [action]}}
""",
    "outer": SOURCES
    + """queries:
  q:
    select: >
      SELECT e.id, e.action, c.price FROM events e LEFT JOIN clicks c
      ON e.id = c.id AND c.time >= e.time AND c.time <= e.time + INTERVAL 1 HOUR
    mode: append
    sink: {sqlite: {path: out.db, table: joined}}
""",
    "known": SOURCES
    + DIMS
    + """queries:
  q:
    select: SELECT id, action FROM events e WHERE EXISTS (SELECT 1 FROM names n WHERE n.id = e.id)
    mode: append
    sink: {sqlite: {path: out.db, table: known}}
""",
    "rolled": SOURCES
    + """queries:
  q:
    select: SELECT action, other, count(*) AS n FROM events GROUP BY ROLLUP(action, other)
    mode: update
    sink: {sqlite: {path: out.db, table: rolled, key: [action, other]}}
""",
    "csv": f"""# file: prices.csv
1,2.5
2,3.5
# file: headrace.yml
name: shop
sources:
  events:
    files: {{path: in, format: csv, schema: "{CSV}", options: {{timestampFormat: yyyy}}}}
tables:
  prices:
    select: SELECT CAST(_c0 AS INT) AS id, CAST(_c1 AS DOUBLE) AS price FROM csv.`{{root}}/prices.csv`
queries:
  q:
    select: SELECT e.id, action, price FROM events e JOIN prices p ON e.id = p.id
    mode: append
    sink: {{sqlite: {{path: out.db, table: rows}}}}
""",
    "judged": SOURCES.replace("path: in,", "path: in, on_bad_row: quarantine,")
    + """queries:
  q:
    select: SELECT id, action FROM events
    mode: append
    sink: {sqlite: {path: out.db, table: rows}}
""",
    "messages": SOURCES
    + """queries:
  q:
    select: SELECT id, action, other FROM events
    mode: append
    sink: {kafka: {bootstrap_servers: "127.0.0.1:9", topic: rows, key: [id, action]}}
""",
}

SQL_CHANGES: list[Change] = [
    *changes(
        "expressions",
        (
            "IF in place of CASE",
            "CASE WHEN n > 1 THEN 'a' WHEN n > 0 THEN 'b' ELSE 'c' END",
            "if(n > 1, 'a', if(n > 0, 'b', 'c'))",
            "same",
        ),
        ("ELSE NULL written out", "THEN id END", "THEN id ELSE NULL END", "same"),
        ("a CASE of a value", "CASE WHEN n > 9 THEN id END", "if(n > 9, id, NULL)", "same"),
        ("ifnull", "coalesce(other, action)", "ifnull(other, action)", "same"),
        ("nvl", "coalesce(other, action)", "nvl(other, action)", "same"),
        ("a cast by ::", "CAST(price AS INT)", "price::INT", "same"),
        ("another variable of a lambda", "x -> x + 1", "item -> item + 1", "same"),
        ("IN in another order", "n IN (1, 2)", "n IN (2, 1)", "same"),
        ("OR in place of IN", "n IN (1, 2)", "(n = 2 OR 1 = n)", "same"),
        ("startswith in place of LIKE", "action LIKE 'a%'", "startswith(action, 'a')", "same"),
        ("BETWEEN over whole numbers", "n > 9", "NOT n <= 9", "same"),
        ("quoted names", "SELECT id,|FROM events", "SELECT `id`,|FROM `events`", "same"),
        ("a double-quoted text", "'-'", '"-"', "same"),
        (
            "conditions in a subquery",
            "FROM events WHERE action LIKE 'a%' AND",
            "FROM (SELECT * FROM events WHERE action LIKE 'a%') WHERE",
            "same",
        ),
        ("a semicolon's blank", "other IS NOT NULL", "(other IS NOT NULL)", "same"),
        (
            "other columns in the middle",
            "FROM events WHERE",
            "FROM (SELECT id, n, action, other, price, time, n + 1 AS unused FROM events) WHERE",
            "same",
        ),
        ("De Morgan", "action LIKE 'a%' AND n IN (1, 2)", "NOT (NOT action LIKE 'a%' OR NOT n IN (1, 2))", "same"),
        (
            "branches in another order",
            "WHEN n > 1 THEN 'a' WHEN n > 0 THEN 'b'",
            "WHEN n > 0 THEN 'b' WHEN n > 1 THEN 'a'",
            "forward",
        ),
        ("a branch's text", "ELSE 'c'", "ELSE 'd'", "forward"),
        ("coalesce in another order", "coalesce(other, action)", "coalesce(action, other)", "forward"),
        ("the type of a cast", "AS INT) AS whole", "AS LONG) AS whole", "forward"),
        ("try_cast", "CAST(price AS INT)", "try_cast(price AS INT)", "forward"),
        ("a pattern of dates", "'yyyy-MM'", "'yyyy-mm'", "forward"),
        ("texts in another order", "concat(action, '-', other)", "concat(other, '-', action)", "forward"),
        ("a separator", "'-'", "'_'", "forward"),
        ("how it is rounded", "round(price, 2)", "round(price, 1)", "forward"),
        ("bround", "round(price, 2)", "bround(price, 2)", "forward"),
        ("a field of a JSON", "INT').a AS parsed", "INT').b AS parsed", "forward"),
        ("the schema of a JSON", "'a INT, b INT'", "'a LONG, b INT'", "forward"),
        ("a lambda's code", "x -> x + 1", "x -> x + 2", "forward"),
        ("a lambda's condition", "x -> x > 1", "x -> x > 2", "forward"),
        ("where a fold begins", "array(n, 2), 0,", "array(n, 2), 1,", "forward"),
        ("a fold's code", "a + x", "a - x", "forward"),
        ("what is shuffled", "shuffle(array(n, 7))", "shuffle(array(n, 8))", "forward"),
        ("a hash's length", "sha2(action, 256)", "sha2(action, 512)", "forward"),
        ("a pattern", "'a%'", "'b%'", "forward"),
        ("ILIKE", "action LIKE", "action ILIKE", "forward"),
        ("a value of IN", "IN (1, 2)", "IN (1, 3)", "forward"),
        ("NOT IN", "AND n IN", "AND n NOT IN", "forward"),
        ("a condition gone", " AND other IS NOT NULL", "", "forward"),
        ("AND becomes OR", "'a%' AND n", "'a%' OR n", "forward"),
        ("a comparison's border", "n > 9", "n >= 9", "forward"),
        ("two columns swap their names", "AS month|AS both", "AS both|AS month", "forward"),
    ),
    *changes(
        "aggregates",
        ("array_agg", "collect_list(n)", "array_agg(n)", "same"),
        ("std", "stddev(price)", "std(price)", "same"),
        ("every", "bool_and(n > 0)", "every(n > 0)", "same"),
        ("the conditions of FILTER", "n > 1 AND id > 2", "id > 2 AND n > 1", "same"),
        (
            "HAVING as a filter above",
            "SELECT action, first|GROUP BY action HAVING count(*) > 1",
            "SELECT action, f, l, d, p, m, s, sd, good FROM (SELECT count(*) AS c, action, first|GROUP BY action) WHERE c > 1",
            "rebuild",
        ),
        ("the last in place of the first", "first(n)", "last(n)", "rebuild"),
        ("a NULL is not a first", "first(n)", "first(n, true)", "rebuild"),
        ("a set in place of a list", "collect_list(n)", "collect_set(n)", "rebuild"),
        ("how exact a number is", "approx_count_distinct(id)", "approx_count_distinct(id, 0.01)", "rebuild"),
        ("a percentile", "0.5)", "0.9)", "rebuild"),
        ("min_by", "max_by(n, price)", "min_by(n, price)", "rebuild"),
        ("by another column", "max_by(n, price)", "max_by(n, cost)", "rebuild"),
        ("the condition of FILTER", "n > 1 AND", "n > 2 AND", "rebuild"),
        ("no FILTER", " FILTER (WHERE n > 1 AND id > 2)", "", "rebuild"),
        ("stddev_pop", "stddev(price)", "stddev_pop(price)", "rebuild"),
        ("bool_or", "bool_and(n > 0)", "bool_or(n > 0)", "rebuild"),
        ("HAVING", "HAVING count(*) > 1", "HAVING count(*) > 2", "forward"),
    ),
    *changes(
        "hops",
        ("lengths in seconds", "'10 minutes', '5 minutes'", "'600 seconds', '300 seconds'", "same"),
        ("the slide", "'5 minutes'", "'2 minutes'", "rebuild"),
        ("a tumbling window", "'10 minutes', '5 minutes'", "'10 minutes'", "rebuild"),
        ("where windows begin", "'5 minutes')", "'5 minutes', '1 minute')", "rebuild"),
        ("the window's start", "window.end", "window.start", "forward"),
        ("another order of columns", "window.end AS until, action,", "action, window.end AS until,", "safe"),
        ("the format", "path: out, format: json,", "path: out, format: parquet,", "rebuild"),
        ("the directories of the result", ", partition_by: [action]", "", "rebuild"),
        ("a writer's option", "timestampFormat: yyyy", "timestampFormat: yyyy-MM", "rebuild"),
        ("a writer's option in another case", "timestampFormat: yyyy", "timestampformat: yyyy", "same"),
        ("compression", "timestampFormat: yyyy", "timestampFormat: yyyy, compression: gzip", "same"),
        ("how long files are kept", "path: out, format: json,", "path: out, format: json, retention: 30d,", "same"),
    ),
    *changes(
        "exploded",
        (
            "explode in the SELECT",
            "id, part FROM events LATERAL VIEW explode(split(other, ',')) t AS part",
            "id, explode(split(other, ',')) AS part FROM events",
            "same",
        ),
        ("another alias", "t AS part", "u AS part", "same"),
        ("OUTER", "LATERAL VIEW explode", "LATERAL VIEW OUTER explode", "forward"),
        ("the separator", "','", "';'", "forward"),
        ("what is split", "split(other", "split(action", "forward"),
        ("another delimiter of the result", "format: csv", "format: csv, options: {sep: ;}", "rebuild"),
        ("the same delimiter written out", "format: csv", 'format: csv, options: {delimiter: ","}', "same"),
    ),
    *changes(
        "chain",
        (
            "a view in between",
            '  known: {select: "SELECT id, action, price, time FROM dear',
            '  some: {select: "SELECT * FROM dear"}\n  known: {select: "SELECT id, action, price, time FROM some',
            "same",
        ),
        (
            "views in another order",
            '  dear: {select: "SELECT * FROM events WHERE price > 10"}\n  known: {select: "SELECT id, action, price, time FROM dear WHERE action IS NOT NULL"}\n',
            '  known: {select: "SELECT id, action, price, time FROM dear WHERE action IS NOT NULL"}\n  dear: {select: "SELECT * FROM events WHERE price > 10"}\n',
            "same",
        ),
        (
            "a view written into the query",
            "FROM taxed",
            "FROM (SELECT id, action, price * 1.2 AS price FROM known) taxed",
            "same",
        ),
        (
            "a filter moves to another view",
            "WHERE action IS NOT NULL|FROM events WHERE price > 10",
            "WHERE price > 10|FROM events WHERE action IS NOT NULL",
            "same",
        ),
        (
            "a column that a view passes on",
            "SELECT id, action, price, time FROM dear",
            "SELECT id, action, other, price, time FROM dear",
            "same",
        ),
        ("the deepest filter", "price > 10", "price > 11", "rebuild"),
        ("an expression in between", "price * 1.2", "price * 1.3", "rebuild"),
        ("a condition in between", " WHERE action IS NOT NULL", "", "rebuild"),
        ("a filter behind an expression", "FROM taxed", "FROM taxed WHERE price > 12", "rebuild"),
        ("another source below", "FROM events", "FROM clicks", "rebuild"),
    ),
    *changes(
        "outer",
        ("OUTER written out", "LEFT JOIN", "LEFT OUTER JOIN", "same"),
        (
            "conditions of time in another order",
            "c.time >= e.time AND c.time <= e.time + INTERVAL 1 HOUR",
            "c.time <= e.time + INTERVAL 1 HOUR AND c.time >= e.time",
            "same",
        ),
        (
            "BETWEEN",
            "c.time >= e.time AND c.time <= e.time + INTERVAL 1 HOUR",
            "c.time BETWEEN e.time AND e.time + INTERVAL '1' HOUR",
            "same",
        ),
        ("FULL", "LEFT JOIN", "FULL JOIN", "rebuild"),
        ("RIGHT", "LEFT JOIN", "RIGHT JOIN", "rebuild"),
        ("LEFT SEMI", "c.price FROM events e LEFT JOIN", "e.price FROM events e LEFT SEMI JOIN", "rebuild"),
        ("the border of time", "c.time >= e.time", "c.time > e.time", "rebuild"),
        ("how long is waited", "1 HOUR", "2 HOURS", "rebuild"),
        ("the key", "e.id = c.id", "e.n = c.n", "forbidden"),
        ("a filter behind the join", "INTERVAL 1 HOUR", "INTERVAL 1 HOUR WHERE c.price IS NULL", "forward"),
        (
            "a condition moves behind the join",
            " AND c.time <= e.time + INTERVAL 1 HOUR",
            " WHERE c.time <= e.time + INTERVAL 1 HOUR",
            "rebuild",
        ),
        ("a watermark gone", "    watermark: {column: time, delay: 20 minutes}\n", "", "rebuild"),
    ),
    *changes(
        "known",
        (
            "IN in place of EXISTS",
            "EXISTS (SELECT 1 FROM names n WHERE n.id = e.id)",
            "e.id IN (SELECT id FROM names)",
            "same",
        ),
        (
            "a semi join",
            "FROM events e WHERE EXISTS (SELECT 1 FROM names n WHERE n.id = e.id)",
            "FROM events e LEFT SEMI JOIN names n ON n.id = e.id",
            "same",
        ),
        ("NOT EXISTS", "WHERE EXISTS", "WHERE NOT EXISTS", "forward"),
        ("another condition inside", "n.id = e.id)", "n.id = e.n)", "forward"),
        ("a filter inside", "n.id = e.id)", "n.id = e.id AND n.name > 'p')", "forward"),
        ("a value without a reader", "(1, 'one')", "(1, 'eins')", "same"),
        ("another key in a row", "(1, 'one')", "(3, 'one')", "forward"),
    ),
    *changes(
        "rolled",
        (
            "GROUPING SETS",
            "GROUP BY ROLLUP(action, other)",
            "GROUP BY GROUPING SETS ((action, other), (action), ())",
            "same",
        ),
        ("CUBE", "ROLLUP", "CUBE", "rebuild"),
        ("no subtotals", "ROLLUP(action, other)", "action, other", "forbidden"),
        ("the sink's key in another order", "key: [action, other]", "key: [other, action]", "same"),
        ("the sink's key", "key: [action, other]", "key: [action]", "rebuild"),
        ("patience with the database", "table: rolled,", "table: rolled, retry_seconds: 9,", "same"),
        ("another table", "table: rolled", "table: others", "forbidden"),
        ("another file of the database", "path: out.db", "path: other.db", "same"),
    ),
    *changes(
        "csv",
        ("a comment in a row of the table", "2,3.5\n", "2,3.50\n", "forward"),
        ("a row of the table's file", "2,3.5\n", "2,4.5\n", "forward"),
        ("a row more", "2,3.5\n", "2,3.5\n3,4.5\n", "forward"),
        ("columns in another order", "action STRING, other STRING", "other STRING, action STRING", "forward"),
        ("a column in front", '"id LONG', '"key LONG, id LONG', "forward"),
        ("a column behind", "n INT", "n INT, more STRING", "same"),
        ("a type without a reader", "n INT", "n LONG", "same"),
        ("a header", "timestampFormat: yyyy", "timestampFormat: yyyy, header: true", "forward"),
        ("no header, written out", "timestampFormat: yyyy", "timestampFormat: yyyy, header: false", "same"),
        ("a delimiter", "timestampFormat: yyyy", "timestampFormat: yyyy, sep: ;", "forward"),
        ("a delimiter by its other name", "timestampFormat: yyyy", 'timestampFormat: yyyy, delimiter: ","', "same"),
        ("an option in another case", "timestampFormat: yyyy", "timestampformat: yyyy", "same"),
        ("texts over several lines", "timestampFormat: yyyy", "timestampFormat: yyyy, multiLine: true", "forward"),
        ("a pattern of times", "timestampFormat: yyyy", "timestampFormat: yyyy-MM", "forward"),
        ("what counts as NULL", "timestampFormat: yyyy", "timestampFormat: yyyy, nullValue: NA", "forward"),
        ("directories below", "timestampFormat: yyyy", "timestampFormat: yyyy, recursiveFileLookup: true", "forward"),
        ("some files", "timestampFormat: yyyy", 'timestampFormat: yyyy, pathGlobFilter: "a*"', "forward"),
        ("all files by a pattern", "path: in,", 'path: "in/*",', "safe"),
        ("all files of an ending", "path: in,", 'path: "in/*.csv",', "safe"),
        ("some files by a pattern", "path: in,", 'path: "in/a*",', "forward"),
        ("a path by its root", "path: in,", 'path: "{root}/in",', "same"),
        ("a path as a URI", "path: in,", 'path: "file://{root}/in",', "same"),
        ("a path with a detour", "path: in,", "path: in/../in,", "same"),
        ("values that are rounded", "path: in,", "path: in, inexact: round,", "forward"),
        ("the age of files", "path: in,", "path: in, max_file_age: 7d,", "forward"),
        ("files are archived", "path: in,", "path: in, clean_source: archive, source_archive_dir: done,", "same"),
        ("the newest files first", "path: in,", "path: in, latest_first: true,", "same"),
    ),
    *changes(
        "judged",
        ("a column without a reader must be there", "cost DOUBLE", "cost DOUBLE NOT NULL", "forward"),
        ("a column without a reader has another type", "cost DOUBLE", "cost INT", "forward"),
        ("bad rows end the query", "on_bad_row: quarantine", "on_bad_row: fail", "same"),
        ("types in small letters", "cost DOUBLE", "cost double", "same"),
    ),
    *changes(
        "messages",
        ("the key's order", "key: [id, action]", "key: [action, id]", "rebuild"),
        ("a key less", "key: [id, action]", "key: [id]", "rebuild"),
    ),
]
