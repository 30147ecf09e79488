"""Write the generated parts of the documentation: what lies between `NAME:begin` and `NAME:end` in each page."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import click

import headrace
from headrace import errors, registry, results
from headrace.cli.entry import headrace as commands
from headrace.contract import OUTPUT_MODES, SinkFacts, Source, SourceFacts, readable_back
from headrace.declare.decorators import DeclaresQuery
from headrace.model.state_store import OPTIONS, PREFIX
from headrace.spark.jvm.settings import BLOCK_CACHE, LEAST_CACHE_MB, LOCAL_LISTING, STATE_CACHE_MB, settings
from scripts import architecture, findings_page, lifetime_curve, signatures, sinks_compared

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
EXPLANATION = ROOT / "docs" / "explanation"
HOW_TO = ROOT / "docs" / "how-to"
EXAMPLES = ROOT / "examples"
RESULTS = ROOT / "benchmarks" / "results"
# The figures of the README's one sentence; the page of the benchmarks has them all.
IN_SHORT = {
    "newcomer": "headline job: ours against newcomer",
    "expert": "headline job: ours against expert",
    "upsert": "PostgreSQL: upsert of 2,000,000 new rows",
}
VALUES: list[Any] = [errors.Finding, *(cls for name in dir(results) if is_dataclass(cls := getattr(results, name)))]
# The types of options that hold a path of the project.
_PATHS = ("ProjectPath", "SchemaOrFile")
# The classes whose members stand below the function that returns them.
MEMBERS: dict[str, tuple[type[Any], tuple[str, ...]]] = {
    "change": (results.Change, ("plan", "apply", "status", "resume", "undo", "discard")),
    "running": (results.RunningApplications, ("stop", "pause", "resume", "restart", "deploy", "follow")),
}
KINDS: tuple[registry.ConnectorKind, ...] = ("source", "sink")


def main() -> int:
    """Bring every page and the stub of the connectors up to date, and name those that changed."""
    signatures.main(())
    for file, text in pages().items():
        if text != file.read_text(encoding="utf-8"):
            file.write_text(text, encoding="utf-8")
            print(f"wrote {file.relative_to(ROOT)}")
    text = findings_page.PAGE.read_text(encoding="utf-8")
    if text != (made := findings_page.page(text)):
        findings_page.PAGE.write_text(made, encoding="utf-8")
        print(f"wrote {findings_page.PAGE.relative_to(ROOT)}")
    return subprocess.run([sys.executable, str(ROOT / "scripts" / "capabilities.py"), "--page"], cwd=ROOT).returncode


def pages() -> dict[Path, str]:
    """Every page with generated parts, as it should be."""
    return {file: page(file) for file in parts()}


def page(file: Path) -> str:
    """One page with generated parts, as it should be."""
    return _fill(file, parts()[file])


def parts() -> dict[Path, dict[str, Callable[[], str]]]:
    pages: dict[Path, dict[str, Callable[[], str]]] = {
        ROOT / "README.md": {"benchmarks": speed_sentence},
        ROOT / "benchmarks" / "README.md": {
            "flink": lambda: benchmark_table(of="against_flink"),
            "results": benchmark_table,
        },
        EXPLANATION / "scale.md": {"measured": lambda: benchmark_table(of="scale")},
        HOW_TO / "operate.md": {
            "measured": lambda: benchmark_table(of="operate"),
            "lifetime": lambda: f"{lifetime_curve.charts()}\n\n{benchmark_table(of='lifetime')}",
        },
        EXPLANATION / "sinks-compared.md": {
            "sinks": sinks_compared.sinks,
            "promised": sinks_compared.list_promised,
            "beyond": sinks_compared.beyond,
        },
        EXPLANATION / "architecture.md": {"picture": architecture.picture, "rooms": architecture.table},
        REFERENCE / "commands.md": {"commands": command_list},
        REFERENCE / "settings.md": {"settings": setting_list},
        REFERENCE / "state-store.md": {"options": state_store_list},
        REFERENCE / "sources.md": {"list": lambda: connector_list("source"), "facts": lambda: fact_list(SourceFacts)},
        REFERENCE / "sinks.md": {"list": lambda: connector_list("sink"), "facts": lambda: fact_list(SinkFacts)},
        ROOT / "docs" / "tutorial" / "examples.md": {"list": example_list},
        REFERENCE / "python-api.md": {"names": name_list, "values": value_list, "errors": error_tree},
    }
    for kind in KINDS:
        for name in registry.list_names(kind):
            pages[connector_page(kind, name)] = {"options": lambda kind=kind, name=name: connector_part(kind, name)}  # type: ignore[misc]
    return pages


def connector_page(kind: registry.ConnectorKind, name: str) -> Path:
    """Where a connector is documented."""
    return REFERENCE / f"{kind}s" / f"{name.replace('_', '-')}.md"


def _fill(file: Path, made: dict[str, Callable[[], str]]) -> str:
    text = file.read_text(encoding="utf-8")
    for name, content in made.items():
        pattern = re.compile(rf"(<!-- {name}:begin[^>]*-->\n).*?(<!-- {name}:end -->)", re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"{file.relative_to(ROOT)} has no <!-- {name}:begin --> ... <!-- {name}:end -->")
        inside = content().strip("\n")
        text = pattern.sub(lambda match, inside=inside: f"{match[1]}\n{inside}\n\n{match[2]}", text)  # type: ignore[misc]
    return text


# ------------------------------------------------------------------------------------------------------- commands


def command_list() -> str:
    """Each command with its arguments and options."""
    return "\n\n".join(_command(name, command) for name, command in commands.commands.items() if not command.hidden)


def _command(name: str, command: click.Command, level: str = "##") -> str:
    if isinstance(command, click.Group):
        parts = [_command(f"{name} {inner_name}", inner, "###") for inner_name, inner in command.commands.items()]
        return "\n\n".join([f"## headrace {name}", inspect.cleandoc(command.help or ""), *parts])
    context = click.Context(command, info_name=f"headrace {name}", max_content_width=100)
    usage = " ".join([f"headrace {name}", *command.collect_usage_pieces(context)])
    options = [option for option in command.params if isinstance(option, click.Option)]
    rows = [cells for option in options if (cells := option.get_help_record(context)) is not None]
    lines = [f"| `{names}` | {_cell(meaning)} |" for names, meaning in rows]
    table = ["", "| option | meaning |", "|---|---|", *lines] if lines else []
    return "\n".join([f"{level} headrace {name}", "", f"`{usage}`", "", inspect.cleandoc(command.help or ""), *table])


# ------------------------------------------------------------------------------------------------------- settings


OF_THE_MACHINE = {
    "spark.sql.shuffle.partitions": "the number of cores",
    BLOCK_CACHE: f"{STATE_CACHE_MB} by the number of cores, at least {LEAST_CACHE_MB}",
}


def setting_list() -> str:
    """Spark's settings, those of a local session too, with their reasons."""
    short = {setting.key: setting.value for setting in settings(master="local[*]", purpose="short")}
    everywhere = {setting.key for setting in settings(master="spark://example:7077", purpose="stream")}
    lines = ["| setting | value | reason |", "|---|---|---|"]
    for setting in settings(master="local[*]", purpose="stream"):
        value = OF_THE_MACHINE.get(setting.key, f"`{setting.value}`")
        if short[setting.key] != setting.value:
            value += f"; `{short[setting.key]}` for `check` and `verify`"
        if setting.key not in everywhere:
            value += ", on a local master"
        lines.append(f"| `{setting.key}` | {value} | {_cell(setting.reason)} |")
    value = f"`{LOCAL_LISTING.value}`, where no path of a source or a sink is in a store"
    lines.append(f"| `{LOCAL_LISTING.key}` | {value} | {_cell(LOCAL_LISTING.reason)} |")
    return "\n".join(lines)


