"""Commits whose partitions were sealed: what is staged again, and what the next commit names."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ringfence.common import extension
from ringfence.common.scope_values import StagedRows
from ringfence.native import wire
from ringfence.native.cluster_messages import ScopeCommit
from ringfence.native.errors import (
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    ProtocolError,
    UnknownOutcomeError,
    refusal,
)
from ringfence.native.layout_messages import StagedBatches
from ringfence.send.restage import RESTAGED_MAX, Restager, is_definite

COMMIT = ScopeCommit(
    scope_id=5, driver=6, epoch=1, tokens=[b"first"], parts=[(7, 1, 10), (7, 2, 20), (8, 3, 30)]
)


def moved(*partitions: int) -> ConflictError:
    error = refusal(wire.Code.MOVED, "sealed", partitions=list(partitions))
    assert isinstance(error, ConflictError)
    return error


class Attempt:
    """Stages what it is given; `parts` is what becomes of all of it."""

    def __init__(self, parts: dict[tuple[int, int], int], error: Exception | None = None) -> None:
        self.parts, self.error = parts, error
        self.bodies: list[Any] = []
        self.is_closed = False

    def extension_with(self, items: dict[int, bytes]) -> bytes:
        whole: dict[int, bytes] = {wire.ExtensionKind.STAGE: b"i" * 48}
        return extension.packed(whole | items)

    def stage_again(self, layout: object, body: Any) -> None:
        self.bodies.append(body)

    def finish(self) -> StagedRows:
        if self.error is not None:
            raise self.error
        return StagedRows(b"again", self.parts, already=False)

    def close(self) -> None:
        self.is_closed = True


class Restaging(Restager):
    """`staged`: by partition, (record number, origin) of what is staged there, sealed by version 4."""

    def __init__(
        self, attempts: list[Attempt], staged: dict[int, list[tuple[int, tuple[int, int] | None]]]
    ) -> None:
        nothing: Any = None
        left: Any = iter(attempts)
        super().__init__(nothing, nothing, lambda: next(left), 1.0)
        self.staged = staged

    def _layout(self, topic: int) -> Any:
        return f"layout of {topic}"

    def _listed(self, message: ScopeCommit, topic: int, partition: int) -> tuple[list[tuple[int, int]], int]:
        """All rows that the commit names, in the first record."""
        rows = next(rows for one, place, rows in message.parts if (one, place) == (topic, partition))
        records = [record for record, _ in self.staged[partition]]
        return [(record, rows if record == records[0] else 0) for record in records], 4

    def _records(
        self, topic: int, partition: int, listed: list[int]
    ) -> Iterator[tuple[Any, memoryview, memoryview]]:
        for record, origin in self.staged[partition]:
            items: dict[int, bytes] = {wire.ExtensionKind.STAGE: b"o" * 48}
            if origin is not None:
                items[wire.ExtensionKind.ORIGIN] = extension.ORIGIN.pack(*origin)
            front = memoryview(extension.packed(items))
            header = SimpleNamespace(record_number=record, rows=1, schema_id=0)
            yield header, front, memoryview(b"rows %d" % record)


def origins(attempt: Attempt) -> list[tuple[int, int]]:
    items = [extension.items_of(body.data[: body.extension_bytes]) for body in attempt.bodies]
    assert all(one[wire.ExtensionKind.STAGE] == b"i" * 48 for one in items), "under the new token"
    return [extension.ORIGIN.unpack(one[wire.ExtensionKind.ORIGIN]) for one in items]


def test_the_next_commit_has_all_tokens_and_the_rows_where_they_are_now() -> None:
    attempt = Attempt({(7, 2): 4, (7, 9): 6})
    restaging = Restaging([attempt], {1: [(5, None), (6, (2, 3))]})
    assert restaging.moved(COMMIT, {1}) == ScopeCommit(
        scope_id=5, driver=6, epoch=1, tokens=[b"first", b"again"], parts=[(7, 2, 24), (7, 9, 6), (8, 3, 30)]
    )
    assert origins(attempt) == [(4, 5), (2, 3)], "an origin is drawn once, then copied"
    assert [bytes(body.data[body.extension_bytes :]) for body in attempt.bodies] == [b"rows 5", b"rows 6"]
    assert attempt.is_closed


def test_a_token_stays_also_when_none_of_its_rows_is_left() -> None:
    everything = Restaging([Attempt({(7, 9): 60})], {1: [(1, None)], 2: [(1, None)], 3: [(1, None)]})
    assert everything.moved(COMMIT, {1, 2, 3}).tokens == [b"first", b"again"]


def test_a_commit_is_moved_as_often_as_the_layout_changes() -> None:
    attempts = [Attempt({(7, 9): 10}), Attempt({(7, 11): 10})]
    restaging = Restaging(attempts, {1: [(5, None)], 9: [(2, (4, 5))]})
    put: list[ScopeCommit] = []

    def answer(message: ScopeCommit) -> Any:
        put.append(message)
        if len(put) < 3:
            raise moved(1 if len(put) == 1 else 9)
        return "decided"

    decided: Any = restaging.commit(answer, COMMIT)
    assert decided == "decided"
    assert put[2].parts == [(7, 2, 20), (7, 11, 10), (8, 3, 30)]
    assert origins(attempts[1]) == [(4, 5)]


def test_another_refusal_and_an_unknown_outcome_stage_nothing_again() -> None:
    for error in (InvalidArgumentError("rows differ"), UnknownOutcomeError("no answer"), ConflictError("x")):

        def put(_: ScopeCommit, error: Exception = error) -> Any:
            raise error

        with pytest.raises(type(error)):
            Restaging([], {}).commit(put, COMMIT)


def test_layout_changes_without_end_end_with_the_refusal() -> None:
    def put(message: ScopeCommit) -> Any:
        raise moved(message.parts[0][1])

    attempts = [Attempt({(7, 1): 10}) for _ in range(RESTAGED_MAX)]
    with pytest.raises(ConflictError):
        Restaging(attempts, {1: [(5, None)]}).commit(put, COMMIT)
    assert all(attempt.is_closed for attempt in attempts)


def test_rows_that_are_not_staged_again_in_time_are_not_committed() -> None:
    attempt = Attempt({}, UnknownOutcomeError("no answer to a STAGE"))
    with pytest.raises(DeadlineError, match="nothing is committed"):
        Restaging([attempt], {1: [(5, None)]}).moved(COMMIT, {1})
    assert attempt.is_closed


def test_a_refusal_that_names_other_partitions_is_an_error_of_the_node() -> None:
    with pytest.raises(ProtocolError, match="names none of it"):
        Restaging([], {}).moved(COMMIT, {99})


def test_only_moved_decides_nothing_whatever_was_lost_before() -> None:
    assert is_definite(moved(1))
    assert not is_definite(refusal(wire.Code.CONFLICT, "content"))
    assert not is_definite(UnknownOutcomeError("?"))


class Unsealed(Restager):
    """The owner lists one record, and never serves its partition as sealed."""

    def __init__(self, sealed_version: int) -> None:
        nothing: Any = None
        attempt: Any = Attempt({})
        super().__init__(nothing, nothing, lambda: attempt, 0.05)
        self.version = sealed_version

    def _layout(self, topic: int) -> Any:
        return SimpleNamespace(name=f"topic {topic}")

    def _ask(self, topic: int, partition: int, opcode: int, body: bytes, fields: dict[str, int]) -> Any:
        page = StagedBatches(batches=[(5, 10, 0)], more=False, sealed_version=self.version)
        return SimpleNamespace(control=lambda _: page, body=memoryview(b""))


def test_an_owner_that_never_hears_of_the_seal_ends_the_commit_which_decided_nothing() -> None:
    with pytest.raises(DeadlineError, match="does not know yet that it is sealed"):
        Unsealed(0).moved(COMMIT, {1})


def test_a_listed_record_that_is_never_shown_is_a_fault_of_the_node() -> None:
    with pytest.raises(ProtocolError, match="a staged record is not in the log"):
        Unsealed(4).moved(COMMIT, {1})
