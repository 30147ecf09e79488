"""How queries that use Delta Lake fail, known by words of the message."""

from __future__ import annotations

from headrace.contract import Failure

FAILURES = (
    Failure(
        code="HR344",
        pattern=r"DELTA_SOURCE_TABLE_IGNORE_CHANGES|DELTA_SOURCE_IGNORE_DELETE",
        what="rows of a Delta table that it reads were changed or deleted",
        fix=(
            "start again with skip_change_commits to leave such versions out, or with ignore_deletes, where rows were "
            "only deleted; or reset the query (headrace reset QUERY)"
        ),
    ),
    Failure(
        code="HR345",
        pattern=r"DELTA_SCHEMA_CHANGED|DELTA_STREAMING_\w*SCHEMA_(?:CHANGE|MISMATCH|EVOLUTION)",
        what="the columns of a Delta table that it reads have changed meanwhile",
        fix=(
            "start again: the query continues with the new columns; if a column was dropped, renamed or got another "
            "type, reset the query (headrace reset QUERY)"
        ),
    ),
    Failure(
        code="HR346",
        pattern=(
            r"DELTA_VERSION_NOT_FOUND|VersionNotFoundException|DELTA_TIMESTAMP_GREATER_THAN_COMMIT|"
            r"Cannot time travel Delta table to version"
        ),
        what="a Delta table does not have the version to resume from: its log was cut, or the given start is too late",
        fix=(
            "give starting_version or starting_timestamp a version that the table has, as DESCRIBE HISTORY shows them; "
            "if the query has run before, reset it, and let the table keep its log for longer"
        ),
    ),
    Failure(
        code="HR347",
        pattern=r"DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
        what="a Delta table that it reads is another one than that which its checkpoint knows",
        fix="put the old table back, or reset the query (headrace reset QUERY)",
    ),
    Failure(
        code="HR343",
        pattern=(
            r"DELTA_(?:LOG_FILE_NOT_FOUND|MISSING_FILES_UNEXPECTED_VERSION|STREAMING_TRAILING_COMMIT_MISSING|"
            r"TRUNCATED_TRANSACTION_LOG|FILE_NOT_FOUND)"
        ),
        what="versions or files of a Delta table were deleted before they were read",
        fix=(
            "restore them, or reset the query (headrace reset QUERY); let the table keep more: "
            "delta.logRetentionDuration, and VACUUM "
            "with a longer time"
        ),
    ),
)
