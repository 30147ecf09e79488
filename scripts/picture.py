"""Run the demo and put what it prints into docs/tutorial/demo.md, between `picture:begin` and `picture:end`."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tutorial" / "demo.md"


def main() -> int:
    """The demo's exit code; a demo that fails changes nothing."""
    headrace = Path(sys.executable).parent / "headrace"
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run([str(headrace), "demo", "demo"], cwd=place, stdout=subprocess.PIPE, text=True)
    if done.returncode == 0:
        printed = "\n".join(line.rstrip() for line in done.stdout.splitlines())
        picture = f"\n```text\n$ headrace demo demo\n{printed}\n```\n\n"
        text = PAGE.read_text(encoding="utf-8")
        pattern = re.compile(r"(<!-- picture:begin[^>]*-->\n).*?(<!-- picture:end -->)", re.DOTALL)
        PAGE.write_text(pattern.sub(lambda match: match[1] + picture + match[2], text), encoding="utf-8")
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
