"""OpenLineage's events of each start of a query: which datasets it reads and writes, and how it ended.

The library's own configuration says where they go: OPENLINEAGE_URL, or a file openlineage.yml.
"""

from __future__ import annotations

import logging
import os
import posixpath
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from headrace.contract import BatchRecord, Columns, Observer, Outcome, QueryStart, QueryState
from headrace.errors import Finding, PlatformError, import_optional
from headrace.redaction import redacted

RunState: TypeAlias = Literal["START", "RUNNING", "COMPLETE", "FAIL"]
HELD = 1_000
RUNNING_SECONDS = 60.0
CLOSE_SECONDS = 5.0
NAMESPACE = "headrace"
_MODULES = ("client", "client.event_v2", "client.facet_v2")


@dataclass(kw_only=True)
class LineageStart:
    """One start of a query, by Spark's id of it. inputs, outputs: with the columns, as far as they are known.

    rows: what its batches have read of each source; reads: the source of each input.
    """

    query: str
    run_id: str
    description: str = ""
    inputs: Mapping[Dataset, Columns] = field(default_factory=dict)
    outputs: Mapping[Dataset, Columns] = field(default_factory=dict)
    reads: Mapping[Dataset, str] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    sent_at: float = 0.0

    def due(self) -> bool:
        """Whether it is time for the next RUNNING event: at the first batch, then once a minute."""
        now = time.monotonic()
        if self.sent_at and now - self.sent_at < RUNNING_SECONDS:
            return False
        self.sent_at = now
        return True


class Lineage(Observer):
    """Sends an event for each start of a query and its end; a restart is a run of its own.

    Sends events from a thread of its own; a server that is unreachable is reported once until it is back.

    report: receives a finding when an event could not be sent, from that thread.
    """

    def __init__(self, app: str, spark_version: str, report: Callable[[Finding], None]) -> None:
        self._app, self._spark, self._report = app, spark_version, report
        self._away = False
        self._starts: dict[str, LineageStart] = {}
        for module in _MODULES:  # not at the first event, which a batch would wait for
            _require(module)
        self._queue: queue.Queue[Any] = queue.Queue(HELD)
        try:
            self._client = _require("client").OpenLineageClient()
        except Exception as error:
            problem = f"OpenLineage is not configured correctly: {redacted(str(error))}"
            fix = "correct openlineage.yml or the variables OPENLINEAGE_*"
            raise PlatformError(code="HR898", what=problem, fix=fix) from error
        self._thread = threading.Thread(target=self._deliver, name="openlineage", daemon=True)
        self._thread.start()

    def started(self, start: QueryStart) -> None:
        self._end(start.query, None)
        columns: Mapping[str, Columns] = {}
        with suppress(Exception):  # the query has ended, or its session
            columns = start.columns()
        reads = {dataset: name for name, identity in start.reads.items() for dataset in datasets(identity)}
        begun = LineageStart(
            query=start.query,
            run_id=start.run_id,
            description=start.description,
            reads=reads,
            inputs={dataset: columns.get(name, ()) for dataset, name in reads.items()},
            outputs=dict.fromkeys(datasets(start.writes), columns.get("", ())),
        )
        self._starts[start.query] = begun
        self.send("START", begun)

    def progressed(self, record: BatchRecord) -> None:
        start = self._starts.get(record.query)
        if start is None:
            return
        for source in record.sources:
            start.rows[source.name] = start.rows.get(source.name, 0) + source.rows
        if start.due():
            self.send("RUNNING", start)

    def changed(self, state: QueryState) -> None:
        if state.state in ("paused", "restarting"):
            self._end(state.query, state.cause if state.state == "restarting" else None)

    def ended(self, outcome: Outcome) -> None:
        self._end(outcome.query, outcome.finding if outcome.state == "failed" else None)

    def _end(self, query: str, error: Finding | None) -> None:
        start = self._starts.pop(query, None)
        if start is not None:
            self.send("COMPLETE" if error is None else "FAIL", start, error)

    def send(self, state: RunState, start: LineageStart, error: Finding | None = None) -> None:
        """Have an event sent; returns at once."""
        try:
            self._queue.put_nowait(self._event(state, start, error))
        except queue.Full:
            self._report_failure(f"{HELD:,} events wait already")

    def close(self) -> None:
        """Send what waits, for some seconds at most."""
        with suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join(CLOSE_SECONDS)

    def _deliver(self) -> None:
        # The library logs each attempt that failed with its trace.
        logging.getLogger("openlineage").setLevel(logging.CRITICAL)
        while (event := self._queue.get()) is not None:
            try:
                self._client.emit(event)
                self._away = False
            except Exception as error:
                self._report_failure(redacted(str(error))[:300] or type(error).__name__)
        with suppress(Exception):
            self._client.close(CLOSE_SECONDS)

    def _report_failure(self, why: str) -> None:
        if not self._away:
            self._away = True
            fix = "start the server that OPENLINEAGE_URL or openlineage.yml names; the queries keep running without it"
            self._report(Finding(code="HR875", what=f"events of OpenLineage are not delivered: {why}", fix=fix))

    def _event(self, state: RunState, start: LineageStart, error: Finding | None) -> Any:
        events, producer = _require("client.event_v2"), f"urn:headrace:{version('headrace')}"
        events.set_producer(producer)
        return events.RunEvent(
            eventType=getattr(events.RunState, state),
            eventTime=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            run=events.Run(runId=start.run_id, facets=self._run_facets(error)),
            job=events.Job(
                namespace=os.environ.get("OPENLINEAGE_NAMESPACE") or NAMESPACE,
                name=f"{self._app}.{start.query}",
                facets=_job_facets(start),
            ),
            inputs=[
                events.InputDataset(
                    dataset.namespace,
                    dataset.name,
                    facets=_schema(columns),
                    inputFacets=_rows_read(start.rows.get(start.reads.get(dataset, ""))),
                )
                for dataset, columns in start.inputs.items()
            ],
            outputs=[
                events.OutputDataset(dataset.namespace, dataset.name, facets=_schema(columns))
                for dataset, columns in start.outputs.items()
            ],
            producer=producer,
        )

    def _run_facets(self, error: Finding | None) -> dict[str, Any]:
        engine = _facets("processing_engine_run").ProcessingEngineRunFacet(
            version=self._spark, name="spark", openlineageAdapterVersion=version("headrace")
        )
        facets = {"processing_engine": engine}
        if error is not None:
            message = redacted(f"{error.code}: {error.what}")
            facets["errorMessage"] = _facets("error_message_run").ErrorMessageRunFacet(message, "PYTHON")
        return facets


