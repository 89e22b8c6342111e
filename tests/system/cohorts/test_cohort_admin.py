"""`client.admin` about cohorts, at a real node."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
import runpy
from typing import TYPE_CHECKING

import pytest

import ringfence
from ringfence import aio
from tests.conftest import ROOT
from tests.harness.deliveries import KEYS, publish
from tests.harness.processes import SCHEMA, NodeProcess, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 10 * KEYS


@pytest.fixture(scope="module")
def node(module_folder: Path) -> Iterator[NodeProcess]:
    with NodeProcess(module_folder / "data") as running:
        yield running


@pytest.fixture
def client(node: NodeProcess) -> Iterator[ringfence.Client]:
    with ringfence.connect(node.address, timeout_s=30) as connected:
        connected.create_topic("t", schema=SCHEMA, key=["producer"], partitions=3)
        publish(connected, "t", range(10))
        yield connected
        connected.delete_topic("t", force=True)


def test_a_cohort_from_its_creation_to_its_end(client: ringfence.Client) -> None:
    admin = client.admin
    made = admin.create_cohort("t", "c", "queue", lease_s=2.5, limit=3)
    assert (made.created, made.mode, made.settings.lease_ms, made.settings.limit) == (True, "queue", 2_500, 3)
    assert not admin.create_cohort("t", "c", "queue", lease_s=2.5, limit=3).created, "a repeat"
    with pytest.raises(ringfence.AlreadyExistsError, match="mode QUEUE"):
        admin.create_cohort("t", "c")
    admin.create_cohort("t", "d", start="latest", handover_s=17)
    assert [one.entry.cohort for one in admin.cohorts("t")] == ["c", "d"]
    everywhere = {(one.entry.topic, one.entry.cohort) for one in admin.cohorts()}
    assert everywhere >= {("public/default/t", "c"), ("public/default/t", "d")}
    until(lambda: [one.lag_rows for one in admin.cohorts("t")] == [ROWS, 0], 60, "the lag is known")
    shown = admin.cohort("t", "c")
    assert (len(shown.partitions), shown.members, shown.more) == (3, [], False)
    changed = admin.change_cohort("t", "c", limit=9)
    assert (changed.settings.lease_ms, changed.settings.limit) == (2_500, 9), "others stay as they are"
    with pytest.raises(ringfence.ConflictError):
        admin.change_cohort("t", "c", limit=1, expected=made.version)
    assert admin.change_cohort("t", "c", limit=1, expected=changed.version).settings.limit == 1
    assert admin.delete_cohort("t", "c")
    assert not admin.delete_cohort("t", "c", missing_ok=True)
    with pytest.raises(ringfence.NotFoundError):
        admin.delete_cohort("t", "c")
    with pytest.raises(ringfence.NotFoundError):
        admin.cohort("t", "c")
    with pytest.raises(ringfence.NotFoundError):
        next(admin.cohorts("missing"))


@pytest.mark.parametrize(
    "given", [{"lease_s": 0}, {"lease_s": 1e9}, {"limit": -1}, {"limit": 101}, {"handover_s": -1}]
)
def test_settings_outside_their_range_are_refused(client: ringfence.Client, given: dict[str, float]) -> None:
    with pytest.raises(ringfence.InvalidArgumentError):
        client.admin.create_cohort("t", "c", "queue", **given)  # type: ignore[arg-type]
    assert list(client.admin.cohorts("t")) == []


def test_seeks_and_evictions(client: ringfence.Client) -> None:
    admin = client.admin
    with client.consumer("t", cohort="c", member="one", ack="manual") as consumer:
        read = 0
        while read < ROWS:
            batch = consumer.next(60)
            assert batch is not None
            read += batch.num_rows
        consumer.ack(wait=True)
        [member] = admin.cohort("t", "c").members
        assert (member.member, member.state, member.partitions) == ("one", "connected", 3)
    until(lambda: [one.lag_rows for one in admin.cohorts("t")] == [0], 60, "all rows are done")
    first = admin.seek_cohort("t", "c", "earliest")
    until(lambda: [one.lag_rows for one in admin.cohorts("t")] == [ROWS], 60, "no row is done")
    then = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    later = admin.seek_cohort("t", "c", then)
    assert (later.incarnation > first.incarnation, later.waiting) == (True, [])
    until(lambda: [one.lag_rows for one in admin.cohorts("t")] == [0], 60, "all rows are before that time")
    with client.consumer("t", cohort="c", member="two") as consumer:
        assert consumer.next(0.1) is None
        assert admin.evict("t", "c", "two")
        assert not admin.evict("t", "c", "none")


def test_the_example_of_the_page_runs(client: ringfence.Client, node: NodeProcess, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "consumers.md").read_text()
    [block] = re.findall(r"<!-- run: cohorts -->\n```python\n(.*?)```", page, re.DOTALL)
    client.create_topic("trips", schema=SCHEMA, key=["producer"], partitions=2)
    (tmp_path / "example.py").write_text(block)
    runpy.run_path(
        str(tmp_path / "example.py"), init_globals={"ringfence": ringfence, "address": node.address}
    )
    assert list(client.admin.cohorts("trips")) == []


def test_asyncio(node: NodeProcess, client: ringfence.Client) -> None:
    del client

    async def work() -> None:
        async with aio.connect(node.address, timeout_s=30) as connected:
            admin = connected.admin
            assert (await admin.create_cohort("t", "c", limit=2)).created
            assert [one.entry.cohort async for one in admin.cohorts("t")] == ["c"]
            assert (await admin.change_cohort("t", "c", handover_s=19)).settings.handover_ms == 19_000
            assert (await admin.seek_cohort("t", "c", "latest")).waiting == []
            assert len((await admin.cohort("t", "c")).partitions) == 3
            assert not await admin.evict("t", "c", "none")
            assert await admin.delete_cohort("t", "c")

    asyncio.run(work())
