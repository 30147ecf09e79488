"""Spark's messages turned into findings."""
