"""Findings about a project: its structure without Spark, its analysed queries with Spark."""
