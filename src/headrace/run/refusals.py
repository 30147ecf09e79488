"""Which findings refuse a start until somebody changes the project, so that starting again does not help."""

from __future__ import annotations

from headrace.errors import Finding
from headrace.findings import has_passing_words

# Declarations, queries that Spark cannot run as a stream, options, and changes that the checkpoint does not allow. What
# others can bring while the application waits has no place here: a directory, a topic, a table, a right, a secret's
# file, a variable of the service; nor has what damages a checkpoint or a sink.
_OF_THE_PROJECT = """
HR091 HR101 HR103-HR104 HR109 HR112-HR114 HR116-HR117 HR121-HR123 HR125 HR128 HR130
HR203-HR204 HR210-HR211 HR213-HR214 HR216-HR228 HR230-HR232 HR251-HR255 HR259 HR261-HR262 HR264-HR267
HR271-HR274 HR277-HR280 HR282-HR286 HR288-HR292 HR294-HR296
HR320 HR322
HR403-HR404 HR413 HR415-HR416 HR432 HR460-HR463
HR535-HR537 HR546-HR548 HR550
HR631
HR800-HR804 HR827-HR829 HR834 HR838 HR873
"""


def _codes(ranges: str) -> frozenset[str]:
    found = [(first, last or first) for first, _, last in (each.partition("-") for each in ranges.split())]
    return frozenset(f"HR{number:03d}" for first, last in found for number in range(int(first[2:]), int(last[2:]) + 1))


OF_THE_PROJECT = _codes(_OF_THE_PROJECT)


def is_refusal(finding: Finding) -> bool:
    """Whether no start can succeed before the project is changed; the code of its functions may fail of what passes."""
    return finding.code in OF_THE_PROJECT and not has_passing_words(finding.what)
