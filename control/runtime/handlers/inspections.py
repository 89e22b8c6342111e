"""Inspect a running cluster: collect figures of all stores in rounds, and check the invariants on them.

`state_machines.inspection` does the checks. One answer holds a page of limited size, so an inspection asks
each node for page after page.
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
from ringfence.control.state_machines.inspection import Inspection, NodeReading, Report

_LOG = structlog.get_logger("ringfence.inspections")
# Readings before a fault is reported; a change of a partition takes less time than all of them.
ROUNDS: Final = 5
PAUSE_S: Final = 0.5
# Partitions in one answer: 150 bytes each, of at most 1 MiB.
PAGE: Final = 2_000
ASK_S: Final = 5.0
FIGURES: Final = ("topic", "partition", "records", "chain", "owner_epoch", "open", "quarantined")
# Of partitions that layout changes have sealed or made; others leave them out.
OF_LAYOUT_CHANGES: Final = ("sealed", "sources")


class Inspections:
    """Reports this node's figures, and inspects the cluster."""

    def __init__(
        self, proposer: RaftProposer, peer_client: PeerClient, members: Members, native_node: NativeNode
    ) -> None:
        self._proposer, self._peer_client, self._members, self._native_node = (
            proposer,
            peer_client,
            members,
            native_node,
        )
        self._one_at_a_time = asyncio.Lock()

    async def here(self, after: int = 0, limit: int = PAGE) -> messages.Inspected:
        """A page of this store's partitions after `after`; the first page has the metadata's figures too."""
        state, index = self._proposer.state, self._proposer.applied.index
        broken = None
        if after == 0:
            # The check takes a second at 100,000 partitions. A thread lets the loop tick consensus meanwhile.
            broken = await asyncio.to_thread(_broken, state, index)
        at, digest = self._members.digest
        later = sorted(
            (part for part in self._native_node.node.partitions() if int(part["partition"]) > after),
            key=lambda part: int(part["partition"]),
        )
        tables = {
            (topic, partition, records): table_hash
            for topic, partition, records, table_hash in self._native_node.node.producer_tables()
        }
        values = tuple(
            {name: part.get(name) for name in FIGURES}
            | {"producers_hash": tables.get((part["topic"], part["partition"], part["records"]))}
            | {name: part[name] for name in OF_LAYOUT_CHANGES if part.get(name)}
            | {"quarantined": None if part.get("quarantined") is None else str(part["quarantined"])[:160]}
            for part in later[:limit]
        )
        return messages.Inspected(
            store=state.nodes[self._peer_client.here].store,
            at=at,
            digest=digest.hex(),
            broken=broken,
            values=values,
            more=len(later) > limit,
        )

    async def inspect(self) -> dict[str, Any]:
        """The report, as JSON values.

        Raises:
            RequestRefused: this node cannot read the newest metadata.
        """
        async with self._one_at_a_time:
            inspection = Inspection(is_live=True)
            report = await self._round(inspection)
            for number in range(1, ROUNDS):
                # Chains of partitions under load may not be comparable. That is worth a second round, not
                # a fifth.
                if inspection.is_sound and (number > 1 or report.compared == report.partitions):
                    break
                await asyncio.sleep(PAUSE_S)
                report = await self._round(inspection)
            return shown(report)

    async def _round(self, inspection: Inspection) -> Report:
        try:
            await self._proposer.read_barrier()
        except NoMajorityError as error:
            error.message = (
                f"{error.message}, so the newest metadata is unknown: start the nodes that are down "
                "(`ringfence node list`). Or stop the others, too, and check the directories together "
                "(`ringfence fsck --cluster --data DIR --data DIR ...`)"
            )
            raise
        stores = await self._read_stores()
        return inspection.round(self._proposer.state, stores)

    async def _read_stores(self) -> dict[NodeId, NodeReading]:
        state = self._proposer.state
        nodes = [
            number
            for number, node in sorted(state.nodes.items())
            if node.life is Life.LIVE or number == self._peer_client.here
        ]
        stores = await asyncio.gather(*(self._read_store(number) for number in nodes))
        return {store.node: store for store in stores if store is not None}

    async def _read_store(self, node: NodeId) -> NodeReading | None:
        """All pages of one node; None if it does not answer."""
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
                return NodeReading(node, first.store, first.broken, (first.at, first.digest), parts)

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
    """A report as JSON values; `sound` if there are no findings and everything was proven."""
    return {
        "sound": not report.findings and not report.unproven and not report.silent,
        "partitions": report.partitions,
        "compared": report.compared,
        "nodes": list(report.nodes),
        "silent": list(report.silent),
        "findings": [finding._asdict() for finding in report.findings],
        "unproven": [finding._asdict() for finding in report.unproven],
    }
