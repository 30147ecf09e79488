"""What is wrong with the options of a Delta source, and what Spark's reader is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.connectors.delta.table import NAME
from headrace.contract import OptionError

if TYPE_CHECKING:
    from headrace.connectors.delta.source import Delta

_SIZE = re.compile(r"\s*\d+\s*[kmgt]?i?b?\s*", re.IGNORECASE)
_EITHER = (
    ("starting_version", "starting_timestamp"),
    ("ignore_changes", "skip_change_commits"),
)


def problems(source: Delta) -> Iterator[OptionError]:
    """Every fault of the options of `source`."""
    if (source.path is None) == (source.table is None):
        what = "path and table are both given" if source.path is not None else "neither path nor table is given"
        yield _wrong(what, "give one of the two")
    if source.table is not None and NAME.fullmatch(source.table) is None:
        what = f"'{source.table}' is no name of a table in Spark's own catalog"
        yield _wrong(what, "write table or database.table, of letters, digits and _; or give the table's path")
    for one, other in _EITHER:
        if all(getattr(source, name) is not None and getattr(source, name) is not False for name in (one, other)):
            yield _wrong(f"{one} and {other} are both given", "leave out one of the two")
    if isinstance(source.starting_version, int) and source.starting_version < 0:
        yield _wrong(f"starting_version is {source.starting_version}", "give the number of a version, or latest")
    if source.max_files_per_trigger is not None and source.max_files_per_trigger <= 0:
        what = f"max_files_per_trigger is {source.max_files_per_trigger}"
        yield _wrong(what, "give max_files_per_trigger a number above 0")
    size = source.max_bytes_per_trigger
    if size is not None and (_SIZE.fullmatch(str(size)) is None or not re.search("[1-9]", str(size))):
        yield _wrong(f"max_bytes_per_trigger is '{size}'", "give a number of bytes, or a size such as 64m or 1g")
    if source.exclude_regex is not None:
        try:
            re.compile(source.exclude_regex)
        except re.error as fault:
            yield _wrong(f"exclude_regex is no pattern: {fault}", "write a regular expression, as part-.*")
    given = source.starting_timestamp
    if given is not None and re.match(r"\d{4}-\d{1,2}-\d{1,2}", str(given).strip()) is None:
        yield _wrong(f"starting_timestamp is '{given}'", "write a date or a time, as 2026-01-31 or 2026-01-31 12:00:00")
    if not source.fail_on_data_loss:
        yield OptionError(
            code="HR348",
            what="fail_on_data_loss is false: versions that go before they are read are missed without a word",
            fix="leave it true, unless the result may miss rows",
            severity="warning",
        )


def _wrong(what: str, fix: str) -> OptionError:
    return OptionError(code="HR341", what=what, fix=fix)


def stream_options(source: Delta) -> dict[str, str]:
    """The options of Delta's streaming source."""
    given = {
        "startingVersion": source.starting_version,
        "startingTimestamp": source.starting_timestamp,
        "maxFilesPerTrigger": source.max_files_per_trigger,
        "maxBytesPerTrigger": source.max_bytes_per_trigger,
        "excludeRegex": source.exclude_regex,
    }
    found = {name: str(value) for name, value in given.items() if value is not None}
    switches = {
        "ignoreDeletes": source.ignore_deletes,
        "ignoreChanges": source.ignore_changes,
        "skipChangeCommits": source.skip_change_commits,
    }
    found |= {name: "true" for name, value in switches.items() if value}
    return found if source.fail_on_data_loss else {**found, "failOnDataLoss": "false"}
