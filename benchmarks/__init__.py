"""Benchmarks: each runs both sides interleaved and writes what it found to benchmarks/results."""
