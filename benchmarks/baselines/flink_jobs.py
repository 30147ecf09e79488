"""The jobs of `against_flink`, as an expert writes them in Flink's SQL: streaming, two tasks, exactly-once checkpoints.

python flink_jobs.py JOB LANDING RESULT CHECKPOINTS

RESULT is the SQLite file of the jobs `headline` and `latency`, and a directory for the others. `latency` does not end.
"""

import sqlite3
import sys
import time

from pyflink.common import Configuration, RowKind
from pyflink.table import EnvironmentSettings, TableEnvironment, TableResult

job, landing, result, checkpoints = sys.argv[1:5]

SETTINGS = {
    "parallelism.default": "2",
    "table.local-time-zone": "UTC",
    "pipeline.object-reuse": "true",
    # State on the heap, which is Flink's fastest, and a checkpoint of it now and then.
    "state.backend.type": "hashmap",
    "execution.checkpointing.interval": "30 s",
    "execution.checkpointing.dir": f"file://{checkpoints}",
    # Counts are brought together before they reach the state and the result.
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "50000",
}
# What changes where each row is waited for.
AT_ONCE = {"execution.checkpointing.interval": "100 ms", "table.exec.mini-batch.allow-latency": "50 ms"}
PHONES = "phone_id STRING, `time` TIMESTAMP_LTZ(3), action STRING"
# The source hands out files in no order, so that a short delay would drop the rows of those read late.
CLICKS = """id BIGINT, session STRING, `time` TIMESTAMP_LTZ(3), page STRING, `value` DOUBLE, agent STRING,
    WATERMARK FOR `time` AS `time` - INTERVAL '1' DAY"""
HEADLINE = """
    SELECT action, DATE_FORMAT(FLOOR(`time` TO HOUR), 'yyyy-MM-dd HH:mm:ss') AS `hour`, COUNT(*) AS `count`
    FROM events GROUP BY action, FLOOR(`time` TO HOUR)"""
# What is written, as which format, and the query.
INSERTS = {
    "groups": (
        "begins TIMESTAMP(3), session STRING, `count` BIGINT, total DOUBLE",
        "parquet",
        """SELECT window_start, session, COUNT(*), SUM(`value`)
        FROM TUMBLE(TABLE events, DESCRIPTOR(`time`), INTERVAL '10' MINUTE)
        GROUP BY window_start, window_end, session""",
    ),
    "rows": (
        "id BIGINT, session STRING, `time` TIMESTAMP_LTZ(3), page STRING, `value` DOUBLE, agent STRING",
        "csv",
        "SELECT * FROM events",
    ),
    "sliding": (
        "begins TIMESTAMP(3), page STRING, `count` BIGINT",
        "parquet",
        """SELECT window_start, page, seen FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY seen DESC, page DESC) AS place
            FROM (
                SELECT window_start, window_end, page, COUNT(*) AS seen
                FROM HOP(TABLE events, DESCRIPTOR(`time`), INTERVAL '2' SECOND, INTERVAL '10' SECOND)
                GROUP BY window_start, window_end, page)
        ) WHERE place = 1""",
    ),
    "highest": (
        "begins TIMESTAMP(3), highest DOUBLE",
        "parquet",
        """SELECT window_start, MAX(`value`)
        FROM TUMBLE(TABLE events, DESCRIPTOR(`time`), INTERVAL '10' SECOND)
        GROUP BY window_start, window_end""",
    ),
}


def upsert(counts: TableResult) -> None:
    """Write the stream of changes as it comes; there is no SQLite among the dialects of Flink's JDBC connector."""
    connection = sqlite3.connect(result, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE counts (action TEXT, hour TEXT, count INTEGER, PRIMARY KEY (action, hour))")
    changes, committed = [], time.monotonic()
    with counts.collect() as rows:
        for row in rows:
            # The state of a key before a change is of no use to an upsert.
            if row.get_row_kind() != RowKind.UPDATE_BEFORE:
                changes.append(tuple(row))
            if job == "latency" or len(changes) >= 1000 or time.monotonic() - committed > 1:
                commit(connection, changes)
                changes, committed = [], time.monotonic()
    commit(connection, changes)
    connection.close()


def commit(connection: sqlite3.Connection, changes: list[tuple[object, ...]]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT (action, hour) DO UPDATE SET count = excluded.count", changes
    )
    connection.execute("COMMIT")


configuration = Configuration()
for name, value in {**SETTINGS, **(AT_ONCE if job == "latency" else {})}.items():
    configuration.set_string(name, value)
settings = EnvironmentSettings.Builder().in_streaming_mode().with_configuration(configuration).build()
tables = TableEnvironment.create(settings)
files = "'connector' = 'filesystem', 'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'"
schema = CLICKS if job in INSERTS else PHONES
if job == "latency":
    files += ", 'source.monitor-interval' = '50 ms'"
tables.execute_sql(f"CREATE TABLE events ({schema}) WITH ({files}, 'path' = 'file://{landing}')")
if job not in INSERTS:
    upsert(tables.execute_sql(HEADLINE))
else:
    columns, form, query = INSERTS[job]
    tables.execute_sql(
        f"CREATE TABLE written ({columns}) WITH ('connector' = 'filesystem', 'format' = '{form}', 'path' = 'file://{result}')"
    )
    tables.execute_sql(f"INSERT INTO written {query}").wait()
