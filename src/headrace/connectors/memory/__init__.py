"""Spark's memory sink."""
