"""The session of Headrace, for the purpose given, and two trivial jobs."""

import sys

from headrace.spark.jvm.session import start

spark = start(master="local[2]", purpose="short" if sys.argv[1] == "short" else "stream", name="two jobs")
spark.range(3).count()
spark.range(3).count()
print("done", flush=True)
spark.stop()
