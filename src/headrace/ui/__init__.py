"""The dashboard: a JSON API and pages over the history and the project's structure, without Spark."""
