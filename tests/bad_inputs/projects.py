"""The small projects that the rows of the table of bad inputs are made into."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("table.txt")
EVENTS = '{files: {path: landing, format: json, schema: "id INT, at TIMESTAMP"}}'
OUT = "out: {select: SELECT id FROM events, sink: console}"
PYTHON = (
    "import headrace as hr\n"
    'events = hr.source.files("landing", format="json", schema="id INT, at TIMESTAMP", watermark=("at", "1 hour"))\n'
)
QUERY = "@hr.query(sink=hr.sink.console())\ndef result(events):\n    return events\n"
CHECK = ("check", "--no-spark")
DEEP = {"yaml": "name: " + "[" * 3000, "schema": "a " + "ARRAY<" * 5000}
ALIASES = "name: p\na0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One bad input, and what must be said of it."""

    id: str
    kind: str
    text: str
    code: str
    what: str
    fix: str


def rows(table: Path = TABLE) -> list[Row]:
    """Every row of the table."""
    rows = []
    for line in table.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            cells = [cell.strip(" ") for cell in line.split(" | ")]
            if len(cells) < 6:
                cells = [*cells, *[""] * (6 - len(cells))]
            text = cells[2].replace("\\n", "\n").replace("\\t", "\t")
            rows.append(Row(id=cells[0], kind=cells[1], text=text, code=cells[3], what=cells[4], fix=cells[5]))
    return rows


