"""Try failed tests alone, once: `python -m scripts.once_more`, after `pytest` failed.

Some 2,000 tests of real processes wait for what a busy machine may delay beyond any limit. When at most two of them
fail, each runs again in a process of its own with nothing next to it. The names of those that pass now are printed as
unstable: the cause is to be found, in the test or in the product. A plain test starts nothing, so it fails at once, and
so do three failures.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST = 2
FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"


def main() -> int:
    """Return 0 if each failed test passes alone, else 1."""
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not 0 < len(failed) <= MOST:
        return 1
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist"]
    # 5: each of them is plain, and so was left out.
    for test in failed:
        print(f"\nFailed once, tried alone: {test}", flush=True)
        if subprocess.run([*pytest, "-m", "not plain", test], cwd=ROOT).returncode:
            return 1
    print("\nUnstable: these tests failed among the others and passed alone. Find the cause:", *failed, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
