"""The node from Python: settings checked by name, a store opened once, strangers refused."""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ringfence.native import _node
from ringfence.native._node import Order
from ringfence.native.errors import (
    ClosedError,
    ConfigError,
    InvalidArgumentError,
    NewerFormatError,
    StorageError,
    StoreIdentityError,
    StoreLockedError,
)

IDENTITY = {"cluster": b"c" * 16, "history": b"h" * 16, "store": b"s" * 16}
SMALL = {"budget_bytes": 64 << 20, "segment_bytes": 4 << 20, "reserve_bytes": 1 << 20}


def node(data: Path, **changes: Any) -> _node.Node:
    settings: dict[str, Any] = {"node": 1, **IDENTITY, **SMALL, **changes}
    return _node.Node(data=os.fspath(data), **settings)


def outcome(made: _node.Node, number: int) -> tuple[str | None, dict[str, Any]]:
    """The outcome of one order, waited for by the eventfd."""
    while True:
        readable, _, _ = select.select([made.fileno()], [], [], 10)
        assert readable, f"no outcome of order {number} within 10 s"
        for found in made.poll():
            if found[:2] == ("order", number):
                return found[2], found[3]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("shards", 0),
        ("budget_bytes", 1),
        ("cluster", b"short"),
        ("transport", "carrier pigeon"),
        ("message_bytes", 1),
    ],
)
def test_a_setting_out_of_its_range_is_named_with_its_value(
    tmp_path: Path, setting: str, value: object
) -> None:
    with pytest.raises(ConfigError, match=setting):
        node(tmp_path, **{setting: value})


def test_orders_before_recover_and_after_stop_are_refused(tmp_path: Path) -> None:
    made = node(tmp_path)
    with pytest.raises(ClosedError):
        made.order(Order.remove_topic(1))
    made.recover()
    made.stop(10)
    with pytest.raises(ClosedError):
        made.order(Order.remove_topic(1))
    made.stop(10)


def test_a_partition_is_opened_fenced_and_found_again(tmp_path: Path) -> None:
    schema = _node.schema_message(pa.schema([("id", pa.int64())]))
    made = node(tmp_path)
    assert made.recover()["partitions"] == []
    (address,) = made.listen(["tcp://127.0.0.1:0"])
    assert not address.endswith(":0")
    assert outcome(made, made.order(Order.install_topic(7, [schema], [0], 0, 0))) == (None, {})
    error, opened = outcome(made, made.order(Order.open(7, 9, 0, 65535, 12)))
    assert error is None
    assert opened["end_offset"] == 0
    error, fenced = outcome(made, made.order(Order.fence(7, 9, 13)))
    assert error is None
    assert set(fenced) == {"epoch", "records", "end_offset", "chain", "cut"}
    error, _ = outcome(made, made.order(Order.open(7, 9, 0, 65535, 12)))
    assert error, "an epoch below the fence opened a partition"
    (status,) = made.partitions()
    assert (status["topic"], status["partition"], status["fence"]) == (7, 9, 13)
    assert all(isinstance(value, int) for value in made.counters().values())
    made.stop(10)
    again = node(tmp_path)
    (found,) = again.recover()["partitions"]
    assert (found["topic"], found["partition"], found["owner_epoch"], found["fence"]) == (7, 9, 12, 13)
    again.stop(10)


def test_a_store_is_opened_by_one_process_at_a_time(tmp_path: Path) -> None:
    first = node(tmp_path)
    first.recover()
    with pytest.raises(StoreLockedError):
        node(tmp_path).recover()
    with pytest.raises(StoreLockedError):
        _node.fsck(os.fspath(tmp_path))
    first.stop(10)
    assert _node.fsck(os.fspath(tmp_path))["damage"] == []


def test_a_store_of_others_or_of_a_newer_program_is_refused_untouched(tmp_path: Path) -> None:
    made = node(tmp_path)
    made.recover()
    made.order(Order.install_topic(7, [_node.schema_message(pa.schema([("id", pa.int64())]))], [], 0, 0))
    assert outcome(made, made.order(Order.open(7, 9, 0, 65535, 12)))[0] is None
    made.stop(10)
    with pytest.raises(StoreIdentityError):
        node(tmp_path, store=b"x" * 16).recover()
    segments = [path for path in tmp_path.iterdir() if path.stat().st_size >= 4096]
    assert segments, "a store without files proves nothing"
    for path in segments:
        block = bytearray(path.read_bytes()[:4096])
        block[8:10] = (99).to_bytes(2, "little")  # the format's version; its CRC over 8.. stands at 4
        block[4:8] = _node.crc32c(block[8:]).to_bytes(4, "little")
        with path.open("r+b") as file:
            file.write(block)
    before = {path: path.read_bytes()[:8192] for path in segments}
    with pytest.raises(NewerFormatError):
        node(tmp_path).recover()
    with pytest.raises(NewerFormatError):
        _node.fsck(os.fspath(tmp_path))
    assert {path: path.read_bytes()[:8192] for path in segments} == before


def test_fsck_makes_no_directory(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a directory"):
        _node.fsck(os.fspath(tmp_path / "absent"))
    assert not (tmp_path / "absent").exists()


def test_an_answer_needs_a_whole_header(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="128 bytes, this one 3"):
        node(tmp_path).answer(1, b"abc", b"")