def make(row: Row, root: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """Write the project of `row` into `root`; the command to give and the variables to set for it."""
    (root / "landing").mkdir()
    (root / "landing" / "a.json").write_text('{"id": 1, "at": "2026-01-01T00:00:00Z"}\n')
    (root / "headrace.yml").write_text(document())
    (root / "q.sql").write_text("SELECT id FROM events")
    return _KINDS[row.kind](row.text, root)


def document(
    *, source: str = EVENTS, queries: str = OUT, top: str = "", sink: str | None = None, query: str | None = None
) -> str:
    """A headrace.yml with one part of it replaced."""
    if query is not None:
        inner = query.strip().removeprefix("{").removesuffix("}") if query.startswith("{") else query
        given = "" if query.startswith("sql") else "select: SELECT id FROM events, "
        sink_of = "" if query.startswith("sinks") else ", sink: console"
        queries = f"out: {{{given}{inner}{sink_of}}}"
        if query.startswith("sql"):
            queries = f"out: {{select: SELECT id FROM events, {query}, sink: console}}"
    if sink is not None:
        queries = f"out: {{select: SELECT id FROM events, sink: {sink}}}"
    below = f"  events: {source}" if source.startswith("{") or "\n" not in source else source
    if not source.startswith("{") and ":" in source.split("{")[0]:
        below = f"  events:\n    {source}"
    inside = (
        queries
        if not queries.startswith("{")
        else queries[1:-1].replace("}, A: ", "}\n  A: ").replace("}}}, b: ", "}}}\n  b: ").replace("}, b: ", "}\n  b: ")
    )
    if top.startswith("{"):
        top = "\n".join(part.strip() for part in top[1:-1].split("}, ")).replace("4\nspark", "4}\nspark")
    return f"name: p\nsources:\n{below}\nqueries:\n  {inside}\n{top}\n"


def _yaml(text: str, root: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    (root / "headrace.yml").write_text({"deep": DEEP["yaml"], "aliases": ALIASES}.get(text, text), encoding="utf-8")
    return CHECK, {}


def _with(part: str) -> Callable[[str, Path], tuple[tuple[str, ...], dict[str, str]]]:
    def written(text: str, root: Path) -> tuple[tuple[str, ...], dict[str, str]]:
        (root / "headrace.yml").write_text(document(**{part: text}), encoding="utf-8")
        return CHECK, {}

    return written


def _schema(text: str, root: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    quoted = (DEEP["schema"] if text == "deep" else text).replace("'", "''")
    return _with("source")(f"{{files: {{path: landing, format: json, schema: '{quoted}'}}}}", root)


def _watermark(text: str, root: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    return _with("source")(EVENTS[:-1] + f", watermark: {text}}}", root)


def _select(text: str, root: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    (root / "q.sql").write_text(text)
    if "${" in text:
        return _with("queries")(f'out: {{select: "{text}", sink: console}}', root)
    return _with("queries")("out: {sql: q.sql, sink: console}", root)


def _sink_with_mode(text: str, root: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    mode, _, sink = text.partition(" ")
    return _with("queries")(f"out: {{select: SELECT id FROM events, mode: {mode}, sink: {sink}}}", root)


def _target(text: str, root: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    return _with("top")(f"targets:\n  dev: {text}", root)


def _env(text: str, root: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    *given, value = text.split(" ")
    _with("top")(f'storage: "{value}"', root)
    return CHECK, dict(setting.split("=", 1) for setting in given)


def _env_of_run(text: str, root: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    return ("check",), dict([text.split("=", 1)])


def _command(text: str, root: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    return tuple(text.split()), {}


def _python(text: str, root: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    (root / "headrace.yml").unlink()
    (root / "app.py").write_text(PYTHON + text + "\n" + ("" if "hr.query" in text else QUERY))
    return CHECK, {}


def _files(text: str, root: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    return _FILES[text](root) or CHECK, {}


def _replace_document(root: Path) -> Path:
    file = root / "headrace.yml"
    file.unlink()
    return file


def _from_sql(root: Path) -> Path:
    (root / "headrace.yml").write_text(document(queries="out: {sql: q.sql, sink: console}"))
    return root / "q.sql"


def _empty(root: Path) -> None:
    for file in ("headrace.yml", "q.sql", "landing/a.json"):
        (root / file).unlink()
    (root / "landing").rmdir()


def _fifo(root: Path) -> None:
    file = _from_sql(root)
    file.unlink()
    os.mkfifo(file)


def _python_file(root: Path, content: bytes) -> None:
    _replace_document(root)
    (root / "app.py").write_bytes(content)


def _storage(root: Path, make_it: Callable[[Path], object]) -> tuple[str, ...]:
    make_it(root / ".headrace")
    sink = "{files: {path: out, format: json}}"
    (root / "headrace.yml").write_text(document(sink=sink))
    return CHECK


def _secret(root: Path) -> None:
    (root / "secret").write_bytes(b"\xff\xfe")
    (root / "headrace.yml").write_text(document(top='storage: "${file:secret}"'))


_FILES: dict[str, Callable[[Path], tuple[str, ...] | None]] = {
    "yaml-directory": lambda root: _replace_document(root).mkdir(),
    "yaml-binary": lambda root: (_replace_document(root).write_bytes(b"\x00\x01\x02" * 50), None)[1],
    "yaml-latin1": lambda root: (_replace_document(root).write_bytes("name: Müller".encode("latin-1")), None)[1],
    "yaml-utf16": lambda root: (_replace_document(root).write_bytes("name: p".encode("utf-16")), None)[1],
    "yaml-unreadable": lambda root: (root / "headrace.yml").chmod(0),
    "yaml-dangling": lambda root: _replace_document(root).symlink_to("nowhere.yml"),
    "yaml-huge": lambda root: ((root / "headrace.yml").write_text("name: " + "x" * 6_000_000), None)[1],
    "both-names": lambda root: ((root / "headrace.yaml").write_text("name: q"), None)[1],
    "env-latin1": lambda root: ((root / ".env").write_bytes(b"NAME=M\xfcller"), None)[1],
    "env-directory": lambda root: (root / ".env").mkdir(),
    "env-malformed": lambda root: (
        (root / ".env").write_text("STORE: place\n"),
        (root / "headrace.yml").write_text(document(top='storage: "${STORE}"')),
        None,
    )[2],
    "sql-latin1": lambda root: (_from_sql(root).write_bytes(b"SELECT '\xfc' FROM events"), None)[1],
    "sql-binary": lambda root: (_from_sql(root).write_bytes(b"\x00\x01" * 50), None)[1],
    "sql-fifo": _fifo,
    "sql-empty": lambda root: (_from_sql(root).write_text(""), None)[1],
    "python-latin1": lambda root: _python_file(root, b"import headrace as hr\nname = 'M\xfcller'\n"),
    "python-unreadable": lambda root: (_python_file(root, PYTHON.encode()), (root / "app.py").chmod(0))[1],
    "empty-directory": _empty,
    "python-without-query": lambda root: _python_file(root, b"import headrace as hr\n"),
    "only-data": lambda root: (_replace_document(root), None)[1],
    "secret-latin1": _secret,
    "landing-unreadable": lambda root: (root / "landing").chmod(0),
    "storage-is-file": lambda root: _storage(root, lambda place: place.write_text("x")),
    "storage-unwritable": lambda root: _storage(root, lambda place: place.mkdir(mode=0)),
}
_KINDS: dict[str, Callable[[str, Path], tuple[tuple[str, ...], dict[str, str]]]] = {
    "yaml": _yaml,
    "source": _with("source"),
    "schema": _schema,
    "watermark": _watermark,
    "query": _with("query"),
    "queries": _with("queries"),
    "select": _select,
    "sink": _with("sink"),
    "sinkmode": _sink_with_mode,
    "top": _with("top"),
    "target": _target,
    "env": _env,
    "envrun": _env_of_run,
    "cmd": _command,
    "python": _python,
    "files": _files,
}
