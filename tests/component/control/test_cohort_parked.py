"""COHORT_PARKED at the data address of whole nodes over fake native ones: lists, actions, exports, owners."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.control.model.cohorts import COHORT_LEVEL
from ringfence.control.model.commands import RaiseLevel
from ringfence.control.model.ids import Index, ScopeId
from ringfence.control.model.scopes import CommitScope, ForgetScope
from ringfence.control.runtime.cohorts import parked as parked_gates
from ringfence.control.runtime.cohorts.parked import scope_name
from ringfence.control.runtime.handlers import cohort_parked
from ringfence.control.runtime.handlers.audit import Line
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.native import cluster_messages, messages
from ringfence.native import cohort_messages as cohorts
from ringfence.native.cohort_messages import CohortParked, ParkedListed, ParkedSettled
from ringfence.native.wire import SCOPE_EPOCH_MAX, Code, Opcode
from tests.fakes import gated_node
from tests.fakes.admin_api import TOPIC
from tests.fakes.cohort_bench import with_cohorts
from tests.fakes.gated_node import GatedNode
from tests.fakes.node_bench import Bench, soon
from tests.fakes.node_cluster import NodeCluster, run

Patch = pytest.MonkeyPatch


class Queue:
    """The queue `q` of topic `t` at one node."""

    def __init__(self, bench: Bench, cohort: int) -> None:
        self.bench, self.cohort = bench, cohort

    async def list(self, **more: Any) -> ParkedListed:
        return await self.bench.ok(Opcode.COHORT_PARKED, request("list", **more), ParkedListed)

    async def do(self, action: str, *items: tuple[int, int], **more: Any) -> ParkedSettled:
        if items:
            more["items"] = list(items)
        return await self.bench.ok(Opcode.COHORT_PARKED, request(action, **more), ParkedSettled)

    async def refused(self, action: str, **more: Any) -> Code:
        return await self.bench.refused(Opcode.COHORT_PARKED, request(action, **more))

    async def begun(self, partition: int, number: int) -> cluster_messages.ScopeBegun:
        name = scope_name(self.cohort, partition, number)
        begin = cluster_messages.ScopeBegin(scope=name, one_off=True, after=0)
        return await self.bench.ok(Opcode.BEGIN, begin, cluster_messages.ScopeBegun)

    async def commit(self, scope: cluster_messages.ScopeBegun) -> None:
        scope_id, driver = ScopeId(scope.scope_id), Index(scope.driver)
        command = CommitScope(scope=scope_id, driver=driver, epoch=1, tokens=(), parts=())
        await self.bench.node.proposer.propose(command)


def request(action: str, **more: Any) -> CohortParked:
    return CohortParked(**({"topic": "t", "cohort": "q", "action": action} | more))


async def queue_of(bench: Bench) -> Queue:
    create = cohorts.CohortCreate(topic="t", cohort="q", mode="queue")
    made = await bench.ok(Opcode.COHORT_CREATE, create, cohorts.CohortEntry)
    return Queue(bench, made.id)


Work = Callable[[Queue, GatedNode, list[int]], Awaitable[None]]


def with_queue(root: Path, monkeypatch: Patch, work: Work) -> None:
    async def whole(bench: Bench, native: GatedNode, parts: list[int]) -> None:
        queue = await queue_of(bench)
        await soon(lambda: len(native.rules) == 3)
        await work(queue, native, sorted(parts))

    with_cohorts(root, monkeypatch, whole)


def test_ranges_are_listed_in_pages_retried_and_discarded(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(cohort_parked, "PAGE_MAX", 2)

    async def work(queue: Queue, native: GatedNode, parts: list[int]) -> None:
        one, two, three = parts
        assert await queue.list() == ParkedListed(parked=[])
        for partition, first in ((three, 7), (one, 3), (one, 9)):
            native.ranges.park(queue.cohort, partition, first=first, rows=1)
        gone = native.ranges.park(queue.cohort, two, first=0, rows=5, gone=2)
        page = await queue.list()
        assert [(line.partition, line.number, line.first) for line in page.parked] == [
            (one, 1, 3),
            (one, 2, 9),
        ]
        line = page.parked[0]
        assert (line.rows, line.count, line.reason, line.state, line.scope) == (1, 5, "bad row", "parked", 0)
        assert page.more
        rest = await queue.list(after=(one, 2))
        assert [(line.partition, line.gone) for line in rest.parked] == [(two, 2), (three, 0)]
        assert not rest.more
        answer = await queue.do("retry", (one, 1), (two, gone), (one, 77))
        assert answer == ParkedSettled(done=2, gone=[(two, gone)], not_parked=[(one, 77)])
        assert native.ranges.put_back == [(3, 1), (0, 5)]
        assert await queue.do("retry", (one, 0)) == ParkedSettled(done=0, not_parked=[(one, 0)])
        assert await queue.do("discard") == ParkedSettled(done=2), "all"
        assert await queue.list() == ParkedListed(parked=[])
        assert await queue.do("discard") == ParkedSettled(done=0)

    with_queue(tmp_path, monkeypatch, work)


def test_limits_and_fields_are_checked_before_anything(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(queue: Queue, native: GatedNode, parts: list[int]) -> None:
        part = parts[0]
        native.ranges.park(queue.cohort, part, first=3, rows=1)
        wrong: tuple[tuple[str, dict[str, Any]], ...] = (
            ("burn", {}),
            ("list", {"items": [(part, 1)]}),
            ("list", {"after": (-1, 0)}),
            ("list", {"scope": 1}),
            ("retry", {"after": (part, 1)}),
            ("retry", {"scope": 5}),
            ("retry", {"items": []}),
            ("retry", {"items": [(part, 1), (part, 1)]}),
            ("retry", {"items": [(part, 1 << 63)]}),
            ("discard", {"items": [(part, number) for number in range(4_097)]}),
            ("begin", {"items": [(part, 1)]}),
            ("begin", {"scope": 5}),
            ("exported", {"items": [(part, 1), (part, 2)], "scope": 5}),
            ("exported", {"items": [(part, 1)], "scope": 1 << 63}),
            ("begin", {"items": [(part, 1)], "scope": 5}),  # no scope has this id
        )
        for action, more in wrong:
            assert await queue.refused(action, **more) == Code.INVALID_ARGUMENT, (action, more)
        assert await queue.refused("retry", items=[(12_345, 1)]) == Code.UNKNOWN_PARTITION
        assert await queue.refused("list", cohort="other") == Code.UNKNOWN_COHORT
        stream = cohorts.CohortCreate(topic="t", cohort="s", mode="stream")
        await queue.bench.ok(Opcode.COHORT_CREATE, stream, cohorts.CohortEntry)
        assert await queue.refused("list", cohort="s") == Code.INVALID_ARGUMENT
        assert "settle_parked" not in native.names()
        monkeypatch.setattr(cohort_parked, "ALL_MAX", 0)
        assert await queue.refused("discard") == Code.OVERLOADED
        native.prefix = "acme/"
        assert await queue.refused("list") == Code.UNAUTHORIZED

    with_queue(tmp_path, monkeypatch, work)


async def exported_story(queue: Queue, native: GatedNode, parts: list[int]) -> None:
    part = parts[0]
    one = (part, native.ranges.park(queue.cohort, part, first=3, rows=1))
    scope = await queue.begun(*one)
    named = {"scope": scope.scope_id}
    assert await queue.refused("exported", items=[one], **named) == Code.CONFLICT, "begin comes first"
    assert await queue.do("begin", one, **named) == ParkedSettled(done=1)
    assert await queue.do("begin", one, **named) == ParkedSettled(done=1), "a repeat"
    [line] = (await queue.list()).parked
    assert (line.state, line.scope) == ("exporting", scope.scope_id)
    assert await queue.do("exported", one, **named) == ParkedSettled(done=0, exporting=[one])
    await queue.commit(scope)
    assert await queue.do("exported", one, **named) == ParkedSettled(done=1)
    assert await queue.do("exported", one, **named) == ParkedSettled(done=0, not_parked=[one])
    assert (await queue.list()).parked == []
    other = (part, native.ranges.park(queue.cohort, part, first=4, rows=1) + 1)
    for action in ("begin", "exported"):
        assert await queue.refused(action, items=[other], **named) == Code.INVALID_ARGUMENT, "its name"


def test_an_export_is_marked_once_its_scope_is_committed(tmp_path: Path, monkeypatch: Patch) -> None:
    with_queue(tmp_path, monkeypatch, exported_story)


async def ended_story(queue: Queue, native: GatedNode, parts: list[int]) -> None:
    part = parts[0]
    scopes = []
    for first in range(3):
        number = native.ranges.park(queue.cohort, part, first=first, rows=1)
        scopes.append(await queue.begun(part, number))
        await queue.do("begin", (part, number), scope=scopes[-1].scope_id)
    await queue.commit(scopes[1])
    answer = await queue.do("retry", (part, 1), (part, 2))
    assert answer == ParkedSettled(done=1, exported=[(part, 2)])
    assert native.ranges.put_back == [(0, 1)]
    closed = queue.bench.node.proposer.state.scopes[ScopeId(scopes[0].scope_id)]
    assert (closed.expired, closed.committed) == (SCOPE_EPOCH_MAX, 0)
    with pytest.raises(RequestRefused):
        await queue.commit(scopes[0])
    assert await queue.do("discard", (part, 3)) == ParkedSettled(done=1)


def test_retry_and_discard_end_an_export_or_find_its_copy(tmp_path: Path, monkeypatch: Patch) -> None:
    with_queue(tmp_path, monkeypatch, ended_story)


def test_what_became_of_a_forgotten_scope_is_not_guessed(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(queue: Queue, native: GatedNode, parts: list[int]) -> None:
        one = (parts[0], native.ranges.park(queue.cohort, parts[0], first=0, rows=1))
        scope = await queue.begun(*one)
        await queue.do("begin", one, scope=scope.scope_id)
        forget = ForgetScope(scope=ScopeId(scope.scope_id), driver=Index(scope.driver))
        await queue.bench.node.proposer.propose(forget)
        again = await queue.begun(*one)
        assert again.scope_id != scope.scope_id
        assert await queue.do("begin", one, scope=again.scope_id) == ParkedSettled(done=0, unknown=[one])
        assert await queue.do("retry", one) == ParkedSettled(done=0, unknown=[one])
        assert await queue.do("exported", one, scope=scope.scope_id) == ParkedSettled(done=0, unknown=[one])
        assert await queue.do("begin", one, scope=again.scope_id, force=True) == ParkedSettled(done=1)

    with_queue(tmp_path, monkeypatch, work)


def test_an_export_that_cannot_be_ended_is_under_way(tmp_path: Path, monkeypatch: Patch) -> None:
    """Planted: nothing ends exports. The range must not come back."""

    async def kept(*_: object) -> None: ...

    monkeypatch.setattr(parked_gates.ParkedGates, "_expire", kept)

    async def work(queue: Queue, native: GatedNode, parts: list[int]) -> None:
        one = (parts[0], native.ranges.park(queue.cohort, parts[0], first=0, rows=1))
        scope = await queue.begun(*one)
        await queue.do("begin", one, scope=scope.scope_id)
        for action in ("retry", "discard"):
            assert await queue.do(action, one, force=True) == ParkedSettled(done=0, exporting=[one])
        assert native.ranges.put_back == []

    with_queue(tmp_path, monkeypatch, work)


def test_what_the_engine_refuses_is_unknown_and_changes_are_audited(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    lines: list[Line] = []

    async def add(_: object, line: Line) -> None:
        lines.append(line)

    monkeypatch.setattr("ringfence.control.runtime.handlers.audit.Audit.add", add)

    async def work(queue: Queue, native: GatedNode, parts: list[int]) -> None:
        one = (parts[0], native.ranges.park(queue.cohort, parts[0], first=0, rows=1))
        lines.clear()
        native.refuses["settle_parked"] = "too few replicas had the record on disk in time"
        assert await queue.do("retry", one) == ParkedSettled(done=0, unknown=[one])
        native.refuses.clear()
        await queue.list()
        assert await queue.do("retry", one) == ParkedSettled(done=1)
        assert await queue.refused("discard", items=[]) == Code.INVALID_ARGUMENT
        shown = [(line.action, line.path, line.status) for line in lines]
        assert shown == [
            ("cohort parked retry q: 0 ranges", "topic/t", 200),
            ("cohort parked retry q: 1 ranges", "topic/t", 200),
            ("cohort parked discard q: 0 ranges", "topic/t", 422),
        ]
        native.refuses["list_parked"] = "its gates are not open here"
        native.ranges.park(queue.cohort, parts[0], first=0, rows=1)
        assert await queue.list() == ParkedListed(parked=[], unknown=[parts[0]])
        assert await queue.refused("retry") == Code.HELD, "what `all` are is not known"

    with_queue(tmp_path, monkeypatch, work)


def test_any_node_asks_the_owners_and_names_what_one_does_not_answer(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    gated_node.install(monkeypatch)

    async def work(cluster: NodeCluster) -> None:
        proposer = cluster.leader.proposer
        if proposer.state.level < COHORT_LEVEL:
            await proposer.propose(RaiseLevel(level=COHORT_LEVEL, nodes=tuple(sorted(proposer.state.nodes))))
        assert (await cluster.apis[1]("POST", "/admin/topics", TOPIC)).status == 201
        queue = await queue_of(cluster.apis[1].bench)
        [topic] = proposer.state.topics.values()
        owners = {number: place.owner.node for number, place in topic.assignments.items()}
        assert len(set(owners.values())) > 1, "the parts are spread over the nodes"
        natives: dict[int, Any] = dict(cluster.natives)
        await cluster.until(lambda: sum(len(native.rules) for native in natives.values()) == len(owners))
        items = sorted(
            (part, natives[node].ranges.park(queue.cohort, part, first=0, rows=1))
            for part, node in owners.items()
        )
        for api in cluster.apis.values():
            there = await Queue(api.bench, queue.cohort).list()
            assert [(line.partition, line.number) for line in there.parked] == items
        scope = await queue.begun(*items[0])
        assert await queue.do("begin", items[0], scope=scope.scope_id) == ParkedSettled(done=1)
        away = next(node for node in owners.values() if node != 1)
        lost = sorted(part for part, node in owners.items() if node == away)
        plain = PeerClient.ask

        async def ask(self: PeerClient, node: Any, call: Any, timeout_s: float) -> Any:
            if node == away:
                raise RequestRefused(Code.INTERNAL, f"node {node}: no answer")
            return await plain(self, node, call, timeout_s)

        monkeypatch.setattr(PeerClient, "ask", ask)
        page = await queue.list()
        assert page.unknown == lost
        assert {line.partition for line in page.parked} == owners.keys() - {*lost}
        answer = await queue.do("discard", *items)
        assert (answer.done, [part for part, _ in answer.unknown]) == (len(items) - len(lost), lost)
        assert await queue.refused("discard") == Code.HELD
        monkeypatch.setattr(PeerClient, "ask", plain)
        rest = await queue.do("discard", *items)
        assert (rest.done, len(rest.not_parked)) == (len(lost), len(items) - len(lost))

    run(tmp_path, monkeypatch, work)


def test_a_refusal_is_typed(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(queue: Queue, native: GatedNode, parts: list[int]) -> None:
        del native
        header, body = await queue.bench.ask(Opcode.COHORT_PARKED, request("retry", items=[(parts[0], -1)]))
        refusal = messages.decode(messages.Refused, body)
        assert header.code == Code.INVALID_ARGUMENT
        assert "numbers from 0" in refusal.message

    with_queue(tmp_path, monkeypatch, work)


async def unchecked(*_: object) -> None: ...


PLANTED: dict[str, tuple[Work, Any, str, Any]] = {
    "marked_first": (exported_story, parked_gates, "fate_of", lambda *_: "committed"),
    "scope_not_compared": (exported_story, parked_gates.ParkedGates, "_check_scope", unchecked),
    "retry_while_exporting": (ended_story, parked_gates, "fate_of", lambda *_: "closed"),
    "export_not_ended": (ended_story, parked_gates.ParkedGates, "_close", unchecked),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_faults_are_found(tmp_path: Path, monkeypatch: Patch, fault: str) -> None:
    story, module, name, instead = PLANTED[fault]
    monkeypatch.setattr(module, name, instead)
    with pytest.raises(AssertionError):
        with_queue(tmp_path, monkeypatch, story)
