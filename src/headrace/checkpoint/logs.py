"""The places of a checkpoint's parts, and its logs, which are directories of numbered files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headrace.errors import CheckpointError, Finding, Where, reason
from headrace.storage import durable

COMPACT = ".compact"
RESTORE = "restore it from a backup, or reset the query (headrace reset QUERY)"


class Part:
    """The names of the parts of a checkpoint."""

    ID_FILE = "metadata"
    OFFSETS, COMMITS = "offsets", "commits"  # A file for each batch, planned or done.
    SOURCES = "sources"  # The sources' own logs, by their names.
    STATE = "state"  # The state of each stateful operator, by its number.
    DESCRIPTIONS = ("_metadata", "v2")  # Spark's descriptions in an operator's directory.


def numbered_files(folder: Path) -> dict[int, Path]:
    """The batch files of a log by number, in order; checksums, temporary and other files are left out.

    A missing folder is an empty log. Where both N and N.compact are there, N.compact is meant, as it holds N too.
    """
    files: dict[int, Path] = {}
    try:
        names = durable.names_in(folder)
    except (FileNotFoundError, NotADirectoryError):
        return files
    except OSError as error:
        raise CheckpointError(unreadable_directory(folder, error)) from error
    for name in sorted(names):
        number = name.removesuffix(COMPACT)
        if number.isascii() and number.isdigit():
            files[int(number)] = folder / name
    return dict(sorted(files.items()))


def operator_descriptions(root: Path) -> Iterator[Path]:
    """The files in which Spark describes the stateful operators of a checkpoint, with absolute paths."""
    files = (root / Part.STATE).glob("/".join(("*", *Part.DESCRIPTIONS, "*")))
    return (file for file in files if not file.name.startswith("."))


def is_description(inside: Path) -> bool:
    """Whether a path within a checkpoint is one of those files."""
    return inside.parts[:1] == (Part.STATE,) and inside.parts[2:4] == Part.DESCRIPTIONS


def unreadable_directory(place: Path, error: OSError) -> Finding:
    """The finding for a directory that the system does not let us read."""
    return Finding(
        code="HR540",
        where=Where(file=str(place)),
        what=f"the directory cannot be read: {reason(error)}",
        fix="give the user that runs the query the right to read and write the storage directory",
    )


def missing_entry(log: Path, number: int, more: int = 0) -> Finding:
    """The finding for a gap in the log of a source."""
    others = f" and {more} more" if more else ""
    fault = f"the log of source '{log.name}' lacks entry {number}{others}: Spark cannot know which files it has read"
    return Finding(code="HR509", where=Where(file=str(log / str(number))), what=fault, fix=RESTORE)


def text_of(file: Path) -> str | None:
    """The file's text, or None when it is gone, as files of a running query may be at any time."""
    try:
        return file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise broken_file(file, f"it cannot be read: {reason(error)}") from error


def body(file: Path, text: str, *, versions: tuple[int, ...] = (1,)) -> tuple[int, list[str]]:
    """The version and the lines after it; raises CheckpointError for an empty file or an unknown version."""
    # Not splitlines: Spark ends lines at \n alone, and a JSON text may hold U+2028 and its like.
    # Before the version, Kafka's log has a zero byte, which Spark 2.1 asked for.
    first, *lines = text.removeprefix("\0").split("\n")
    if not text.strip("\0 \n\r\t"):
        raise broken_file(file, "it is empty")
    digits = first.strip().removeprefix("v")
    if not (first.startswith("v") and digits.isascii() and digits.isdigit()):
        raise broken_file(file, f"its first line is {first[:40]!r} in place of a version")
    if int(digits) not in versions:
        raise CheckpointError(
            code="HR507",
            where=Where(file=str(file)),
            what=f"the file is of version {first.strip()}, and this Headrace reads "
            + " and ".join(f"v{version}" for version in versions),
            fix="upgrade Headrace: the checkpoint was written by a newer Spark",
        )
    return int(digits), lines


def broken_file(file: Path, why: str) -> CheckpointError:
    """The error for a file that a crash of the machine, or a person, has damaged."""
    folder, name = file.parent.name, file.name
    if folder == Part.OFFSETS:
        fix = (
            f"if it is the newest and the sink's ledger does not hold batch {name}, delete it and .{name}.crc: "
            "Spark then plans the batch again; otherwise restore it from a backup, or reset the query (headrace reset "
            "QUERY)"
        )
    elif folder == Part.COMMITS:
        fix = f"delete it and .{name}.crc next to it: Spark then runs the batch again, and the sink skips what it has"
    else:
        fix = RESTORE
    return CheckpointError(
        code="HR503", where=Where(file=str(file)), what=f"a file of the checkpoint is damaged: {why}", fix=fix
    )


def replace_file(file: Path, text: str) -> None:
    """Replace a file by `text`, whole: a crash leaves the former text or the new one. Raises OSError.

    Hadoop's checksum of the old text goes first: Hadoop reads a file without a checksum, and refuses one with a wrong
    checksum. The directory is synced between the two, so that no power cut brings the checksum back.
    """
    _remove_checksum(file)
    durable.replace_file(file, text)


def remove_file(file: Path) -> None:
    """Remove a file and its checksum; a missing one is no fault. Raises OSError."""
    _remove_checksum(file)
    file.unlink(missing_ok=True)
    durable.sync(file.parent)


def checksum_of(file: Path) -> Path:
    """The file in which Hadoop keeps the checksums of a local file."""
    return file.with_name(f".{file.name}.crc")


def _remove_checksum(file: Path) -> None:
    checksum = checksum_of(file)
    if checksum.exists():
        checksum.unlink(missing_ok=True)
        durable.sync(file.parent)
