"""The Python way to declare a project: sources, sinks, views, tables, queries and triggers."""
