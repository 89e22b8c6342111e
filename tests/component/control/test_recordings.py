"""What consensus did is recorded while it runs, and runs again to the same end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.program import run as run_command
from ringfence.control.consensus import events, step_recording
from ringfence.control.consensus.messages import Entry, Message, MessageType
from ringfence.control.consensus.step_recording import Recording, Stepped, decode, encode, replay
from ringfence.control.model.commands import SetConfig
from ringfence.control.runtime.raft.recordings import FILES_MAX, Recordings
from ringfence.native.errors import StorageError
from tests.fakes.raft_members import Net, run, until


def replayed(kept: Recording) -> list[step_recording.Shown]:
    shown = list(replay(decode(encode(kept))))
    assert len(shown) == sum(len(segment.steps) for segment in kept.segments)
    faults = [step for step in shown if step.broken or step.differs]
    assert faults == []
    return shown


async def load(net: Net, count: int) -> None:
    for number in range(count):
        for member in net.members.values():
            await member.proposer.propose(SetConfig(values={"topics_max": number + 1}))


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_a_cluster_replays_to_where_it_was(
    loss: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_recording, "STEPS_MAX", 150)

    async def work(net: Net) -> None:
        await load(net, 30)
        for member in net.members.values():
            kept = member.replica.recording("test")
            assert len(kept.segments) == 2
            last, core = replayed(kept)[-1], member.replica.node.core
            assert (last.term, last.lead, last.commit) == (core.term, core.lead, core.log.commit)
            assert last.applied == core.log.applied

    run(tmp_path, 3, work, loss=loss)


def test_a_segment_begins_anywhere_and_an_election_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_recording, "STEPS_MAX", 400)

    async def work(net: Net) -> None:
        leader = await net.leader()
        others = [member for member in net.members.values() if member is not leader]
        leader.replica.step(events.Transfer(others[0].replica.id))
        await until(lambda: others[0].replica.leads)
        await load(net, 5)
        roles = {shown.role for shown in replayed(others[0].replica.recording("test"))}
        assert "leader" in roles

    run(tmp_path, 3, work)


@pytest.mark.parametrize("lost", [True, False])
def test_what_no_leader_may_say_is_written_down_and_named_by_the_replay(
    lost: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths: list[Path] = []

    async def work(net: Net) -> None:
        await load(net, 3)
        follower = next(member for member in net.members.values() if not member.replica.leads)
        files = Recordings(tmp_path)

        def keep(kept: Recording) -> Path:
            paths.append(files.save(kept))
            return paths[-1]

        follower.replica._save_recording = keep
        core = follower.replica.node.core
        commit = core.log.commit
        lie = Message(type=MessageType.HEARTBEAT, to=core.id, sender=core.lead, term=core.term)
        if lost:  # it commits what this log does not have
            lie = replace(lie, commit=commit + 1_000)
        else:  # it replaces an entry that is committed here
            other = (Entry(core.term + 1, commit),)
            term = core.log.term(commit) or 0
            lie = replace(lie, type=MessageType.APPEND, index=commit, log_term=term, entries=other)
        follower.replica.step(events.Received(lie))
        await until(lambda: bool(follower.failures))
        assert isinstance(follower.failures[0], StorageError)
        assert "debug replay" in str(follower.failures[0])
        assert str(paths[0]) in str(follower.failures[0])

    run(tmp_path / "nodes", 3, work)
    assert run_command(["debug", "replay", str(paths[0])]) == Exit.DAMAGE
    assert "BROKEN" in capsys.readouterr().out.splitlines()[-2]
    assert run_command(["debug", "replay", "--quiet", "--json", str(paths[0])]) == Exit.DAMAGE
    assert json.loads(capsys.readouterr().out)["end"]["broken"]


def test_a_replay_that_parts_from_the_recording_says_where(tmp_path: Path) -> None:
    kept: list[Recording] = []

    async def work(net: Net) -> None:
        await load(net, 3)
        kept.append((await net.leader()).replica.recording("test"))

    run(tmp_path, 3, work)
    first = kept[0].segments[0]
    proposal = next(
        at
        for at, step in enumerate(first.steps)
        if isinstance(step, Stepped) and isinstance(step.event, events.Propose)
    )
    without = replace(first, steps=(*first.steps[:proposal], *first.steps[proposal + 1 :]))
    ends = [shown.differs for shown in replay(replace(kept[0], segments=(without,)))]
    assert ends[-1]
    assert not any(ends[:-1])


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"x" * 100, msgspec.msgpack.encode({"format": 9}), msgspec.msgpack.encode([1])]
)
def test_a_file_that_is_no_recording_is_refused_with_a_reason(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ValueError, match="recording"):
        decode(data)
    (tmp_path / "f").write_bytes(data)
    assert run_command(["debug", "replay", str(tmp_path / "f")]) == Exit.USAGE


def test_files_are_few_and_private(tmp_path: Path) -> None:
    kept: list[Recording] = []

    async def work(net: Net) -> None:
        await asyncio.sleep(0)
        kept.append(net.members[1].replica.recording("test"))

    run(tmp_path / "nodes", 1, work)
    files = Recordings(tmp_path)
    for number in range(FILES_MAX + 3):
        path = tmp_path / "debug" / f"consensus-{number:013}.events"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"old")
    newest = files.save(kept[0])
    assert newest.stat().st_mode & 0o777 == 0o600
    left = sorted(path.name for path in newest.parent.iterdir())
    assert len(left) == FILES_MAX
    assert newest.name in left
