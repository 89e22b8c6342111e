"""A running cluster is inspected: every node tells what its store has, in rounds, and one judges.

`machines.inspection` is the judge. A page of figures is limited, and so is what one inspection asks for.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import structlog

from ringfence.control.invariants import metadata as invariants
from ringfence.control.model.ids import NodeId
from ringfence.control.model.nodes import Life
from ringfence.control.runtime.data_plane.native_node import NativeNode
from ringfence.control.runtime.membership.members import Members
from ringfence.control.runtime.process.errors import NoMajorityError, RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.state_machines.inspection import Finding, Inspection, Report, Seen

_LOG = structlog.get_logger("ringfence.inspections")
ROUNDS: Final = 5
"""Readings of what one of them shows as wrong; a change of a partition takes less than all of them."""
PAUSE_S: Final = 0.5
PAGE: Final = 2_000
"""Partitions of one answer: 150 bytes each, of 1 MiB."""
ASK_S: Final = 5.0
FIGURES: Final = ("topic", "partition", "records", "chain", "owner_epoch", "open", "quarantined")


class Inspections:
    """One node's part, and the judge's."""

    def __init__(
        self, proposer: RaftProposer, peer_client: PeerClient, members: Members, driver: NativeNode
    ) -> None:
        self._proposer, self._peer_client, self._members, self._driver = (
            proposer,
            peer_client,
            members,
            driver,
        )
        self._one_at_a_time = asyncio.Lock()

    async def here(self, after: int = 0, limit: int = PAGE) -> messages.Inspected:
        """What this store has behind partition `after`; the first page tells of the metadata, too."""
        state, index = self._proposer.state, self._proposer.applied.index
        broken = None
        if after == 0:
            # A second at 100,000 partitions: the loop ticks consensus meanwhile.
            broken = await asyncio.to_thread(_broken, state, index)
        at, digest = self._members.digest
        known = sorted(
            (part for part in self._driver.node.partitions() if int(part["partition"]) > after),
            key=lambda part: int(part["partition"]),
        )
        tables = {
            (topic, partition, records): told
            for topic, partition, records, told in self._driver.node.producer_tables()
        }
        values = tuple(
            {name: part.get(name) for name in FIGURES}
            | {"producers_hash": tables.get((part["topic"], part["partition"], part["records"]))}
            | {"quarantined": None if part.get("quarantined") is None else str(part["quarantined"])[:160]}
            for part in known[:limit]
        )
        return messages.Inspected(
            store=state.nodes[self._peer_client.here].store,
            at=at,
            digest=digest.hex(),
            broken=broken,
            values=values,
            more=len(known) > limit,
        )

    async def inspect(self) -> dict[str, Any]:
        """The report, as JSON has it. RequestRefused: this node cannot tell what the metadata is."""
        async with self._one_at_a_time:
            inspection = Inspection(is_live=True)
            report = await self._round(inspection)
            for number in range(1, ROUNDS):
                # Chains that meet only while nobody writes are worth a second look, not a fifth.
                if inspection.is_sound and (number > 1 or report.compared == report.partitions):
                    break
                await asyncio.sleep(PAUSE_S)
                report = await self._round(inspection)
            return shown(report)

    async def _round(self, inspection: Inspection) -> Report:
        try:
            await self._proposer.fresh()
        except NoMajorityError as error:
            error.message = (
                f"{error.message}, so nobody knows what should be where: start the nodes that are down "
                "(`ringfence node list`), or stop the others, too, and check the directories together "
                "(`ringfence fsck --cluster --data DIR --data DIR ...`)"
            )
            raise
        seen = await self._seen()
        return inspection.round(self._proposer.state, seen)

    async def _seen(self) -> dict[NodeId, Seen]:
        state = self._proposer.state
        nodes = [
            number
            for number, node in sorted(state.nodes.items())
            if node.life is Life.LIVE or number == self._peer_client.here
        ]
        told = await asyncio.gather(*(self._of(number) for number in nodes))
        return {one.node: one for one in told if one is not None}

    async def _of(self, node: NodeId) -> Seen | None:
        """None when it does not answer."""
        parts: dict[tuple[int, int], dict[str, Any]] = {}
        first: messages.Inspected | None = None
        after = 0
        while True:
            try:
                page = await self._page(node, after)
            except RequestRefused as refusal:
                _LOG.info("not inspected", node=node, why=refusal.message)
                return None
            first = first or page
            for value in page.values:
                parts[int(value["topic"]), int(value["partition"])] = value
                after = max(after, int(value["partition"]))
            if not page.more:
                return Seen(node, first.store, first.broken, (first.at, first.digest), parts)

    async def _page(self, node: NodeId, after: int) -> messages.Inspected:
        if node == self._peer_client.here:
            return await self.here(after)
        reply = await self._peer_client.ask(node, messages.Inspect(after=after), ASK_S)
        assert isinstance(reply, messages.Inspected), reply
        return reply


def _broken(state: Any, index: int) -> str | None:
    try:
        invariants.check(state, index)
    except AssertionError as error:
        return str(error)[:500]
    return None


def shown(report: Report) -> dict[str, Any]:
    """A report as JSON has it; `sound` if nothing is wrong and everything was proven."""
    return {
        "sound": not report.findings and not report.unproven and not report.silent,
        "partitions": report.partitions,
        "compared": report.compared,
        "nodes": list(report.nodes),
        "silent": list(report.silent),
        "findings": [_shown(one) for one in report.findings],
        "unproven": [_shown(one) for one in report.unproven],
    }


def _shown(finding: Finding) -> dict[str, Any]:
    return finding._asdict()
