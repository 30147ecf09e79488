"""Targets, variables and secrets of a project."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.declare.variables import read_dotenv

pytestmark = pytest.mark.plain

BASE = """\
storage: base
spark: {spark.a: 1, spark.b: true}
sources:
  events:
    files: {path: "${DATA:-in}", format: text}
queries:
  q:
    select: SELECT * FROM events
    sink: {files: {path: "$${kept}/${OUT}"}}
targets:
  staging: {vars: {OUT: "from-${LETTER}"}, spark: {spark.b: false}}
  prod: {master: "spark://one:7077", storage: "/var/lib/headrace", vars: {OUT: "${PROD_OUT}"}}
"""


def test_the_first_target_is_taken_where_none_is_named_dev(load_texts):
    target = load_texts(BASE, environ={"LETTER": "x"}).target
    assert (target.name, target.storage, dict(target.spark)) == (
        "staging",
        "base",
        {"spark.a": "1", "spark.b": "false"},
    )


@pytest.mark.parametrize("text", ["file:///x/y", "file:/x/y", "FILE:///x/y", "/x/y"])
def test_a_storage_that_is_named_as_a_url_of_a_file_is_that_directory(load_texts, text: str) -> None:
    assert load_texts(BASE.replace("storage: base", f"storage: '{text}'"), environ={"LETTER": "x"}).storage == Path(
        "/x/y"
    )


def test_a_target_is_chosen_by_argument_then_by_the_environment(load_texts):
    environ = {"PROD_OUT": "p", "LETTER": "x", "HEADRACE_TARGET": "prod"}
    assert load_texts(BASE, environ=environ).target.master == "spark://one:7077"
    assert load_texts(BASE, "staging", environ=environ).target.master is None
    assert load_texts(BASE.replace("staging:", "dev:"), environ={"LETTER": "x"}).target.name == "dev"


@pytest.mark.parametrize(("target", "environ"), [("prd", {}), (None, {"HEADRACE_TARGET": "prd"})])
def test_an_unknown_target_is_reported_with_the_nearest(faults, target, environ):
    by_code = {finding.code: finding for finding in faults(BASE, target, environ={"OUT": "x", **environ})}
    assert "'prod'" in by_code["HR091"].fix


def test_a_project_without_targets_is_seen_from_dev(load_texts, faults):
    text = BASE[: BASE.index("targets:")]
    assert load_texts(text, "dev", environ={"OUT": "x"}).target.name == "dev"
    assert faults(text, "prod", environ={"OUT": "x"})[0].code == "HR091"


@pytest.mark.parametrize(
    ("environ", "path"),
    [({"LETTER": "x"}, "from-x"), ({"LETTER": "x", "OUT": "env"}, "env")],
    ids=["the target's vars", "the environment first"],
)
def test_variables_come_from_the_environment_then_the_target(load_texts, tmp_path, environ, path):
    assert load_texts(BASE, environ=environ).queries["q"].sink.path == str(tmp_path / "${kept}" / path)


def test_variables_come_from_the_env_file_last(load_texts):
    files = {"headrace.yml": BASE, ".env": "# words\nexport LETTER='f'\nDATA=/d # words\nOUT=no\n"}
    project = load_texts(files)
    assert project.queries["q"].sink.path.endswith("from-f")
    assert project.sources["events"].connector.path == "/d"


DOTENV = {
    "plain": ("A=a b ", "a b", ()),
    "a comment behind": ("A=a # b", "a", ()),
    "a comment behind quotes": ('A="a" # b', "a", ()),
    "no comment without space": ("A=a#b", "a#b", ()),
    "export": ("export A='a'", "a", ()),
    "nothing": ("A=", "", ()),
    "single quotes keep all": (r"A='a\n #${B}'", r"a\n #${B}", ()),
    "double quotes with an escape": (r'A="a\tb"', "a\tb", ()),
    "several lines": ('A="a\nb"', "a\nb", ()),
    "no reference is followed": ("B=b\nA=${B}", "${B}", ()),
    "the last counts": ("A=a\nA=b", "b", ()),
    "lines that set nothing": ("# words\n\nA=a\nwords\n\n9=b\nB", "a", (4, 6, 7)),
    "a quote left open": ('B="b\nA=a', "a", (1,)),
}


@pytest.mark.parametrize(("text", "value", "passed_over"), DOTENV.values(), ids=DOTENV)
def test_a_line_of_the_env_file_is_read_as_other_tools_read_it(text, value, passed_over):
    values, lines = read_dotenv(text)
    assert (values["A"], lines) == (value, passed_over)


def test_an_unset_variable_is_reported_with_every_place_searched(faults):
    (finding,) = faults(BASE, "prod", environ={"PRD_OUT": "x"})[:1]
    assert (finding.code, str(finding.where)) == ("HR105", "headrace.yml:9")
    (finding,) = [finding for finding in faults(BASE, "prod", environ={"PRD_OUT": "x"}) if "PROD_OUT" in finding.what]
    assert (finding.code, str(finding.where)) == ("HR105", "headrace.yml:12")
    for place in ("the environment", "vars of target 'prod'", ".env (no such file)"):
        assert place in finding.what
    assert "'PRD_OUT'" in finding.fix


@pytest.mark.parametrize("text", ["${1A}", "${}", "${OUT", "${a b}"])
def test_a_malformed_reference_is_refused(faults, text):
    (finding,) = faults(BASE.replace("${DATA:-in}", text), environ={"LETTER": "x"})
    assert (finding.code, str(finding.where)) == ("HR104", "headrace.yml:5")


def test_a_secret_comes_from_a_file(load_texts, tmp_path):
    files = {"headrace.yml": BASE.replace("${DATA:-in}", "/d/${file:secret.txt}"), "secret.txt": "hunter22\n"}
    project = load_texts(files, environ={"LETTER": "x"})
    assert project.sources["events"].connector.path == "/d/hunter22"
    assert project.redacted("cannot read /d/hunter22") == "cannot read /d/${file:secret.txt}"
    assert "hunter22" not in repr(project.secrets.values())


def test_a_secret_file_that_is_not_there_is_reported(faults):
    (finding,) = faults(BASE.replace("${DATA:-in}", "${file:/no/secret}"), environ={"LETTER": "x"})
    assert finding.code == "HR115"
    assert "/no/secret" in finding.what


SECRETS = {
    "by its name": ("DB_PASSWORD", "hunter22"),
    "by its look": ("DB", "postgresql://me:hunter22@db/x"),
}


@pytest.mark.parametrize(("name", "value"), SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize(
    "place",
    ["mode: ${S}", "trigger: ${S}", "sink: ${S}", "sql: ${S}", "sink: {files: {path: x, format: ${S}}}"],
)
def test_no_message_shows_a_secret(faults, name, value, place):
    query = f"queries: {{q: {{{place}, select: SELECT 1}}}}\nname: [1]\n"
    query = query.replace("${S}", "'${" + name + "}'")
    text = "\n".join(str(finding) for finding in faults(query, environ={name: value}))
    assert "HR104" in text
    assert "hunter22" not in text


@pytest.mark.parametrize(
    ("value", "is_secret"),
    [
        ("localhost:9092", False),
        ("k1:9092,k2:9092", False),
        ("postgresql://db/phones", False),
        ("postgresql://me:secret@db/phones", True),
        ("https://db/hook?token=abcd", True),
    ],
)
def test_an_address_is_secret_for_the_credentials_in_it(load_texts, value, is_secret):
    project = load_texts("storage: ${STORE_URL}", environ={"STORE_URL": value})
    assert (project.redacted(value) != value) is is_secret


HOOKED = BASE + "hooks: [{command: [tools/alert.sh, now]}, {command: [alert]}]\n"


@pytest.mark.parametrize(
    ("storage", "path"),
    [("file:///var/lib/x", "/var/lib/x"), ("file:/var/lib/x", "/var/lib/x"), ("~/x", str(Path.home() / "x"))],
)
def test_storage_on_this_machine_may_be_written_as_a_url_or_from_the_home(load_texts, storage, path):
    text = BASE.replace("storage: base", f"storage: {storage}")
    assert str(load_texts(text, environ={"LETTER": "x"}).storage) == path


def test_the_command_of_a_hook_is_a_path_of_the_project_or_a_name(load_texts, tmp_path):
    project = load_texts(HOOKED, environ={"LETTER": "x"})
    first, second = project.target.operations.hooks
    assert (first.command, second.command) == ((str(project.root / "tools/alert.sh"), "now"), ("alert",))


def test_each_setting_of_a_target_knows_its_line(load_texts):
    target = load_texts(BASE, environ={"LETTER": "x"}).target
    assert [target.at(key).line for key in ("storage", "spark.a", "spark.b", "master")] == [1, 2, 11, 11]
