"""An exporter does what the state machine says, and tells it what became of its calls."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ringfence.consumer.exporter import Exporter, OneExport
from ringfence.consumer.parked_export import Ending
from ringfence.native.errors import (
    DeadlineError,
    FencedError,
    InvalidArgumentError,
    NotFoundError,
    RetriableError,
    SchemaError,
    UnauthorizedError,
    UnknownOutcomeError,
)
from ringfence.native.wire import SCOPE_EPOCH_MAX, Code
from tests.fakes.parked_node import COHORT, SOURCE, ParkedNode

ITEM = (1, 7)
NAME = "parked/3/1/7"


def exporter(node: Any, *, timeout_s: float = 0.3) -> Exporter:
    return Exporter(node, node, "t", "c", "u", timeout_s=timeout_s)


def export(node: ParkedNode, *, again: bool = False, timeout_s: float = 0.3) -> OneExport:
    made = exporter(node, timeout_s=timeout_s)
    (parked,) = made.requests.listed()
    return made.export(parked, COHORT, again=again)


def test_a_range_is_copied_with_its_columns_and_leaves_the_list() -> None:
    node = ParkedNode(ITEM)
    one = export(node)
    assert (one.ending, one.rows, one.gone) == (Ending.EXPORTED, 2, 0)
    assert [(row["id"], row["parked_offset"], row["parked_reason"]) for row in node.copied] == [
        (70, 70, "bad"),
        (71, 71, "bad"),
    ]
    assert node.parked == {}
    steps = [step for step in node.asked if step not in {"layout", "list", "read"}]
    assert steps == ["scope", "stage", "begin", "commit", "exported"]


def test_an_interrupted_export_is_ended_by_the_next_one() -> None:
    node = ParkedNode(ITEM)
    node.errors["exported"] = [UnauthorizedError("revoked")]
    with pytest.raises(UnauthorizedError):
        export(node)
    assert (len(node.copied), node.parked) == (2, {ITEM: "exporting"})
    assert export(node).ending is Ending.MARKED
    assert (len(node.copied), node.parked) == (2, {})


def test_a_commit_without_an_answer_is_looked_up() -> None:
    node = ParkedNode(ITEM)
    node.errors["commit"] = [UnknownOutcomeError("no answer")]
    assert export(node).ending is Ending.EXPORTED
    assert len(node.copied) == 2


def test_who_is_fenced_says_that_another_works_on_it() -> None:
    for step in ("stage", "commit"):
        node = ParkedNode(ITEM)
        node.errors[step] = [FencedError("a later driver")]
        assert export(node).ending is Ending.ELSEWHERE
        assert node.copied == []


def test_a_refused_copy_leaves_the_range_parked_and_nothing_staged() -> None:
    for step, error in (("stage", DeadlineError("full")), ("commit", DeadlineError("late"))):
        node = ParkedNode(ITEM)
        node.errors[step] = [error]
        with pytest.raises(DeadlineError):
            export(node)
        assert (node.copied, node.staged, [*node.parked]) == ([], {}, [ITEM])


def test_an_export_that_an_operator_closed_ends() -> None:
    node = ParkedNode(ITEM)
    node.scopes_by_name[NAME], node.decided[40] = 40, SCOPE_EPOCH_MAX
    assert export(node).ending is Ending.CLOSED


def test_a_forgotten_scope_is_not_guessed_about() -> None:
    node = ParkedNode(ITEM)
    node.parked[ITEM], node.scope_of[ITEM] = "exporting", 9
    assert export(node).ending is Ending.NOT_KNOWN
    assert node.copied == []
    assert export(node, again=True).ending is Ending.EXPORTED
    assert (len(node.copied), node.parked) == (2, {})


def test_a_range_that_was_put_back_meanwhile_is_not_copied() -> None:
    node = ParkedNode(ITEM)
    made = exporter(node)
    (parked,) = made.requests.listed()
    node.parked.clear()
    assert made.export(parked, COHORT).ending is Ending.NOT_PARKED
    assert (node.copied, node.staged) == ([], {})


def test_an_owner_that_does_not_answer_is_asked_until_the_deadline() -> None:
    node = ParkedNode(ITEM)
    node.errors["exported"] = [RetriableError("its owner does not answer")] * 2
    assert export(node, timeout_s=5.0).ending is Ending.EXPORTED
    node = ParkedNode(ITEM)
    node.scope_of[ITEM] = 9  # the owner names no scope in its list, and does not take this one
    with pytest.raises(RetriableError, match="nothing is copied"):
        export(node)
    assert node.copied == []


@pytest.mark.parametrize("code", [None, Code.UNKNOWN_PARTITION])
def test_rows_of_a_pruned_partition_are_gone(code: Code | None) -> None:
    node = ParkedNode(ITEM)
    node.errors["read"] = [NotFoundError("the topic has no such partition", partition=1, code=code)]
    one = export(node)
    assert (one.ending, one.rows, one.gone, node.parked) == (Ending.EXPORTED, 0, 2, {})


@pytest.mark.parametrize("step", ["stage", "read"])
def test_a_topic_that_is_deleted_meanwhile_takes_no_rows_with_it(step: str) -> None:
    for error in (
        NotFoundError("no such topic", topic="u", code=Code.UNKNOWN_TOPIC),
        NotFoundError("no such topic", topic="u"),
    ):
        node = ParkedNode(ITEM)
        node.errors[step] = [error]
        with pytest.raises(NotFoundError, match="no such topic"):
            export(node)
        assert (node.copied, node.staged, node.parked) == ([], {}, {ITEM: "parked"})
    node = ParkedNode(ITEM)
    node.errors["stage"] = [NotFoundError("the target has no such partition", partition=1)]
    with pytest.raises(NotFoundError, match="the target"):
        export(node)
    assert node.parked == {ITEM: "parked"}


def test_a_target_that_cannot_take_the_rows_is_refused_at_the_start() -> None:
    node: Any = ParkedNode(ITEM)
    node.topics["u"] = pa.schema([*SOURCE])
    with pytest.raises(SchemaError):
        exporter(node)
    with pytest.raises(InvalidArgumentError):
        Exporter(node, node, "t", "c", "t", timeout_s=1)