def state_store_list() -> str:
    """The options of the state store with Spark's keys."""
    lines = [
        f"Spark's keys begin with `{PREFIX}`.",
        "",
        "| option | value | default | meaning | key |",
        "|---|---|---|---|---|",
    ]
    for option in OPTIONS.values():
        meaning = option.meaning + (f"; needs `{option.needs}`" if option.needs else "")
        lines.append(f"| `{option.name}` | {option.takes} | `{option.default}` | {_cell(meaning)} | `{option.key}` |")
    return "\n".join(lines)


# ----------------------------------------------------------------------------------------------------- connectors


def connector_part(kind: registry.ConnectorKind, name: str) -> str:
    """What a connector says of itself: its docstring, options and facts."""
    cls = registry.connector(kind, name)
    options = [option for option in fields(cls) if option.init]
    table = [
        "| option | type | default |",
        "|---|---|---|",
        *(f"| `{option.name}` | `{_cell(_type(option))}` | {_default(option)} |" for option in options),
    ]
    paths = [f"`{option.name}`" for option in options if any(path in str(option.type) for path in _PATHS)]
    relative = [f"\nA relative {' or '.join(paths)} starts from the project's directory."] if paths else []
    none = ["It has no options."]
    return "\n".join(
        [_prose(cls), "", "## Options", "", *(table if options else none), *relative, "", "## Facts", "", *_facts(cls)]
    )


