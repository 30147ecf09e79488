"""Iceberg: tables as a source and a sink."""
