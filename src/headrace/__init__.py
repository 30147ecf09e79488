"""Headrace: write the batch query, run it as a stream, and prove that the result is right."""

__version__ = "0.1.0"