def _job_facets(start: LineageStart) -> dict[str, Any]:
    kind = _facets("job_type_job").JobTypeJobFacet(processingType="STREAMING", integration="HEADRACE", jobType="QUERY")
    facets = {"jobType": kind}
    if start.description:
        facets["documentation"] = _facets("documentation_job").DocumentationJobFacet(description=start.description)
    return facets


def _schema(columns: Columns) -> dict[str, Any]:
    if not columns:
        return {}
    made = _facets("schema_dataset")
    fields = [made.SchemaDatasetFacetFields(name=name, type=kind) for name, kind in columns]
    return {"schema": made.SchemaDatasetFacet(fields=fields)}


def _rows_read(rows: int | None) -> dict[str, Any]:
    if rows is None:
        return {}
    made = _facets("input_statistics_input_dataset")
    return {"inputStatistics": made.InputStatisticsInputDatasetFacet(rowCount=rows)}


def _facets(name: str) -> Any:
    return getattr(_require("client.facet_v2"), name)


def _require(module: str) -> Any:
    problem = "OpenLineage needs the package openlineage-python, which is not installed"
    return import_optional(f"openlineage.{module}", problem, "openlineage")


# Their schemes as OpenLineage writes them; the names have no leading slash, for they are keys and no paths.
_OBJECT_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "wasbs": "wasbs"}


@dataclass(frozen=True)
class Dataset:
    """A dataset's two names: where it lies, and what it is called there."""

    namespace: str
    name: str


def datasets(identity: Mapping[str, Any] | None) -> tuple[Dataset, ...]:
    """Return the datasets of a source or a sink; none where it says nothing of itself, or is not a store, as a socket.

    Source: OpenLineage's specification, "Dataset naming"; a table of SQLite and of Spark's own catalog has no rule.
    """
    facts = identity or {}
    system, table = str(facts.get("system", "")), facts.get("table")
    if "topics" in facts:
        return tuple(Dataset(f"{system}://{facts['servers'][0]}", str(topic)) for topic in facts["topics"])
    if "server" in facts and table is not None:
        name = f"{facts['database']}.{table}" if "database" in facts else str(table)
        return (Dataset(f"{system}://{facts['server']}", name),)
    if "path" in facts:
        place = path_dataset(str(facts["path"]))
        return (place if table is None else Dataset(f"{system}://{place.name}", str(table)),)
    if table is None:
        return ()
    catalog = str(facts.get("catalog", ""))
    if "warehouse" in facts:
        return (Dataset(catalog, posixpath.join(str(facts["warehouse"]), str(table))),)
    return (Dataset(catalog if "://" in catalog else f"{system}://{catalog}".removesuffix("://"), str(table)),)


def path_dataset(path: str) -> Dataset:
    """Return the dataset of a directory or a file, by its path in one spelling."""
    parts = urlsplit(path)
    if not parts.netloc and parts.scheme in ("", "file"):
        return Dataset("file", parts.path if parts.scheme else path)
    scheme = _OBJECT_STORES.get(parts.scheme)
    name = parts.path.lstrip("/") or "/" if scheme else parts.path or "/"
    return Dataset(f"{scheme or parts.scheme}://{parts.netloc}", name)
