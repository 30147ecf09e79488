"""The places of a query by its name, for tests: registered first where no start has done so."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

from headrace.generations.log import Directory, QueryLayout, begin, newest_of
from headrace.generations.register import Entry, Register, append, enter_directory, layout_named, read_register


def layout_in(storage: Path, query: str, generation: int = 1) -> QueryLayout:
    """The places of a generation of the query of this name, as the newest record of its log knows it."""
    layout = layout_named(storage, query)
    if not layout.query_id:
        register = read_register(storage) or Register(application=str(uuid.uuid4()), project="", roots=())
        query_id = str(uuid.uuid4())
        entry = Entry(id=query_id, directory=f"{query}-{query_id[:8]}")
        enter_directory(storage, entry, register, query)
        assert append(storage, replace(register, queries={**register.queries, query: entry}))
        layout = layout_named(storage, query)
    record = begin(layout.folder)
    places = (record.live, *([record.building] if record.building else []), *reversed(record.kept))
    own = next((place for place in places if place.generation == generation), Directory(generation=generation))
    return replace(layout.at(own), record=record)


def latest_generation(layout: QueryLayout) -> int:
    """The generation that the query runs as."""
    return newest_of(layout).generation
