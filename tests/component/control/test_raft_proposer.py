"""Proposals through consensus over real journals: lost messages, full and failing disks, lost sessions."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from ringfence.control.consensus import events
from ringfence.control.model.commands import OpenSession, SetConfig
from ringfence.control.model.ids import Index, NodeId, SessionId
from ringfence.control.model.results import SessionOpened
from ringfence.control.model.scopes import BeginScope
from ringfence.control.model.state import digest
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft import proposer as raft_proposer
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.raft.replica import ELECTION_TICKS, TICK_S
from ringfence.control.state_machines.metadata.config import SESSION_WINDOW
from ringfence.control.store import raft_store
from ringfence.control.store.journal import HardRecord, JournalEntry
from ringfence.native.errors import StorageError
from ringfence.native.wire import Code
from tests.fakes.metadata_commands import create, restart
from tests.fakes.raft_members import Member, Net, run, until


async def opened(proposer: RaftProposer) -> SessionId:
    result = (await proposer.propose(OpenSession())).result
    assert isinstance(result, SessionOpened)
    return result.session


def test_one_alone_commits_at_once_and_finds_its_state_again(tmp_path: Path) -> None:
    states: list[object] = []

    async def work(net: Net) -> None:
        member = net.members[1]
        if not states:
            for number in range(100):
                await member.proposer.propose(SetConfig(values={"topics_max": number + 1}))
        assert member.proposer.state.config == {"topics_max": 100}
        states.append(member.proposer.state.config)

    run(tmp_path, 1, work)
    run(tmp_path, 1, work)
    assert len(states) == 2


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_proposals_from_every_member_apply_once_on_all(loss: float, tmp_path: Path) -> None:
    async def work(net: Net) -> None:
        await asyncio.gather(*(several(member) for member in net.members.values()))
        net.loss = 0.0
        last = max(member.proposer.applied.index for member in net.members.values())
        for member in net.members.values():
            await member.proposer.read_barrier()
            await member.proposer.until_applied(last)
        states = {digest(member.proposer.state) for member in net.members.values()}
        assert len(states) == 1
        state = net.members[1].proposer.state
        used = [session.last for session in state.sessions.values() if session.last]
        assert sorted(used) == [30, 30, 30], "a retry took a place of its own"

    async def several(member: Member) -> None:
        member.proposer.use_session(await opened(member.proposer))
        commands = [SetConfig(values={"topics_max": 1_000 + number}) for number in range(30)]
        applied = await asyncio.gather(*(member.proposer.propose(command) for command in commands))
        assert len({one.index for one in applied}) == 30

    run(tmp_path, 3, work, loss=loss)


def test_a_majority_goes_on_and_one_alone_refuses_reads(tmp_path: Path) -> None:
    async def work(net: Net) -> None:
        leader = await net.leader()
        gone = leader.replica.id
        del net.members[gone]
        other = await net.leader()
        await other.proposer.propose(SetConfig(values={"topics_max": 7}))
        del net.members[other.replica.id]
        alone = next(iter(net.members.values()))
        with pytest.raises(RequestRefused) as caught:
            await alone.proposer.read_barrier()
        assert caught.value.code == Code.TOO_FEW_REPLICAS
        net.members |= {gone: leader, other.replica.id: other}
        await leader.proposer.read_barrier()
        assert leader.proposer.state.config == {"topics_max": 7}

    run(tmp_path, 3, work)


def test_a_full_disk_refuses_new_commands_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence.control.runtime.raft.replica.FULL_DISK_PAUSE_S", 0.05)

    async def work(net: Net) -> None:
        proposer, store = net.members[1].proposer, net.members[1].store
        real = store.journal.append
        full = OSError(errno.ENOSPC, "No space left on device")

        def append(*_: object) -> None:
            raise full

        monkeypatch.setattr(store.journal, "append", append)
        waiting = asyncio.ensure_future(proposer.propose(SetConfig(values={"topics_max": 5})))
        await until(lambda: net.members[1].replica.disk_full)
        with pytest.raises(RequestRefused) as caught:
            await proposer.propose(SetConfig(values={"topics_max": 6}))
        assert caught.value.code == Code.DISK_FULL
        monkeypatch.setattr(store.journal, "append", real)
        await waiting
        assert proposer.state.config == {"topics_max": 5}
        assert net.members[1].failures == []

    run(tmp_path, 1, work)


def test_a_leader_whose_disk_is_full_hands_over_and_follows_until_it_has_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence.control.runtime.raft.replica.FULL_DISK_PAUSE_S", 0.05)

    async def work(net: Net) -> None:
        leader = await net.leader()
        journal, real = leader.store.journal, leader.store.journal.append

        def append(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(journal, "append", append)
        waiting = asyncio.ensure_future(leader.proposer.propose(SetConfig(values={"topics_max": 5})))
        await until(lambda: not leader.replica.leads)
        other = await net.leader()
        assert other is not leader
        await other.proposer.propose(SetConfig(values={"topics_max": 6}))
        await asyncio.sleep(3 * ELECTION_TICKS * TICK_S)
        assert other.replica.leads, "who has no space did not ask for votes"
        assert not waiting.done()
        monkeypatch.setattr(journal, "append", real)
        await waiting
        await leader.proposer.read_barrier()
        assert leader.proposer.state.config == other.proposer.state.config
        assert not leader.replica.node.core.storage_full
        assert leader.failures == []

    run(tmp_path, 3, work)


def test_a_dead_journal_ends_the_node_and_nothing_is_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(net: Net) -> None:
        member = net.members[1]
        before = member.proposer.state

        def append(*_: object) -> None:
            raise StorageError("sync failed")

        monkeypatch.setattr(member.store.journal, "append", append)
        waiting = asyncio.ensure_future(member.proposer.propose(SetConfig(values={"topics_max": 5})))
        await until(lambda: bool(member.failures))
        assert member.proposer.state is before
        assert not waiting.done()
        waiting.cancel()

    run(tmp_path, 1, work)


def test_a_forgotten_session_is_opened_anew_behind_the_scenes(tmp_path: Path) -> None:
    async def work(net: Net) -> None:
        proposer = net.members[1].proposer
        proposer.use_session(SessionId(4_711))
        await asyncio.gather(
            *(proposer.propose(SetConfig(values={"topics_max": 5 + number})) for number in range(5))
        )
        assert proposer.state.config["topics_max"] in range(5, 10)

    run(tmp_path, 1, work)


def test_a_long_journal_is_compacted_and_reopens_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_store, "JOURNAL_BYTES_MAX", 20_000)
    seen: list[str] = []

    async def work(net: Net) -> None:
        member = net.members[1]
        if not seen:
            for number in range(300):
                await member.proposer.propose(SetConfig(values={"topics_max": number + 1}))
            await until(lambda: member.store.first_index() > 1)
            assert member.store.journal.size_bytes < 40_000
        seen.append(digest(member.proposer.state))

    run(tmp_path, 1, work)
    run(tmp_path, 1, work)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("pulses", [True, False])
def test_a_loop_full_of_requests_ticks_between_them(tmp_path: Path, *, pulses: bool) -> None:
    async def work(net: Net) -> None:
        replica, ticks = net.members[1].replica, list[float]()
        replica._before_tick = lambda: ticks.append(time.monotonic())
        busy_s = 50 * TICK_S / 4

        def request() -> None:
            time.sleep(TICK_S / 4)
            if pulses:
                replica.pulse()

        for _ in range(50):
            asyncio.get_running_loop().call_soon(request)
        done = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: done.set_result(len(ticks)))
        # The loop runs all that is ready before it looks at its timers: without pulses nobody ticks.
        seen = await done
        assert (seen >= busy_s / TICK_S / 2) if pulses else (seen == 0)

    run(tmp_path, 1, work)


def test_proposals_at_once_share_syncs_and_keep_their_order(tmp_path: Path) -> None:
    groups: list[int] = []

    async def work(net: Net) -> None:
        member = net.members[1]
        append, first = member.store.journal.append, member.proposer.applied.index + 1

        def counted(entries: Sequence[JournalEntry], hard: HardRecord | None = None) -> None:
            groups.append(len(entries))
            append(entries, hard)

        member.store.journal.append = counted  # type: ignore[method-assign]
        heard = len(member.indexes)
        names = [f"public/default/t{number:03}" for number in range(200)]
        done = await asyncio.gather(*(member.proposer.propose(create(name, partitions=1)) for name in names))
        assert [applied.index for applied in done] == list(range(first, first + 200))
        assert member.indexes[heard:] == list(range(first, first + 200))

    run(tmp_path, 1, work)
    assert sum(groups) >= 200
    assert max(groups) <= SESSION_WINDOW
    assert len([size for size in groups if size]) <= 200 // SESSION_WINDOW + 4


def test_nothing_is_applied_before_it_is_durable(tmp_path: Path) -> None:
    async def work(net: Net) -> None:
        member = net.members[1]
        append = member.store.journal.append

        def checked(entries: Sequence[JournalEntry], hard: HardRecord | None = None) -> None:
            if entries:
                assert member.indexes[-1] < entries[0].index, "an entry was heard of before its sync"
            append(entries, hard)
            if entries:
                assert member.indexes[-1] < entries[0].index

        member.store.journal.append = checked  # type: ignore[method-assign]
        for number in range(5):
            await member.proposer.propose(create(f"public/default/t{number}", partitions=1))
        assert member.failures == []

    run(tmp_path, 1, work)


def test_a_restart_raises_the_term(tmp_path: Path) -> None:
    terms: list[int] = []

    async def work(net: Net) -> None:
        await net.members[1].proposer.propose(SetConfig(values={"topics_max": 5 + len(terms)}))
        terms.append(net.members[1].proposer.applied.term)

    for _ in range(3):
        run(tmp_path, 1, work)
    assert terms == sorted(set(terms))


def test_too_many_waiting_proposals_are_told_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_proposer, "WAITING_MAX", 3)

    async def work(net: Net) -> None:
        proposer = net.members[1].proposer
        outcomes = await asyncio.gather(
            *(proposer.propose(create(f"public/default/t{number}", partitions=1)) for number in range(5)),
            return_exceptions=True,
        )
        refused = [outcome for outcome in outcomes if isinstance(outcome, RequestRefused)]
        assert [outcome.code for outcome in refused] == [Code.OVERLOADED] * 2
        assert len(proposer.state.topics) == 3

    run(tmp_path, 1, work)


@pytest.mark.parametrize("after", [0, None])
def test_a_refused_begin_that_was_sent_twice_is_certain_if_it_names_the_driver_that_it_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int | None
) -> None:
    """One without would fence any driver, so a copy of it that comes later may still be accepted."""

    async def work(net: Net) -> None:
        leader = await net.leader()
        follower = next(member for member in net.members.values() if member is not leader)
        lost: list[bytes] = []
        step = follower.replica.step

        def lose_first(event: events.Event) -> None:
            if isinstance(event, events.Propose) and not lost:
                lost.extend(event.data)
            else:
                step(event)

        monkeypatch.setattr(follower.replica, "step", lose_first)
        follows = None if after is None else Index(after)
        own = BeginScope(name="job", instance=b"own", after=follows)
        late = asyncio.ensure_future(follower.proposer.propose(own))
        await until(lambda: bool(lost))
        rivals = [b"own", b"other"] if after is None else [b"other"]  # one begins `own` and fences it
        for instance in rivals:
            await leader.proposer.propose(BeginScope(name="job", instance=instance))
        with pytest.raises(RequestRefused) as caught:
            await asyncio.wait_for(late, 30)
        wanted = Code.UNKNOWN_OUTCOME if after is None else Code.CONFLICT
        assert caught.value.code == wanted, caught.value.message

    run(tmp_path, 3, work)


@pytest.mark.parametrize("compared", [False, True])
def test_repeats_of_a_start_are_known_as_the_process_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, compared: bool
) -> None:
    """It belongs to no session: a copy of it that comes late must fence nobody, and changes nothing where it
    says behind which start it comes."""

    async def work(net: Net) -> None:
        leader = await net.leader()
        follower = next(member for member in net.members.values() if member is not leader)
        sent: list[bytes] = []
        step = follower.replica.step

        def watch(event: events.Event) -> None:
            if isinstance(event, events.Propose):
                sent.extend(event.data)
            step(event)

        monkeypatch.setattr(follower.replica, "step", watch)
        first = restart(leader.proposer.state, 1)
        started = leader.proposer.state.nodes[NodeId(1)].started
        await follower.proposer.propose(replace(first, after=started) if compared else first)
        leader.replica.step(events.Propose((sent[0],)))  # the copy
        last = (await leader.proposer.propose(SetConfig(values={"topics_max": 77}))).index
        await asyncio.gather(*(member.proposer.until_applied(last) for member in net.members.values()))
        assert follower.starts == ["own"] * (1 if compared else 2)
        assert leader.starts == ["other"] * (1 if compared else 2)

    run(tmp_path, 3, work)
