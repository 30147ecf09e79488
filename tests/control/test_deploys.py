"""A deploy as it is asked for and answered over the socket."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from headrace.api import load, running
from headrace.control.board import Board, Order, Orders
from headrace.control.client import find_running
from headrace.control.deploys import DeployRequest, DeployResult, DeployStep, digest_value
from headrace.errors import Finding

from .test_control import board, serving, write_project

__all__ = ["board"]
pytestmark = pytest.mark.plain


def test_variables_are_compared_without_their_values() -> None:
    mine = {"A": "1", "B": "2", "C": "3"}
    request = DeployRequest(salt="s", variables={name: digest_value("s", value) for name, value in mine.items()})
    assert list(request.other_variables({"A": "1", "B": "two", "D": "4"})) == ["B", "C"]
    assert not any(value in json.dumps(request.as_dict()["variables"]) for value in ("two",))
    assert digest_value("s", "1") != digest_value("t", "1")


def test_a_deploy_is_one_order_whose_answer_says_what_became_of_each_query(
    tmp_path: Path, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(tmp_path)
    orders, taken = Orders(), list[Order]()
    result = DeployResult(
        steps=(DeployStep(query="totals", action="restart", verdict="safe", from_batch=7, changes=("its code",)),),
        findings=(Finding(code="HR854", what="no", fix="yes"),),
        pid=os.getpid(),
        needs_restart=True,
    )

    def carry_out() -> None:
        order = orders.take()
        assert order is not None
        taken.append(order)
        order.report_deploy(result)

    orders.on_order(carry_out)
    with serving(tmp_path / ".headrace", board, orders):
        assert running(load(tmp_path)).deploy(dry_run=True, accept_forward=True) == [result]
        assert running(load(tmp_path)).deploy() == [result]
        wrong = {"do": "deploy", "variables": "none"}
        (application,) = find_running(tmp_path / ".headrace")
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(str(application.path))
            other.sendall(json.dumps(wrong).encode() + b"\n")
            answer = json.loads(other.makefile().readline())
    assert [(order.verb, order.query) for order in taken] == [("deploy", "")] * 2
    asked = [order.deploy for order in taken if order.deploy is not None]
    assert [(request.dry_run, request.accept_forward, request.target) for request in asked] == [
        (True, True, "dev"),
        (False, False, "dev"),
    ]
    assert answer["finding"]["code"] == "HR852"
