"""The command line as a person meets it: help, misspelt words, exit codes, crashes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from headrace.api import load
from headrace.cli import main
from headrace.cli.entry import COMMANDS, headrace
from headrace.cli.options import PathOrUrl, absolute_path
from headrace.contract.observer import QueryState
from headrace.demo.starter import write_project
from headrace.errors import Finding, ProjectError
from headrace.generations.log import history_file
from headrace.history import History

pytestmark = pytest.mark.plain

OPTIONS = {
    "init": ["NAME", "--sql", "--json"],
    "demo": ["DIR", "--seconds", "--target", "--json"],
    "check": ["--no-spark", "--project", "-C", "--target", "--json"],
    "test": ["QUERY", "--junit", "--project", "-C", "--target", "--json"],
    "plan": ["QUERY", "--detailed-exitcode", "--out", "--project", "-C", "--target", "--json"],
    "apply": ["FILE", "--once", "--available-now", "--trigger", "--project", "-C", "--target", "--json"],
    "run": [
        "QUERY",
        "--once",
        "--available-now",
        "--trigger",
        "--accept-forward",
        "--metrics",
        "--ui",
        "--ui-port",
        "--verify-every",
        "--verify-parts",
        "--watch",
        "--project",
        "-C",
        "--target",
        "--json",
    ],
    "deploy": ["--dry-run", "--accept-forward", "--restart", "--project", "-C", "--target", "--json"],
    "stop": ["[QUERY]", "--now", "--project", "-C", "--target", "--json"],
    **{name: ["QUERY", "--project", "-C", "--target", "--json"] for name in ("pause", "resume", "restart")},
    "service": ["--out", "--user", "--stop-timeout", "--monitoring", "--project", "-C", "--target", "--json"],
    "ui": ["DIR", "--port", "--address", "--name", "--certificate", "--key", "--project", "-C", "--target", "--json"],
    "status": ["--watch", "--follow", "--project", "-C", "--target", "--json"],
    "verify": ["QUERY", "--key", "--since", "--part", "--repair", "--undo", "--yes", "--dry-run", "-C", "--json"],
    "late": ["QUERY", "--since", "--limit", "--count", "--export", "--replay", "--project", "-C", "--target", "--json"],
    "cluster": ["start", "status", "logs", "stop"],
    "submit": ["QUERY", "--supervise", "--deploy-mode", "--project", "-C", "--target", "--json"],
    "jars": ["list", "fetch"],
    "adopt": ["QUERY", "--checkpoint", "--source", "--planned", "--dry-run", "--verify", "--yes", "-C", "--json"],
    "schema": ["JSON Schema", "--json"],
    "inspect": ["checkpoint"],
    "state": ["repartition"],
    "rebuild": [
        "--no-swap",
        "--accept-partial",
        "--wait",
        "--dry-run",
        "--yes",
    ],
    "rewind": ["--to-batch", "--to-time", "--dry-run", "--yes", "--json"],
    "reset": ["--drop-result", "--keep-result", "--dry-run", "--yes", "--json"],
    "change": ["status", "resume", "undo", "discard"],
    "preview": ["QUERY", "--rows", "--sample", "--project", "-C", "--target", "--json"],
    "doctor": ["--no-connect", "--project", "-C", "--target", "--json"],
    "explain": ["CODE", "--json"],
    "completion": ["bash", "zsh", "fish"],
}


def test_help_names_every_command_in_whole_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in OPTIONS)
    assert {command.name for command in COMMANDS} == set(OPTIONS)
    assert "..." not in shown.split("Commands:")[1]


@pytest.mark.parametrize("command", OPTIONS)
def test_the_help_of_a_command_names_its_options(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert [option for option in OPTIONS[command] if option not in shown] == []


def test_help_needs_neither_spark_nor_rich_nor_pandas() -> None:
    script = "import sys; from headrace.cli import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "click" in loaded
    assert not loaded & {"pyspark", "rich", "pandas", "pyarrow"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rum"], "did you mean 'run'"),
        (["run", "--avalable-now"], "did you mean '--available-now'?"),
        (["run", "--once", "--available-now"], "--once and --available-now exclude each other"),
        (["run", "--trigger", "soon"], "there is no trigger 'soon'"),
        (["run", "--trigger", "5 fortnights"], "'5 fortnights' is not a length of time"),
        (["init"], "missing argument 'NAME'"),
        (["state"], "headrace state needs a command: show, repartition"),
        (["verify", "q", "--repair", "--undo"], "--repair and --undo exclude each other"),
        (["verify", "--repair"], "--repair is of one query: headrace verify QUERY --repair"),
        (["verify", "q", "r", "--undo"], "--undo is of one query, and 2 are named"),
        (["verify", "q", "--undo", "--key", "a=1"], "--undo takes back the whole repair, and takes no --key"),
        (["verify", "q", "--repair", "--since", "3"], "--repair does not go with --since"),
        (["verify", "q", "--undo", "--part", "1/2"], "--undo does not go with --part"),
        (["verify", "q", "--yes"], "--yes answers the question of --repair, which is not given"),
        (["verify", "q", "--undo", "--dry-run"], "--dry-run shows what --repair would do"),
        (["status", "--watch", "often"], "a number from 0.2 to 86400, and is 'often'"),
        (["demo", "x", "--seconds", "1"], "a number from 4, and is '1.0'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_used_wrongly_is_named_with_a_way_out(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("headrace HR090: ")
    assert words in printed.err
    assert "\n  fix: " in printed.err


def test_with_json_an_error_is_one_line_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--once", "--available-now", "--json"]) == 2
    printed = capsys.readouterr()
    line = json.loads(printed.out)
    assert (line["event"], line["exit_code"], line["findings"][0]["code"]) == ("error", 2, "HR090")
    assert printed.err == ""


def test_with_json_an_interrupted_command_says_so_in_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headrace.api.check", raise_interrupt)
    write_project(tmp_path / "phones", event_files=0)
    assert main(["check", "-C", str(tmp_path / "phones"), "--json"]) == 130
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"event": "error", "exit_code": 130, "findings": []}
    assert printed.err.strip() == "interrupted"


def raise_interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_json_is_what_others_read(encoding: str) -> None:
    program = "from headrace.cli.output import say_json; say_json({'é': [float('nan'), {'b': -float('inf')}, 1.5]})"
    environ = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environ, check=True)
    assert json.loads(done.stdout, parse_constant=pytest.fail) == {"é": ["NaN", {"b": "-Infinity"}, 1.5]}


@pytest.mark.parametrize("command", ["schema", "explain HR408", "jars list", "check", "cluster status"])
def test_with_json_what_there_is_to_say_is_on_stdout(tmp_path: Path, command: str) -> None:
    words = [sys.executable, "-m", "headrace", *command.split(), "--json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False)
    assert (isinstance(json.loads(done.stdout), dict), done.stderr) == (True, b"")


def test_a_reader_that_is_gone_makes_no_error_of_an_error(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "headrace", "check", "-C", str(tmp_path), "--json"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_with_json_nothing_but_json_is_on_stdout(tmp_path: Path) -> None:
    write_project(tmp_path / "phones", event_files=0)
    with (tmp_path / "phones" / "pipeline.py").open("a") as code:
        code.write("import os\nprint('of Python')\nos.system('echo of a child')\n")
    words = ["check", "--no-spark", "-C", str(tmp_path / "phones"), "--json"]
    done = subprocess.run([sys.executable, "-m", "headrace", *words], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["findings"] == []
    assert sorted(done.stderr.splitlines()) == ["of Python", "of a child"]


@pytest.mark.parametrize("command", ["check", "run", "status", "verify"])
def test_a_directory_without_a_project_is_a_finding(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "-C", str(tmp_path)]) == 1
    assert " HR1" in capsys.readouterr().err


def raises(error: BaseException) -> click.Command:
    @click.command("explode")
    def explode() -> None:
        raise error

    return explode


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProjectError(Finding(code="HR100", what="[red]wrong[/red]")), 1),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (RuntimeError("secret plans"), 2),
    ],
    ids=["a foreseen error", "Ctrl-C", "an aborted question", "an unforeseen error"],
)
def test_every_end_has_its_code_and_none_a_stack_trace(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from headrace.cli.entry import headrace

    monkeypatch.setitem(headrace.commands, "explode", raises(error))
    assert main(["explode"]) == code
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err + printed.out
    if isinstance(error, ProjectError):
        assert printed.err == "headrace HR100: [red]wrong[/red]\n"
    if code == 130:
        assert printed.err.strip() == "interrupted"


def test_an_unforeseen_error_leaves_a_crash_log_next_to_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from headrace.cli.entry import headrace

    (tmp_path / ".headrace").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(headrace.commands, "explode", raises(RuntimeError("the reason")))
    assert main(["explode"]) == 2
    (log,) = (tmp_path / ".headrace").glob("headrace-crash-*.log")
    errors = capsys.readouterr().err
    assert f"'{log}'" in errors
    assert errors.startswith("headrace HR999: ")
    assert "report it" in errors
    assert "RuntimeError: the reason" in log.read_text()
    assert "command: headrace explode" in log.read_text()


@pytest.mark.parametrize(("fenced", "exit_code"), [(True, 1), (False, 0)], ids=["fenced", "failed before"])
def test_status_shows_a_driver_that_a_newer_one_has_fenced_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fenced: bool, exit_code: int
) -> None:
    write_project(tmp_path / "p")
    with History.open(history_file(load(tmp_path / "p").storage)) as history:
        older, newer = (
            history.begin_run(
                "action_counts", pid=os.getpid(), mode="update", trigger="once", sink="sqlite", generation=1
            )
            for _ in range(2)
        )
        history.end_run(older, "failed", Finding(code="HR409", what="a newer driver runs it"), fenced=fenced)
        history.state(QueryState(query="action_counts", state="running"), newer)
    assert main(["status", "-C", str(tmp_path / "p")]) == exit_code
    assert "running" in capsys.readouterr().out


def test_python_m_headrace_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "headrace", "chck"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "headrace HR090: there is no command 'chck'\n  fix: did you mean 'check'?\n"


def test_the_jars_that_connectors_need_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jars", "list", "--json"]) == 0
    assert {"kafka", "avro", "delta"} <= set(json.loads(capsys.readouterr().out))


def test_a_command_works_in_the_projects_directory_and_writes_where_the_shell_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, shell = tmp_path / "projects" / "p", tmp_path / "shell"
    (shell / "library").mkdir(parents=True)
    (shell / "library" / "shared_by_shell.py").write_text("")
    write_project(root)
    (root / "pipeline.py").write_text(
        "from pathlib import Path\n\nimport headrace\nimport shared_by_shell\n\nPath('here').touch()\n"
    )
    monkeypatch.chdir(shell)
    monkeypatch.syspath_prepend("library")
    monkeypatch.setenv("PYTHONPATH", "library")
    for place, where in ((root, "a"), (Path("../projects/p"), "b"), (Path("../projects/p/headrace.yml"), "c")):
        assert main(["service", "-C", str(place), "--monitoring", where]) == 0
        assert (root / "here").exists()
        (root / "here").unlink()
        assert os.getcwd() == str(shell)
    assert sorted(file.name for file in shell.iterdir()) == ["a", "b", "c", "library"]
    assert os.environ["PYTHONPATH"] == str(shell / "library")


def test_a_checkpoint_of_the_command_line_starts_from_the_shells_directory() -> None:
    here = os.path.abspath("old")
    given = {"old": here, "/old": "/old", "s3a://b/old": "s3a://b/old", "file:///old": "file:///old"}
    assert {text: absolute_path(PathOrUrl(text)) for text in given} == given
    assert (absolute_path(Path("old")), absolute_path("old"), absolute_path(3)) == (Path(here), "old", 3)


@pytest.mark.parametrize("value", ["x" * 5_000, "nan", "\udcff", ""], ids=["long", "nan", "no UTF-8", "empty"])
def test_no_option_of_any_command_takes_a_value_by_a_crash(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for the commands that begin at once: a server, a cluster, a demo, a download."""
    (tmp_path / "headrace.yml").write_text(
        "name: p\nsources: {e: {files: {path: in, format: text}}}\n"
        "queries: {q: {select: SELECT * FROM e, sink: {sqlite: {path: o.db, table: t}}}}\n"
    )

    def refuse(*_: object, **__: object) -> None:
        raise ProjectError(code="HR003", what="Spark would be started", fix="nothing")

    monkeypatch.setattr("headrace.frames.project_session.start", refuse)
    monkeypatch.chdir(tmp_path)
    for command, path in commands_of(headrace, ()):
        for option in command.params:
            if not isinstance(option, click.Option) or option.is_flag or path[0] in ("ui", "demo", "cluster", "jars"):
                continue
            needed = ["q" if param.name in ("query", "queries") else "2" for param in command.params if param.required]
            assert isinstance(main([*path, *needed, f"{option.opts[-1]}={value}"]), int)
            printed = capsys.readouterr()
            assert "HR999" not in printed.err + printed.out, (path, option.name, printed.err)


def commands_of(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[click.Command, tuple[str, ...]]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands_of(command, (*path, name))
        else:
            yield command, (*path, name)


def test_an_argument_with_a_null_character_is_refused_by_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    for command, path in commands_of(headrace, ()):
        assert main([*path, *(["a\0b"] * len([param for param in command.params if param.required]) or ["a\0b"])]) == 2
        assert "HR090: an argument holds a null character" in capsys.readouterr().err
