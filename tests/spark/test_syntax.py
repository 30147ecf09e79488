"""A comma too many is said to be one, wherever it stands in a SELECT."""

from __future__ import annotations

import pytest

from headrace.spark.messages.wrong_words import fix_at, stop

pytestmark = pytest.mark.plain

COMMAS = {
    "two": ("SELECT id,, name FROM events", 10, "remove one of the two commas"),
    "first": ("SELECT , id FROM events", 7, "remove the comma behind SELECT"),
    "between conditions": (
        "SELECT id FROM events WHERE id = 1, name = 'a'",
        34,
        "write AND or OR",
    ),
    "before an alias": ("SELECT e.id, FROM events e", 25, "remove the comma before FROM"),
    "last in brackets": ("SELECT id FROM events WHERE id IN (1, )", 38, "remove the comma before )"),
    "last": ("SELECT id FROM events,", 22, "remove the comma at the end"),
}


@pytest.mark.parametrize(("sql", "position", "fix"), COMMAS.values(), ids=COMMAS)
def test_a_comma_too_many_is_reported(sql: str, position: int, fix: str) -> None:
    message = f"Syntax error (line 1, pos {position})\n\n== SQL ==\n{sql}\n{'-' * position}^^^\n"
    assert fix_at(stop(message)).startswith(fix)
