"""The command `headrace`: a file for the commands of a subject; each parses, calls a public function, and renders."""

from headrace.cli.entry import main

__all__ = ["main"]
