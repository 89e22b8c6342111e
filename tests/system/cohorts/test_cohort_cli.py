"""`ringfence cohort`, `ringfence read --cohort` and the admin API over a real node."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from tests.harness.deliveries import KEYS, publish
from tests.harness.processes import SCHEMA, NodeProcess, cli, free_port, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.harness.member import Begun


class Served:
    """A node with the admin API; each test has a topic `t` with ten rounds."""

    def __init__(self, root: Path) -> None:
        self.http = f"127.0.0.1:{free_port()}"
        self.node = NodeProcess(root / "data", options=("--http", self.http))

    def cohort(self, *arguments: str) -> Any:
        done = cli("cohort", *arguments, "--http", f"http://{self.http}", "--json")
        assert done.returncode == Exit.OK, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return lines if arguments[0] in {"list", "members"} else lines[0]

    def read(self, *arguments: str) -> list[tuple[int, int]]:
        done = cli("read", "t", *arguments, "--json", "--address", self.node.address)
        assert done.returncode == Exit.OK, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return [(row["producer"], row["id"]) for row in rows]


@pytest.fixture(scope="module")
def running(module_folder: Path) -> Iterator[Served]:
    it = Served(module_folder)
    with it.node:
        yield it


@pytest.fixture
def served(running: Served) -> Iterator[Served]:
    with ringfence.connect(running.node.address, timeout_s=30) as client:
        client.create_topic("t", schema=SCHEMA, key=["producer"], partitions=3)
        publish(client, "t", range(10))
        yield running
        client.delete_topic("t", force=True)


def test_a_cohort_from_its_creation_to_its_end(served: Served, begun: Begun) -> None:
    made = served.cohort("create", "t", "c", "--mode", "stream")
    assert (made["mode"], made["start"]) == ("stream", "earliest")
    assert served.cohort("show", "t", "c")["lag_rows"] == 10 * KEYS
    member = begun(served.node.address, "t", "c", "m")
    until(lambda: served.cohort("show", "t", "c")["lag_rows"] == 0, what="all is acknowledged")
    (listed,) = served.cohort("members", "t", "c")
    assert (listed["member"], listed["partitions"]) == ("m", 3)
    assert [one["cohort"] for one in served.cohort("list")] == ["c"]
    served.cohort("reset", "t", "c", "earliest", "--yes")
    until(lambda: sum(len(one.rows) for one in member.given) == 20 * KEYS, what="all rows come again")
    served.cohort("evict", "t", "c", "m")
    member.stop()
    served.cohort("delete", "t", "c", "--yes")
    assert served.cohort("list") == []


def test_reading_as_a_member_goes_on_where_it_ended(served: Served) -> None:
    first = served.read("--cohort", "c", "--limit", "7")
    assert len(first) == 7
    rest = served.read("--cohort", "c", "--no-ack")
    assert sorted(first + rest) == [(key, number) for key in range(KEYS) for number in range(10)]
    assert sorted(served.read("--cohort", "c")) == sorted(rest), "nothing was acknowledged"
    assert served.read("--cohort", "c") == []


def test_options_that_do_not_go_together_are_refused(served: Served) -> None:
    for options, said in (
        (("--cohort", "c", "--partition", "1"), "members share the partitions"),
        (("--cohort", "c", "--start", "7"), "a new cohort begins"),
        (("--no-ack",), "belong to --cohort"),
    ):
        done = cli("read", "t", *options, "--address", served.node.address)
        assert (done.returncode, said in done.stderr) == (Exit.USAGE, True), done.stderr


def test_a_queue_is_refused_by_the_command_and_over_http(served: Served) -> None:
    done = cli("cohort", "create", "t", "q", "--mode", "queue", "--http", f"http://{served.http}")
    assert done.returncode != Exit.OK
    assert "does not serve such cohorts" in done.stderr
    place = f"http://{served.http}/admin/topics/public/default/t/subscriptions"
    with urllib.request.urlopen(place) as answer:
        assert json.load(answer)["cohorts"] == []
