"""Metadata as administrators see it: values, out of one state."""

from __future__ import annotations

from ringfence.control.consensus.messages import ConfigurationState
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.rpc.messages import NodeInfo
from ringfence.control.state_machines.metadata.replica_counts import held, owned


def nodes(state: MetadataState, leader: int, configuration: ConfigurationState) -> tuple[NodeInfo, ...]:
    """All members, with what they are in consensus, how many partitions they own, and replicas they have."""
    owns, has = owned(state), held(state)
    voters = {*configuration.voters, *configuration.voters_outgoing}

    def role(node: int) -> str:
        if node == leader:
            return "leader"
        return "voter" if node in voters else "learner" if node in configuration.learners else "none"

    return tuple(
        NodeInfo(
            node=number,
            life=str(node.life),
            role=role(number),
            vote=str(node.vote),
            draining=node.draining,
            in_ring=number in state.ring.members,
            zone=node.zone,
            addresses=node.addresses,
            control=node.control,
            program=node.program,
            partitions=owns[number],
            replicas=has[number],
            http=node.http,
            weight=node.weight,
        )
        for number, node in sorted(state.nodes.items())
    )
