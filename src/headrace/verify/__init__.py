"""Read-only proofs that a sink holds the batch answer over the committed prefix of its sources."""

from headrace.verify.answer import LateInput
from headrace.verify.proof import late_rows, verify
from headrace.verify.verdict import Difference, LateRow, Verdict

__all__ = ["Difference", "LateInput", "LateRow", "Verdict", "late_rows", "verify"]