def _type(option: Field[Any]) -> str:
    plain = str(option.type).replace("contract.", "").replace("ProjectObject", "Any")
    return reduce(lambda text, path: text.replace(path, "str"), _PATHS, plain)


def _default(option: Field[Any]) -> str:
    if option.default is MISSING and option.default_factory is MISSING:
        return "required"
    return "none" if option.default in (MISSING, None, ()) else f"`{json.dumps(option.default)}`"


def _facts(cls: type[Any]) -> Iterator[str]:
    made = _with_defaults(cls)
    facts = made.facts
    derived = (
        {name: getattr(made, name) for name in ("readable_as_batch", "quarantines")}
        if isinstance(made, Source)
        else {"readable_back": readable_back(made), "correctable": made.corrections is not None}
    )
    if any(isinstance(vars(cls).get(name), property) for name in ("facts", *derived)):
        yield "With the options' defaults:\n"
    yield "| fact | value |"
    yield "|---|---|"
    for fact in fields(facts):
        value = derived.pop(fact.name, getattr(facts, fact.name))
        if isinstance(value, frozenset):
            value = ", ".join(mode for mode in OUTPUT_MODES if mode in value)
        elif isinstance(value, tuple):
            value = ", ".join(f"`{option}`" for option in value) or "none"
        yield f"| {_words(fact.name)} | {value if isinstance(value, str) else 'yes' if value else 'no'} |"
    for name, value in derived.items():
        yield f"| {_words(name)} | {'yes' if value else 'no'} |"


def fact_list(facts: type[Any]) -> str:
    """What each fact means, as the contract says it."""
    return "\n".join(line for line in _prose(facts).splitlines() if line.startswith(("- ", "  ")))


def connector_list(kind: registry.ConnectorKind) -> str:
    """A link to the page of each connector, with its first sentence."""
    lines = []
    for name in registry.list_names(kind):
        page = connector_page(kind, name)
        first = (sys.modules[registry.connector(kind, name).__module__].__doc__ or "").strip()
        lines.append(f"- [{name}]({page.relative_to(REFERENCE)}): {first[0].lower()}{first[1:]}")
    return "\n".join(lines)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _with_defaults(cls: type[Any]) -> Any:
    """An instance whose required options hold an empty text; only its facts are looked at."""
    required = [o.name for o in fields(cls) if o.init and o.default is MISSING and o.default_factory is MISSING]
    return cls(**dict.fromkeys(required, ""))


# ------------------------------------------------------------------------------------------------------- examples


