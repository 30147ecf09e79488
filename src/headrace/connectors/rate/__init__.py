"""Spark's generators of rows."""
