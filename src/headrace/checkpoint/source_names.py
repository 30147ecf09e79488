"""The names of the sources in a checkpoint, changed where sources were renamed.

A ledger tells batches apart by digests, in which the sources have the names of that time. So the checkpoint keeps the
name by which a ledger knows each source that was renamed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from headrace.checkpoint.logs import broken, numbered, text_of
from headrace.checkpoint.rewrite import replace_file
from headrace.checkpoint.uses import source_of
from headrace.storage import durable

FILE = "headrace_sources.json"


def ledger_names(root: Path) -> dict[str, str]:
    """By the present name of a source, the one by which ledgers know it; only of those that were renamed."""
    file = root / FILE
    text = text_of(file)
    if text is None:
        return {}
    try:
        return {str(name): str(known) for name, known in json.loads(text).items()}
    except (ValueError, AttributeError) as error:
        raise broken(file, "it names no sources") from error


def rename_for_ledgers(root: Path, names: Mapping[str, str]) -> None:
    """Keep by which name ledgers know the sources that `names` renames, old to new; done again, it changes nothing."""
    known = ledger_names(root)
    changed = dict(known)
    for old, new in names.items():
        if new not in known:
            changed[new] = changed.pop(old, old)
    if changed != known:
        durable.replace_file(root / FILE, json.dumps(changed) + "\n")


def rename_logs(root: Path, names: Mapping[str, str]) -> None:
    """Give the sources' own logs their new names."""
    folder = root / "sources"
    for each in sorted(folder.iterdir()) if folder.is_dir() else ():
        new = folder / renamed(each.name, names)
        if new != each:
            each.rename(new)
            durable.sync_directory(folder)


def rename_offsets(root: Path, names: Mapping[str, str]) -> None:
    """Let each batch's offsets name the sources by their new names; the newest last, as it tells that all is done."""
    for file in numbered(root / "offsets").values():
        text = text_of(file)
        changed = None if text is None else renamed_text(text, names)
        if changed is not None and changed != text:
            replace_file(file, changed)


def renamed(use: str, names: Mapping[str, str]) -> str:
    """The new name of a source, or of a further use of it."""
    source = source_of(use)
    return names.get(source, source) + use.removeprefix(source)


def renamed_text(text: str, names: Mapping[str, str]) -> str:
    """The offsets of a batch, as Spark writes them by the sources' names, with other names."""
    version, _, rest = text.partition("\n")
    if not names or version != "v2":
        return text
    facts, *lines = rest.split("\n")
    parts = (line.partition(":") for line in lines)
    return "\n".join([version, facts, *(f"{renamed(name, names)}{colon}{offset}" for name, colon, offset in parts)])