def example_list() -> str:
    """A link to each example, with the section of the guide, the form and the first sentence of its README."""
    lines = ["| example | section of the guide | written in | what it shows |", "|---|---|---|---|"]
    for file in sorted(EXAMPLES.glob("*/README.md")):
        if (file.parent / "pyproject.toml").exists():  # A distribution and no project.
            continue
        text = file.read_text(encoding="utf-8")
        sections = re.findall(r'"([^"]+)"', next(line for line in text.splitlines() if line.startswith("Guide: ")))
        form = next(form for form in ("YAML, SQL and Python", "YAML and SQL", "Python") if f"{form}." in text)
        shows = text.splitlines()[2].removesuffix(f" {form}.")
        cells = (f"[{file.parent.name}](../../examples/{file.parent.name}/README.md)", "; ".join(sections), form, shows)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


# --------------------------------------------------------------------------------------------------------- Python


def name_list() -> str:
    """Each public name with its signature and its docstring."""
    return "\n\n".join(_name(name, getattr(headrace, name)) for name in headrace.__all__)


def _name(name: str, thing: Any) -> str:
    lines = [f"## {name}", ""]
    if inspect.ismodule(thing):
        parts = [_name(f"{name}.{part}", getattr(thing, part)).replace("## ", "### ", 1) for part in thing.__all__]
        return "\n\n".join(["\n".join([*lines, _prose(thing)]), *parts])
    if inspect.isfunction(thing):
        stated = DeclaresQuery.__call__ if thing is headrace.query else thing
        lines += ["```python", f"def {name.rpartition('.')[2]}{_signature(stated)}: ...", "```", ""]
    if is_dataclass(thing) and isinstance(thing, type):
        return "\n".join([*lines, _prose(thing), "", _fields(thing)])
    prose = _prose(thing)
    if thing is headrace.query:
        # What the decorator's types hide is no argument of the user's.
        prose = re.sub(r"^- `(?:function|frame)`: .*\n", "", prose, flags=re.MULTILINE)
    if name in MEMBERS:
        cls, members = MEMBERS[name]
        return "\n\n".join(["\n".join([*lines, prose]), *(_member(cls, member) for member in members)])
    return "\n".join([*lines, prose])


def _member(cls: type[Any], name: str) -> str:
    member = getattr(cls, name)
    title = f"### {cls.__name__}.{name}\n"
    if isinstance(member, property):
        return f"{title}\n{_prose(member)}"
    return f"{title}\n```python\ndef {name}{_signature(member)}: ...\n```\n\n{_prose(member)}"


