"""A rebuilt table put in place, and taken back, where a catalog renames one table at a time.

Which names are there tells how far it came, so that each may be called again after a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Renames:
    """The names of a table, of the one beside it and of the one that is set aside, and what its catalog can do."""

    name: str
    beside: str
    aside: str
    exists: Callable[[str], bool]
    rename: Callable[[str, str], None]

    def swap_in(self) -> None:
        """Set the table aside, and give the one beside its name."""
        if not self.exists(self.beside):
            return
        if self.exists(self.name):
            self.rename(self.name, self.aside)
        self.rename(self.beside, self.name)

    def swap_out(self) -> None:
        """Take that back."""
        if not self.exists(self.beside) and self.exists(self.name):
            self.rename(self.name, self.beside)
        if self.exists(self.aside) and not self.exists(self.name):
            self.rename(self.aside, self.name)
