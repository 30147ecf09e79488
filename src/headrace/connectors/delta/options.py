"""The options of the Delta source: what is wrong with them, and what Spark's reader is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from headrace.connectors.delta.table import NAME
from headrace.contract import OptionError, ProjectPath
from headrace.storage.location import scheme_of

_SIZE = re.compile(r"\s*\d+\s*[kmgt]?i?b?\s*", re.IGNORECASE)
_EITHER = (
    ("starting_version", "starting_timestamp"),
    ("ignore_changes", "skip_change_commits"),
)


@dataclass(frozen=True, kw_only=True)
class DeltaOptions:
    """The options of the Delta source."""

    path: ProjectPath | None = None
    table: str | None = None
    starting_version: int | Literal["latest"] | None = None
    starting_timestamp: str | None = None
    max_files_per_trigger: int | None = None
    max_bytes_per_trigger: int | str | None = None
    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False
    exclude_regex: str | None = None
    fail_on_data_loss: bool = True

    def problems(self) -> Iterator[OptionError]:
        """Every fault of the options."""
        if (self.path is None) == (self.table is None):
            what = "path and table are both given" if self.path is not None else "neither path nor table is given"
            yield _wrong(what, "give one of the two")
        if self.table is not None and NAME.fullmatch(self.table) is None:
            what = f"'{self.table}' is no name of a table in Spark's own catalog"
            yield _wrong(what, "write table or database.table, of letters, digits and _; or give the table's path")
        for one, other in _EITHER:
            if all(getattr(self, name) is not None and getattr(self, name) is not False for name in (one, other)):
                yield _wrong(f"{one} and {other} are both given", "leave out one of the two")
        if isinstance(self.starting_version, int) and self.starting_version < 0:
            yield _wrong(f"starting_version is {self.starting_version}", "give the number of a version, or latest")
        if self.max_files_per_trigger is not None and self.max_files_per_trigger <= 0:
            what = f"max_files_per_trigger is {self.max_files_per_trigger}"
            yield _wrong(what, "give max_files_per_trigger a number above 0")
        size = self.max_bytes_per_trigger
        if size is not None and (_SIZE.fullmatch(str(size)) is None or not re.search("[1-9]", str(size))):
            yield _wrong(f"max_bytes_per_trigger is '{size}'", "give a number of bytes, or a size such as 64m or 1g")
        if self.exclude_regex is not None:
            try:
                re.compile(self.exclude_regex)
            except re.error as error:
                yield _wrong(f"exclude_regex is no pattern: {error}", "write a regular expression, as part-.*")
        given = self.starting_timestamp
        if given is not None and re.match(r"\d{4}-\d{1,2}-\d{1,2}", str(given).strip()) is None:
            yield _wrong(
                f"starting_timestamp is '{given}'", "write a date or a time, as 2026-01-31 or 2026-01-31 12:00:00"
            )
        if not self.fail_on_data_loss:
            yield OptionError(
                code="HR348",
                what="fail_on_data_loss is false: versions that go before they are read are missed silently",
                fix="leave it true, unless the result may miss rows",
                severity="warning",
            )

    def stream_options(self) -> dict[str, str]:
        """The options of Delta's streaming self."""
        given = {
            "startingVersion": self.starting_version,
            "startingTimestamp": self.starting_timestamp,
            "maxFilesPerTrigger": self.max_files_per_trigger,
            "maxBytesPerTrigger": self.max_bytes_per_trigger,
            "excludeRegex": self.exclude_regex,
        }
        found = {name: str(value) for name, value in given.items() if value is not None}
        switches = {
            "ignoreDeletes": self.ignore_deletes,
            "ignoreChanges": self.ignore_changes,
            "skipChangeCommits": self.skip_change_commits,
        }
        found |= {name: "true" for name, value in switches.items() if value}
        return found if self.fail_on_data_loss else {**found, "failOnDataLoss": "false"}


def _wrong(what: str, fix: str) -> OptionError:
    return OptionError(code="HR341", what=what, fix=fix)


def one_writer(path: str | None) -> Iterator[OptionError]:
    """What holds of a table in a bucket: Delta's own way there looks first whether a version is there, then puts it."""
    if path is not None and scheme_of(path) == "s3a":
        yield OptionError(
            code="HR840",
            what=f"the Delta table '{path}' is in a bucket, where Delta keeps only writers of one driver from taking "
            "the same version of it, unless spark.delta.logStore.s3a.impl says otherwise",
            fix="let no other application write the table; or set spark.delta.logStore.s3a.impl to a log store for "
            "several, as Delta's documentation tells, in all of them",
            severity="note",
        )