def _signature(function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    inside: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in inside:
            inside.append("*")
        default = "" if parameter.default is parameter.empty else f" = {_python(parameter.default)}"
        inside.append(f"{parameter.name}: {parameter.annotation}{default}".replace("'", '"'))
        if parameter.kind is parameter.POSITIONAL_ONLY:
            inside.append("/")
    short = f"({', '.join(inside)}) -> {signature.return_annotation}"
    if len(short) <= 96:
        return short
    return "(\n" + "".join(f"    {parameter},\n" for parameter in inside) + f") -> {signature.return_annotation}"


def _python(value: Any) -> str:
    if inspect.isfunction(value):
        return value.__name__
    return json.dumps(value) if isinstance(value, str) else repr(value)


def value_list() -> str:
    """What the functions give back: each class with its fields."""
    return "\n\n".join(f"### {cls.__name__}\n\n{_prose(cls)}\n\n{_fields(cls)}" for cls in VALUES)


def _fields(cls: type[Any]) -> str:
    meanings = {"query": "The name of the query."}
    for parent in reversed(cls.__mro__):
        section = (inspect.cleandoc(parent.__doc__ or "")).partition("\nAttributes:\n")[2]
        meanings |= re.findall(r"^ {4}(\w+): ((?:.|\n {8})+)", section, re.MULTILINE)
    rows = [(field.name, str(field.type), meanings.get(field.name, "")) for field in fields(cls)]
    for name, member in vars(cls).items():
        if isinstance(member, property):
            kind = inspect.signature(member.fget).return_annotation  # type: ignore[arg-type]
            rows.append((name, str(kind), (inspect.getdoc(member) or "").partition("\n\n")[0]))
    lines = (f"| `{name}` | `{_cell(kind)}` | {_cell(text)} |" for name, kind, text in rows if name[0] != "_")
    return "\n".join(["| attribute | type | meaning |", "|---|---|---|", *lines])


def error_tree() -> str:
    """The tree of errors, as its module draws it."""
    drawn = (errors.__doc__ or "").partition("\n\n")[2].strip("\n")
    return f"```text\n{drawn}\n```"


# ----------------------------------------------------------------------------------------------------- benchmarks


def speed_sentence() -> str:
    """The ratios of `IN_SHORT` as one sentence."""
    ratios = {figure["name"]: figure["ratio"] for result in _results("*") for figure in result["figures"]}
    newcomer, expert, upsert = (f"{ratios[name]:.2g}" for name in IN_SHORT.values())
    return (
        "Measured on two cores, side by side. The headline job takes\n"
        f"{newcomer} of the time of a script with Spark's defaults, and {expert} of that of a script tuned by hand.\n"
        f"An upsert of 2,000,000 new rows into PostgreSQL takes {upsert} times as long as a plain COPY.\n"
        "[Benchmarks](benchmarks/README.md) has all figures, the missed targets too."
    )


def _results(of: str) -> list[dict[str, Any]]:
    """The results of the benchmark `of`; a quick trial does not count."""
    return [
        json.loads(file.read_text(encoding="utf-8"))
        for file in sorted(RESULTS.glob(f"{of}.json"))
        if not file.name.endswith(".quick.json")
    ]


def benchmark_table(of: str = "*") -> str:
    """The figures in results of the benchmark `of`."""
    results = _results(of)
    if not results:
        return "Nothing has been measured yet."
    lines = ["| what | Headrace | the other side | ratio | target | against |", "|---|---|---|---|---|---|"]
    for result in results:
        lines += [_figure(figure) for figure in result["figures"]]
    measured = {f"{result['cores']} cores, Spark {result['versions']['pyspark']}" for result in results}
    return "\n".join([*lines, "", f"Medians, measured on {' and '.join(sorted(measured))}."])


def _figure(figure: dict[str, Any]) -> str:
    ours, theirs, unit = figure["ours"]["median"], figure["theirs"]["median"], figure["unit"]
    target = "none"
    if figure["target"] is not None:
        target = f"{figure['target']:g}" + (f" {unit}" if figure["target_of"] == "ours" else "")
        target += "" if figure["met"] else ", missed"
    cells = (figure["name"], f"{ours:.3g} {unit}", f"{theirs:.3g} {unit}", f"{figure['ratio']:.3g}", target)
    return "| " + " | ".join(_cell(cell) for cell in (*cells, figure["against"])) + " |"


def _prose(thing: Any) -> str:
    """A docstring as Markdown: its `name: meaning` lines and its sections become lists."""
    text, *sections = re.split(
        r"^(?=(?:Args|Attributes|Returns|Yields|Raises):$)", inspect.getdoc(thing) or "", flags=re.MULTILINE
    )
    text = re.sub(r"^([a-z_]+)((?: and what follows)?): ", r"- `\1`\2: ", text, flags=re.MULTILINE)
    text = re.sub(r"^ {4}", "  ", text, flags=re.MULTILINE)
    text = re.sub(r"(?<!\n)\n(- `)", r"\n\1", text)
    return "".join(
        [text, *(_section(section) for section in sections if not section.startswith("Attributes:"))]
    ).rstrip()


def _section(text: str) -> str:
    """A section of a docstring, as Google writes them, as Markdown."""
    text = re.sub(r"^(\w+):$", r"**\1**\n", text, flags=re.MULTILINE)
    text = re.sub(r"^ {4}(\w+): ", r"- `\1`: ", text, flags=re.MULTILINE)
    return re.sub(r"^ {4}(?: {4})?", lambda match: "  " if len(match[0]) == 8 else "", text, flags=re.MULTILINE)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    raise SystemExit(main())
