"""The copy of `change_data_flink`, as an expert writes it in Flink's SQL: two tasks, large batches, no materializer.

python flink_changes.py BROKER TOPIC JDBC_URL USER PASSWORD CHECKPOINTS JARS
"""

import sys

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

broker, topic, url, user, password, checkpoints, jars = sys.argv[1:8]

SETTINGS = {
    "parallelism.default": "2",
    "pipeline.jars": jars,
    "pipeline.object-reuse": "true",
    "state.backend.type": "hashmap",
    "execution.checkpointing.interval": "30 s",
    "execution.checkpointing.dir": f"file://{checkpoints}",
    # The changes of a key come from one partition in their order, so that the sink needs no state to order them.
    "table.exec.sink.upsert-materialize": "NONE",
}
COLUMNS = "id BIGINT, name STRING, city STRING, points BIGINT, PRIMARY KEY (id) NOT ENFORCED"
SOURCE = {
    "connector": "kafka",
    "topic": topic,
    "properties.bootstrap.servers": broker,
    "scan.startup.mode": "earliest-offset",
    "scan.bounded.mode": "latest-offset",
    "format": "debezium-json",
}
SINK = {
    "connector": "jdbc",
    "url": url,
    "table-name": "customers",
    "username": user,
    "password": password,
    "sink.buffer-flush.max-rows": "10000",
    "sink.buffer-flush.interval": "1 s",
}


def options(given: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in given.items())


configuration = Configuration()
for name, value in SETTINGS.items():
    configuration.set_string(name, value)
settings = EnvironmentSettings.Builder().in_streaming_mode().with_configuration(configuration).build()
tables = TableEnvironment.create(settings)
tables.execute_sql(f"CREATE TABLE feed ({COLUMNS}) WITH ({options(SOURCE)})")
tables.execute_sql(f"CREATE TABLE copied ({COLUMNS}) WITH ({options(SINK)})")
tables.execute_sql("INSERT INTO copied SELECT * FROM feed").wait()
