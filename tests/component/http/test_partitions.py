"""An owner by force: over HTTP and on the command line through either door, and what it says may be lost."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest

from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.program import run as run_command
from ringfence.control.model.ids import Epoch, NodeId
from ringfence.control.model.node_commands import FailNode
from ringfence.control.model.reassignments import LogEnd, Proof
from ringfence.control.runtime.reassignment import leader_loop
from ringfence.control.state_machines.metadata.ring_decisions import RingConsensus
from ringfence.control.state_machines.reassignment.unclean_election import candidates
from tests.fakes.admin_api import Api, joined, served
from tests.fakes.metadata_commands import create
from tests.fakes.metadata_log import END, LESS, MetadataLog
from tests.harness.processes import free_port

Patch = pytest.MonkeyPatch
ACCEPTS = "rows that only nodes 6 and 9 have"


def test_each_replica_says_what_is_lost_for_certain_and_what_perhaps() -> None:
    lab = MetadataLog(3, replication=3)
    lab.must(lab.fail(1))
    change = lab.change
    newer = LogEnd(Epoch(2), 3, 30, 5)

    def told(*proofs: Proof) -> dict[int, tuple[int | None, str]]:
        found = candidates(lab.state, change, proofs)
        return {int(known.node): (known.lost_records, known.may_lose) for known in found}

    nothing = told()
    assert set(nothing) == {1, 2, 5}
    assert all("is unknown" in text for _, text in nothing.values())
    lost, text = told(Proof(lab.place(2), END))[2]
    assert lost == 0
    assert "only on nodes 1, 5 are lost" in text
    both = told(Proof(lab.place(2), END, cut=True), Proof(lab.place(5), LESS))
    assert both[5][0] == END.records - LESS.records
    assert "1 of its records are certainly lost" in both[5][1]
    assert "its log has lost records at the end" in both[2][1]
    assert "by itself" not in both[2][1]
    apart = told(Proof(lab.place(2), END), Proof(lab.place(5), newer))
    assert apart[2][0] is None, "of logs that part nobody can say how much"
    assert "completes by itself" in apart[5][1]


async def seeking(api: Api, monkeypatch: Patch) -> tuple[int, int]:
    """A partition whose owner failed, and that failover; no replica answers a fence, two live."""

    async def silent(self: Any, term: int, order: Any) -> Any:
        await asyncio.sleep(3_600)

    monkeypatch.setattr(leader_loop.ReassignmentLeader, "_send_until_cancelled", silent)
    proposer = api.bench.node.proposer
    others = [await joined(api, number) for number in (7, 8)]
    for node in others:
        await proposer.propose(RingConsensus.propose_add(proposer.state, NodeId(node)))
    first, second = others
    await proposer.propose(create(partitions=2, nodes=((1, first, second), (first, second, 1))))
    (topic,) = proposer.state.topics.values()
    partition = next(number for number, known in topic.assignments.items() if known.owner.node == others[0])
    shown = await api.get(f"/admin/partitions/{partition}")
    assert (shown["owner"], shown["change"], len(shown["replicas"])) == (others[0], None, 3)
    early = {"change": 1, "owner": 1, "accepts": ACCEPTS}
    refused = await api("POST", f"/admin/partitions/{partition}/force-owner", early)
    assert refused.status == 412, "no failover is open"
    number = NodeId(others[0])
    await proposer.propose(FailNode(node=number, changed=proposer.state.nodes[number].changed))
    for _ in range(1_000):
        shown = await api.get(f"/admin/partitions/{partition}")
        if shown["change"] is not None:
            break
        await asyncio.sleep(0.01)
    assert shown["change"]["kind"] == "FAILOVER"
    assert [known["node"] for known in shown["change"]["candidates"]] == sorted([1, *others])
    return int(partition), int(shown["change"]["change"])


def test_an_owner_is_forced_once_by_who_says_what_may_be_lost(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(api: Api) -> None:
        partition, change = await seeking(api, monkeypatch)
        path = f"/admin/partitions/{partition}/force-owner"
        sound = {"change": change, "owner": 1, "accepts": ACCEPTS}
        failed = api.bench.node.proposer.state.topics
        (topic,) = failed.values()
        gone = int(topic.assignments[partition].owner.node)  # type: ignore[index]
        for wrong, status in (
            ({**sound, "change": change + 1}, 412),
            ({**sound, "accepts": "yes"}, 422),
            ({**sound, "owner": 99}, 422),
            ({**sound, "owner": gone}, 409),
            ({"change": change, "owner": 1}, 422),
        ):
            refused = await api("POST", path, wrong)
            assert refused.status == status, (wrong, refused)
            assert refused.slug
        assert (await api("GET", "/admin/partitions/7")).status in {404, 412}
        done = await api("POST", path, sound, idempotency_key="k")
        assert done.status == 200, done
        again = await api("POST", path, sound, idempotency_key="k")
        assert (again.status, again.text) == (200, done.text)
        shown = await api.get(f"/admin/partitions/{partition}")
        assert (shown["owner"], shown["epoch"]) == (1, done.body["index"])
        lines = [json.loads(line) for line in (tmp_path / "audit" / "audit.log").read_text().splitlines()]
        forced = [line for line in lines if "force-owner" in line["action"]]
        assert [line["status"] for line in forced][-2:] == [200, 200]
        assert ACCEPTS in forced[-1]["action"]

    served(tmp_path, monkeypatch, work)


@pytest.mark.parametrize("door", ["http", "control"])
def test_the_command_line_tells_what_may_be_lost_before_it_forces(
    tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str], door: str
) -> None:
    control = f"tcp://127.0.0.1:{free_port()}"

    async def work(api: Api) -> None:
        partition, _ = await seeking(api, monkeypatch)
        address = api.address if door == "http" else control

        async def cli(*arguments: str) -> tuple[int, str]:
            code = await asyncio.to_thread(run_command, ["partition", *arguments, f"--{door}", address])
            said = capsys.readouterr()
            return code, said.out + said.err

        number = str(partition)
        code, said = await cli("show", number)
        assert (code, "candidates for owner" in said, "is unknown" in said) == (0, True, True)
        monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
        assert (await cli("force-owner", number, "--owner", "1"))[0] == Exit.INTERRUPTED
        monkeypatch.setattr("sys.stdin", io.StringIO(""))
        code, said = await cli("force-owner", number, "--owner", "1")
        assert (code, "pass --yes" in said, "is unknown" in said) == (Exit.USAGE, True, True)
        code, said = await cli("force-owner", number, "--owner", "99", "--yes")
        assert (code, "needs an open failover" in said) == (Exit.REFUSED, True)
        code, said = await cli("force-owner", number, "--owner", "1", "--yes", "--json")
        assert code == 0, said
        [receipt] = [line for line in said.splitlines() if line.startswith("{")]  # the node logs there too
        assert json.loads(receipt)["owner"] == 1
        shown = await api.get(f"/admin/partitions/{partition}")
        assert shown["owner"] == 1

    served(tmp_path, monkeypatch, work, control=control)
