"""What people write by hand: foreachBatch row by row, with executemany, and Spark's own JDBC writer."""

from __future__ import annotations
