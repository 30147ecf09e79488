"""Cases of five batches in one session: the seconds of each by the test kit, and of the plain batch query."""

import random
import sys
import time
from pathlib import Path

import headrace as hr
from headrace.testing import timeline
from headrace.testing.spark_session import shared_session

ACTIONS = ("open", "close", "pay")
PLAIN = """
SELECT action, window(time, '1 hour').start AS hour, count(*) AS count
FROM VALUES {rows} AS events(phone_id, time, action) GROUP BY action, window(time, '1 hour')
"""

project = hr.load(Path(__file__).parents[1] / "examples" / "mobile-monitoring")
spark = shared_session()
spark.range(3).count()
drawn = random.Random(1)
for _ in range(int(sys.argv[1])):
    batches = [
        [
            (f"phone{drawn.randrange(9)}", f"{drawn.randrange(24):02}:{drawn.randrange(60):02}", drawn.choice(ACTIONS))
            for _ in range(drawn.randint(1, 4))
        ]
        for _ in range(5)
    ]
    begun = time.perf_counter()
    run = timeline(project, "counts_in_postgres", spark=spark, events=batches)
    ended = time.perf_counter()
    assert run.final == run.batch
    rows = ", ".join(
        f"('{phone}', TIMESTAMP '2024-01-01 {at}', '{action}')" for batch in batches for phone, at, action in batch
    )
    plain = spark.sql(PLAIN.format(rows=rows)).collect()
    assert sorted((row.action, f"{row.hour:%H:%M}", row["count"]) for row in plain) == sorted(
        (row.action, f"{row.hour:%H:%M}", row.count) for row in run.final
    )
    print(ended - begun, time.perf_counter() - ended, flush=True)
