"""`ringfence cohort parked|retry|discard|export` and the admin API about parked rows, over a real node."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from tests.harness.deliveries import publish
from tests.harness.parked_rows import copied, park, taken
from tests.harness.processes import SCHEMA, NodeProcess, cli, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ringfence.consumer.parked import Parked

PATH = "/admin/topics/public/default/t/subscriptions/q/parked"


class Served:
    """A node with the admin API; its topic `t` has three parked rows in the cohort `q`."""

    def __init__(self, node: NodeProcess, client: ringfence.Client, parked: list[Parked]) -> None:
        self.node, self.client, self.parked = node, client, parked
        self.names = [f"{one.partition}:{one.number}" for one in parked]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        endpoint = (
            ("--address", self.node.address)
            if arguments[0] == "export"
            else ("--http", self.node.ready["http"])
        )
        return cli("cohort", *arguments, *endpoint)

    def ok(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == Exit.OK, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return lines if arguments[0] == "parked" else lines[0]

    def http(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(
            self.node.ready["http"] + path, data=data, method=method, headers=headers
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


@pytest.fixture(scope="module")
def node(module_folder: Path) -> Iterator[NodeProcess]:
    options = ("--http", f"127.0.0.1:{free_port()}")
    with NodeProcess(module_folder / "data", options=options) as running:
        yield running


@pytest.fixture
def served(node: NodeProcess) -> Iterator[Served]:
    with ringfence.connect(node.address, timeout_s=30) as client:
        client.create_topic("t", schema=SCHEMA, key=["producer"], partitions=1)
        publish(client, "t", range(10))
        yield Served(node, client, park(client, "t", [5, 40, 100]))
        client.delete_topic("t", force=True)


def test_parked_ranges_are_listed_put_back_and_discarded(served: Served) -> None:
    first, second, _ = served.names
    listed = served.ok("parked", "t", "q")
    assert [f"{one['partition']}:{one['number']}" for one in listed] == served.names
    assert [(one["first"], one["reason"], one["state"]) for one in listed[:1]] == [(5, "row 5", "parked")]
    text = served.run("parked", "t", "q").stdout
    assert (first in text, "row 40" in text) == (True, True)
    assert served.ok("retry", "t", "q", first)["done"] == 1
    assert taken(served.client, "t") == [5]
    outcome = served.ok("discard", "t", "q", first, second, "--yes")
    assert (outcome["done"], outcome["not_parked"]) == (
        1,
        [[served.parked[0].partition, served.parked[0].number]],
    )
    assert "1 ranges discarded" in served.run("discard", "t", "q", "--all", "--yes").stdout
    assert served.ok("parked", "t", "q") == []
    assert taken(served.client, "t") == []


def test_parked_ranges_are_exported_to_a_topic_that_is_made_for_them(served: Served) -> None:
    first, *_ = served.names
    to = "t-parked"
    done = served.ok("export", "t", "q", first, "--to", to, "--create")
    assert (done["rows"], len(done["exported"])) == (1, 1)
    assert "2 ranges exported, 2 rows copied to t-parked" in served.run("export", "t", "q", "--to", to).stdout
    assert copied(served.client, to) == [5, 40, 100]
    assert served.client.topic(to).key == ["producer"]
    refused = served.run("export", "t", "q", "--to", "nowhere")
    assert refused.returncode == Exit.REFUSED
    served.client.delete_topic(to)


def test_arguments_that_do_not_go_together_are_refused(served: Served) -> None:
    for arguments, said in (
        (("retry", "t", "q"), "PARTITION:NUMBER, or --all"),
        (("discard", "t", "q", "7:9", "--all"), "PARTITION:NUMBER, or --all"),
        (("retry", "t", "q", "seven"), "'seven' is not a parked range as PARTITION:NUMBER"),
        (("export", "t", "q", "7:9", "--all", "--to", "u"), "PARTITION:NUMBER, or --all"),
    ):
        done = served.run(*arguments)
        assert (done.returncode, said in done.stderr) == (Exit.USAGE, True), done.stderr
    assert served.run("parked", "t", "none").returncode == Exit.REFUSED


def test_the_admin_api_lists_and_settles(served: Served) -> None:
    first, second, third = ([one.partition, one.number] for one in served.parked)
    status, listed = served.http("GET", PATH)
    assert (status, listed["more"], listed["unknown"]) == (200, False, [])
    assert [[one["partition"], one["number"]] for one in listed["parked"]] == [first, second, third]
    _, page = served.http("GET", f"{PATH}?after={second[0]}:{second[1]}")
    assert [one["number"] for one in page["parked"]] == [third[1]]
    nothing: dict[str, list[Any]] = {
        name: [] for name in ("not_parked", "gone", "exported", "exporting", "unknown")
    }
    assert served.http("POST", f"{PATH}/retry", {"items": [first]}) == (200, {"done": 1} | nothing)
    again = served.http("POST", f"{PATH}/retry", {"items": [first]})
    assert again == (200, {"done": 0} | nothing | {"not_parked": [first]})
    assert served.http("POST", f"{PATH}/discard", {"all": True}) == (200, {"done": 2} | nothing)
    body: dict[str, Any]
    for body in ({}, {"items": [first], "all": True}, {"items": []}, {"items": [[1]]}, {"all": 1}):
        assert served.http("POST", f"{PATH}/retry", body)[0] == 422, body
    assert served.http("GET", f"{PATH}?after=seven")[0] == 422
    assert served.http("GET", PATH.replace("/q/", "/none/"))[0] == 404
