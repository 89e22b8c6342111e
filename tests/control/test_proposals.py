"""Proposals: shared syncs, the barrier, full and failing disks, forgotten sessions."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from ringfence.control.model.commands import InitCluster, OpenSession, SetConfig
from ringfence.control.model.entries import Entry
from ringfence.control.model.ids import NodeId, SessionId
from ringfence.control.model.results import SessionOpened
from ringfence.control.model.state import MetadataState, digest
from ringfence.control.runtime import proposals
from ringfence.control.runtime.errors import RequestRefused
from ringfence.control.runtime.proposals import SoloProposer
from ringfence.control.store import metadata_store
from ringfence.control.store.directory import open_directory
from ringfence.control.store.metadata_store import MetadataStore
from ringfence.native.errors import StorageError
from ringfence.native.wire import Code
from tests.control.commands import create


class Heard:
    """What listeners were told."""

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.failures: list[Exception] = []

    def applied(self, _: MetadataState, __: MetadataState, index: int) -> None:
        self.indexes.append(index)


Work = Callable[[SoloProposer, MetadataStore, Heard], Awaitable[None]]


def run(root: Path, work: Work) -> None:
    """An initialized proposer over a real journal in `root`."""

    async def whole() -> None:
        directory = open_directory(root)
        store, heard = MetadataStore(directory), Heard()
        proposer = SoloProposer(store, on_applied=heard.applied, on_failed=heard.failures.append)
        proposer.start()
        identity = directory.identity
        if not proposer.state.cluster:
            await proposer.propose(
                InitCluster(
                    cluster=identity.cluster,
                    history=identity.history,
                    node=NodeId(1),
                    store=identity.store,
                )
            )
        await work(proposer, store, heard)
        await proposer.close()
        directory.close()

    asyncio.run(whole())


def test_proposals_at_once_share_syncs_and_keep_their_order(tmp_path: Path) -> None:
    groups: list[int] = []

    async def work(proposer: SoloProposer, store: MetadataStore, heard: Heard) -> None:
        append = store.append

        def counted(entries: Sequence[Entry]) -> None:
            groups.append(len(entries))
            append(entries)

        store.append = counted  # type: ignore[method-assign]
        names = [f"public/default/t{number:03}" for number in range(200)]
        done = await asyncio.gather(*(proposer.propose(create(name, partitions=1)) for name in names))
        assert [applied.index for applied in done] == list(range(2, 202))
        assert heard.indexes == list(range(1, 202))

    run(tmp_path, work)
    assert sum(groups) == 200
    assert len(groups) <= 6
    assert max(groups) == proposals.GROUP_MAX


def test_nothing_is_applied_before_it_is_durable(tmp_path: Path) -> None:
    async def work(proposer: SoloProposer, store: MetadataStore, heard: Heard) -> None:
        append = store.append

        def checked(entries: Sequence[Entry]) -> None:
            assert len(heard.indexes) < entries[0].index, "an entry was heard of before its sync"
            append(entries)
            assert heard.indexes[-1] < entries[0].index

        store.append = checked  # type: ignore[method-assign]
        for number in range(5):
            await proposer.propose(create(f"public/default/t{number}", partitions=1))
        assert heard.failures == []

    run(tmp_path, work)


def test_a_full_disk_refuses_and_the_same_command_succeeds_later(tmp_path: Path) -> None:
    async def work(proposer: SoloProposer, store: MetadataStore, heard: Heard) -> None:
        append = store.append

        def full(_: Sequence[Entry]) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        before = digest(proposer.state)
        store.append = full  # type: ignore[method-assign, assignment]
        with pytest.raises(RequestRefused) as refused:
            await proposer.propose(create())
        assert refused.value.code == Code.DISK_FULL
        assert digest(proposer.state) == before
        store.append = append  # type: ignore[method-assign]
        assert (await proposer.propose(create())).index == 2
        assert heard.failures == []

    run(tmp_path, work)


def test_a_dead_journal_ends_the_node_and_takes_nothing_more(tmp_path: Path) -> None:
    async def work(proposer: SoloProposer, store: MetadataStore, heard: Heard) -> None:
        def dead(_: Sequence[Entry]) -> None:
            raise StorageError("sync failed: EIO")

        store.append = dead  # type: ignore[method-assign, assignment]
        with pytest.raises(RequestRefused) as refused:
            await proposer.propose(create())
        assert refused.value.code == Code.STORAGE_FAILED
        assert [str(error) for error in heard.failures] == ["sync failed: EIO"]
        with pytest.raises(RequestRefused) as stopping:
            await proposer.propose(create())
        assert stopping.value.code == Code.STOPPING

    run(tmp_path, work)


def test_a_forgotten_session_is_opened_anew_behind_the_scenes(tmp_path: Path) -> None:
    async def work(proposer: SoloProposer, _: MetadataStore, __: Heard) -> None:
        opened = (await proposer.propose(OpenSession())).result
        assert isinstance(opened, SessionOpened)
        proposer.use_session(opened.session)
        await proposer.propose(SetConfig(values={"topics_max": 5}))
        proposer.use_session(SessionId(987_654))
        await proposer.propose(SetConfig(values={"topics_max": 6}))
        assert proposer.state.config == {"topics_max": 6}

    run(tmp_path, work)


def test_a_restart_raises_the_term_and_finds_the_state(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    async def work(proposer: SoloProposer, _: MetadataStore, __: Heard) -> None:
        before = digest(proposer.state)
        await proposer.propose(SetConfig(values={"topics_max": 5 + len(seen)}))
        if seen:
            assert before == seen[-1][0]
            assert proposer.applied.term > seen[-1][1]
        seen.append((digest(proposer.state), proposer.applied.term))

    for _ in range(3):
        run(tmp_path, work)


def test_a_long_journal_is_compacted_and_reopens_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_store, "JOURNAL_BYTES_MAX", 4_000)
    digests: list[str] = []

    async def fill(proposer: SoloProposer, store: MetadataStore, _: Heard) -> None:
        for number in range(60):
            await proposer.propose(create(f"public/default/t{number}", partitions=1))
        assert store.journal.base.index > 0
        assert store.journal.size_bytes < 8_000
        digests.append(digest(proposer.state))

    async def look(proposer: SoloProposer, _: MetadataStore, __: Heard) -> None:
        assert digest(proposer.state) == digests[0]
        assert proposer.applied.index == 61

    run(tmp_path, fill)
    run(tmp_path, look)


def test_too_many_waiting_proposals_are_told_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposals, "WAITING_MAX", 3)

    async def work(proposer: SoloProposer, _: MetadataStore, __: Heard) -> None:
        outcomes = await asyncio.gather(
            *(proposer.propose(create(f"public/default/t{number}", partitions=1)) for number in range(5)),
            return_exceptions=True,
        )
        refused = [outcome for outcome in outcomes if isinstance(outcome, RequestRefused)]
        assert [outcome.code for outcome in refused] == [Code.OVERLOADED] * 2
        assert len(proposer.state.topics) == 3

    run(tmp_path, work)
