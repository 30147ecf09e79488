"""The command `headrace`: one file a command; each parses, calls one public function, renders, and returns a code."""

from headrace.cli.entry import main

__all__ = ["main"]
