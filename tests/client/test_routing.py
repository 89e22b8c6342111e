"""Layouts, the choice of a partition without key, delays, addresses."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.common.address import addresses
from ringfence.common.codec import Answer
from ringfence.common.retry import Backoff, deadline_ms
from ringfence.common.routing import WeightedRoundRobin, layout_of, newest
from ringfence.native.errors import ConfigError, NotFoundError, ProtocolError, RetriableError
from ringfence.native.messages import NodeEntry, PartitionEntry, Refused, Table, encode
from ringfence.native.wire import AnswerHeader, Code, Status


def table(
    bounds: list[int], *, generation: int = 5, history: bytes = b"h", loads: list[int | None] | None = None
) -> Table:
    edges = [0, *sorted(bounds), 65536]
    partitions = [
        PartitionEntry(partition=100 + index, lo=lo, hi=hi - 1, state="ACTIVE", owner=1, epoch=index)
        for index, (lo, hi) in enumerate(itertools.pairwise(edges))
    ]
    return Table(
        topic=7,
        name="t",
        history=history,
        generation=generation,
        version=1,
        key=["k"],
        schemas=[b"s"],
        replication=1,
        partitions=partitions[::-1],
        nodes=[NodeEntry(node=1, addresses=["tcp://a:1"])],
        loads={100 + index: load for index, load in enumerate(loads or []) if load is not None},
    )


@given(st.sets(st.integers(1, 65535), max_size=40))
def test_every_slot_has_the_partition_whose_range_holds_it(bounds: set[int]) -> None:
    layout = layout_of(table(sorted(bounds)))
    for slot in {0, 65535, *bounds, *(bound - 1 for bound in bounds)}:
        entry = layout.active[int(layout.index_of_slot[slot])]
        assert entry.lo <= slot <= entry.hi
    assert np.all(np.diff(layout.index_of_slot.astype(np.int32)) >= 0)


@pytest.mark.parametrize(("lo", "hi"), [(1, 65535), (0, 65534), (0, 70000)])
def test_a_table_that_does_not_tile_the_slots_is_not_taken(lo: int, hi: int) -> None:
    entry = PartitionEntry(partition=1, lo=lo, hi=hi, state="ACTIVE", owner=1, epoch=1)
    broken = Table(
        topic=7,
        name="t",
        history=b"h",
        generation=1,
        version=1,
        key=[],
        schemas=[b"s"],
        replication=1,
        partitions=[entry],
        nodes=[],
    )
    with pytest.raises(ProtocolError):
        layout_of(broken)


def test_only_a_newer_generation_of_the_same_history_replaces_a_layout() -> None:
    held = layout_of(table([], generation=5))
    assert newest(None, held) is held
    assert newest(held, layout_of(table([], generation=5))) is held
    assert newest(held, layout_of(table([], generation=4))) is held
    assert newest(held, layout_of(table([], generation=9, history=b"other"))) is held
    newer = layout_of(table([], generation=6))
    assert newest(held, newer) is newer
    assert newest(held, dataclasses.replace(newer, topic=8)) is held


def choices(loads: list[int | None], turns: int = 1000) -> Counter[int]:
    chooser = WeightedRoundRobin(
        layout_of(table([index * 1000 for index in range(1, len(loads))], loads=loads))
    )
    return Counter(chooser.choose() for _ in range(turns))


def test_without_loads_whole_batches_go_round() -> None:
    assert set(choices([None] * 4).values()) == {250}


def test_a_lower_load_takes_more_batches_and_none_starves() -> None:
    counted = choices([90, 10, 50, None])
    assert counted[101] > counted[102] > counted[100] > 0
    assert counted[103] == pytest.approx(counted[102], abs=5), "unknown counts as the mean"


@given(st.integers(1, 1000), st.floats(0, 0.999), st.floats(0, 5))
def test_a_delay_is_between_half_and_whole_and_never_below_what_the_node_asked(
    tries: int, jitter: float, asked: float
) -> None:
    delay = Backoff(first_s=0.02, cap_s=2.0).delay_s(tries, jitter, asked)
    whole = min(2.0, 0.02 * 2 ** min(tries - 1, 30))
    assert delay >= asked
    assert whole / 2 <= delay <= max(whole, asked)


def test_a_deadline_on_the_wire_is_never_zero_and_never_above_its_limit() -> None:
    assert deadline_ms(10.0, 9.5) == 500
    assert deadline_ms(10.0, 11.0) == 1
    assert deadline_ms(float("inf"), 0.0) == 600_000


def test_addresses_come_from_the_argument_then_the_environment_then_the_default() -> None:
    assert addresses("tcp://a:1, ipc:///run/x", {"RINGFENCE_ADDRESS": "tcp://b:2"}) == (
        "tcp://a:1",
        "ipc:///run/x",
    )
    assert addresses(None, {"RINGFENCE_ADDRESS": "tcp://b"}) == ("tcp://b:7411",)
    assert addresses(None, {}) == ("tcp://127.0.0.1:7411",)
    assert addresses("tcp://[::1]", {}) == ("tcp://[::1]:7411",)


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "http://a:1", "tcp://", "tcp://a:x", "tcp://a:0", "ipc://", "tcp://:1"),
        *(":1", "a:", "a:x", "a:0", "a:65536", "*:7411", "a:*", "::1:7411", "a b:1", "a/b:1", "a:1/"),
        *("tcp://exa mple:1", "tcp://*:7411", "tcp://\udcff:1", "ipc:///run/\udcff", "tcp://a\n:1"),
    ],
)
def test_another_form_of_address_is_refused_and_shown(wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        addresses(wrong, {})
    assert repr(wrong) in str(caught.value)
    with pytest.raises(ConfigError, match="a string"):
        addresses(7411, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("bare", ["localhost:7411", "10.0.0.1:7411", "[::1]:7411", "[fe80::1%eth0]:1"])
def test_host_and_port_without_a_scheme_are_a_tcp_address(bare: str) -> None:
    assert addresses(bare, {}) == addresses(f"tcp://{bare}", {}) == (f"tcp://{bare}",)
    assert addresses(f"ipc:///run/x, {bare}", {}) == ("ipc:///run/x", f"tcp://{bare}")
    assert addresses(None, {"RINGFENCE_ADDRESS": bare}) == (f"tcp://{bare}",)


@pytest.mark.parametrize("bare", ["localhost", "10.0.0.1", "[::1]"])
def test_a_host_without_scheme_and_port_names_the_address_with_them(bare: str) -> None:
    with pytest.raises(ConfigError, match="has no scheme") as caught:
        addresses(bare, {})
    assert f"write 'tcp://{bare}'" in str(caught.value)
    assert addresses(f"tcp://{bare}", {})
    for neither in (f"{bare}:x", f"/{bare}", f"tcp:{bare}/"):
        with pytest.raises(ConfigError, match="is not of the form"):
            addresses(neither, {})


@pytest.mark.parametrize("code", [Code.UNKNOWN_TOPIC, Code.UNKNOWN_PARTITION])
def test_a_node_that_has_not_heard_of_a_topic_yet_is_asked_again(code: Code) -> None:
    body = memoryview(encode(Refused(message="topic 7 is not known here")))
    empty = AnswerHeader(*(0 for _ in AnswerHeader._fields))
    answer = Answer(empty._replace(status=Status.REFUSED, code=code, generation=4, topic=7), body)
    behind = answer.error("t", held=5)
    assert isinstance(behind, RetriableError)
    assert behind.retriable
    assert "generation 4, the routing table at 5" in str(behind)
    for held in (0, 4):
        assert isinstance(answer.error("t", held=held), NotFoundError)
