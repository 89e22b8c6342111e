"""The model of the metadata API, and histories that the metadata machine itself gives."""

from __future__ import annotations

from random import Random

import pytest

from ringfence.control.model.commands import DeleteTopic
from ringfence.control.model.results import Refused, TopicCreated
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.state_machines.metadata.state_machine import apply
from tests.checker.history import UNKNOWN, Operation, Recorder
from tests.checker.search import Verdict, check
from tests.checker.topics import Create, Delete, Describe, TopicsModel
from tests.fakes.metadata_commands import INIT, create, entry

MODEL = TopicsModel()
Call = Create | Delete | Describe


def judged(*events: tuple[Call, object]) -> Verdict:
    """The verdict on calls one after the other."""
    return check(
        MODEL, [Operation(0, call, result, at, at + 0.5) for at, (call, result) in enumerate(events)]
    ).verdict


@pytest.mark.parametrize(
    "events",
    [
        [
            (Create("a"), 2),
            (Describe("a"), 2),
            (Create("a"), None),
            (Delete("a"), True),
            (Describe("a"), None),
        ],
        [(Create("a"), 2), (Delete("a"), True), (Create("a"), 5)],
        [(Create("a"), UNKNOWN), (Describe("a"), 3), (Describe("a"), 3)],
        [(Create("a"), 2), (Create("b"), 2)],
        [(Delete("a"), False)],
    ],
)
def test_what_one_copy_answers_is_ok(events: list[tuple[Call, object]]) -> None:
    assert judged(*events) is Verdict.OK


@pytest.mark.parametrize(
    "events",
    [
        [(Create("a"), 2), (Describe("a"), None)],
        [(Create("a"), 2), (Create("a"), 3)],
        [(Create("a"), 2), (Delete("a"), True), (Create("a"), 2)],
        [(Create("a"), UNKNOWN), (Describe("a"), 3), (Describe("a"), 4)],
        [(Create("a"), 2), (Delete("a"), True), (Describe("a"), 2)],
        [(Delete("a"), True)],
        [(Create("a"), None)],
    ],
)
def test_what_no_copy_answers_is_a_violation(events: list[tuple[Call, object]]) -> None:
    assert judged(*events) is Verdict.VIOLATION


class Cluster:
    """The metadata machine behind a network that delays, and loses calls and answers, by seed."""

    def __init__(self, seed: int, stale: float) -> None:
        self.random, self.stale = Random(seed), stale
        self.states: list[MetadataState] = [EMPTY]
        self.apply(INIT)

    def apply(self, command: object) -> object:
        state, result = apply(self.states[-1], entry(len(self.states), command))  # type: ignore[arg-type]
        self.states.append(state)
        return result

    def serve(self, call: Call) -> object:
        state = self.states[-1]
        if isinstance(call, Describe):
            if self.random.random() < self.stale:
                state = self.states[max(0, len(self.states) - 6)]
            return state.names.get(call.name)
        if isinstance(call, Delete):
            topic = state.names.get(call.name)
            return topic is not None and not isinstance(self.apply(DeleteTopic(topic=topic)), Refused)
        result = self.apply(create(call.name, partitions=1))
        return result.topic if isinstance(result, TopicCreated) else None


def history(seed: int, *, stale: float, calls: int = 150) -> list[Operation]:
    """Calls of five clients, at most one each at a time; some answers and some calls are lost."""
    cluster, recorder, random = Cluster(seed, stale), Recorder(), Random(seed)
    names = [f"public/default/t{number}" for number in range(3)]
    clients: dict[int, tuple[int, Call, object | None, bool]] = {}
    client = 5
    for at in range(calls * 3):
        number = random.choice([*clients, None]) if clients else None
        if number is None and len(clients) < 5:
            kinds: list[type[Call]] = [Create, Delete, Describe, Describe]
            call: Call = random.choice(kinds)(random.choice(names))
            clients[client] = (recorder.invoke(client, call, at), call, None, False)
            client += 1
        elif number is not None:
            ticket, call, result, served = clients[number]
            fate = random.random()
            if fate < 0.02:
                recorder.unknown(ticket)
                del clients[number]
            elif not served:
                clients[number] = (ticket, call, cluster.serve(call), True)
            else:
                recorder.returned(ticket, result, at)
                del clients[number]
    return recorder.operations()


def test_the_metadata_machine_is_linearizable_however_calls_and_answers_are_lost() -> None:
    for seed in range(20):
        outcome = check(MODEL, history(seed, stale=0.0))
        assert outcome.verdict is Verdict.OK, (seed, outcome.why)


def test_reads_of_a_replica_that_lags_are_found() -> None:
    found = sum(check(MODEL, history(seed, stale=0.3)).verdict is Verdict.VIOLATION for seed in range(20))
    assert found == 20
