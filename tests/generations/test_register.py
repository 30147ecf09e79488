"""A query has one id and one directory for life; a storage that does not identify them is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import CheckpointError, HeadraceError, PlatformError
from headrace.generations import register
from headrace.generations.facts import context_facts
from headrace.generations.inspect_checkpoint import inspect_checkpoint
from headrace.generations.log import QUERIES, QUERY_FILE, begin
from headrace.generations.register import (
    FOLDER,
    Register,
    enter_name,
    layout_of,
    read_register,
    rebuild_register,
    register_project,
    register_query,
)
from headrace.model import Project
from headrace.storage.durable import create_file
from tests.runner.projects import write_project

pytestmark = pytest.mark.plain
FORMER = Path(__file__).parent / "form_of_0_1_0"
BODY = """
@hr.query(sink=hr.sink.sqlite("out.db", table="totals", key=["name"]), mode="update", renamed_from={former!r})
def {name}(events):
    return events.groupBy("name").agg(F.sum("amount").alias("total"))
"""


def name_query(root: Path, name: str, former: object = ()) -> Project:
    """The project once its one query has this name."""
    return hr.load(write_project(root, BODY.format(name=name, former=former)))


def has_run(project: Project, name: str) -> None:
    register_query(project, project.queries[name])
    begin(layout_of(project, project.queries[name]).folder)
    (layout_of(project, project.queries[name]).checkpoint / "offsets").mkdir(parents=True)
    (layout_of(project, project.queries[name]).checkpoint / "offsets" / "0").write_text("v1\n{}\n-")


def test_many_that_register_at_once_get_one_id_and_one_directory(tmp_path: Path) -> None:
    project = name_query(tmp_path / "p", "sums")
    assert read_register(project.storage) is None
    with ThreadPoolExecutor(8) as pool:
        entries = set(pool.map(lambda _: register_query(project, project.queries["sums"]), range(40)))
    (entry,) = entries
    assert entry.directory == f"sums-{entry.id[:8]}"
    facts = json.loads((project.storage / QUERIES / entry.directory / QUERY_FILE).read_text())
    assert (facts["id"], facts["query"], facts["application"]) == (
        entry.id,
        "sums",
        register_project(project).application,
    )


def test_a_directory_whose_facts_another_process_is_writing_was_not_used(tmp_path: Path) -> None:
    project = name_query(tmp_path / "p", "sums")
    folder = project.storage / QUERIES / "sums-00000000"
    folder.mkdir(parents=True)
    (folder / f".{QUERY_FILE}.0123.headrace").write_text("{")
    assert register_query(project, project.queries["sums"]).directory != folder.name
    (project.storage / QUERIES / "sums-11111111" / "g1").mkdir(parents=True)
    current = register_project(project)
    with pytest.raises(CheckpointError, match="HR585"):
        register.require_known(project.storage, current, "sums")


def test_a_moved_project_stays_the_same_and_knows_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    before = register_project(Project(name="phones", root=tmp_path / "old"))
    shutil.move(tmp_path / "old", tmp_path / "new")
    project = Project(name="phones", root=tmp_path / "new")
    assert context_facts(project)["roots"] == (tmp_path / "new", tmp_path / "old"), "a look registers nothing"
    assert read_register(project.storage) == before
    after = register_project(project)
    assert (after.application, after.number) == (before.application, before.number + 1)
    assert read_register(project.storage) == register_project(project)
    assert context_facts(project)["roots"] == (tmp_path / "new", tmp_path / "old")


def test_the_newest_record_counts_and_an_older_one_is_never_used_in_its_place(tmp_path: Path) -> None:
    project = name_query(tmp_path / "p", "sums")
    register_project(project)
    register_query(project, project.queries["sums"])
    newest = max((project.storage / FOLDER).iterdir())
    newest.write_text("{")
    with pytest.raises(PlatformError, match="HR584"):
        register_query(project, project.queries["sums"])
    with pytest.raises(PlatformError, match="HR584"):
        layout_of(project, project.queries["sums"])


def test_the_facts_of_a_directory_can_be_written_by_hand_from_the_register(tmp_path: Path) -> None:
    project = name_query(tmp_path / "p", "sums")
    has_run(project, "sums")
    current = read_register(project.storage)
    assert current is not None
    entry = current.queries["sums"]
    file = project.storage / QUERIES / entry.directory / QUERY_FILE
    file.unlink()
    with pytest.raises(CheckpointError, match="HR585"):
        register_query(project, project.queries["sums"])
    facts = {"id": entry.id, "query": "sums", "application": current.application, "project": current.project}
    file.write_text(json.dumps(facts))
    assert register_query(project, project.queries["sums"]) == entry
    shutil.rmtree(project.storage / FOLDER)
    assert rebuild_register(project.storage).queries == {"sums": entry}


def test_a_writer_that_finds_its_number_taken_reads_again_what_stands_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = name_query(tmp_path / "p", "sums")
    other = name_query(tmp_path / "p", "means")
    register_project(project)
    append, overtaken = register.append, list[str]()

    def late(storage: Path, record: Register) -> bool:
        if not overtaken:
            overtaken.append("once")
            monkeypatch.setattr(register, "append", append)
            register_query(other, other.queries["means"])
        return append(storage, record)

    monkeypatch.setattr(register, "append", late)
    register_query(project, project.queries["sums"])
    current = read_register(project.storage)
    assert current is not None
    assert (sorted(current.queries), current.number) == (["means", "sums"], 3)


def test_the_lost_answer_of_a_create_is_found_again_by_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(file: Path, text: str) -> bool:
        create_file(file, text)
        raise OSError("no answer")

    monkeypatch.setattr("headrace.storage.numbered.create_file", silent)
    project = Project(name="phones", root=tmp_path)
    assert register_project(project).project == "phones"
    assert [file.name for file in (project.storage / FOLDER).iterdir()] == ["000001.json"]


def test_a_start_that_was_cut_off_before_it_was_registered_is_no_other_query(tmp_path: Path) -> None:
    project = name_query(tmp_path / "p", "sums")
    drawn = register.with_new_query(project.storage, Register(application="ours", project="", roots=()), "sums")
    assert drawn is not None
    assert register_query(project, project.queries["sums"]) == drawn.queries["sums"]
    assert register_project(project).application == "ours"


def test_a_query_keeps_its_directory_when_it_is_renamed_and_its_former_name_is_free(tmp_path: Path) -> None:
    root = tmp_path / "p"
    has_run(name_query(root, "old"), "old")
    before = layout_of(name_query(root, "old"), name_query(root, "old").queries["old"])
    project = name_query(root, "new", "old")
    query = project.queries["new"]
    assert layout_of(project, query).home == before.home, "a look finds it by its former name"
    for _ in range(2):
        enter_name(project, query, layout_of(project, query))
        entry = read_register(project.storage).queries["new"]
        assert (entry.directory, entry.former) == (before.directory, ("old",))
    free = name_query(root, "new")
    assert layout_of(free, free.queries["new"]).home == before.home, "the option may go"
    another = name_query(root, "old")
    assert register_query(another, another.queries["old"]).directory != before.directory


def test_a_start_by_the_new_name_that_planned_no_batch_gives_way(tmp_path: Path) -> None:
    root = tmp_path / "p"
    has_run(name_query(root, "old"), "old")
    before = layout_of(name_query(root, "old"), name_query(root, "old").queries["old"])
    register_query(name_query(root, "new"), name_query(root, "new").queries["new"])
    project = name_query(root, "new", "old")
    for _ in range(2):
        enter_name(project, project.queries["new"], layout_of(project, project.queries["new"]))
        assert layout_of(project, project.queries["new"]).home == before.home


def test_a_name_that_another_process_gives_at_the_same_time_is_not_given_twice(tmp_path: Path) -> None:
    root = tmp_path / "p"
    has_run(name_query(root, "old"), "old")
    late, project = name_query(root, "new", "old"), name_query(root, "third", "old")
    layout = layout_of(late, late.queries["new"])
    enter_name(project, project.queries["third"], layout_of(project, project.queries["third"]))
    with pytest.raises(CheckpointError, match=r"HR549.*to 'third'"):
        enter_name(late, late.queries["new"], layout)


def lost_register(storage: Path) -> None:
    shutil.rmtree(storage / FOLDER)


def copied_register(storage: Path) -> None:
    shutil.rmtree(storage / QUERIES)


def lost_directory(storage: Path) -> None:
    (directory,) = (storage / QUERIES).iterdir()
    shutil.rmtree(directory)


def older_register(storage: Path) -> None:
    """The newest record, which named the query, is gone, as where the register alone came from an older copy."""
    max((storage / FOLDER).iterdir()).unlink()


def form_of_0_1_0(storage: Path) -> None:
    shutil.rmtree(storage)
    shutil.copytree(FORMER, storage)


DOUBTS = {
    damage.__name__: damage
    for damage in (lost_register, copied_register, lost_directory, older_register, form_of_0_1_0)
}


@pytest.mark.parametrize("doubt", DOUBTS.values(), ids=DOUBTS)
def test_a_storage_that_does_not_identify_its_queries_is_refused_by_one_finding_and_left_as_it_is(
    tmp_path: Path, doubt: Callable[[Path], None]
) -> None:
    project = name_query(tmp_path / "p", "totals")
    register_project(project)
    has_run(project, "totals")
    doubt(project.storage)
    before = sorted(str(file) for file in project.storage.rglob("*"))
    for act in (
        lambda: register_query(project, project.queries["totals"]),
        lambda: hr.reset(project, "totals", result="drop").apply(),
        lambda: inspect_checkpoint(project, project.queries["totals"]),
    ):
        with pytest.raises(HeadraceError) as error:
            act()
        assert [finding.code for finding in error.value.findings] == ["HR585"]
    assert sorted(str(file) for file in project.storage.rglob("*")) == before


def test_a_lost_register_is_made_from_the_directories_of_the_queries(tmp_path: Path) -> None:
    project = name_query(tmp_path / "p", "totals")
    has_run(project, "totals")
    before = register_project(project)
    layout = layout_of(project, project.queries["totals"])
    lost_register(project.storage)
    rebuild_register(project.storage)
    after = register_project(project)
    assert (after.application, after.queries) == (before.application, before.queries)
    assert layout_of(project, project.queries["totals"]) == layout
    with pytest.raises(CheckpointError, match="HR585"):
        rebuild_register(project.storage)


@pytest.mark.parametrize("doubt", [copied_register, form_of_0_1_0])
def test_an_unclear_storage_makes_no_register(tmp_path: Path, doubt: Callable[[Path], None]) -> None:
    project = name_query(tmp_path / "p", "totals")
    has_run(project, "totals")
    doubt(project.storage)
    if doubt is copied_register:
        lost_register(project.storage)
    with pytest.raises(CheckpointError, match="HR585"):
        rebuild_register(project.storage)
