"""Spark's plans as Python values."""
