"""The native load generator against a node that answers rightly, wrongly, or not yet."""

from __future__ import annotations

import json
import struct
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from ringfence.native import wire
from tests.fakes.acknowledging_node import FakeNode

if TYPE_CHECKING:
    from pathlib import Path

    from ringfence.native.wire import RequestHeader

ROWS = [1, 2, 3, 4, 5, 6, 7]


def load(
    native: dict[str, str], node: FakeNode, bodies: Path, lanes: str, **options: int
) -> subprocess.CompletedProcess[str]:
    lane_file = bodies.parent / "lanes"
    lane_file.write_text(lanes)
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = [native["loadgen"], "--address", node.address, "--bodies", str(bodies)]
    command += ["--framing", "ringfence", "--lanes", str(lane_file)]
    return subprocess.run([*command, *words], capture_output=True, text=True, timeout=60, check=False)


def result_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_every_request_is_acknowledged_and_counted(
    native: dict[str, str], bodies: tuple[Path, list[bytes]]
) -> None:
    path, contents = bodies
    with FakeNode() as node:
        result = result_of(load(native, node, path, "7 3 11 5 100 9\n", window=4, requests=14, warmup=7))
    assert [request.sequence for request in node.requests] == list(range(21))
    assert {(r.topic, r.partition, r.layout_version, r.owner_epoch) for r in node.requests} == {(7, 11, 3, 5)}
    assert {(r.producer_id, r.producer_epoch) for r in node.requests} == {(100, 9)}
    assert (result["requests"], result["rows"]) == (14, 2 * sum(ROWS))
    assert result["body_bytes"] == 2 * sum(map(len, contents))
    assert result["rows_by_answers"] == 3 * sum(ROWS)


def test_the_window_holds_over_all_lanes_and_64_for_each(native: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.write_bytes(struct.pack("<QQ", 1, 3) + b"abc")  # all of a window is there at once
    with FakeNode(hold=90) as node:
        lanes = "7 3 1 5 100 9\n7 3 1 5 101 9\n"
        result_of(load(native, node, path, lanes, window=90, requests=140))
    assert node.unanswered_max == 90
    with FakeNode(hold=90) as node:
        result_of(load(native, node, path, "7 3 1 5 100 9\n", window=90, requests=140))
    assert node.unanswered_max == 64


def test_what_is_refused_for_now_is_sent_again_in_order_with_the_same_bytes(
    native: dict[str, str], bodies: tuple[Path, list[bytes]]
) -> None:
    refused = {"status": wire.Status.REFUSED, "code": wire.Code.OVERLOADED, "retry_after_ms": 5}

    def overloaded_at_first(request: RequestHeader, time: int) -> dict[str, int]:
        return refused if request.sequence in {2, 3} and time == 1 else {}

    path, _ = bodies
    with FakeNode(overloaded_at_first) as node:
        result = result_of(load(native, node, path, "7 3 1 5 100 9\n", window=4, requests=14))
    again = [request for request in node.requests if request.sequence in {2, 3}]
    assert [request.sequence for request in again] == [2, 3, 2, 3]
    assert [request.body_crc for request in again[:2]] == [request.body_crc for request in again[2:]]
    assert (result["requests"], result["again"]) == (14, 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": 999}, "999"),
        ({"sequence": 77}, "77"),
        ({"first_offset": 0}, "a gap or an overlap"),
        ({"status": wire.Status.REFUSED, "code": wire.Code.WRONG_SLOT}, "code 9"),
        ({"status": wire.Status.REDIRECT, "code": wire.RedirectReason.NOT_OWNER}, "status 2"),
    ],
)
def test_a_wrong_answer_ends_the_run_and_is_named(
    native: dict[str, str], bodies: tuple[Path, list[bytes]], change: dict[str, int], said: str
) -> None:
    path, _ = bodies
    with FakeNode(lambda request, _: change if request.sequence == 5 else {}) as node:
        done = load(native, node, path, "7 3 1 5 100 9\n", window=1, requests=14)
    assert done.returncode == 1
    assert said in done.stderr


def test_an_unknown_argument_is_refused(native: dict[str, str]) -> None:
    done = subprocess.run([native["loadgen"], "--windw", "3"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--windw" in done.stderr
