"""Languages in which tests run databases."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

# A comma in numbers, and an i whose capital is not an I.
LOCALES = ("de_DE.UTF-8", "tr_TR.UTF-8")


def missing_locale(name: str) -> str | None:
    """What to do to get a locale; None when it is there."""
    listed = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout.lower().split()
    is_there = name.lower().replace("-", "") in listed
    return None if is_there else f"the locale {name} is not here: `make servers` makes it"


def making(prefix: Sequence[str]) -> list[list[str]]:
    """The commands that make the missing ones, from Debian's package `locales`."""
    missing = [name for name in LOCALES if missing_locale(name)]
    return [[*prefix, "localedef", "-i", name.partition(".")[0], "-f", "UTF-8", name] for name in missing]
