"""Build the views of metadata for administrators: values from one state."""

from __future__ import annotations

from ringfence.control.consensus.messages import ConfigurationState
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.rpc.messages import NodeInfo
from ringfence.control.state_machines.metadata.replica_counts import owned_by_node, replicas_by_node


def nodes(state: MetadataState, leader: int, configuration: ConfigurationState) -> tuple[NodeInfo, ...]:
    """All members, each with its consensus role and its counts of owned partitions and of replicas."""
    owned_counts, replica_counts = owned_by_node(state), replicas_by_node(state)
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
            partitions=owned_counts[number],
            replicas=replica_counts[number],
            http=node.http,
            weight=node.weight,
        )
        for number, node in sorted(state.nodes.items())
    )
