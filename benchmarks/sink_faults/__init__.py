"""A conformance kit for any Spark streaming sink: faults on a query of plain PySpark."""
