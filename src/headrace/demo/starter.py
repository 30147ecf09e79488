"""Write a project that runs at once: the monitoring query of mobile-app events, in Python or in YAML and SQL.

Source: "Structured Streaming In Apache Spark", the mobile monitoring application: actions of each kind in each hour.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from headrace.demo.generator import write_file
from headrace.errors import HeadraceError, reason
from headrace.loader.schema import schema

Form = Literal["python", "sql"]

TEMPLATES = Path(__file__).parent / "templates"

LANDING = Path("landing/events")
RESULT = Path("result.db")
# The first line of headrace.yml names it, so that an editor finds it without a network.
SCHEMA = Path("headrace.schema.json")
QUERY = "action_counts"
FILES, SEED = 3, 7


def write_project(directory: Path, *, form: Form = "python", event_files: int = FILES) -> list[Path]:
    """Write the project into `directory`, which is made if need be, and name the files, relative to it.

    Raises HeadraceError when there is something in it already; nothing is written then.
    """
    refuse_unless_empty(directory)
    name = directory.resolve().name
    written: list[Path] = []
    try:
        for relative, text in _texts(TEMPLATES / form):
            path = directory / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{{name}}", name), encoding="utf-8")
            written.append(relative)
        (directory / SCHEMA).write_text(json.dumps(schema()) + "\n", encoding="utf-8")
        written.append(SCHEMA)
        for number in range(event_files):
            write_file(directory / LANDING, number, seed=SEED)
            written.append(LANDING / f"events-{number:06d}.json")
        (directory / LANDING).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HeadraceError(
            code="HR093",
            what=f"the project cannot be written to '{directory}': {reason(error)}",
            fix="name a directory that you may write to and that has room",
        ) from error
    return written


def refuse_unless_empty(directory: Path) -> None:
    """Raise HeadraceError when a project cannot be written to `directory` without touching what is there."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return
    state = "is not empty" if directory.is_dir() else "is a file"
    raise HeadraceError(
        code="HR093", what=f"'{directory}' {state}; nothing was written", fix="name a directory that does not exist yet"
    )


def _texts(template: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of a template, in the order of their paths.

    `dot-` at the front of a name stands for a dot, and `.template` at its end keeps tools from taking it for ours.
    """
    for path in sorted(template.rglob("*")):
        if path.is_file():
            relative = path.relative_to(template)
            name = relative.name.removesuffix(".template")
            if name.startswith("dot-"):
                name = "." + name.removeprefix("dot-")
            yield relative.with_name(name), path.read_text(encoding="utf-8")
