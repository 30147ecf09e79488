"""Spark's console sink."""
