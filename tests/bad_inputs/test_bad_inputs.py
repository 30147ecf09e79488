"""What people type wrongly is answered by one sentence with place, code, what and fix, quickly, and with no trace."""

from __future__ import annotations

import re
import time

import pytest

from headrace.cli import main
from tests.bad_inputs.projects import CHECK, Row, make, rows

ROWS = rows()
AT_A_LINE = {
    "source",
    "schema",
    "watermark",
    "query",
    "queries",
    "select",
    "sink",
    "sinkmode",
    "top",
    "target",
    "python",
}
MOST_SECONDS = 5.0


@pytest.mark.plain
def test_the_table_is_long_and_whole():
    assert len(ROWS) >= 700
    assert len({(row.kind, row.text) for row in ROWS}) >= 800
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert [row.id for row in ROWS if not (row.code and row.what and row.fix)] == []


@pytest.mark.plain
@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_a_bad_input_is_reported(row: Row, tmp_path, monkeypatch, capsys):
    root = tmp_path / "p"
    root.mkdir()
    command, variables = make(row, root)
    monkeypatch.chdir(root)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    began = time.process_time()
    code = main(list(command))
    duration = time.process_time() - began
    printed = capsys.readouterr()
    text = printed.out + printed.err
    # A warning stops nothing.
    assert code in ((0,) if re.search(r" HR\d{3} \(warning\): ", text) else (1, 2, 78)), text
    assert "HR999" not in text
    assert "Traceback" not in text
    match = re.search(r"^(\S+) (HR\d{3})(?: \(warning\))?: (.+)\n  fix: (.+)$", text, re.MULTILINE)
    assert match, text
    where, finding_code, sentence, fix = match.groups()
    assert finding_code == row.code, text
    assert row.what in sentence
    assert row.fix in fix
    if row.kind in AT_A_LINE and command == CHECK:
        assert re.search(r":\d+$", where), text
    assert duration < MOST_SECONDS
