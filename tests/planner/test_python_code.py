"""What Python code means: edits without an effect are the same, all others are named."""

from __future__ import annotations

import json
import linecache
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from headrace.planner.code.meaning import Meaning, compare_meanings, read_meaning

from .code_pairs import DANGEROUS, HARMLESS

pytestmark = [pytest.mark.plain, pytest.mark.filterwarnings("ignore::SyntaxWarning")]
ROOT = Path(__file__).parents[2]
OWN = ("pipeline", "helpers", "config", "settings")


@pytest.fixture(autouse=True, scope="module")
def _no_modules_left() -> Iterator[None]:
    yield
    for name in OWN:
        sys.modules.pop(name, None)


def load_module(text: str) -> ModuleType:
    """The module `pipeline` of a text, with the modules next to it."""
    for name in OWN:
        sys.modules.pop(name, None)
    first, *others = f"pipeline\n{text}".split("--- ")
    for part in [*reversed(others), first]:
        name, _, source = part.partition("\n")
        module = sys.modules[name.strip()] = ModuleType(name.strip())
        compile_source(source, f"/project/{name.strip()}.py", vars(module))
    return sys.modules["pipeline"]


def compile_source(source: str, file: str, module: dict[str, Any]) -> None:
    """Run the source of a file that is not there; who looks for it finds it, as that of a notebook's cell."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), module)


def of(text: str, salt: str = "salt", **more: Any) -> Meaning:
    meaning = read_meaning(load_module(text).f, owned=lambda module: module.__name__ in OWN, salt=salt, **more)
    written: Meaning = json.loads(json.dumps(meaning))
    assert written == meaning
    return written


@pytest.mark.parametrize(("before", "now"), HARMLESS.values(), ids=HARMLESS)
def test_an_edit_without_an_effect_is_the_same(before: str, now: str) -> None:
    first, second = of(before), of(now)
    assert compare_meanings(first, second) == []
    assert first["digest"] == second["digest"]


@pytest.mark.parametrize(("before", "now", "words"), DANGEROUS.values(), ids=DANGEROUS)
def test_an_edit_with_an_effect_is_named(before: str, now: str, words: str) -> None:
    first, second = of(before), of(now)
    assert first["digest"] != second["digest"]
    assert "not compared" not in "; ".join(compare_meanings(first, second))
    assert words in "; ".join(compare_meanings(first, second))


def test_code_that_a_worker_would_get_is_the_same() -> None:
    from pyspark import cloudpickle
    from pyspark.cloudpickle import register_pickle_by_value, unregister_pickle_by_value

    for case, (before, _, _) in DANGEROUS.items():
        if case == "a function for one type":  # It holds weak references, which cannot be sent.
            continue
        module = load_module(before)
        own = [sys.modules[name] for name in OWN if name in sys.modules]
        for owned_module in own:
            register_pickle_by_value(owned_module)
        try:
            sent = cloudpickle.loads(cloudpickle.dumps((module.f, 1)))[0]
        finally:
            for owned_module in own:
                unregister_pickle_by_value(owned_module)
        meanings = [
            read_meaning(function, owned=lambda module: module.__name__ in OWN, salt="")
            for function in (module.f, sent)
        ]
        assert compare_meanings(*meanings) == []


ENVIRONMENT = {
    "by index": "import os\ndef f(x):\n    return os.environ['HEADRACE_A']",
    "by get": "import os\ndef f(x):\n    return os.environ.get('HEADRACE_A', '')",
    "by getenv": "import os\ndef f(x):\n    return os.getenv('HEADRACE_A')",
    "by an imported getenv": "from os import getenv as g\ndef f(x):\n    return g('HEADRACE_A')",
    "imported inside": "def f(x):\n    from os import environ\n    return environ['HEADRACE_A']",
    "asked whether it is there": "import os\ndef f(x):\n    return 'HEADRACE_A' in os.environ",
    "by a name that is a global": "import os\nNAME = 'HEADRACE_A'\ndef f(x):\n    return os.environ[NAME]",
    "in a helper": "import os\ndef g():\n    return os.environ['HEADRACE_A']\ndef f(x):\n    return g()",
}


@pytest.mark.parametrize("text", ENVIRONMENT.values(), ids=ENVIRONMENT)
def test_an_environment_variable_that_the_code_reads_counts(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    meanings = []
    for value in ("very-private", "very-private", "other", None):
        monkeypatch.delenv("HEADRACE_A", raising=False)
        if value is not None:
            monkeypatch.setenv("HEADRACE_A", value)
        meanings.append(of(text))
    assert "very-private" not in json.dumps(meanings)
    assert [compare_meanings(meanings[0], meaning) for meaning in meanings] == [
        *([], []),
        *(["environment variable HEADRACE_A differs"],) * 2,
    ]


def test_a_secret_that_came_into_a_global_is_compared_but_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import os\nP = os.environ['HEADRACE_PASSWORD']\ndef f(x):\n    return P"
    meanings = []
    for value in ("hunter2", "hunter3"):
        monkeypatch.setenv("HEADRACE_PASSWORD", value)
        meanings.append(of(text))
    assert "hunter" not in json.dumps(meanings)
    assert compare_meanings(*meanings) == ["global P was a text that is not shown and is a text that is not shown"]


NOT_COMPARABLE = {
    "a lock": ("import threading\nL = threading.Lock()\ndef f(x):\n    return L", "_thread.lock"),
    "a generator": ("G = (x for x in [1])\ndef f(x):\n    return G", "generator"),
    "a computed environment variable": ("import os\ndef f(x):\n    return os.environ[x]", "by names that it computes"),
    "all of the environment": ("import os\ndef f(x):\n    return dict(os.environ)", "by names that it computes"),
    "a file by a computed name": ("def f(x):\n    return open(x).read()", "opens a file by a name that it computes"),
    "text of a path": ("def f(x):\n    return x.read_text()", "opens a file by a name that it computes"),
    "code without a source": ("exec('def f(x): return x')", "its source cannot be found"),
    "eval": ("def f(x):\n    return eval(x)", "it calls eval"),
    "a module that is not there": (
        "def f(x):\n    import nowhere_at_all\n    return nowhere_at_all.g(x)",
        "nowhere_at_all",
    ),
    "a proxy of nothing": (
        "class P:\n    @property\n    def __class__(self):\n        raise RuntimeError\n"
        "p = P()\ndef f(x):\n    return p",
        "cannot be looked at: RuntimeError",
    ),
    "a list of too many elements": ("L = list(range(100_001))\ndef f(x):\n    return L", "100,000 elements"),
    "lists in lists in lists": (
        "L = []\nfor _ in range(100):\n    L = [L]\ndef f(x):\n    return L",
        "nested more than 60 deep",
    ),
    "a list that holds itself": ("L = []\nL.append(L)\ndef f(x):\n    return L", "nested more than 60 deep"),
    "a chain of too many objects": (
        "class C:\n    def __init__(self, n):\n        self.n = n\nc = None\nfor _ in range(5_001):\n    c = C(c)\n"
        "def f(x):\n    return c.n",
        "more than 5,000 objects",
    ),
}


@pytest.mark.parametrize(("text", "why"), NOT_COMPARABLE.values(), ids=NOT_COMPARABLE)
def test_what_cannot_be_looked_at_is_neither_same_nor_changed(text: str, why: str) -> None:
    reasons = compare_meanings(of(text), of(text))
    assert all(reason.startswith("not compared: ") for reason in reasons)
    assert why in "; ".join(reasons)


def test_a_file_that_was_edited_after_it_was_loaded_is_not_compared(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.py"
    file.write_text("def f(x):\n    return x + 1\n")
    module = ModuleType("pipeline")
    module.__file__ = str(file)
    exec(compile(file.read_text(), str(file), "exec"), vars(module))
    file.write_text("def f(x):\n    return x + 2\n")
    meaning = read_meaning(module.f, owned=lambda _: True, salt="")
    assert compare_meanings(meaning, meaning) == ["not compared: its source has changed since it was loaded"]


OPENED = {
    "open": "def f(x):\n    with open('{file}') as file:\n        return file.read()",
    "open by a constant": "RATES = '{file}'\ndef f(x):\n    return open(RATES, encoding='utf-8').read()",
    "a path": "from pathlib import Path\ndef f(x):\n    return Path('{file}').read_text()",
    "a path that is a constant": (
        "from pathlib import Path\nRATES = Path('{directory}') / '{name}'\ndef f(x):\n    return RATES.open().read()"
    ),
    "a path that is put together": (
        "from pathlib import Path\nHERE = Path('{directory}')\ndef f(x):\n    return (HERE / '{name}').read_bytes()"
    ),
    "pandas": "import pandas as pd\ndef f(x):\n    return pd.read_csv('{file}')",
}


@pytest.mark.parametrize("text", OPENED.values(), ids=OPENED)
def test_the_content_of_a_file_that_the_code_opens_counts(text: str, tmp_path: Path) -> None:
    file, meanings = tmp_path / "rates.csv", []
    text = text.format(file=file, directory=tmp_path, name=file.name)
    for content in ("a,1", "a,1", "a,2"):
        file.write_text(content)
        meanings.append(of(text))
    assert [compare_meanings(meanings[0], meaning) for meaning in meanings[1:]] == [
        [],
        [f"the file {file} holds something else"],
    ]


def test_a_file_that_the_code_writes_does_not_count(tmp_path: Path) -> None:
    text, meanings = f"def f(x):\n    open('{tmp_path}/out', 'w').write(x)", []
    for content in ("1", "2"):
        (tmp_path / "out").write_text(content)
        meanings.append(of(text))
    assert compare_meanings(*meanings) == []


def test_what_cannot_be_compared_hides_no_other_change() -> None:
    text = "import threading\nL = threading.Lock()\ndef f(x):\n    return L, {}"
    assert compare_meanings(of(text.format(1)), of(text.format(2))) == ["the constant 1 became 2"]


def test_a_lock_that_the_code_does_not_use_is_no_hindrance() -> None:
    text = (
        "import threading\nclass C:\n    def __init__(self):\n        self.k, self.lock = 1, threading.Lock()\n"
        "    def __call__(self, x):\n        return self.k\nf = C()\ndel C.__init__"
    )
    assert compare_meanings(of(text), of(text)) == []


OTHERWISE_MADE = {
    "another form": ({"form": 0}, "not compared: another version of Headrace wrote it"),
    "another salt": ({"salt": ""}, "not compared: it was written with another salt"),
}


@pytest.mark.parametrize(("edit", "words"), OTHERWISE_MADE.values(), ids=OTHERWISE_MADE)
def test_what_was_made_otherwise_is_not_compared(edit: dict[str, Any], words: str) -> None:
    now = of("def f(x):\n    return x")
    assert compare_meanings({**now, **edit}, now) == [words]


def test_a_project_that_is_moved_is_the_same() -> None:
    text = (
        "from pathlib import Path\nHERE = Path(__file__).parent / 'a'\nLOG = __file__\ndef f(x):\n    return HERE, LOG"
    )
    meanings = []
    for directory in ("/project", "/elsewhere/project"):
        module = sys.modules["pipeline"] = ModuleType("pipeline")
        module.__file__ = f"{directory}/pipeline.py"
        compile_source(text, f"{directory}/pipeline.py", vars(module))
        meanings.append(read_meaning(module.f, owned=lambda module: module.__name__ in OWN, salt=""))
    assert compare_meanings(*meanings) == []


def test_a_parameter_that_spark_names_keeps_its_name() -> None:
    texts = ("def f(a, b):\n    return a - b", "def f(b, a):\n    return b - a")
    assert compare_meanings(*map(of, texts)) == []
    assert compare_meanings(*(of(text, keywords=("a", "b")) for text in texts)) == [
        "its code differs: `def f(a, b):` became `def f(b, a):`"
    ]


def test_a_module_of_the_project_that_is_not_yet_imported_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    meanings = []
    for rate in (1, 2):
        (tmp_path / "config.py").write_text(f"RATE = {rate} * 1\n# {'x' * rate}\n")
        meanings.append(of("def f(x):\n    import config\n    return x * config.RATE"))
    assert compare_meanings(*meanings) == ["config.RATE was 1 and is 2"]


# Of each edit's first text, as every version of Python from 3.10 on must give it.
GOLDEN = {
    "a comprehension": "78d87a4fe76fbca562df7e120b4ebf12",
    "a field of a dataclass": "e7d09231eb3240b9024b2fdda60bd1c8",
    "a format": "875d8a303c9c4ec9cd032635ad636280",
    "a function inside": "d4d594e344c4c54690ef063469b523b1",
    "a global": "49104df872ba86f30c14980159d6154a",
    "a lambda of a lambda": "1ec5e7ed2785c2cee09ebc110e753ac9",
    "a large mapping": "b553581b56a979018be5e2eaccf66c64",
    "a match": "f016687e3328b2491e89c43dde8f888a",
    "a named tuple": "4bc055cae17b32b115fa01e5103661a0",
    "an attribute of a class inside a function": "0553a5ce554d01dbbf22bfa4747b3a03",
    "an enum's value": "71b0c69d03014c940872cc0343f35137",
    "await for a call": "744defb89f94d96c2ef9e94ee253ffe7",
    "what is inside try": "b6a0b280a4286162a83dc7bfc4e4ed91",
}


@pytest.mark.parametrize("case", GOLDEN)
def test_a_digest_is_the_same_in_every_version_of_python(case: str) -> None:
    assert of(DANGEROUS[case][0])["digest"] == GOLDEN[case]


def test_another_process_with_another_seed_gives_the_same_digests() -> None:
    script = (
        "import sys; sys.path[:0] = [{!r}, {!r}]\n"
        "from tests.planner.test_python_code import DANGEROUS, of\n"
        "print([of(text)['digest'] for text, _, _ in DANGEROUS.values()])"
    ).format(str(ROOT), str(ROOT / "src"))
    printed = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {f"{[of(text)['digest'] for text, _, _ in DANGEROUS.values()]}\n"}


VARIABLES = ("a", "b", "c")
TOKENS = ("a ", "b ", "c ", "0", "1", "2", " + ", " - ", " * ", " < ", " and ", " or ", "not ")
atoms = st.sampled_from([*VARIABLES, "0", "1", "2"])
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "<", "==", "and", "or"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        st.tuples(inner, inner, inner).map(lambda parts: f"({parts[0]} if {parts[1]} else {parts[2]})"),
        inner.map(lambda text: f"(not {text})"),
        st.tuples(inner, st.sampled_from(VARIABLES)).map(lambda parts: f"sum([{parts[0]} for {parts[1]} in range(3)])"),
        inner.map(lambda text: f"(lambda: {text})()"),
    ),
    max_leaves=5,
)


def indent(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


statements = st.recursive(
    st.one_of(
        st.tuples(st.sampled_from(VARIABLES), expressions).map(lambda parts: f"{parts[0]} = {parts[1]}\n"),
        expressions.map(lambda text: f"return {text}\n"),
    ),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(expressions, inner, inner).map(
            lambda parts: f"if {parts[0]}:\n{indent(parts[1])}else:\n{indent(parts[2])}"
        ),
        st.tuples(expressions, inner).map(
            lambda parts: f"for b in range(2):\n    if {parts[0]}:\n        break\n{indent(parts[1])}"
        ),
        st.tuples(inner, inner).map(lambda parts: f"try:\n{indent(parts[0])}except ValueError:\n{indent(parts[1])}"),
    ),
    max_leaves=6,
)


def write_function(body: str, names: tuple[str, ...] = VARIABLES) -> str:
    text = f"def f(a):\n    b = c = 1\n{indent(body)}"
    return re.sub(r"\b[abc]\b", lambda match: names[VARIABLES.index(match[0])], text)


def compiles(text: str) -> bool:
    try:
        compile(text, "", "exec")
    except SyntaxError:
        return False
    return True


def results(text: str) -> list[Any]:
    function, results = load_module(text).f, []
    for value in (0, 1, 5):
        try:
            results.append(function(value))
        except NameError as error:
            results.append(type(error))
    return results


@settings(max_examples=150, deadline=None)
@given(statements, st.permutations(VARIABLES), st.booleans())
@example("a = (lambda: (a if (1 if a else 1) else a))()\n", ["a", "b", "c"], True)
def test_renamed_variables_and_other_lines_are_the_same(body: str, names: list[str], wide: bool) -> None:
    text = write_function(body)
    other = text.replace("(", "(\n") if wide else write_function(body, tuple(names))
    assert compare_meanings(of(text), of(other)) == []


@settings(max_examples=150, deadline=None)
@given(statements, st.sampled_from(TOKENS), st.sampled_from(TOKENS))
def test_what_is_the_same_gives_the_same_results(body: str, token: str, other: str) -> None:
    texts = write_function(body), write_function(body.replace(token, other, 1))
    assume(compiles(texts[1]))
    if of(texts[0])["digest"] == of(texts[1])["digest"]:
        assert results(texts[0]) == results(texts[1])
