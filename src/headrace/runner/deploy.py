"""A changed project brought to a running application: read again, planned, and ordered query by query."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.checks.structure import check_structure_of, no_query
from headrace.control.board import Order, Orders
from headrace.control.deploys import DeployRequest, DeployResult, DeployStep
from headrace.errors import Finding, HeadraceError, ProjectError
from headrace.frames.project_code import forget_code
from headrace.loader.modules import remember_modules
from headrace.model import Project
from headrace.planner.deployment import Declared, plan_steps
from headrace.runner.batch_records import Notes
from headrace.runner.limits import ImportedFiles, list_limits, list_other_settings
from headrace.runner.loaded_files import LoadedFiles
from headrace.runner.new_start import plan_new_start
from headrace.runner.states import States
from headrace.runner.stop import StopRequest
from headrace.spark.jvm.session_conf import in_thread
from headrace.spark.messages.refusals import finding_of
from headrace.starter.plan import plan
from headrace.starter.prepare import require_sound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Those that start come first: an application whose queries have all ended would end.
_IN_TURN = ("start", "restart", "stop", "keep")


class Deployer:
    """Carries out the deploys of a run, one at a time; the orders to the queries are carried out as any others.

    project: the newest one that was deployed, or that the run began with. queries: the names that the run is bound to;
    None: all of the project. files: those of the project, as they were read last. request: by which the run may stop to
    begin again.
    """

    def __init__(
        self,
        project: Project,
        spark: SparkSession,
        states: States,
        orders: Orders,
        notes: Notes,
        *,
        files: LoadedFiles,
        queries: Collection[str] | None,
        request: StopRequest,
        report: Callable[[Callable[[], None]], None],
    ) -> None:
        self.project, self.files, self._request = project, files, request
        self._spark, self._states, self._orders, self._notes = spark, states, orders, notes
        self._queries, self._report = queries, report
        self._imported = ImportedFiles()
        self._is_at_work = False

    def begin(self, order: Order) -> bool:
        """Read the project again, and begin to deploy it in a thread; return False while another deploy is at work.

        The supervising thread calls it, while no query is planned: a load replaces what all threads import.
        """
        if self._is_at_work or order.deploy is None:
            return False
        put_back = remember_modules()
        project: Project | HeadraceError
        try:
            project = self._load_again(order.deploy)
        except Exception as error:  # Whatever it is, the queries run on.
            put_back()
            project = HeadraceError(_findings_of(error))
        self._is_at_work = True
        in_thread(self._spark, lambda: self._deploy(order, project, put_back), self._end, name="headrace-deploy")
        return True

    def _end(self) -> None:
        self._is_at_work = False

    def _load_again(self, request: DeployRequest) -> Project:
        loaded = self.project.loaded
        if loaded is None:
            problem = "the project of this application was not read from files, so that nothing can be read again"
            raise ProjectError(code="HR854", what=problem, fix="stop the application, and start the new code")
        project = loaded.again()
        queries = project.queries.values()
        if not queries:
            raise ProjectError(no_query(project))
        if request.accept_forward:
            project = replace(project, queries={query.name: replace(query, on_change="forward") for query in queries})
        # What the command line has set for this run stays.
        return replace(project, target=self.project.target)

    def _deploy(self, order: Order, project: Project | HeadraceError, put_back: Callable[[], None]) -> None:
        """Plan a deploy and carry it out; whatever comes of it, the order is answered."""
        request = order.deploy or DeployRequest()
        try:
            result = self._plan(project, request, put_back)
            if isinstance(project, HeadraceError) or request.dry_run or not result.done or result.reasons:
                put_back()
            else:
                result = self._carry_out(project, result, by=order.by)
        except Exception as error:
            put_back()
            result = DeployResult(findings=_findings_of(error))
        self._answer(order, result)

    def _plan(
        self, project: Project | HeadraceError, request: DeployRequest, put_back: Callable[[], None]
    ) -> DeployResult:
        if isinstance(project, HeadraceError):
            # A new process may read what this one cannot, as with a new version of a package.
            can_begin_again = request.restart and self._request.start_plan is not None
            return self._plan_new_start(project.findings, request) if can_begin_again else _refuse(project.findings)
        other_settings = tuple(list_other_settings(self.project, project, request))
        if limits := tuple(list_limits(self.project, project, self._imported)):
            if request.restart and not other_settings:
                put_back()  # The queries run on while another process plans.
                return self._plan_new_start(limits, request)
            return _refuse((*other_settings, *limits), needs_restart=True)
        if other_settings:
            return _refuse(other_settings, needs_restart=True)
        names = self._chosen(project)
        require_sound(check_structure_of(project, names))
        running = {
            state.query.name: Declared(state.project, state.query, state.code)
            for state in self._states
            if not state.is_removed
        }
        return DeployResult(steps=plan_steps(running, project, plan(project, names, spark=self._spark)))

    def _plan_new_start(self, limits: Sequence[Finding], request: DeployRequest) -> DeployResult:
        """Let a new process plan the project, as only another start of the application takes it."""
        if self._request.start_plan is None:
            return _refuse((_CANNOT_BEGIN_AGAIN, *limits), needs_restart=True)
        planned = plan_new_start(
            self._request.start_plan(),
            [state.query.name for state in self._states if not state.is_removed],
            accept_forward=request.accept_forward,
            is_stopping=lambda: bool(self._request),
        )
        return replace(planned, reasons=tuple(dict.fromkeys(limit.what for limit in limits)))

    def _chosen(self, project: Project) -> list[str]:
        """Return the queries of `project` that the run is to have, with those that take late rows of others."""
        if self._queries is None:
            return list(project.queries)
        names = [name for name in self._queries if name in project.queries]
        return list(dict.fromkeys([*names, *(late for name in names if (late := project.queries[name].late))]))

    def _carry_out(self, project: Project, planned: DeployResult, *, by: str) -> DeployResult:
        """Give the orders, and wait until each is carried out."""
        former, self.project = self.project, project
        self._states.show_project(project)
        orders: dict[str, Order] = {}
        for step in sorted(planned.steps, key=lambda step: _IN_TURN.index(step.action)):
            if step.action == "keep":
                self._states.declare_again(step.query, project)
            elif step.action == "stop":
                orders[step.query] = self._orders.give(Order(verb="stop", query=step.query, by=by, removes=True))
            else:
                code = Order(verb="restart", query=step.query, by=by, project=project)
                orders[step.query] = self._orders.give(code)
        steps = tuple(
            _with_outcome(step, orders[step.query]) if step.query in orders else replace(step, outcome="runs on")
            for step in planned.steps
        )
        used = [state.project.modules for state in self._states if not state.is_removed]
        kept = {id(module) for modules in used for module in modules}
        forget_code([module for module in former.modules if id(module) not in kept])
        self.files = LoadedFiles(project)
        return replace(planned, steps=steps, carried_out=True)

    def _answer(self, order: Order, result: DeployResult) -> None:
        """Answer the order, and inform the run's observers and its history."""
        result = replace(result, pid=os.getpid(), findings=tuple(map(self.project.redacted_finding, result.findings)))
        if order.deploy is not None and not order.deploy.dry_run:
            self._report(lambda: self._note(result, order.by))
        order.report_deploy(result)

    def _note(self, result: DeployResult, by: str) -> None:
        for finding in result.errors:
            self._notes.report(finding)
        if result.carried_out or (result.reasons and result.done):
            self._notes.event("deployed", None, None, {"by": by, "steps": [step.as_dict() for step in result.steps]})
            for query in [step.query for step in result.steps if step.action == "stop" and result.reasons]:
                self._states.remove(query)
        if result.carried_out:
            self._notes.show(Finding(code="HR866", what=f"a deploy is done: {_describe(result.steps)}"))


_CANNOT_BEGIN_AGAIN = Finding(
    code="HR854",
    what="the application cannot begin again by itself, as neither headrace run nor headrace submit has started it",
    fix="stop it, and start it as it was started",
)


def _refuse(findings: Sequence[Finding], *, needs_restart: bool = False) -> DeployResult:
    return DeployResult(findings=tuple(findings), needs_restart=needs_restart)


def _describe(steps: Sequence[DeployStep]) -> str:
    changed = [
        f"{step.query}: {step.outcome or 'the former code runs again'}" for step in steps if step.action != "keep"
    ]
    kept = ", ".join(step.query for step in steps if step.action == "keep")
    return "; ".join([*changed, *([f"unchanged: {kept}"] if kept else [])])


def _findings_of(error: Exception) -> tuple[Finding, ...]:
    return error.findings if isinstance(error, HeadraceError) else (finding_of(error, subject="the deploy"),)


def _with_outcome(step: DeployStep, order: Order) -> DeployStep:
    answer = order.answer.result()
    findings = () if answer.finding is None else (answer.finding,)
    return replace(step, outcome=answer.said, findings=findings)
