"""Spark's options for values as JSON of which nothing is left out or shortened, and that reads back as it was."""

from __future__ import annotations

# Spark writes milliseconds by default, and an offset without the seconds that old ones of most zones have.
TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
# NULLs are written, and times are those of the session's zone.
WHOLE = {"ignoreNullFields": "false", **TIMES}
WHOLE_UTC = {**WHOLE, "timeZone": "UTC"}
